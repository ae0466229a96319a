//! The discipline `madinc`: a tenant's memory on several switches is one cache; each item is on one of them.
//!
//! Control half: [`controller`] takes in what switches report and decides which of them caches a key. What
//! each switch knows of its keys, and the data plane, are those of `netcache`.

mod controller;
mod ring;
mod tenant;

pub use controller::{Controller, controller};
pub use netcache::{OBJECT, PROGRAM};
