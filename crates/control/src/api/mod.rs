//! The broker: how people and programs manage tenants, pages, topology and routes, over HTTP/JSON.
//!
//! [`types`] are the documents, [`Broker`] is what answers them (the controller).

mod broker;
pub mod types;

pub use broker::{Broker, PageFilter, Refusal, RefusalKind};
