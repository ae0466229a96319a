//! Writes that go past the store: those of gateways, for what no packet carries.
//!
//! Such a write is announced before it and after it, by deletes on versions that no key ever has ([`wire::VERSION_DIRECT_BEGINS`],
//! [`wire::VERSION_DIRECT_ENDED`]). Each announcement raises the version of the key; and in between no write on the condition of a
//! version takes place, because the store cannot know which value it would replace. So whoever read before the direct write, or
//! while it went on, and writes on the version that he read, learns that the key has changed.
//!
//! An announced write that never ends (its gateway died) is forgotten after [`wire::DIRECT_WRITE_MS`].

use hashbrown::HashMap;
use wire::KeyHash;

use super::Key;

/// Keys of one tenant that are written directly at a time. A tenant that has more waits, no other one.
const KEYS: usize = 4096;
const LIFE_NS: u64 = wire::DIRECT_WRITE_MS as u64 * 1_000_000;

/// The direct writes that go on.
#[derive(Default)]
pub(super) struct DirectWrites {
    tenants: HashMap<u32, HashMap<KeyHash, Open>>,
}

struct Open {
    writers: u32,
    until_ns: u64,
}

impl DirectWrites {
    /// One more begins; false if too many go on.
    pub fn begin(&mut self, key: Key<'_>, now_ns: u64) -> bool {
        let keys = self.tenants.entry(key.tenant).or_default();
        if keys.len() >= KEYS && !keys.contains_key(&key.hash) {
            keys.retain(|_, open| open.until_ns > now_ns);
            if keys.len() >= KEYS {
                return false;
            }
        }
        let open = keys.entry(key.hash).or_insert(Open {
            writers: 0,
            until_ns: 0,
        });
        if open.until_ns <= now_ns {
            open.writers = 0;
        }
        open.writers += 1;
        open.until_ns = now_ns + LIFE_NS;
        true
    }

    /// One has ended.
    pub fn end(&mut self, key: Key<'_>) {
        let Some(keys) = self.tenants.get_mut(&key.tenant) else {
            return;
        };
        if let Some(open) = keys.get_mut(&key.hash) {
            open.writers -= 1;
            if open.writers == 0 {
                keys.remove(&key.hash);
            }
        }
        if keys.is_empty() {
            self.tenants.remove(&key.tenant);
        }
    }

    /// Whether one goes on.
    pub fn go_on(&self, key: Key<'_>, now_ns: u64) -> bool {
        let open = self
            .tenants
            .get(&key.tenant)
            .and_then(|keys| keys.get(&key.hash));
        open.is_some_and(|open| open.until_ns > now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: u32, n: u16) -> Key<'static> {
        let mut hash = KeyHash::default();
        hash.0[..2].copy_from_slice(&n.to_be_bytes());
        Key {
            tenant,
            hash,
            bytes: b"k",
        }
    }

    #[test]
    fn the_last_of_several_ends_it_and_one_that_does_not_end_is_forgotten() {
        let mut writes = DirectWrites::default();
        assert!(writes.begin(key(0, 1), 0) && writes.begin(key(0, 1), 5));
        writes.end(key(0, 1));
        assert!(writes.go_on(key(0, 1), 6));
        writes.end(key(0, 1));
        assert!(!writes.go_on(key(0, 1), 6));
        writes.end(key(0, 1));
        assert!(writes.begin(key(0, 1), 10));
        assert!(writes.go_on(key(0, 1), 9 + LIFE_NS));
        assert!(!writes.go_on(key(0, 1), 10 + LIFE_NS));
        // The forgotten one is not counted with the next.
        assert!(writes.begin(key(0, 1), 20 + LIFE_NS));
        writes.end(key(0, 1));
        assert!(!writes.go_on(key(0, 1), 21 + LIFE_NS));
        assert!(writes.tenants.is_empty());
    }

    #[test]
    fn a_tenant_with_too_many_waits_and_no_other_one() {
        let mut writes = DirectWrites::default();
        for n in 0..KEYS as u16 {
            assert!(writes.begin(key(7, n), 0));
        }
        assert!(!writes.begin(key(7, 9999), 1));
        assert!(writes.begin(key(7, 3), 1), "one that is known");
        assert!(writes.begin(key(8, 9999), 1));
        assert!(
            writes.begin(key(7, 9999), LIFE_NS),
            "the others have been forgotten"
        );
    }
}
