//! The coherence rules, exhausted: a small world of one store, two switches and three clients on
//! one key, in which the network loses, duplicates and reorders whatever it likes, and every state
//! that can be reached is looked at.
//!
//! Both halves are what runs. The store's decisions: [`store::coherence`]'s `KeyState`, `Leases`
//! and `Window` are called, not copied. The switches: a discipline's C with `bpf/coherence.h`, as
//! native code; each transition is a packet through it. Only what stands around them is the model's
//! own: the order of the engine's calls, the clients, the network. Time is abstract: it moves in
//! steps of 0.6 leases, so that a holder's lease lapses before its granter's does. What clients
//! were told must be linearizable (stateright's `LinearizabilityTester`, against [`Register`]).
//!
//! [`Shelf`] is the same for copies in other stores, [`Slot`] for a store before a Redis Cluster.
//!
//! Each part of a rule can be broken, in the C or in the store ([`BrokenRule`]); then the checker
//! must object.
//!
//! In: a discipline that registers. Out: its tests print the bounds, the number of states, and each
//! mutant as caught. Nothing else calls this crate, but the tests in its own folder; it is no part
//! of the program.

#![deny(unsafe_code)]

mod bounds;
mod message;
mod real;
mod register;
mod replicas;
mod rule;
mod server;
mod slot;
mod switch;
mod world;

pub use bounds::{Bounds, Path};
pub use register::{Call, Register, Return};
pub use replicas::{Deed, Shelf, ShelfState};
pub use rule::BrokenRule;
pub use slot::{Slot, SlotEvent, SlotState};
pub use world::{Action, World, WorldState};
