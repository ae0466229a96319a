//! The paper's figures: what is measured, and the parameters it is measured with.

#![deny(unsafe_code)]

mod churn;
mod latency;
mod saturation;
mod system;

use experiments::{Definition, Kind, Paper, systems::LatencyPoint};
use rmt::PublishedUsage;

/// An experiment's file, with what it has in common with the others.
macro_rules! on_the_rack {
    ($file:literal) => {
        concat!(include_str!($file), include_str!("../rack.toml"))
    };
}

/// What a rack carries, over whatever the file says.
const SATURATION: Kind = Kind::sweep::<saturation::Saturation>();

/// What the paper says of its own.
const PUBLISHED: &[PublishedUsage] = &[PublishedUsage {
    system: "OrbitCache",
    source: "OrbitCache, section 4",
    items: "queues of 8 requests",
    stages: Some(9),
    sram_percent: Some(6.67),
    sram_is_bound: false,
    tcam_percent: None,
    alu_percent: Some(30.56),
}];

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "orbitcache",
    experiments: EXPERIMENTS,
    programs: &[],
    pipeline: None,
    published: PUBLISHED,
    neighbour: None,
};

/// All of them, in the order of the paper's figures.
const EXPERIMENTS: &[Definition] = &[
    Definition { toml: on_the_rack!("../orbit-skew.toml"), kind: &SATURATION },
    Definition { toml: on_the_rack!("../orbit-chance.toml"), kind: &SATURATION },
    Definition {
        toml: on_the_rack!("../orbit-latency.toml"),
        kind: &Kind::sweep::<latency::LatencyOverLoad>(),
    },
    Definition { toml: on_the_rack!("../orbit-writes.toml"), kind: &SATURATION },
    Definition { toml: on_the_rack!("../orbit-servers.toml"), kind: &SATURATION },
    Definition { toml: on_the_rack!("../orbit-production.toml"), kind: &SATURATION },
    Definition { toml: on_the_rack!("../orbit-cachesize.toml"), kind: &SATURATION },
    Definition { toml: on_the_rack!("../orbit-sizes.toml"), kind: &SATURATION },
    Definition { toml: include_str!("../orbit-sizing.toml"), kind: &Kind::sweep::<LatencyPoint>() },
    Definition {
        toml: include_str!("../orbit-churn.toml"),
        kind: &Kind::of::<churn::ThroughputUnderChurn>("orbit-churn"),
    },
];
