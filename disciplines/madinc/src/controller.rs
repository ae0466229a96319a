//! The controller of `madinc`: hands each event to the tenants that it is about.

use std::{collections::BTreeMap, time::Duration};

use control::{Action, Discipline, Event, Limits, SwitchId};
use netcache::{Caches, by_tenant};

use crate::tenant::Tenant;

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller::new(limits))
}

/// Decides for each tenant which of its switches caches a key.
pub struct Controller {
    caches: Caches,
    tenants: BTreeMap<u32, Tenant>,
    /// Reports of items that are cached on another switch.
    elsewhere: BTreeMap<SwitchId, u64>,
}

impl Controller {
    /// Knows no tenant yet.
    pub fn new(limits: Limits) -> Controller {
        Controller {
            caches: Caches::new(limits),
            tenants: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
        }
    }
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let (caches, tenants) = (&mut self.caches, &mut self.tenants);
        match event {
            Event::Room { tenant, rooms } => {
                caches.room(now, tenant, rooms, out);
                if rooms.is_empty() {
                    tenants.remove(&tenant);
                } else {
                    let tenant = tenants.entry(tenant).or_insert_with(|| Tenant::new(tenant));
                    tenant.room(rooms);
                }
            }
            Event::Attached { switch, held, lost } => {
                caches.attach(switch);
                let mut held = by_tenant(held, |key| key.tenant);
                let mut lost = by_tenant(lost, |key| key.tenant);
                for (id, tenant) in tenants {
                    let held = held.remove(id).unwrap_or_default();
                    let lost = lost.remove(id).unwrap_or_default();
                    tenant.attached(now, caches, switch, &held, &lost, out);
                }
            }
            Event::Detached { switch } => caches.detach(switch),
            Event::Hot {
                switch,
                window,
                keys,
            } => {
                for (id, keys) in by_tenant(keys, |(key, _)| key.tenant) {
                    let cache = caches.get_mut(switch, id);
                    let (Some(cache), Some(tenant)) = (cache, tenants.get_mut(&id)) else {
                        continue;
                    };
                    let keys = cache.hear(now, window, &keys, out);
                    let elsewhere = tenant.reported(now, caches, &keys, out);
                    *self.elsewhere.entry(switch).or_default() += elsewhere;
                }
            }
            Event::WindowEnd {
                switch,
                window,
                items,
            } => {
                let mut items = by_tenant(items, |(key, _)| key.tenant);
                for id in caches.tenants(switch) {
                    let items = items.remove(&id).unwrap_or_default();
                    if let Some(tenant) = tenants.get_mut(&id) {
                        tenant.window_end(now, caches, switch, (window, &items), out);
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
            Event::Tick => {
                for tenant in tenants.values_mut() {
                    tenant.tick(now, caches, out);
                }
            }
        }
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.wanted(switch, tenant)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut counters = self.caches.counters(switch);
        let elsewhere = self.elsewhere.get(&switch).copied().unwrap_or(0);
        counters.insert("reports_of_items_elsewhere", elsewhere);
        counters
    }
}
