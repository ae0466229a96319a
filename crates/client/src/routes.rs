use std::net::SocketAddr;

use wire::{Cluster, KeyHash, partition_of};

/// The partition map, ready for lookups: a binary search over the stores' ranges.
pub(crate) struct Routes {
    partitions: u32,
    /// (last partition, address), ascending.
    ranges: Vec<(u32, SocketAddr)>,
}

impl Routes {
    pub fn new(cluster: &Cluster) -> Routes {
        let mut ranges: Vec<_> = cluster.stores.iter().map(|s| (s.last, s.address)).collect();
        ranges.sort_unstable();
        Routes {
            partitions: cluster.partitions,
            ranges,
        }
    }

    /// Where the owner of a key with this hash listens. The cluster was checked to leave no gap.
    pub fn store_of(&self, hash: KeyHash) -> SocketAddr {
        let partition = partition_of(hash, self.partitions);
        let at = self.ranges.partition_point(|(last, _)| *last < partition);
        self.ranges[at.min(self.ranges.len() - 1)].1
    }

    /// Whether some store listens on an address of this family.
    pub fn has_family(&self, v6: bool) -> bool {
        self.ranges
            .iter()
            .any(|(_, address)| address.is_ipv6() == v6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Secret, Store};

    #[test]
    fn agrees_with_the_cluster() {
        let store = |port, first, last| Store {
            address: ([127, 0, 0, 1], port).into(),
            first,
            last,
        };
        let cluster = Cluster {
            stores: vec![store(3, 60, 99), store(1, 0, 9), store(2, 10, 59)],
            ..Cluster::single(([127, 0, 0, 1], 1).into(), 100)
        };
        let routes = Routes::new(&cluster);
        for i in 0..1000u32 {
            let hash = Secret::NONE.key_hash(0, &i.to_be_bytes());
            assert_eq!(routes.store_of(hash), cluster.store_of(hash).address);
        }
    }
}
