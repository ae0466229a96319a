//! A chain of switches in a line, each of which is asked by clients of its own (the paper's figures
//! 3 to 6).

use anyhow::ensure;
use chain_loads::{CoordLoad, Phase, PhaseResult};
use experiments::{
    Run, World,
    params::ratio,
    sweep::{Figures, Point, Points},
};
use plan::Hardware;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Demand, InLine, learning},
    bound::PacketCosts,
    layout::Cores,
    protocol::Protocol,
};

/// What members count of reads that met a version which they do not know to be committed.
const DIRTY: &str = "order_dirty";
/// The name of what NetChain answers if as much is asked as can be under way: to each member's
/// clients as much as to those that are answered least.
const MOST: &str = "netchain_even_reads_per_s";

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
    /// Reads per second, as a part of the most that NetChain answers to all members' clients alike;
    /// none: as many as can be under way.
    load: Option<f64>,
    /// Whose clients ask.
    #[serde(default)]
    asked: AskedMembers,
    /// How far from the tail the only member is whose clients ask; none: as `asked` says.
    distance: Option<usize>,
    /// What switches and links are in the simulator.
    hardware: Hardware,
    /// Which keys are read.
    #[serde(default)]
    keys: Keys,
    /// Clients that write the one dirty key, one after another, while it is read.
    #[serde(default)]
    writers: usize,
    /// Writes of that key per second; none: as many as these clients get done.
    write_rate: Option<f64>,
}

/// Keys that nobody writes, or one that is always being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    #[default]
    Clean,
    Dirty,
}

/// Members whose own clients ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AskedMembers {
    /// Each of them, of its own clients.
    #[default]
    All,
    Head,
}

/// A line, and who writes in it.
pub struct Bench {
    line: InLine,
    writer: Option<CoordLoad>,
}

impl LinePoint {
    /// What each member's clients do.
    fn phase(&self) -> Phase {
        let keys = usize::from(self.keys == Keys::Dirty);
        Phase { keys, ..self.asking.phase(self.writes) }
    }

    /// How many times NetChain's reads NetCRAQ's can be at most; none: the switches' time is not
    /// known, or not theirs alone.
    fn at_most(&self, world: World) -> Option<f64> {
        let costs = PacketCosts::of(&self.hardware);
        let is_known = world == World::Sim && self.core == Cores::Own && self.writes < 1.0;
        is_known.then(|| costs.speedup_at_most(self.members, self.writes))
    }

    /// The places of the members whose clients ask, from the head's.
    fn places(&self) -> Vec<usize> {
        let members = usize::from(self.members);
        match (self.distance, self.asked) {
            (Some(distance), _) => vec![members - 1 - distance],
            (None, AskedMembers::Head) => vec![0],
            (None, AskedMembers::All) => (0..members).collect(),
        }
    }
}

impl Point for LinePoint {
    type Bench<'a> = Bench;

    fn check(&self) -> anyhow::Result<()> {
        let members = self.members;
        ensure!((2..=8).contains(&members), "members = {members}: 2 to 8");
        ratio("writes", self.writes)?;
        let load = self.load.unwrap_or(1.0);
        ensure!(load > 0.0 && load <= 2.0, "load = {load}: more than 0, to 2");
        let distance = self.distance.unwrap_or(0);
        ensure!(distance < members.into(), "distance = {distance}: there are {members} members");
        let least = usize::from(self.keys == Keys::Dirty);
        ensure!((least..=64).contains(&self.writers), "writers = {}: {least} to 64", self.writers);
        self.asking.check(members)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench> {
        let mut line = InLine::new(
            run,
            (self.protocol, self.core),
            &self.hardware,
            self.members,
            &self.asking,
        )?;
        let mut writer = (self.writers > 0)
            .then(|| line.bench.load(self.writers, 1, self.asking.value_len))
            .transpose()?;
        if let Some(writer) = &mut writer {
            writer.run(&learning(self.writers))?;
        }
        Ok(Bench { line, writer })
    }

    fn measure(
        &self,
        bench: &mut Bench,
        run: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let (mut phase, places) = (self.phase(), self.places());
        let (mut most, mut wrong) = (None, 0);
        if let Some(load) = self.load {
            // What NetChain can do is what both are asked for: it comes first. Its tail's own
            // clients are answered more than others, and at a rate all members are asked alike.
            most = before.all().first().and_then(|first| first.number(MOST));
            if most.is_none() {
                ensure!(
                    self.protocol == Protocol::Netchain,
                    "load is a part of what NetChain answers: it has to be the first protocol"
                );
                let full = bench.line.run(&places, &phase)?;
                most = Some(least(&full) * places.len() as f64);
                let full = PhaseResult::of_all(&full);
                wrong += full.wrong + full.not_found;
            }
            phase.rate = most.map(|most| load * most / places.len() as f64);
        }
        let dirty_before = bench.line.count(&places, DIRTY)?;
        let writer = bench.writer.as_mut().filter(|_| self.keys == Keys::Dirty);
        let mut written = None;
        let results = match writer {
            Some(writer) => {
                let longer = phase.warmup_s + phase.seconds;
                // Even: the key is to be written all the time.
                let writes = Phase { even: true, ..Phase::load(1.0, 1.5 * longer) };
                writer.begin(&Phase { rate: self.write_rate, ..writes })?;
                let results = bench.line.run(&places, &phase)?;
                written = Some(writer.finish()?.write_rate());
                results
            }
            None => bench.line.run(&places, &phase)?,
        };
        let result = PhaseResult::of_all(&results);
        let dirty = bench.line.count(&places, DIRTY)? - dirty_before;
        let by_member: Vec<f64> = results.iter().map(PhaseResult::read_rate).collect();
        wrong += result.wrong + result.not_found;
        let answered = result.read_rate() + result.write_rate();
        Ok(vec![
            Figures::new(json!({ "reads_per_s": result.read_rate() }))
                .aside("least_reads_per_s", least(&results))
                .aside("by_member", by_member)
                .aside("at_most", self.at_most(run.options.world))
                .aside("dirty_share", dirty as f64 / (result.reads_asked as f64).max(1.0))
                .aside("writes_per_s", written.unwrap_or(result.write_rate()))
                .aside("answers_per_s", answered)
                .aside("asked_per_s", phase.rate.map(|rate| rate * places.len() as f64))
                .aside(MOST, most)
                .aside("read", serde_json::to_value(result.reads)?)
                .aside("read_waits", serde_json::to_value(result.read_waits)?)
                .aside("answered_share", result.answered_share())
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

/// Reads per second of the member whose clients were answered least.
fn least(results: &[PhaseResult]) -> f64 {
    results.iter().map(PhaseResult::read_rate).fold(f64::INFINITY, f64::min)
}
