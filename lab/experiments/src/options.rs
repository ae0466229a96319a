//! How to run an experiment: what the command line of `shortstop-lab run` decides, and every
//! experiment is handed.

use decide::Registration;
use serde::{Deserialize, Serialize};

use crate::World;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The short version, done within 45 seconds.
    pub quick: bool,
    /// Decides everything random.
    pub seed: u64,
    /// How many seeds from that one on, for what takes several.
    pub seeds: u64,
    /// What holds the data.
    pub backend: Backend,
    /// The lab's name; unique if absent.
    pub name: Option<String>,
    /// Whether the mechanism that the experiment is about is off.
    pub idle: bool,
    /// Where.
    pub world: World,
    /// What switches of a simulated world can do: in the kernel's, the processes know.
    pub disciplines: &'static [Registration],
}

impl Options {
    /// A quick run in the simulator, with what these disciplines can do.
    pub fn simulated(seed: u64, disciplines: &'static [Registration]) -> Options {
        Options {
            quick: true,
            seed,
            seeds: 1,
            backend: Backend::Embedded,
            name: None,
            idle: false,
            world: World::Sim,
            disciplines,
        }
    }
}

/// What holds the data behind the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The store itself; one process stands for all servers.
    Embedded,
    /// One Redis per server.
    Redis,
    /// One memcached per server.
    Memcached,
}

impl Backend {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Embedded => "embedded",
            Backend::Redis => "redis",
            Backend::Memcached => "memcached",
        }
    }

    /// What it needs and only the kernel's world has, beside the store; none: nothing.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Backend::Embedded => None,
            Backend::Redis => Some("Redis"),
            Backend::Memcached => Some("memcached"),
        }
    }
}
