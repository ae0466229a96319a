//! Experiments: what they run on, and those of no single paper.
//!
//! A [`Definition`] experiment is a TOML file beside its [`Kind`]. Where some systems are measured
//! along some axes, that is [`sweep`]: the file says what is gone through and what is told of it,
//! and code how one point is measured. Of another kind it is a struct of parameters with the run
//! that measures ([`Measure`]). Either way a rack is planned and runs on the [`rig`], and rows, a
//! summary, a [`table`] and SVG plots ([`plot`]) go into a [`Report`].
//!
//! ```toml
//! name = "some-skew"
//! kind = "skew"
//! title = "Throughput under skew"
//! runs = ["some"]   # disciplines and programs beside the rig: `figures` measures again when one
//!                   # of them changes
//! runs_in_kernel = ["gateway"] # those that no simulated run has
//! [params.rack]
//! keys = 1000000
//! [quick.rack]      # replaces params under --quick
//! keys = 100000
//! [sim.rack]        # replaces params in the simulator; [sim_quick.rack] what --quick left
//! keys = 10000000
//! [claims]          # what has to come out, or the run has failed
//! speedup = { least = 3.0, speed = true } # missed, it says how busy the machine was
//! rounds = { most = 5, world = "sim", full = true }   # of full runs in the simulator only
//! rate = { least = 1.5, sim = { least = 2.8 } }       # closer where only the seed decides
//! wrong_values = { most = 0, guard = true }           # holds with the mechanism off as well
//! attacks_sent = { least = 100, input = true }        # what the run did itself is no effect
//! [idle]             # how the mechanism is turned off, under --idle: then no claim may come out
//! discipline = "none" # but those that are guards. What runs in the place of the discipline;
//! [idle.params.rack] # and parameters, on top of all others
//! learn_s = 1.0
//! ```
//!
//! Two shapes of racks come ready-made: [`servers`], servers behind one switch, with a cache on or
//! off; and [`tenants`], switches in a line that tenants share. A paper's own experiments are built
//! on these in its discipline's folder; nothing here names a discipline. Called by those and by
//! `shortstop-lab run`.

#![deny(unsafe_code)]

mod applications;
mod backends;
mod busy;
mod claim;
mod cluster_moves;
mod coherence;
mod compare;
mod demo;
mod eviction;
mod experiment;
mod fill;
pub mod gaps;
mod hot_shard;
mod idle;
mod kind;
mod large_values;
mod loopback;
mod many_cores;
mod near;
mod options;
mod outside_writes;
mod paper;
pub mod params;
mod parts;
mod placement;
pub mod plot;
pub mod recovery;
mod redis_cluster;
mod report;
mod resp;
mod restarts;
pub mod rig;
mod run;
pub mod servers;
mod silent_link;
pub mod sweep;
pub mod systems;
pub use text::table;
pub mod tenants;
pub mod verdict;
mod world;
mod write_back;

pub use compare::{Comparison, Figure};
pub use experiment::{Definition, Experiment};
pub use kind::{Kind, Measure};
pub use options::{Backend, Options};
pub use paper::Paper;
pub use report::Report;
pub use restarts::Restarts;
pub use run::Run;
pub use world::{Choice, World};

/// One distribution, without and with the cache, told to a newcomer.
pub const DEMO: Definition =
    Definition { toml: include_str!("demo.toml"), kind: &Kind::of::<demo::Demo>("demo") };

/// Staleness of reads while another client writes to the Redis behind a store.
pub const OUTSIDE_WRITES: Definition = Definition {
    toml: include_str!("outside_writes.toml"),
    kind: &Kind::of::<outside_writes::OutsideWrites>("outside-writes"),
};

/// What clients are told while the Redis behind a store fails, in each way that one can.
pub const BACKENDS: Definition = Definition {
    toml: include_str!("backends.toml"),
    kind: &Kind::of::<backends::Backends>("backends"),
};

/// What a full backend keeps of the keys that a switch answers.
pub const EVICTION: Definition = Definition {
    toml: include_str!("eviction.toml"),
    kind: &Kind::of::<eviction::Eviction>("eviction"),
};

/// Stores before a Redis Cluster whose slots move and whose masters fail.
pub const CLUSTER_MOVES: Definition = Definition {
    toml: include_str!("cluster_moves/cluster_moves.toml"),
    kind: &Kind::of::<cluster_moves::ClusterMoves>("cluster-moves"),
};

/// A Redis Cluster of which one shard is hot, before and after gateways keep copies.
pub const HOT_SHARD: Definition = Definition {
    toml: include_str!("hot_shard/hot_shard.toml"),
    kind: &Kind::of::<hot_shard::HotShard>("hot-shard"),
};

/// Where keys of existing clusters lie.
pub const PLACEMENT: Definition = Definition {
    toml: include_str!("placement/placement.toml"),
    kind: &Kind::of::<placement::Placement>("placement"),
};

/// Values longer than a packet, by each way that leads to them.
pub const LARGE_VALUES: Definition = Definition {
    toml: include_str!("large_values/large_values.toml"),
    kind: &Kind::of::<large_values::LargeValues>("large-values"),
};

/// Copies of hot keys in the gateways beside applications, and what else keeps keys near.
pub const NEAR: Definition = Definition {
    toml: include_str!("near/near.toml"),
    kind: &Kind::of::<near::NearCopies>("near"),
};

/// Whether clients can tell the copies from one value while everything goes wrong.
pub const COHERENCE: Definition = Definition {
    toml: include_str!("coherence/coherence.toml"),
    kind: &Kind::of::<coherence::Coherence>("coherence"),
};

/// A well-behaved tenant beside others that are not.
pub const TENANT_ISOLATION: Definition = Definition {
    toml: include_str!("tenants/isolation.toml"),
    kind: &Kind::of::<tenants::Isolation>("isolation"),
};

/// Idle memory of one tenant beside another that could use it.
pub const WORK_CONSERVING: Definition = Definition {
    toml: include_str!("tenants/borrowing.toml"),
    kind: &Kind::of::<tenants::Borrowing>("borrowing"),
};

/// Well-behaved tenants beside others that attack what tenants share. A build's registry makes an
/// experiment of it, of the kind [`tenants::Hostile`], with whatever neighbours its disciplines
/// have.
pub const HOSTILE: &str = include_str!("tenants/hostile/hostile.toml");

/// A link between two switches that loses everything and keeps its carrier.
pub const SILENT_LINK: Definition = Definition {
    toml: include_str!("silent_link/silent_link.toml"),
    kind: &Kind::of::<silent_link::SilentLink>("silent-link"),
};

/// Every role that leaves in order and comes back, under load. A build's registry makes an
/// experiment of it, of the kind [`Restarts`], with whatever neighbours its disciplines have.
pub const RESTARTS: &str = include_str!("restarts/restarts.toml");

/// What write-back gains over the part of the requests that writes.
pub const WRITE_BACK: Definition = Definition {
    toml: include_str!("write_back/write_back.toml"),
    kind: &Kind::sweep::<write_back::WriteBack>(),
};

/// A switch of many cores.
pub const MANY_CORES: Definition = Definition {
    toml: include_str!("many_cores.toml"),
    kind: &Kind::sweep::<many_cores::ManyCores>(),
};
