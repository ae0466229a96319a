//! The controller as a process: gRPC in front, a discipline behind, its memory in a file.
//!
//! [`core`] decides (no I/O, time as argument), [`outbox`] numbers and repeats commands, [`state`] remembers
//! over a restart, [`service`] speaks gRPC. One lock holds all of it: a message costs microseconds, a
//! window's end some milliseconds, and nothing waits while the lock is held.

mod convert;
mod core;
mod outbox;
mod rate;
mod service;
mod state;

pub use service::{Options, Server, ServerError};
