//! What stores say of themselves.

use serde::Deserialize;
use serde_json::Value;

/// The status of a store.
#[derive(Clone, Debug, Deserialize)]
pub struct StoreStatus {
    /// Whether it answers.
    pub ready: bool,
    /// Whether it has waited long enough to take writes.
    pub takes_writes: bool,
    /// Bytes of values that are being written in parts.
    #[serde(default)]
    pub writing_bytes: u64,
    /// Keys that are lent to switches.
    #[serde(default)]
    pub loans: LoansStatus,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
    /// Its counters, by name.
    #[serde(default)]
    pub totals: Value,
}

/// What the status of a store says of keys that are lent.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct LoansStatus {
    /// Keys that a switch answers for.
    pub lent: u64,
}

/// The status of one partition.
#[derive(Clone, Debug, Deserialize)]
pub struct PartitionStatus {
    /// Its number; none: as the cluster file orders them.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Requests since the store started.
    pub served: u64,
    /// Requests that it dropped because too many waited.
    #[serde(default)]
    pub dropped: u64,
}
