//! Which stores tenants' keys are on, as disciplines were told.

use std::{collections::BTreeMap, net::SocketAddr};

use decide::Stores;
use wire::{Cluster, KeyHasher, Secret, TENANT_OPEN};

use super::tenants::Tenant;

/// What was told of each tenant.
#[derive(Default)]
pub struct Homes {
    told: BTreeMap<u32, StoresNotice>,
}

struct StoresNotice {
    /// Whom.
    discipline: &'static str,
    stores: Stores,
    /// The tenant has not changed since.
    fresh: bool,
}

impl Homes {
    /// A tenant changed, came or went.
    pub fn changed(&mut self, id: u32) {
        if let Some(told) = self.told.get_mut(&id) {
            told.fresh = false;
        }
    }

    /// A tenant has no room any more: its discipline may forget it, and is told anew before it has
    /// some again.
    pub fn forget(&mut self, id: u32) {
        self.told.remove(&id);
    }

    /// What a tenant's discipline is to be told now, if it is anything new. Takes a step per
    /// partition after a change, else one look-up. `allowed`: the stores that the tenant may use,
    /// if there are any; empty: all.
    pub fn news(
        &mut self,
        id: u32,
        discipline: &'static str,
        tenant: Option<(&Tenant, Vec<SocketAddr>)>,
        cluster: &Cluster,
    ) -> Option<&Stores> {
        let Some((tenant, allowed)) = tenant else {
            self.told.remove(&id);
            return None;
        };
        let before = self.told.get_mut(&id);
        let before = before.filter(|told| told.discipline == discipline);
        let stores = match before {
            Some(told) if told.fresh => return None,
            Some(told) => {
                told.fresh = true;
                Some(&told.stores)
            }
            None => None,
        };
        let now = stores_of(tenant, &allowed, cluster)?;
        if stores == Some(&now) {
            return None;
        }
        let told = StoresNotice { discipline, stores: now, fresh: true };
        self.told.insert(id, told);
        self.told.get(&id).map(|told| &told.stores)
    }
}

/// None: one that is allowed is not the cluster's.
fn stores_of(tenant: &Tenant, allowed: &[SocketAddr], cluster: &Cluster) -> Option<Stores> {
    let addresses: Vec<_> = cluster.stores.iter().map(|s| s.address).collect();
    let home = |partition| {
        let owner = cluster.store_among(allowed, partition)?.address;
        let at = addresses.iter().position(|address| *address == owner)?;
        Some(at as u16)
    };
    let homes = (0..cluster.partitions).map(home).collect::<Option<_>>()?;
    let places = cluster.places();
    // Its secrets were checked when it came.
    let hasher = match tenant.id {
        TENANT_OPEN => KeyHasher::new(Secret::NONE, &places),
        _ => tenant.to_wire().secrets(&places).hash,
    };
    let racks = cluster.stores.iter().map(|store| store.rack);
    let stores = Stores::new(addresses, tenant.id, hasher, homes);
    Some(stores.only(allowed).in_racks(racks))
}
