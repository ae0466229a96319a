//! Which store a key's requests go to.
//!
//! Built once from the cluster file when a client is made ([`crate::rules`]), and asked by every
//! call: so it costs a search in one array and no lock.

use std::{net::SocketAddr, sync::Arc};

use wire::{Cluster, KeyHash, partition_of};

/// The partition map, ready for lookups: a binary search over the stores' ranges.
pub(crate) struct Routes {
    partitions: u32,
    /// In ascending order.
    ranges: Vec<Range>,
    /// For a tenant that may use some stores only: a range of each, in the order of the
    /// tenant's list.
    instead: Vec<usize>,
    /// Where the stores of the cluster file listen, in its order.
    pub stores: Arc<[SocketAddr]>,
    /// Number of stores; each has a window for the writes in flight to it.
    pub windows: usize,
}

/// One store's entry in the cluster file.
pub(crate) struct Range {
    last: u32,
    /// Whether the tenant may use the store.
    allowed: bool,
    /// Where the store listens.
    pub store: SocketAddr,
    /// Its number, below [`Routes::windows`].
    pub window: usize,
}

impl Routes {
    pub fn new(cluster: &Cluster, tenant: u32) -> Routes {
        let only = cluster.tenant(tenant).map_or(&[][..], |t| &t.stores);
        // A store may own several ranges; it still is one store with one memory of our writes.
        let mut stores: Vec<SocketAddr> = cluster.stores.iter().map(|s| s.address).collect();
        stores.sort_unstable();
        stores.dedup();
        let range = |&wire::Store { address: store, last, .. }: &wire::Store| Range {
            last,
            allowed: only.is_empty() || only.contains(&store),
            store,
            window: stores.partition_point(|other| *other < store),
        };
        let mut ranges: Vec<_> = cluster.stores.iter().map(range).collect();
        ranges.sort_unstable_by_key(|range| range.last);
        let range_of = |store: &SocketAddr| {
            let at = ranges.iter().position(|range| range.store == *store);
            at.expect("a tenant's stores are in the list: checked on parsing")
        };
        Routes {
            partitions: cluster.partitions,
            stores: cluster.stores.iter().map(|s| s.address).collect(),
            instead: only.iter().map(range_of).collect(),
            windows: stores.len(),
            ranges,
        }
    }

    /// The store of a key with this hash, as [`Cluster::store_of`] says. The cluster was checked to
    /// leave no gap.
    pub fn store_of(&self, hash: KeyHash) -> &Range {
        let partition = partition_of(hash, self.partitions);
        let at = self.ranges.partition_point(|range| range.last < partition);
        let owner = &self.ranges[at.min(self.ranges.len() - 1)];
        if owner.allowed {
            return owner;
        }
        &self.ranges[self.instead[partition as usize % self.instead.len()]]
    }

    /// Whether some store listens on an address of this family.
    pub fn has_family(&self, v6: bool) -> bool {
        self.ranges.iter().any(|range| range.store.is_ipv6() == v6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Secret, Store, Tenant};

    #[test]
    fn agrees_with_the_cluster() {
        let store = |port, first, last| Store::new(([127, 0, 0, 1], port).into(), first, last);
        let mut cluster = Cluster {
            stores: vec![store(3, 60, 99), store(1, 0, 9), store(2, 10, 59)],
            ..Cluster::single(([127, 0, 0, 1], 1).into(), 100)
        };
        for (id, ports) in [(7, &[3, 1][..]), (8, &[2]), (9, &[])] {
            let stores = ports.iter().map(|port| ([127, 0, 0, 1], *port).into());
            cluster
                .tenants
                .push(Tenant { stores: stores.collect(), ..Tenant::new(id, "09".repeat(16)) });
        }
        for tenant in [0, 7, 8, 9] {
            let routes = Routes::new(&cluster, tenant);
            for i in 0..1000u32 {
                let hash = Secret::NONE.key_hash(tenant, &i.to_be_bytes());
                let store = cluster.store_of(tenant, hash).address;
                assert_eq!(routes.store_of(hash).store, store, "tenant {tenant}");
            }
        }
    }
}
