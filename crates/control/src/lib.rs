//! The controller: carries out what disciplines decide about switches, and answers people.
//!
//! Agents and stores connect over gRPC ([`api::proto`]). What flows in: hot keys, counters and
//! acknowledgements, reports of stores; what flows out: a setup and a page table, configurations,
//! numbered changes of items, messages to stores. The decisions themselves are made by
//! [`decide::Discipline`]s, which do no I/O; this crate carries them out, bounds their rate,
//! repeats them until they are applied and remembers them over a restart ([`state`]). People and
//! programs manage tenants, pages, topology and routes over HTTP/JSON: [`admin`] is what can be
//! asked, [`http`] puts it on the network, [`auth`] says who may, [`serve`] listens, for gRPC too.
//! The `shortstop` binary calls this crate and hands it the disciplines.

#![deny(unsafe_code)]

pub mod admin;
pub mod auth;
pub mod http;
mod pages;
pub mod serve;
mod server;
pub mod state;
mod topology;

pub use server::{Options, Server, ServerError, core};
