//! kvswitch's switch half from outside, in one program: packets as a table, noise under sanitizers,
//! and what a chip would need.

mod data_plane;
mod fuzz;
mod pipeline;
