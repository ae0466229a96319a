//! The program of labs from outside, and by it `shortstop` in racks: real processes in network namespaces.

mod bench;
mod command_line;
mod programs;
mod rack;
