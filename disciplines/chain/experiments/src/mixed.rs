use anyhow::ensure;
use chain_loads::PhaseResult;
use experiments::{
    Measure, Report, Run,
    params::ratio,
    plot,
    table::{Table, percent, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Asking, InLine},
    bench::Protocol,
    layout::Cores,
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
        for cores in Cores::of(run.options.world).iter().copied() {
            let mut both = vec![];
            for protocol in Protocol::ALL {
                let mut line = InLine::new(run, (protocol, cores), self.switches, &self.asking)?;
                let mut results = vec![];
                for writes in &self.writes {
                    results.push(line.run(&self.asking.phase(*writes, None))?);
                }
                wrong += line.wrong();
                both.push(results);
            }
            all.push((cores, both));
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
    fn tell(&self, run: &Run<'_>, report: &mut Report, all: &[(Cores, Vec<Vec<PhaseResult>>)]) {
        let world = run.options.world;
        let mut table = Table::new(&[
            "core", "writes", "protocol", "reads/s", "writes/s", "put off", "again",
        ]);
        let (mut lines, mut text) = (vec![], String::new());
        for (cores, both) in all {
            for (protocol, results) in Protocol::ALL.iter().zip(both) {
                let mut line = vec![];
                for (part, result) in self.writes.iter().copied().zip(results) {
                    line.push((100.0 * part, answered(result)));
                    table.row([
                        cores.name(world).into(),
                        percent(part),
                        protocol.name().into(),
                        thousands(result.read_rate()),
                        thousands(result.write_rate()),
                        thousands(result.put_off as f64),
                        thousands(result.retransmitted as f64),
                    ]);
                    report.rows.push(json!({
                        "core": cores, "writes": part, "protocol": protocol,
                        "reads_per_s": result.read_rate(), "writes_per_s": result.write_rate(),
                        "put_off": result.put_off, "retransmitted": result.retransmitted,
                        "read_p50_us": result.reads.p50_us, "write_p50_us": result.writes.p50_us,
                    }));
                }
                lines.push((cores.series(*protocol), line));
            }
            let least = self.compare(*cores, report, both);
            text += &format!(
                "core: {}. {least:.2} times NetChain's reads at least (paper: more than twice)\n",
                cores.name(world)
            );
        }
        report.text = format!("{}\n{text}", table.render());
        let title = "Reads and writes together (NetCRAQ, fig. 5)";
        report.plot(
            run.name,
            plot::lines(title, "% writes", "answers/s", &lines),
        );
    }

    /// NetCRAQ's over NetChain's; the least of the reads.
    fn compare(&self, cores: Cores, report: &mut Report, both: &[Vec<PhaseResult>]) -> f64 {
        let (mut reads_least, mut all_least) = (f64::INFINITY, f64::INFINITY);
        for (part, (chain, craq)) in self.writes.iter().zip(both[0].iter().zip(&both[1])) {
            all_least = f64::min(all_least, answered(craq) / answered(chain));
            if *part < 1.0 {
                let times = craq.read_rate() / chain.read_rate();
                reads_least = f64::min(reads_least, times);
                let figure = format!("mixed_read_speedup_{:.0}", 100.0 * part);
                report.summarize(cores.named(figure), times);
            }
        }
        report.summarize(cores.named("mixed_read_speedup_min"), reads_least);
        report.summarize(cores.named("mixed_answer_speedup_min"), all_least);
        reads_least
    }
}
