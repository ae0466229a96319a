//! What decisions about memory, setups and changes go by, as it is at the moment.

use std::{net::SocketAddr, time::Duration};

use api::types::Policy;
use decide::SwitchId;

use super::{
    config::CoreConfig,
    disciplines::Disciplines,
    network::Network,
    switches::Switches,
    tenants::{Tenant, Tenants},
};

/// Everything but memory itself.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// What the controller was started with.
    pub config: &'a CoreConfig,
    /// Who there is.
    pub tenants: &'a Tenants,
    /// What decides for them.
    pub disciplines: &'a Disciplines,
    /// Links, traffic and routes.
    pub network: &'a Network,
    /// The switches.
    pub switches: &'a Switches,
    /// Time since any start.
    pub now: Duration,
    /// Seconds since 1970.
    pub clock_s: u64,
}

impl Surroundings<'_> {
    /// Addresses of the cluster's stores, in the file's order.
    pub fn stores(&self) -> impl Iterator<Item = SocketAddr> {
        self.config.cluster.stores.iter().map(|store| store.address)
    }

    /// The stores that a tenant's keys are on, as switches and disciplines are to go by; empty: all
    /// of the cluster's. None: it has none ([`Tenant::stores_in`]), and is served nowhere. Items
    /// that are nowhere but in switches are served all the same: stores know nothing of such a
    /// tenant then, and nothing is lost.
    pub fn stores_of(&self, tenant: &Tenant) -> Option<Vec<SocketAddr>> {
        let stores = tenant.stores_in(&self.config.cluster);
        stores.or_else(|| self.disciplines.has_truth(tenant.id).then(Vec::new))
    }

    /// Whether a tenant is served anywhere.
    pub fn is_served(&self, tenant: &Tenant) -> bool {
        tenant.has_stores_in(&self.config.cluster) || self.disciplines.has_truth(tenant.id)
    }

    /// Whether a tenant may be limited to these stores, or why not.
    pub fn may_use(&self, stores: &[SocketAddr]) -> Result<(), String> {
        self.config.cluster.check_stores_of(stores)
    }

    /// Switches that are attached and said what they hold.
    pub fn ready(&self) -> impl Iterator<Item = SwitchId> {
        let ready = self.switches.iter().filter(|(_, switch)| switch.is_ready());
        ready.map(|(id, _)| id)
    }

    /// Whether switches count a tenant's requests by client and store: where its pages are placed
    /// by that.
    pub fn is_measured(&self, tenant: &Tenant) -> bool {
        let by_traffic = tenant.terms.policy == Policy::Measured || tenant.terms.clients.is_empty();
        tenant.terms.quota > 0 && by_traffic && self.switches.len() > 1
    }
}
