//! What a generator of load is told: once, what stays the same, and then phase by phase.
//! Experiments and tests write both; the generator and its source read them.

use serde::{Deserialize, Serialize};
use wire::{Cluster, Lengths};

use crate::{
    forge::Attack,
    trace::TraceSpec,
    workload::{Churn, Popularity, ValueMix},
};

/// What stays the same over all phases of one generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// Where the partitions are.
    pub cluster: Cluster,
    /// Whose keys are asked for; their secrets come from the cluster and sign every request. Empty:
    /// the open tenant's.
    #[serde(default)]
    pub tenants: Vec<u32>,
    /// How many keys each tenant has, as `store --populate` numbers them.
    pub keys: usize,
    /// Lengths of the values: those that stores are populated with, and those that are written.
    pub value_len: Lengths,
    /// Decides everything random.
    pub seed: u64,
    /// Generators of one seed find the same keys hot; those of different numbers ask for them at
    /// times of their own.
    #[serde(default)]
    pub number: u64,
    /// A request unanswered for so long is lost.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// A request unanswered for so long is sent again, and then after twice as long each time, as
    /// clients do; none: nothing is sent again but what goes on in another life.
    #[serde(default)]
    pub again_ms: Option<u64>,
    /// Length of one interval of the counts over time.
    #[serde(default = "interval_ms")]
    pub interval_ms: u64,
    /// Whether writes name the life of their key or store and go on in another, as clients' do
    /// (rule 7): only such writes can be answered by a switch that their key is lent to.
    #[serde(default)]
    pub names_lives: bool,
    /// Requests in an order of their own, for phases of the kind [`PhaseKind::Trace`]. Their keys
    /// are the first of the configuration's, and are written with lengths of their own.
    #[serde(default)]
    pub trace: Option<TraceSpec>,
    /// What to do; empty: read phases from standard input.
    #[serde(default)]
    pub phases: Vec<Phase>,
}

fn timeout_ms() -> u64 {
    200
}

fn interval_ms() -> u64 {
    100
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Open loop: a Poisson process of so many requests per second, answers or not.
    Open(f64),
    /// Closed loop: so many requests are outstanding at any time.
    Closed(usize),
}

/// Nanoseconds from one request of an open loop to the next, at so many per second. `uniform` is
/// drawn from 0 to 1, without 1: gaps are then as of many users who know nothing of one another.
pub fn gap_ns(rate: f64, uniform: f64) -> f64 {
    -(1.0 - uniform).ln() * 1e9 / rate
}

/// A change of popularity that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChurnSchedule {
    /// What changes.
    pub change: Churn,
    /// Seconds between changes; the first comes so long after the measured part begins.
    pub every_s: f64,
}

/// One stretch of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds of the same load before, not counted.
    #[serde(default)]
    pub warmup_s: f64,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Which keys are read.
    pub reads: Popularity,
    /// Part of the requests that write, 0 to 1.
    #[serde(default)]
    pub write_ratio: f64,
    /// Which keys are written; none: as reads.
    #[serde(default)]
    pub writes: Option<Popularity>,
    /// Other lengths of written values, drawn for each write; empty: those of the configuration.
    #[serde(default)]
    pub values: ValueMix,
    /// How popularity changes meanwhile.
    #[serde(default)]
    pub churn: Option<ChurnSchedule>,
    /// How many of the configuration's tenants are active, from the first; they share the load
    /// equally. 0: all.
    #[serde(default)]
    pub tenants: usize,
    /// How many of each tenant's keys, by popularity, are asked for. 0: all.
    #[serde(default)]
    pub keys: usize,
    /// Keys of which is told apart how many requests were answered, by popularity as the phase
    /// begins (0 is the hottest).
    #[serde(default)]
    pub watched: Vec<u32>,
    /// What is special about it.
    #[serde(default)]
    pub kind: PhaseKind,
}

/// What a phase is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// Load as the other fields say.
    #[default]
    Load,
    /// Writes every key of every active tenant, again until it is acknowledged, and ends then.
    /// `seconds` is how long that may take, `arrivals` how many writes are under way.
    Fill,
    /// Reads every key of every active tenant once, again until it is answered: which of them do
    /// switches answer? In a configuration it is called `sweep`.
    #[serde(rename = "sweep")]
    Census,
    /// Reads keys in order, the coldest first, each so many times before the next: what a scan, a
    /// backup or a crawler asks for.
    Scan {
        /// How often each is read.
        times: u32,
    },
    /// The configuration's trace, from where the phase before it ended: which key is asked for
    /// next, and whether it is written, the trace says, and not the other fields.
    Trace,
    /// Reads that the generator answers itself, without a network: what it costs by itself. On
    /// sockets only.
    Dry,
    /// Forged requests: half of them in the tenants' names, half in the name of random numbers, all
    /// with random tags. What is answered as if it were genuine is counted.
    Forge,
    /// What a hostile tenant with a valid secret can do to others, all of it in turn: the tenants'
    /// own secrets, and claims that are not true. Answers count for nothing.
    Hostile {
        /// Switches that grants are asked for in the name of have the ids from 1 to this one.
        switches: u16,
        /// One kind only.
        #[serde(default)]
        only: Option<Attack>,
    },
}

impl Phase {
    /// Writes every key once, at most so many at a time.
    pub fn fill(outstanding: usize, seconds: f64) -> Phase {
        Phase {
            arrivals: Arrivals::Closed(outstanding),
            kind: PhaseKind::Fill,
            ..Phase::reads(Popularity::Uniform, 1.0, 0.0, seconds)
        }
    }

    /// Reads every key once, at most so many at a time.
    pub fn census(outstanding: usize, seconds: f64) -> Phase {
        Phase { kind: PhaseKind::Census, ..Phase::fill(outstanding, seconds) }
    }

    /// The trace in an open loop.
    pub fn trace(rate: f64, warmup_s: f64, seconds: f64) -> Phase {
        Phase {
            kind: PhaseKind::Trace,
            ..Phase::reads(Popularity::Uniform, rate, warmup_s, seconds)
        }
    }

    /// Reads in an open loop.
    pub fn reads(reads: Popularity, rate: f64, warmup_s: f64, seconds: f64) -> Phase {
        Phase {
            seconds,
            warmup_s,
            arrivals: Arrivals::Open(rate),
            reads,
            write_ratio: 0.0,
            writes: None,
            values: ValueMix::default(),
            churn: None,
            tenants: 0,
            keys: 0,
            watched: vec![],
            kind: PhaseKind::Load,
        }
    }
}
