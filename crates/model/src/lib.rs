//! The coherence rules, exhausted: a small world of one store, two switches and three clients on one key, in which the network
//! loses, duplicates and reorders whatever it likes, and every state that can be reached is looked at.
//!
//! The store's decisions are the ones that run: [`store::coherence`]'s `KeyState`, `Leases` and `Window` are called, not copied.
//! The switch's are `bpf/coherence.h` and the data plane that includes it, transition by transition, in Rust. Time
//! is abstract: it moves in steps of 0.6 leases, so that a holder's lease lapses before its granter's does.
//! What clients were told must be linearizable (stateright's `LinearizabilityTester`, against [`Register`]).
//!
//! Each rule can be switched off ([`Rule`]), which the harness does around the calls; then the checker must object.
//!
//! In: nothing. Out: `cargo test -p model` prints the bounds, the number of states, and each mutant as caught. Nothing calls this
//! crate; it is no part of the program.

mod message;
mod register;
mod rule;
mod server;
mod switch;
mod world;

pub use register::{Call, Register, Return};
pub use rule::Rule;
pub use world::{Action, Bounds, Path, World, WorldState};
