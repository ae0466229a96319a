//! Partitions: which ones this store owns, and how many requests each has had.

use wire::KeyHash;

/// One partition's counters.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    /// Whether this store owns it.
    pub owned: bool,
    /// Requests taken.
    pub served: u64,
    /// Requests dropped because its server had no time for them.
    pub dropped: u64,
}

/// Every partition of the cluster.
#[derive(Debug)]
pub struct Partitions {
    all: Vec<Partition>,
    /// Those that are ours.
    own: Vec<usize>,
}

impl Partitions {
    /// The partitions of a store; `owned` says which are its own.
    pub fn new(count: u32, owned: impl Fn(u32) -> bool) -> Partitions {
        let all: Vec<_> =
            (0..count).map(|i| Partition { owned: owned(i), ..Partition::default() }).collect();
        Partitions { own: (0..all.len()).filter(|at| all[*at].owned).collect(), all }
    }

    /// The partition of a key.
    pub fn at(&self, hash: KeyHash) -> usize {
        wire::partition_of(hash, self.all.len() as u32) as usize
    }

    /// Whether a partition is ours.
    pub fn owns(&self, at: usize) -> bool {
        self.all[at].owned
    }

    /// The partition of ours that pays for a request which another store's partition would: a
    /// server has no more time for having others' keys.
    pub fn in_place_of(&self, at: usize) -> usize {
        let own = self.own.len();
        if own == 0 { at } else { self.own[at % own] }
    }

    /// Counts a request of a partition, taken or dropped.
    pub fn count(&mut self, at: usize, is_taken: bool) {
        let partition = &mut self.all[at];
        partition.served += u64::from(is_taken);
        partition.dropped += u64::from(!is_taken);
    }

    /// Every partition, in order of its number.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_some_of_them_and_others_pay_with_those() {
        let mut partitions = Partitions::new(2, |i| i == 1);
        assert_eq!(partitions.at(KeyHash([0; 16])), 0);
        assert_eq!(partitions.at(KeyHash([0xff; 16])), 1);
        assert!(!partitions.owns(0), "partition 0 is another store's");
        assert!(partitions.owns(1));
        assert_eq!(partitions.in_place_of(0), 1);
        partitions.count(1, true);
        partitions.count(1, false);
        let counts = partitions.iter().map(|p| (p.served, p.dropped));
        assert_eq!(counts.collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    }
}
