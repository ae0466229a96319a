//! The controller of `madinc`: hands each event to the caches that it is about, and to the tenant
//! that coordinates them.

use std::{collections::BTreeMap, time::Duration};

use decide::{
    Action, Answer, Discipline, Eviction, HotKeys, Inventory, Key, Limits, Room, SwitchId,
    WindowEnd,
};
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
    /// The tenants with memory.
    tenants: BTreeMap<u32, Tenant>,
    /// Reports of items that are cached on another switch.
    elsewhere: BTreeMap<SwitchId, u64>,
}

/// Has each tenant permit its keys. Nothing is permitted of a tenant without memory.
fn permit_of(tenants: &BTreeMap<u32, Tenant>) -> impl Fn(&Caches, u32, &Key) -> Permit {
    move |others, tenant, key| match tenants.get(&tenant) {
        Some(tenant) => tenant.permit(others, key),
        None => Permit::NotYet,
    }
}

impl Discipline for Controller {
    fn attached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.caches.attached(switch);
    }

    fn detached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.caches.detached(switch);
    }

    fn room(&mut self, now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        self.caches.room(now, tenant, rooms, out);
        if rooms.is_empty() {
            self.tenants.remove(&tenant);
            return;
        }
        let known = self.tenants.entry(tenant);
        known.or_insert_with(|| Tenant::new(tenant)).room(rooms);
    }

    fn holds(&mut self, now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let permit = permit_of(&self.tenants);
        self.caches.holds(now, inventory, permit, out);
        if let Some(tenant) = self.tenants.get(&inventory.tenant) {
            let Inventory { switch, held, .. } = inventory;
            tenant.end_doubles(&mut self.caches, switch, held, out);
        }
    }

    /// Of reports the caches learn only. Where keys go is decided when other switches have reported
    /// them too.
    fn hot(&mut self, now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        self.caches.hot(now, keys, |_, _, _| Permit::NotYet, out);
        if let Some(tenant) = self.tenants.get_mut(&keys.tenant) {
            let HotKeys { switch, keys, .. } = keys;
            let elsewhere = tenant.reported(now, &mut self.caches, switch, keys, out);
            *self.elsewhere.entry(switch).or_default() += elsewhere;
        }
    }

    fn window_end(&mut self, now: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        let permit = permit_of(&self.tenants);
        self.caches.window_end(now, end, permit, out);
    }

    fn answered(&mut self, now: Duration, answer: Answer<'_>, out: &mut Vec<Action>) {
        self.caches.answered(now, answer, out);
    }

    fn dropped(&mut self, now: Duration, eviction: Eviction<'_>, _out: &mut Vec<Action>) {
        self.caches.dropped(now, eviction);
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        for tenant in self.tenants.values_mut() {
            tenant.tick(now, &mut self.caches, out);
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
