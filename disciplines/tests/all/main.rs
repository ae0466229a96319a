//! The registry's disciplines in whole systems, in one program.

mod chip;
mod follow;
mod hunt;
mod kept;
mod leaving;
mod loans;
mod mutants;
mod numbers;
mod racks;
mod registry;
mod resources;
mod shares;
mod simulated;
mod stood_still;
mod tables;
mod waits;
mod worlds;
