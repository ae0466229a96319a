//! The tenants that a generator asks for: for each its keys, which of them are hot, and what was
//! heard of them. The source has one of these per tenant of its configuration.

use anyhow::Context;
use wire::{Lengths, Secret, TENANT_OPEN, partition_of};

use super::{
    LoadConfig,
    lives::Lives,
    versions::{POPULATED, Versions},
};
use crate::workload::{Key, KeySpace, Permutation, Stamp};

/// One tenant as the generator plays it. All tenants of a generator have keys of the same names, so
/// that whoever mixes them up shows values that the stamp tells apart.
pub(super) struct Tenant {
    pub id: u32,
    pub secret: Secret,
    pub keys: KeySpace,
    lengths: Lengths,
    /// For each partition, its store's place in the cluster's list.
    store_of_partition: Vec<u16>,
    pub permutation: Permutation,
    pub versions: Versions,
    /// If its writes name them.
    pub lives: Option<Lives>,
}

impl Tenant {
    /// Prepares its keys.
    ///
    /// # Errors
    /// The cluster does not list the tenant.
    pub fn new(config: &LoadConfig, id: u32) -> anyhow::Result<Tenant> {
        let (cluster, n) = (&config.cluster, config.keys);
        let secrets = cluster
            .secrets_of(id)
            .with_context(|| format!("load: tenant {id} is not in the cluster's list"))?;
        let keys = KeySpace::new(n, id, &secrets.hash);
        let store_of = |partition| {
            let address = cluster.store_of_partition(id, partition).address;
            let at = cluster.stores.iter().position(|s| s.address == address);
            at.expect("it is one of the cluster's") as u16
        };
        // Each tenant finds other keys hot.
        let own_seed = config.seed ^ u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Tenant {
            store_of_partition: (0..cluster.partitions).map(store_of).collect(),
            permutation: Permutation::new(n, own_seed),
            versions: Versions::new(n),
            lives: config.names_lives.then(|| Lives::new(cluster.stores.len())),
            secret: secrets.tag,
            lengths: config.value_len.clone(),
            id,
            keys,
        })
    }

    /// The length of a key's value, as it was populated, in bytes.
    #[inline]
    pub fn value_len(&self, key: u32) -> usize {
        match &self.lengths {
            Lengths::One(len) => *len,
            mix => mix.of(self.keys.get(key).hash),
        }
    }

    /// The place in the cluster's list of the store that a key belongs to.
    #[inline]
    pub fn store_of(&self, key: &Key) -> usize {
        let partition = partition_of(key.hash, self.store_of_partition.len() as u32);
        self.store_of_partition[partition as usize].into()
    }
}

/// The stamp of a tenant's write number `count`: whose value it is can be told from it.
pub(super) fn stamp(tenant: u32, count: u32) -> Stamp {
    Stamp(u64::from(tenant) << 32 | u64::from(count))
}

/// Whether a value with this stamp is another tenant's. Populated values are the open tenant's.
pub(super) fn is_foreign(tenant: u32, stamp: Stamp) -> bool {
    let owner = if stamp == POPULATED { TENANT_OPEN } else { (stamp.0 >> 32) as u32 };
    owner != tenant
}

#[cfg(test)]
mod tests {
    use wire::Cluster;

    use super::*;

    #[test]
    fn a_stamp_says_whose_it_is() {
        assert!(!is_foreign(7, stamp(7, 1)));
        assert!(is_foreign(8, stamp(7, 1)));
        assert!(!is_foreign(TENANT_OPEN, POPULATED));
        assert!(is_foreign(7, POPULATED));
        assert!(!is_foreign(u32::MAX - 1, stamp(u32::MAX - 1, u32::MAX)));
    }

    #[test]
    fn who_is_not_listed_is_refused() {
        let config = serde_json::json!({
            "cluster": Cluster::single("127.0.0.1:7117".parse().unwrap(), 4),
            "keys": 10, "value_len": 64, "seed": 1,
        });
        let config = serde_json::from_value(config).unwrap();
        let error = Tenant::new(&config, 7).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("tenant 7 is not in the cluster's list"));
    }
}
