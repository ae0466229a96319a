//! A part of the keys that a holder keeps: what is served, what is admitted, what goes.
//!
//! In: reads of keys, grants and invalidations that the [`crate::Holder`] was told of. Out: values,
//! and which key had better be fetched. A key is kept once it was read some times, and where there
//! is no room only in the place of keys that are read less. A copy is served by the rules alone:
//! [`Replica`] and [`BorrowedLease`] decide.

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::{BorrowedLease, CopiedValue, Nanos, Replica, sketch::Sketch};

/// Reads within a tick or two that a key needs to be kept. A tick is as many reads of a shelf as
/// its sketch has counts in a row, which follows from how many entries it has room for; then all
/// counts are halved.
const KEPT_FROM: u32 = 4;
/// Bytes that an entry takes beside key and value.
const ENTRY_BYTES: usize = 256;
/// Entries that are looked at for the coldest.
const SAMPLES: usize = 5;
/// Entries that go at most at a time to make room for one: nobody reads the shelf meanwhile.
const GO_AT_MOST: usize = 64;

/// What a shelf has for a read.
pub(crate) enum ShelfAnswer<R> {
    /// The value, and what was made of it.
    Here(R),
    /// Nothing.
    Elsewhere,
    /// Nothing, and the key's store is at work on it: it is being fetched, or the store has refused
    /// it for now.
    AtStore,
    /// Nothing, and the caller has the key fetched. Until that is over no other is told so.
    Wanted,
}

/// Why a key is not to be fetched for now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutOff {
    /// Its store says so: it is written too often for copies, or too many have one.
    ByStore,
    /// It is absent, too long, or has no room here, or its store was not asked, or does not answer.
    Fruitless,
}

/// What has come of making room for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// There is some.
    Made,
    /// As many as may go at a time have gone, all of them read less; more would have to.
    Partly,
    /// What is kept is read as often, and nothing has gone.
    Refused,
}

/// A key with reads that its store does not know of.
pub(crate) struct UntoldReads<'a> {
    /// The store's place.
    pub store: usize,
    /// The key's hash in the cache.
    pub hash: u64,
    pub key: &'a [u8],
    pub reads: u32,
}

/// What whoever keeps copies has noted of one: numbers that mean something to it.
pub type CopyNote = [u64; 2];

/// A key's bytes: in the entry itself, if they are few, so that comparing them is no further miss
/// of the processor's caches.
type Key = SmallVec<[u8; 24]>;

/// A key that is kept, or is going to be.
struct Entry {
    hash: u64,
    key: Key,
    store: usize,
    replica: Replica<Box<[u8]>>,
    /// Reads of it, halved with each tick since `tick`.
    reads: u32,
    tick: u32,
    /// Reads that the present copy has answered.
    hits: u32,
    /// What was noted of the present copy.
    note: Option<CopyNote>,
    /// Reads that copies of it have answered and its store does not know of.
    untold: u32,
    /// It is being fetched.
    is_wanted: bool,
    /// It is not fetched before, and why not.
    not_before_ns: Nanos,
    put_off: PutOff,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.replica.value().map_or(0, |value| value.len())
    }

    fn reads_at(&self, tick: u32) -> u32 {
        self.reads.checked_shr(tick.wrapping_sub(self.tick)).unwrap_or(0)
    }

    fn count(&mut self, tick: u32) {
        self.reads = self.reads_at(tick).saturating_add(1);
        self.tick = tick;
    }
}

/// One shelf.
pub(crate) struct Shelf {
    places: HashTable<usize>,
    /// Without gaps: whichever is drawn of them is there, and what goes gives its memory back. The
    /// last takes the place of one that goes.
    entries: Vec<Entry>,
    /// The lease of each store.
    leases: Box<[BorrowedLease]>,
    /// Reads answered since that was asked, of each store's keys.
    used: Box<[u32]>,
    /// Places of entries that had reads to tell of, some of which are others' since or are there
    /// twice: to look for them among all would stop whoever reads meanwhile.
    untold: Vec<usize>,
    bytes: usize,
    /// Entries that have a value.
    values: usize,
    /// What is left beside the sketch.
    budget: usize,
    sketch: Sketch,
    /// Reads in this tick.
    reads: usize,
    tick: u32,
    random: u64,
}

impl Shelf {
    /// An empty one for keys of so many stores, which keeps at most so many bytes.
    pub fn new(budget: usize, stores: usize, seed: u64) -> Shelf {
        let sketch = Sketch::new(budget / ENTRY_BYTES);
        Shelf {
            places: HashTable::new(),
            entries: vec![],
            leases: vec![BorrowedLease::default(); stores].into(),
            used: vec![0; stores].into(),
            untold: vec![],
            bytes: 0,
            values: 0,
            budget: budget.saturating_sub(sketch.bytes()),
            sketch,
            reads: 0,
            tick: 0,
            random: seed | 1,
        }
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let entries = &self.entries;
        let is_it = |at: &usize| entries.get(*at).is_some_and(|entry| *entry.key == *key);
        self.places.find(hash, is_it).copied()
    }

    /// A read of a key. It counts as answered by a copy if `serve` makes something of it, and what
    /// was noted of it.
    pub fn read<R>(
        &mut self,
        hash: u64,
        key: &[u8],
        now_ns: Nanos,
        serve: impl FnOnce(&CopiedValue<Box<[u8]>>, Option<CopyNote>) -> Option<R>,
    ) -> ShelfAnswer<R> {
        self.reads += 1;
        if self.reads == self.sketch.counts() {
            self.reads = 0;
            self.tick = self.tick.wrapping_add(1);
            self.sketch.halve();
        }
        if let Some(at) = self.find(hash, key) {
            let entry = &mut self.entries[at];
            entry.count(self.tick);
            if let Some(copy) = entry.replica.serve(&self.leases[entry.store], now_ns) {
                let Some(result) = serve(copy, entry.note) else { return ShelfAnswer::Elsewhere };
                entry.hits = entry.hits.saturating_add(1);
                if entry.untold == 0 {
                    self.untold.push(at);
                }
                entry.untold = entry.untold.saturating_add(1);
                self.used[entry.store] = self.used[entry.store].saturating_add(1);
                return ShelfAnswer::Here(result);
            }
            let is_put_off = now_ns < entry.not_before_ns;
            if entry.is_wanted || is_put_off && entry.put_off == PutOff::ByStore {
                return ShelfAnswer::AtStore;
            }
            if is_put_off {
                return ShelfAnswer::Elsewhere;
            }
            entry.is_wanted = true;
            return ShelfAnswer::Wanted;
        }
        let reads = self.sketch.read(hash);
        if reads < KEPT_FROM {
            return ShelfAnswer::Elsewhere;
        }
        if self.make_room(ENTRY_BYTES + key.len(), reads, None) != Room::Made {
            return ShelfAnswer::Elsewhere;
        }
        let entry = Entry {
            hash,
            key: Key::from_slice(key),
            store: 0,
            replica: Replica::new(0, now_ns),
            reads,
            tick: self.tick,
            hits: 0,
            note: None,
            untold: 0,
            is_wanted: true,
            not_before_ns: 0,
            put_off: PutOff::Fruitless,
        };
        self.add(entry);
        ShelfAnswer::Wanted
    }

    /// A key is going to be fetched from this store, under an epoch that was just taken. False:
    /// that is not needed any more.
    pub fn begin(
        &mut self,
        hash: u64,
        key: &[u8],
        store: usize,
        epoch: u64,
        now_ns: Nanos,
    ) -> bool {
        let Some(at) = self.find(hash, key) else { return false };
        let entry = &mut self.entries[at];
        if entry.store == store && entry.replica.serve(&self.leases[store], now_ns).is_some() {
            entry.is_wanted = false;
            return false;
        }
        entry.store = store;
        self.change(at, |entry| entry.replica.raise(epoch, now_ns));
        true
    }

    /// A part of a value of so many bytes has come: others go for it, part by part. False: what is
    /// kept is read as often, so the rest had better not be asked for.
    pub fn makes_way(&mut self, hash: u64, key: &[u8], bytes: usize) -> bool {
        let Some(at) = self.find(hash, key) else { return false };
        let reads = self.entries[at].reads_at(self.tick);
        self.make_room(bytes, reads, Some(at)) != Room::Refused
    }

    /// A grant of a key has come, as [`Replica::install`] takes it. Whether it is kept. Where there
    /// is no room the key stays without a value, with its reads.
    pub fn install(
        &mut self,
        hash: u64,
        key: &[u8],
        epoch: u64,
        value: Box<[u8]>,
        (version, expiry_ms): (u64, u32),
    ) -> bool {
        let Some(at) = self.find(hash, key) else { return false };
        let reads = self.entries[at].reads_at(self.tick);
        let has_room = self.make_room(value.len(), reads, Some(at)) == Room::Made;
        // Others have gone, so it may have another place.
        let Some(at) = self.find(hash, key) else { return false };
        let entry = &mut self.entries[at];
        entry.is_wanted = false;
        if !has_room {
            return false;
        }
        entry.hits = 0;
        entry.note = None;
        let lease = self.leases[entry.store].clone();
        self.change(at, |entry| entry.replica.install(epoch, &lease, value, version, expiry_ms))
    }

    /// The version of the copy that may be served at `now_ns`, if there is one. That is no read.
    pub fn version(&self, hash: u64, key: &[u8], now_ns: Nanos) -> Option<u64> {
        let entry = &self.entries[self.find(hash, key)?];
        Some(entry.replica.serve(&self.leases[entry.store], now_ns)?.version)
    }

    /// Notes something of the copy of this version, if it may be served at `now_ns`. Whether it
    /// did.
    pub fn note(
        &mut self,
        hash: u64,
        key: &[u8],
        now_ns: Nanos,
        (version, note): (u64, CopyNote),
    ) -> bool {
        if self.version(hash, key, now_ns) != Some(version) {
            return false;
        }
        let at = self.find(hash, key);
        at.map(|at| self.entries[at].note = Some(note)).is_some()
    }

    /// A key is not to be fetched before `until_ns`.
    pub fn put_off(&mut self, hash: u64, key: &[u8], until_ns: Nanos, why: PutOff) {
        if let Some(at) = self.find(hash, key) {
            let entry = &mut self.entries[at];
            entry.is_wanted = false;
            (entry.not_before_ns, entry.put_off) = (until_ns, why);
        }
    }

    /// A key was written: nothing of an earlier epoch than this is served from now on. How many
    /// reads its copy has answered, if there was one or it was on its way.
    pub fn invalidate(&mut self, hash: u64, key: &[u8], epoch: u64, now_ns: Nanos) -> Option<u32> {
        let at = self.find(hash, key)?;
        self.change(at, |entry| {
            let had = entry.is_wanted || entry.replica.is_valid();
            entry.replica.raise(epoch, now_ns);
            entry.is_wanted = false;
            let hits = std::mem::take(&mut entry.hits);
            had.then_some(hits)
        })
    }

    /// A store's lease is this from now on.
    pub fn set_lease(&mut self, store: usize, lease: &BorrowedLease) {
        self.leases[store] = lease.clone();
    }

    /// How many reads copies of a store's keys have answered since this was asked last.
    pub fn take_used(&mut self, store: usize) -> u32 {
        std::mem::take(&mut self.used[store])
    }

    /// Keys with reads that their stores do not know of, and how many those are.
    pub fn untold(&mut self) -> impl Iterator<Item = UntoldReads<'_>> {
        let entries = &self.entries;
        self.untold.retain(|at| entries.get(*at).is_some_and(|entry| entry.untold > 0));
        self.untold.sort_unstable();
        self.untold.dedup();
        let untold = self.untold.iter().map(|at| &entries[*at]);
        untold.map(|entry| UntoldReads {
            store: entry.store,
            hash: entry.hash,
            key: &entry.key,
            reads: entry.untold,
        })
    }

    /// A key's store is told of so many reads of it.
    pub fn told(&mut self, hash: u64, key: &[u8], reads: u32) {
        if let Some(at) = self.find(hash, key) {
            let entry = &mut self.entries[at];
            entry.untold = entry.untold.saturating_sub(reads);
        }
    }

    /// Forgets what it has of a store's keys.
    pub fn forget(&mut self, store: usize) {
        for at in (0..self.entries.len()).rev() {
            if self.entries[at].store == store {
                self.remove(at);
            }
        }
    }

    /// Forgets all that it has.
    pub fn clear(&mut self) {
        (self.places, self.entries, self.untold) = (HashTable::new(), vec![], vec![]);
        (self.bytes, self.values) = (0, 0);
    }

    /// Bytes that it keeps, and keys of which it has a value.
    pub fn kept(&self) -> (usize, usize) {
        (self.bytes, self.values)
    }

    /// Bytes that entries, places and values have.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        let values = self.entries.iter().filter_map(|entry| entry.replica.value());
        let values: usize = values.map(|value| value.len()).sum();
        self.entries.capacity() * size_of::<Entry>() + values
    }

    /// Makes room for so many bytes more of a key that was read so often, but not in the place of
    /// `not`.
    fn make_room(&mut self, bytes: usize, reads: u32, not: Option<usize>) -> Room {
        let mut kept = self.bytes;
        let mut go: SmallVec<[usize; 8]> = SmallVec::new();
        while kept + bytes > self.budget && go.len() < GO_AT_MOST {
            let coldest = self.coldest(|at| Some(at) == not || go.contains(&at));
            let Some((at, _)) = coldest.filter(|(_, least)| *least < reads) else {
                return Room::Refused;
            };
            kept -= self.entries[at].bytes();
            go.push(at);
        }
        // From the end: who takes the place of one that goes is none that is to go.
        go.sort_unstable();
        go.into_iter().rev().for_each(|at| self.remove(at));
        if kept + bytes > self.budget { Room::Partly } else { Room::Made }
    }

    /// The one of some entries that is read least, and how often.
    fn coldest(&mut self, is_not: impl Fn(usize) -> bool) -> Option<(usize, u32)> {
        let mut coldest = None;
        let mut seen = 0;
        for _ in 0..4 * SAMPLES {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = (self.random >> 16) as usize % self.entries.len().max(1);
            let Some(entry) = self.entries.get(at).filter(|_| !is_not(at)) else { continue };
            let reads = entry.reads_at(self.tick);
            if coldest.is_none_or(|(_, least)| reads < least) {
                coldest = Some((at, reads));
            }
            seen += 1;
            if seen == SAMPLES {
                break;
            }
        }
        coldest
    }

    /// Changes an entry that may have another value then, or none.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Entry) -> R) -> R {
        let entry = &mut self.entries[at];
        self.bytes -= entry.bytes();
        self.values -= usize::from(entry.replica.is_valid());
        let result = change(entry);
        self.bytes += entry.bytes();
        self.values += usize::from(entry.replica.is_valid());
        result
    }

    fn add(&mut self, entry: Entry) {
        let (hash, at) = (entry.hash, self.entries.len());
        self.bytes += entry.bytes();
        if at == self.entries.capacity() {
            self.entries.reserve_exact(spare(at));
        }
        self.entries.push(entry);
        let entries = &self.entries;
        self.places.insert_unique(hash, at, |at| entries[*at].hash);
    }

    fn remove(&mut self, at: usize) {
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.bytes();
        self.values -= usize::from(entry.replica.is_valid());
        if let Ok(place) = self.places.find_entry(entry.hash, |other| *other == at) {
            place.remove();
        }
        let count = self.entries.len();
        if let Some(moved) = self.entries.get(at) {
            if let Some(place) = self.places.find_mut(moved.hash, |other| *other == count) {
                *place = at;
            }
            if moved.untold > 0 {
                self.untold.push(at);
            }
        }
        if self.entries.capacity() - count > 2 * spare(count) {
            self.entries.shrink_to(count + spare(count));
        }
    }
}

/// For how many entries more than there are a shelf has memory, and for twice as many at most: so
/// few that [`ENTRY_BYTES`] of each entry, which are more than its own, cover them.
fn spare(entries: usize) -> usize {
    entries / 8 + 16
}
