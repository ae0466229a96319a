//! The client against a fake store over loopback, with a seal and without.

pub mod fake;
mod forked;
mod plain;
mod sealed;
