//! Hash maps whose order can be repeated.
//!
//! Wherever the order of a map reaches a decision, a message or output, the map is one of these.
//! Its order is random, other in every map and process, so that nobody can choose keys that
//! collide; on a thread for which [`seed_for_simulation`] was called it follows from that seed and
//! the map's own history.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use foldhash::{
    SharedSeed,
    fast::{FoldHasher, SeedableRandomState},
};

/// The standard library's map with [`Hashing`]; made by `default()`.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Hashing>;
/// The standard library's set with [`Hashing`]; made by `default()`.
pub type HashSet<K> = std::collections::HashSet<K, Hashing>;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

static SHARED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// The system's random numbers, as the standard library's maps have them.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// Maps that this thread makes from now on have the order of this seed. For simulations only: who
/// knows the seed can choose keys that collide.
pub fn seed_for_simulation(seed: u64) {
    SEED.set(Some(seed));
}

/// Hashes as fast as `hashbrown`'s default, with a seed that a simulation can set.
#[derive(Clone, Debug)]
pub struct Hashing(SeedableRandomState);

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing(match SEED.get() {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => SeedableRandomState::with_seed(random(), &SHARED),
        })
    }
}

impl BuildHasher for Hashing {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Vec<u32> {
        let set: HashSet<u32> = (0..1_000).collect();
        set.into_iter().collect()
    }

    #[test]
    fn orders_differ_unless_a_simulation_asks_for_one() {
        assert_ne!(order(), order());
        let seeded = |seed| {
            let work = move || {
                seed_for_simulation(seed);
                (order(), order())
            };
            std::thread::spawn(work).join().unwrap()
        };
        let (first, second) = seeded(7);
        assert_eq!(first, second);
        assert_eq!(first, seeded(7).0);
        assert_ne!(first, seeded(8).0);
        assert_ne!(order(), order());
    }
}
