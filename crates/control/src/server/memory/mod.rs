//! The switches' memory: whose each page is, who is guaranteed how many where, and who has how many
//! at the moment.
//!
//! Placement says how many pages of each switch a tenant is guaranteed; it changes with tenants,
//! topology and traffic. Sharing then says, switch by switch and ten times a second, how many pages
//! each tenant has at the moment. What is taken leaves through the ledger: it is given on when the
//! switch has said that it is clear.
//!
//! Whatever changes memory returns what [`PageMoves`].

mod placements;
mod rooms;
mod sharing;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{
    proto::{Counters, PageTable, TenantPages},
    types::PageId,
};
use decide::SwitchId;

use self::{placements::StayingPages, sharing::Sharing, usage::COLD_AFTER};
pub use self::{
    placements::{Guarantee, Placements},
    rooms::{Rooms, TenantRooms},
    usage::Usage,
};
use super::{around::Surroundings, journal::Journal, tenants::Tenant};
use crate::{
    admin::Refusal,
    pages::{
        ledger::{Changes, Count, Hold, Kind, Ledger, LedgerError, PageRow, SwitchRow},
        share::Portion,
    },
};

/// How often placements by traffic are looked at again.
const PLACE_EVERY: Duration = Duration::from_secs(5);

/// Memory of all switches.
#[derive(Debug, Default)]
pub struct Memory {
    ledger: Ledger,
    placements: Placements,
    sharing: Sharing,
    rooms: Rooms,
    usage: BTreeMap<SwitchId, Usage>,
    /// When all were placed last; none: they are to be placed anew.
    placed_at: Option<Duration>,
}

/// What moved: to be remembered, and to be told to switches and disciplines when it is.
#[derive(Debug, Default)]
#[must_use = "pages that move are remembered and told"]
pub struct PageMoves {
    /// Rows of the ledger.
    pub rows: Changes,
    /// Tenants whose memory is other than their disciplines know.
    pub rooms: Vec<(u32, TenantRooms)>,
    /// Switches that a tenant came to or left.
    pub setups: BTreeSet<SwitchId>,
}

impl PageMoves {
    /// Notes what is to be remembered of it; then the switches whose tables are others.
    pub fn note(&self, journal: &mut Journal) -> BTreeSet<SwitchId> {
        for (id, row) in &self.rows.switches {
            journal.put(format!("table/{id}"), row);
        }
        for (page, row) in &self.rows.pages {
            match row {
                Some(row) => journal.put(format!("page/{page}"), row),
                None => journal.delete(format!("page/{page}")),
            }
        }
        let switches = self.rows.switches.iter().map(|(id, _)| *id);
        let of_pages = self.rows.pages.iter().map(|(page, _)| page.switch);
        switches.chain(of_pages).collect()
    }
}

impl Memory {
    /// As remembered.
    pub fn new(tables: Vec<(SwitchId, SwitchRow)>, pages: Vec<(PageId, PageRow)>) -> Memory {
        let usage = tables.iter().map(|(id, _)| (*id, Usage::restored())).collect();
        Memory { ledger: Ledger::restore(tables, pages), usage, ..Memory::default() }
    }

    /// A switch said how many pages it has.
    pub fn attached(&mut self, id: SwitchId, pages: u32) -> PageMoves {
        match self.ledger.switch(id, pages) {
            Ok(lost) if !lost.is_empty() => {
                tracing::warn!(switch = id, pages = lost.len(), "fewer pages than before");
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("{e}"),
        }
        self.usage.entry(id).or_default().attached();
        self.place_again();
        self.moved(false)
    }

    /// A switch is gone for good: its pages are nobody's, and there are none. The version of its
    /// table is remembered all the same, so that it learns what is in force if it comes back. What
    /// moved the next [`Memory::update`] says.
    pub fn forget(&mut self, id: SwitchId) {
        // Fewer pages than before are never too many.
        let _ = self.ledger.switch(id, 0);
        self.usage.remove(&id);
        self.place_again();
    }

    /// A switch has a table of this version in force. Says whether pages became free.
    pub fn applied(&mut self, id: SwitchId, version: u64) -> (bool, PageMoves) {
        let freed = self.ledger.confirmed(id, version);
        (!freed.is_empty(), self.moved(false))
    }

    /// A window ended on a switch.
    pub fn counted(&mut self, id: SwitchId, counters: &Counters) {
        let pages = self.ledger.switches().find(|(switch, _)| *switch == id);
        let pages = pages.map_or(0, |(_, pages)| pages);
        self.usage.entry(id).or_default().counted(pages, counters);
    }

    /// Placements are to be looked at with the next [`Memory::update`].
    pub fn place_again(&mut self) {
        self.placed_at = None;
    }

    /// Brings placement and shares up to date.
    pub fn update(&mut self, around: &Surroundings<'_>) -> PageMoves {
        let is_due = |at: Duration| around.now >= at + PLACE_EVERY;
        let place = self.placed_at.is_none_or(is_due);
        if place {
            self.placed_at = Some(around.now);
            let tenants = around.tenants.iter();
            let kept = tenants.filter_map(|t| Some((t.id, self.kept(t.id, &[], around)?)));
            let kept = kept.collect();
            self.placements.place_all(&self.ledger, around, kept);
        }
        around.ready().for_each(|id| self.share_out(id, around));
        self.moved(place)
    }

    /// Sets how many pages a tenant is guaranteed where. They are given when pages are shared
    /// out next.
    pub fn guarantee(&mut self, tenant: u32, rooms: Guarantee) {
        self.placements.set(tenant, rooms);
    }

    /// Places a tenant that is to have fewer pages than before, some of which go: such always have
    /// a place.
    pub fn place_fewer(
        &self,
        tenant: &Tenant,
        going: &[PageId],
        around: &Surroundings<'_>,
    ) -> Guarantee {
        let kept = self.kept(tenant.id, going, around);
        let placement = self.placements.find(tenant, &self.ledger, around, kept);
        placement.rooms
    }

    /// Places a tenant, refused unless all of its quota finds its place.
    ///
    /// # Errors
    /// Says what is free where.
    pub fn try_to_place(
        &self,
        tenant: &Tenant,
        around: &Surroundings<'_>,
    ) -> Result<Guarantee, Refusal> {
        let kept = self.kept(tenant.id, &[], around);
        let (placements, ledger) = (&self.placements, &self.ledger);
        placements.try_to_find(tenant, ledger, around, kept)
    }

    /// Takes all pages from a tenant; its discipline forgets what was on them.
    pub fn release(&mut self, tenant: u32) -> PageMoves {
        self.release_all(&[tenant])
    }

    /// Takes all pages from these tenants.
    pub fn release_all(&mut self, tenants: &[u32]) -> PageMoves {
        for tenant in tenants {
            self.ledger.remove_tenant(*tenant);
        }
        self.moved(false)
    }

    /// A tenant gives these pages back: all of them, or none.
    ///
    /// # Errors
    /// Names the page that is not its own to give.
    pub fn take(&mut self, tenant: u32, pages: &[PageId]) -> Result<PageMoves, LedgerError> {
        self.ledger.take(tenant, pages)?;
        Ok(self.moved(false))
    }

    /// Takes the coldest of a tenant's own pages from switches where it is to be guaranteed fewer.
    pub fn take_what_is_over(
        &mut self,
        tenant: u32,
        guaranteed: &[(SwitchId, u32)],
        around: &Surroundings<'_>,
    ) -> (Vec<PageId>, PageMoves) {
        let mut taken = vec![];
        for (switch, before) in self.placements.of(tenant).to_vec() {
            let after = guaranteed.iter().find(|(to, _)| *to == switch);
            let fewer = before.saturating_sub(after.map_or(0, |(_, pages)| *pages));
            taken.extend(self.take_coldest(switch, tenant, Kind::Own, fewer, around));
        }
        (taken, self.moved(false))
    }

    /// Whose each page is.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Who is guaranteed what.
    pub fn placements(&self) -> &Placements {
        &self.placements
    }

    /// Where tenants have memory.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// What a switch's pages are good for.
    pub fn usage(&self, id: SwitchId) -> Option<&Usage> {
        self.usage.get(&id)
    }

    /// A switch's page table as a message.
    pub fn table(&self, id: SwitchId, term: u64) -> PageTable {
        let (version, owners) = self.ledger.owners(id);
        let owner = |(tenant, pages)| TenantPages { tenant, pages };
        PageTable { term, version, owners: owners.into_iter().map(owner).collect() }
    }

    /// How many pages of a tenant are in use: those whose items were asked for lately, or hold
    /// items that are nowhere else.
    pub fn in_use(&self, tenant: u32, around: &Surroundings<'_>) -> u32 {
        if around.disciplines.has_truth(tenant) {
            return self.occupied(tenant, around).len() as u32;
        }
        let is_hot = |page: PageId| {
            let usage = self.usage(page.switch);
            usage.is_some_and(|usage| usage.idle_windows(page.page) < COLD_AFTER)
        };
        let held = self.ledger.held(tenant);
        held.filter(|(page, _)| is_hot(*page)).count() as u32
    }

    /// The switches that have not said yet that what was taken from a tenant is clear.
    pub fn leaving(&self, tenant: u32) -> impl Iterator<Item = SwitchId> {
        self.ledger.leaving(tenant)
    }

    /// Pages of a tenant that may hold items. Where its items are changing, or the switch did not
    /// say which of its pages hold any, all may.
    pub fn occupied(&self, tenant: u32, around: &Surroundings<'_>) -> BTreeSet<PageId> {
        let switches = self.ledger.switches().map(|(id, _)| id);
        let on = |id| self.occupied_on(id, tenant, around);
        switches.flat_map(on).collect()
    }

    fn occupied_on(&self, id: SwitchId, tenant: u32, around: &Surroundings<'_>) -> Vec<PageId> {
        let pages: Vec<u32> = self.ledger.held_on(id, tenant).map(|(page, _)| page).collect();
        let items = |page: &u32| self.usage(id).map_or(0, |usage| usage.items(*page));
        let told: u64 = pages.iter().map(|page| u64::from(items(page))).sum();
        let is_settled = self.usage(id).is_some_and(Usage::is_told)
            && around.switches.get(id).is_some_and(|switch| {
                let is_told = switch.held.of(tenant) as u64 == told;
                switch.is_ready() && !switch.is_busy(tenant) && is_told
            });
        let occupied = pages.into_iter().filter(|p| !is_settled || items(p) > 0);
        let page = |page| PageId { switch: id, page };
        occupied.map(page).collect()
    }

    /// What stays of a tenant, but for pages that go: if its items are nowhere else, or a new lead
    /// does not know yet where its pages belong.
    fn kept(
        &self,
        tenant: u32,
        going: &[PageId],
        around: &Surroundings<'_>,
    ) -> Option<StayingPages> {
        let has_truth = around.disciplines.has_truth(tenant);
        if !has_truth && !is_waited_for(tenant, around) {
            return None;
        }
        let held = self.ledger.held(tenant);
        let own = held.filter(|(_, hold)| has_truth || hold.kind == Kind::Own);
        let held = own.map(|(page, _)| page).filter(|p| !going.contains(p)).collect();
        let occupied = match has_truth {
            true => self.occupied(tenant, around),
            false => BTreeSet::new(),
        };
        Some(StayingPages { held, occupied })
    }

    /// Gives and takes pages of one switch until everybody has a fair share of them.
    fn share_out(&mut self, id: SwitchId, around: &Surroundings<'_>) {
        let tenants = around.tenants.iter().map(|tenant| tenant.id);
        let with_truth = tenants.filter(|id| around.disciplines.has_truth(*id));
        let occupied = with_truth.map(|tenant| {
            let pages = self.occupied_on(id, tenant, around);
            (tenant, pages.len() as u32)
        });
        let occupied = occupied.collect();
        let (ledger, placements) = (&self.ledger, &self.placements);
        let usage = self.usage.get(&id);
        let mut portions = self.sharing.portions(id, ledger, placements, usage, around, &occupied);
        if usage.is_some_and(Usage::is_restored) {
            leave(&mut portions, &ledger.counts(id));
        }
        self.take_excess(id, &portions, around);
        self.give_rest(id, &portions, around.clock_s);
    }

    fn take_excess(
        &mut self,
        id: SwitchId,
        portions: &BTreeMap<u32, Portion>,
        around: &Surroundings<'_>,
    ) {
        let counts = self.ledger.counts(id);
        for (tenant, Portion { own, lent }) in portions {
            let has = counts.get(tenant).copied().unwrap_or_default();
            let less = (has.own + has.lent).saturating_sub(own + lent);
            let from_lent = less.min(has.lent);
            self.take_coldest(id, *tenant, Kind::Lent, from_lent, around);
            self.take_coldest(id, *tenant, Kind::Own, less - from_lent, around);
            // What stays is renamed, not moved.
            let has = self.ledger.count(id, *tenant);
            let (from, n) = match has.own > *own {
                true => (Kind::Own, has.own - own),
                false => (Kind::Lent, own - has.own),
            };
            if n == 0 {
                continue;
            }
            let Memory { ledger, usage, .. } = self;
            let usage = usage.get(&id);
            ledger.convert(id, *tenant, from, n, |page| usage.map(|usage| usage.worth(page.page)));
        }
    }

    fn give_rest(&mut self, id: SwitchId, portions: &BTreeMap<u32, Portion>, since_s: u64) {
        let counts = self.ledger.counts(id);
        for (tenant, Portion { own, lent }) in portions {
            let has = counts.get(tenant).copied().unwrap_or_default();
            for (kind, wanted, has) in [(Kind::Own, *own, has.own), (Kind::Lent, *lent, has.lent)] {
                let hold = Hold { tenant: *tenant, kind, since_s };
                if wanted > has {
                    self.ledger.give(id, wanted - has, hold);
                }
            }
        }
    }

    /// Takes pages from a tenant on a switch, those that were used longest ago first; none that
    /// holds items that are nowhere else.
    fn take_coldest(
        &mut self,
        id: SwitchId,
        tenant: u32,
        kind: Kind,
        n: u32,
        around: &Surroundings<'_>,
    ) -> Vec<PageId> {
        if n == 0 {
            return vec![];
        }
        let mut n = n;
        let mut stay = vec![];
        if around.disciplines.has_truth(tenant) {
            stay = self.occupied_on(id, tenant, around);
            let of_kind = |(page, hold): &(u32, Hold)| {
                let page = PageId { switch: id, page: *page };
                hold.kind == kind && !stay.contains(&page)
            };
            n = n.min(self.ledger.held_on(id, tenant).filter(of_kind).count() as u32);
        }
        let Memory { ledger, usage, .. } = self;
        let usage = usage.get(&id);
        ledger.take_from(id, tenant, kind, n, |page| {
            let worth = usage.map(|usage| usage.worth(page.page));
            (stay.contains(&page), worth)
        })
    }

    /// What changed since the last call; rooms may also have changed their order if tenants
    /// were placed.
    fn moved(&mut self, placed: bool) -> PageMoves {
        let rows = self.ledger.take_changes();
        if rows.is_empty() && !placed {
            return PageMoves::default();
        }
        let changed = self.rooms.update(&self.ledger, &self.placements);
        PageMoves { rows, rooms: changed.rooms, setups: changed.switches }
    }
}

/// Nobody is to have less of a switch than now.
fn leave(portions: &mut BTreeMap<u32, Portion>, counts: &BTreeMap<u32, Count>) {
    for (tenant, portion) in portions {
        let has = counts.get(tenant).copied().unwrap_or_default();
        if has.own + has.lent > portion.own + portion.lent {
            *portion = Portion { own: has.own, lent: has.lent };
        }
    }
}

/// Whether a new lead has not heard yet of what a tenant's placement goes by.
fn is_waited_for(tenant: u32, around: &Surroundings<'_>) -> bool {
    let network = around.network;
    let tenant = around.tenants.get(tenant).filter(|tenant| around.is_measured(tenant));
    !network.is_known() || tenant.is_some_and(|tenant| network.may_have_traffic(tenant.id))
}
