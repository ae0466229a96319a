//! orbitcache's data plane as a table: one row is a story of packets, and what must come of each.
//! Rows run in the kernel on the compiled programs and in this process; `world` plays the
//! recirculation port.

mod lent;
mod parts;
mod real_link;
mod rows;
mod time;
mod world;
