//! netcache's data plane as a table: one row is one packet, what was there before, and what must come of it. Rows
//! run in the kernel on the compiled programs; `case.rs` says how to read one.

#[path = "../../../../crates/dataplane/tests/harness/mod.rs"]
mod harness;

mod admission;
mod case;
mod grants;
mod hits;
mod leases;
mod malformed;
mod misses;
mod other_traffic;
mod races;
mod real_link;
mod reports;
mod traffic;
mod world;
mod writes;
