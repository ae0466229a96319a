//! The commands on strings that need no store's RESP port: they are carried out by packets.
//!
//! `table` knows the commands, `session` answers those about the connection, `job` carries out
//! those on keys by `data`, which is `network`; `reply` turns answers into bytes.

pub(crate) mod backend;
pub(crate) mod data;
pub(crate) mod direct;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod job;
pub(crate) mod network;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod table;
