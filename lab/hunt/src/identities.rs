//! Identities in a plan that are used again: the number of a client by that of another tenant, the
//! id and name of a switch by a machine that has nothing else of it, and a tenant's number by that
//! tenant, made anew.

use rand::{RngExt, seq::IndexedRandom};
use seed::rng;

use crate::{Act, Deed, HuntPlan, plan::one_in};

impl HuntPlan {
    /// One plan in four has these.
    pub(crate) fn draw_identities(&mut self) {
        let mut rng = rng(self.seed, "identities");
        if !one_in(&mut rng, 4) {
            return;
        }
        self.clients.same_ids = one_in(&mut rng, 2);
        let machines = self.machines();
        let is_free = |name: &&String| name.starts_with("switch") && self.keeps_numbers(name);
        let switches: Vec<&String> = machines.iter().filter(is_free).collect();
        if let Some(machine) = switches.choose(&mut rng) {
            self.deeds.push(Deed {
                at_ms: rng.random_range(0..self.lasts_ms),
                for_ms: rng.random_range(1..=1_000),
                act: Act::Replace { machine: (*machine).clone() },
            });
        }
    }

    /// One plan in six removes a tenant, and makes it anew.
    pub(crate) fn draw_remakes(&mut self) {
        let mut rng = rng(self.seed, "remakes");
        if self.tenants.is_empty() || !one_in(&mut rng, 6) {
            return;
        }
        for _ in 0..rng.random_range(1..=2) {
            self.deeds.push(Deed {
                at_ms: rng.random_range(0..self.lasts_ms),
                for_ms: rng.random_range(1..=400),
                act: Act::Remake { tenant: self.tenants.choose(&mut rng).expect("some").id },
            });
        }
    }

    /// Whether the clock alone keeps a switch's epochs apart, as it must where the reservation is
    /// lost with the disk: it never went back, and no former reservation was ahead of it.
    fn keeps_numbers(&self, switch: &str) -> bool {
        !self.deeds.iter().any(|deed| match &deed.act {
            Act::SetWall { machine, .. } => machine == switch,
            Act::PutBack { process } => process.strip_suffix("/agent") == Some(switch),
            _ => deed.loses_tables() == Some(switch),
        })
    }
}
