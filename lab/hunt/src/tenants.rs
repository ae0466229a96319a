//! Tenants in a plan: more of them than its stores have room for, and terms that change while there
//! are keys.

use plan::roles::Room;
use rand::{RngExt, seq::IndexedRandom};
use seed::rng;

use crate::{Act, Deed, HuntPlan, Tenant, plan::one_in};

/// The number of the first tenant that makes a crowd.
const CROWD: u32 = 17;

/// What stores count where they have no more room; each comes about in enough seeds.
pub(crate) const REFUSALS: [&str; 4] =
    ["refused_clients_full", "refused_queue_full", "refused_parts_full", "directory_evictions"];

impl HuntPlan {
    /// One plan in six is a crowd: more tenants, with more clients, than its stores know at once.
    pub(crate) fn draw_crowd(&mut self, disciplines: &[&str]) {
        let mut rng = rng(self.seed, "crowd");
        if !one_in(&mut rng, 6) {
            return;
        }
        for number in 0..rng.random_range(2..=5) {
            let taken: u32 = self.tenants.iter().map(|tenant| tenant.quota).sum();
            let left = self.pages.saturating_sub(taken);
            self.tenants.push(Tenant {
                id: CROWD + number,
                quota: rng.random_range(0..=1).min(left),
                discipline: (*disciplines.choose(&mut rng).expect("disciplines")).to_owned(),
                write_back_ms: 0,
            });
        }
        self.clients.keys = rng.random_range(1..=3);
        // Of the longest, no store has room for two at once, and some have room for none.
        if one_in(&mut rng, 2) {
            self.clients.longest_value = 64 << 10;
        }
        // One for each tenant on each host, and another for each life of a host's clients.
        let clients = self.asking().len() * self.clients.hosts as usize;
        for store in &mut self.stores {
            store.room = Some(Room {
                clients: rng.random_range(clients * 2 / 3..=clients),
                copies: rng.random_range(1..=8),
                queue: rng.random_range(1..=2),
                parts: *[32 << 10, 128 << 10].choose(&mut rng).expect("some"),
            });
        }
    }

    /// Whether its stores have less room than usual.
    pub fn is_crowd(&self) -> bool {
        self.stores.iter().any(|store| store.room.is_some())
    }

    /// One plan in three changes the terms of tenants.
    pub(crate) fn draw_terms(&mut self, disciplines: &[&str]) {
        let mut rng = rng(self.seed, "terms");
        if self.tenants.is_empty() || !one_in(&mut rng, 3) {
            return;
        }
        for _ in 0..rng.random_range(1..=3) {
            let at_ms = rng.random_range(0..self.lasts_ms);
            let act = Act::Terms {
                tenant: self.tenants.choose(&mut rng).expect("some").id,
                discipline: (*disciplines.choose(&mut rng).expect("disciplines")).to_owned(),
                borrow: rng.random(),
                rate: *[0, 0, 50, 1_000].choose(&mut rng).expect("some"),
            };
            self.deeds.push(Deed { at_ms, for_ms: 0, act });
        }
    }
}
