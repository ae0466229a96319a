//! The control half: which switches are in which chain, and when that changes; which keys they have
//! items of.
//!
//! What goes on with one tenant is in a [`Tenant`], what is known of it in [`Facts`]; what switches
//! say of themselves concerns all of them. The rules that keep it safe are in
//! `docs/coordination.md`; those that are this half's to keep stand where it keeps them.

mod arrange;
mod barred;
mod begin;
mod configure;
mod context;
mod crowded;
mod forget;
mod item;
mod items;
mod join;
mod leave;
mod leftovers;
mod memory;
mod missing;
mod remove;
mod restore;
mod silence;
mod snapshot;
mod tenant;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use bytes::Bytes;
use decide::{
    Action, Answer, Discipline, HotKeys, Inventory, Key, Life, Limits, Outcome, Room, Setting,
    Settings, Stores, SwitchId,
};

pub use self::arrange::ranked;
use self::{
    context::{Context, Facts},
    tenant::Tenant,
};
use crate::view::Protocol;

/// What may be set of a tenant.
pub const OPTIONS: &[Setting] = &[
    Setting::new("chains", "parts that its keys are spread over", 8, 1, 64),
    Setting::new("length", "switches that have each key; all but one may die", 3, 1, 8),
    Setting::new(
        "versions",
        "versions of a key that may be on their way at once, as a power of two: 0 to 4; values are at most 1632, 792, 368, 160, 56 bytes",
        2,
        0,
        4,
    )
    .fixed(),
    Setting::new(
        "snapshot",
        "seconds after which what was written is kept outside of the switches too; 0: never",
        5,
        0,
        3600,
    ),
    Setting::new(
        "relaxed",
        "1: clients that ask for it read a member's newest version, committed or not (netcraq); not linearizable",
        0,
        0,
        1,
    ),
];

/// The state of a switch, as far as it was heard of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SwitchState {
    /// Whether its stream is there.
    pub attached: bool,
    /// The life of its tables; 0: not heard.
    pub life: u64,
    /// Where packets for the switch go.
    pub address: Option<IpAddr>,
}

/// All switches that were heard of.
pub(crate) type Switches = BTreeMap<SwitchId, SwitchState>;

/// The control half of one protocol. What lies in switches alone has nothing to do with what stores
/// say, and who is silent is found out by packets, not from links.
pub(crate) struct Control {
    protocol: Protocol,
    switches: Switches,
    /// What is known of each tenant, and what goes on with it.
    tenants: BTreeMap<u32, (Facts, Tenant)>,
}

/// Makes the control half of `netcraq`.
pub fn netcraq(_: Limits) -> Box<dyn Discipline> {
    Box::new(Control::new(Protocol::NetCraq))
}

/// Makes the control half of `netchain`.
pub fn netchain(_: Limits) -> Box<dyn Discipline> {
    Box::new(Control::new(Protocol::NetChain))
}

impl Control {
    fn new(protocol: Protocol) -> Control {
        Control { protocol, switches: BTreeMap::new(), tenants: BTreeMap::new() }
    }

    /// Has something happen to a tenant, and then whatever follows from it.
    fn with(
        &mut self,
        (now, id): (Duration, u32),
        out: &mut Vec<Action>,
        happens: impl FnOnce(&mut Tenant, &mut Context<'_>),
    ) {
        let new = || (Facts::new(id, self.protocol), Tenant::default());
        let (facts, tenant) = self.tenants.entry(id).or_insert_with(new);
        let cx = &mut facts.at(now, &self.switches, out);
        happens(tenant, cx);
        tenant.step(cx);
    }

    fn seen(&mut self, switch: SwitchId) -> &mut SwitchState {
        self.switches.entry(switch).or_default()
    }
}

impl Discipline for Control {
    fn life(&mut self, _now: Duration, life: Life, _out: &mut Vec<Action>) {
        let seen = self.seen(life.switch);
        (seen.life, seen.address) = (life.number, life.address);
    }

    /// What it holds comes next.
    fn attached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.seen(switch).attached = true;
        for (facts, _) in self.tenants.values_mut() {
            facts.leaving.remove(&switch);
        }
    }

    fn detached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.seen(switch).attached = false;
    }

    fn remembered(&mut self, now: Duration, tenant: u32, bytes: &[u8], out: &mut Vec<Action>) {
        self.tenants.remove(&tenant);
        self.with((now, tenant), out, |t, cx| t.remembered(cx, bytes));
    }

    fn kept(&mut self, now: Duration, tenant: u32, kept: &[(Key, Bytes)], out: &mut Vec<Action>) {
        self.with((now, tenant), out, |t, _| t.kept(kept));
    }

    fn options(&mut self, now: Duration, tenant: u32, options: Settings, out: &mut Vec<Action>) {
        self.with((now, tenant), out, |_, cx| {
            let was = cx.facts.is_relaxed();
            cx.facts.options = options;
            cx.facts.is_due |= was != cx.facts.is_relaxed();
        });
    }

    fn stores(&mut self, now: Duration, tenant: u32, stores: &Stores, out: &mut Vec<Action>) {
        let stores = stores.clone();
        self.with((now, tenant), out, |_, cx| cx.facts.stores = Some(stores));
    }

    fn room(&mut self, now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        self.with((now, tenant), out, |t, cx| t.rooms(cx, rooms));
    }

    fn gone(&mut self, now: Duration, tenant: u32, out: &mut Vec<Action>) {
        self.with((now, tenant), out, |t, cx| t.gone(cx));
    }

    fn not_kept(&mut self, _now: Duration, tenant: u32, key: &Key) {
        if let Some((_, tenant)) = self.tenants.get_mut(&tenant) {
            tenant.not_kept(key);
        }
    }

    fn holds(&mut self, now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        self.with((now, inventory.tenant), out, |t, cx| t.holds(cx, inventory));
    }

    fn hot(&mut self, now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        self.with((now, keys.tenant), out, |t, cx| t.wants(cx, keys.keys));
    }

    fn answered(&mut self, now: Duration, answer: Answer<'_>, out: &mut Vec<Action>) {
        match answer.outcome {
            // Nothing may be asked for in answer to this one.
            Outcome::NotSent => {
                if let Some((facts, tenant)) = self.tenants.get_mut(&answer.tenant) {
                    tenant.answered(&mut facts.at(now, &self.switches, out), answer);
                }
            }
            _ => self.with((now, answer.tenant), out, |t, cx| t.answered(cx, answer)),
        }
    }

    fn configured(&mut self, now: Duration, switch: SwitchId, tenant: u32, out: &mut Vec<Action>) {
        self.with((now, tenant), out, |t, cx| t.configured(cx, switch));
    }

    fn switch_reported(
        &mut self,
        now: Duration,
        switch: SwitchId,
        tenant: u32,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        self.with((now, tenant), out, |t, cx| t.reported(cx, switch, report));
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        for (facts, tenant) in self.tenants.values_mut() {
            tenant.step(&mut facts.at(now, &self.switches, out));
        }
    }

    fn ending(&mut self, now: Duration, out: &mut Vec<Action>) {
        for (facts, tenant) in self.tenants.values_mut() {
            tenant.ending(&mut facts.at(now, &self.switches, out));
        }
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut counters = BTreeMap::from([("chain_tenants", 0)]);
        for (facts, tenant) in self.tenants.values().filter(|(facts, _)| facts.is_member(switch)) {
            *counters.entry("chain_tenants").or_default() += 1;
            tenant.count(facts, switch, &mut counters);
        }
        counters
    }
}
