//! The paper's figures: what is measured, and the parameters it is measured with.

#![deny(unsafe_code)]

mod balancing;
mod bench;
pub mod cost;
mod failures;
mod hybrid;

use experiments::{Definition, Kind, Paper};

/// An experiment's file, with what it has in common with the others.
macro_rules! on_the_rack {
    ($file:literal) => {
        concat!(include_str!($file), include_str!("../rack.toml"))
    };
}

/// Balance, over whatever the file says.
const BALANCING: Kind = Kind::sweep::<balancing::Balancing>();

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "kvswitch",
    experiments: EXPERIMENTS,
    programs: &[],
    pipeline: Some(kvswitch::pipeline),
    published: kvswitch::PUBLISHED,
    neighbour: None,
};

/// All of them, in the order of the paper's figures.
const EXPERIMENTS: &[Definition] = &[
    Definition { toml: on_the_rack!("../kv-skew.toml"), kind: &BALANCING },
    Definition { toml: on_the_rack!("../kv-accuracy.toml"), kind: &BALANCING },
    Definition { toml: on_the_rack!("../kv-threshold.toml"), kind: &BALANCING },
    Definition { toml: on_the_rack!("../kv-valuesize.toml"), kind: &BALANCING },
    Definition { toml: on_the_rack!("../kv-writes.toml"), kind: &BALANCING },
    Definition { toml: include_str!("../kv-scale.toml"), kind: &BALANCING },
    Definition {
        toml: on_the_rack!("../kv-failures.toml"),
        kind: &Kind::of::<failures::Failures>("kv-failures"),
    },
    Definition { toml: on_the_rack!("../hybrid.toml"), kind: &Kind::sweep::<hybrid::Together>() },
];
