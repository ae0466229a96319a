//! What disciplines would need on a switch chip, and what papers say that their systems do.

use rmt::{Pipeline, PublishedUsage};

/// The disciplines that declare their tables.
pub const PIPELINES: &[(&str, Pipeline)] = &[
    ("netcache", netcache::pipeline),
    ("madinc", madinc::pipeline),
    ("kvswitch", kvswitch::pipeline),
];

/// A paper's figures for its own system, or for another's as its authors built it.
const OF_OTHERS: &[PublishedUsage] = &[
    PublishedUsage {
        system: "NetCache, as KVSwitch's authors built it",
        source: "KVSwitch, table 1",
        items: "10,000",
        stages: None,
        sram_percent: Some(48.98),
        sram_is_bound: false,
        tcam_percent: Some(34.21),
        alu_percent: Some(16.74),
    },
    PublishedUsage {
        system: "KVSwitch",
        source: "KVSwitch, table 1",
        items: "10,000, 32 servers",
        stages: None,
        sram_percent: Some(38.43),
        sram_is_bound: false,
        tcam_percent: Some(0.0),
        alu_percent: Some(24.61),
    },
    PublishedUsage {
        system: "OrbitCache",
        source: "OrbitCache, section 4",
        items: "queues of 8 requests",
        stages: Some(9),
        sram_percent: Some(6.67),
        sram_is_bound: false,
        tcam_percent: None,
        alu_percent: Some(30.56),
    },
];

/// What a discipline declares; `None` if it declares nothing.
pub fn pipeline(discipline: &str) -> Option<Pipeline> {
    let found = PIPELINES.iter().find(|(name, _)| *name == discipline);
    found.map(|(_, pipeline)| *pipeline)
}

/// What papers publish.
pub fn published() -> impl Iterator<Item = &'static PublishedUsage> {
    netcache::PUBLISHED.iter().chain(OF_OTHERS)
}
