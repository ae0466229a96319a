use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use wire::{Cluster, KeyHash, partition_of};

use crate::window::WriteWindow;

/// The partition map, ready for lookups: a binary search over the stores' ranges.
pub(crate) struct Routes {
    partitions: u32,
    /// In ascending order.
    ranges: Vec<Range>,
}

/// One store's entry in the cluster file.
pub(crate) struct Range {
    last: u32,
    /// Where the store listens.
    pub store: SocketAddr,
    /// The writes in flight to it.
    pub writes: Arc<WriteWindow>,
}

impl Routes {
    pub fn new(cluster: &Cluster) -> Routes {
        // A store may own several ranges; it still is one store with one memory of our writes.
        let mut windows: HashMap<SocketAddr, Arc<WriteWindow>> = HashMap::new();
        let range = |&wire::Store {
                         address: store,
                         last,
                         ..
                     }: &wire::Store| {
            let writes = windows
                .entry(store)
                .or_insert_with(|| Arc::new(WriteWindow::new()));
            Range {
                last,
                store,
                writes: writes.clone(),
            }
        };
        let mut ranges: Vec<_> = cluster.stores.iter().map(range).collect();
        ranges.sort_unstable_by_key(|range| range.last);
        Routes {
            partitions: cluster.partitions,
            ranges,
        }
    }

    /// The owner of a key with this hash. The cluster was checked to leave no gap.
    pub fn owner_of(&self, hash: KeyHash) -> &Range {
        let partition = partition_of(hash, self.partitions);
        let at = self.ranges.partition_point(|range| range.last < partition);
        &self.ranges[at.min(self.ranges.len() - 1)]
    }

    /// Whether some store listens on an address of this family.
    pub fn has_family(&self, v6: bool) -> bool {
        self.ranges.iter().any(|range| range.store.is_ipv6() == v6)
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
            assert_eq!(
                routes.owner_of(hash).store,
                cluster.store_of(0, hash).address
            );
        }
    }
}
