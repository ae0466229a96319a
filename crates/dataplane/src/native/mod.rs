//! Switches in this process: the same C as native code (`bpf/user`), with tables of their own in
//! the place of pinned ones.
//!
//! A [`Switch`] has the tables, which the agent's side of this crate opens as it opens pinned ones
//! ([`crate::Backing`]); a [`Cpu`] of it runs a [`Program`] on a [`Frame`] and says what shall
//! become of it. Who brings frames and takes them away is the caller: a soft switch from sockets, a
//! simulator from its links.
//!
//! Costs: a run of a hit some 150 ns, where nothing is cold.

mod cpu;
mod fib;
mod frame;
mod image;
mod lines;
mod memory;
#[cfg(debug_assertions)]
mod moment;
mod mutant;
mod switch;
mod unit;

pub use crate::maps::clock::Clock;
pub use cpu::{Cpu, Program, Verdict};
pub use fib::{Fib, Route};
pub use frame::Frame;
pub use image::Image;
pub use lines::Lines;
pub use memory::Memory;
pub use mutant::Mutant;
#[cfg(debug_assertions)]
pub use mutant::choose;
pub use switch::Switch;
