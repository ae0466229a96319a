//! Who gets which pages: guaranteed ones where the tenant's policy places them, idle ones by need.
//!
//! Placement says how many pages of each switch a tenant is guaranteed; it changes with tenants, topology and traffic.
//! Sharing then says, switch by switch and ten times a second, how many pages each tenant has at the moment. What is
//! taken leaves through the ledger: it is given on when the switch has said that it is clear.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{
    proto::{Hello, PageTable, PagesApplied, Setup, TenantPages, TenantSetup},
    types::PageId,
};
use decide::{ITEMS_PER_PAGE_USUAL, PAGE_START_CELLS};

use super::{core::Core, tenants::Tenant};
use crate::{
    Event, Room, SwitchId,
    admin::{Refusal, RefusalKind},
    pages::{
        claim::Claim,
        ledger::{Hold, Kind},
        policy::Placement,
        share::{Demand, Portion, share},
    },
};

/// Of fewer items their size is not judged by.
const ITEMS_TO_JUDGE_BY: u64 = 16;
/// A page whose items had no request for so many windows is cold; what an owner wanted is claimed for as many at least.
const COLD_AFTER: u64 = 3;
/// How often placements by traffic are looked at again.
const PLACE_EVERY: Duration = Duration::from_secs(5);
/// Most switches that a refusal tells the free pages of.
const SWITCHES_NAMED: usize = 8;
/// From how many requests in a window a switch reports keys of a tenant that nobody gave a threshold.
const FIRST_THRESHOLD: u32 = 2;

/// What was decided, and what of it the switches and disciplines must still be told.
#[derive(Debug, Default)]
pub struct Allocation {
    /// Guaranteed pages of each tenant, in the order in which its switches are filled.
    placed: BTreeMap<u32, Vec<(SwitchId, u32)>>,
    place_again: bool,
    placed_at: Duration,
    setup_due: BTreeSet<SwitchId>,
    /// The switches that each tenant may use, in the order in which its policy fills them.
    order: BTreeMap<u32, Vec<SwitchId>>,
    /// What owners claim of their guaranteed pages.
    claims: BTreeMap<(SwitchId, u32), Claim>,
    /// Somebody's memory may have changed since disciplines were told.
    rooms_due: bool,
    /// What disciplines were told.
    rooms: BTreeMap<u32, Vec<Room>>,
    /// The journal's position after which each switch's table is safe to send.
    needs: BTreeMap<SwitchId, u64>,
}

impl Allocation {
    /// Guaranteed pages of a tenant, in the order in which its switches are filled.
    pub fn placed(&self, tenant: u32) -> &[(SwitchId, u32)] {
        self.placed.get(&tenant).map_or(&[], Vec::as_slice)
    }

    /// Placements are to be looked at again.
    pub fn place_again(&mut self) {
        self.place_again = true;
    }

    /// Whether a switch's setup may have changed since it was made last.
    pub fn setup_is_due(&self, switch: SwitchId) -> bool {
        self.setup_due.contains(&switch)
    }

    /// A switch's setup was made.
    pub fn setup_made(&mut self, switch: SwitchId) {
        self.setup_due.remove(&switch);
    }

    fn on(&self, tenant: u32, switch: SwitchId) -> u32 {
        let here = |(id, _): &&(SwitchId, u32)| *id == switch;
        self.placed(tenant).iter().find(here).map_or(0, |(_, n)| *n)
    }
}

impl Core {
    /// A switch said how many pages it has.
    pub(super) fn pages_attached(&mut self, id: SwitchId, hello: &Hello) {
        match self.ledger.switch(id, hello.pages) {
            Ok(lost) if !lost.is_empty() => {
                tracing::warn!(switch = id, pages = lost.len(), "fewer pages than before");
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("{e}"),
        }
        self.allocation.place_again();
        self.allocation.setup_due.insert(id);
    }

    /// A switch has a table in force.
    pub(super) fn pages_applied(&mut self, now: Duration, id: SwitchId, applied: PagesApplied) {
        if applied.term != self.plan.term {
            return;
        }
        let freed = self.ledger.confirmed(id, applied.version);
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.table_applied = switch.table_applied.max(Some(applied.version));
        }
        if !freed.is_empty() {
            self.allocate(now);
        }
    }

    /// Brings placement and shares up to date.
    pub(super) fn allocate(&mut self, now: Duration) {
        let by_traffic = now >= self.allocation.placed_at + PLACE_EVERY;
        if self.allocation.place_again || by_traffic {
            self.allocation.place_again = false;
            self.allocation.rooms_due = true;
            self.allocation.placed_at = now;
            self.place_all();
        }
        let ready: Vec<SwitchId> = self
            .switches
            .iter()
            .filter(|(_, s)| s.is_ready())
            .map(|(id, _)| *id)
            .collect();
        for id in ready {
            self.share_out(id);
        }
        self.note_changes();
        self.tell_rooms(now);
    }

    fn place_all(&mut self) {
        let ids: Vec<u32> = self.tenants.iter().map(|t| t.id).collect();
        self.allocation.order.retain(|id, _| ids.contains(id));
        for id in ids {
            let Some(tenant) = self.tenants.get(id) else {
                continue;
            };
            if self.switches.len() > 1 {
                let order = self.policy_order(tenant);
                self.allocation.order.insert(id, order);
            }
            let Some(tenant) = self.tenants.get(id) else {
                continue;
            };
            let placement = self.placement(tenant);
            if placement.unplaced > 0 {
                tracing::debug!(
                    tenant = id,
                    unplaced = placement.unplaced,
                    "not all of the quota has a place"
                );
            }
            self.guarantee(id, placement.rooms);
        }
    }

    /// Pages of each switch that can be guaranteed beyond what others than `tenant` are.
    fn capacity(&self, tenant: u32) -> BTreeMap<SwitchId, u32> {
        let mut capacity: BTreeMap<SwitchId, u32> = self.ledger.switches().collect();
        for (other, rooms) in &self.allocation.placed {
            for (switch, pages) in rooms.iter().filter(|_| *other != tenant) {
                if let Some(left) = capacity.get_mut(switch) {
                    *left = left.saturating_sub(*pages);
                }
            }
        }
        capacity
    }

    /// Where a tenant's quota goes: first what it asked for on certain switches, the rest by its policy.
    pub(super) fn placement(&self, tenant: &Tenant) -> Placement {
        let mut capacity = self.capacity(tenant.id);
        let mut left = tenant.quota;
        let mut bound = BTreeMap::new();
        for (switch, pages) in &tenant.pinned {
            let here = (*pages)
                .min(left)
                .min(capacity.get(switch).copied().unwrap_or(0));
            if here > 0 {
                bound.insert(*switch, here);
                left -= here;
                *capacity.entry(*switch).or_default() -= here;
            }
        }
        let mut placement = self.place_by_policy(tenant, left, &capacity);
        for (switch, pages) in bound {
            match placement.rooms.iter_mut().find(|(id, _)| *id == switch) {
                Some((_, n)) => *n += pages,
                None => placement.rooms.push((switch, pages)),
            }
        }
        placement
    }

    /// As [`Core::placement`], refused unless all of the quota finds its place.
    pub(super) fn try_to_place(&self, tenant: &Tenant) -> Result<Vec<(SwitchId, u32)>, Refusal> {
        let placement = self.placement(tenant);
        let missing: u32 = tenant
            .pinned
            .iter()
            .map(|(switch, pages)| {
                let on = placement.rooms.iter().find(|(id, _)| id == switch);
                pages.saturating_sub(on.map_or(0, |(_, n)| *n))
            })
            .sum();
        if placement.unplaced == 0 && missing == 0 {
            return Ok(placement.rooms);
        }
        Err(self.no_room(tenant))
    }

    /// Says what is free: beyond what this tenant is guaranteed already, switch by switch.
    fn no_room(&self, tenant: &Tenant) -> Refusal {
        let now: u32 = self.allocation.placed(tenant.id).iter().map(|r| r.1).sum();
        let free: Vec<(SwitchId, u32)> = self
            .capacity(tenant.id)
            .into_iter()
            .map(|(id, n)| (id, n.saturating_sub(self.allocation.on(tenant.id, id))))
            .collect();
        let sum: u32 = free.iter().map(|(_, pages)| *pages).sum();
        let mut named: Vec<String> = free
            .iter()
            .take(SWITCHES_NAMED)
            .map(|(id, n)| format!("{n} on switch {id}"))
            .collect();
        if free.len() > SWITCHES_NAMED {
            named.push("...".into());
        }
        let known = match named.is_empty() {
            true => "no switch has attached yet".into(),
            false => named.join(", "),
        };
        let bound: Vec<String> = tenant
            .pinned
            .iter()
            .map(|(id, n)| format!("{n} of them on switch {id}"))
            .collect();
        let bound = match bound.is_empty() {
            true => String::new(),
            false => format!(" ({})", bound.join(", ")),
        };
        let line = format!(
            "tenant {}: a quota of {} pages{bound} cannot be guaranteed: it has {now}, and free are {sum}: {known}",
            tenant.id, tenant.quota
        );
        Refusal::new(RefusalKind::NoRoom, line)
    }

    /// Sets how many pages a tenant is guaranteed where. They are given when pages are shared out next.
    pub(super) fn guarantee(&mut self, tenant: u32, rooms: Vec<(SwitchId, u32)>) {
        if rooms.is_empty() {
            self.allocation.placed.remove(&tenant);
        } else {
            self.allocation.placed.insert(tenant, rooms);
        }
    }

    /// Takes all pages from a tenant; its discipline forgets what was on them.
    pub(super) fn release_pages(&mut self, tenant: u32) {
        self.ledger.remove_tenant(tenant);
        if self.allocation.rooms.remove(&tenant).is_some() {
            let gone = Event::Room { tenant, rooms: &[] };
            self.tell(self.now, gone);
        }
    }

    /// Pages of a tenant whose items were asked for lately.
    pub(super) fn pages_in_use(&self, tenant: u32) -> u32 {
        let held = self.ledger.held(tenant);
        held.filter(|(page, _)| self.is_hot(page.switch, page.page))
            .count() as u32
    }

    fn is_hot(&self, switch: SwitchId, page: u32) -> bool {
        self.switches
            .get(&switch)
            .is_some_and(|s| s.idle_windows(page) < COLD_AFTER)
    }

    /// Gives and takes pages of one switch until everybody has a fair share of them.
    fn share_out(&mut self, id: SwitchId) {
        let Some(pages) = self.switches.get(&id).map(|s| s.known.pages) else {
            return;
        };
        let shares = share(pages, &self.demands(id));
        let counts = self.ledger.counts(id);
        for (tenant, Portion { own, lent }) in &shares {
            let has = counts.get(tenant).copied().unwrap_or_default();
            let total = own + lent;
            if has.own + has.lent > total {
                let less = has.own + has.lent - total;
                let from_lent = less.min(has.lent);
                self.take_coldest(id, *tenant, Kind::Lent, from_lent);
                self.take_coldest(id, *tenant, Kind::Own, less - from_lent);
            }
            // What stays is renamed, not moved.
            let has = self
                .ledger
                .counts(id)
                .get(tenant)
                .copied()
                .unwrap_or_default();
            if has.own > *own {
                self.convert(id, *tenant, Kind::Own, has.own - own);
            } else if has.own < *own {
                self.convert(id, *tenant, Kind::Lent, own - has.own);
            }
        }
        let since_s = self.clock_ms / 1000;
        for (tenant, Portion { own, lent }) in &shares {
            let has = self
                .ledger
                .counts(id)
                .get(tenant)
                .copied()
                .unwrap_or_default();
            for (kind, wanted, has) in [(Kind::Own, *own, has.own), (Kind::Lent, *lent, has.lent)] {
                if wanted > has {
                    let hold = Hold {
                        tenant: *tenant,
                        kind,
                        since_s,
                    };
                    self.ledger.give(id, wanted - has, hold);
                }
            }
        }
    }

    /// Takes pages from a tenant on a switch, those that were used longest ago first.
    pub(super) fn take_coldest(
        &mut self,
        id: SwitchId,
        tenant: u32,
        kind: Kind,
        n: u32,
    ) -> Vec<PageId> {
        let Core {
            ledger, switches, ..
        } = self;
        let Some(switch) = switches.get(&id) else {
            return vec![];
        };
        ledger.take_from(id, tenant, kind, n, |page| switch.worth(page.page))
    }

    fn convert(&mut self, id: SwitchId, tenant: u32, from: Kind, n: u32) {
        let Core {
            ledger, switches, ..
        } = self;
        let Some(switch) = switches.get(&id) else {
            return;
        };
        ledger.convert(id, tenant, from, n, |page| switch.worth(page.page));
    }

    /// What every tenant wants of a switch.
    fn demands(&mut self, id: SwitchId) -> BTreeMap<u32, Demand> {
        let counts = self.ledger.counts(id);
        let hold = Duration::from_millis(u64::from(self.plan.limits.window_ms) * COLD_AFTER);
        let items_per_page = self.items_per_page(id);
        let mut claims = BTreeMap::new();
        let demand = |tenant: &Tenant| {
            let count = counts.get(&tenant.id).copied().unwrap_or_default();
            let items = self.applications.wanted(id, tenant.id);
            let here = items_per_page.get(&tenant.id).copied();
            let wanted = items.div_ceil(here.unwrap_or(ITEMS_PER_PAGE_USUAL)) as u32;
            let at = (id, tenant.id);
            let mut claim = self.allocation.claims.get(&at).copied().unwrap_or_default();
            let claimed = claim.update(self.now, hold, wanted, count.own);
            claims.insert(at, claim);
            let demand = Demand {
                guaranteed: self.allocation.on(tenant.id, id),
                claimed,
                wanted,
                may_borrow: tenant.borrow,
                at_home: self.is_at_home(tenant.id, id),
                own: count.own,
                lent: count.lent,
            };
            (tenant.id, demand)
        };
        let demands = self.tenants.iter().map(demand).collect();
        self.allocation
            .claims
            .retain(|(switch, _), _| *switch != id);
        self.allocation.claims.extend(claims);
        demands
    }

    /// Whether a tenant's guaranteed pages are on other switches than this one, and are not nearly full.
    fn is_at_home(&self, tenant: u32, id: SwitchId) -> bool {
        let placed = self.allocation.placed(tenant);
        if placed.is_empty() || placed.iter().any(|(switch, _)| *switch == id) {
            return false;
        }
        let wanted: usize = placed
            .iter()
            .map(|(switch, _)| self.applications.wanted(*switch, tenant))
            .sum();
        let pages: u32 = placed.iter().map(|(_, pages)| *pages).sum();
        wanted < pages as usize * ITEMS_PER_PAGE_USUAL / 4 * 3
    }

    /// Items that a page of a switch holds, for each tenant that has enough there to say so.
    fn items_per_page(&self, id: SwitchId) -> BTreeMap<u32, usize> {
        let Some(switch) = self.switches.get(&id) else {
            return BTreeMap::new();
        };
        let mut filled: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (page, hold) in self.ledger.holds_on(id) {
            if let Some(seen) = switch.pages_seen.get(&page) {
                let (items, cells) = filled.entry(hold.tenant).or_default();
                *items += u64::from(seen.items);
                *cells += u64::from(seen.cells);
            }
        }
        let start_cells = PAGE_START_CELLS as u64;
        let per_page = |(tenant, (items, cells)): (u32, (u64, u64))| {
            let per_page = (items * start_cells / cells.max(1)).max(1) as usize;
            (items >= ITEMS_TO_JUDGE_BY).then_some((tenant, per_page))
        };
        filled.into_iter().filter_map(per_page).collect()
    }

    /// Tells disciplines where memory is now, where that changed.
    fn tell_rooms(&mut self, now: Duration) {
        if !std::mem::take(&mut self.allocation.rooms_due) {
            return;
        }
        let mut all: BTreeMap<u32, BTreeMap<SwitchId, Portion>> = BTreeMap::new();
        for (page, hold) in self.ledger.holds() {
            let on = all.entry(hold.tenant).or_default();
            let has = on.entry(page.switch).or_default();
            match hold.kind {
                Kind::Own => has.own += 1,
                Kind::Lent => has.lent += 1,
            }
        }
        let mut tenants: BTreeSet<u32> = all.keys().copied().collect();
        tenants.extend(self.allocation.rooms.keys());
        for tenant in tenants {
            let here = all.remove(&tenant).unwrap_or_default();
            let order = self.fill_order(tenant, &here);
            let room = |switch: SwitchId| Room {
                switch,
                pages: here[&switch].own + here[&switch].lent,
                lent: here[&switch].lent,
                threshold: self
                    .switches
                    .get(&switch)
                    .and_then(|s| s.known.thresholds.get(&tenant).copied()),
            };
            let rooms: Vec<Room> = order.into_iter().map(room).collect();
            let same = |told: &Vec<Room>| {
                let memory = |r: &Room| (r.switch, r.pages, r.lent);
                told.iter().map(memory).eq(rooms.iter().map(memory))
            };
            if self.allocation.rooms.get(&tenant).is_some_and(same) {
                continue;
            }
            for room in &rooms {
                self.allocation.setup_due.insert(room.switch);
            }
            let before = if rooms.is_empty() {
                self.allocation.rooms.remove(&tenant)
            } else {
                self.allocation.rooms.insert(tenant, rooms.clone())
            };
            for room in before.iter().flatten() {
                self.allocation.setup_due.insert(room.switch);
            }
            let rooms = &rooms[..];
            self.tell(now, Event::Room { tenant, rooms });
        }
    }

    /// The switches on which a tenant has pages, in the order in which they are filled: as placed, then the others.
    fn fill_order(&self, tenant: u32, here: &BTreeMap<SwitchId, Portion>) -> Vec<SwitchId> {
        let placed = self.allocation.placed(tenant).iter().map(|(id, _)| *id);
        let mut order: Vec<SwitchId> = placed.filter(|id| here.contains_key(id)).collect();
        let by_policy = self.allocation.order.get(&tenant);
        let by_policy = by_policy.map_or(&[][..], Vec::as_slice).iter().copied();
        for id in by_policy.chain(here.keys().copied()) {
            if here.contains_key(&id) && !order.contains(&id) {
                order.push(id);
            }
        }
        order
    }

    /// Notes everything that is to be remembered, in the order that the state store must keep.
    pub(super) fn note_changes(&mut self) {
        for id in self.tenants.take_changed() {
            match self.tenants.get(id) {
                Some(tenant) => self.journal.put(format!("tenant/{id}"), tenant),
                None => self.journal.delete(format!("tenant/{id}")),
            }
            match self.tenants.is_retired(id) {
                true => self.journal.put(format!("retired/{id}"), &true),
                false => self.journal.delete(format!("retired/{id}")),
            }
            let everywhere = self.switches.keys().copied();
            self.allocation.setup_due.extend(everywhere);
            self.cluster_changed = true;
        }
        for (id, switch) in &mut self.switches {
            if std::mem::take(&mut switch.known_dirty) {
                self.journal.put(format!("switch/{id}"), &switch.known);
            }
        }
        let changes = self.ledger.take_changes();
        let mut touched: BTreeSet<SwitchId> = BTreeSet::new();
        for (id, row) in &changes.switches {
            self.journal.put(format!("table/{id}"), row);
            touched.insert(*id);
        }
        for (page, row) in &changes.pages {
            match row {
                Some(row) => self.journal.put(format!("page/{page}"), row),
                None => self.journal.delete(format!("page/{page}")),
            }
            touched.insert(page.switch);
        }
        self.allocation.rooms_due |= !touched.is_empty();
        for id in touched {
            self.allocation.needs.insert(id, self.journal.position());
        }
    }

    /// Whether what a switch's table says is safe from a crash.
    pub(super) fn table_is_durable(&self, id: SwitchId) -> bool {
        let needs = self.allocation.needs.get(&id).copied().unwrap_or(0);
        self.journal.durable() >= needs
    }

    /// A switch's page table as a message.
    pub(super) fn table_of(&self, id: SwitchId) -> PageTable {
        let (version, owners) = self.ledger.owners(id);
        let owner = |(tenant, pages)| TenantPages { tenant, pages };
        PageTable {
            term: self.plan.term,
            version,
            owners: owners.into_iter().map(owner).collect(),
        }
    }

    /// A switch's setup: the tenants that have pages there, and those whose traffic is to be measured there.
    pub(super) fn setup_of(&self, id: SwitchId) -> Setup {
        let counts = self.ledger.counts(id);
        let has_pages = |t: &Tenant| counts.get(&t.id).is_some_and(|c| c.own + c.lent > 0);
        let is_here = |t: &Tenant| has_pages(t) || self.is_measured(t);
        let thresholds = self.switches.get(&id).map(|s| &s.known.thresholds);
        let tenant = |t: &Tenant| TenantSetup {
            tenant: t.id,
            discipline: if has_pages(t) {
                self.applications.of(t.id).into()
            } else {
                String::new()
            },
            hot_threshold: thresholds
                .and_then(|all| all.get(&t.id).copied())
                .unwrap_or(FIRST_THRESHOLD),
            measured: self.is_measured(t),
        };
        let cluster = self.tenants.cluster(&self.plan.cluster, is_here);
        Setup {
            cluster: cluster.to_toml(),
            tenants: self
                .tenants
                .iter()
                .filter(|t| is_here(t))
                .map(tenant)
                .collect(),
            window_ms: self.plan.limits.window_ms,
            sample_shift: self.plan.sample_shift,
            term: self.plan.term,
        }
    }
}
