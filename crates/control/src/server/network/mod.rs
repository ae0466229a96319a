//! The network as the controller knows it: what was declared, what switches say, and what follows
//! for routes.

mod flows;

use std::collections::{BTreeMap, BTreeSet};

use api::{
    proto::{Interfaces, Route, Traffic},
    types::TopologySpec,
};
use decide::SwitchId;

use self::flows::Flows;
use crate::{
    admin::{Refusal, RefusalKind},
    pages::policy::Flow,
    topology::{
        DeclaredHost, DeclaredLink, DeclaredSwitch, DeclaredTopology, Interface, Neighbour,
        Topology,
    },
};

/// Links, routes and traffic.
#[derive(Debug, Default)]
pub struct Network {
    spec: TopologySpec,
    topology: Topology,
    /// Whether routes are kept; none: nobody said so, and none were ever installed.
    managed: Option<bool>,
    flows: Flows,
    /// Links between switches that are up.
    up: BTreeSet<(SwitchId, SwitchId)>,
    neighbours: BTreeMap<SwitchId, Vec<Neighbour>>,
}

/// The topology changed: pages are to be placed and routes worked out anew.
#[derive(Debug, Default, PartialEq)]
#[must_use = "disciplines are told of links, and pages and routes follow them"]
pub struct TopologyChange {
    /// Links between switches that came (true) or went.
    pub links: Vec<((SwitchId, SwitchId), bool)>,
    /// Switches that have other neighbours than before.
    pub moved: Vec<SwitchId>,
}

impl Network {
    /// As remembered.
    pub fn new(spec: TopologySpec, managed: Option<bool>) -> (Network, TopologyChange) {
        let mut network = Network {
            topology: Topology::new(declared(&spec)),
            spec,
            managed,
            ..Network::default()
        };
        let rewired = network.rewired();
        (network, rewired)
    }

    /// A switch told its interfaces. Nothing, if they are as before.
    pub fn learn(&mut self, id: SwitchId, name: &str, told: &Interfaces) -> Option<TopologyChange> {
        let interface = |i: &api::proto::Interface| Interface {
            name: i.name.clone(),
            up: i.up,
            addresses: i.addresses.iter().filter_map(|a| a.parse().ok()).collect(),
            neighbours: i.neighbours.iter().filter_map(|a| a.parse().ok()).collect(),
            silent: i.silent.iter().filter_map(|id| SwitchId::try_from(*id).ok()).collect(),
        };
        let interfaces = told.interfaces.iter().map(interface).collect();
        let is_new = self.topology.learn(id, name, interfaces);
        is_new.then(|| self.rewired())
    }

    /// Replaces what is declared of the topology.
    ///
    /// # Errors
    /// Names the entry that makes no sense.
    pub fn declare(&mut self, spec: TopologySpec) -> Result<TopologyChange, Refusal> {
        let declared = declared(&spec);
        declared
            .check()
            .map_err(|line| Refusal::new(RefusalKind::Invalid, format!("topology: {line}")))?;
        self.topology.declare(declared);
        self.spec = spec;
        Ok(self.rewired())
    }

    /// A switch is gone for good: nothing of it is declared or learned any longer.
    pub fn forget(&mut self, id: SwitchId) -> TopologyChange {
        self.spec.switches.retain(|switch| switch.id != id);
        self.spec.links.retain(|link| link.a != id && link.b != id);
        self.spec.networks.retain(|network| network.switch != id);
        self.flows.forget(id);
        self.topology.forget(id);
        self.topology.declare(declared(&self.spec));
        self.rewired()
    }

    /// Keeps routes from now on, or takes away those that were installed.
    pub fn manage(&mut self, managed: bool) {
        self.managed = Some(managed);
    }

    /// Whether routes are kept.
    pub fn is_managed(&self) -> bool {
        self.managed == Some(true)
    }

    /// The routes that switches are to have; nothing if nobody said so yet.
    pub fn routes(&self) -> Option<BTreeMap<SwitchId, Vec<Route>>> {
        let route = |route: crate::topology::Route| Route {
            prefix: route.prefix.to_string(),
            via: route.via.to_string(),
            interface: route.interface,
        };
        let all = match self.managed? {
            true => self.topology.routes(),
            false => BTreeMap::new(),
        };
        let of = |(id, routes): (SwitchId, Vec<_>)| (id, routes.into_iter().map(route).collect());
        Some(all.into_iter().map(of).collect())
    }

    /// What a switch counted of its traffic in the window that ended, of tenants that are known,
    /// which are so many.
    pub fn count(
        &mut self,
        id: SwitchId,
        traffic: &Traffic,
        tenants: usize,
        is_known: impl Fn(u32) -> bool,
    ) {
        self.flows.count(id, traffic, tenants, is_known);
    }

    /// A window of a switch ended: what it counted before counts less.
    pub fn age_traffic(&mut self, id: SwitchId) {
        self.flows.age(id);
    }

    /// A tenant's traffic.
    pub fn flows_of(&self, tenant: u32) -> Vec<Flow> {
        self.flows.of(tenant)
    }

    /// Which way packets go.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What was declared.
    pub fn declared(&self) -> &TopologySpec {
        &self.spec
    }

    /// Whom a switch is to probe.
    pub fn neighbours_of(&self, id: SwitchId) -> &[Neighbour] {
        self.neighbours.get(&id).map_or(&[], |all| all)
    }

    fn rewired(&mut self) -> TopologyChange {
        let before = std::mem::replace(&mut self.up, self.topology.links_up());
        let changed = &before ^ &self.up;
        let link = |ends| (ends, self.up.contains(&ends));
        let neighbours = self.topology.neighbours();
        let before = std::mem::replace(&mut self.neighbours, neighbours);
        let all: BTreeSet<SwitchId> =
            before.keys().chain(self.neighbours.keys()).copied().collect();
        let moved = |id: &SwitchId| before.get(id) != self.neighbours.get(id);
        TopologyChange {
            links: changed.into_iter().map(link).collect(),
            moved: all.into_iter().filter(moved).collect(),
        }
    }
}

/// What was declared, in the words of the graph: networks are hosts with a name of their own.
fn declared(spec: &TopologySpec) -> DeclaredTopology {
    let name_of = |id: SwitchId| {
        let named = spec.switches.iter().find(|s| s.id == id);
        match named {
            Some(switch) if !switch.name.is_empty() => switch.name.clone(),
            _ => format!("switch {id}"),
        }
    };
    let host_name = |prefix: &ipnet::IpNet| format!("network {prefix}");
    let between_switches = spec
        .links
        .iter()
        .map(|link| DeclaredLink { ends: [name_of(link.a), name_of(link.b)], cost: link.cost });
    let to_networks = spec.networks.iter().map(|network| DeclaredLink {
        ends: [name_of(network.switch), host_name(&network.prefix)],
        cost: 1,
    });
    DeclaredTopology {
        switches: spec
            .switches
            .iter()
            .map(|s| DeclaredSwitch { id: s.id, name: name_of(s.id) })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(up: bool, address: &str) -> Interfaces {
        let interface = api::proto::Interface {
            name: "eth0".into(),
            up,
            addresses: vec![address.into()],
            ..api::proto::Interface::default()
        };
        Interfaces { interfaces: vec![interface] }
    }

    #[test]
    fn links_between_switches_are_told_when_they_come_and_go() {
        let (mut network, first) = Network::new(TopologySpec::default(), None);
        assert_eq!(first, TopologyChange::default());
        let mut links = |id, up, address| {
            let told = network.learn(id, "", &interfaces(up, address));
            told.map(|rewired| rewired.links)
        };
        assert_eq!(links(1, true, "10.0.0.1/24"), Some(vec![]));
        assert_eq!(links(2, true, "10.0.0.2/24"), Some(vec![((1, 2), true)]));
        assert_eq!(links(2, true, "10.0.0.2/24"), None);
        assert_eq!(links(1, false, "10.0.0.1/24"), Some(vec![((1, 2), false)]));
        assert_eq!(links(1, true, "10.0.9.1/24"), Some(vec![]));
    }

    #[test]
    fn a_declared_link_is_there_from_the_start() {
        let text = r#"{"switch": [{"id": 1}, {"id": 2}], "link": [{"a": 2, "b": 1}]}"#;
        let spec: TopologySpec = serde_json::from_str(text).unwrap();
        let (mut network, first) = Network::new(spec, None);
        assert_eq!(first.links, [((1, 2), true)]);
        let rewired = network.declare(TopologySpec::default()).unwrap();
        assert_eq!(rewired.links, [((1, 2), false)]);
    }
}
