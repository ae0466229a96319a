//! How much is asked of a chain in a line, at each member by its own clients, and for how long.

use std::net::SocketAddr;

use anyhow::ensure;
use chain_loads::{CoordLoad, Phase, PhaseResult};
use experiments::{
    Run,
    params::{keys, positive},
};
use plan::{Hardware, client};
use serde::{Deserialize, Serialize};

use crate::{
    bench::Bench,
    layout::{Cores, Layout},
    protocol::Protocol,
};

/// Clients at each member of a line, as many operations of which are under way as switches can be
/// full with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Clients of each member, and operations that each of them has under way.
    pub clients: usize,
    pub outstanding: usize,
    /// Keys, drawn alike.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Versions of a key that may be on their way at once, as a power of two.
    pub versions: u32,
    /// Before each measurement, and of each, in seconds.
    pub warmup_s: f64,
    pub seconds: f64,
}

impl Demand {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self, members: u16) -> anyhow::Result<()> {
        keys(self.keys)?;
        let under_way = self.clients * self.outstanding * usize::from(members);
        ensure!(
            (1..=1024).contains(&under_way),
            "clients = {}, outstanding = {}, of {members} members: what waits at one switch is at most 1024",
            self.clients,
            self.outstanding
        );
        positive([
            ("value_len", self.value_len as f64),
            ("warmup_s", self.warmup_s),
            ("seconds", self.seconds),
        ])
    }

    /// A phase of these operations: a part of them writes, the others read.
    pub fn phase(&self, writes: f64) -> Phase {
        Phase {
            outstanding: self.outstanding,
            warmup_s: self.warmup_s,
            ..Phase::load(writes, self.seconds)
        }
    }
}

/// What clients do before anything is measured: they wait for time-outs until they know the chain,
/// and until it knows them.
pub fn learning(clients: usize) -> Phase {
    Phase { rate: Some(LEARN_RATE * clients as f64), ..Phase::load(0.5, LEARN_S) }
}

/// How long that takes in seconds, and how much each client asks per second.
const LEARN_S: f64 = 0.3;
const LEARN_RATE: f64 = 100.0;

/// A chain of all switches of a line, and who asks at each of them.
pub struct InLine {
    pub bench: Bench,
    /// Of each member's own clients, from the head.
    loads: Vec<CoordLoad>,
    /// From the head.
    pub members: Vec<SocketAddr>,
}

impl InLine {
    /// A line of so many switches whose keys are there.
    ///
    /// # Errors
    /// It cannot be built, or its chain goes another way than the line.
    pub fn new(
        run: &Run<'_>,
        (protocol, cores): (Protocol, Cores),
        hardware: &Hardware,
        switches: u16,
        asking: &Demand,
    ) -> anyhow::Result<InLine> {
        let name = protocol.name();
        let whose = cores.name(run.options.world);
        run.progress.say(format!("{name}: a line of {switches}, core: {whose}"));
        let layout = Layout {
            cores,
            hardware: hardware.clone(),
            versions: asking.versions,
            ..Layout::line(switches)
        };
        let mut bench = Bench::new(run, layout, protocol, switches)?;
        let (order, members) = (bench.layout.order(), bench.members()?);
        ensure!(order == members, "the chain is {members:?}, and the line {order:?}");
        let Demand { clients, keys, value_len, .. } = *asking;
        let loads = (1..=switches.into()).map(|number| match number {
            1 => bench.load(clients, keys, value_len),
            _ => bench.load_at(&client(number), clients, keys, value_len),
        });
        let loads = loads.collect::<anyhow::Result<_>>()?;
        let members = order.iter().filter_map(|id| bench.address(*id));
        let mut line = InLine { members: members.collect(), bench, loads };
        let places: Vec<usize> = (0..switches.into()).collect();
        line.run(&places, &learning(clients))?;
        Ok(line)
    }

    /// How often these members have counted something so far.
    ///
    /// # Errors
    /// A member does not say, or counts no such thing.
    pub fn count(&self, places: &[usize], counter: &str) -> anyhow::Result<u64> {
        let order = self.bench.layout.order();
        let counts = places.iter().map(|place| self.bench.count_at(order[*place], counter));
        counts.sum()
    }

    /// Has the own clients of each of these members run a phase at the same time, and reads asked
    /// of that member; what is not answered ends it. Results are in the places' order.
    ///
    /// # Errors
    /// As [`experiments::rig::Driver::run`], or a member's clients were not answered.
    pub fn run(&mut self, places: &[usize], phase: &Phase) -> anyhow::Result<Vec<PhaseResult>> {
        for place in places {
            let at = self.members.get(*place).copied();
            self.loads[*place].begin(&Phase { at, ..phase.clone() })?;
        }
        let finished = places.iter().map(|place| {
            let result = self.loads[*place].finish()?;
            let answered = result.reads.count + result.writes.count;
            ensure!(answered > 0, "place {place}: nobody was answered: {}", result.error);
            Ok(result)
        });
        finished.collect()
    }
}
