//! The discipline `madinc`: a tenant's memory on several switches is one cache; each item is on one
//! of them.
//!
//! Control half: [`controller`] takes in what switches report and decides which of them caches a
//! key. What each switch knows of its keys is `hot`; the data plane is that of `netcache`.

#![deny(unsafe_code)]

mod controller;
mod ring;
mod tenant;

use decide::{Items, Registration, Runs, Totals};

pub use controller::controller;
/// What its data plane would need on a switch chip.
pub use netcache::pipeline;

/// The discipline's registration.
pub const REGISTRATION: Registration = Registration {
    name: "madinc",
    about: "joins a tenant's memory on several switches to one cache, each item on one of them",
    number: 1,
    items: Items::Copies,
    probation: Some(netcache::PROBATION),
    runs: Runs::WherePages,
    settings: &[],
    options: &[],
    control: controller,
    object: netcache::OBJECT,
    native: Some(netcache::NATIVE),
    programs: netcache::PROGRAMS,
    maps_of: "netcache",
    maps: &[],
    counters: "",
    totals: Totals::NONE,
    store: None,
    agent: None,
};
