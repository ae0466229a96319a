//! Packets through the compiled programs: several switches, each with its own tables, hand each
//! other what leaves them. In the kernel and in this process.

mod acks;
mod left_to_kernel;
mod malformed;
mod members;
mod net;
mod races;
mod reads;
mod writes;
