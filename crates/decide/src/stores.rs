//! The stores of a cluster, as a discipline sees them.

use std::net::SocketAddr;

use wire::{KeyHash, KeyHasher, NodeId, partition_of, store_node};

use crate::SwitchId;

/// The stores of a cluster, in the cluster file's order, and which of them a tenant's keys are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stores {
    addresses: Vec<SocketAddr>,
    tenant: u32,
    hasher: KeyHasher,
    /// Of each partition the store that owns it, by its place among the addresses.
    homes: Vec<u16>,
    /// Which places are servers of the tenant.
    servers: Vec<bool>,
    /// Of each place the switch at the top of its rack, or 0.
    racks: Vec<SwitchId>,
}

impl Stores {
    /// Those at these addresses. `hasher` hashes the tenant's keys; `homes` names the owner of each
    /// partition by its place among the addresses.
    ///
    /// # Panics
    /// If there is no partition, or an owner is not among the addresses.
    pub fn new(
        addresses: Vec<SocketAddr>,
        tenant: u32,
        hasher: impl Into<KeyHasher>,
        homes: Vec<u16>,
    ) -> Stores {
        assert!(!homes.is_empty(), "a cluster has a partition at least");
        let known = |home: &u16| usize::from(*home) < addresses.len();
        assert!(homes.iter().all(known), "a partition's owner is a store");
        let first = |(at, address): (usize, &SocketAddr)| !addresses[..at].contains(address);
        let hasher = hasher.into();
        let servers = addresses.iter().enumerate().map(first).collect();
        Stores { racks: vec![0; addresses.len()], addresses, tenant, hasher, homes, servers }
    }

    /// Of these only those at these addresses may have something of the tenant; none are given: all
    /// may.
    pub fn only(mut self, allowed: &[SocketAddr]) -> Stores {
        if !allowed.is_empty() {
            for (is_server, address) in self.servers.iter_mut().zip(&self.addresses) {
                *is_server &= allowed.contains(address);
            }
        }
        self
    }

    /// These are the switches at the tops of their racks, in the order of the addresses; 0: there
    /// is none.
    pub fn in_racks(mut self, racks: impl IntoIterator<Item = SwitchId>) -> Stores {
        self.racks.iter_mut().zip(racks).for_each(|(of, rack)| *of = rack);
        self
    }

    /// The switch at the top of the rack of the store at this place, if the cluster file names one.
    pub fn rack(&self, at: usize) -> Option<SwitchId> {
        self.racks.get(at).copied().filter(|rack| *rack != 0)
    }

    /// Their addresses, in the cluster file's order. One that owns several ranges of partitions
    /// stands here once for each of them; its first place is its number, and the only one that
    /// [`Stores::home_of`] gives.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether the store at this place may have something of the tenant, and the place is its
    /// number: of the places of one store the first is. False if there is no such place.
    pub fn is_server(&self, at: usize) -> bool {
        self.servers.get(at).copied().unwrap_or(false)
    }

    /// The store that a key of the tenant is on, by its place among the addresses.
    pub fn home_of(&self, key: &[u8]) -> usize {
        let hash = self.hash_of(key);
        let partition = partition_of(hash, self.homes.len() as u32);
        usize::from(self.homes[partition as usize])
    }

    /// The hash of a key of the tenant.
    pub fn hash_of(&self, key: &[u8]) -> KeyHash {
        self.hasher.key_hash(self.tenant, key)
    }

    /// The number of the store at this place, as packets name it.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn node(&self, at: usize) -> NodeId {
        assert!(at < self.addresses.len(), "one of the stores");
        store_node(at).expect("a cluster has no more stores than there are numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Secret;

    #[test]
    fn each_key_is_on_one_store_and_each_store_has_keys() {
        let addresses: Vec<SocketAddr> = (1..=3).map(|n| ([10, 0, 0, n], 7117).into()).collect();
        let stores = Stores::new(addresses, 7, Secret([7; 16]), vec![0, 1, 2, 2]);
        let mut keys = [0; 3];
        for n in 0..400 {
            keys[stores.home_of(format!("key {n}").as_bytes())] += 1;
        }
        assert!(keys[0] > 60 && keys[1] > 60 && keys[2] > 140, "{keys:?}");
        assert_eq!(stores.node(2), 0x8002);
    }

    #[test]
    fn servers_are_the_stores_of_the_tenant_each_once() {
        let addresses = [1, 2, 1, 3].map(|n| ([10, 0, 0, n], 7117).into());
        let stores = Stores::new(addresses.to_vec(), 7, Secret([7; 16]), vec![0, 1, 0, 3]);
        let servers = [0, 1, 2, 3, 4].map(|at| stores.is_server(at));
        assert_eq!(servers, [true, true, false, true, false]);
        assert_eq!(stores.clone().only(&[]), stores);
        let only = stores.only(&[([10, 0, 0, 1], 7117).into()]);
        let servers = [0, 1, 2, 3].map(|at| only.is_server(at));
        assert_eq!(servers, [true, false, false, false]);
    }
}
