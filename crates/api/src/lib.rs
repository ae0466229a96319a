//! What is said to a controller, and how to say it.
//!
//! [`proto`] are the messages of agents, stores and the status (gRPC), [`types`] the documents of
//! the admin API (JSON). The rest is the client of both, over one kind of connection:
//! [`ControlEndpoint`] connects, finds the controller that leads, keeps a stream to it and asks its
//! admin API; [`follow`] is a store's stream, [`status`] asks for the status. `control` serves all
//! this; `agent` and the `shortstop` binary call it.

#![deny(unsafe_code)]

mod connect;
pub mod convert;
mod digest;
mod follow;
mod json;
mod leader;
mod pauses;
pub mod status;
#[cfg(test)]
mod tests;
pub mod text;
pub mod types;

/// The generated gRPC messages, client and server of `proto/shortstop.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("shortstop.v1");
}

pub use connect::{Bearer, ControlEndpoint, Link, said};
pub use digest::Digest;
pub use follow::{StoreNews, follow};
pub use json::{AdminRequest, JSON};
pub use leader::ControllerAnswer;
pub use pauses::Pauses;
