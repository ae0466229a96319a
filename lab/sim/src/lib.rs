//! A world in virtual time, in which the real parts run: the programs of the switches as native
//! code, agents, controllers, stores and clients.
//!
//! A [`plan::Plan`] and a seed go in; a [`World`] is run, and things are done to it. Only what is
//! outside the parts is made up: time ([`clock`]), links ([`link`]), kernels and their routes
//! ([`packet`], [`network`]), TCP (`streams`), and how long things take ([`service`]). The same
//! plan, seed and deeds give the same world, bit by bit ([`World::trace_hash`]).
//!
//! One world runs on one thread; many can run in as many threads. Experiments call this crate.
//!
//! Cost: below 400 ns of its own for each packet that arrives somewhere, beside what the real
//! code takes.

#![deny(unsafe_code)]

mod agent;
mod clock;
mod control;
mod follow;
mod frames;
mod generator;
mod ids;
mod journal;
mod kept;
mod line;
mod link;
mod network;
pub mod packet;
mod populated;
mod port;
mod process;
mod queue;
mod rack;
mod redis;
mod round;
mod service;
mod store;
mod streams;
mod trace;
mod world;

pub use agent::AgentHost;
pub use clock::Reading;
pub use control::ControlHost;
pub use generator::{Generator, generator};
pub use ids::{MachineId, ProcessId, StreamId};
pub use kept::{KeptData, SLOTS};
pub use process::{Birth, Io, Maker, Process, Remains};
pub use round::RoundCounts;
pub use store::StoreHost;
pub use streams::{Message, StreamEvent};
pub use world::{ForwardCounts, Programs, Progress, RefusedFrames, Snapshot, State, World};
