//! The lookup table and the items behind it. The agent inserts, evicts and moves items here while
//! programs read them; `docs/coherence.md` says why the order of the stores in each function is as
//! it is.

use std::{
    slice,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, SeqCst},
        fence,
    },
};

use wire::{Epoch, KeyHash};

use super::{
    backing::Backing, cells::Place, clock::Clock, grace::Grace, mapped::SharedArray,
    sketch::forget_old, tenant::hash_salt,
};
use crate::{
    Error,
    layout::{
        BUCKET_SLOTS, Bucket, CELL_BYTES, Config, GIVEN_MAX, ITEM_CELLS, Item, LAST_EPOCH, LAYOUT,
        LOCKED_BY_AGENT, NO_LEASE, PAGE_START_CELLS, Page, PageHits, Sketch, SourceCheck,
    },
    writes::{Word8, Word32, Word64},
};

/// The lookup table, the pages behind it, the counters of each item, and the switch's
/// configuration. One agent writes at a time; the programs on every CPU read and write beside it.
pub struct Table {
    config: SharedArray<Config>,
    buckets: SharedArray<Bucket>,
    pages: SharedArray<Page>,
    hits: SharedArray<PageHits>,
    locks: SharedArray<Word32>,
    sketches: SharedArray<Sketch>,
    cpus: usize,
    grace: Grace,
    waits: AtomicU64,
    clock: Clock,
}

/// An entry with its item, as found in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldItem {
    /// Index of the slot over all buckets: names the entry until it is evicted.
    pub slot: u32,
    /// Whose key space.
    pub tenant: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Where the item lies.
    pub place: Place,
    /// Slot of the store's lease; [`NO_LEASE`]: its record was given, and no store has it.
    pub lease: u16,
    /// Whether a value was granted for the item's present epoch.
    pub valid: bool,
    /// Length of the value in bytes; meaningful if it is valid.
    pub value_len: u16,
}

/// Why an entry could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// Every slot of the bucket is taken, or one has the same fingerprint.
    #[error("no slot is free in the key's bucket")]
    BucketFull,
    /// The key has an entry already.
    #[error("the key has an entry already")]
    Present,
    /// The record is longer than the place.
    #[error("the record does not fit the cells")]
    TooLarge,
    /// A program kept the bucket for itself for longer than anybody should.
    #[error("the key's bucket is being changed all the time")]
    Busy,
}

/// Programs kept an item locked for longer than anybody should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the item is being changed all the time")]
pub struct Busy;

/// Looks at an item or bucket that somebody is changing. A program holds it for nanoseconds.
const TRIES: usize = 10_000;

/// As a slot names a place.
pub(crate) fn reference(place: Place) -> u32 {
    place.page << 9 | u32::from(place.cell)
}

/// Writes bytes, and zeros up to the next word.
fn write_padded(to: &[Word8], bytes: &[u8]) {
    let padded = bytes.iter().copied().chain(std::iter::repeat(0));
    let len = bytes.len().next_multiple_of(8);
    for (to, from) in to.iter().zip(padded).take(len) {
        to.store(from, Relaxed);
    }
}

/// In the `version` of an item whose record was given, which has no other, while the agent writes
/// the record. An agent that is killed meanwhile leaves it so.
const BEING_WRITTEN: u64 = 1;

/// Keeps programs from changing an item.
fn lock(item: &Item) -> Result<(), Busy> {
    let try_once = || {
        let seq = item.seq.load(Relaxed);
        let locked = item.seq.compare_exchange(seq & !1, seq | 1, SeqCst, SeqCst);
        locked.map_err(|_| std::thread::yield_now()).is_ok()
    };
    (0..TRIES).any(|_| try_once()).then_some(()).ok_or(Busy)
}

/// Keeps programs from filling a slot of some buckets.
struct BucketLock<'a>(&'a Word32);

impl BucketLock<'_> {
    fn take(lock: &Word32) -> Result<BucketLock<'_>, InsertError> {
        let try_once = || {
            let taken = lock.compare_exchange(0, LOCKED_BY_AGENT, SeqCst, SeqCst);
            taken.map_err(|_| std::thread::yield_now()).is_ok()
        };
        let taken = (0..TRIES).any(|_| try_once());
        taken.then(|| BucketLock(lock)).ok_or(InsertError::Busy)
    }
}

impl Drop for BucketLock<'_> {
    fn drop(&mut self) {
        // One that is another's by now stays.
        let _ = self.0.compare_exchange(LOCKED_BY_AGENT, 0, SeqCst, SeqCst);
    }
}

impl Table {
    /// Opens the tables of a switch, and changes nothing: whoever looks at a switch does so beside
    /// its agent.
    ///
    /// # Errors
    /// If they are not there or of another layout.
    pub fn open(at: impl Into<Backing>) -> Result<Table, Error> {
        let at = at.into();
        at.must_exist()?;
        let buckets: SharedArray<Bucket> = at.mapped("buckets")?;
        let pages: SharedArray<Page> = at.mapped("pages")?;
        let hits: SharedArray<PageHits> = at.mapped("hits")?;
        let cpus = hits.len() / pages.len();
        Ok(Table {
            locks: at.mapped("bucket_locks")?,
            sketches: at.mapped("sketches")?,
            config: at.mapped("config")?,
            pages,
            buckets,
            hits,
            cpus,
            grace: at.grace()?,
            waits: AtomicU64::new(0),
            clock: at.clock(),
        })
    }

    /// Where the invalidation counter of a switch of this id begins: in tables that have not had
    /// this id at `epoch` at least (rule 1: no number repeats, also after a reboot); in those that
    /// have, it goes on.
    pub fn first_epoch(&self, switch: u16, epoch: u64) -> u64 {
        match self.switch_id() == switch {
            true => self.epoch(),
            false => self.epoch().max(epoch.min(LAST_EPOCH)),
        }
    }

    /// Names the switch, and has the counter begin there.
    pub fn set_identity(&self, switch: u16, epoch: u64) {
        let config = self.config.at(0);
        let first = self.first_epoch(switch, epoch);
        config.epoch.fetch_max(first, SeqCst);
        config.switch_id.store(u32::from(switch), SeqCst);
    }

    /// The switch's id, 0 before it was set.
    pub fn switch_id(&self) -> u16 {
        self.config.at(0).switch_id.load(Relaxed) as u16
    }

    /// The number of the last invalidation.
    pub fn epoch(&self) -> u64 {
        self.config.at(0).epoch.load(SeqCst)
    }

    fn take_epoch(&self) -> u64 {
        (self.config.at(0).epoch.fetch_add(1, SeqCst) + 1).min(LAST_EPOCH)
    }

    /// The tables are laid out as this build does.
    pub(crate) fn has_this_layout(&self) {
        self.config.at(0).layout.store(LAYOUT, Relaxed);
    }

    /// Scatters what is counted by a number that clients do not know; whoever makes the tables
    /// does, before the first packet. One that is set stays.
    pub fn scatter(&self, seed: u64) {
        let _ = self.config.at(0).seed.compare_exchange(0, seed, SeqCst, SeqCst);
    }

    /// Names the life of these tables by a number that no others have; whoever makes them does,
    /// before the first packet. One that is set stays.
    pub fn begin_life(&self, life: u64) {
        let to = &self.config.at(0).life;
        let _ = to.compare_exchange(0, life.max(1), SeqCst, SeqCst);
    }

    /// The number of these tables: with another one, everything in them is lost. 0: they were never
    /// given one.
    pub fn life(&self) -> u64 {
        self.config.at(0).life.load(SeqCst)
    }

    /// What packets' source addresses must be from now on.
    pub fn check_sources(&self, how: SourceCheck) {
        self.config.at(0).source_check.store(how as u32, Relaxed);
    }

    /// Bytes of the longest frame that an answer may become where the request was shorter; 0: any.
    pub fn limit_frames(&self, most: u64) {
        self.config.at(0).frame_most.store(most, Relaxed);
    }

    /// Which share of reads is counted: one in 2^`sample_shift`.
    pub fn set_sampling(&self, sample_shift: u32) {
        let mask = (1 << sample_shift.min(16)) - 1;
        self.config.at(0).sample_mask.store(mask, Relaxed);
    }

    /// Number of the statistics window.
    pub fn window(&self) -> u32 {
        self.config.at(0).window.load(Relaxed)
    }

    /// Begins the next statistics window; what was counted before no longer counts.
    pub fn next_window(&self) -> u32 {
        let window = self.config.at(0).window.fetch_add(1, Relaxed).wrapping_add(1);
        forget_old(&self.sketches, window);
        window
    }

    /// Pages that there are.
    pub fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Slots of a bucket: a key's entry is in one of them.
    pub const BUCKET_SLOTS: usize = BUCKET_SLOTS;

    /// Slots that there are.
    pub fn slots(&self) -> u32 {
        (self.buckets.len() * BUCKET_SLOTS) as u32
    }

    /// Bytes of all tables that entries and items live in.
    pub fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
            + self.pages.len() * size_of::<Page>()
            + self.hits.len() * size_of::<PageHits>()
    }

    fn item(&self, place: Place) -> &Item {
        let words = &self.pages.at(place.page as usize).bytes;
        let word = &words[usize::from(place.cell) * CELL_BYTES / 8];
        // SAFETY: an item's header is 48 bytes of atomics at the start of a 64-byte cell inside
        // the page.
        unsafe { &*std::ptr::from_ref(word).cast::<Item>() }
    }

    /// The bytes after an item's header, up to the end of its cells.
    fn body(&self, place: Place) -> &[Word8] {
        let words = &self.pages.at(place.page as usize).bytes;
        let start = usize::from(place.cell) * CELL_BYTES + size_of::<Item>();
        let end = (usize::from(place.cell) + usize::from(place.cells)) * CELL_BYTES;
        assert!(start < end && end <= size_of::<Page>());
        // SAFETY: inside the page; bytes of atomics, shared with the programs.
        unsafe { slice::from_raw_parts(words.as_ptr().cast::<Word8>().add(start), end - start) }
    }

    fn bucket_and_fingerprint(&self, tenant: u32, hash: KeyHash) -> (usize, u32) {
        let low = hash.low() ^ hash_salt(tenant);
        let fingerprint = ((low >> 32) as u32).max(1);
        (low as u32 as usize & (self.buckets.len() - 1), fingerprint)
    }

    /// Makes an entry without a value for a key, whose item lies in `place` (cells that nobody
    /// uses). From then on writes invalidate it and the next read asks for a grant. Returns
    /// the slot.
    ///
    /// # Errors
    /// [`InsertError`]; nothing has changed then.
    pub fn insert(
        &self,
        tenant: u32,
        hash: KeyHash,
        key: &[u8],
        lease: u16,
        place: Place,
    ) -> Result<u32, InsertError> {
        self.make(tenant, hash, key, lease, place, None)
    }

    /// Makes an entry with a given record, valid at once: programs find it whole or not at all.
    /// Returns the slot.
    ///
    /// # Errors
    /// [`InsertError`]; nothing has changed then.
    pub fn insert_given(
        &self,
        tenant: u32,
        hash: KeyHash,
        key: &[u8],
        record: &[u8],
        place: Place,
    ) -> Result<u32, InsertError> {
        if self.record_room(place, key.len()) < record.len() {
            return Err(InsertError::TooLarge);
        }
        self.make(tenant, hash, key, NO_LEASE, place, Some(record))
    }

    fn make(
        &self,
        tenant: u32,
        hash: KeyHash,
        key: &[u8],
        lease: u16,
        place: Place,
        record: Option<&[u8]>,
    ) -> Result<u32, InsertError> {
        let (index, fingerprint) = self.bucket_and_fingerprint(tenant, hash);
        let bucket = self.buckets.at(index);
        let _lock = BucketLock::take(self.locks.at(index % self.locks.len()))?;
        let slots = bucket.slot.each_ref().map(|slot| slot.load(Relaxed));
        if slots.iter().any(|slot| (slot >> 32) as u32 == fingerprint) {
            return Err(InsertError::Present);
        }
        let free = slots.iter().position(|slot| *slot == 0).ok_or(InsertError::BucketFull)?;

        let item = self.blank(place);
        if record.is_some() {
            item.word.store(self.take_epoch() << 1 | 1, Relaxed);
        }
        item.key_len.store(key.len() as u8, Relaxed);
        item.value_len.store(record.map_or(0, <[u8]>::len) as u16, Relaxed);
        item.tenant.store(tenant, Relaxed);
        item.lease.store(lease, Relaxed);
        item.epoch_ns.store(self.clock.now_ns(), Relaxed);
        let body = self.body(place);
        write_padded(body, key);
        let behind_key = body.get(key.len().next_multiple_of(8)..);
        write_padded(behind_key.unwrap_or_default(), record.unwrap_or_default());
        let slot = u64::from(fingerprint) << 32 | u64::from(reference(place));
        let filled = bucket.slot[free].compare_exchange(0, slot, SeqCst, SeqCst);
        filled.map_err(|_| InsertError::Busy)?;
        if record.is_none() {
            // The epoch is taken after the entry can be found: a write that did not find it took
            // its own before.
            fence(SeqCst);
            let epoch = self.take_epoch();
            let _ = item.word.compare_exchange(0, epoch << 1, SeqCst, SeqCst);
        }
        Ok((index * BUCKET_SLOTS + free) as u32)
    }

    /// Cells that nobody uses, as an item without key and value. It has no epoch yet: whoever needs
    /// one takes it.
    pub(crate) fn blank(&self, place: Place) -> &Item {
        let item = self.item(place);
        item.word.store(0, Relaxed);
        item.version.store(0, Relaxed);
        item.key_len.store(0, Relaxed);
        item.value_len.store(0, Relaxed);
        item.flags.store(place.cells & ITEM_CELLS, Relaxed);
        let seq = item.seq.load(Relaxed).wrapping_add(2) & !1;
        item.seq.store(seq, Relaxed);
        item
    }

    /// Bytes that a record may have behind a key of that length.
    fn record_room(&self, place: Place, key_len: usize) -> usize {
        let room = self.body(place).len();
        room.saturating_sub(key_len.next_multiple_of(8)).min(GIVEN_MAX)
    }

    /// The given record of an item, as it was at one moment.
    ///
    /// # Errors
    /// [`Busy`]: programs kept changing it.
    pub fn given(&self, place: Place) -> Result<Vec<u8>, Busy> {
        let item = self.item(place);
        for _ in 0..TRIES {
            let seq = item.seq.load(Acquire);
            let key_len = usize::from(item.key_len.load(Relaxed));
            let len =
                usize::from(item.value_len.load(Relaxed)).min(self.record_room(place, key_len));
            let record = &self.body(place)[key_len.next_multiple_of(8)..][..len];
            let record = record.iter().map(|byte| byte.load(Relaxed)).collect();
            fence(SeqCst);
            if seq & 1 == 0 && item.seq.load(Relaxed) == seq {
                return Ok(record);
            }
            std::thread::yield_now();
        }
        Err(Busy)
    }

    /// Puts another record in the place of an item's given one; false if it does not fit. Programs
    /// see the one or the other, whole.
    ///
    /// # Errors
    /// [`Busy`]: programs kept changing it; nothing has changed.
    pub fn set_given(&self, place: Place, record: &[u8]) -> Result<bool, Busy> {
        let item = self.item(place);
        let key_len = usize::from(item.key_len.load(Relaxed));
        if self.record_room(place, key_len) < record.len() {
            return Ok(false);
        }
        lock(item)?;
        item.version.store(BEING_WRITTEN, SeqCst);
        item.value_len.store(record.len() as u16, Relaxed);
        write_padded(&self.body(place)[key_len.next_multiple_of(8)..], record);
        item.version.store(0, SeqCst);
        item.seq.fetch_add(1, SeqCst);
        Ok(true)
    }

    /// Removes an entry whose given record begins with these bytes; false if it does not. Its item
    /// stays locked: a program that found it before changes nothing of it any more. Its cells must
    /// not be used again before [`Table::quiesce`] returned.
    ///
    /// # Errors
    /// [`Busy`]: programs kept changing it; nothing has changed.
    pub fn remove_if(&self, slot: u32, place: Place, begins: &[u8]) -> Result<bool, Busy> {
        let item = self.item(place);
        lock(item)?;
        let key_len = usize::from(item.key_len.load(Relaxed));
        let len = usize::from(item.value_len.load(Relaxed)).min(self.record_room(place, key_len));
        let record = &self.body(place)[key_len.next_multiple_of(8)..][..len];
        let same = |(byte, wanted): (&Word8, &u8)| byte.load(Relaxed) == *wanted;
        let begins_so = begins.len() <= len && record.iter().zip(begins).all(same);
        match begins_so {
            true => self.evict(slot, place),
            false => drop(item.seq.fetch_add(1, SeqCst)),
        }
        Ok(begins_so)
    }

    fn slot(&self, slot: u32) -> &Word64 {
        &self.buckets.at(slot as usize / BUCKET_SLOTS).slot[slot as usize % BUCKET_SLOTS]
    }

    /// Removes the entry of the item that lies there. Its cells must not be used again before
    /// [`Table::quiesce`] returned. In a slot that leads elsewhere by now, since a program filled
    /// it, nothing changes.
    pub fn evict(&self, slot: u32, place: Place) {
        let at = self.slot(slot);
        let entry = at.load(SeqCst);
        if entry as u32 == reference(place) {
            // Nobody else empties a slot, or fills one that is taken.
            let _ = at.compare_exchange(entry, 0, SeqCst, SeqCst);
        }
    }

    /// Unlocks the items and buckets that an earlier agent had locked when it was killed; returns
    /// how many. Their records are as they were, or as they were to be; one that is neither goes,
    /// as any item may that the agent writes over. Nobody else may be an agent now.
    ///
    /// # Errors
    /// Running programs cannot be waited for.
    pub fn unlock_abandoned(&self) -> Result<usize, Error> {
        Ok(self.unlock_buckets() + self.unlock_items()?)
    }

    fn unlock_buckets(&self) -> usize {
        let locks = (0..self.locks.len()).map(|lock| self.locks.at(lock));
        let unlock = |lock: &&Word32| {
            let is_left = lock.load(SeqCst) == LOCKED_BY_AGENT;
            is_left && lock.compare_exchange(LOCKED_BY_AGENT, 0, SeqCst, SeqCst).is_ok()
        };
        locks.filter(unlock).count()
    }

    fn unlock_items(&self) -> Result<usize, Error> {
        let seq_of = |held: &HeldItem| self.item(held.place).seq.load(SeqCst);
        let all = self.scan().into_iter().map(|held| (seq_of(&held), held));
        let locked: Vec<_> = all.filter(|(seq, _)| seq & 1 == 1).collect();
        if locked.is_empty() {
            return Ok(0);
        }
        // A program that had locked one has unlocked it after this; another count is another's.
        self.quiesce()?;
        let mut unlocked = 0;
        for (seq, HeldItem { slot, place, .. }) in locked {
            let item = self.item(place);
            if item.seq.load(SeqCst) != seq {
                continue;
            }
            unlocked += 1;
            match item.version.load(SeqCst) == BEING_WRITTEN && item.lease.load(Relaxed) == NO_LEASE
            {
                true => self.evict(slot, place),
                false => drop(item.seq.fetch_add(1, SeqCst)),
            }
        }
        self.quiesce()?;
        Ok(unlocked)
    }

    /// Waits until no program can still see an entry that was evicted before this call.
    ///
    /// # Errors
    /// If the kernel cannot wait; the cells must then never be used again.
    pub fn quiesce(&self) -> Result<(), Error> {
        self.waits.fetch_add(1, Relaxed);
        self.grace.wait()
    }

    /// The clock that the programs read, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// How often somebody waited so.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// The epoch to fetch an entry's value for, as (switch, number); `None` if it has a valid
    /// value, or can have none since epochs are used up. An epoch at or below `floor` belongs to an
    /// earlier term of its store's lease: nothing is installed for it any more, so it is replaced
    /// by a fresh one.
    pub fn wants_value(&self, place: Place, floor: u64) -> Option<Epoch> {
        let item = self.item(place);
        loop {
            let word = item.word.load(Acquire);
            let (epoch, valid) = (word >> 1, word & 1 == 1);
            let granted_under =
                |epoch| (epoch < LAST_EPOCH).then(|| Epoch::new(self.switch_id(), epoch));
            if epoch > floor {
                return granted_under(epoch).filter(|_| !valid);
            }
            // Read first: a life counts from before its epoch, or a copy could outlive it.
            let now_ns = self.clock.now_ns();
            let fresh = self.take_epoch();
            if item.word.compare_exchange(word, fresh << 1, SeqCst, SeqCst).is_ok() {
                item.epoch_ns.store(now_ns, Relaxed);
                return granted_under(fresh);
            }
        }
    }

    /// Whether a slot is one in which a key of this hash can be found.
    pub fn leads_to(&self, slot: u32, tenant: u32, hash: KeyHash) -> bool {
        let (index, fingerprint) = self.bucket_and_fingerprint(tenant, hash);
        slot as usize / BUCKET_SLOTS == index
            && (self.slot(slot).load(Relaxed) >> 32) as u32 == fingerprint
    }

    /// Requests so far of the items that lay there, over all CPUs (sampled, if sampling is on).
    /// Wraps around.
    pub fn requests(&self, place: Place) -> u32 {
        let (page, cell) = (place.page as usize, usize::from(place.cell));
        let on_cpu = |cpu| self.hits.at(cpu * self.pages.len() + page).cell[cell].load(Relaxed);
        (0..self.cpus).map(on_cpu).fold(0, u32::wrapping_add)
    }

    /// The slots of the entries that share a bucket with a key.
    pub fn neighbours(&self, tenant: u32, hash: KeyHash) -> impl Iterator<Item = u32> + '_ {
        let (index, _) = self.bucket_and_fingerprint(tenant, hash);
        let first = (index * BUCKET_SLOTS) as u32;
        (first..first + BUCKET_SLOTS as u32).filter(|slot| self.slot(*slot).load(Relaxed) != 0)
    }

    /// Every entry, read from memory: this is how an agent finds its state again.
    pub fn scan(&self) -> Vec<HeldItem> {
        (0..self.slots()).filter_map(|slot| self.held(slot)).collect()
    }

    /// The entry of a slot, read from memory.
    pub fn held(&self, slot: u32) -> Option<HeldItem> {
        let entry = self.slot(slot).load(Acquire);
        let reference = entry as u32;
        let (page, cell) = (reference >> 9, (reference & 0x1ff) as u16);
        if entry == 0 || page >= self.pages() || usize::from(cell) >= PAGE_START_CELLS {
            return None;
        }
        let item = self.item(Place { page, cell, cells: 1 });
        let place =
            Place { page, cell, cells: (item.flags.load(Relaxed) & ITEM_CELLS).clamp(1, 32) };
        let key_len = usize::from(item.key_len.load(Relaxed));
        let key = self.body(place).iter().take(key_len).map(|byte| byte.load(Relaxed)).collect();
        Some(HeldItem {
            slot,
            tenant: item.tenant.load(Relaxed),
            key,
            place,
            lease: item.lease.load(Relaxed),
            valid: item.word.load(Relaxed) & 1 == 1,
            value_len: item.value_len.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicBool};

    use super::*;
    use crate::{
        Cells, Sizes,
        native::{Clock, Switch},
    };

    /// Each start would take it further from the clock, below which it must not begin when the
    /// tables and the state directory are lost.
    #[test]
    fn the_counter_of_tables_that_stay_goes_on() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let table = Table::open(&switch).unwrap();
        let named = |id, epoch| {
            table.set_identity(id, epoch);
            table.epoch()
        };
        assert_eq!(named(1, 1_000), 1_000);
        assert_eq!(named(1, 9_000), 1_000);
        assert_eq!(named(2, 9_000), 9_000, "which had others under this name");
        assert_eq!(named(3, 5_000), 9_000);
    }

    /// An agent was killed while it had an item locked: before it changed anything, in the midst of
    /// it, and after.
    #[test]
    fn what_a_killed_agent_had_locked_is_unlocked_and_half_a_record_goes() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let table = Table::open(&switch).unwrap();
        let mut cells = Cells::new(4);
        cells.set_owner(0, Some(7));
        let mut given = |n: u32| {
            let hash = KeyHash([n as u8; 16]);
            let place = cells.take(7, 3).unwrap();
            table.insert_given(7, hash, &n.to_be_bytes(), b"record", place).unwrap();
            place
        };
        let [free, locked, half] = [1, 2, 3].map(&mut given);
        for place in [locked, half] {
            lock(table.item(place)).unwrap();
            assert_eq!(table.set_given(place, b"other"), Err(Busy));
        }
        table.item(half).version.store(BEING_WRITTEN, SeqCst);
        table.item(half).value_len.store(3, Relaxed);

        let next = Table::open(&switch).unwrap();
        assert_eq!(next.unlock_abandoned().unwrap(), 2);
        assert_eq!(next.set_given(locked, b"other"), Ok(true));
        assert_eq!(next.given(locked).unwrap(), b"other");
        assert_eq!(next.given(free).unwrap(), b"record");
        let left: Vec<Place> = next.scan().into_iter().map(|held| held.place).collect();
        assert!(!left.contains(&half) && left.len() == 2, "{left:?}");
        assert_eq!(next.unlock_abandoned().unwrap(), 0);
    }

    /// Whoever looks at a switch opens its tables while its agent changes them.
    #[test]
    fn a_bucket_stays_locked_whoever_opens_the_tables_and_is_unlocked_by_the_next_agent() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let table = Table::open(&switch).unwrap();
        let lock = table.locks.at(3);
        let taken = BucketLock::take(lock).unwrap();
        let reader = Table::open(&switch).unwrap();
        assert_eq!(lock.load(SeqCst), LOCKED_BY_AGENT);
        // As one that was killed leaves it.
        std::mem::forget(taken);
        assert_eq!(reader.unlock_abandoned().unwrap(), 1);
        assert_eq!(lock.load(SeqCst), 0);
        // What has become another's is not given back.
        let taken = BucketLock::take(lock).unwrap();
        lock.store(1, SeqCst);
        drop(taken);
        assert_eq!(lock.load(SeqCst), 1, "a program's");
    }

    /// The clock follows the invalidation counter, so an epoch is always above what was read before
    /// it was taken.
    #[test]
    fn a_life_counts_from_before_its_epoch() {
        let ns = Arc::new(AtomicU64::new(0));
        let clock = Clock::Set(ns.clone());
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let table = Table::open(&switch).unwrap();
        table.set_identity(1, 1);
        let mut cells = Cells::new(4);
        cells.set_owner(0, Some(7));
        let place = cells.take(7, 3).unwrap();
        table.insert(7, KeyHash::default(), b"key", 0, place).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    ns.store(table.epoch(), SeqCst);
                }
            });
            let late = (0..200_000).find_map(|_| {
                let epoch = table.wants_value(place, table.epoch())?.number();
                let epoch_ns = table.item(place).epoch_ns.load(Relaxed);
                (epoch_ns >= epoch).then_some((epoch_ns, epoch))
            });
            stop.store(true, Relaxed);
            assert_eq!(late, None, "the clock was read after the epoch was taken");
        });
    }
}
