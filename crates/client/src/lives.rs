//! The lives that writes name (rule 7 of `docs/coherence.md`): a store's own, or that of a single
//! key that a switch answers, or has answered, writes of.

use std::{
    num::NonZeroUsize,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering::Relaxed},
    },
};

use lru::LruCache;
use wire::{Header, KeyHash, LIFE_UNKNOWN};

/// Keys with a life of their own that are remembered: those that were heard of last. One that is
/// forgotten costs its next write a round trip.
const KEYS: NonZeroUsize = NonZeroUsize::new(4096).expect("above 0");

/// What stores, and switches in their place, last said of lives, to one tenant's clients.
pub(crate) struct Lives {
    /// Of each store, by its window.
    stores: Box<[AtomicU16]>,
    keys: Mutex<LruCache<KeyHash, u16>>,
    /// Whether some key ever had one: where there is no write-back, no write takes the lock.
    any_key: AtomicBool,
}

impl Lives {
    /// Of so many stores, none of which was heard of.
    pub fn new(stores: usize) -> Lives {
        Lives {
            stores: (0..stores).map(|_| AtomicU16::new(LIFE_UNKNOWN)).collect(),
            keys: Mutex::new(LruCache::new(KEYS)),
            any_key: AtomicBool::new(false),
        }
    }

    /// The life of the store with this window, as far as is known.
    pub fn of_store(&self, window: usize) -> u16 {
        self.stores[window].load(Relaxed)
    }

    /// The life that a write of this key names, which the store with this window owns.
    pub fn of_key(&self, window: usize, key: &KeyHash) -> u16 {
        let own = self.any_key.load(Relaxed).then(|| self.keys().get(key).copied());
        own.flatten().unwrap_or_else(|| self.of_store(window))
    }

    /// A request about this key that named the life `named` was answered so, by the store with this
    /// window or in its place. An answer that only repeats what was named teaches nothing: it may
    /// be a key's.
    pub fn heard(&self, window: usize, key: &KeyHash, named: u16, reply: &Header) {
        match wire::life_of_key(reply) {
            Some(Some(own)) => {
                self.any_key.store(true, Relaxed);
                self.keys().put(*key, own);
            }
            Some(None) if self.any_key.load(Relaxed) => {
                self.keys().pop(key);
            }
            _ => {}
        }
        if let Some(life) = wire::life_of_store(reply, named) {
            self.stores[window].store(life, Relaxed);
        }
    }

    fn keys(&self) -> MutexGuard<'_, LruCache<KeyHash, u16>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Flags, Op, Status};

    fn key(number: u64) -> KeyHash {
        let mut hash = KeyHash::default();
        hash.0[8..].copy_from_slice(&number.to_be_bytes());
        hash
    }

    fn other_life(life: u16, flags: Flags) -> Header {
        Header { status: Status::OtherLife, flags, life, ..Header::new(Op::WriteReply) }
    }

    #[test]
    fn a_key_has_the_life_that_was_heard_of_until_the_store_takes_it_back() {
        let lives = Lives::new(2);
        lives.heard(1, &key(1), LIFE_UNKNOWN, &other_life(77, Flags::NONE));
        lives.heard(1, &key(1), 77, &other_life(90, Flags::CACHED));
        assert_eq!((lives.of_store(0), lives.of_store(1)), (LIFE_UNKNOWN, 77));
        assert_eq!((lives.of_key(1, &key(1)), lives.of_key(1, &key(2))), (90, 77));
        lives.heard(1, &key(1), 90, &other_life(78, Flags::NONE));
        assert_eq!((lives.of_key(1, &key(1)), lives.of_store(1)), (78, 78));
    }

    #[test]
    fn an_answer_that_repeats_a_keys_life_does_not_make_it_the_stores() {
        let lives = Lives::new(1);
        let ok = |life| Header { life, ..Header::new(Op::WriteReply) };
        lives.heard(0, &key(1), 1, &ok(77));
        lives.heard(0, &key(1), 90, &ok(90));
        assert_eq!(lives.of_store(0), 77);
        lives.heard(0, &key(1), 90, &ok(78));
        assert_eq!(lives.of_store(0), 78);
    }

    #[test]
    fn as_many_keys_are_remembered_as_there_is_room_for() {
        let lives = Lives::new(1);
        let most = KEYS.get() as u64;
        for number in 0..=most {
            lives.heard(0, &key(number), 1, &other_life(90, Flags::CACHED));
            assert_eq!(lives.of_key(0, &key(0)), 90, "asked for all the time");
        }
        assert_eq!(lives.keys().len(), KEYS.get());
        assert_eq!(lives.of_key(0, &key(1)), LIFE_UNKNOWN, "the oldest");
        assert_eq!(lives.of_key(0, &key(most)), 90);
    }
}
