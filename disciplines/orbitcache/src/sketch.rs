//! A count-min sketch of five rows (paper, 3.8), of one tenant's reads in one window.

use wire::KeyHash;

const ROWS: usize = 5;
/// Columns of each row; a power of two.
const COLUMNS: usize = 4096;

/// How often keys were read: never too low.
pub struct Sketch {
    rows: Vec<[u32; COLUMNS]>,
    /// Other in each window: keys that meet in one part in the next.
    seed: u64,
}

impl Sketch {
    /// An empty sketch.
    pub fn new(seed: u64) -> Sketch {
        Sketch { rows: vec![[0; COLUMNS]; ROWS], seed }
    }

    /// Counts a read; the estimate of its key's reads. Only the lowest cells rise: others are too
    /// high already.
    pub fn add(&mut self, hash: KeyHash) -> u32 {
        let (a, b) = (wire::mixed(hash.high() ^ self.seed), wire::mixed(hash.low()) | 1);
        let columns: [usize; ROWS] = std::array::from_fn(|row| {
            let at = a.wrapping_add(b.wrapping_mul(row as u64));
            (wire::mixed(at) >> 32) as usize & (COLUMNS - 1)
        });
        let cells = || self.rows.iter().zip(columns);
        let least = cells().map(|(row, at)| row[at]).min().unwrap_or(0);
        let count = least.saturating_add(1);
        for (row, at) in self.rows.iter_mut().zip(columns) {
            row[at] = row[at].max(count);
        }
        count
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fill(0));
        self.seed = wire::mixed(self.seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn hash(n: u32) -> KeyHash {
        wire::Secret([7; 16]).key_hash(1, &n.to_be_bytes())
    }

    proptest! {
        #[test]
        fn it_is_never_too_low(seed in 0u64.., reads in prop::collection::vec(0u32..50, 0..500)) {
            let (mut sketch, mut exact) = (Sketch::new(seed), BTreeMap::new());
            for key in reads {
                let count = exact.entry(key).or_insert(0u32);
                *count += 1;
                prop_assert!(sketch.add(hash(key)) >= *count);
            }
            sketch.clear();
            prop_assert_eq!(sketch.add(hash(1)), 1);
        }
    }

    #[test]
    fn it_is_close_with_ten_times_more_keys_than_columns() {
        let mut sketch = Sketch::new(1);
        (0..40_000).for_each(|key| {
            sketch.add(hash(key));
        });
        let over = (100_000..100_100).map(|key| sketch.add(hash(key)) - 1);
        assert!(over.max().unwrap() <= 15, "a key that was never read");
    }
}
