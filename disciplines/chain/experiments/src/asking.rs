//! How much is asked of a chain in a line, and for how long.

use std::net::SocketAddr;

use anyhow::ensure;
use chain_loads::{CoordLoad, Phase, PhaseResult};
use experiments::{
    Run,
    params::{keys, positive},
};
use serde::{Deserialize, Serialize};

use crate::{
    bench::Bench,
    layout::{Cores, Layout},
    protocol::Protocol,
};

/// Clients at the head's end of a line, as many operations of which are under way as switches can
/// be full with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Clients, and operations that each has under way.
    pub clients: usize,
    pub outstanding: usize,
    /// Keys, drawn alike.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Before each measurement, and of each, in seconds.
    pub warmup_s: f64,
    pub seconds: f64,
}

impl Demand {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        let under_way = self.clients * self.outstanding;
        ensure!(
            (1..=768).contains(&under_way),
            "clients = {}, outstanding = {}: what waits at one switch is at most 1024",
            self.clients,
            self.outstanding
        );
        positive([
            ("value_len", self.value_len as f64),
            ("warmup_s", self.warmup_s),
            ("seconds", self.seconds),
        ])
    }

    /// A phase of these operations: a part of them writes, the others read at one member or at
    /// each alike.
    pub fn phase(&self, writes: f64, at: Option<SocketAddr>) -> Phase {
        Phase {
            at,
            outstanding: self.outstanding,
            warmup_s: self.warmup_s,
            ..Phase::load(writes, self.seconds)
        }
    }
}

/// A chain of all switches of a line, and who asks at its head's end.
pub struct InLine {
    pub bench: Bench,
    pub load: CoordLoad,
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
        switches: u16,
        asking: &Demand,
    ) -> anyhow::Result<InLine> {
        let name = protocol.name();
        let whose = cores.name(run.options.world);
        run.progress.say(format!("{name}: a line of {switches}, core: {whose}"));
        let layout = Layout { cores, ..Layout::line(switches) };
        let mut bench = Bench::new(run, layout, protocol, switches)?;
        let (order, members) = (bench.layout.order(), bench.members()?);
        ensure!(order == members, "the chain is {members:?}, and the line {order:?}");
        let load = bench.load(asking.clients, asking.keys, asking.value_len)?;
        let members = order.iter().filter_map(|id| bench.address(*id));
        Ok(InLine { members: members.collect(), bench, load })
    }

    /// Runs a phase; what is not answered ends it.
    ///
    /// # Errors
    /// As [`experiments::rig::Driver::run`], or nobody was answered.
    pub fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        let result = self.load.run(phase)?;
        let answered = result.reads.count + result.writes.count;
        ensure!(answered > 0, "nobody was answered: {}", result.error);
        Ok(result)
    }
}
