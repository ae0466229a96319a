//! The caches of all tenants on all switches, as long as they have pages there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use control::{Action, Change, ItemKey, Limits, Outcome, Room, SwitchId};

use crate::switch::SwitchCache;

/// One [`SwitchCache`] per switch and tenant with pages there.
pub struct Caches {
    limits: Limits,
    caches: BTreeMap<(SwitchId, u32), SwitchCache>,
    attached: BTreeSet<SwitchId>,
    /// What caches that are gone had counted.
    gone: BTreeMap<SwitchId, BTreeMap<&'static str, u64>>,
}

impl Caches {
    /// None yet.
    pub fn new(limits: Limits) -> Caches {
        Caches {
            limits,
            caches: BTreeMap::new(),
            attached: BTreeSet::new(),
            gone: BTreeMap::new(),
        }
    }

    /// A tenant's memory changed: its caches come, go, grow and shrink.
    pub fn room(&mut self, now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        let listed: BTreeSet<SwitchId> = rooms.iter().map(|room| room.switch).collect();
        let gone = |(switch, of): &(SwitchId, u32)| *of == tenant && !listed.contains(switch);
        let gone: Vec<_> = self.caches.keys().copied().filter(gone).collect();
        for at in gone {
            let cache = self.caches.remove(&at).expect("just listed");
            add(self.gone.entry(at.0).or_default(), cache.counts());
            self.share_reports(at.0);
        }
        for room in rooms {
            let at = (room.switch, tenant);
            if let Some(cache) = self.caches.get_mut(&at) {
                cache.resize(room.pages, out);
                continue;
            }
            let cache = SwitchCache::new(tenant, *room, self.limits, now);
            if self.attached.contains(&room.switch) {
                out.push(cache.tell_threshold());
            }
            self.caches.insert(at, cache);
            self.share_reports(room.switch);
        }
    }

    /// A switch attached.
    pub fn attach(&mut self, switch: SwitchId) {
        self.attached.insert(switch);
    }

    /// A switch's stream ended. What it holds stays believed.
    pub fn detach(&mut self, switch: SwitchId) {
        self.attached.remove(&switch);
    }

    /// A switch answered a command.
    pub fn answered(
        &mut self,
        now: Duration,
        switch: SwitchId,
        (change, key, outcome): (Change, &ItemKey, Outcome),
        out: &mut Vec<Action>,
    ) {
        if let Some(cache) = self.get_mut(switch, key.tenant) {
            cache.answered(now, change, key, outcome, out);
        }
    }

    /// A switch gave items up by itself.
    pub fn dropped(&mut self, now: Duration, switch: SwitchId, keys: &[ItemKey]) {
        for (tenant, keys) in by_tenant(keys, |key| key.tenant) {
            if let Some(cache) = self.get_mut(switch, tenant) {
                cache.dropped(now, &keys);
            }
        }
    }

    /// A tenant's cache on a switch.
    pub fn get(&self, switch: SwitchId, tenant: u32) -> Option<&SwitchCache> {
        self.caches.get(&(switch, tenant))
    }

    /// A tenant's cache on a switch, to update.
    pub fn get_mut(&mut self, switch: SwitchId, tenant: u32) -> Option<&mut SwitchCache> {
        self.caches.get_mut(&(switch, tenant))
    }

    /// Takes a cache out for a while, to update it while others are looked at; [`Caches::put_back`] must follow.
    pub fn take(&mut self, switch: SwitchId, tenant: u32) -> Option<SwitchCache> {
        self.caches.remove(&(switch, tenant))
    }

    /// Puts a cache back that [`Caches::take`] took out.
    pub fn put_back(&mut self, switch: SwitchId, tenant: u32, cache: SwitchCache) {
        self.caches.insert((switch, tenant), cache);
    }

    /// The tenants that have a cache on a switch.
    pub fn tenants(&self, switch: SwitchId) -> Vec<u32> {
        let on_switch = self.caches.range((switch, 0)..=(switch, u32::MAX));
        on_switch.map(|((_, tenant), _)| *tenant).collect()
    }

    /// Divides a switch's budget of reports: an even share each, and what some leave of theirs to those that use
    /// theirs up. To be called after each window.
    pub fn share_reports(&mut self, switch: SwitchId) {
        let total = self.limits.reports_per_window;
        let mut on_switch: Vec<&mut SwitchCache> = self
            .caches
            .range_mut((switch, 0)..=(switch, u32::MAX))
            .map(|(_, cache)| cache)
            .collect();
        let share = total / u32::try_from(on_switch.len().max(1)).unwrap_or(u32::MAX);
        let used: Vec<u32> = on_switch
            .iter()
            .map(|cache| cache.reports_last_window())
            .collect();
        let spare: u32 = used.iter().map(|used| share.saturating_sub(*used)).sum();
        let busy = used.iter().filter(|used| **used > share / 2).count().max(1) as u32;
        for cache in &mut on_switch {
            cache.set_report_budget((share + spare / busy).min(total));
        }
    }

    /// How many items a tenant would have on a switch: see [`SwitchCache::wanted`].
    pub fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.get(switch, tenant).map_or(0, SwitchCache::wanted)
    }

    /// Counters of a switch, summed over its tenants.
    pub fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut sum = self.gone.get(&switch).cloned().unwrap_or_default();
        for (_, cache) in self.caches.range((switch, 0)..=(switch, u32::MAX)) {
            add(&mut sum, cache.counts());
            add(&mut sum, cache.sizes());
        }
        sum
    }
}

fn add<const N: usize>(sum: &mut BTreeMap<&'static str, u64>, counts: [(&'static str, u64); N]) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

/// What a switch said in one go, by tenant.
pub fn by_tenant<T>(said: &[T], tenant: impl Fn(&T) -> u32) -> BTreeMap<u32, Vec<&T>> {
    let mut split: BTreeMap<u32, Vec<&T>> = BTreeMap::new();
    for part in said {
        split.entry(tenant(part)).or_default().push(part);
    }
    split
}
