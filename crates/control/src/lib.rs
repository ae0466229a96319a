//! The control plane: the controller that decides what each switch caches, and the switch's agent that
//! applies it.
//!
//! Agents connect over gRPC ([`proto`]). What flows in: hot keys, counters and acknowledgements; what flows
//! out: a setup, then numbered insert and evict commands. The decisions themselves are made by a
//! [`Discipline`], which does no I/O; this crate carries them out, bounds their rate, repeats them until
//! they are applied and remembers them over a restart. The `shortstop` binary calls this crate and hands it
//! the discipline.

pub mod agent;
pub mod api;
mod digest;
mod discipline;
mod follow;
pub mod pages;
mod server;
pub mod state;
pub mod status;
pub mod topology;

/// The generated gRPC messages, client and server of `proto/shortstop.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("shortstop.v1");
}

pub use discipline::{
    Action, Change, Discipline, Event, ItemKey, Limits, NoDiscipline, Outcome, Room, SwitchId,
};
pub use follow::follow;
pub use server::{DisciplineMaker, Options, Server, ServerError};
