//! The network as the controller knows it: what was declared, what switches say, and what follows for placement and routes.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
};

use api::{
    proto::{Interfaces, Route, Routes, RoutesApplied, Traffic},
    types::{LinkView, NetworkView, Policy, RouteTable, RouteView, TopologySpec, TopologyView},
};

use super::{changes::Asked, core::Core, tenants::Tenant};
use crate::{
    SwitchId,
    admin::{Refusal, RefusalKind},
    pages::policy::{Flow, Placement, Wish, place},
    topology::{Declared, DeclaredHost, DeclaredLink, DeclaredSwitch, Interface, Topology},
};

/// Flows that are remembered, over all tenants.
const FLOWS_MAX: usize = 16_384;
/// How much of a flow's rate stays from one window to the next.
const KEPT: f64 = 0.5;
/// A flow of fewer requests per window is forgotten.
const RATE_MIN: f64 = 1.0;

/// Tenant, client, store.
type FlowKey = (u32, Ipv6Addr, Ipv6Addr);

/// See the module.
#[derive(Debug, Default)]
pub struct Network {
    spec: TopologySpec,
    topology: Topology,
    /// Whether routes are kept; none: nobody said so, and none were ever installed.
    managed: Option<bool>,
    /// Requests per window of each flow, as each switch on its way counts them.
    flows: HashMap<FlowKey, BTreeMap<SwitchId, f64>>,
}

impl Network {
    /// As remembered.
    pub fn new(spec: TopologySpec, managed: Option<bool>) -> Network {
        let topology = Topology::new(declared(&spec));
        Network {
            spec,
            topology,
            managed,
            flows: HashMap::new(),
        }
    }

    /// A tenant's traffic: a flow is seen by each switch on its way until one answers, so the first sees all of it.
    fn flows_of(&self, tenant: u32) -> Vec<Flow> {
        let of = |(key, by_switch): (&FlowKey, &BTreeMap<SwitchId, f64>)| Flow {
            client: IpAddr::V6(key.1).to_canonical(),
            store: IpAddr::V6(key.2).to_canonical(),
            rate: by_switch.values().copied().fold(0.0, f64::max),
        };
        let mut flows: Vec<Flow> = self
            .flows
            .iter()
            .filter(|(key, _)| key.0 == tenant)
            .map(of)
            .collect();
        flows.sort_by_key(|flow| (flow.client, flow.store));
        flows
    }
}

/// What was declared, in the words of the graph: networks are hosts with a name of their own.
fn declared(spec: &TopologySpec) -> Declared {
    let name_of = |id: SwitchId| {
        let named = spec.switches.iter().find(|s| s.id == id);
        match named {
            Some(switch) if !switch.name.is_empty() => switch.name.clone(),
            _ => format!("switch {id}"),
        }
    };
    let host_name = |prefix: &ipnet::IpNet| format!("network {prefix}");
    let between_switches = spec.links.iter().map(|link| DeclaredLink {
        ends: [name_of(link.a), name_of(link.b)],
        cost: link.cost,
    });
    let to_networks = spec.networks.iter().map(|network| DeclaredLink {
        ends: [name_of(network.switch), host_name(&network.prefix)],
        cost: 1,
    });
    Declared {
        switches: spec
            .switches
            .iter()
            .map(|s| DeclaredSwitch {
                id: s.id,
                name: name_of(s.id),
            })
            .collect(),
        hosts: spec
            .networks
            .iter()
            .map(|network| DeclaredHost {
                name: host_name(&network.prefix),
                address: vec![],
                network: vec![network.prefix],
            })
            .collect(),
        links: between_switches.chain(to_networks).collect(),
    }
}

impl Core {
    /// Where a number of a tenant's pages go by its policy.
    pub(super) fn place_by_policy(
        &self,
        tenant: &Tenant,
        quota: u32,
        capacity: &BTreeMap<SwitchId, u32>,
    ) -> Placement {
        let clients: Vec<IpAddr> = tenant.clients.iter().map(ipnet::IpNet::addr).collect();
        let stores: Vec<IpAddr> = if tenant.stores.is_empty() {
            self.plan
                .cluster
                .stores
                .iter()
                .map(|s| s.address.ip())
                .collect()
        } else {
            tenant.stores.iter().map(|s| s.ip()).collect()
        };
        let wish = Wish {
            policy: tenant.policy,
            quota,
            clients: &clients,
            stores: &stores,
            traffic: &self.network.flows_of(tenant.id),
            now: &self.allocation.placed(tenant.id).iter().copied().collect(),
        };
        place(&wish, &self.network.topology, capacity)
    }

    /// The switches that a tenant may use, in the order in which its policy fills them.
    pub(super) fn policy_order(&self, tenant: &Tenant) -> Vec<SwitchId> {
        let each = self.switches.keys().map(|id| (*id, 1)).collect();
        let all = self.switches.len() as u32;
        let placement = self.place_by_policy(tenant, all, &each);
        placement.rooms.into_iter().map(|(id, _)| id).collect()
    }

    /// Whether switches count a tenant's requests by client and store: where its pages are placed by that.
    pub(super) fn is_measured(&self, tenant: &Tenant) -> bool {
        let by_traffic = tenant.policy == Policy::Measured || tenant.clients.is_empty();
        tenant.quota > 0 && by_traffic && self.switches.len() > 1
    }

    /// A switch told its interfaces.
    pub(super) fn interfaces(&mut self, id: SwitchId, told: &Interfaces) {
        let name = self
            .switches
            .get(&id)
            .map_or("", |s| &s.known.name)
            .to_owned();
        let interface = |i: &api::proto::Interface| Interface {
            name: i.name.clone(),
            up: i.up,
            addresses: i.addresses.iter().filter_map(|a| a.parse().ok()).collect(),
            neighbours: i.neighbours.iter().filter_map(|a| a.parse().ok()).collect(),
        };
        let interfaces = told.interfaces.iter().map(interface).collect();
        if self.network.topology.learn(id, &name, interfaces) {
            tracing::info!(switch = id, "interfaces changed");
            self.topology_changed();
        }
    }

    fn topology_changed(&mut self) {
        self.allocation.place_again();
        self.route();
    }

    /// A window of a switch ended: what it counted before counts less.
    pub(super) fn age_traffic(&mut self, id: SwitchId) {
        self.network.flows.retain(|_, by_switch| {
            if let Some(rate) = by_switch.get_mut(&id) {
                *rate *= KEPT;
                if *rate < RATE_MIN {
                    by_switch.remove(&id);
                }
            }
            !by_switch.is_empty()
        });
    }

    /// What a switch counted of its traffic in the window that ended.
    pub(super) fn traffic(&mut self, id: SwitchId, traffic: &Traffic) {
        for flow in &traffic.flows {
            let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok();
            let (Some(client), Some(store)) = (address(&flow.client), address(&flow.store)) else {
                continue;
            };
            let key = (flow.tenant, client, store);
            if self.tenants.get(flow.tenant).is_none()
                || (self.network.flows.len() >= FLOWS_MAX && !self.network.flows.contains_key(&key))
            {
                continue;
            }
            let by_switch = self.network.flows.entry(key).or_default();
            *by_switch.entry(id).or_default() += (1.0 - KEPT) * flow.requests as f64;
        }
    }

    /// Works the routes out anew, where the controller keeps them.
    fn route(&mut self) {
        let Some(managed) = self.network.managed else {
            return;
        };
        let mut all = match managed {
            true => self.network.topology.routes(),
            false => BTreeMap::new(),
        };
        for (id, switch) in &mut self.switches {
            let wanted = all.remove(id).unwrap_or_default();
            let wanted: Vec<Route> = wanted
                .into_iter()
                .map(|route| Route {
                    prefix: route.prefix.to_string(),
                    via: route.via.to_string(),
                    interface: route.interface,
                })
                .collect();
            if switch.routes.version == 0 || switch.routes.routes != wanted {
                switch.routes = Routes {
                    term: self.plan.term,
                    version: switch.routes.version + 1,
                    routes: wanted,
                };
            }
        }
    }

    /// A switch that attached is told its routes, if they are kept.
    pub(super) fn route_attached(&mut self) {
        self.route();
    }

    /// A switch has installed its routes, as far as it could.
    pub(super) fn routes_applied(&mut self, id: SwitchId, applied: RoutesApplied) {
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        for line in applied.failed.iter().take(16) {
            tracing::warn!(switch = id, "route not installed: {line}");
        }
        switch.routes_applied = Some(applied.version);
        switch.routes_failed = applied.failed;
    }

    /// For people.
    pub(super) fn topology_view(&self) -> TopologyView {
        let view = self.network.topology.view();
        let ids: HashMap<&str, SwitchId> = view
            .switches
            .iter()
            .map(|s| (s.name.as_str(), s.id))
            .collect();
        let link = |link: &crate::topology::LinkView| {
            let [a, b] = link.ends.each_ref().map(|name| ids.get(name.as_str()));
            Some(LinkView {
                a: *a?,
                b: *b?,
                cost: link.cost,
                up: link.up,
                declared: link.source == crate::topology::Source::Declared,
            })
        };
        TopologyView {
            declared: self.network.spec != TopologySpec::default(),
            switches: self.switch_views(),
            links: view.links.iter().filter_map(link).collect(),
            networks: self.networks(&view.switches),
        }
    }

    /// Declared networks, then the subnets that one switch alone is connected to; the others are links.
    fn networks(&self, switches: &[crate::topology::SwitchView]) -> Vec<NetworkView> {
        let declared = self.network.spec.networks.iter().map(|n| NetworkView {
            prefix: n.prefix,
            switch: n.switch,
            declared: true,
        });
        let mut by_subnet: BTreeMap<ipnet::IpNet, Vec<SwitchId>> = BTreeMap::new();
        for switch in switches {
            for subnet in &switch.subnets {
                by_subnet.entry(*subnet).or_default().push(switch.id);
            }
        }
        let learned = by_subnet.iter().filter_map(|(prefix, on)| {
            let [switch] = on[..] else { return None };
            let is_declared = |n: &api::types::NetworkSpec| n.prefix == *prefix;
            let known = self.network.spec.networks.iter().any(is_declared);
            (!known).then_some(NetworkView {
                prefix: *prefix,
                switch,
                declared: false,
            })
        });
        declared.chain(learned).collect()
    }

    /// Replaces what is declared of the topology.
    pub(super) fn declare_topology(
        &mut self,
        asked: Asked<'_>,
        spec: TopologySpec,
    ) -> Result<(), Refusal> {
        let declared = declared(&spec);
        declared
            .check()
            .map_err(|line| Refusal::new(RefusalKind::Invalid, format!("topology: {line}")))?;
        self.network.topology.declare(declared);
        self.journal.put("topology".into(), &spec);
        let (switches, links) = (spec.switches.len(), spec.links.len());
        self.network.spec = spec;
        self.topology_changed();
        self.audit(
            asked,
            "topology.declare",
            format!("{switches} switches, {links} links"),
        );
        Ok(())
    }

    /// For people.
    pub(super) fn route_table(&self) -> RouteTable {
        let planned = self.network.topology.routes();
        let mut routes = vec![];
        for (id, planned) in planned {
            let Some(switch) = self.switches.get(&id) else {
                continue;
            };
            let in_force = switch.routes_applied == Some(switch.routes.version)
                && self.network.managed == Some(true);
            for route in planned {
                let prefix = route.prefix.to_string();
                let failure = switch
                    .routes_failed
                    .iter()
                    .find(|line| line.starts_with(&prefix));
                routes.push(RouteView {
                    switch: id,
                    via: route.via.to_string(),
                    interface: route.interface,
                    installed: in_force && failure.is_none(),
                    failure: failure.cloned(),
                    prefix,
                });
            }
        }
        RouteTable {
            managed: self.network.managed == Some(true),
            routes,
        }
    }

    /// Keeps routes, or takes away those that were installed.
    pub(super) fn manage_routes(&mut self, asked: Asked<'_>, managed: bool) {
        self.network.managed = Some(managed);
        self.journal.put("routing".into(), &managed);
        self.route();
        let what = if managed { "kept" } else { "left alone" };
        self.audit(asked, "routes.manage", format!("routes are {what}"));
    }
}
