//! The commands on strings that need no store's RESP port: they are carried out by packets.
//!
//! `table` knows the commands, `session` answers those about the connection. The others are jobs:
//! `job` says what each does with keys by `network`, which asks by packets, or by `direct` where no
//! packet will do; both have that done by the loop that runs the job, as `errands`. `reply` turns
//! answers into bytes.

mod backend;
pub(crate) mod data;
pub(crate) mod direct;
pub(crate) mod errands;
pub(crate) mod job;
pub(crate) mod network;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod table;
