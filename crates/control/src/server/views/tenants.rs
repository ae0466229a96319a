//! Tenants as people are shown them.

use std::net::SocketAddr;

use api::types::{LeaseView, TenantOnSwitch, TenantView, Terms};
use decide::SwitchId;
use wire::{SwitchPlace, TENANT_OPEN};

use super::View;
use crate::{
    admin::{Refusal, RefusalKind},
    pages::ledger::Count,
    server::tenants::{Tenant, TimedQuota},
};

impl<'a> View<'a> {
    /// At most `limit` tenants with numbers above `after`, with their secrets if they are
    /// asked for.
    pub fn tenants(&self, after: Option<u32>, limit: usize, secrets: bool) -> Vec<TenantView> {
        let tenants = self.around.tenants.iter();
        let listed = tenants.filter(|t| after.is_none_or(|after| t.id > after));
        let views = listed.take(limit).map(|t| self.view(t, secrets));
        views.collect()
    }

    /// One tenant.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn tenant(&self, id: u32, secrets: bool) -> Result<TenantView, Refusal> {
        Ok(self.view(self.known(id)?, secrets))
    }

    /// What a tenant's clients need: a cluster file (TOML) with the stores, this tenant alone and
    /// no system secret.
    ///
    /// # Errors
    /// There is none of this number, or it has no store.
    pub fn credentials(&self, id: u32) -> Result<String, Refusal> {
        if !self.known(id)?.has_stores_in(&self.around.config.cluster) {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                format!(
                    "tenant {id}: none of its stores is in the cluster file: give it others (shortstop tenant change {id} --stores)"
                ),
            ));
        }
        let (tenants, config) = (self.around.tenants, self.around.config);
        let mut cluster = tenants.cluster(&config.cluster, |t| t.id == id);
        cluster.system_secret = None;
        self.name_places(&mut cluster.switches);
        cluster.open_tenant = id == TENANT_OPEN;
        // A client signs with the newest secret and needs no other.
        cluster.tenants.iter_mut().for_each(|t| t.also_secret = None);
        Ok(cluster.to_toml())
    }

    /// Switches that say their addresses are named with them: the file need not say it. A switch's
    /// name is its machine's own, so there may be several of one: the others have their ids in it.
    fn name_places(&self, places: &mut Vec<SwitchPlace>) {
        let said = |id: SwitchId| {
            let switch = self.around.switches.get(id)?;
            let name = switch.known().name.clone();
            Some((id, SwitchPlace { name, address: switch.address()? }))
        };
        let all: Vec<(SwitchId, SwitchPlace)> =
            self.around.switches.ids().filter_map(said).collect();
        let is_said = |place: &SwitchPlace| {
            let mut all = all.iter().map(|(_, said)| said);
            all.any(|said| said.name == place.name || said.address == place.address)
        };
        places.retain(|place| !is_said(place));
        for (id, mut place) in all {
            places.retain(|other| other.address != place.address);
            if places.iter().any(|other| other.name == place.name) {
                place.name = format!("{}-{id}", place.name);
            }
            places.push(place);
        }
    }

    /// One tenant as it is kept.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn known(&self, id: u32) -> Result<&'a Tenant, Refusal> {
        let tenant = self.around.tenants.get(id);
        tenant.ok_or_else(|| Refusal::no_tenant(id))
    }

    fn view(&self, tenant: &Tenant, secrets: bool) -> TenantView {
        let switches: Vec<TenantOnSwitch> =
            self.around.switches.ids().filter_map(|id| self.on_switch(tenant.id, id)).collect();
        let worst = switches.iter().map(|s| s.fragmentation).fold(0.0, f64::max);
        let shown = |secret: Option<&String>| {
            let secret = secret.filter(|s| secrets && !s.is_empty());
            secret.cloned()
        };
        TenantView {
            id: tenant.id,
            secret: shown(Some(&tenant.secret)),
            also_secret: shown(tenant.also_secret.as_ref()),
            hash_secret: shown(tenant.hash_secret.as_ref()),
            rotating: tenant.also_secret.is_some(),
            terms: Terms {
                discipline: self.around.disciplines.name_of(tenant.id).into(),
                ..tenant.terms.clone()
            },
            lost_stores: self.lost_stores(tenant),
            declared: tenant.is_of(&self.around.config.cluster) || tenant.id == TENANT_OPEN,
            own_pages: switches.iter().map(|s| s.own_pages).sum(),
            borrowed_pages: switches.iter().map(|s| s.borrowed_pages).sum(),
            lent_out_pages: self.lent_out(tenant.id),
            leaving_pages: switches.iter().map(|s| s.leaving_pages).sum(),
            leases: self.leases(tenant),
            items: switches.iter().map(|s| s.items).sum(),
            cells: switches.iter().map(|s| s.cells).sum(),
            fragmentation: worst,
            switches,
        }
    }

    fn lost_stores(&self, tenant: &Tenant) -> Vec<SocketAddr> {
        let there = tenant.stores_in(&self.around.config.cluster).unwrap_or_default();
        tenant.terms.stores.iter().filter(|store| !there.contains(store)).copied().collect()
    }

    /// Guaranteed pages of a tenant that others use: of each switch those that it lacks, as far as
    /// somebody borrows there.
    fn lent_out(&self, tenant: u32) -> u32 {
        let on = |(switch, guaranteed): &(SwitchId, u32)| {
            let ledger = self.memory.ledger();
            let has = ledger.count(*switch, tenant);
            let lent = ledger.sum(*switch).lent - has.lent;
            guaranteed.saturating_sub(has.own).min(lent)
        };
        self.memory.placements().of(tenant).iter().map(on).sum()
    }

    fn leases(&self, tenant: &Tenant) -> Vec<LeaseView> {
        let view = |part: &TimedQuota| LeaseView {
            pages: part.pages,
            ends_in_s: part.ends.saturating_sub(self.around.clock_s),
        };
        let mut leases: Vec<LeaseView> = tenant.timed.iter().map(view).collect();
        leases.sort_by_key(|lease| lease.ends_in_s);
        leases
    }

    fn on_switch(&self, tenant: u32, id: SwitchId) -> Option<TenantOnSwitch> {
        let switch = self.around.switches.get(id)?;
        let ledger = self.memory.ledger();
        let count = ledger.count(id, tenant);
        if count == Count::default() {
            return None;
        }
        let usage = self.memory.usage(id);
        let seen = ledger.held_on(id, tenant).filter_map(|(page, _)| usage?.page(page));
        Some(TenantOnSwitch {
            switch: id,
            own_pages: count.own,
            borrowed_pages: count.lent,
            leaving_pages: count.leaving,
            items: switch.held.of(tenant) as u64,
            cells: seen.map(|seen| u64::from(seen.cells)).sum(),
            fragmentation: usage.map_or(0.0, |usage| usage.fragmentation(tenant)),
        })
    }
}
