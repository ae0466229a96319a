//! The controller of `netcache`: hands each event to the caches that it is about.

use std::{collections::BTreeMap, time::Duration};

use control::{Action, Discipline, Event, Limits, SwitchId};

use crate::{
    caches::{Caches, by_tenant},
    switch::Elsewhere,
};

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller::new(limits))
}

/// Decides for every switch and tenant on its own which items are cached.
pub struct Controller {
    caches: Caches,
}

impl Controller {
    /// Knows no switch yet.
    pub fn new(limits: Limits) -> Controller {
        Controller {
            caches: Caches::new(limits),
        }
    }
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let caches = &mut self.caches;
        match event {
            Event::Room { tenant, rooms } => caches.room(now, tenant, rooms, out),
            Event::Attached { switch, held, lost } => {
                caches.attach(switch);
                let mut held = by_tenant(held, |key| key.tenant);
                let mut lost = by_tenant(lost, |key| key.tenant);
                for tenant in caches.tenants(switch) {
                    let held = held.remove(&tenant).unwrap_or_default();
                    let lost = lost.remove(&tenant).unwrap_or_default();
                    if let Some(cache) = caches.get_mut(switch, tenant) {
                        cache.attached(now, &held, &lost, out);
                    }
                }
            }
            Event::Detached { switch } => caches.detach(switch),
            Event::Hot {
                switch,
                window,
                keys,
            } => {
                for (tenant, keys) in by_tenant(keys, |(key, _)| key.tenant) {
                    if let Some(cache) = caches.get_mut(switch, tenant) {
                        cache.hot(now, window, &keys, out);
                    }
                }
            }
            Event::WindowEnd {
                switch,
                window,
                items,
            } => {
                let mut items = by_tenant(items, |(key, _)| key.tenant);
                for tenant in caches.tenants(switch) {
                    let items = items.remove(&tenant).unwrap_or_default();
                    if let Some(cache) = caches.get_mut(switch, tenant) {
                        cache.window_end(now, window, &items, |_| Elsewhere::No, out);
                    }
                }
                caches.share_reports(switch);
            }
            Event::Answered {
                switch,
                change,
                key,
                outcome,
            } => caches.answered(now, switch, (change, key, outcome), out),
            Event::Dropped { switch, keys } => caches.dropped(now, switch, keys),
            Event::Tick => {} // Nothing depends on the clock alone.
        }
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.wanted(switch, tenant)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        self.caches.counters(switch)
    }
}
