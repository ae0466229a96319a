//! The registry: every discipline that this build knows, one line each in [`all`].
//!
//! The `shortstop` binary hands entries of it to the controller, the switch agent and the lab; none of those
//! knows a discipline by name.

use control::{Discipline, Limits};

/// A discipline with what each role needs of it.
#[derive(Clone, Copy)]
pub struct Registration {
    /// Its name, as tenants' setups and options use it.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Makes its control half, for one controller.
    pub controller: fn(Limits) -> Box<dyn Discipline>,
    /// Its data-plane half: a BPF object with an XDP program of the discipline's name.
    pub object: &'static [u8],
    /// Its experiments: name and TOML text.
    pub experiments: &'static [(&'static str, &'static str)],
}

/// Every discipline; the first is the default.
pub fn all() -> &'static [Registration] {
    &[NETCACHE]
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
    experiments: include!(concat!(env!("OUT_DIR"), "/netcache_experiments.rs")),
};
