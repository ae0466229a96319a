//! netcache's data plane as a table: one row is one packet, what was there before, and what must
//! come of it. Rows run in the kernel on the compiled programs; `harness::Case` says how to read
//! one.

mod admission;
mod grants;
mod hits;
mod leases;
mod lent;
mod malformed;
mod many_cores;
mod misses;
mod other_traffic;
mod probation;
mod races;
mod real_link;
mod reports;
mod traffic;
mod world;
mod writes;
