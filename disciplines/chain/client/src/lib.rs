//! The client of tenants whose keys live in switches: read, write, delete and compare-and-set at
//! chains of switches.
//!
//! Operations, answers and errors are those of [`client`]; only whom to ask differs. Programs, the
//! commands and the loads call this crate; it calls `client`, and `chain-wire` for what stands in
//! packets. A [`Machine`] takes every decision, without sockets or clocks. [`Client`] drives it
//! with sockets and the system's clock, [`Virtual`] in the time of a simulator. [`recipes`] are
//! written once, for both.
//!
//! **Whom to ask.** The switches answer nothing but packets that name the number of the chains that
//! they go by themselves. A client begins with number 0 at any switch; that is answered with the
//! chain of the key that it asked for ([`Status::Moved`](wire::Status::Moved)), and so is every
//! number that is too low. What was learnt is a hint only: a packet to the wrong switch does
//! nothing.
//!
//! **What a write is known by.** Its id is the client's, and keeps for each copy and each chain
//! that it is sent to, so that it is done once. Ids are `k * 16 + slot`: the switches remember the
//! newest of each slot, so a slot takes the next write when the one before has its answer or is
//! given up. The switches forget a client that was idle for a minute; so nothing is sent later than
//! 30 s after its call, and the time is looked at *after* the chains' number was taken: a number
//! that was learnt after the client was forgotten never travels with a write from before.
//!
//! What it costs: one datagram each way, one allocation for each; a write that many members of a
//! chain pass on costs its client no more.

#![deny(unsafe_code)]

mod call;
mod counters;
mod machine;
mod names;
mod near;
mod options;
mod paths;
pub mod recipes;
mod slots;
mod sockets;
mod view;
mod virtual_time;
mod watch;

pub use counters::Counts;
pub use machine::Machine;
pub use options::{Identity, Options, Reads};
pub use sockets::{Client, Watch};
pub use virtual_time::{Tasks, Virtual};
pub use watch::KeyState;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
