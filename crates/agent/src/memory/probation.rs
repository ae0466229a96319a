//! Items on probation: programs make them of *blanks*, cells that are set aside here on each
//! tenant's own pages, for keys that were read a few times (`bpf/probation.h`). The controller does
//! not count them. When it puts such a key, the item is confirmed where it lies; what it does not
//! want goes, and so does what is read least when blanks run short. Neither ever makes way for the
//! other: blanks and items on probation have a fixed share of the tenant's cells.

use std::collections::{BTreeMap, BTreeSet};

use dataplane::{
    BLANKS, Backing, BlankOutcome, HeldItem, PAGE_START_CELLS, Place, Probation, TenantEntry,
    cells_needed,
};
use decide::{ItemKey, Items, PROBATION_ONE_IN};
use wire::maps::HashSet;

use super::{
    super::{AgentError, served::ServedCluster},
    Entry, Memory, News, USUAL_KEY_LEN,
    trial::Trial,
};

/// What is not confirmed goes after so many windows.
const WINDOWS: u32 = 4;
/// Where fewer blanks are left than one in so many of the share, keys have to be read more often
/// than their discipline asks.
const SCARCE: usize = 4;
/// How many rounds an item is safe from those that are read more often. One that begins is seen
/// just before a round begins, so the first is none in which it could be read: what is judged after
/// that goes before its value has come, and begins anew, and never gets one.
const LEAST_ROUNDS: u64 = 2;

/// A tenant whose keys may get items.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    /// Its place among all tenants.
    at: u32,
    /// From how many reads on, as its discipline asks.
    threshold: u32,
    /// Whether there were no cells for all of its share.
    lacks_cells: bool,
}

/// Who may have items on probation, and which they are.
pub(super) struct Trials {
    rings: Probation,
    tenants: BTreeMap<u32, Tenant>,
    items: BTreeMap<u32, HashSet<ItemKey>>,
    /// Those that began since this was last asked for.
    begun: Vec<ItemKey>,
    round: u64,
}

impl Trials {
    /// None: what an earlier agent gave is taken back.
    pub fn open(at: &Backing) -> Result<Trials, AgentError> {
        Ok(Trials {
            rings: Probation::open(at)?,
            tenants: BTreeMap::new(),
            items: BTreeMap::new(),
            begun: vec![],
            round: 0,
        })
    }

    pub fn add(&mut self, key: &ItemKey) {
        let items = self.items.entry(key.tenant).or_default();
        items.insert(key.clone());
    }

    pub fn remove(&mut self, key: &ItemKey) {
        if let Some(items) = self.items.get_mut(&key.tenant) {
            items.remove(key);
        }
    }

    fn tenants(&self) -> Vec<(u32, Tenant)> {
        let tenants = self.tenants.iter();
        tenants.map(|(tenant, of)| (*tenant, *of)).collect()
    }

    fn count(&self, tenant: u32) -> usize {
        self.items.get(&tenant).map_or(0, HashSet::len)
    }
}

/// From how many reads on a tenant's keys are to get items, by its discipline.
fn threshold(served: &ServedCluster, tenant: u32) -> Option<u32> {
    let discipline = served.tenants.get(&tenant)?.discipline?;
    let may = discipline.items == Items::Copies;
    discipline.probation.filter(|reads| may && *reads > 0)
}

impl Memory {
    /// The controller wants the key's item; whether it was on probation.
    pub(super) fn confirm(&mut self, key: &ItemKey) -> bool {
        let entry = self.index.get_mut(key);
        let Some(entry) = entry.filter(|entry| entry.trial.is_some()) else { return false };
        entry.trial = None;
        // What was read before was told with the reads that missed.
        entry.requests = self.table.requests(entry.place);
        self.news.push(News::Here { key: key.clone(), place: entry.place, fetch: true });
        self.trials.remove(key);
        true
    }

    /// Whether an item may be the controller's from now on, and not on probation: less than half of
    /// the share is never left, or whoever fills its pages would have no blanks. The controller,
    /// told that there is no room, removes some other item.
    pub(super) fn may_confirm(&mut self, tenant: u32) -> Result<bool, AgentError> {
        let Some(Tenant { at, .. }) = self.trials.tenants.get(&tenant).copied() else {
            return Ok(true);
        };
        let has = self.trials.count(tenant) + self.trials.rings.given(at);
        if has > self.share(tenant) / 2 {
            return Ok(true);
        }
        let Some(cells) = self.blank_cells(tenant) else { return Ok(true) };
        let Some(place) = self.free_place(tenant, cells)? else { return Ok(false) };
        if !self.trials.rings.give(at, place, &self.table) {
            self.cells.give_back(place);
        }
        Ok(true)
    }

    /// Keys with items on probation.
    pub fn on_probation(&self) -> impl Iterator<Item = &ItemKey> {
        self.trials.items.values().flatten()
    }

    /// Likewise those that began since this was last asked.
    pub fn take_begun(&mut self) -> Vec<ItemKey> {
        std::mem::take(&mut self.trials.begun)
    }

    /// Requests in this window of an item on probation; 0: it has none.
    pub fn requests_on_probation(&self, key: &ItemKey) -> u64 {
        let entry = self.index.get(key);
        let entry = entry.filter(|entry| entry.trial.is_some());
        entry.map_or(0, |e| self.new_requests(e).into())
    }

    fn new_requests(&self, entry: &Entry) -> u32 {
        let requests = self.table.requests(entry.place);
        requests.wrapping_sub(entry.requests)
    }

    /// Cells of a blank: an item of the tenant's usual size.
    fn blank_cells(&self, tenant: u32) -> Option<u8> {
        cells_needed(USUAL_KEY_LEN, self.value_len(tenant))
    }

    /// How many blanks and items on probation a tenant may have together.
    fn share(&self, tenant: u32) -> usize {
        let cells = self.cells.count_of(tenant) * PAGE_START_CELLS / PROBATION_ONE_IN;
        let each = self.blank_cells(tenant).map_or(usize::MAX, usize::from);
        cells / each
    }

    /// Gives every tenant the blanks that it lacks, as far as it has free cells. Nothing is taken
    /// from its items.
    pub fn give_blanks(&mut self) {
        for (tenant, Tenant { at, threshold, .. }) in self.trials.tenants() {
            let share = self.share(tenant);
            let threshold = if share == 0 { 0 } else { threshold };
            self.trials.rings.set_plenty(at, share.min(BLANKS) / SCARCE);
            self.trials.rings.set_threshold(at, threshold);
            let has = self.trials.count(tenant) + self.trials.rings.given(at);
            let room = BLANKS - self.trials.rings.given(at);
            let mut lacks_cells = false;
            for _ in 0..share.saturating_sub(has).min(room) {
                let cells = self.blank_cells(tenant);
                let Some(place) = cells.and_then(|cells| self.cells.take(tenant, cells)) else {
                    lacks_cells = true;
                    break;
                };
                self.trials.rings.give(at, place, &self.table);
            }
            if let Some(of) = self.trials.tenants.get_mut(&tenant) {
                of.lacks_cells = lacks_cells;
            }
        }
    }

    /// Looks at what programs did with all tenants' blanks.
    pub fn look_at_all_blanks(&mut self, served: Option<&ServedCluster>) {
        let tenants: Vec<u32> = self.trials.tenants.keys().copied().collect();
        for tenant in tenants {
            self.look_at_blanks(tenant, served);
        }
    }

    /// Likewise of one tenant.
    pub(super) fn look_at_blanks(&mut self, tenant: u32, served: Option<&ServedCluster>) {
        let Some(Tenant { at, .. }) = self.trials.tenants.get(&tenant).copied() else { return };
        for used in self.trials.rings.take_used(at) {
            match used {
                BlankOutcome::Not(place) => self.cells.give_back(place),
                BlankOutcome::Item { slot, place } => {
                    let begun = served.and_then(|served| self.begun(tenant, slot, place, served));
                    if let Some((key, entry)) = begun {
                        self.trials.add(&key);
                        self.trials.begun.push(key.clone());
                        self.index.add(key, entry);
                    } else {
                        self.table.evict(slot, place);
                        self.resting.push(place);
                    }
                }
            }
        }
    }

    /// The item that a program made, unless it may not be: the hash is made anew, since what a
    /// packet claims could hide an entry from writes; and its store may be another by now.
    fn begun(
        &self,
        tenant: u32,
        slot: u32,
        place: Place,
        served: &ServedCluster,
    ) -> Option<(ItemKey, Entry)> {
        let held: HeldItem = self.table.held(slot)?;
        let key = held.key.into();
        let key = ItemKey { tenant, key };
        let hash = served.hash_of(&key)?;
        let right = held.place == place
            && held.tenant == tenant
            && threshold(served, tenant).is_some()
            && self.table.leads_to(slot, tenant, hash)
            && served.lease_for(tenant, hash) == Some(held.lease)
            && self.index.get(&key).is_none();
        let requests = self.table.requests(place);
        let trial = Trial { window: self.table.window(), since: self.trials.round, from: requests };
        let entry = Entry { slot, place, lease: held.lease, requests, trial: Some(trial) };
        right.then_some((key, entry))
    }

    /// A round: sees what began, and lets go of what is read least where blanks run short.
    pub fn tend_probation(&mut self, served: Option<&ServedCluster>) {
        self.trials.round += 1;
        self.look_at_all_blanks(served);
        for (tenant, Tenant { at, lacks_cells, .. }) in self.trials.tenants() {
            let (share, items) = (self.share(tenant), self.trials.count(tenant));
            let has = items + self.trials.rings.given(at);
            let room = if lacks_cells { 0 } else { share.saturating_sub(has) };
            let to_come = self.trials.rings.left(at) + room;
            let short = (share.min(BLANKS) / 2).saturating_sub(to_come);
            // Blanks of an earlier share are used up, or taken back with their pages.
            let excess = items.saturating_sub(share);
            if items > 0 && short.max(excess) > 0 {
                self.drop_coldest(tenant, short, excess);
            }
        }
    }

    /// Drops so many of the half that is read less of those that did not begin just now; and
    /// `excess` of all in any case.
    fn drop_coldest(&mut self, tenant: u32, short: usize, excess: usize) {
        let round = self.trials.round;
        let judged = |key: &ItemKey| {
            let entry = self.index.get(key)?;
            let trial = entry.trial.as_ref()?;
            let rate = trial.rate(self.table.requests(entry.place), round);
            Some((rate, round >= trial.since + LEAST_ROUNDS, key.clone()))
        };
        let items = self.trials.items.get(&tenant);
        let mut items: Vec<_> = items.into_iter().flatten().filter_map(judged).collect();
        items.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.2.cmp(&b.2)));
        let settled = items.iter().filter(|(_, settled, _)| *settled);
        let half = settled.clone().count().div_ceil(2);
        let go = settled.take(short.min(half));
        let mut go: Vec<ItemKey> = go.map(|(_, _, key)| key.clone()).collect();
        if excess > go.len() {
            go = items.into_iter().take(excess).map(|(_, _, key)| key).collect();
        }
        go.iter().for_each(|key| self.remove(key));
    }

    /// A window ended: what was not confirmed for long goes, and of the rest what was counted
    /// before counts half.
    pub(super) fn judge(&mut self) {
        let (window, round) = (self.table.window(), self.trials.round);
        let keys: Vec<ItemKey> = self.on_probation().cloned().collect();
        for key in keys {
            let Some(entry) = self.index.get_mut(&key) else { continue };
            let requests = self.table.requests(entry.place);
            let Some(trial) = &mut entry.trial else { continue };
            if window.wrapping_sub(trial.window) >= WINDOWS {
                self.remove(&key);
                continue;
            }
            trial.from = requests.wrapping_sub(requests.wrapping_sub(trial.from) / 2);
            trial.since = round - (round - trial.since) / 2;
        }
    }

    /// Takes the blanks of these tenants back, so that no cell of theirs becomes an item behind
    /// our back.
    pub(super) fn take_blanks_back(
        &mut self,
        tenants: &BTreeSet<u32>,
        served: Option<&ServedCluster>,
    ) -> Result<(), AgentError> {
        let known = |tenant: &&u32| self.trials.tenants.contains_key(tenant);
        let tenants: Vec<u32> = tenants.iter().filter(known).copied().collect();
        for tenant in &tenants {
            self.trials.rings.withdraw(self.trials.tenants[tenant].at);
        }
        if !tenants.is_empty() {
            self.table.quiesce()?;
        }
        for tenant in tenants {
            self.look_at_blanks(tenant, served);
        }
        Ok(())
    }

    /// Before a setup is in force: tenants that it does not have, or with another discipline, get
    /// no items any more. Their places may become others'.
    pub(super) fn end_probation(&mut self, served: &ServedCluster) -> Result<(), AgentError> {
        let tenants = self.trials.tenants.keys().copied();
        let over: BTreeSet<u32> =
            tenants.filter(|tenant| threshold(served, *tenant).is_none()).collect();
        self.look_at_all_blanks(Some(served));
        self.take_blanks_back(&over, Some(served))?;
        self.trials.tenants.retain(|tenant, _| !over.contains(tenant));
        self.trials.items.retain(|_, items| !items.is_empty());
        Ok(())
    }

    /// Once a setup is in force: its tenants' keys may get items.
    pub fn begin_probation(
        &mut self,
        at: &Backing,
        served: &ServedCluster,
    ) -> Result<(), AgentError> {
        let mut is_new = false;
        for tenant in served.tenants.keys() {
            let Some(reads) = threshold(served, *tenant) else { continue };
            if let Some(of) = self.trials.tenants.get_mut(tenant) {
                of.threshold = reads;
                continue;
            }
            let place = TenantEntry::place(at, *tenant)?;
            let may = |place: &u32| *place < self.trials.rings.places();
            if let Some(at) = place.filter(may) {
                let of = Tenant { at, threshold: reads, lacks_cells: false };
                self.trials.tenants.insert(*tenant, of);
                is_new = true;
            }
        }
        if is_new {
            // Programs may still run for whoever had the place before.
            self.table.quiesce()?;
        }
        self.give_blanks();
        Ok(())
    }
}
