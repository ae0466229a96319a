//! madinc's control half from outside, and the program in the kernel that it shares, in one
//! program.

mod anything;
mod line;
mod model;
mod shared_program;
