//! Stores that hold copies of one another's keys: in a plan, for disciplines that have that, with
//! few keys that many read and write; and what stores count of them.

use rand::{RngExt, seq::IndexedRandom};
use seed::{SeededRng, rng};

use crate::{Act, Deed, Disciplines, HuntPlan, Shape, Store, plan::one_in};

/// What stores count of copies of other stores' keys; each comes about in enough seeds, where a
/// discipline has some held.
pub const REPLICAS: [&str; 6] = [
    "replica_reads",
    "replica_confirms",
    "replica_reads_passed",
    "replica_updates",
    "replica_invalidations",
    "pushes",
];

/// Whether a counter of a store is about copies of other stores' keys.
pub fn is_of_replicas(name: &str) -> bool {
    name.starts_with("replica_") || REPLICAS.contains(&name)
}

/// Whether there is a discipline among these that has stores hold copies.
pub fn hold_copies(disciplines: Disciplines) -> bool {
    !names(disciplines).is_empty()
}

/// Those that do.
fn names(disciplines: Disciplines) -> Vec<&'static str> {
    let holds = |d: &&decide::Registration| d.store.is_some_and(|half| half.holds_copies);
    disciplines.iter().filter(holds).map(|d| d.name).collect()
}

impl HuntPlan {
    /// One plan in four is about copies in stores, whether its keys are lent besides or not.
    pub(crate) fn draw_copies(&mut self, disciplines: Disciplines) {
        let mut rng = rng(self.seed, "copies in stores");
        let names = names(disciplines);
        if !one_in(&mut rng, 4) {
            return;
        }
        let Some(name) = names.choose(&mut rng) else { return };
        if !self.tenants.is_empty() || one_in(&mut rng, 2) {
            self.open = Some((*name).to_owned());
        }
        for tenant in &mut self.tenants {
            if !one_in(&mut rng, 3) {
                tenant.discipline = (*name).to_owned();
            }
        }
        while self.stores.len() < 2 {
            let lease_ms = *[1000, 1500, 2000].choose(&mut rng).expect("some");
            let data_us = 0;
            self.stores.push(Store { lease_ms, data_us, room: None, is_shard: false });
        }
        self.window_ms = *[100, 250].choose(&mut rng).expect("some");
        self.clients.hosts = 2;
        self.clients.each = rng.random_range(3..=5);
        self.clients.keys = rng.random_range(1..=4);
        self.clients.pause_us = *[1_000, 2_000, 10_000].choose(&mut rng).expect("some");
        self.clients.plain = *[0.0, 0.5, 0.9].choose(&mut rng).expect("some");
        self.draw_switches_of(disciplines, name, &mut rng);
    }

    /// What of a discipline is either off or on is the other of these in one plan of two.
    fn draw_switches_of(&mut self, disciplines: Disciplines, name: &str, rng: &mut SeededRng) {
        let known = disciplines.iter().filter(|d| d.name == name);
        for setting in known.flat_map(|d| d.settings) {
            if (setting.least, setting.most) == (0, 1) && one_in(rng, 2) {
                let other = 1 - setting.usual;
                self.settings.insert(format!("{name}.{}", setting.name), other);
            }
        }
    }

    /// What is done to such a plan besides: a store that holds copies and is away for longer than
    /// its lease, while the key's home and clients go on.
    pub(crate) fn draw_copies_deeds(&mut self) {
        let mut rng = rng(self.seed, "deeds of copies in stores");
        let longest_ms = u64::from(self.longest_lease_ms());
        for _ in 0..rng.random_range(0..=2) {
            let store = rng.random_range(1..=self.stores.len());
            let at_ms = rng.random_range(0..self.lasts_ms);
            let for_ms = longest_ms + rng.random_range(100..=1_500);
            let act = match (rng.random_range(0..3), self.shape) {
                (0, Shape::Racks(racks)) => Act::Cut {
                    link: self.links().len()
                        - self.second_links()
                        - rng.random_range(1..=racks as usize),
                },
                (0 | 1, _) => Act::Suspend { machine: format!("store{store}") },
                _ => Act::Stop { process: format!("store{store}/store") },
            };
            self.deeds.push(Deed { at_ms, for_ms, act });
        }
    }

    /// Whether stores hold copies of one another's keys.
    pub fn has_copies_held(&self, disciplines: Disciplines) -> bool {
        let names = names(disciplines);
        let tenants = self.tenants.iter().map(|tenant| &tenant.discipline);
        let later = self.deeds.iter().filter_map(|deed| match &deed.act {
            Act::Terms { discipline, .. } => Some(discipline),
            _ => None,
        });
        let mut used = self.open.iter().chain(tenants).chain(later);
        self.stores.len() > 1 && used.any(|name| names.contains(&name.as_str()))
    }
}
