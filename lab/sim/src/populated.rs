//! Data that is there without memory: keys as [`emulated::Populate`] makes them, each value worked
//! out when it is read.
//!
//! Keys that were written, removed or pinned are in an embedded backend, which from then on answers
//! for them. So a store of 10^8 keys costs what was touched of it.

use bytes::Bytes;
use hashbrown::HashSet;
use store::backend::{Answer, Backend, Change, Item, Key, Put, Ticket, embedded::EmbeddedBackend};
use wire::Lengths;

const PREFIX: &[u8] = b"key";
const DIGITS: usize = 13;

/// The backend.
pub struct PopulatedBackend {
    tenant: u32,
    count: u64,
    lengths: Lengths,
    version: u64,
    touched: HashSet<u64>,
    written: EmbeddedBackend,
    /// The value that was read last.
    value: Vec<u8>,
}

impl PopulatedBackend {
    /// The first `count` keys of a tenant, with values of these lengths at this version; what is
    /// written takes at most `memory_limit` bytes.
    pub fn new(
        tenant: u32,
        count: u64,
        lengths: Lengths,
        version: u64,
        memory_limit: u64,
    ) -> PopulatedBackend {
        PopulatedBackend {
            tenant,
            count,
            lengths,
            version,
            touched: HashSet::new(),
            written: EmbeddedBackend::new(memory_limit),
            value: vec![],
        }
    }

    /// The number of a key that is there from the start and was never touched.
    fn untouched(&self, key: Key<'_>) -> Option<u64> {
        let digits = key.bytes.strip_prefix(PREFIX)?;
        if key.tenant != self.tenant || digits.len() != DIGITS {
            return None;
        }
        let mut number = 0;
        for digit in digits {
            number = number * 10 + u64::from(char::from(*digit).to_digit(10)?);
        }
        (number < self.count && !self.touched.contains(&number)).then_some(number)
    }

    fn fill(&mut self, key: Key<'_>) {
        let len = self.lengths.of(key.hash);
        self.value.clear();
        self.value.reserve(len);
        while self.value.len() < len {
            let rest = key.bytes.len().min(len - self.value.len());
            self.value.extend_from_slice(&key.bytes[..rest]);
        }
    }

    /// Has a key answered for by the embedded backend. False: it has no room.
    fn touch(&mut self, key: Key<'_>, now_ns: u64) -> bool {
        let Some(number) = self.untouched(key) else { return true };
        self.fill(key);
        let value = Bytes::copy_from_slice(&self.value);
        let put = Put::of(&value, self.version);
        let fits = matches!(self.written.put(key, put, now_ns, 0), Answer::Now(Change::Done(_)));
        fits && self.touched.insert(number)
    }
}

impl Backend for PopulatedBackend {
    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        if self.untouched(key).is_none() {
            return self.written.get(key, now_ns, ticket);
        }
        self.fill(key);
        Answer::Now(Some(Item { value: &self.value, version: self.version, expiry_ms: 0 }))
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        if !self.touch(key, now_ns) {
            return Answer::Now(Change::Full);
        }
        self.written.put(key, put, now_ns, ticket)
    }

    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        // What was never touched is not evicted, and its pin would be forgotten when it is.
        self.touch(key, 0);
        self.written.pin(key, pinned);
    }

    fn items(&self) -> Option<u64> {
        let written = self.written.items().unwrap_or(0);
        Some(self.count - self.touched.len() as u64 + written)
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.written.memory_bytes()
    }

    fn evicted(&self) -> u64 {
        self.written.evicted()
    }
}

#[cfg(test)]
mod tests {
    use emulated::Populate;
    use rand::RngExt;
    use seed::rng;
    use store::backend::Condition;
    use wire::Secret;

    use super::*;

    const TENANT: u32 = wire::TENANT_OPEN;

    /// Two backends of the same keys, one of them with memory for all: whatever is done to them,
    /// they answer the same.
    #[test]
    fn nobody_can_tell_it_from_memory() {
        let (count, version) = (40, 7 << 32);
        let lengths: Lengths = "20x1,50x1".parse().unwrap();
        let mut real = EmbeddedBackend::new(1 << 30);
        let populate = Populate { count, value_len: lengths.clone() };
        populate.put_all(&mut real, &Secret::NONE, version, |_| true);
        let mut made = PopulatedBackend::new(TENANT, count, lengths, version, 1 << 30);
        let mut rng = rng(1, "backends");
        for step in 0..20_000 {
            let now_ns = step * 1_000_000;
            let name = format!("key{:013}", rng.random_range(0..count + 10));
            let tenant = if rng.random_range(0..10) == 0 { 3 } else { TENANT };
            let key = Key {
                tenant,
                hash: Secret::NONE.key_hash(tenant, name.as_bytes()),
                bytes: name.as_bytes(),
            };
            let version = version + 1 + step;
            let condition = match rng.random_range(0..5) {
                0 => Condition::Absent,
                1 => Condition::Present,
                2 => Condition::Version(7 << 32),
                _ => Condition::Always,
            };
            match rng.random_range(0..10) {
                0 => {
                    let put = Put {
                        value: Some(&Bytes::from_static(b"written")),
                        ttl_ms: rng.random_range(0..200),
                        condition,
                        version,
                    };
                    assert_eq!(real.put(key, put, now_ns, 0), made.put(key, put, now_ns, 0));
                }
                1 => {
                    let put = Put { condition, ..Put::removal(version) };
                    assert_eq!(real.put(key, put, now_ns, 0), made.put(key, put, now_ns, 0));
                }
                2 => {
                    real.pin(key, true);
                    made.pin(key, true);
                }
                _ => assert_eq!(real.get(key, now_ns, 0), made.get(key, now_ns, 0), "{name}"),
            }
        }
        assert!(made.touched.len() <= count as usize);
    }

    #[test]
    fn many_keys_take_no_memory() {
        let mut made = PopulatedBackend::new(TENANT, 100_000_000, 128.into(), 1, 1 << 20);
        let name = b"key0000099999999";
        let hash = Secret::NONE.key_hash(TENANT, name);
        let key = Key { tenant: TENANT, hash, bytes: name };
        let Answer::Now(Some(item)) = made.get(key, 0, 0) else {
            panic!("it is not there");
        };
        assert_eq!(item.value, name.repeat(8));
        assert_eq!(made.items(), Some(100_000_000));
        assert_eq!(made.memory_bytes(), Some(0));
    }
}
