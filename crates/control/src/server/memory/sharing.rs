//! How many pages of one switch each tenant has at the moment: see [`crate::pages::share`] for
//! the rules.
//!
//! Pages of tenants whose items are nowhere else take no part in it: they are neither lent nor
//! taken back, and such a tenant has what it is guaranteed, and what holds items.

use std::{collections::BTreeMap, time::Duration};

use decide::{ITEMS_PER_PAGE_USUAL, PAGE_START_CELLS, PROBATION_ONE_IN, SwitchId};

use super::{
    placements::Placements,
    usage::{COLD_AFTER, Usage},
};
use crate::{
    pages::{
        claim::Claim,
        ledger::{Count, Ledger},
        share::{Demand, Portion, share},
    },
    server::{around::Surroundings, tenants::Tenant},
};

/// Of fewer items their size is not judged by.
const ITEMS_TO_JUDGE_BY: u64 = 16;

/// What owners claim of their guaranteed pages.
#[derive(Debug, Default)]
pub struct Sharing {
    claims: BTreeMap<(SwitchId, u32), Claim>,
}

impl Sharing {
    /// What every tenant should have of a switch. `occupied`: pages that hold items of tenants
    /// whose items are nowhere else.
    pub fn portions(
        &mut self,
        id: SwitchId,
        ledger: &Ledger,
        placements: &Placements,
        usage: Option<&Usage>,
        around: &Surroundings<'_>,
        occupied: &BTreeMap<u32, u32>,
    ) -> BTreeMap<u32, Portion> {
        let total = around.switches.get(id).map_or(0, |s| s.known().pages);
        let counts = ledger.counts(id);
        let on_it = OnSwitch {
            id,
            counts: &counts,
            items_per_page: items_per_page(id, ledger, usage),
            placements,
            around,
        };
        let mut portions = BTreeMap::new();
        let mut demands = BTreeMap::new();
        let mut claims = BTreeMap::new();
        for tenant in around.tenants.iter() {
            if let Some(occupied) = occupied.get(&tenant.id) {
                let own = placements.on(tenant.id, id).max(*occupied);
                portions.insert(tenant.id, Portion { own, lent: 0 });
                continue;
            }
            if !around.is_served(tenant) {
                portions.insert(tenant.id, Portion::default());
                continue;
            }
            let at = (id, tenant.id);
            let mut claim = self.claims.get(&at).copied().unwrap_or_default();
            demands.insert(tenant.id, on_it.demand(tenant, &mut claim));
            claims.insert(at, claim);
        }
        self.claims.retain(|(switch, _), _| *switch != id);
        self.claims.extend(claims);
        let kept = portions.values().map(|portion| portion.own).sum();
        portions.extend(share(total.saturating_sub(kept), &demands));
        portions
    }
}

/// What demands on one switch go by.
struct OnSwitch<'a> {
    id: SwitchId,
    counts: &'a BTreeMap<u32, Count>,
    items_per_page: BTreeMap<u32, usize>,
    placements: &'a Placements,
    around: &'a Surroundings<'a>,
}

impl OnSwitch<'_> {
    fn demand(&self, tenant: &Tenant, claim: &mut Claim) -> Demand {
        let count = self.counts.get(&tenant.id).copied().unwrap_or_default();
        let items = self.around.disciplines.wanted(self.id, tenant.id);
        let here = self.items_per_page.get(&tenant.id).copied();
        let mut per_page = here.unwrap_or(ITEMS_PER_PAGE_USUAL);
        if self.around.disciplines.has_probation(tenant.id) {
            per_page = (per_page - per_page.div_ceil(PROBATION_ONE_IN)).max(1);
        }
        let in_pages = |items: usize| items.div_ceil(per_page) as u32;
        let wanted = in_pages(items);
        let at_home = self.is_at_home(tenant.id);
        let could_use = match at_home {
            true => wanted,
            false => in_pages(self.around.disciplines.could_use(self.id, tenant.id)),
        };
        let window_ms = u64::from(self.around.config.limits.window_ms);
        // What an owner wanted is claimed as long at least as a page takes to be cold.
        let hold = Duration::from_millis(window_ms * COLD_AFTER);
        Demand {
            guaranteed: self.placements.on(tenant.id, self.id),
            claimed: claim.update(self.around.now, hold, wanted, could_use, count.own),
            wanted,
            could_use,
            may_borrow: tenant.terms.borrow,
            at_home,
            own: count.own,
            lent: count.lent,
        }
    }

    /// Whether a tenant's guaranteed pages are on other switches than this one, and are not
    /// nearly full.
    fn is_at_home(&self, tenant: u32) -> bool {
        let placed = self.placements.of(tenant);
        if placed.is_empty() || placed.iter().any(|(switch, _)| *switch == self.id) {
            return false;
        }
        let wanted: usize =
            placed.iter().map(|(switch, _)| self.around.disciplines.wanted(*switch, tenant)).sum();
        let pages: u32 = placed.iter().map(|(_, pages)| *pages).sum();
        wanted < pages as usize * ITEMS_PER_PAGE_USUAL / 4 * 3
    }
}

/// Items that a page of a switch holds, for each tenant that has enough there to say so.
fn items_per_page(id: SwitchId, ledger: &Ledger, usage: Option<&Usage>) -> BTreeMap<u32, usize> {
    let mut filled: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (page, hold) in ledger.holds_on(id) {
        if let Some(seen) = usage.and_then(|usage| usage.page(page)) {
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
