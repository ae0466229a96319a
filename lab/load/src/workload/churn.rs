//! Which keys are hot, and how that changes while load runs: a source draws ranks, and finds here
//! the keys that have them. Experiments say when which change comes.

use std::collections::HashMap;

use rand::{RngExt, seq::SliceRandom};
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

use super::MOST_IN_MEMORY;

/// How popularity changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChurnKind {
    /// The coldest `count` keys become the hottest; the others cool down in order.
    HotIn,
    /// `count` random keys among the `among` hottest change places with random colder ones.
    Random,
    /// The hottest `count` keys become the coldest; the others heat up in order.
    HotOut,
    /// The hottest `count` keys and the coldest change places; the others stay.
    Swap,
}

impl ChurnKind {
    /// `hot-in`, `random`, `hot-out`, `swap`.
    pub fn name(self) -> &'static str {
        match self {
            ChurnKind::HotIn => "hot-in",
            ChurnKind::Random => "random",
            ChurnKind::HotOut => "hot-out",
            ChurnKind::Swap => "swap",
        }
    }
}

/// One change of popularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Churn {
    /// How.
    pub kind: ChurnKind,
    /// How many keys change.
    pub count: usize,
    /// For `random`: among how many of the hottest they are chosen.
    #[serde(default)]
    pub among: usize,
}

/// Which key has which rank. A bijection, whatever churn does to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The key of each rank.
    Table(Vec<u32>),
    /// For more than [`MOST_IN_MEMORY`] keys: computed from the rank.
    Computed(ComputedPermutation),
}

impl Kind {
    /// The keys of two ranks change places.
    fn swap(&mut self, a: usize, b: usize) {
        match self {
            Kind::Table(keys) => keys.swap(a, b),
            Kind::Computed(computed) => computed.swap(a as u32, b as u32),
        }
    }
}

impl Permutation {
    /// A random assignment of `n` keys to ranks; the same seed gives the same one.
    pub fn new(n: usize, seed: u64) -> Permutation {
        let mut rng = rng(seed, "permutation");
        if n > MOST_IN_MEMORY {
            return Permutation(Kind::Computed(ComputedPermutation::new(n, &mut rng)));
        }
        let mut key_of_rank: Vec<u32> = (0..n as u32).collect();
        key_of_rank.shuffle(&mut rng);
        Permutation(Kind::Table(key_of_rank))
    }

    /// The key of a rank (0 is the hottest).
    #[inline]
    pub fn key(&self, rank: u32) -> u32 {
        match &self.0 {
            Kind::Table(key_of_rank) => key_of_rank[rank as usize],
            Kind::Computed(computed) => computed.key(rank),
        }
    }

    /// How many keys there are.
    fn len(&self) -> usize {
        match &self.0 {
            Kind::Table(key_of_rank) => key_of_rank.len(),
            Kind::Computed(computed) => computed.n as usize,
        }
    }

    /// Keys from the hottest to the coldest.
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len() as u32).map(|rank| self.key(rank))
    }

    /// Changes which keys are hot. Counts above the number of keys are cut off.
    pub fn change(&mut self, churn: Churn, rng: &mut SeededRng) {
        let n = self.len();
        let count = churn.count.min(n);
        match (churn.kind, &mut self.0) {
            (ChurnKind::HotIn, Kind::Table(keys)) => keys.rotate_right(count),
            (ChurnKind::HotIn, Kind::Computed(computed)) => computed.rotate(n - count),
            (ChurnKind::HotOut, Kind::Table(keys)) => keys.rotate_left(count),
            (ChurnKind::HotOut, Kind::Computed(computed)) => computed.rotate(count),
            (ChurnKind::Swap, kind) => {
                let count = count.min(n / 2);
                (0..count).for_each(|rank| kind.swap(rank, n - count + rank));
            }
            (ChurnKind::Random, kind) => {
                let among = churn.among.clamp(count, n);
                if among == n {
                    return;
                }
                let mut top: Vec<usize> = (0..among).collect();
                let (chosen, _) = top.partial_shuffle(rng, count);
                for rank in chosen {
                    let other = rng.random_range(among..n);
                    kind.swap(*rank, other);
                }
            }
        }
    }
}

/// A permutation without a table: a Feistel network, walked until it ends inside the key space;
/// then what churn changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ComputedPermutation {
    n: u32,
    /// Bits of half a number.
    half_bits: u32,
    rounds: [u64; 4],
    /// The number that rank 0 has now.
    first: u32,
    /// Numbers whose keys changed places.
    moved: HashMap<u32, u32>,
}

impl ComputedPermutation {
    fn new(n: usize, rng: &mut SeededRng) -> ComputedPermutation {
        let n = u32::try_from(n).expect("keys are numbered with 32 bits");
        ComputedPermutation {
            n,
            half_bits: (u32::BITS - n.leading_zeros()).div_ceil(2),
            rounds: rng.random(),
            first: 0,
            moved: HashMap::new(),
        }
    }

    /// The number of a rank: ranks turn, numbers keep their keys.
    fn number(&self, rank: u32) -> u32 {
        ((u64::from(self.first) + u64::from(rank)) % u64::from(self.n)) as u32
    }

    fn key(&self, rank: u32) -> u32 {
        assert!(rank < self.n, "rank {rank} of {}", self.n);
        let number = self.number(rank);
        match self.moved.get(&number) {
            Some(key) => *key,
            None => self.scatter(number),
        }
    }

    fn scatter(&self, number: u32) -> u32 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut at = u64::from(number);
        loop {
            let (mut left, mut right) = (at >> self.half_bits, at & mask);
            for round in self.rounds {
                let mixed = (right ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (left, right) = (right, left ^ ((mixed ^ (mixed >> 29)) >> 17) & mask);
            }
            at = left << self.half_bits | right;
            if at < u64::from(self.n) {
                return at as u32;
            }
        }
    }

    fn rotate(&mut self, by: usize) {
        self.first = self.number((by % self.n as usize) as u32);
    }

    fn swap(&mut self, a: u32, b: u32) {
        let (key_a, key_b) = (self.key(a), self.key(b));
        self.moved.insert(self.number(a), key_b);
        self.moved.insert(self.number(b), key_a);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ordered(n: usize) -> Permutation {
        Permutation(Kind::Table((0..n as u32).collect()))
    }

    fn keys(p: &Permutation) -> Vec<u32> {
        p.keys().collect()
    }

    fn computed(n: usize, seed: u64) -> Permutation {
        Permutation(Kind::Computed(ComputedPermutation::new(n, &mut rng(seed, "permutation"))))
    }

    #[test]
    fn hot_in_and_hot_out_by_hand() {
        let mut rng = rng(1, "churn");
        let mut p = ordered(5);
        p.change(Churn { kind: ChurnKind::HotIn, count: 2, among: 0 }, &mut rng);
        assert_eq!(keys(&p), [3, 4, 0, 1, 2]);
        p.change(Churn { kind: ChurnKind::HotOut, count: 1, among: 0 }, &mut rng);
        assert_eq!(keys(&p), [4, 0, 1, 2, 3]);
        p.change(Churn { kind: ChurnKind::Swap, count: 2, among: 0 }, &mut rng);
        assert_eq!(keys(&p), [2, 3, 1, 4, 0]);
    }

    #[test]
    fn random_replaces_that_many_of_the_top() {
        let mut p = ordered(1000);
        p.change(Churn { kind: ChurnKind::Random, count: 20, among: 100 }, &mut rng(3, "churn"));
        assert_eq!(keys(&p)[..100].iter().filter(|key| **key >= 100).count(), 20);
    }

    #[test]
    fn a_computed_permutation_scatters() {
        let (p, n) = (computed(100_000_000, 3), 100_000_000.0);
        assert_ne!(p, computed(100_000_000, 4));
        for first in [0, 5_000_000, 99_000_000] {
            let some: Vec<f64> = (first..first + 10_000).map(|r| f64::from(p.key(r))).collect();
            let mean = some.iter().sum::<f64>() / 1e4 / n;
            assert!((mean - 0.5).abs() < 0.015, "mean {mean}");
            // Neighbours are not neighbours: of 16 buckets, each pair is as likely as any other.
            let bucket = |key: f64| (key / n * 16.0) as usize;
            let mut pairs = [0u32; 256];
            some.windows(2).for_each(|w| pairs[bucket(w[0]) * 16 + bucket(w[1])] += 1);
            let chi: f64 = pairs.iter().map(|c| (f64::from(*c) - 39.06).powi(2) / 39.06).sum();
            assert!((150.0..380.0).contains(&chi), "{chi} for 255 degrees of freedom");
        }
    }

    proptest! {
        #[test]
        fn stays_a_bijection(n in 1usize..300, seed: u64, count in 0usize..400, among in 0usize..400) {
            let mut rng = rng(seed, "churn");
            for mut p in [Permutation::new(n, seed), computed(n, seed)] {
                for kind in [ChurnKind::HotIn, ChurnKind::Random, ChurnKind::HotOut, ChurnKind::Swap] {
                    p.change(Churn { kind, count, among }, &mut rng);
                    let mut keys = keys(&p);
                    keys.sort_unstable();
                    prop_assert_eq!(keys, (0..n as u32).collect::<Vec<_>>());
                }
            }
        }

        /// A computed permutation changes as a table does.
        #[test]
        fn computed_and_table_churn_alike(n in 1usize..300, seed: u64, count in 0usize..400, among in 0usize..400) {
            let mut a = computed(n, seed);
            let mut b = Permutation(Kind::Table(keys(&a)));
            let mut rngs = [rng(seed, "churn"), rng(seed, "churn")];
            for kind in [ChurnKind::HotIn, ChurnKind::Swap, ChurnKind::Random, ChurnKind::HotOut, ChurnKind::Random] {
                a.change(Churn { kind, count, among }, &mut rngs[0]);
                b.change(Churn { kind, count, among }, &mut rngs[1]);
                prop_assert_eq!(keys(&a), keys(&b));
            }
        }
    }
}
