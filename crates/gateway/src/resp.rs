//! Redis's protocol: from bytes to commands.

pub(crate) mod connection;
pub mod frame;
