//! The registry's disciplines in whole systems, in one program.

mod follow;
mod hunt;
mod mutants;
mod racks;
mod simulated;
mod worlds;
