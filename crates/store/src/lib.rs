//! The shim beside the data. It takes requests from the network, keeps every copy that switches
//! hold of its keys coherent, and passes what is left to a backend: memory of its own, Redis or
//! memcached.
//!
//! UDP datagrams of [`wire`] flow in and out. [`server`] moves them; [`engine`] turns them into
//! questions to [`coherence`], which holds the seven rules as pure functions, and to a [`backend`].
//! Operations that are a discipline's own go to its half in the store, a [`decide::StoreHalf`].
//! The `shortstop store` command calls [`run`]; tests call [`Server`], which tells the address it
//! listens on.

#![deny(unsafe_code)]

pub mod backend;
mod clients;
mod clock;
pub mod coherence;
mod config;
mod counters;
mod directory;
pub mod engine;
pub mod handover;
mod incarnation;
pub mod journal;
pub mod memcached_port;
pub mod net;
mod partition;
mod placements;
mod ports;
mod reports;
mod resolver;
pub mod resp_port;
mod server;
mod shares;
pub mod slot_map;
mod status;
mod tcp;
mod unix_socket;

pub use config::{BackendConfig, Config, Half, OutsideWrites};
pub use counters::Counters;
pub use engine::{HoldEnd, HoldId, HoldRequest, TellError, UpdateError};
pub use holder::mutants;
pub use incarnation::Incarnation;
pub use memcached_port::MemcachedAddress;
pub use placements::Placements;
pub use ports::PortAddress;
pub use reports::Report;
pub use resolver::Resolver;
pub use resp_port::RespAddress;
pub use server::{Handle, Server, run};
pub use status::{
    BackendState, BackendTroubleStatus, LeaseStatus, LoansStatus, OutsideWritesStatus,
    PartitionStatus, Status, read_status,
};
pub use tls::{ClientFiles, Identity, ServerFiles};
