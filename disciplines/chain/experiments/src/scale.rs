use anyhow::ensure;
use experiments::{
    Measure, Report, Run, plot,
    table::{Table, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Asking, InLine},
    bench::Protocol,
    layout::Cores,
};

/// What the paper has for reads at the head, by the length of the chain.
const PAPER: [(u16, f64); 2] = [(4, 4.08), (8, 9.46)];

/// The most reads per second at the head of chains of several lengths (figure 6).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Switches of each chain.
    lengths: Vec<u16>,
    asking: Asking,
}

impl Measure for Scale {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.lengths.is_empty(), "lengths: none are given");
        for length in &self.lengths {
            ensure!((2..=8).contains(length), "lengths: {length}: 2 to 8");
        }
        self.asking.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let world = run.options.world;
        let columns = ["core", "members", "netchain", "netcraq", "times", "paper"];
        let mut table = Table::new(&columns);
        let (mut lines, mut wrong) = (vec![], 0);
        for cores in Cores::of(world).iter().copied() {
            let mut own = Protocol::ALL.map(|protocol| (cores.series(protocol), vec![]));
            for length in self.lengths.iter().copied() {
                for (protocol, (_, line)) in Protocol::ALL.into_iter().zip(&mut own) {
                    let mut chain = InLine::new(run, (protocol, cores), length, &self.asking)?;
                    let at = chain.members.first().copied();
                    let result = chain.run(&self.asking.phase(0.0, at))?;
                    line.push((f64::from(length), result.read_rate()));
                    wrong += chain.wrong();
                    report.rows.push(json!({
                        "core": cores, "members": length, "protocol": protocol,
                        "reads_per_s": result.read_rate(), "p50_us": result.reads.p50_us,
                    }));
                }
                let [chain, craq] = own.each_ref().map(|(_, line)| line[line.len() - 1].1);
                let paper = PAPER.iter().find(|(of, _)| *of == length);
                table.row([
                    cores.name(world).into(),
                    length.to_string(),
                    thousands(chain),
                    thousands(craq),
                    format!("{:.2}", craq / chain),
                    paper.map_or("-".into(), |(_, times)| times.to_string()),
                ]);
                let figure = format!("head_read_speedup_{length}");
                report.summarize(cores.named(figure), craq / chain);
            }
            lines.extend(own);
        }
        report.count("wrong_values", wrong);
        report.text = format!("reads per second at the head\n{}", table.render());
        let title = "Most reads at the head by the chain's length (NetCRAQ, fig. 6)";
        report.plot(run.name, plot::lines(title, "members", "reads/s", &lines));
        Ok(())
    }
}
