//! Chains of switches from outside, in one program: their packets, all their states, and whole
//! systems in the simulator.

mod data_plane;
mod model;
mod simulated;

use dataplane::native::Mutant;

/// Ways to break the rules of docs/coordination.md in the C.
fn mutants() -> Vec<Mutant> {
    Mutant::own(include_str!("../../mutants.h"))
}
