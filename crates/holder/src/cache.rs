//! What a holder keeps, for whoever serves reads of it: in shelves, each behind a lock of its own.
//!
//! A read locks one shelf for as long as it takes to look a key up and copy its value. What
//! [`crate::Holder`] does to a key is done under the same lock, so once an invalidation is answered
//! nobody serves the copy any more.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
};

use wire::maps::Hashing;

use crate::{
    BorrowedLease, CopiedValue, Nanos,
    shelf::{CopyNote, PutOff, Shelf, ShelfAnswer, UntoldReads},
};

/// Shelves of a cache of this many bytes and more; a smaller one has one for each
/// [`SHELF_BYTES`].
const SHELVES: usize = 16;
/// Bytes of a shelf below which there are fewer of them.
const SHELF_BYTES: usize = 1 << 20;
/// The longest value that is kept, in bytes.
const LONGEST: usize = 1 << 20;

/// Why a read was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// There is no copy of the key.
    Elsewhere,
    /// There is none, and the key's store is at work on it: it is being fetched, or the store has
    /// refused it for a while, because the key is written too often for copies or too many have
    /// one.
    AtStore,
    /// There is none, and the caller is to have it fetched ([`crate::Holder::want`]). Nobody else
    /// is told so until that is over.
    Wanted,
}

/// Reads of a key that copies have answered, with its hash in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToldReads {
    pub reads: u32,
    pub hash: u64,
    pub key: Box<[u8]>,
}

/// What a holder keeps.
pub struct Cache {
    shelves: Box<[Mutex<Shelf>]>,
    hashing: Hashing,
    longest: usize,
    under_way: usize,
}

impl Cache {
    /// An empty one for keys of so many stores, which keeps at most so many bytes.
    pub fn new(bytes: usize, stores: usize) -> Cache {
        let count = (bytes / SHELF_BYTES).clamp(1, SHELVES);
        let hashing = Hashing::default();
        let shelf = |at| Mutex::new(Shelf::new(bytes / count, stores, hashing.hash_one(at)));
        Cache {
            shelves: (0..count).map(shelf).collect(),
            longest: LONGEST.min(bytes / count / 4),
            under_way: bytes / 4,
            hashing,
        }
    }

    /// The hash by which this cache, and no other, finds a key; never 0.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hashing.hash_one(key).max(1)
    }

    /// A read of the key with this hash, at `now_ns`: a time that is not before the read came. Its
    /// value is handed to `serve`, if it may be served now.
    ///
    /// # Errors
    /// [`Miss`]: it has to be read elsewhere.
    #[inline]
    pub fn read<R>(
        &self,
        hash: u64,
        key: &[u8],
        now_ns: Nanos,
        serve: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Miss> {
        self.read_copy(hash, key, now_ns, |copy| serve(&copy.value))
    }

    /// As [`Cache::read`]; the whole copy is handed to `serve`, with its version.
    ///
    /// # Errors
    /// [`Miss`]: it has to be read elsewhere.
    #[inline]
    pub fn read_copy<R>(
        &self,
        hash: u64,
        key: &[u8],
        now_ns: Nanos,
        serve: impl FnOnce(&CopiedValue<Box<[u8]>>) -> R,
    ) -> Result<R, Miss> {
        self.read_noted(hash, key, now_ns, |copy, _| Some(serve(copy)))
    }

    /// As [`Cache::read_copy`]; `serve` is handed what was noted of the copy, too, and where it
    /// makes nothing of it the read is as one that found no copy.
    ///
    /// # Errors
    /// [`Miss`]: it has to be read elsewhere.
    #[inline]
    pub fn read_noted<R>(
        &self,
        hash: u64,
        key: &[u8],
        now_ns: Nanos,
        serve: impl FnOnce(&CopiedValue<Box<[u8]>>, Option<CopyNote>) -> Option<R>,
    ) -> Result<R, Miss> {
        match self.with(hash, |shelf| shelf.read(hash, key, now_ns, serve)) {
            ShelfAnswer::Here(result) => Ok(result),
            ShelfAnswer::Elsewhere => Err(Miss::Elsewhere),
            ShelfAnswer::AtStore => Err(Miss::AtStore),
            ShelfAnswer::Wanted => Err(Miss::Wanted),
        }
    }

    /// The version of the copy of a key that may be served at `now_ns`, if there is one. That is no
    /// read.
    pub fn version(&self, hash: u64, key: &[u8], now_ns: Nanos) -> Option<u64> {
        self.with(hash, |shelf| shelf.version(hash, key, now_ns))
    }

    /// Notes something of the copy of a key of this version, if it may be served at `now_ns`, for
    /// as long as that is kept. Whether it did.
    pub fn note(&self, hash: u64, key: &[u8], now_ns: Nanos, note: (u64, CopyNote)) -> bool {
        self.with(hash, |shelf| shelf.note(hash, key, now_ns, note))
    }

    /// A key that is wanted cannot be fetched before `until_ns`, which is not for its store to
    /// change.
    pub fn put_off(&self, hash: u64, key: &[u8], until_ns: Nanos) {
        self.put_off_for(hash, key, until_ns, PutOff::Fruitless);
    }

    pub(crate) fn put_off_for(&self, hash: u64, key: &[u8], until_ns: Nanos, why: PutOff) {
        self.with(hash, |shelf| shelf.put_off(hash, key, until_ns, why));
    }

    /// Bytes that are kept, and keys of which there is a value.
    pub fn kept(&self) -> (usize, usize) {
        let mut sum = (0, 0);
        self.each(|shelf| {
            let (bytes, keys) = shelf.kept();
            sum = (sum.0 + bytes, sum.1 + keys);
        });
        sum
    }

    /// Forgets all of it.
    pub fn clear(&self) {
        self.each(Shelf::clear);
    }

    /// Of each store the keys with most reads that it does not know of, so many at most; the stores
    /// are told of them now.
    pub(crate) fn take_untold(&self, stores: usize, most: usize) -> Vec<Vec<ToldReads>> {
        let mut hottest: Vec<BinaryHeap<Reverse<ToldReads>>> = vec![BinaryHeap::new(); stores];
        self.each(|shelf| {
            for UntoldReads { store, hash, key, reads } in shelf.untold() {
                let Some(hottest) = hottest.get_mut(store) else { continue };
                let least = hottest.peek().map_or(0, |Reverse(least)| least.reads);
                if hottest.len() < most || reads > least {
                    hottest.push(Reverse(ToldReads { reads, hash, key: key.into() }));
                    if hottest.len() > most {
                        hottest.pop();
                    }
                }
            }
        });
        let told = hottest.into_iter().map(|hottest| {
            let told: Vec<ToldReads> = hottest.into_iter().map(|Reverse(told)| told).collect();
            for ToldReads { reads, hash, key } in &told {
                self.with(*hash, |shelf| shelf.told(*hash, key, *reads));
            }
            told
        });
        told.collect()
    }

    /// The longest value that is kept, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// How many bytes values may have in all of which parts are here and others are not.
    pub(crate) fn most_under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn with<R>(&self, hash: u64, work: impl FnOnce(&mut Shelf) -> R) -> R {
        let at = (hash >> 48) as usize % self.shelves.len();
        work(&mut self.shelves[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn each(&self, mut work: impl FnMut(&mut Shelf)) {
        for shelf in &self.shelves {
            work(&mut shelf.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A store's lease is this from now on, on every shelf.
    pub(crate) fn set_lease(&self, store: usize, lease: &BorrowedLease) {
        self.each(|shelf| shelf.set_lease(store, lease));
    }
}
