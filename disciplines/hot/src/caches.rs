//! The caches of all tenants on all switches, as long as they have pages there.
//!
//! A discipline passes on every event that has a method here. Nothing depends on links, stores or
//! the clock alone. Where a cache might take a key it asks `permit` whether the tenant's key may be
//! cached where it is not, and shows it all caches but that one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{
    Action, Answer, Eviction, HotKeys, Inventory, Key, Limits, PROBATION_ONE_IN, Room, SwitchId,
    WindowEnd,
};

use crate::{permit::Permit, switch::SwitchCache};

/// One [`SwitchCache`] per switch and tenant with pages there.
pub struct Caches {
    limits: Limits,
    /// Parameter word 1, of all tenants.
    word: u32,
    caches: BTreeMap<(SwitchId, u32), SwitchCache>,
    attached: BTreeSet<SwitchId>,
    /// Windows that ended, for some tenants at least, and whose reports do not count in the shares
    /// yet.
    ended: BTreeMap<SwitchId, u64>,
    /// What caches that are gone had counted.
    gone: BTreeMap<SwitchId, BTreeMap<&'static str, u64>>,
}

/// What is left of `limits` beside items on probation, so that both together are no more.
pub fn beside_probation(limits: Limits) -> Limits {
    Limits { max_items: limits.max_items - limits.max_items / PROBATION_ONE_IN, ..limits }
}

impl Caches {
    /// None yet. `word` is what the programs find in parameter word 1.
    pub fn new(limits: Limits, word: u32) -> Caches {
        Caches {
            limits,
            word,
            caches: BTreeMap::new(),
            attached: BTreeSet::new(),
            ended: BTreeMap::new(),
            gone: BTreeMap::new(),
        }
    }

    /// A switch attached.
    pub fn attached(&mut self, switch: SwitchId) {
        self.attached.insert(switch);
    }

    /// A switch's stream ended. What it holds stays believed.
    pub fn detached(&mut self, switch: SwitchId) {
        self.attached.remove(&switch);
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
            let cache = SwitchCache::new(tenant, room, self.limits, self.word, now);
            if self.attached.contains(&room.switch) {
                out.push(cache.configure());
            }
            self.caches.insert(at, cache);
            self.share_reports(room.switch);
        }
    }

    /// What a switch that attached has of a tenant.
    pub fn holds(
        &mut self,
        now: Duration,
        inventory: Inventory<'_>,
        permit: impl Fn(&Caches, u32, &Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        let Inventory { switch, tenant, held, lost } = inventory;
        self.update(switch, tenant, |cache, others| {
            cache.holds(now, held, lost, |key| permit(others, tenant, key), out);
        });
    }

    /// A switch reports keys that many ask for.
    pub fn hot(
        &mut self,
        now: Duration,
        keys: HotKeys<'_>,
        permit: impl Fn(&Caches, u32, &Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        let HotKeys { switch, tenant, window, keys } = keys;
        self.share_after_window(switch, None);
        self.update(switch, tenant, |cache, others| {
            cache.hot(now, window, keys, |key| permit(others, tenant, key), out);
        });
    }

    /// A window ended on a switch.
    pub fn window_end(
        &mut self,
        now: Duration,
        end: WindowEnd<'_>,
        permit: impl Fn(&Caches, u32, &Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        let WindowEnd { switch, tenant, window, items, .. } = end;
        self.share_after_window(switch, Some(window));
        self.ended.insert(switch, window);
        self.update(switch, tenant, |cache, others| {
            cache.window_end(now, window, items, |key| permit(others, tenant, key), out);
        });
    }

    /// A switch answered a change.
    pub fn answered(&mut self, now: Duration, answer: Answer<'_>, out: &mut Vec<Action>) {
        let Answer { key, change, outcome, .. } = answer;
        self.update(answer.switch, answer.tenant, |cache, _| {
            cache.answered(now, change, key, outcome, out);
        });
    }

    /// A switch gave items up by itself.
    pub fn dropped(&mut self, now: Duration, eviction: Eviction<'_>) {
        let Eviction { keys, unfit, .. } = eviction;
        self.update(eviction.switch, eviction.tenant, |cache, _| {
            cache.dropped(now, keys, unfit);
        });
    }

    /// A tenant's cache on a switch.
    pub fn get(&self, switch: SwitchId, tenant: u32) -> Option<&SwitchCache> {
        self.caches.get(&(switch, tenant))
    }

    /// A tenant's cache on a switch, to update.
    pub fn get_mut(&mut self, switch: SwitchId, tenant: u32) -> Option<&mut SwitchCache> {
        self.caches.get_mut(&(switch, tenant))
    }

    /// How many items a tenant would have on a switch: see [`SwitchCache::wanted`].
    pub fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.get(switch, tenant).map_or(0, SwitchCache::wanted)
    }

    /// How many it would have if memory cost nobody anything: see [`SwitchCache::could_use`].
    pub fn could_use(&self, switch: SwitchId, tenant: u32) -> usize {
        self.get(switch, tenant).map_or(0, SwitchCache::could_use)
    }

    /// Counters of a switch, summed over its tenants; of their thresholds the highest.
    pub fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut sum = self.gone.get(&switch).cloned().unwrap_or_default();
        for (_, cache) in self.caches.range((switch, 0)..=(switch, u32::MAX)) {
            add(&mut sum, cache.counts());
            add(&mut sum, cache.sizes());
            let highest = sum.entry("hot_threshold").or_default();
            *highest = cache.threshold().max(*highest);
        }
        sum
    }

    /// Updates a cache while the others are looked at.
    fn update(
        &mut self,
        switch: SwitchId,
        tenant: u32,
        update: impl FnOnce(&mut SwitchCache, &Caches),
    ) {
        if let Some(mut cache) = self.caches.remove(&(switch, tenant)) {
            update(&mut cache, self);
            self.caches.insert((switch, tenant), cache);
        }
    }

    /// Shares a switch's reports anew if a window has ended there for all tenants, so another one
    /// than `ending`. Not sooner, so that each tenant's end of a window finds the same shares.
    fn share_after_window(&mut self, switch: SwitchId, ending: Option<u64>) {
        let ended = self.ended.get(&switch);
        if ended.is_some_and(|window| Some(*window) != ending) {
            self.ended.remove(&switch);
            self.share_reports(switch);
        }
    }

    /// Divides a switch's budget of reports: an even share each, and what some leave of theirs to
    /// those that use theirs up.
    fn share_reports(&mut self, switch: SwitchId) {
        let total = self.limits.reports_per_window;
        let mut on_switch: Vec<&mut SwitchCache> = self
            .caches
            .range_mut((switch, 0)..=(switch, u32::MAX))
            .map(|(_, cache)| cache)
            .collect();
        let share = total / u32::try_from(on_switch.len().max(1)).unwrap_or(u32::MAX);
        let used: Vec<u32> = on_switch.iter().map(|cache| cache.reports_last_window()).collect();
        let spare: u32 = used.iter().map(|used| share.saturating_sub(*used)).sum();
        let busy = used.iter().filter(|used| **used > share / 2).count().max(1) as u32;
        for cache in &mut on_switch {
            cache.set_report_budget((share + spare / busy).min(total));
        }
    }
}

/// Adds counts to those of the same names.
pub fn add<const N: usize>(
    sum: &mut BTreeMap<&'static str, u64>,
    counts: [(&'static str, u64); N],
) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}
