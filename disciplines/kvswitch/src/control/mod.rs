//! The control half: which keys are replicated, how often, and where (paper, 4.1).
//!
//! Each switch decides alone, for each tenant alone ([`side`]): what it counts says which keys will
//! be hot ([`estimate`]), what it sent to each server says whether they are in balance
//! ([`servers`]) and so from which load on a key gets another server ([`threshold`]), as far as
//! writes allow ([`writes`]); that and the ring ([`place`]) say where keys are to stand, and what
//! is there already what has to change ([`table`]). Keys that are better kept at the switch itself
//! are none of that ([`copies`]). The record comes first, then its stores are told to hold the key
//! ([`holdings`]), so that what they confirm finds it; on the way back the record goes first.

mod accuracy;
mod copies;
mod demand;
mod estimate;
mod holdings;
mod place;
mod ring;
mod servers;
mod side;
mod situation;
mod table;
mod threshold;
mod writes;

#[cfg(test)]
mod balance;
#[cfg(test)]
mod hybrid;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use decide::{
    Action, Answer, Discipline, Eviction, HotKeys, Inventory, Limits, Room, Stores, SwitchId,
    WindowEnd,
};

use holdings::Holdings;
use side::Side;

/// Makes the control half.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller {
        limits,
        attached: BTreeSet::new(),
        tenants: BTreeMap::new(),
        holds: Holdings::default(),
    })
}

struct Controller {
    limits: Limits,
    attached: BTreeSet<SwitchId>,
    tenants: BTreeMap<u32, Tenant>,
    holds: Holdings,
}

/// A tenant whose stores are known.
struct Tenant {
    stores: Stores,
    sides: BTreeMap<SwitchId, Side>,
}

impl Tenant {
    /// Which stores, by place, can be told something, and answer as far as the switch at the top of
    /// their rack sees.
    fn there(&self, holds: &Holdings) -> Vec<bool> {
        let is_silent = |at: usize| {
            let top = self.stores.rack(at).and_then(|rack| self.sides.get(&rack));
            top.is_some_and(|side| side.is_silent(at))
        };
        let places = self.stores.addresses().iter().enumerate();
        places.map(|(at, store)| holds.is_attached(store) && !is_silent(at)).collect()
    }
}

impl Controller {
    /// What happened at a switch to one of its tenants.
    fn at(
        &mut self,
        switch: SwitchId,
        tenant: u32,
        what: impl FnOnce(&mut Side, &Stores, &mut Holdings),
    ) {
        if let Some(tenant) = self.tenants.get_mut(&tenant)
            && let Some(side) = tenant.sides.get_mut(&switch)
        {
            what(side, &tenant.stores, &mut self.holds);
        }
    }

    fn attach(&mut self, now: Duration, switch: SwitchId, attached: bool) {
        match attached {
            true => self.attached.insert(switch),
            false => self.attached.remove(&switch),
        };
        let sides = self.tenants.values_mut().flat_map(|tenant| tenant.sides.get_mut(&switch));
        sides.for_each(|side| side.attached(now, attached));
    }
}

impl Discipline for Controller {
    /// The stores that a tenant's keys are on, or are to be on.
    fn stores(&mut self, _now: Duration, id: u32, stores: &Stores, out: &mut Vec<Action>) {
        let tenant = self
            .tenants
            .entry(id)
            .or_insert_with(|| Tenant { stores: stores.clone(), sides: BTreeMap::new() });
        if tenant.stores != *stores {
            for side in tenant.sides.values_mut() {
                side.end(&tenant.stores, &mut self.holds);
                side.moved(stores, &mut self.holds);
                side.end_moved(out);
                side.configure(stores, out);
            }
            tenant.stores = stores.clone();
        }
    }

    /// A tenant's sides come, go, grow and shrink.
    fn room(&mut self, now: Duration, id: u32, rooms: &[Room], out: &mut Vec<Action>) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let Tenant { stores, sides } = tenant;
        sides.retain(|switch, side| {
            let stays = rooms.iter().any(|room| room.switch == *switch);
            if !stays {
                side.end(stores, &mut self.holds);
            }
            stays
        });
        for room in rooms {
            let side = sides.entry(room.switch).or_insert_with(|| {
                let mut side = Side::new(id, room, self.limits);
                side.moved(stores, &mut self.holds);
                side.attached(now, self.attached.contains(&room.switch));
                side
            });
            side.resize(room.pages);
            side.configure(stores, out);
        }
        if rooms.is_empty() {
            self.holds.leave(id, stores.addresses(), out);
            self.tenants.remove(&id);
        }
    }

    fn attached(&mut self, now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.attach(now, switch, true);
    }

    fn detached(&mut self, now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.attach(now, switch, false);
    }

    fn holds(&mut self, _now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let Inventory { held, lost, .. } = inventory;
        self.at(inventory.switch, inventory.tenant, |side, stores, _| {
            side.holds(held, lost);
            side.configure(stores, out);
        });
    }

    fn hot(&mut self, _now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        self.at(keys.switch, keys.tenant, |side, stores, _| {
            side.reported(keys.keys);
            side.configure(stores, out);
        });
    }

    fn window_end(&mut self, now: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        let WindowEnd { items, tallies, .. } = end;
        // Before the next plan: a copy that makes way in it for replicas counts as inherited until
        // these are there, and where load moves there is always one.
        if let Some(tenant) = self.tenants.get(&end.tenant)
            && tenant.sides.values().all(|side| side.is_settled(now))
        {
            let stores = tenant.stores.addresses();
            self.holds.settle(end.tenant, stores, out);
        }
        let there = self.tenants.get(&end.tenant).map(|tenant| tenant.there(&self.holds));
        self.at(end.switch, end.tenant, |side, stores, _| {
            let there = there.unwrap_or_default();
            side.window_end(now, items, tallies, stores, &there, out);
            side.configure(stores, out);
        });
    }

    fn answered(&mut self, now: Duration, answer: Answer<'_>, _out: &mut Vec<Action>) {
        let Answer { key, change, outcome, .. } = answer;
        self.at(answer.switch, answer.tenant, |side, stores, holds| {
            side.answered(now, key, change, outcome, stores, holds);
        });
    }

    fn dropped(&mut self, now: Duration, eviction: Eviction<'_>, _out: &mut Vec<Action>) {
        let Eviction { keys, unfit, .. } = eviction;
        self.at(eviction.switch, eviction.tenant, |side, stores, holds| {
            side.dropped(now, keys, unfit, stores, holds);
        });
    }

    fn store_attached(&mut self, _now: Duration, store: SocketAddr, _out: &mut Vec<Action>) {
        self.holds.attached(store);
        for tenant in self.tenants.values_mut() {
            let stores = tenant.stores.addresses();
            let Some(at) = stores.iter().position(|one| *one == store) else { continue };
            tenant.sides.values_mut().for_each(|side| side.began(at));
        }
    }

    fn store_detached(&mut self, _now: Duration, store: SocketAddr, _out: &mut Vec<Action>) {
        self.holds.detached(store);
    }

    fn not_told(&mut self, _: Duration, store: SocketAddr, tenant: u32, out: &mut Vec<Action>) {
        self.holds.not_told(tenant, store, out);
    }

    /// Stores are told what is new: many answers come together.
    fn tick(&mut self, _now: Duration, out: &mut Vec<Action>) {
        self.holds.tell(out);
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        let side = self.tenants.get(&tenant).and_then(|tenant| tenant.sides.get(&switch));
        side.map_or(0, Side::wanted)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for (id, tenant) in &self.tenants {
            let Some(side) = tenant.sides.get(&switch) else { continue };
            let own = side.own_stores(&tenant.stores);
            let told: usize = own.map(|store| self.holds.count(*id, store)).sum();
            let held = [("replicas_told", told as u64)];
            for (name, count) in side.figures().into_iter().chain(held) {
                *sum.entry(name).or_default() += count;
            }
        }
        sum
    }
}
