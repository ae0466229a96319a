//! The hunt for a wrong value in the simulator: whole systems, drawn at random, in which everything
//! goes wrong, and clients that may not notice.
//!
//! A seed gives a [`HuntPlan`]: machines and links, stores, tenants, what clients do, and the
//! [`Deed`]s that are done to all of it. [`run`] makes a world of it, and checks what the clients
//! were told, key by key, for linearizability. The same plan gives the same run, bit by bit.
//! [`shrink`] takes away from a plan that fails whatever it fails without. [`hunt`] goes through
//! seeds on all cores.
//! Experiments call this crate, and the tests in which a rule is broken on purpose.

#![deny(unsafe_code)]

mod caching;
mod clients;
mod commands;
mod connection;
mod copies;
mod deed;
mod disks;
mod hunt;
mod identities;
mod layout;
mod lost;
mod measure;
mod never;
mod plan;
mod run;
mod shrink;
mod slots;
mod tenants;
mod write_back;

pub use self::plan::{
    Clients, Commands, Disciplines, Faults, HuntPlan, Life, Limits, Shape, Store, Tenant,
};
pub use caching::{CachingConnection, HOLDERS, READS_FROM_HOLDERS};
pub use clients::{ClientsHost, Habits, maker as clients};
pub use commands::HOLDS;
pub use connection::{Connect, Connection, stores};
pub use copies::{REPLICAS, hold_copies, is_of_replicas};
pub use deed::{Act, Deed, Ground, do_deeds};
pub use hunt::{Failure, HuntResult, KINDS, hunt};
pub use measure::{ProgramCost, measure};
pub use never::ForbiddenCounts;
pub use run::{Outcome, PROBATION, Violation, run};
pub use shrink::shrink;
pub use write_back::{LOANS, is_of_loans};
