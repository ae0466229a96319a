//! When values' lives are over, to the millisecond: memcached counts seconds.
//!
//! A value is known by its key and by the number that memcached gave it (CAS), so that nothing here
//! is taken for the end of a value that another client has written since.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::maps::HashMap;

/// Lives that are remembered, at most.
const MOST: usize = 500_000;

#[derive(Clone, Copy)]
struct Life {
    cas: u64,
    ends_ns: u64,
}

/// The ends of lives, by the names that keys have in memcached. What is forgotten, for there are
/// too many, or with the store, lives by memcached's own clock: up to two seconds longer. Those
/// that last longest are forgotten first. Clones know the same lives.
#[derive(Clone, Default)]
pub(super) struct Lives(Arc<Mutex<HashMap<Box<[u8]>, Life>>>);

impl Lives {
    /// A value with this number has a life that ends then.
    pub fn begin(&self, name: &[u8], cas: u64, ends_ns: u64, now_ns: u64) {
        let mut lives = self.all();
        if lives.len() >= MOST {
            make_room(&mut lives, now_ns, MOST / 2);
        }
        lives.insert(name.into(), Life { cas, ends_ns });
    }

    /// The key has no value, or one whose life does not end, or ends when memcached says.
    pub fn forget(&self, name: &[u8]) {
        self.all().remove(name);
    }

    /// Another server is there, which numbers its values anew: none of them is one of these.
    pub fn forget_all(&self) {
        self.all().clear();
    }

    /// What remains of a value's life, 0 if it is over; `None`: its end is not known.
    pub fn left_ns(&self, name: &[u8], cas: u64, now_ns: u64) -> Option<u64> {
        let life = self.all().get(name).copied().filter(|life| life.cas == cas)?;
        Some(life.ends_ns.saturating_sub(now_ns))
    }

    /// The number of a key's value whose life is over; it is forgotten.
    pub fn take_ended(&self, name: &[u8], now_ns: u64) -> Option<u64> {
        let mut lives = self.all();
        let cas = lives.get(name).filter(|life| life.ends_ns <= now_ns)?.cas;
        lives.remove(name);
        Some(cas)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what memcached has forgotten by now as well, and so many lives are left at most.
fn make_room(lives: &mut HashMap<Box<[u8]>, Life>, now_ns: u64, most: usize) {
    /// memcached's clock is behind by so much at most.
    const BEHIND_NS: u64 = 3_000_000_000;
    lives.retain(|_, life| life.ends_ns + BEHIND_NS > now_ns);
    if lives.len() > most {
        let mut ends: Vec<u64> = lives.values().map(|life| life.ends_ns).collect();
        let (_, last, _) = ends.select_nth_unstable(most);
        let last = *last;
        lives.retain(|_, life| life.ends_ns < last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_its_values_and_ends_on_time() {
        let lives = Lives::default();
        lives.begin(b"k", 7, 100, 0);
        assert_eq!(lives.left_ns(b"k", 7, 30), Some(70));
        assert_eq!(lives.left_ns(b"k", 8, 30), None, "another value");
        assert_eq!(lives.left_ns(b"j", 7, 30), None);
        assert_eq!(lives.take_ended(b"k", 99), None);
        assert_eq!(lives.left_ns(b"k", 7, 101), Some(0));
        assert_eq!(lives.take_ended(b"k", 100), Some(7));
        assert_eq!(lives.take_ended(b"k", 100), None, "it is over once");
        lives.begin(b"k", 9, 200, 100);
        lives.forget(b"k");
        assert_eq!(lives.left_ns(b"k", 9, 100), None);
    }

    #[test]
    fn what_is_long_over_and_what_lasts_longest_is_forgotten() {
        const S: u64 = 1_000_000_000;
        let lives = Lives::default();
        for n in 0..100u64 {
            lives.begin(&n.to_be_bytes(), 1, n * S, 0);
        }
        make_room(&mut lives.all(), 10 * S, 50);
        let ends: Vec<u64> =
            (0..100u64).filter(|n| lives.left_ns(&n.to_be_bytes(), 1, 10 * S).is_some()).collect();
        assert_eq!(ends, (8..58).collect::<Vec<u64>>());
    }
}
