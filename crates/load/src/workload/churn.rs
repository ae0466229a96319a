use lab::random::{LabRng, rng};
use rand::{RngExt, seq::SliceRandom};
use serde::{Deserialize, Serialize};

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
}

impl ChurnKind {
    /// `hot-in`, `random`, `hot-out`.
    pub fn name(self) -> &'static str {
        match self {
            ChurnKind::HotIn => "hot-in",
            ChurnKind::Random => "random",
            ChurnKind::HotOut => "hot-out",
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
pub struct Permutation {
    key_of_rank: Vec<u32>,
}

impl Permutation {
    /// A random assignment of `n` keys to ranks; the same seed gives the same one.
    pub fn new(n: usize, seed: u64) -> Permutation {
        let mut key_of_rank: Vec<u32> = (0..n as u32).collect();
        key_of_rank.shuffle(&mut rng(seed, "permutation"));
        Permutation { key_of_rank }
    }

    /// The key of a rank (0 is the hottest).
    #[inline]
    pub fn key(&self, rank: u32) -> u32 {
        self.key_of_rank[rank as usize]
    }

    /// Keys from the hottest to the coldest.
    pub fn keys(&self) -> &[u32] {
        &self.key_of_rank
    }

    /// Changes which keys are hot. Counts above the number of keys are cut off.
    pub fn change(&mut self, churn: Churn, rng: &mut LabRng) {
        let n = self.key_of_rank.len();
        let count = churn.count.min(n);
        match churn.kind {
            ChurnKind::HotIn => self.key_of_rank.rotate_right(count),
            ChurnKind::HotOut => self.key_of_rank.rotate_left(count),
            ChurnKind::Random => {
                let among = churn.among.clamp(count, n);
                if among == n {
                    return;
                }
                let mut top: Vec<usize> = (0..among).collect();
                let (chosen, _) = top.partial_shuffle(rng, count);
                for rank in chosen {
                    let other = rng.random_range(among..n);
                    self.key_of_rank.swap(*rank, other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ordered(n: usize) -> Permutation {
        Permutation {
            key_of_rank: (0..n as u32).collect(),
        }
    }

    #[test]
    fn hot_in_and_hot_out_by_hand() {
        let mut rng = rng(1, "churn");
        let mut p = ordered(5);
        p.change(
            Churn {
                kind: ChurnKind::HotIn,
                count: 2,
                among: 0,
            },
            &mut rng,
        );
        assert_eq!(p.keys(), [3, 4, 0, 1, 2]);
        p.change(
            Churn {
                kind: ChurnKind::HotOut,
                count: 1,
                among: 0,
            },
            &mut rng,
        );
        assert_eq!(p.keys(), [4, 0, 1, 2, 3]);
    }

    #[test]
    fn random_replaces_that_many_of_the_top() {
        let mut p = ordered(1000);
        p.change(
            Churn {
                kind: ChurnKind::Random,
                count: 20,
                among: 100,
            },
            &mut rng(3, "churn"),
        );
        assert_eq!(
            p.keys()[..100].iter().filter(|key| **key >= 100).count(),
            20
        );
    }

    proptest! {
        #[test]
        fn stays_a_bijection(n in 1usize..300, seed: u64, count in 0usize..400, among in 0usize..400) {
            let mut rng = rng(seed, "churn");
            let mut p = Permutation::new(n, seed);
            for kind in [ChurnKind::HotIn, ChurnKind::Random, ChurnKind::HotOut] {
                p.change(Churn { kind, count, among }, &mut rng);
                let mut keys = p.keys().to_vec();
                keys.sort_unstable();
                prop_assert_eq!(keys, (0..n as u32).collect::<Vec<_>>());
            }
        }
    }
}
