//! The controller of `madinc`: hands each event to the caches that it is about, and to the tenant that coordinates them.

use std::{collections::BTreeMap, time::Duration};

use decide::{Action, Discipline, Event, Limits, SwitchId};
use hot::{Caches, Permit, beside_probation};

use crate::tenant::Tenant;

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller {
        caches: Caches::new(beside_probation(limits), 0),
        tenants: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
    })
}

/// Decides for each tenant which of its switches caches a key.
struct Controller {
    caches: Caches,
    /// Those with memory.
    tenants: BTreeMap<u32, Tenant>,
    /// Reports of items that are cached on another switch.
    elsewhere: BTreeMap<SwitchId, u64>,
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let (caches, tenants) = (&mut self.caches, &mut self.tenants);
        // Of reports the caches learn only. Where keys go is decided when other switches have reported them too.
        let learn_only = matches!(event, Event::Hot { .. });
        let permit = |others: &Caches, tenant, key: &_| match tenants.get(&tenant) {
            Some(tenant) if !learn_only => tenant.permit(others, key),
            _ => Permit::NotYet,
        };
        caches.on(now, event, permit, out);
        match event {
            Event::Room { tenant, rooms: [] } => {
                tenants.remove(&tenant);
            }
            Event::Room { tenant, rooms } => {
                let tenant = tenants.entry(tenant).or_insert_with(|| Tenant::new(tenant));
                tenant.room(rooms);
            }
            Event::Holds {
                switch,
                tenant,
                held,
                ..
            } => {
                if let Some(tenant) = tenants.get(&tenant) {
                    tenant.end_doubles(caches, switch, held, out);
                }
            }
            Event::Hot {
                switch,
                tenant,
                keys,
                ..
            } => {
                if let Some(tenant) = tenants.get_mut(&tenant) {
                    let elsewhere = tenant.reported(now, caches, switch, keys, out);
                    *self.elsewhere.entry(switch).or_default() += elsewhere;
                }
            }
            Event::Tick => {
                for tenant in tenants.values_mut() {
                    tenant.tick(now, caches, out);
                }
            }
            _ => {}
        }
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.wanted(switch, tenant)
    }

    fn could_use(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.could_use(switch, tenant)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut counters = self.caches.counters(switch);
        let elsewhere = self.elsewhere.get(&switch).copied().unwrap_or(0);
        counters.insert("reports_of_items_elsewhere", elsewhere);
        counters
    }
}
