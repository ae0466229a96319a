//! How many pages of which switch each tenant is guaranteed. Changes with tenants, topology
//! and traffic.
//!
//! What a tenant asked for on certain switches comes first, the rest goes by its policy. Pages with
//! items that are nowhere else (`decide::Items::Truth`) stay where they are before all that, and
//! with a new lead all pages do, until it has heard of the interfaces or traffic that they go by.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use api::types::PageId;
use decide::SwitchId;

use crate::{
    admin::{Refusal, RefusalKind},
    pages::{
        ledger::Ledger,
        policy::{Placement, Wish, place},
    },
    server::{around::Surroundings, tenants::Tenant},
};

/// Most switches that a refusal tells the free pages of.
const SWITCHES_NAMED: usize = 8;

/// Guaranteed pages of one tenant, in the order in which its switches are filled.
pub type Guarantee = Vec<(SwitchId, u32)>;

/// Those of all tenants.
#[derive(Debug, Default)]
pub struct Placements {
    of: BTreeMap<u32, Guarantee>,
    /// The switches that each tenant may use, in the order in which its policy fills them.
    order: BTreeMap<u32, Vec<SwitchId>>,
}

/// Pages of a tenant that stay where they are: those of one whose items are nowhere else, and any's
/// as long as a new lead does not know where they belong.
#[derive(Debug, Default)]
pub struct StayingPages {
    /// Guaranteed pages that it has.
    pub held: BTreeSet<PageId>,
    /// Pages that it has and that may hold items that are nowhere else.
    pub occupied: BTreeSet<PageId>,
}

impl StayingPages {
    /// How many pages of each switch stay, of a quota: those that hold items in any case.
    fn within(&self, quota: u32) -> BTreeMap<SwitchId, u32> {
        let left = (quota as usize).saturating_sub(self.occupied.len());
        let empty = self.held.difference(&self.occupied).take(left);
        by_switch(self.occupied.iter().chain(empty))
    }
}

fn by_switch<'a>(pages: impl IntoIterator<Item = &'a PageId>) -> BTreeMap<SwitchId, u32> {
    let mut count = BTreeMap::new();
    for page in pages {
        *count.entry(page.switch).or_default() += 1;
    }
    count
}

/// Pages of a switch.
fn on(rooms: &[(SwitchId, u32)], switch: SwitchId) -> u32 {
    rooms.iter().find(|(id, _)| *id == switch).map_or(0, |(_, pages)| *pages)
}

fn add(rooms: &mut Guarantee, switch: SwitchId, pages: u32) {
    match rooms.iter_mut().find(|(id, _)| *id == switch) {
        Some((_, n)) => *n += pages,
        None => rooms.push((switch, pages)),
    }
}

impl Placements {
    /// A tenant's.
    pub fn of(&self, tenant: u32) -> &[(SwitchId, u32)] {
        self.of.get(&tenant).map_or(&[], Vec::as_slice)
    }

    /// A tenant's on a switch.
    pub fn on(&self, tenant: u32, switch: SwitchId) -> u32 {
        on(self.of(tenant), switch)
    }

    /// Sets a tenant's.
    pub fn set(&mut self, tenant: u32, rooms: Guarantee) {
        match rooms.is_empty() {
            true => self.of.remove(&tenant),
            false => self.of.insert(tenant, rooms),
        };
    }

    /// Looks at all tenants anew; `kept` is what stays of those that have any such.
    pub fn place_all(
        &mut self,
        ledger: &Ledger,
        around: &Surroundings<'_>,
        mut kept: BTreeMap<u32, StayingPages>,
    ) {
        self.order.retain(|id, _| around.tenants.get(*id).is_some());
        for tenant in around.tenants.iter() {
            if around.switches.len() > 1 && around.is_served(tenant) {
                let order = self.policy_order(tenant, around);
                self.order.insert(tenant.id, order);
            }
            let placement = self.find(tenant, ledger, around, kept.remove(&tenant.id));
            if placement.unplaced > 0 {
                tracing::debug!(
                    tenant = tenant.id,
                    unplaced = placement.unplaced,
                    "not all of the quota has a place"
                );
            }
            self.set(tenant.id, placement.rooms);
        }
    }

    /// Where a tenant's quota goes: what stays, then what it asked for on certain switches, the
    /// rest by its policy. Nowhere, and nothing is lacking, while nobody serves it.
    pub fn find(
        &self,
        tenant: &Tenant,
        ledger: &Ledger,
        around: &Surroundings<'_>,
        kept: Option<StayingPages>,
    ) -> Placement {
        if !around.is_served(tenant) {
            return Placement::default();
        }
        let free = self.capacity(tenant.id, ledger);
        let mut capacity = free.clone();
        let kept = kept.unwrap_or_default();
        let mut bound = kept.within(tenant.terms.quota);
        let occupied = by_switch(&kept.occupied);
        for (switch, pages) in &bound {
            let room = capacity.entry(*switch).or_default();
            *room = room.saturating_sub(*pages);
        }
        let mut left = tenant.terms.quota.saturating_sub(bound.values().sum());
        for (switch, pages) in &tenant.pinned {
            let stay = bound.get(switch).copied().unwrap_or(0);
            let here = pages
                .saturating_sub(stay)
                .min(left)
                .min(capacity.get(switch).copied().unwrap_or(0));
            if here > 0 {
                *bound.entry(*switch).or_default() += here;
                left -= here;
                *capacity.entry(*switch).or_default() -= here;
            }
        }
        let mut placement = self.by_policy(tenant, left, &capacity, around);
        for (switch, pages) in bound {
            add(&mut placement.rooms, switch, pages);
        }
        if !occupied.is_empty() {
            self.even_out(tenant, &mut placement.rooms, &occupied, &free, around);
        }
        placement
    }

    /// A switch that comes when others hold what is nowhere else may have to hold as much: it has
    /// its even share of the quota, where the policy would place any there, although they keep what
    /// they had of it. For that others give up what they have beyond theirs and nothing is on. What
    /// is over the quota then goes back as pages become empty.
    fn even_out(
        &self,
        tenant: &Tenant,
        rooms: &mut Guarantee,
        occupied: &BTreeMap<SwitchId, u32>,
        free: &BTreeMap<SwitchId, u32>,
        around: &Surroundings<'_>,
    ) {
        let anew = self.by_policy(tenant, tenant.terms.quota, free, around).rooms;
        let share = tenant.terms.quota / (anew.len() as u32).max(1);
        for (switch, pages) in anew {
            let (has, due) = (on(rooms, switch), share.min(pages));
            if has < due {
                add(rooms, switch, due - has);
            }
        }
        let placed: u32 = rooms.iter().map(|(_, pages)| pages).sum();
        let mut over = placed.saturating_sub(tenant.terms.quota);
        for (switch, pages) in rooms.iter_mut() {
            let pinned = tenant.pinned.get(switch).copied().unwrap_or(0);
            let stay = share.max(pinned).max(occupied.get(switch).copied().unwrap_or(0));
            let goes = pages.saturating_sub(stay).min(over);
            *pages -= goes;
            over -= goes;
        }
    }

    /// As [`Placements::find`], refused unless all of the quota finds its place.
    pub fn try_to_find(
        &self,
        tenant: &Tenant,
        ledger: &Ledger,
        around: &Surroundings<'_>,
        kept: Option<StayingPages>,
    ) -> Result<Guarantee, Refusal> {
        let placement = self.find(tenant, ledger, around, kept);
        let all_there = tenant.pinned.iter().all(|(switch, n)| on(&placement.rooms, *switch) >= *n);
        if placement.unplaced == 0 && all_there {
            return Ok(placement.rooms);
        }
        Err(self.no_room(tenant, ledger))
    }

    /// The switches on which a tenant has pages, in the order in which they are filled: as placed,
    /// then the others.
    pub fn fill_order(
        &self,
        tenant: u32,
        here: impl Iterator<Item = SwitchId> + Clone,
    ) -> Vec<SwitchId> {
        let all: BTreeSet<SwitchId> = here.clone().collect();
        let placed = self.of(tenant).iter().map(|(id, _)| *id);
        let by_policy = self.order.get(&tenant).into_iter().flatten().copied();
        let mut order = vec![];
        for id in placed.chain(by_policy).chain(here) {
            if all.contains(&id) && !order.contains(&id) {
                order.push(id);
            }
        }
        order
    }

    /// Pages of each switch that can be guaranteed beyond what others than `tenant` are.
    fn capacity(&self, tenant: u32, ledger: &Ledger) -> BTreeMap<SwitchId, u32> {
        let mut capacity: BTreeMap<SwitchId, u32> = ledger.switches().collect();
        for (other, rooms) in &self.of {
            for (switch, pages) in rooms.iter().filter(|_| *other != tenant) {
                if let Some(left) = capacity.get_mut(switch) {
                    *left = left.saturating_sub(*pages);
                }
            }
        }
        capacity
    }

    /// Where a number of a tenant's pages go by its policy.
    fn by_policy(
        &self,
        tenant: &Tenant,
        quota: u32,
        capacity: &BTreeMap<SwitchId, u32>,
        around: &Surroundings<'_>,
    ) -> Placement {
        let clients: Vec<IpAddr> = tenant.terms.clients.iter().map(ipnet::IpNet::addr).collect();
        let own = around.stores_of(tenant).unwrap_or_default();
        let stores: Vec<IpAddr> = match own.is_empty() {
            true => around.stores().map(|store| store.ip()).collect(),
            false => own.iter().map(SocketAddr::ip).collect(),
        };
        let wish = Wish {
            policy: tenant.terms.policy,
            quota,
            clients: &clients,
            stores: &stores,
            traffic: &around.network.flows_of(tenant.id),
            had_traffic: around.network.had_traffic(tenant.id),
            now: &self.of(tenant.id).iter().copied().collect(),
        };
        place(&wish, around.network.topology(), capacity)
    }

    /// The switches that a tenant may use, in the order in which its policy fills them.
    fn policy_order(&self, tenant: &Tenant, around: &Surroundings<'_>) -> Vec<SwitchId> {
        let each = around.switches.ids().map(|id| (id, 1)).collect();
        let all = around.switches.len() as u32;
        let placement = self.by_policy(tenant, all, &each, around);
        placement.rooms.into_iter().map(|(id, _)| id).collect()
    }

    /// Says what is free: beyond what this tenant is guaranteed already, switch by switch.
    fn no_room(&self, tenant: &Tenant, ledger: &Ledger) -> Refusal {
        let now: u32 = self.of(tenant.id).iter().map(|r| r.1).sum();
        let free: Vec<(SwitchId, u32)> = self
            .capacity(tenant.id, ledger)
            .into_iter()
            .map(|(id, n)| (id, n.saturating_sub(self.on(tenant.id, id))))
            .collect();
        let sum: u32 = free.iter().map(|(_, pages)| *pages).sum();
        let mut named: Vec<String> =
            free.iter().take(SWITCHES_NAMED).map(|(id, n)| format!("{n} on switch {id}")).collect();
        if free.len() > SWITCHES_NAMED {
            named.push("...".into());
        }
        let known = match named.is_empty() {
            true => "no switch has attached yet".into(),
            false => named.join(", "),
        };
        let bound: Vec<String> =
            tenant.pinned.iter().map(|(id, n)| format!("{n} of them on switch {id}")).collect();
        let bound = match bound.is_empty() {
            true => String::new(),
            false => format!(" ({})", bound.join(", ")),
        };
        let line = format!(
            "tenant {}: a quota of {} pages{bound} cannot be guaranteed: it has {now}, and free are {sum}: {known}",
            tenant.id, tenant.terms.quota
        );
        Refusal::new(RefusalKind::NoRoom, line)
    }
}
