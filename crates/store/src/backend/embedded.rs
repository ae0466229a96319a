//! The data in this process's memory, with a limit, eviction and times to live.
//!
//! Slots stand in a slab; a hash table of 4-byte slot numbers finds them. Per item: 56 bytes of
//! slot, about 6 of table, 16 of allocator, and the key and value in one allocation: 1,000,000
//! items of 16 + 128 bytes take some 220 MB. A read touches four cache lines beside the value:
//! table, slot, and the bytes.
//!
//! Eviction is second chance (CLOCK): a hand goes round the slab, spares what was read since it
//! last came by, and skips what is pinned, that is, what switches hold copies of. When a whole
//! search finds nothing to evict, the write is refused with [`Change::Full`] rather than a copy
//! left behind that outlives its key.

use hashbrown::HashTable;

use super::{Answer, Backend, Change, Condition, Item, Key, Put, Ticket};

/// Bytes that one item costs beside its key and value: slot, table and allocator.
const OVERHEAD: u64 = 80;
/// Items that the hand looks at for one eviction before the write is refused.
const MAX_STEPS: usize = 8192;
/// Free slots that stay, however few items there are.
const FREE_SLOTS: usize = 1024;
/// Expired items removed on the way, at most, per write.
const SWEEP_STEPS: usize = 2;
const NS_PER_MS: u64 = 1_000_000;

/// The embedded backend.
#[derive(Default)]
pub struct EmbeddedBackend {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    hand: usize,
    memory_limit: u64,
    memory: u64,
    evicted: u64,
}

#[derive(Default)]
struct Slot {
    /// The key, then the value; empty in a free slot.
    bytes: Box<[u8]>,
    version: u64,
    /// 0: never.
    expires_ns: u64,
    hash: u64,
    tenant: u32,
    key_len: u8,
    referenced: bool,
    pinned: bool,
}

impl Slot {
    fn in_use(&self) -> bool {
        self.key_len > 0
    }

    fn holds(&self, key: Key<'_>) -> bool {
        self.hash == key.hash.low()
            && self.tenant == key.tenant
            && usize::from(self.key_len) == key.bytes.len()
            && self.bytes[..key.bytes.len()] == *key.bytes
    }

    fn expired(&self, now_ns: u64) -> bool {
        self.expires_ns != 0 && self.expires_ns <= now_ns
    }

    fn item(&self, now_ns: u64) -> Item<&[u8]> {
        Item {
            value: &self.bytes[usize::from(self.key_len)..],
            version: self.version,
            expiry_ms: holder::left_ms(self.expires_ns, now_ns),
        }
    }
}

impl EmbeddedBackend {
    /// An empty backend that holds at most `memory_limit` bytes, overhead included.
    pub fn new(memory_limit: u64) -> EmbeddedBackend {
        EmbeddedBackend { memory_limit, ..EmbeddedBackend::default() }
    }

    fn find(&self, key: Key<'_>) -> Option<u32> {
        self.index.find(key.hash.low(), |&at| self.slots[at as usize].holds(key)).copied()
    }

    /// As `find`; what has expired is removed and not found.
    fn find_live(&mut self, key: Key<'_>, now_ns: u64) -> Option<u32> {
        let at = self.find(key)?;
        if self.slots[at as usize].expired(now_ns) {
            self.remove(at);
            return None;
        }
        Some(at)
    }

    fn remove(&mut self, at: u32) {
        let slot = std::mem::take(&mut self.slots[at as usize]);
        self.memory -= slot.bytes.len() as u64 + OVERHEAD;
        if let Ok(entry) = self.index.find_entry(slot.hash, |&other| other == at) {
            entry.remove();
        }
        self.free.push(at);
    }

    /// Evicts until `needed` more bytes fit; `keep` is never evicted. False: nothing more may go.
    fn make_room(&mut self, needed: u64, keep: Option<u32>, now_ns: u64) -> bool {
        let mut steps = 0;
        while self.memory + needed > self.memory_limit {
            // The second time round nothing is spared for having been read.
            if steps >= MAX_STEPS.min(2 * self.index.len()) {
                return false;
            }
            steps += 1;
            if self.visit(keep, now_ns) {
                steps = 0;
            }
        }
        true
    }

    /// Moves the hand on by one item, of which there is one; true if that was evicted.
    fn visit(&mut self, keep: Option<u32>, now_ns: u64) -> bool {
        let mut at = self.hand % self.slots.len();
        while !self.slots[at].in_use() {
            at = (at + 1) % self.slots.len();
        }
        self.hand = at + 1;
        let slot = &mut self.slots[at];
        if keep == Some(at as u32) {
            return false;
        }
        let expired = slot.expired(now_ns);
        if !expired && (slot.pinned || std::mem::take(&mut slot.referenced)) {
            return false;
        }
        self.remove(at as u32);
        self.evicted += u64::from(!expired);
        true
    }

    /// Moves the items together once most slots are free, as when a few large ones took the place
    /// of many: the hand, which passes free slots over, is never to look long for its next item.
    fn close_up(&mut self) {
        if self.free.len() <= FREE_SLOTS.max(self.slots.len() / 2) {
            return;
        }
        let EmbeddedBackend { index, slots, free, hand, .. } = self;
        let passed = (*hand).min(slots.len());
        *hand = slots[..passed].iter().filter(|slot| slot.in_use()).count();
        slots.retain(Slot::in_use);
        free.clear();
        index.clear();
        for (at, slot) in slots.iter().enumerate() {
            index.insert_unique(slot.hash, at as u32, |&at| slots[at as usize].hash);
        }
    }

    /// Looks at a few slots for expired items, so that they do not wait for memory to run out.
    fn sweep(&mut self, now_ns: u64) {
        for _ in 0..SWEEP_STEPS.min(self.slots.len()) {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            if self.slots[at].in_use() && self.slots[at].expired(now_ns) {
                self.remove(at as u32);
            }
        }
    }

    fn write(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        put: &Put<'_>,
        at: Option<u32>,
        now_ns: u64,
    ) -> Change {
        let len = key.bytes.len() + value.len();
        if len as u64 + OVERHEAD > self.memory_limit {
            return Change::TooLarge;
        }
        let replaced = at.map_or(0, |at| self.slots[at as usize].bytes.len() as u64 + OVERHEAD);
        let needed = (len as u64 + OVERHEAD).saturating_sub(replaced);
        if !self.make_room(needed, at, now_ns) {
            return Change::Full;
        }
        let expires_ns =
            if put.ttl_ms == 0 { 0 } else { now_ns + u64::from(put.ttl_ms) * NS_PER_MS };
        let at = at.unwrap_or_else(|| self.insert(key));
        let slot = &mut self.slots[at as usize];
        self.memory += len as u64;
        self.memory -= slot.bytes.len() as u64;
        if slot.bytes.len() == len {
            slot.bytes[key.bytes.len()..].copy_from_slice(value);
        } else {
            let mut bytes = Vec::with_capacity(len);
            bytes.extend_from_slice(key.bytes);
            bytes.extend_from_slice(value);
            slot.bytes = bytes.into_boxed_slice();
        }
        slot.version = put.version;
        slot.expires_ns = expires_ns;
        Change::Done(put.version)
    }

    /// A slot for a key that has none, with no bytes yet.
    fn insert(&mut self, key: Key<'_>) -> u32 {
        let slot = Slot {
            hash: key.hash.low(),
            tenant: key.tenant,
            key_len: key.bytes.len() as u8,
            ..Slot::default()
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(key.hash.low(), at, |&at| slots[at as usize].hash);
        self.memory += OVERHEAD;
        at
    }

    fn check(&self, condition: Condition, at: Option<u32>) -> Result<(), Change> {
        let version = at.map_or(wire::VERSION_ABSENT, |at| self.slots[at as usize].version);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => at.is_none(),
            Condition::Present => at.is_some(),
            Condition::Version(wanted) => at.is_some() && wanted == version,
        };
        if holds { Ok(()) } else { Err(Change::Mismatch(version)) }
    }
}

impl Backend for EmbeddedBackend {
    fn get(&mut self, key: Key<'_>, now_ns: u64, _: Ticket) -> Answer<Option<Item<&[u8]>>> {
        let Some(at) = self.find_live(key, now_ns) else { return Answer::Now(None) };
        let slot = &mut self.slots[at as usize];
        if !slot.referenced {
            slot.referenced = true;
        }
        Answer::Now(Some(self.slots[at as usize].item(now_ns)))
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, _: Ticket) -> Answer<Change> {
        if put.value.is_some() {
            self.close_up();
            self.sweep(now_ns);
        }
        let at = self.find_live(key, now_ns);
        Answer::Now(match (self.check(put.condition, at), put.value, at) {
            (Err(mismatch), ..) => mismatch,
            (Ok(()), Some(value), at) => self.write(key, value, &put, at, now_ns),
            (Ok(()), None, None) => Change::NotFound,
            (Ok(()), None, Some(at)) => {
                self.remove(at);
                Change::Done(put.version)
            }
        })
    }

    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        if let Some(at) = self.find(key) {
            let slot = &mut self.slots[at as usize];
            slot.pinned = pinned;
            // It was read until now, where its copies were.
            slot.referenced |= !pinned;
        }
    }

    fn items(&self) -> Option<u64> {
        Some(self.index.len() as u64)
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.memory)
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::KeyHash;

    use super::*;

    /// Few large items take the place of many small ones, whose slots are left.
    #[test]
    fn slots_that_are_free_are_no_reason_to_refuse_a_write() {
        const SMALL: u32 = 40_000;
        let key = |bytes: &'static [u8]| Key { tenant: 0, hash: KeyHash([bytes[0]; 16]), bytes };
        let mut backend = EmbeddedBackend::new(u64::from(SMALL) * (OVERHEAD + 5));
        let value = Bytes::from_static(b"v");
        let names: Vec<[u8; 4]> = (0..SMALL).map(u32::to_be_bytes).collect();
        let small = |name: &'_ [u8; 4]| {
            let mut hash = [0; 16];
            hash[..4].copy_from_slice(name);
            hash[8..12].copy_from_slice(name);
            KeyHash(hash)
        };
        for name in &names {
            let key = Key { tenant: 1, hash: small(name), bytes: name };
            assert_eq!(backend.put(key, Put::of(&value, 1), 0, 0), Answer::Now(Change::Done(1)));
        }
        let large = Bytes::from(vec![0; SMALL as usize * 40]);
        for name in [b"a", b"b", b"c", b"d"] {
            let change = backend.put(key(name), Put::of(&large, 2), 0, 0);
            assert_eq!(change, Answer::Now(Change::Done(2)), "{name:?}");
        }
        let mut has = |name| backend.get(key(name), 0, 0) != Answer::Now(None);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|name| has(name)), [false, false, true, true]);
        assert!(backend.slots.len() <= 2 * FREE_SLOTS, "{} slots", backend.slots.len());
    }

    #[test]
    fn what_is_moved_together_is_found_and_evicted_as_before() {
        let mut backend = EmbeddedBackend::new(1 << 20);
        let value = Bytes::from_static(b"v");
        let name = |n: u32| n.to_be_bytes();
        let hash =
            |n: u32| KeyHash(u128::from(n).wrapping_mul(0x9e37_79b9 << 64 | 1).to_be_bytes());
        for n in 0..4000 {
            let name = name(n);
            let key = Key { tenant: 1, hash: hash(n), bytes: &name };
            backend.put(key, Put::of(&value, 1), 0, 0);
        }
        for n in (0..4000).filter(|n| n % 4 != 0) {
            let name = name(n);
            let key = Key { tenant: 1, hash: hash(n), bytes: &name };
            let gone = Put { value: None, ..Put::of(&value, 1) };
            backend.put(key, gone, 0, 0);
        }
        backend.close_up();
        assert_eq!((backend.slots.len(), backend.index.len()), (1000, 1000));
        assert_eq!(backend.memory, 1000 * (OVERHEAD + 5));
        for n in 0..4000 {
            let name = name(n);
            let key = Key { tenant: 1, hash: hash(n), bytes: &name };
            let found = backend.get(key, 0, 0) != Answer::Now(None);
            assert_eq!(found, n % 4 == 0, "{n}");
        }
    }

    #[test]
    fn what_switches_read_until_now_is_no_older_than_what_was_read_here() {
        let key = |bytes: &'static [u8]| Key { tenant: 0, hash: KeyHash([bytes[0]; 16]), bytes };
        let mut backend = EmbeddedBackend::new(3 * (OVERHEAD + 2));
        let value = Bytes::from_static(b"v");
        for bytes in [b"a", b"b", b"c"] {
            backend.put(key(bytes), Put::of(&value, 1), 0, 0);
        }
        backend.pin(key(b"a"), true);
        backend.pin(key(b"a"), false);
        backend.put(key(b"d"), Put::of(&value, 1), 0, 0);
        let mut has = |bytes| backend.get(key(bytes), 0, 0) != Answer::Now(None);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|bytes| has(bytes)), [true, false, true, true]);
    }
}
