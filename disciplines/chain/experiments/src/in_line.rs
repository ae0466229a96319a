//! A chain of switches in a line, asked at its head's end (the paper's figures 3 to 6).

use anyhow::{Context, ensure};
use chain_loads::{CoordLoad, Phase};
use experiments::{
    Run,
    params::ratio,
    sweep::{Figures, Point, Points},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Demand, InLine},
    layout::Cores,
    protocol::Protocol,
};

/// The name of what NetChain answers if as much is asked as can be under way.
const MOST: &str = "netchain_reads_per_s";

/// One chain, asked in one way.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinePoint {
    asking: Demand,
    protocol: Protocol,
    /// Whose time switches take, in the simulator.
    #[serde(default)]
    core: Cores,
    /// Switches, all of them members.
    members: u16,
    /// Part of the operations that write.
    #[serde(default)]
    writes: f64,
    /// Reads per second, as a part of the most that NetChain answers; none: as many as can be under
    /// way.
    load: Option<f64>,
    /// Whether only the head is asked.
    #[serde(default)]
    at_head: bool,
    /// How far from the tail the member is that is asked; none: each alike.
    distance: Option<usize>,
    /// Which keys are read.
    #[serde(default)]
    keys: Keys,
    /// Clients that write the one dirty key, one after another, while it is read.
    #[serde(default)]
    writers: usize,
}

/// Keys that nobody writes, or one that is always being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    #[default]
    Clean,
    Dirty,
}

/// A line, and who writes in it.
pub struct Bench {
    line: InLine,
    writer: Option<CoordLoad>,
}

impl LinePoint {
    /// What is asked of the chain.
    fn phase(&self, bench: &Bench) -> anyhow::Result<Phase> {
        let last = usize::from(self.members) - 1;
        let place = match (self.at_head, self.distance) {
            (true, _) => Some(0),
            (false, distance) => distance.map(|distance| last - distance),
        };
        let at = place.map(|place| bench.line.members.get(place).copied());
        let at = at.map(|at| at.context("a member")).transpose()?;
        Ok(Phase {
            keys: usize::from(self.keys == Keys::Dirty),
            ..self.asking.phase(self.writes, at)
        })
    }
}

impl Point for LinePoint {
    type Bench<'a> = Bench;

    fn check(&self) -> anyhow::Result<()> {
        let members = self.members;
        ensure!((2..=8).contains(&members), "members = {members}: 2 to 8");
        ratio("writes", self.writes)?;
        let load = self.load.unwrap_or(1.0);
        ensure!(load > 0.0 && load <= 1.0, "load = {load}: more than 0, to 1");
        let distance = self.distance.unwrap_or(0);
        ensure!(distance < members.into(), "distance = {distance}: there are {members} members");
        let least = usize::from(self.keys == Keys::Dirty);
        ensure!((least..=64).contains(&self.writers), "writers = {}: {least} to 64", self.writers);
        self.asking.check()
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench> {
        let mut line = InLine::new(run, (self.protocol, self.core), self.members, &self.asking)?;
        let writer = (self.writers > 0)
            .then(|| line.bench.load(self.writers, 1, self.asking.value_len))
            .transpose()?;
        Ok(Bench { line, writer })
    }

    fn measure(
        &self,
        bench: &mut Bench,
        run: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let mut phase = self.phase(bench)?;
        let (mut most, mut wrong) = (None, 0);
        if let Some(load) = self.load {
            // What NetChain can do is what both are asked for: it comes first.
            most = before.all().first().and_then(|first| first.number(MOST));
            if most.is_none() {
                let full = bench.line.run(&phase)?;
                most = Some(full.read_rate());
                wrong += full.wrong + full.not_found;
            }
            phase.rate = most.map(|most| load * most);
        }
        let writer = bench.writer.as_mut().filter(|_| self.keys == Keys::Dirty);
        let mut written = None;
        let result = match writer {
            Some(writer) => {
                let longer = phase.warmup_s + phase.seconds;
                writer.begin(&Phase::load(1.0, 1.5 * longer))?;
                let result = bench.line.run(&phase)?;
                written = Some(writer.finish()?.write_rate());
                result
            }
            None => bench.line.run(&phase)?,
        };
        wrong += result.wrong + result.not_found;
        let answered = result.read_rate() + result.write_rate();
        Ok(vec![
            Figures::new(json!({ "reads_per_s": result.read_rate() }))
                .aside("writes_per_s", written.unwrap_or(result.write_rate()))
                .aside("answers_per_s", answered)
                .aside("asked_per_s", phase.rate)
                .aside(MOST, most)
                .aside("read", serde_json::to_value(result.reads)?)
                .aside("write", serde_json::to_value(result.writes)?)
                .aside("put_off", result.put_off)
                .aside("retransmitted", result.retransmitted)
                .aside("failed", result.failed)
                .aside("wrong", wrong)
                .aside("members", self.members)
                .aside("percent", self.writes * 100.0)
                .aside("whose", self.core.name(run.options.world))
                .aside("series", self.core.series(self.protocol))
                .aside("of_core", self.core.named("")),
        ])
    }
}
