//! Which store has a key.

use hashbrown::HashMap;
use wire::{Cluster, KeyHasher, Scheme, Secret, partition_of};

/// Keys of one place may stand in one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyPlace {
    /// The number of the RESP port of the key's store.
    pub port: usize,
    /// Before a Redis Cluster, whose nodes go by that, its slot.
    slot: Option<u32>,
}

/// Which of the stores' RESP ports leads to a key's store, of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    cluster: Cluster,
    tenant: u32,
    hasher: KeyHasher,
    /// Numbers of RESP ports by the addresses of their stores.
    ports: HashMap<std::net::SocketAddr, usize>,
}

impl Owners {
    /// `ports`: of each store of the cluster, in its order, the number of its RESP port.
    pub fn new(cluster: &Cluster, tenant: u32, ports: &[usize]) -> Owners {
        let stores = cluster.stores.iter().zip(ports);
        let secrets = cluster.secrets_of(tenant);
        Owners {
            cluster: cluster.clone(),
            tenant,
            hasher: secrets.map_or(Secret::NONE.into(), |secrets| secrets.hash),
            ports: stores.map(|(store, port)| (store.address, *port)).collect(),
        }
    }

    /// The number of the RESP port of a key's store.
    pub fn port_of(&self, key: &[u8]) -> usize {
        self.place_of(key).port
    }

    /// Whether keys are in slots of a Redis Cluster.
    pub fn have_slots(&self) -> bool {
        self.cluster.scheme == Scheme::RedisCluster
    }

    /// Where a key is, as far as commands of several keys go by it.
    pub fn place_of(&self, key: &[u8]) -> KeyPlace {
        let hash = self.hasher.key_hash(self.tenant, key);
        let partition = partition_of(hash, self.cluster.partitions);
        let store = self.cluster.store_of_partition(self.tenant, partition);
        let port = self.ports.get(&store.address).copied().unwrap_or_default();
        let slot = self.have_slots().then_some(partition);
        KeyPlace { port, slot }
    }
}
