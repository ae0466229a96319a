//! Keys that are lent (`bpf/writeback.h`), as tables: one row is one packet, what was there before,
//! and what must come of it. Every row runs in the kernel on the compiled programs and in
//! this process.

mod keeper;
mod mutants;
mod owner;
mod path;
mod races;
mod store;
mod world;
