//! Chains of switches from outside, in one program: their packets, all their states, and whole
//! systems in the simulator.

mod data_plane;
mod model;
mod simulated;
