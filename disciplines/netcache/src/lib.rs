//! The discipline `netcache`: the switch answers the hottest keys itself.
//!
//! What each switch learns of its keys, and which of them it caches, is `hot`. Of its own, the
//! discipline has the data plane, which others may serve from as well: [`OBJECT`], [`PROGRAMS`].

mod controller;
mod pipeline;

use decide::{Items, Native, Program, Registration, Role, Runs, Totals};

pub use controller::{SETTINGS, controller};
pub use pipeline::{PUBLISHED, pipeline};

/// The discipline's registration.
pub const REGISTRATION: Registration = Registration {
    name: "netcache",
    about: "caches the hottest items in the switch, learnt from the traffic",
    number: 0,
    items: Items::Copies,
    probation: Some(PROBATION),
    runs: Runs::WherePages,
    settings: SETTINGS,
    options: &[],
    control: controller,
    object: OBJECT,
    native: Some(NATIVE),
    programs: PROGRAMS,
    maps_of: "netcache",
    maps: &[],
    counters: "",
    totals: Totals::NONE,
    store: None,
    agent: None,
};

/// Reads of a key within 67 ms after which a switch gives it an item. With one, every key that is
/// read takes a blank; with three the servers of what turned hot have more to do before the first
/// answer (`lab run netcache-churn`).
pub const PROBATION: u32 = 2;

/// The programs in [`OBJECT`].
pub const PROGRAMS: &[Program] = &[Program { name: "netcache", role: Role::Step }];

unsafe extern "C" {
    fn netcache_unit() -> *const std::ffi::c_void;
}

/// The same programs as native code.
pub const NATIVE: Native = netcache_unit;

/// The data-plane half: a BPF object with [`PROGRAMS`].
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/netcache.bpf.o.zlib"));
