//! Disks in a plan: they refuse what is written to them, and files go back to a copy of them.

use rand::{RngExt, seq::IndexedRandom};
use seed::rng;

use crate::{Act, Deed, HuntPlan, plan::one_in};

impl HuntPlan {
    /// One plan in four has these.
    pub(crate) fn draw_disks(&mut self) {
        let mut rng = rng(self.seed, "disks");
        if !one_in(&mut rng, 4) {
            return;
        }
        let mut all = self.processes();
        // Clients have no files.
        all.retain(|name| !name.ends_with("/clients"));
        for _ in 0..rng.random_range(1..=3) {
            let at_ms = rng.random_range(0..self.lasts_ms);
            let for_ms = rng.random_range(10..=4_000);
            let process = all.choose(&mut rng).expect("a store at least").clone();
            if one_in(&mut rng, 2) {
                self.deeds.push(Deed { at_ms, for_ms, act: Act::PutBack { process } });
                continue;
            }
            // An agent writes when its tables are new.
            if let Some(machine) = process.strip_suffix("/agent") {
                self.deeds.push(Deed {
                    at_ms: (at_ms + rng.random_range(0..=for_ms)).min(self.lasts_ms - 1),
                    for_ms: rng.random_range(1..=400),
                    act: Act::Reboot { machine: machine.into() },
                });
            }
            self.deeds.push(Deed { at_ms, for_ms, act: Act::FailDisk { process } });
        }
    }
}

/// Whether a store forgets loans by this deed: its journal goes back to a copy from before them.
pub(crate) fn forgets_loans(deed: &Deed) -> bool {
    matches!(&deed.act, Act::PutBack { process } if process.ends_with("/store"))
}
