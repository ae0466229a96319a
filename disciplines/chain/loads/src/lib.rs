//! Load at chains of switches: clients that each have some operations under way, by the client
//! library's own rules (ids, waits, retransmissions), and what they measure. The same load at an
//! etcd ([`etcd`]), and clients that record what they see ([`CLIENTS`]).
//!
//! As the general load is: a [`Source`] without sockets or clocks, and around it a process on
//! sockets, or one of a simulated world. The experiments of chains call this crate; [`PROGRAMS`]
//! are what they start in namespaces.

mod contend;
pub mod etcd;
mod generator;
mod recording;
mod simulated;
mod source;

use std::{
    collections::BTreeMap,
    io::{BufReader, stdin, stdout},
    net::SocketAddr,
};

use experiments::rig::{BoxedDriver, LoadPhase, Loads};
use lab::steered::Program;
use load::{Latency, Times, Waits};
use serde::{Deserialize, Serialize};
use wire::Cluster;

pub use contend::Exclusion;
pub use recording::CLIENTS;
pub use source::{ATTACKS, Source};

/// A load generator at chains, or at an etcd: it is told and says the same.
pub type CoordLoad = BoxedDriver<Config>;

/// What experiments start as processes of a lab.
pub const PROGRAMS: &[Program] = &[
    Program {
        command: "coord-load",
        about: "Offer load at chains of switches as a configuration says (used by experiments)",
        run: |config| {
            let config = serde_json::from_str(config)?;
            generator::run(config, BufReader::new(stdin()), stdout())
        },
    },
    Program {
        command: "etcd-load",
        about: "Offer the same load at an etcd (used by experiments)",
        run: |config| {
            let config = serde_json::from_str(config)?;
            etcd::run(&config, BufReader::new(stdin()), stdout())
        },
    },
    Program {
        command: CLIENTS.command,
        about: "Be clients of chains of switches that record what they see, until standard input ends (used by experiments)",
        run: |config| {
            let config = serde_json::from_str(config)?;
            recording::run(&config, BufReader::new(stdin()), stdout())
        },
    },
];

/// What stays the same over all phases of one generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Switches and tenants.
    pub cluster: Cluster,
    /// Whose keys they are.
    pub tenant: u32,
    /// Clients, each with an id of its own.
    pub clients: usize,
    /// Keys.
    pub keys: usize,
    /// The number of the first of them; 0 unless others have keys of the same tenant.
    #[serde(default)]
    pub first_key: usize,
    /// Length in bytes of values, at least that of a key's name.
    pub value_len: usize,
    /// Decides everything random.
    pub seed: u64,
    /// How long an operation may take in milliseconds.
    pub deadline_ms: u64,
}

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// Writes every key once.
    Fill,
    /// Reads and writes keys drawn at random.
    Load,
    /// Takes locks drawn at random, and gives them back.
    Lock,
    /// What a hostile tenant can do to others ([`ATTACKS`]): writes as fast as it is told, and asks
    /// switches to watch endless keys for it. Its rate is that of all its datagrams.
    Attack,
}

/// How locks are taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// How many there are.
    pub locks: u32,
    /// How long one stays with a holder that says nothing more, in milliseconds.
    pub lease_ms: u64,
    /// How long each holder keeps it, in microseconds.
    pub hold_us: u64,
    /// Part of the holders that stand still for [`Locks::stop_ms`] instead, and then go on without
    /// a look at their clocks.
    #[serde(default)]
    pub stops: f64,
    /// How long that is, in milliseconds: longer than the lease, and others have the lock by then.
    #[serde(default)]
    pub stop_ms: u64,
}

/// One access to what a lock guards, by whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Which lock.
    pub lock: u32,
    /// The fencing token.
    pub token: u64,
    /// When, in nanoseconds of the generator's clock.
    pub at_ns: u64,
    /// Whether its lease ran, as far as its holder knew.
    pub held: bool,
}

/// One phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What it does.
    pub doing: Activity,
    /// The switch that reads are sent to; none: each member of a key's chain alike.
    pub at: Option<SocketAddr>,
    /// Keys that it uses, from the first; 0: all.
    pub keys: usize,
    /// Part of the operations that write.
    pub writes: f64,
    /// Part of the reads that are relaxed.
    #[serde(default)]
    pub relaxed: f64,
    /// Operations that each client has under way.
    pub outstanding: usize,
    /// Operations per second of all clients, which an attack must say, in an open loop; none: the
    /// next when one has ended.
    pub rate: Option<f64>,
    /// Whether they come at even distances, as those of an attack do, and not as chance has them.
    #[serde(default)]
    pub even: bool,
    /// Of a phase that takes locks.
    #[serde(default)]
    pub locks: Locks,
    /// Seconds before anything is measured.
    pub warmup_s: f64,
    /// Seconds that are measured.
    pub seconds: f64,
}

impl Phase {
    /// How long answers are waited for after it.
    fn drain_s(&self) -> f64 {
        if self.rate.is_some() { source::DRAIN * self.seconds } else { 0.0 }
    }

    /// Writes every key, within a minute.
    pub fn fill() -> Phase {
        Phase { doing: Activity::Fill, outstanding: 4, ..Phase::load(0.0, 60.0) }
    }

    /// Each client taking locks.
    pub fn lock(locks: Locks, seconds: f64) -> Phase {
        Phase { doing: Activity::Lock, locks, ..Phase::load(0.0, seconds) }
    }

    /// Each client with one operation under way, at all members.
    pub fn load(writes: f64, seconds: f64) -> Phase {
        Phase {
            doing: Activity::Load,
            at: None,
            keys: 0,
            writes,
            relaxed: 0.0,
            outstanding: 1,
            rate: None,
            even: false,
            locks: Locks::default(),
            warmup_s: 0.0,
            seconds,
        }
    }
}

/// What a phase measured: operations that ended in its measured part, or at a rate that were due in
/// it. Values that nobody wrote count in the warm-up, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Length of the measured part.
    pub seconds: f64,
    /// Reads that were answered, and how long they took; at a rate from when they were due.
    pub reads: Latency,
    /// Reads that began, in the warm-up, too.
    #[serde(default)]
    pub reads_asked: u64,
    /// At a rate: reads that were due.
    #[serde(default)]
    pub reads_begun: u64,
    /// At a rate: the times of all of these, also of those that were never answered.
    #[serde(default)]
    pub read_waits: Waits,
    /// Writes that were answered.
    pub writes: Latency,
    /// What the same reads and writes took.
    #[serde(default)]
    pub times: Times,
    /// Locks that were taken, and how long that took.
    pub locks: Latency,
    /// What holders of locks did, in the warm-up, too.
    pub accesses: Vec<Access>,
    /// Reads of keys that were not there.
    pub not_found: u64,
    /// Reads without an answer, and locks refused.
    pub failed: u64,
    /// Writes of unknown outcome, and locks that were not given back.
    pub unknown: u64,
    /// Values that are not their key's, or torn.
    pub wrong: u64,
    /// Reads that were told of an older version than this generator's writes, or its reads that
    /// were not relaxed, had been told of before they began; in the warm-up, too.
    #[serde(default)]
    pub too_old: u64,
    /// Datagrams that answered nothing.
    pub ignored: u64,
    /// Datagrams sent, over the whole phase.
    pub sent: u64,
    /// Of these, again, because no answer came in time.
    pub retransmitted: u64,
    /// Requests that a switch put off.
    pub put_off: u64,
    /// Operations of each kind of attack.
    #[serde(default)]
    pub attacks: BTreeMap<String, u64>,
    /// The last refusal.
    pub error: String,
    /// The members of the first key's chain, from its head, as the first client knows them in the
    /// end.
    #[serde(default)]
    pub members: Vec<SocketAddr>,
}

impl LoadPhase for Phase {
    fn seconds(&self) -> f64 {
        self.warmup_s + self.seconds + self.drain_s()
    }
}

impl Loads for Config {
    const COMMAND: &str = "coord-load";
    type Phase = Phase;
    type Result = PhaseResult;
}

impl Loads for etcd::Config {
    const COMMAND: &str = "etcd-load";
    type Phase = Phase;
    type Result = PhaseResult;
}

impl PhaseResult {
    /// What several generators measured at the same time, as if they were one; what concerns one
    /// of them only (locks, attacks, members) is left out.
    pub fn of_all(all: &[PhaseResult]) -> PhaseResult {
        let sum = |of: fn(&PhaseResult) -> u64| all.iter().map(of).sum();
        let last_error = all.iter().map(|result| &result.error).rfind(|error| !error.is_empty());
        let reads = Times::together(all.iter().map(|result| &result.times.reads));
        let reads_begun = sum(|result| result.reads_begun);
        PhaseResult {
            seconds: all.first().map_or(0.0, |result| result.seconds),
            reads: Latency::of(&reads),
            reads_asked: sum(|result| result.reads_asked),
            reads_begun,
            read_waits: Waits::of(&reads, reads_begun.saturating_sub(reads.len())),
            writes: Latency::of(&Times::together(all.iter().map(|result| &result.times.writes))),
            not_found: sum(|result| result.not_found),
            failed: sum(|result| result.failed),
            unknown: sum(|result| result.unknown),
            wrong: sum(|result| result.wrong),
            too_old: sum(|result| result.too_old),
            ignored: sum(|result| result.ignored),
            sent: sum(|result| result.sent),
            retransmitted: sum(|result| result.retransmitted),
            put_off: sum(|result| result.put_off),
            error: last_error.cloned().unwrap_or_default(),
            ..PhaseResult::default()
        }
    }

    /// Reads per second.
    pub fn read_rate(&self) -> f64 {
        self.reads.count as f64 / self.seconds
    }

    /// Part of the reads at a rate that were answered; none: they had no rate.
    pub fn answered_share(&self) -> Option<f64> {
        (self.reads_begun > 0).then(|| self.reads.count as f64 / self.reads_begun as f64)
    }

    /// Writes per second.
    pub fn write_rate(&self) -> f64 {
        self.writes.count as f64 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use load::histogram;

    use super::*;

    fn result(reads_ns: &[u64], wrong: u64) -> PhaseResult {
        let mut reads = histogram(3);
        reads_ns.iter().for_each(|ns| reads.saturating_record(*ns));
        PhaseResult {
            seconds: 2.0,
            reads: Latency::of(&reads),
            times: Times::of(&reads, &histogram(3)),
            wrong,
            ..PhaseResult::default()
        }
    }

    #[test]
    fn several_generators_are_told_as_one() {
        let all = [result(&[1000, 1000, 2000], 1), result(&[9000, 9000], 2)];
        let one = PhaseResult::of_all(&all);
        let same = result(&[1000, 1000, 2000, 9000, 9000], 3);
        assert_eq!((one.reads, one.wrong), (same.reads, 3));
        assert_eq!(one.read_rate(), 2.5);
        assert_eq!(one.writes, Latency::default());
    }
}
