//! Copies of hot keys in the gateways beside applications: are they ever stale, what do writes pay,
//! and what are the servers relieved of?
//!
//! In the simulator a fleet of gateways, some of which are killed and stopped ([`fleet`]).

mod fleet;
mod values;

use serde::{Deserialize, Serialize};

use crate::{Measure, Report, Run};
use fleet::Fleet;

/// Parameters of copies in gateways.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Near {
    /// What is simulated.
    fleet: Fleet,
}

impl Measure for Near {
    fn check(&self) -> anyhow::Result<()> {
        self.fleet.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        fleet::measure(&self.fleet, run, report)
    }
}
