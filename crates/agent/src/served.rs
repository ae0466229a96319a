//! Whom the switch serves: the controller's last setup, worked out. The parts read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use api::proto::TenantSetup;
use dataplane::TenantEntry;
use decide::{ItemKey, Items, NO_DISCIPLINE, PARAMETERS, Registration};
use wire::{Cluster, KeyHash, OverRate, Secret, Secrets, TENANT_OPEN, TENANT_SYSTEM};

/// What a setup says about one tenant.
pub(super) struct ServedTenant {
    pub secrets: Secrets,
    /// None: its packets are only forwarded.
    pub discipline: Option<&'static Registration>,
    measured: bool,
}

impl ServedTenant {
    /// What its items are, unless its discipline is not known here.
    pub fn items(&self) -> Option<Items> {
        self.discipline.map(|discipline| discipline.items)
    }
}

pub(super) struct ServedCluster {
    pub cluster: Cluster,
    pub tenants: BTreeMap<u32, ServedTenant>,
    /// Slots of the stores' leases.
    pub slots: BTreeMap<SocketAddr, u16>,
}

impl ServedCluster {
    pub fn new(
        cluster: Cluster,
        tenants: &[TenantSetup],
        slots: BTreeMap<SocketAddr, u16>,
        disciplines: &[&'static Registration],
    ) -> ServedCluster {
        let by_name = |name: &str| disciplines.iter().find(|r| r.name == name).copied();
        let here = |setup: &TenantSetup| {
            let here = ServedTenant {
                secrets: cluster.secrets_of(setup.tenant)?,
                discipline: by_name(&setup.discipline),
                measured: setup.measured,
            };
            Some((setup.tenant, here))
        };
        ServedCluster { tenants: tenants.iter().filter_map(here).collect(), cluster, slots }
    }

    /// The tenants whose discipline was another before, of those that had one. `before` has the
    /// numbers of disciplines by tenant, as programs go by them.
    pub fn with_another_discipline(&self, before: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
        let is_another = |(id, here): &(&u32, &ServedTenant)| {
            let before = before.get(id).filter(|before| **before != NO_DISCIPLINE);
            let now = here.discipline.map(|discipline| discipline.number);
            before.zip(now).is_some_and(|(before, now)| *before != now)
        };
        self.tenants.iter().filter(is_another).map(|(id, _)| *id).collect()
    }

    pub fn hash_of(&self, key: &ItemKey) -> Option<KeyHash> {
        let tenant = self.tenants.get(&key.tenant)?;
        Some(tenant.secrets.hash.key_hash(key.tenant, &key.key))
    }

    /// The slot of the lease under which a key's copies live.
    pub fn lease_for(&self, tenant: u32, hash: KeyHash) -> Option<u16> {
        let store = self.cluster.store_of(tenant, hash).address;
        self.slots.get(&store).copied()
    }

    pub fn system_secret(&self) -> Secret {
        self.cluster.secret_of(TENANT_SYSTEM).unwrap_or(Secret::NONE)
    }

    /// What the programs are to know of the tenants, with these parameter words; 0 where there
    /// are none.
    pub fn entries(&self, parameters: &BTreeMap<u32, [u32; PARAMETERS]>) -> Vec<TenantEntry> {
        let entry = |(id, here): (&u32, &ServedTenant)| {
            let listed = self.cluster.tenant(*id);
            TenantEntry {
                id: *id,
                secret: here.secrets.tag,
                also_secret: here.secrets.also,
                rate: listed.map_or(0, |t| t.rate),
                drop_over_rate: listed.is_some_and(|t| t.over_rate == OverRate::Drop),
                discipline: here.discipline.map_or(NO_DISCIPLINE, |d| d.number),
                parameters: parameters.get(id).copied().unwrap_or_default(),
                measured: here.measured,
                write_back: listed.is_some_and(|t| t.write_back_ms > 0),
            }
        };
        let mut entries: Vec<TenantEntry> = self.tenants.iter().map(entry).collect();
        entries.push(TenantEntry::new(TENANT_SYSTEM, self.system_secret(), NO_DISCIPLINE));
        debug_assert!(self.cluster.open_tenant || entries.iter().all(|e| e.id != TENANT_OPEN));
        entries
    }
}
