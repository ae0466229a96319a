//! Scenarios: tests of several parts together, a few lines each, in the simulator's world.
//!
//! A [`plan::Plan`] whose machines have their usual roles ([`seat`]) becomes a [`Scenario`].
//! Clients in it write, read and remove keys with the client library, one step after the other; in
//! between switches lose their tables, machines stand still, links lose everything, and time
//! passes. What clients were told is kept, and [`Scenario::judge`] says whether one copy of each
//! key could have told them so. Who needs more has the [`World`](sim::World) itself.
//!
//! Nothing here is random: what a scenario does is what stands in it. What may happen at random is
//! the hunt's. Tests of disciplines call this crate.

#![deny(unsafe_code)]

mod client;
mod faults;
mod scenario;
mod seats;

pub use client::{ClientHost, Deed, Outcome, Read};
pub use scenario::Scenario;
pub use seats::seat;
