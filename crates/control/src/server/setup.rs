//! What a switch is told of tenants.

use api::proto::{self, Setup, TenantSetup};
use decide::SwitchId;

use super::{around::Surroundings, memory::Memory, tenants::Tenant};
use crate::topology::Neighbour;

/// Whether a tenant's packets reach its discipline on a switch: where it has pages, or everywhere.
/// With write-back that is everywhere: the first two switches that a write passes have to know
/// whose it is, and stamp it, wherever the tenant's copies lie.
fn decides(tenant: &Tenant, id: SwitchId, around: &Surroundings<'_>, memory: &Memory) -> bool {
    let everywhere =
        tenant.terms.write_back_ms > 0 || around.disciplines.runs_everywhere(tenant.id);
    everywhere || memory.rooms().has(tenant.id, id)
}

/// Whether a tenant belongs to a switch's setup: where its discipline runs, and where its traffic
/// is to be measured.
pub fn is_here(tenant: &Tenant, id: SwitchId, around: &Surroundings<'_>, memory: &Memory) -> bool {
    let is_here = decides(tenant, id, around, memory) || around.is_measured(tenant);
    is_here && around.is_served(tenant)
}

/// A switch's setup.
pub fn of(id: SwitchId, around: &Surroundings<'_>, memory: &Memory) -> Setup {
    let config = around.config;
    let is_here = |tenant: &Tenant| is_here(tenant, id, around, memory);
    let setup = |tenant: &Tenant| TenantSetup {
        tenant: tenant.id,
        discipline: match decides(tenant, id, around, memory) {
            true => around.disciplines.name_of(tenant.id).into(),
            false => String::new(),
        },
        measured: around.is_measured(tenant),
    };
    let neighbour = |neighbour: &Neighbour| proto::Neighbour {
        switch_id: neighbour.switch.into(),
        address: neighbour.address.to_string(),
        interface: neighbour.interface.clone(),
    };
    let neighbours = around.network.neighbours_of(id).iter();
    let here = around.tenants.iter().filter(|tenant| is_here(tenant));
    let stores = |tenant: &Tenant| is_here(tenant).then(|| around.stores_of(tenant))?;
    let cluster = around.tenants.cluster_on(&config.cluster, stores);
    Setup {
        tenants: here.map(setup).collect(),
        cluster: Some(Box::new((&cluster).into())),
        window_ms: config.limits.window_ms,
        sample_shift: config.sample_shift,
        term: config.term,
        neighbours: neighbours.map(neighbour).collect(),
    }
}
