//! The registry: every discipline that this build knows, one line each in [`all`].
//!
//! The `shortstop` binary hands entries of it to the controller, the switch agent and the lab; none of those
//! knows a discipline by name.

mod experiments;

use control::{Discipline, Limits};

pub use self::experiments::experiments;

/// A discipline with what each role needs of it.
#[derive(Clone, Copy)]
pub struct Registration {
    /// Its name, as tenants' setups and options use it.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Makes its control half, for one controller.
    pub controller: fn(Limits) -> Box<dyn Discipline>,
    /// Its data-plane half: a BPF object. Disciplines may share one and differ in their control halves.
    pub object: &'static [u8],
    /// Name of its XDP program in `object`.
    pub program: &'static str,
}

/// Every discipline; the first is the default.
pub fn all() -> &'static [Registration] {
    &[NETCACHE, MADINC]
}

/// The discipline of that name.
pub fn find(name: &str) -> Option<&'static Registration> {
    all().iter().find(|r| r.name == name)
}

const NETCACHE: Registration = Registration {
    name: "netcache",
    about: "caches the hottest items in the switch, learnt from the traffic",
    controller: netcache::controller,
    object: netcache::OBJECT,
    program: netcache::PROGRAM,
};

const MADINC: Registration = Registration {
    name: "madinc",
    about: "joins a tenant's memory on several switches to one cache, each item on one of them",
    controller: madinc::controller,
    object: madinc::OBJECT,
    program: madinc::PROGRAM,
};
