//! The memory: which items lie in which cells of which pages, and whose the pages are.
//!
//! In: changes of items ([`Memory::put`], [`Memory::remove`]), page tables ([`pages`]), setups.
//! Out: [`News`]. An item is *fetched*, a copy under its store's lease, or *given*, with a record
//! that the controller sent. Room for a new item may be made at the cost of others ([`room`]), but
//! never of those that are *kept*: they are the data itself. Programs make items too, on probation
//! ([`probation`]).

mod index;
mod items;
mod pages;
mod probation;
mod room;
mod trial;

use std::collections::{BTreeMap, BTreeSet};

use api::proto::{PageUse, TenantUse};
use dataplane::{Backing, Cells, Leases, Place, Table, cells_needed};
use decide::{ItemKey, Items, Key};
use tracing::{info, warn};
use wire::Epoch;

use self::{
    index::{Entry, Index},
    pages::PageTable,
    probation::Trials,
};
use super::{AgentError, served::ServedCluster};

/// Values are taken to be this long until the first ones were seen.
const FIRST_VALUE_LEN: usize = 128;
/// Keys are taken to be this long where it does not matter much.
const USUAL_KEY_LEN: usize = 16;

/// What became of items, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// An item is there; `fetch`: it has no value yet.
    Here { key: ItemKey, place: Place, fetch: bool },
    /// An item is gone.
    Gone(ItemKey),
    /// The controller does not know that an item is gone.
    Dropped(ItemKey),
    /// Likewise, and it would go again: there is no value, or none that may be cached.
    Unfit(ItemKey),
}

/// An item's key, and its record if it could be read.
pub(super) type WalkedItem = (Key, Option<Vec<u8>>);

/// What items and pages were good for in a window.
pub(super) struct InWindow {
    /// Of items that had any.
    pub requests: Vec<(ItemKey, u64)>,
    pub pages: Vec<PageUse>,
    pub tenants: Vec<TenantUse>,
}

pub(super) struct Memory {
    table: Table,
    cells: Cells,
    index: Index,
    /// Places of evicted items that programs may still be looking at.
    resting: Vec<Place>,
    /// In this batch, for the cells of evicted items.
    has_waited: bool,
    page_table: PageTable,
    /// Running mean of the lengths of each tenant's values, for the room of new items.
    value_lens: BTreeMap<u32, usize>,
    /// Tenants whose pages were compacted in this window.
    compacted: BTreeSet<u32>,
    trials: Trials,
    news: Vec<News>,
}

impl Memory {
    /// Finds the memory of the switch that lives at `at` as an earlier agent left it, and names the
    /// switch. The epoch counter stands at `epoch` at least from now on.
    pub fn open(at: &Backing, id: u16, epoch: u64) -> Result<Memory, AgentError> {
        let table = Table::open(at)?;
        let trials = Trials::open(at)?;
        // Programs that had taken a blank of an earlier agent's have used it after this.
        table.quiesce()?;
        let unlocked = table.unlock_abandoned()?;
        if unlocked > 0 {
            warn!(unlocked, "an agent before this one was killed while it changed items");
        }
        let mut cells = Cells::new(table.pages());
        let mut resting = vec![];
        let index = Index::recover(&table, &mut cells, &mut resting);
        let here = |(key, entry): (&ItemKey, &Entry)| News::Here {
            key: key.clone(),
            place: entry.place,
            fetch: false,
        };
        let mut memory = Memory {
            news: index.iter().map(here).collect(),
            page_table: PageTable::new(table.pages()),
            table,
            cells,
            index,
            resting,
            has_waited: false,
            value_lens: BTreeMap::new(),
            compacted: BTreeSet::new(),
            trials,
        };
        if memory.switch_id() != id {
            // Stores know the copies of an earlier id under that id; they could not call these
            // back. The switch has that id until they are gone: who is killed before leaves them
            // to an agent that knows.
            let held = memory.index.iter().filter(|(_, entry)| !entry.is_given());
            let held: Vec<ItemKey> = held.map(|(key, _)| key.clone()).collect();
            held.iter().for_each(|key| memory.remove(key));
        }
        memory.table.set_identity(id, epoch);
        Ok(memory)
    }

    pub fn switch_id(&self) -> u16 {
        self.table.switch_id()
    }

    /// The clock that the programs read.
    pub fn now_ns(&self) -> u64 {
        self.table.now_ns()
    }

    /// Waits until no program goes by what was written before.
    pub fn quiesce(&self) -> Result<(), AgentError> {
        Ok(self.table.quiesce()?)
    }

    /// A tenant's given items from this slot on, `most` of them, with their records, but for those
    /// that are being changed all the time; and the slot where the next are.
    pub fn walk(&self, tenant: u32, from: u32, most: usize) -> (Vec<WalkedItem>, Option<u32>) {
        let mut items = vec![];
        for slot in from..self.table.slots() {
            if items.len() >= most {
                return (items, Some(slot));
            }
            let found = self.index.in_slot(slot);
            let its = found.filter(|(key, entry)| key.tenant == tenant && entry.is_given());
            if let Some((key, entry)) = its {
                items.push((key.key.clone(), self.table.given(entry.place).ok()));
            }
        }
        (items, None)
    }

    /// The number of the last invalidation.
    pub fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// Cells of a page that are in use, and those that rest among them.
    #[cfg(test)]
    pub fn cells_in_use(&self, page: u32) -> (u32, u32) {
        let resting = self.resting.iter().filter(|place| place.page == page);
        (self.cells.usage(page).cells, resting.map(|place| u32::from(place.cells)).sum())
    }

    /// How often programs were waited for.
    #[cfg(test)]
    pub fn waits(&self) -> u64 {
        self.table.waits()
    }

    pub fn set_sampling(&self, sample_shift: u32) {
        self.table.set_sampling(sample_shift);
    }

    /// What became of items since this was last asked.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Of the items that the controller counts.
    pub fn keys(&self) -> impl Iterator<Item = &ItemKey> {
        let items = self.index.iter();
        items.filter_map(|(key, entry)| entry.trial.is_none().then_some(key))
    }

    /// Whether it is an item that the controller counts.
    pub fn holds(&self, key: &ItemKey) -> bool {
        let entry = self.index.get(key);
        entry.is_some_and(|entry| entry.trial.is_none())
    }

    /// Where an item lies.
    pub fn place_of(&self, key: &ItemKey) -> Option<Place> {
        self.index.get(key).map(|entry| entry.place)
    }

    /// Under which epoch the item that lies there wants its value; none if it has one, or is
    /// another by now.
    pub fn wants_value(&self, key: &ItemKey, place: Place, leases: &Leases) -> Option<Epoch> {
        let entry = self.index.get(key);
        let entry = entry.filter(|e| e.place == place && !e.is_given())?;
        self.table.wants_value(place, leases.floor(entry.lease))
    }

    /// Whether nobody but its own discipline, or the end of its tenant, may remove the item. While
    /// there is no setup whose disciplines say what they are, every item that was given is such
    /// a one.
    fn is_kept(&self, key: &ItemKey, entry: &Entry, served: Option<&ServedCluster>) -> bool {
        entry.is_given()
            && served.is_none_or(|served| {
                let here = served.tenants.get(&key.tenant);
                here.is_some_and(|here| here.items() != Some(Items::Copies))
            })
    }

    /// Gives up the items that do not fit a new setup: those of tenants that are gone or another
    /// discipline's by now, and those whose key hashes elsewhere or belongs to another store, which
    /// would never be found, granted or called back again. The discipline of the tenants `changed`
    /// was another before.
    pub fn fit(
        &mut self,
        served: &ServedCluster,
        changed: &BTreeSet<u32>,
    ) -> Result<(), AgentError> {
        self.end_probation(served)?;
        let (mut wrong, mut lost) = (vec![], 0);
        for (key, entry) in self.index.iter() {
            let mut right = || {
                let here = served.tenants.get(&key.tenant)?;
                let hash = served.hash_of(key)?;
                let found = self.table.leads_to(entry.slot, key.tenant, hash);
                if !entry.is_given() {
                    let lease = served.lease_for(key.tenant, hash);
                    let may_be = here.items() != Some(Items::Truth);
                    return Some(may_be && found && lease == Some(entry.lease));
                }
                if changed.contains(&key.tenant) {
                    return Some(false);
                }
                let kept = self.is_kept(key, entry, Some(served));
                lost += u32::from(kept && !found);
                Some(kept || found)
            };
            if right() != Some(true) {
                wrong.push(key.clone());
            }
        }
        if !wrong.is_empty() {
            let items = wrong.len();
            info!("{items} items do not fit the new setup and are dropped");
        }
        if lost > 0 {
            warn!(
                "the hash secret of a tenant is another: {lost} of its items stay, and cannot be found"
            );
        }
        self.give_up(&wrong);
        let tenants = &served.tenants;
        self.value_lens.retain(|id, _| tenants.contains_key(id));
        for id in tenants.keys() {
            self.value_lens.entry(*id).or_insert(FIRST_VALUE_LEN);
        }
        // Some pages may have waited for this.
        self.apply_pages(Some(served))
    }

    fn value_len(&self, tenant: u32) -> usize {
        let known = self.value_lens.get(&tenant);
        known.copied().unwrap_or(FIRST_VALUE_LEN)
    }

    fn learn_value_len(&mut self, tenant: u32, value_len: usize) {
        if let Some(mean) = self.value_lens.get_mut(&tenant) {
            *mean = (*mean * 7 + value_len).div_ceil(8);
        }
    }

    /// Number of the statistics window.
    pub fn window(&self) -> u32 {
        self.table.window()
    }

    /// Begins the next window, and returns its number.
    pub fn next_window(&self) -> u32 {
        self.table.next_window()
    }

    /// What items and pages were good for since the last time.
    pub fn end_window(&mut self) -> InWindow {
        let (table, mut by_page) = (&self.table, BTreeMap::<u32, u64>::new());
        let in_window = |(key, entry): (&ItemKey, &mut Entry)| {
            let requests = table.requests(entry.place);
            let new = u64::from(requests.wrapping_sub(entry.requests));
            entry.requests = requests;
            *by_page.entry(entry.place.page).or_default() += new;
            (new > 0 && entry.trial.is_none()).then(|| (key.clone(), new))
        };
        let requests = self.index.iter_mut().filter_map(in_window).collect();
        self.judge();
        self.compacted.clear();
        let page = |page: u32| {
            let usage = self.cells.usage(page);
            (usage.items > 0).then(|| PageUse {
                page,
                items: usage.items,
                cells: usage.cells,
                requests: by_page.get(&page).copied().unwrap_or(0),
            })
        };
        // How well each tenant's pages are filled, for items of its usual size.
        let tenant = |(tenant, value_len): (&u32, &usize)| {
            let cells = cells_needed(USUAL_KEY_LEN, *value_len).unwrap_or(u8::MAX);
            TenantUse { tenant: *tenant, fragmentation: self.cells.fragmentation(*tenant, cells) }
        };
        InWindow {
            requests,
            pages: (0..self.table.pages()).filter_map(page).collect(),
            tenants: self.value_lens.iter().map(tenant).collect(),
        }
    }
}
