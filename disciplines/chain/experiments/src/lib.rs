//! The paper's figures, and what its authors left open: what happens when members fail, and how
//! chains stand beside etcd.

#![deny(unsafe_code)]

mod asking;
mod bench;
mod bound;
mod etcd;
mod faults;
mod in_line;
mod layout;
mod locks;
mod neighbour;
mod protocol;
mod trouble;

use experiments::{Definition, Kind, Paper};

/// A line of switches, asked as the file says.
const IN_LINE: Kind = Kind::sweep::<in_line::LinePoint>();

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "netcraq",
    experiments: EXPERIMENTS,
    programs: chain_loads::PROGRAMS,
    pipeline: None,
    published: &[],
    neighbour: Some(neighbour::NEIGHBOUR),
};

/// All of them: the paper's figures in their order, then the others.
const EXPERIMENTS: &[Definition] = &[
    Definition { toml: include_str!("../craq-distance.toml"), kind: &IN_LINE },
    Definition { toml: include_str!("../craq-latency.toml"), kind: &IN_LINE },
    Definition { toml: include_str!("../craq-mixed.toml"), kind: &IN_LINE },
    Definition { toml: include_str!("../craq-scale.toml"), kind: &IN_LINE },
    Definition {
        toml: include_str!("../craq-faults.toml"),
        kind: &Kind::of::<faults::Faults>("craq-faults"),
    },
    Definition { toml: include_str!("../craq-locks.toml"), kind: &Kind::sweep::<locks::OfLocks>() },
    Definition {
        toml: include_str!("../coord-vs-etcd.toml"),
        kind: &Kind::of::<etcd::BesideEtcd>("coord-vs-etcd"),
    },
];
