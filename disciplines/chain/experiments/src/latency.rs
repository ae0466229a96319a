use anyhow::ensure;
use chain_loads::{Phase, PhaseResult};
use experiments::{
    Measure, Report, Run,
    params::part,
    plot,
    table::{Table, micros, percent, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Asking, InLine},
    bench::Protocol,
    layout::Cores,
};

/// How long reads at all members take while more and more are asked (figure 4).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadLatency {
    /// Switches of the chain.
    switches: u16,
    /// Reads per second, as parts of the most that NetChain answers.
    loads: Vec<f64>,
    asking: Asking,
}

impl Measure for ReadLatency {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (2..=8).contains(&self.switches),
            "switches = {}: 2 to 8",
            self.switches
        );
        ensure!(!self.loads.is_empty(), "loads: none are given");
        let mut all = self.loads.iter();
        all.try_for_each(|load| part([("loads", *load)]))?;
        self.asking.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        // What NetChain can do is what both are asked for: it comes first.
        let (mut most, mut all, mut wrong) = (None, vec![], 0);
        for protocol in Protocol::ALL {
            let mut line = InLine::new(run, (protocol, Cores::Own), self.switches, &self.asking)?;
            let most = match most {
                Some(most) => most,
                None => {
                    let full = line.run(&self.asking.phase(0.0, None))?;
                    *most.insert(full.read_rate())
                }
            };
            for load in &self.loads {
                let phase = Phase {
                    rate: Some(load * most),
                    ..self.asking.phase(0.0, None)
                };
                all.push((protocol, *load, load * most, line.run(&phase)?));
            }
            wrong += line.wrong();
        }
        report.count("wrong_values", wrong);
        report.summarize("netchain_reads_per_s", most.unwrap_or(0.0));
        self.tell(run, report, &all);
        Ok(())
    }
}

impl ReadLatency {
    fn tell(&self, run: &Run<'_>, report: &mut Report, all: &[(Protocol, f64, f64, PhaseResult)]) {
        let mut table = Table::new(&[
            "load", "asked/s", "protocol", "p50", "mean", "p99", "failed",
        ]);
        let mut lines = Protocol::ALL.map(|protocol| (protocol.name().to_string(), vec![]));
        for (protocol, load, rate, result) in all {
            let reads = &result.reads;
            let own = Protocol::ALL
                .iter()
                .position(|p| p == protocol)
                .unwrap_or(0);
            lines[own].1.push((*rate, reads.mean_us));
            table.row([
                percent(*load),
                thousands(*rate),
                protocol.name().into(),
                micros(reads.p50_us),
                micros(reads.mean_us),
                micros(reads.p99_us),
                result.failed.to_string(),
            ]);
            report.rows.push(json!({
                "load": load, "asked_per_s": rate, "protocol": protocol, "reads_per_s": result.read_rate(),
                "p50_us": reads.p50_us, "mean_us": reads.mean_us, "p99_us": reads.p99_us,
            }));
        }
        let half = all.len() / 2;
        let (chain, craq) = all.split_at(half);
        let over = |of: fn(&PhaseResult) -> f64| {
            let pairs = craq.iter().zip(chain).map(|(a, b)| of(&a.3) / of(&b.3));
            pairs.fold(0.0, f64::max)
        };
        report.summarize("p50_over_netchain_max", over(|r| r.reads.p50_us));
        report.summarize("mean_over_netchain_max", over(|r| r.reads.mean_us));
        let last = |all: &[(Protocol, f64, f64, PhaseResult)]| {
            all.last().map_or(0.0, |l| l.3.reads.mean_us)
        };
        report.summarize("mean_over_netchain_full", last(craq) / last(chain));
        report.text = format!(
            "{}\nload: part of the most that NetChain answers. The paper's NetChain takes 100 to 1000 times as long as NetCRAQ where it is full.\n",
            table.render()
        );
        let title = "How long reads take (NetCRAQ, fig. 4)";
        report.plot(
            run.name,
            plot::lines(title, "reads/s", "mean, microseconds", &lines),
        );
    }
}
