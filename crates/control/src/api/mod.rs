//! The broker: how people and programs manage tenants, pages, topology and routes, over HTTP/JSON.
//!
//! [`types`] are the documents, [`Broker`] is what answers them (the controller), [`http`] puts it on the network,
//! [`auth`] says who may, [`serve`] listens, for gRPC too, and [`connect`] is the other end: for agents, stores and the
//! command line.

pub mod auth;
mod broker;
pub mod connect;
pub mod http;
pub mod serve;
mod text;
pub mod types;

pub use broker::{Broker, PageFilter, Refusal, RefusalKind};
pub(crate) use text::toml_error;
