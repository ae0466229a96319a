//! The network as the controller knows it: what was declared, what switches say, and what follows for placement and routes.

use std::{collections::BTreeMap, time::Duration};

use super::{changes::Asked, core::Core, tenants::Tenant};
use crate::{
    SwitchId,
    api::{
        Refusal,
        types::{RouteTable, TopologySpec, TopologyView},
    },
    proto::{Interfaces, RoutesApplied, Traffic},
};

/// Where guaranteed pages go.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    pub rooms: Vec<(SwitchId, u32)>,
    pub unplaced: u32,
    pub why: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Network {
    declared: TopologySpec,
    managed: bool,
}

impl Network {
    pub fn new(declared: TopologySpec, managed: bool) -> Network {
        Network { declared, managed }
    }
}

impl Core {
    pub(super) fn place_by_policy(&self, _tenant: &Tenant, quota: u32, capacity: &BTreeMap<SwitchId, u32>) -> Placement {
        let mut left = quota;
        let mut rooms = vec![];
        for (id, free) in capacity {
            let here = left.min(*free);
            if here > 0 {
                rooms.push((*id, here));
                left -= here;
            }
        }
        Placement { rooms, unplaced: left, why: None }
    }

    pub(super) fn policy_order(&self, _tenant: &Tenant) -> Vec<SwitchId> {
        vec![]
    }

    pub(super) fn is_measured(&self, _tenant: &Tenant) -> bool {
        false
    }

    pub(super) fn interfaces(&mut self, _now: Duration, _id: SwitchId, _interfaces: &Interfaces) {}

    pub(super) fn routes_applied(&mut self, _id: SwitchId, _applied: RoutesApplied) {}

    pub(super) fn traffic(&mut self, _now: Duration, _traffic: &Traffic) {}

    pub(super) fn topology_view(&self) -> TopologyView {
        TopologyView::default()
    }

    pub(super) fn declare_topology(&mut self, _asked: Asked<'_>, topology: TopologySpec) -> Result<(), Refusal> {
        self.network.declared = topology;
        Ok(())
    }

    pub(super) fn route_table(&self) -> RouteTable {
        RouteTable::default()
    }

    pub(super) fn manage_routes(&mut self, _asked: Asked<'_>, managed: bool) {
        self.network.managed = managed;
    }
}
