//! Whom the store knows: each tenant's secrets, and which partitions it holds for it. May change while it runs.

use std::{collections::BTreeSet, net::SocketAddr};

use wire::{
    Cluster, ClusterError, NodeId, Secret, Secrets, TENANT_OPEN, TENANT_SYSTEM, maps::HashMap,
};

use super::Engine;
use crate::{directory::KeyId, net::Outbox};

/// A tenant, ready for use.
#[derive(Clone)]
pub(super) struct Known {
    pub secrets: Secrets,
    /// One bit per partition that is held for this tenant; `None`: those that the store owns.
    held: Option<Box<[u64]>>,
    /// The stores that it may use; none: all.
    stores: Vec<SocketAddr>,
    /// How much later than an answered write its value is here at most; 0: no key is lent.
    pub write_back_ms: u32,
}

impl Known {
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
    known: HashMap<u32, Known>,
}

impl Tenants {
    /// The tenants of a cluster, as the store that is `me` in it sees them; `None`: it owns everything. Tenants that
    /// are the same as `before`, in a cluster of the same stores, need not be worked out again.
    pub fn new(
        cluster: &Cluster,
        me: Option<SocketAddr>,
        before: Option<(&Cluster, &Tenants)>,
    ) -> Tenants {
        let entries = before.map_or(&[][..], |(cluster, _)| &cluster.tenants);
        let entries: HashMap<u32, &wire::Tenant> = entries.iter().map(|t| (t.id, t)).collect();
        let mut known = HashMap::default();
        for id in [TENANT_OPEN, TENANT_SYSTEM] {
            if let Some(secrets) = cluster.secrets_of(id) {
                let known_one = Known {
                    secrets,
                    held: None,
                    stores: vec![],
                    write_back_ms: 0,
                };
                known.insert(id, known_one);
            }
        }
        for tenant in &cluster.tenants {
            let same = before.filter(|_| entries.get(&tenant.id) == Some(&tenant));
            let kept = same.and_then(|(_, tenants)| tenants.get(tenant.id).cloned());
            let new = || {
                let held = me.filter(|_| !tenant.stores.is_empty());
                let held = held.map(|me| bits_of(cluster, me, &tenant.stores));
                let secrets = tenant.secrets();
                Known {
                    secrets,
                    held,
                    stores: tenant.stores.clone(),
                    write_back_ms: tenant.write_back_ms,
                }
            };
            known.insert(tenant.id, kept.unwrap_or_else(new));
        }
        Tenants { known }
    }

    /// A tenant; `None` if it is to be denied.
    pub fn get(&self, id: u32) -> Option<&Known> {
        self.known.get(&id)
    }

    /// The secret that signs what the store itself says in a tenant's name.
    pub fn tag_of(&self, id: u32) -> Secret {
        self.get(id).map_or(Secret::NONE, |known| known.secrets.tag)
    }

    /// Tenants that may make requests.
    pub fn len(&self) -> usize {
        self.known.len() - usize::from(self.known.contains_key(&TENANT_SYSTEM))
    }
}

fn bits_of(cluster: &Cluster, me: SocketAddr, stores: &[SocketAddr]) -> Box<[u64]> {
    let mut bits = vec![0; cluster.partitions.div_ceil(64) as usize];
    for partition in 0..cluster.partitions {
        if cluster.store_among(stores, partition).address == me {
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
    /// A tenant's keys would hash to other places than those where they are.
    #[error(
        "tenant {0}: the new cluster has another seed for its key hashes; keep hash_secret when the secret changes"
    )]
    HashSecret(u32),
    /// Nobody is there to take it.
    #[error("the store has ended")]
    Ended,
}

fn check(old: &Cluster, new: &Cluster) -> Result<(), UpdateError> {
    new.check()?;
    if new.partitions != old.partitions {
        return Err(UpdateError::Partitions {
            old: old.partitions,
            new: new.partitions,
        });
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

impl Engine {
    /// Whether the store of this number may hold copies of a tenant's keys.
    pub(super) fn may_hold(&self, store: NodeId, tenant: u32) -> bool {
        let store = self.config.cluster.store_numbered(store);
        let known = self.tenants.get(tenant);
        store.is_some_and(|store| known.is_some_and(|known| known.may_use(store.address)))
    }

    /// Takes a cluster with other tenants, which counts from the next packet on. A tenant that is gone is denied, and
    /// everything that went on for it ends without an answer; nobody waits for its copies, so whoever gives its number to
    /// another tenant must first have it removed from every switch. Copies of keys that are another store's from
    /// now on are called back. Keys themselves do not move.
    ///
    /// # Errors
    /// [`UpdateError`]; everything stays as it was then.
    pub fn update(
        &mut self,
        new: Cluster,
        now_ns: u64,
        out: &mut Outbox,
    ) -> Result<(), UpdateError> {
        let old = &self.config.cluster;
        check(old, &new)?;
        let tenants = Tenants::new(&new, self.config.identity, Some((old, &self.tenants)));
        for (id, known) in &self.tenants.known {
            let seed = tenants.get(*id).map(|after| after.secrets.hash);
            if seed.is_some_and(|seed| seed != known.secrets.hash) {
                return Err(UpdateError::HashSecret(*id));
            }
        }
        let before = std::mem::replace(&mut self.tenants, tenants);
        let lent_nothing = self.lends_nothing().is_some();
        std::sync::Arc::make_mut(&mut self.config).cluster = new;
        let (mut gone, mut moved) = (BTreeSet::new(), BTreeSet::new());
        for (id, known) in &before.known {
            match self.tenants.get(*id) {
                None => drop(gone.insert(*id)),
                Some(after) if after.held != known.held => drop(moved.insert(*id)),
                Some(_) => {}
            }
        }
        self.forget_tenants(&gone);
        self.tenants_left(&gone, now_ns, out);
        let tenants = self.tenants.len();
        self.clients.share_among(tenants);
        self.directory.share_among(tenants);
        self.waiting.share_among(tenants);
        self.halves.share_among(tenants);
        self.pending_writes.share_among(tenants);
        self.joins.share_among(tenants);
        self.held.share_among(tenants);
        self.replicas.share_among(tenants);
        self.backend.longest(self.config.cluster.max_value as usize);
        self.recall_moved(&moved, now_ns);
        self.move_replicas(now_ns, out);
        self.loans.share_among(tenants);
        self.recall_unlendable(now_ns, out);
        if let Some(why) = self.lends_nothing().filter(|_| !lent_nothing) {
            tracing::warn!("a tenant has write-back, but no key is lent: {why}");
        }
        Ok(())
    }

    fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|id| self.clients.forget_tenant(*id));
        self.waiting.forget_tenants(|id| gone.contains(&id));
        self.joins.forget_tenants(gone);
        self.held.forget_tenants(gone);
        self.replicas.forget_tenants(gone);
        self.forget_parked(gone);
        for entry in self.directory.remove_tenants(gone) {
            let writes = entry.state.writes();
            self.pending_writes.give_back(entry.id.0, writes);
            self.outside.closed(&entry.id);
            self.backend.pin(entry.named(), false);
        }
    }

    /// Calls back the copies of these tenants' keys that this store holds no longer, some at a time.
    fn recall_moved(&mut self, tenants: &BTreeSet<u32>, now_ns: u64) {
        if tenants.is_empty() {
            return;
        }
        let moved = |(tenant, hash): &KeyId| {
            if !tenants.contains(tenant) {
                return false;
            }
            let at = self.partitions.at(*hash);
            let owns = self.partitions.owns(at);
            let known = self.tenants.get(*tenant);
            known.is_some_and(|known| !known.holds(at, owns))
        };
        let moved: Vec<KeyId> = self.directory.with_copies().filter(moved).collect();
        self.recalls.also(moved, now_ns);
    }
}
