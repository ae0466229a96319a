//! What every controller of this cluster starts with.

use std::collections::BTreeMap;

use decide::Limits;
use wire::Cluster;

/// What every switch is told, and the bounds of what it is asked.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The cluster file.
    pub cluster: Cluster,
    /// What disciplines keep to.
    pub limits: Limits,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// Commands per second and switch.
    pub updates_per_s: u32,
    /// One request in 2^n is counted.
    pub sample_shift: u32,
    /// Of this controller's lead: above that of every controller before it.
    pub term: u64,
}
