//! What histories of clients come to in a report.

use anyhow::{Context, ensure};
use history::{CHECKER, ClientRecord, Effect, Verdict, check, shrink};
use serde_json::{Value, json};
use text::table::{Table, thousands};

use super::Report;

/// Checks each of at most `keys` keys; a violation makes the report a failure, with the smallest
/// history that shows it beside. Adds a row per key and a table.
///
/// # Errors
/// A key that nobody was told to use, or a history that cannot be decided.
pub fn judge(report: &mut Report, recorded: &ClientRecord, keys: usize) -> anyhow::Result<()> {
    let by_key = recorded.by_key();
    ensure!(by_key.keys().all(|key| (*key as usize) < keys), "a key that nobody was told to use");
    let mut violations = 0;
    let mut rows = vec![];
    let judged: usize = by_key.values().map(Vec::len).sum();
    report.count("operations_judged", judged as u64);
    if judged * 2 < recorded.operations.len() {
        report.fails(format!(
            "{judged} of {} operations could be judged: the others are on keys that have what \
             nobody can tell",
            recorded.operations.len()
        ));
    }
    for (key, operations) in by_key {
        let verdict = check(&operations).with_context(|| format!("key {key}"))?;
        let mut lost_write = false;
        if let Verdict::Violation(at) = verdict {
            violations += 1;
            // What was read or compared with is not what the writes before it left there.
            lost_write = operations[at].effect == Effect::Keep;
            let small = shrink(&operations, at);
            let text = serde_json::to_string_pretty(&json!({
                "key": key, "returned_impossibly": operations[at], "smallest": small,
            }))?;
            let name = &report.experiment;
            let files = [
                (format!("{name}-violation-key{key}.json"), text),
                (format!("{name}-history-key{key}.json"), serde_json::to_string(&operations)?),
            ];
            report.plots.extend(files);
        }
        rows.push(json!({
            "key": key,
            "operations": operations.len(),
            "outcome_unknown": operations.iter().filter(|o| o.return_ns.is_none()).count(),
            "linearizable": verdict == Verdict::Linearizable,
            "lost_write": lost_write,
        }));
    }
    report.text += &tell(&rows);
    report.rows.extend(rows);
    report.summary.insert("violations".into(), violations.into());
    report.summary.insert("checker".into(), CHECKER.into());
    if violations > 0 {
        report.fails(format!(
            "{violations} keys are not linearizable; the smallest histories that show it are among the files written"
        ));
    }
    Ok(())
}

fn tell(rows: &[Value]) -> String {
    let mut table = Table::new(&["key", "operations", "outcome unknown", "linearizable"]);
    for row in rows {
        let number = |name: &str| thousands(row[name].as_f64().unwrap_or(0.0));
        let verdict = if row["linearizable"] == true { "yes" } else { "NO" };
        table.row([number("key"), number("operations"), number("outcome_unknown"), verdict.into()]);
    }
    table.render()
}
