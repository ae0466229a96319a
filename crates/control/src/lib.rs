//! The controller: carries out what disciplines decide about switches, and answers people.
//!
//! Agents connect over gRPC ([`api::proto`]). What flows in: hot keys, counters and acknowledgements; what flows
//! out: a setup, then numbered insert and evict commands. The decisions themselves are made by a
//! [`Discipline`], which does no I/O; this crate carries them out, bounds their rate, repeats them until
//! they are applied and remembers them over a restart ([`state`]). People and programs manage tenants, pages, topology and
//! routes over HTTP/JSON: [`admin`] is what can be asked, [`http`] puts it on the network, [`auth`] says who may, [`serve`]
//! listens, for gRPC too. The `shortstop` binary calls this crate and hands it the disciplines.

pub mod admin;
pub mod auth;
mod discipline;
pub mod http;
pub mod pages;
pub mod serve;
mod server;
pub mod state;
pub mod topology;

pub use discipline::{
    Action, Change, Discipline, Event, ItemKey, Limits, NoDiscipline, Outcome, Room, SwitchId,
};
pub use server::{DisciplineMaker, Options, Server, ServerError};
