//! The keys that were read most.

use std::collections::BTreeMap;

use bytes::Bytes;
use decide::Key;
use wire::KeyHash;

/// At most so many keys, those with the highest counts that were ever offered.
#[derive(Default)]
pub struct Top {
    keys: BTreeMap<KeyHash, (Key, u32)>,
    /// The lowest count among them, if there are as many as there may be.
    floor: u32,
}

impl Top {
    /// A key was counted up to `count`; it stays if it is among the `most` highest. For a key that
    /// is not, one comparison.
    pub fn offer(&mut self, key: &[u8], hash: KeyHash, count: u32, most: usize) {
        if count <= self.floor {
            return;
        }
        if let Some((_, known)) = self.keys.get_mut(&hash) {
            let was = std::mem::replace(known, count);
            if was == self.floor && was > 0 {
                self.floor = self.lowest(most);
            }
            return;
        }
        if self.keys.len() >= most {
            let lowest = self.keys.iter().min_by_key(|(_, (_, count))| *count);
            if let Some(lowest) = lowest.map(|(hash, _)| *hash) {
                self.keys.remove(&lowest);
            }
        }
        self.keys.insert(hash, (Bytes::copy_from_slice(key), count));
        self.floor = self.lowest(most);
    }

    fn lowest(&self, most: usize) -> u32 {
        let counts = self.keys.values().map(|(_, count)| *count);
        match self.keys.len() >= most {
            true => counts.min().unwrap_or(0),
            false => 0,
        }
    }

    /// Takes them out, with their counts.
    pub fn take(&mut self) -> Vec<(Key, u32)> {
        self.floor = 0;
        std::mem::take(&mut self.keys).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_the_highest(most in 1usize..8, reads in prop::collection::vec(0u8..20, 0..300)) {
            let (mut top, mut exact) = (Top::default(), BTreeMap::new());
            for key in reads {
                let count = exact.entry(key).or_insert(0u32);
                *count += 1;
                top.offer(&[key], KeyHash([key; 16]), *count, most);
            }
            let mut counts: Vec<u32> = exact.values().copied().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts.truncate(most);
            let mut taken: Vec<u32> = vec![];
            for (key, count) in top.take() {
                prop_assert_eq!(exact[&key[0]], count);
                taken.push(count);
            }
            taken.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(taken, counts);
        }
    }
}
