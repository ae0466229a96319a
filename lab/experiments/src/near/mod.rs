//! Copies of hot keys in the gateways beside applications: are they ever stale, what do writes pay,
//! and what are the servers relieved of?
//!
//! In the kernel's world applications and servers of which there is little ([`hosts`]), beside what
//! else keeps hot keys near; in the simulator a fleet of gateways, some of which are killed and
//! stopped ([`fleet`]).

mod fleet;
mod hosts;

use serde::{Deserialize, Serialize};

use crate::{Measure, Report, Run, World};
use fleet::Fleet;
use hosts::Hosts;

/// Parameters of copies in gateways.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NearCopies {
    /// What runs in namespaces.
    hosts: Hosts,
    /// What is simulated.
    fleet: Fleet,
}

impl Measure for NearCopies {
    fn check(&self) -> anyhow::Result<()> {
        self.hosts.check()?;
        self.fleet.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        match run.options.world {
            World::Kernel => hosts::measure(&self.hosts, run, report),
            World::Sim => fleet::measure(&self.fleet, run, report),
        }
    }
}
