//! Datagrams in batches: many in one system call, each with its own addresses.

mod slots;

pub use slots::SendBatch;
