use anyhow::ensure;
use experiments::{
    Measure, Report, Run,
    params::ratio,
    plot,
    table::{Table, percent, thousands},
};
use load::coord::PhaseResult;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Asking, InLine},
    bench::Protocol,
};

/// Reads and writes together, at all members alike (figure 5).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// Switches of the chain.
    switches: u16,
    /// Parts of the operations that write.
    writes: Vec<f64>,
    asking: Asking,
}

impl Measure for Mixed {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (2..=8).contains(&self.switches),
            "switches = {}: 2 to 8",
            self.switches
        );
        ensure!(!self.writes.is_empty(), "writes: none are given");
        let mut all = self.writes.iter();
        all.try_for_each(|part| ratio("writes", *part))?;
        self.asking.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let (mut all, mut wrong) = (vec![], 0);
        for protocol in Protocol::ALL {
            let mut line = InLine::new(run, protocol, self.switches, &self.asking)?;
            let mut results = vec![];
            for writes in &self.writes {
                results.push(line.run(&self.asking.phase(*writes, None))?);
            }
            wrong += line.wrong();
            all.push(results);
        }
        report.count("wrong_values", wrong);
        self.tell(run, report, &all);
        Ok(())
    }
}

/// What is answered in a second.
fn answered(result: &PhaseResult) -> f64 {
    result.read_rate() + result.write_rate()
}

impl Mixed {
    /// Of each protocol what came of each part.
    fn tell(&self, run: &Run<'_>, report: &mut Report, all: &[Vec<PhaseResult>]) {
        let mut table = Table::new(&[
            "writes", "protocol", "reads/s", "writes/s", "put off", "again",
        ]);
        let mut lines = Protocol::ALL.map(|protocol| (protocol.name().to_string(), vec![]));
        let (mut reads_least, mut all_least) = (f64::INFINITY, f64::INFINITY);
        for (n, part) in self.writes.iter().copied().enumerate() {
            for ((protocol, results), (_, line)) in Protocol::ALL.iter().zip(all).zip(&mut lines) {
                let result = &results[n];
                line.push((100.0 * part, answered(result)));
                table.row([
                    percent(part),
                    protocol.name().into(),
                    thousands(result.read_rate()),
                    thousands(result.write_rate()),
                    thousands(result.put_off as f64),
                    thousands(result.retransmitted as f64),
                ]);
                report.rows.push(json!({
                    "writes": part, "protocol": protocol,
                    "reads_per_s": result.read_rate(), "writes_per_s": result.write_rate(),
                    "put_off": result.put_off, "retransmitted": result.retransmitted,
                    "read_p50_us": result.reads.p50_us, "write_p50_us": result.writes.p50_us,
                }));
            }
            let (craq, chain) = (&all[0][n], &all[1][n]);
            all_least = f64::min(all_least, answered(craq) / answered(chain));
            if part < 1.0 {
                let times = craq.read_rate() / chain.read_rate();
                reads_least = f64::min(reads_least, times);
                report.summarize(format!("mixed_read_speedup_{:.0}", 100.0 * part), times);
            }
        }
        report.summarize("mixed_read_speedup_min", reads_least);
        report.summarize("mixed_answer_speedup_min", all_least);
        report.text = format!(
            "{}\n{reads_least:.2} times NetChain's reads at least (paper: more than twice)\n",
            table.render()
        );
        // NetChain in grey, as what others are held against is everywhere.
        lines.reverse();
        let title = "Reads and writes together (NetCRAQ, fig. 5)";
        report.plot(
            run.name,
            plot::lines(title, "% writes", "answers/s", &lines),
        );
    }
}
