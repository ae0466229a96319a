//! The versions of the keys that this store wrote, which no backend of another process remembers.

use std::collections::VecDeque;

use hashbrown::HashMap;
use wire::KeyHash;

use crate::backend::Key;

/// The versions of keys written here, as many as may be remembered. The rest report the floor,
/// which is at least every version forgotten: a version once reported never comes to stand for
/// another value.
pub(super) struct Versions {
    known: HashMap<(u32, KeyHash), u64>,
    order: VecDeque<((u32, KeyHash), u64)>,
    floor: u64,
    limit: usize,
}

impl Versions {
    pub fn new(floor: u64, limit: usize) -> Versions {
        Versions { known: HashMap::new(), order: VecDeque::new(), floor, limit }
    }

    pub fn of(&self, key: Key<'_>) -> u64 {
        self.known.get(&(key.tenant, key.hash)).copied().unwrap_or(self.floor)
    }

    pub fn set(&mut self, key: Key<'_>, version: u64) {
        self.put((key.tenant, key.hash), version);
    }

    /// A key has another version, if it still has this one; whether it had.
    pub fn raise(&mut self, id: (u32, KeyHash), from: u64, to: u64) -> bool {
        let present = self.known.get(&id).copied().unwrap_or(self.floor);
        let applies = present == from;
        if applies {
            self.put(id, to);
        }
        applies
    }

    pub fn put(&mut self, id: (u32, KeyHash), version: u64) {
        self.known.insert(id, version);
        self.order.push_back((id, version));
        while self.known.len() > self.limit || self.order.len() > 2 * self.limit {
            let Some((id, version)) = self.order.pop_front() else { break };
            // A key written again since stands further back with its newer version.
            if self.known.get(&id) == Some(&version) {
                self.known.remove(&id);
                self.floor = self.floor.max(version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key<'static> {
        Key { tenant: 0, hash: KeyHash([n; 16]), bytes: b"k" }
    }

    #[test]
    fn forgetting_a_version_raises_what_unknown_keys_report() {
        let mut versions = Versions::new(10, 2);
        assert_eq!(versions.of(key(1)), 10);
        versions.set(key(1), 11);
        versions.set(key(2), 12);
        versions.set(key(1), 13);
        versions.set(key(3), 14);
        assert_eq!(versions.of(key(1)), 13, "written again since: kept");
        assert_eq!(versions.of(key(2)), 12, "forgotten: the floor is its version");
        assert_eq!(versions.of(key(9)), 12);
    }

    #[test]
    fn a_version_is_raised_unless_the_key_was_written_since() {
        let mut versions = Versions::new(10, 5);
        let id = (0, key(1).hash);
        assert!(versions.raise(id, 10, 11));
        assert!(!versions.raise(id, 10, 12));
        assert_eq!(versions.of(key(1)), 11);
        versions.set(key(1), 13);
        assert!(!versions.raise(id, 11, 14));
        assert_eq!(versions.of(key(1)), 13);
    }
}
