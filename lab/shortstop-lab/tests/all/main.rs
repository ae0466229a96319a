//! The program of labs from outside, and by it `shortstop` in racks: real processes in network
//! namespaces.

mod bench;
mod command_line;
mod guides;
mod pages;
mod placement;
mod programs;
mod rack;
mod setup;
mod topologies;

// The disciplines' programs as native code need what runs them, where the registry is linked.
use dataplane as _;
