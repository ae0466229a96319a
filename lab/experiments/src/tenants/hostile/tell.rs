//! What is told of two encounters: what well-behaved tenants got beside hostile neighbours over
//! what they got beside harmless ones, and what the attackers sent.

use load::{Attack, PhaseResult};
use serde_json::{Value, json};
use text::table::{Table, percent, thousands};

use super::cast::Encounter;
use crate::{Report, tenants::neighbour::Neighbour};

/// Adds rows, a summary and the table.
pub(super) fn tell(
    report: &mut Report,
    neighbours: &[&Neighbour],
    harmless: &Encounter,
    hostile: &Encounter,
) {
    let own = neighbours.iter().map(|neighbour| format!("{}/s", neighbour.operations));
    let columns = COLUMNS.into_iter().map(String::from).chain(own);
    let columns: Vec<String> = columns.collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    for (name, seen) in [("harmless", harmless), ("hostile", hostile)] {
        table.row(cells(name, seen));
        report.rows.push(row(name, seen, neighbours));
    }
    report.text = table.render();
    let share = |of: &dyn Fn(&Encounter) -> f64| of(hostile) / of(harmless);
    report.summarize("victim_throughput_share", share(&|seen| seen.reader.throughput()));
    report.summarize("victim_hit_ratio_share", share(&|seen| seen.reader.hit_ratio()));
    report.summarize("victim_loans_share", share(&Encounter::lent_rate));
    for (at, neighbour) in neighbours.iter().enumerate() {
        let name = format!("victim_{}_share", neighbour.operations);
        report.summarize(name, share(&|seen| seen.own[at].throughput));
    }
    // What attackers ask for is granted them, from what is theirs: they were not just thrown away.
    report.summarize("grants_over_harmless", share(&|seen| seen.count("grants") as f64));
    report.count("leases_lost", hostile.leases_lost());
    let own = neighbours.iter().flat_map(|neighbour| neighbour.attacks).copied();
    let mut sent = 0;
    for name in Attack::ALL.into_iter().map(Attack::name).chain(own) {
        let count = hostile.attacks(name);
        report.count(&format!("attacks_sent_{name}"), count);
        sent += count;
    }
    report.count("attacks_sent", sent);
    let [wrong, foreign] = [0, 1].map(|which| harmless.wrong()[which] + hostile.wrong()[which]);
    report.count("foreign_values_seen", foreign);
    report.count("wrong_values", wrong);
}

const COLUMNS: [&str; 10] = [
    "neighbours",
    "their packets/s",
    "req/s",
    "lost",
    "hits",
    "leases lost",
    "recalls",
    "grants",
    "waits lapsed",
    "lent writes/s",
];

fn cells(name: &str, seen: &Encounter) -> Vec<String> {
    let own = seen.own.iter().map(|result| thousands(result.throughput));
    let all = [
        name.into(),
        thousands(seen.their_rate()),
        thousands(seen.reader.throughput()),
        percent(seen.reader.loss()),
        percent(seen.reader.hit_ratio()),
        seen.leases_lost().to_string(),
        seen.count("directory_evictions").to_string(),
        seen.count("grants").to_string(),
        seen.count("waits_lapsed").to_string(),
        thousands(seen.lent_rate()),
    ];
    all.into_iter().chain(own).collect()
}

fn row(name: &str, seen: &Encounter, neighbours: &[&Neighbour]) -> Value {
    let mut row = json!({
        "neighbour": name,
        "their_rate": seen.their_rate(),
        "throughput": seen.reader.throughput(),
        "loss": seen.reader.loss(),
        "hit_ratio": seen.reader.hit_ratio(),
        "p99_us": seen.reader.all.p99_us,
        "leases_lost": seen.leases_lost(),
        "directory_evictions": seen.count("directory_evictions"),
        "grants": seen.count("grants"),
        "waits_lapsed": seen.count("waits_lapsed"),
        "lent_writes": seen.lent_rate(),
        "writer_throughput": PhaseResult::throughput(&seen.writer),
    });
    for (neighbour, result) in neighbours.iter().zip(&seen.own) {
        row[neighbour.operations] = result.throughput.into();
    }
    row
}
