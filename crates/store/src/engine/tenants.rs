//! Whom the store knows: each tenant's secrets, and which partitions it holds for it. May change
//! while it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use wire::{
    Cluster, ClusterError, KeyHasher, Secret, Secrets, TENANT_OPEN, TENANT_SYSTEM, maps::HashMap,
};

use crate::{coherence::Nanos, directory::KeyId};

/// A tenant, ready for use.
#[derive(Clone)]
pub(super) struct KnownTenant {
    pub secrets: Secrets,
    /// One bit per partition that is held for this tenant; `None`: those that the store owns.
    held: Option<Box<[u64]>>,
    /// The stores that it may use; none: all.
    stores: Vec<SocketAddr>,
    /// How much later than an answered write its value is here at most; 0: no key is lent.
    pub write_back_ms: u32,
}

impl KnownTenant {
    /// Whether this store holds the tenant's keys of a partition that it `owns` or not.
    pub fn holds(&self, partition: usize, owns: bool) -> bool {
        match &self.held {
            None => owns,
            Some(bits) => bits[partition / 64] >> (partition % 64) & 1 == 1,
        }
    }

    /// Whether the store at this address may have data of the tenant.
    pub fn may_use(&self, store: SocketAddr) -> bool {
        self.stores.is_empty() || self.stores.contains(&store)
    }
}

/// Every tenant, the open one and the system included.
pub(super) struct Tenants {
    known: HashMap<u32, KnownTenant>,
    /// What hashed the keys of tenants that have gone, of which something may be left: copies, or
    /// loans.
    former: BTreeMap<u32, Vec<KeyHasher>>,
}

impl Tenants {
    /// The tenants of a cluster, as the store that is `me` in it sees them; `None`: it owns
    /// everything. Tenants that are the same as `before`, in a cluster of the same stores, need not
    /// be worked out again.
    pub fn new(
        cluster: &Cluster,
        me: Option<SocketAddr>,
        before: Option<(&Cluster, &Tenants)>,
    ) -> Tenants {
        let entries = before.map_or(&[][..], |(cluster, _)| &cluster.tenants);
        let entries: HashMap<u32, &wire::Tenant> = entries.iter().map(|t| (t.id, t)).collect();
        let mut known = HashMap::default();
        let places = cluster.places();
        for id in [TENANT_OPEN, TENANT_SYSTEM] {
            if let Some(secrets) = cluster.secrets_at(id, &places) {
                let known_one =
                    KnownTenant { secrets, held: None, stores: vec![], write_back_ms: 0 };
                known.insert(id, known_one);
            }
        }
        for tenant in &cluster.tenants {
            let same = before.filter(|_| entries.get(&tenant.id) == Some(&tenant));
            let kept = same.and_then(|(_, tenants)| tenants.get(tenant.id).cloned());
            let new = || {
                let held = me.filter(|_| !tenant.stores.is_empty());
                let held = held.map(|me| bits_of(cluster, me, &tenant.stores));
                let secrets = tenant.secrets(&places);
                KnownTenant {
                    secrets,
                    held,
                    stores: tenant.stores.clone(),
                    write_back_ms: tenant.write_back_ms,
                }
            };
            known.insert(tenant.id, kept.unwrap_or_else(new));
        }
        Tenants { known, former: BTreeMap::new() }
    }

    /// A tenant; `None` if it is to be denied.
    pub fn get(&self, id: u32) -> Option<&KnownTenant> {
        self.known.get(&id)
    }

    /// The secret that signs what the store itself says in a tenant's name.
    pub fn tag_of(&self, id: u32) -> Secret {
        self.get(id).map_or(Secret::NONE, |known| known.secrets.tag)
    }

    /// What is different from how it was before. A tenant keeps the seed of its key hashes for
    /// good: with another one it is another tenant, and the removal of the one that had its number
    /// was not heard.
    pub fn changed_from(&self, before: &Tenants) -> TenantChanges {
        let mut changed = TenantChanges::default();
        for (&id, known) in &before.known {
            let after = self.get(id).filter(|after| after.secrets.hash == known.secrets.hash);
            match after {
                Some(after) if after.held != known.held => drop(changed.moved.insert(id)),
                Some(_) => {}
                None => drop(changed.gone.insert(id, known.secrets.hash.seed())),
            }
        }
        changed
    }

    /// Remembers those that were there `before` and have gone; and of those that it remembered
    /// those of whose number something is left.
    pub fn remember(
        &mut self,
        before: &Tenants,
        gone: &BTreeMap<u32, Secret>,
        is_left: impl Fn(u32) -> bool,
    ) {
        let left = before.former.iter().filter(|(id, _)| is_left(**id));
        self.former = left.map(|(id, hashers)| (*id, hashers.clone())).collect();
        for &id in gone.keys() {
            let hashers = self.former.entry(id).or_default();
            hashers.extend(before.get(id).map(|known| known.secrets.hash.clone()));
        }
        for (id, hashers) in &mut self.former {
            let present = self.known.get(id).map(|known| &known.secrets.hash);
            let mut seen: Vec<KeyHasher> = present.cloned().into_iter().collect();
            hashers.retain(|hasher| {
                let is_new = !seen.contains(hasher);
                seen.push(hasher.clone());
                is_new
            });
        }
        self.former.retain(|_, hashers| !hashers.is_empty());
    }

    /// What is called so in a tenant's name: its key, and those of tenants that had its number and
    /// have gone, as far as something of them may be left.
    pub fn ids_of(&self, tenant: u32, key: &[u8]) -> impl Iterator<Item = KeyId> {
        let present = self.known.get(&tenant).map(|known| &known.secrets.hash);
        let present = present.map(|hasher| (tenant, hasher.key_hash(tenant, key)));
        present.into_iter().chain(self.former_ids_of(tenant, key))
    }

    /// Of these only those of tenants that have gone.
    pub fn former_ids_of(&self, tenant: u32, key: &[u8]) -> impl Iterator<Item = KeyId> {
        let hashers = self.former.get(&tenant).into_iter().flatten();
        hashers.map(move |hasher| (tenant, hasher.key_hash(tenant, key)))
    }

    /// The seed of a tenant's key hashes.
    pub fn seed_of(&self, id: u32) -> Option<Secret> {
        Some(self.get(id)?.secrets.hash.seed())
    }

    /// How much later than an answered write its value is here at most; 0: no key of the tenant
    /// is lent.
    pub fn write_back_ns(&self, id: u32) -> Nanos {
        let known = self.get(id);
        u64::from(known.map_or(0, |known| known.write_back_ms)) * 1_000_000
    }

    /// Tenants that may make requests.
    pub fn len(&self) -> usize {
        self.known.len() - usize::from(self.known.contains_key(&TENANT_SYSTEM))
    }
}

/// What another cluster means for tenants.
#[derive(Default)]
pub(super) struct TenantChanges {
    /// Tenants that are there no more, or whose number another one has; each with the seed of its
    /// key hashes.
    pub gone: BTreeMap<u32, Secret>,
    /// Tenants of whose partitions this store has others now.
    pub moved: BTreeSet<u32>,
}

fn bits_of(cluster: &Cluster, me: SocketAddr, stores: &[SocketAddr]) -> Box<[u64]> {
    let mut bits = vec![0; cluster.partitions.div_ceil(64) as usize];
    for partition in 0..cluster.partitions {
        let store = cluster.store_among(stores, partition);
        if store.is_some_and(|store| store.address == me) {
            bits[partition as usize / 64] |= 1 << (partition % 64);
        }
    }
    bits.into()
}

/// Why a store that runs cannot take another cluster in its present one's place.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum UpdateError {
    /// It is not a cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Another number of partitions: keys would have to move.
    #[error(
        "the new cluster has {new} partitions, this store runs with {old}: restart every store to change it"
    )]
    Partitions {
        /// Partitions of the present cluster.
        old: u32,
        /// Partitions of the new one.
        new: u32,
    },
    /// Another scheme, or another pool: keys would have to move.
    #[error(
        "the new cluster assigns keys to partitions by another scheme than this store runs with: restart every store to change it"
    )]
    Scheme,
    /// Other stores, in another order, or other partitions at them.
    #[error(
        "the new cluster's stores, their order or their partitions differ from those that this store runs with: restart every store to change them"
    )]
    Stores,
    /// Leases of another length: who goes by the old one is not asked.
    #[error(
        "the new cluster has another lease_ms or lease_max_ms: restart every store to change them"
    )]
    Leases,
    /// Another system secret: every lease would end.
    #[error(
        "the new cluster has another system_secret: restart the stores and switches to change it"
    )]
    SystemSecret,
    /// Nobody is there to take it.
    #[error("the store has ended")]
    Ended,
}

/// Whether a store that runs with a cluster can take another one in its place.
///
/// # Errors
/// [`UpdateError`], but for [`UpdateError::Ended`].
pub(super) fn check(old: &Cluster, new: &Cluster) -> Result<(), UpdateError> {
    new.check()?;
    if new.partitions != old.partitions {
        return Err(UpdateError::Partitions { old: old.partitions, new: new.partitions });
    }
    if new.places() != old.places() {
        return Err(UpdateError::Scheme);
    }
    // Their order counts: packets name a store by its place.
    if old.stores != new.stores {
        return Err(UpdateError::Stores);
    }
    if (old.lease_ms, old.lease_max_ms) != (new.lease_ms, new.lease_max_ms) {
        return Err(UpdateError::Leases);
    }
    if old.secrets_of(TENANT_SYSTEM) != new.secrets_of(TENANT_SYSTEM) {
        return Err(UpdateError::SystemSecret);
    }
    Ok(())
}
