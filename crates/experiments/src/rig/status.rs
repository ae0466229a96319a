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
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
    /// Its counters, by name.
    #[serde(default)]
    pub totals: Value,
}

impl StoreStatus {
    /// Some of its counters.
    pub fn counted(&self) -> StoreTotals {
        StoreTotals::deserialize(&self.totals).unwrap_or_default()
    }
}

/// Some of what a store counted since it started.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StoreTotals {
    /// Terms of leases begun: a switch was new, or its lease had lapsed.
    pub lease_terms: u64,
    /// Renewals refused to a switch that left an invalidation unanswered.
    pub leases_refused_mute: u64,
    /// Copies called back to make room in the directory.
    pub directory_evictions: u64,
    /// Requests dropped: a partition's queue was full.
    pub dropped_rate_limit: u64,
    /// Fetches by switch agents.
    pub fetches: u64,
    /// Grants given.
    pub grants: u64,
    /// Waits ended because a switch's lease had run out.
    pub waits_lapsed: u64,
}

/// The status of one partition.
#[derive(Clone, Debug, Deserialize)]
pub struct PartitionStatus {
    /// Its number; none: as the cluster file orders them.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Requests since the store started.
    pub served: u64,
}
