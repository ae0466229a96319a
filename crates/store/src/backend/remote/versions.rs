//! The versions of the keys that this store wrote, which no backend of another process remembers.

use std::{collections::VecDeque, hash::BuildHasher};

use hashbrown::HashMap;
use wire::{KeyHash, maps::Hashing};

use crate::backend::Key;

/// Keys that are not known share this many floors, 32 MiB of them; pages that nothing was forgotten
/// into are never touched.
const FLOORS: usize = 1 << 22;

/// Keys that are looked at with each write while more are known than may be: some of them were
/// written again, and stay.
const LOOKED_AT: usize = 8;

type KeyId = (u32, KeyHash);

/// The versions of keys written here, as many as may be remembered. Any other key has the version
/// of its floor, which is at least every version forgotten of the keys that share it: a version
/// once reported never comes to stand for another value. There are many floors, so that the
/// version of a key stays what it is while others are written: one of theirs that is forgotten
/// moves it once in [`FLOORS`] times.
pub(super) struct Versions {
    known: HashMap<KeyId, u64>,
    /// Each of them once, with a version that it had. A write of a key that is known changes
    /// nothing here: it comes to the end when it is looked at.
    order: VecDeque<(KeyId, u64)>,
    /// Those that something was forgotten into; 0: nothing yet.
    floors: Vec<u64>,
    hashing: Hashing,
    /// At least this: that of a key which was never written.
    first: u64,
    limit: usize,
}

impl Versions {
    pub fn new(first: u64, limit: usize) -> Versions {
        Versions {
            known: HashMap::new(),
            order: VecDeque::new(),
            floors: vec![0; FLOORS],
            hashing: Hashing::default(),
            first,
            limit,
        }
    }

    pub fn of(&self, key: Key<'_>) -> u64 {
        self.of_id((key.tenant, key.hash))
    }

    pub fn set(&mut self, key: Key<'_>, version: u64) {
        self.put((key.tenant, key.hash), version);
    }

    /// A key has another version, if it still has this one; whether it had.
    pub fn raise(&mut self, id: KeyId, from: u64, to: u64) -> bool {
        let applies = self.of_id(id) == from;
        if applies {
            self.put(id, to);
        }
        applies
    }

    /// Every key has this version now, which is higher than all before.
    pub fn forget_all(&mut self, version: u64) {
        self.known.clear();
        self.order.clear();
        self.first = version;
    }

    pub fn put(&mut self, id: KeyId, version: u64) {
        if self.known.insert(id, version).is_none() {
            self.order.push_back((id, version));
        }
        for _ in 0..LOOKED_AT {
            if self.known.len() <= self.limit {
                return;
            }
            let Some((id, version)) = self.order.pop_front() else { return };
            match self.known.get(&id).copied() {
                // Written again since.
                Some(newer) if newer != version => self.order.push_back((id, newer)),
                Some(_) => {
                    self.known.remove(&id);
                    let at = self.floor_of(&id);
                    self.floors[at] = self.floors[at].max(version);
                }
                None => {}
            }
        }
    }

    fn of_id(&self, id: KeyId) -> u64 {
        let known = self.known.get(&id).copied();
        known.unwrap_or_else(|| self.floors[self.floor_of(&id)].max(self.first))
    }

    fn floor_of(&self, id: &KeyId) -> usize {
        self.hashing.hash_one(id) as usize % FLOORS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key<'static> {
        Key { tenant: 0, hash: KeyHash([n; 16]), bytes: b"k" }
    }

    /// The test's own, so that its keys share no floor by chance.
    fn versions(limit: usize) -> Versions {
        wire::maps::seed_for_simulation(1);
        Versions::new(10, limit)
    }

    #[test]
    fn a_forgotten_version_is_what_its_key_reports() {
        let mut versions = versions(2);
        assert_eq!(versions.of(key(1)), 10);
        versions.set(key(1), 11);
        versions.set(key(2), 12);
        versions.set(key(1), 13);
        versions.set(key(3), 14);
        assert_eq!(versions.of(key(1)), 13, "written again since: kept");
        assert_eq!(versions.of(key(2)), 12, "forgotten: its floor is its version");
    }

    #[test]
    fn what_is_written_again_and_again_takes_the_room_of_one_key() {
        let mut versions = versions(2);
        (0..1000).for_each(|n| versions.set(key((n % 2) as u8), 11 + n));
        assert_eq!((versions.known.len(), versions.order.len()), (2, 2));
        (0..1000).for_each(|n| versions.set(key((n % 200) as u8), 2000 + n));
        assert_eq!((versions.known.len(), versions.order.len()), (2, 2));
        assert_eq!(versions.of(key(199)), 2999);
    }

    #[test]
    fn writes_of_others_do_not_move_a_version_that_nobody_remembers() {
        let mut versions = versions(2);
        versions.set(key(1), 11);
        let other = |n: u64| {
            let mut hash = [7; 16];
            hash[..8].copy_from_slice(&n.to_be_bytes());
            (0, KeyHash(hash))
        };
        (0..10_000).for_each(|n| versions.put(other(n), 12 + n));
        assert_eq!(versions.of(key(1)), 11, "written long ago");
        assert_eq!(versions.of(key(9)), 10, "never written");
        assert!((0..10_000).all(|n| versions.of_id(other(n)) >= 12 + n), "none goes back");
    }

    #[test]
    fn when_all_are_forgotten_no_version_of_before_comes_again() {
        let mut versions = versions(2);
        (1..=5).for_each(|n| versions.set(key(n), 10 + u64::from(n)));
        versions.forget_all(20);
        assert!((1..=9).all(|n| versions.of(key(n)) == 20));
        versions.set(key(1), 21);
        assert_eq!((versions.of(key(1)), versions.of(key(2))), (21, 20));
    }

    #[test]
    fn a_version_is_raised_unless_the_key_was_written_since() {
        let mut versions = versions(5);
        let id = (0, key(1).hash);
        assert!(versions.raise(id, 10, 11));
        assert!(!versions.raise(id, 10, 12));
        assert_eq!(versions.of(key(1)), 11);
        versions.set(key(1), 13);
        assert!(!versions.raise(id, 11, 14));
        assert_eq!(versions.of(key(1)), 13);
    }
}
