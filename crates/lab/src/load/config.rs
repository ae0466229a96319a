use serde::{Deserialize, Serialize};
use wire::Cluster;

use crate::workload::{Churn, Popularity, ValueMix};

/// What stays the same over all phases of one generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// Where the partitions are.
    pub cluster: Cluster,
    /// Whose keys are asked for; its secret comes from the cluster and signs every request.
    #[serde(default)]
    pub tenant: u32,
    /// How many keys there are, as `store --populate` numbers them.
    pub keys: usize,
    /// Length of populated values in bytes.
    pub value_len: usize,
    /// Decides everything random.
    pub seed: u64,
    /// A request unanswered for so long is lost; nothing is sent again.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Length of one interval of the counts over time.
    #[serde(default = "interval_ms")]
    pub interval_ms: u64,
    /// The CPU to run on.
    #[serde(default)]
    pub cpu: Option<usize>,
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
    /// Lengths of written values.
    #[serde(default)]
    pub values: ValueMix,
    /// How popularity changes meanwhile.
    #[serde(default)]
    pub churn: Option<ChurnSchedule>,
}

impl Phase {
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
        }
    }
}
