//! Which store has a key.

use hashbrown::HashMap;
use wire::{Cluster, KeyHasher, Secret};

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
        let hash = self.hasher.key_hash(self.tenant, key);
        let store = self.cluster.store_of(self.tenant, hash);
        self.ports.get(&store.address).copied().unwrap_or_default()
    }
}
