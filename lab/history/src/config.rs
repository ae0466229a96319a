//! What clients are told before they begin: the one that asks takes it from here, and so does the
//! one that records.

use std::time::Duration;

use client::Options;
use serde::{Deserialize, Serialize};
use wire::Cluster;

/// What a process of clients does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientsConfig {
    /// The stores.
    pub cluster: Cluster,
    /// Decides what is asked.
    pub seed: u64,
    /// Number of the first client; each has one operation under way.
    pub first: u32,
    /// How many.
    pub clients: u32,
    /// Keys that each tenant has, of the same names.
    pub keys: u32,
    /// In whose names they ask, each operation in one at random; empty: the open tenant's. Key `k`
    /// of tenant `t` is number `t * keys + k` of the record.
    #[serde(default)]
    pub tenants: Vec<u32>,
    /// Length in bytes of the longest value, then of all lengths from 8 up; 0: values are of 23
    /// lengths from 16 to 192.
    #[serde(default)]
    pub longest_value: usize,
    /// Which values live for a while only; none do without it.
    #[serde(default)]
    pub lives: Option<Lives>,
    /// Part of the operations that are reads or unconditional writes of values that live on, half
    /// of each; the others are of all kinds.
    #[serde(default)]
    pub plain: f64,
}

impl ClientsConfig {
    /// One client with one key of each tenant: its operations are of all kinds, and values fit one
    /// packet and live on.
    pub fn new(cluster: Cluster, tenants: Vec<u32>, seed: u64) -> ClientsConfig {
        ClientsConfig {
            cluster,
            seed,
            first: 0,
            clients: 1,
            keys: 1,
            tenants,
            longest_value: 0,
            lives: None,
            plain: 0.0,
        }
    }

    /// How clients of stores behave on the network.
    pub fn options(&self) -> Options {
        Options {
            deadline: Duration::from_millis(self.cluster.lease_ms.into()),
            initial_timeout: Duration::from_millis(8),
            max_timeout: Duration::from_millis(50),
            ..Options::default()
        }
    }
}

/// Which written values live for a while only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lives {
    /// Part of the writes, 0 to 1.
    pub part: f64,
    /// Shortest time to live in milliseconds, at least 1.
    pub least_ms: u64,
    /// Longest.
    pub most_ms: u64,
    /// How long after its end a value may still be read, for what else stands still or goes wrong:
    /// beside the two percent and 50 ms that clocks may differ by.
    pub overdue_ms: u64,
}
