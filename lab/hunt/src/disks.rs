//! Disks in a plan: they refuse what is written to them, and files go back to a copy of them.

use rand::{RngExt, seq::IndexedRandom};
use seed::rng;

use crate::{Deed, Plan, plan::one_in};

impl Plan {
    /// One plan in four has these.
    pub(crate) fn draw_disks(&mut self) {
        let mut rng = rng(self.seed, "disks");
        if !one_in(&mut rng, 4) {
            return;
        }
        // Clients have no files, and an agent whose disk fails ends.
        let is_served = |name: &&String| !name.ends_with("/clients");
        let writes = |name: &&String| is_served(name) && !name.ends_with("/agent");
        let all = self.processes();
        for _ in 0..rng.random_range(1..=3) {
            let at_ms = rng.random_range(0..self.lasts_ms);
            let for_ms = rng.random_range(10..=4_000);
            let fails = one_in(&mut rng, 2);
            let candidates: Vec<&String> = match fails {
                true => all.iter().filter(writes).collect(),
                false => all.iter().filter(is_served).collect(),
            };
            let process = (*candidates.choose(&mut rng).expect("a store at least")).clone();
            self.deeds.push(match fails {
                true => Deed::FailDisk { at_ms, process, for_ms },
                false => Deed::PutBack { at_ms, process, for_ms },
            });
        }
    }
}

/// Whether a store forgets loans by this deed: its journal goes back to a copy from before them.
pub(crate) fn forgets_loans(deed: &Deed) -> bool {
    matches!(deed, Deed::PutBack { process, .. } if process.ends_with("/store"))
}
