//! The network as the controller knows it: what was declared, what switches say, and what follows
//! for routes.

mod beginning;
mod flows;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{
    proto::{Interfaces, Route, Traffic},
    types::TopologySpec,
};
use decide::SwitchId;

pub use self::told::InterfacesRow;
use self::{beginning::Beginning, flows::Flows};
use super::journal::Journal;
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
    /// What is remembered of what switches told.
    noted: BTreeMap<SwitchId, InterfacesRow>,
    beginning: Beginning,
}

/// What is remembered of the network.
#[derive(Debug, Default)]
pub struct RememberedNetwork {
    /// What was declared of the topology.
    pub spec: TopologySpec,
    /// Whether routes are kept, if anybody said so.
    pub routes_managed: Option<bool>,
    /// The names of the switches.
    pub switches: BTreeMap<SwitchId, String>,
    /// What they told last. A state of an earlier version has nothing of it.
    pub interfaces: Vec<(SwitchId, InterfacesRow)>,
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
    pub fn new(remembered: RememberedNetwork) -> (Network, TopologyChange) {
        let RememberedNetwork { spec, routes_managed, switches, interfaces } = remembered;
        let known = interfaces.into_iter().filter(|(id, _)| switches.contains_key(id));
        let noted: BTreeMap<SwitchId, InterfacesRow> = known.collect();
        let mut topology = Topology::new(declared(&spec));
        let told = noted.iter().map(|(id, row)| (*id, switches[id].clone(), row.interfaces()));
        topology.restore(told);
        let unheard = switches.keys().copied().filter(|id| !noted.contains_key(id));
        let mut network = Network {
            topology,
            spec,
            managed: routes_managed,
            beginning: Beginning::new(switches.len(), unheard),
            noted,
            ..Network::default()
        };
        let rewired = network.rewired();
        (network, rewired)
    }

    /// A switch told its interfaces. Nothing, if they are as before but for machines in their
    /// subnets: pages follow these when they are placed next.
    pub fn learn(&mut self, id: SwitchId, name: &str, told: &Interfaces) -> Option<TopologyChange> {
        let interface = |i: &api::proto::Interface| Interface {
            name: i.name.clone(),
            up: i.up,
            addresses: i.addresses.iter().filter_map(|a| a.parse().ok()).collect(),
            neighbours: i.neighbours.iter().filter_map(|a| a.parse().ok()).collect(),
            silent: i.silent.iter().filter_map(|id| SwitchId::try_from(*id).ok()).collect(),
        };
        let interfaces = told.interfaces.iter().map(interface).collect();
        self.beginning.heard(id);
        let is_new = self.topology.learn(id, name, interfaces);
        is_new.then(|| self.rewired())
    }

    /// What a switch told is to be remembered, where that is other than what is.
    pub fn note(&mut self, id: SwitchId, journal: &mut Journal) {
        let told = self.topology.interfaces_of(id).and_then(InterfacesRow::of);
        if self.noted.get(&id) == told.as_ref() {
            return;
        }
        let key = format!("interfaces/{id}");
        match told {
            Some(row) => {
                journal.put(key, &row);
                self.noted.insert(id, row);
            }
            None => {
                journal.delete(key);
                self.noted.remove(&id);
            }
        }
    }

    /// Time passed. True: a lead's beginning is over, and nothing is waited for any longer.
    pub fn tick(&mut self, now: Duration) -> bool {
        self.beginning.tick(now)
    }

    /// Whether all switches that are remembered told their interfaces, or had the time to: before,
    /// what follows from the topology may be wrong.
    pub fn is_known(&self) -> bool {
        self.beginning.knows_interfaces()
    }

    /// Whether nothing may have been heard of a tenant's traffic yet, because the lead is new.
    pub fn may_have_traffic(&self, tenant: u32) -> bool {
        self.beginning.lasts() && self.flows_of(tenant).is_empty()
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
        self.beginning.heard(id);
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

    /// The routes that switches are to have, of those about which that can be said: of no others
    /// than told their interfaces while routes are kept, and of `all` when they are kept no longer.
    pub fn routes(&self, all: impl Iterator<Item = SwitchId>) -> BTreeMap<SwitchId, Vec<Route>> {
        let route = |route: crate::topology::Route| Route {
            prefix: route.prefix.to_string(),
            via: route.via.to_string(),
            interface: route.interface,
        };
        let of = |(id, routes): (SwitchId, Vec<_>)| (id, routes.into_iter().map(route).collect());
        match self.managed {
            Some(false) => all.map(|id| (id, vec![])).collect(),
            Some(true) if self.is_known() => self.topology.routes().into_iter().map(of).collect(),
            _ => BTreeMap::new(),
        }
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

    /// Whether a tenant had traffic since this controller leads.
    pub fn had_traffic(&self, tenant: u32) -> bool {
        self.flows.had(tenant)
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
        let (mut network, first) = Network::new(RememberedNetwork::default());
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
    fn a_machine_that_appears_in_a_subnet_is_found_there_and_changes_no_links() {
        let (mut network, _) = Network::new(RememberedNetwork::default());
        let near = |address: &str, neighbours: &[&str]| {
            let mut told = interfaces(true, address);
            told.interfaces[0].neighbours = neighbours.iter().map(|a| a.to_string()).collect();
            told
        };
        let first = network.learn(1, "", &near("10.0.0.1/24", &[]));
        assert!(first.is_some());
        let mut learn = |told: &Interfaces| network.learn(2, "", told);
        assert!(learn(&near("10.0.0.2/24", &[])).is_some());
        assert_eq!(learn(&near("10.0.0.2/24", &["10.0.0.9"])), None);
        let at = |network: &Network| network.topology().attachment([10, 0, 0, 9].into());
        assert_eq!(at(&network), Some(crate::topology::NodeId::Switch(2)));
        assert_eq!(network.learn(2, "", &near("10.0.0.2/24", &[])), None);
        assert_eq!(at(&network), Some(crate::topology::NodeId::Switch(1)), "the lower");
        let moved = near("10.0.9.2/24", &["10.0.0.9"]);
        assert!(network.learn(2, "", &moved).is_some(), "another address as well");
    }

    #[test]
    fn a_declared_link_is_there_from_the_start() {
        let text = r#"{"switch": [{"id": 1}, {"id": 2}], "link": [{"a": 2, "b": 1}]}"#;
        let spec: TopologySpec = serde_json::from_str(text).unwrap();
        let remembered = RememberedNetwork { spec, ..RememberedNetwork::default() };
        let (mut network, first) = Network::new(remembered);
        assert_eq!(first.links, [((1, 2), true)]);
        let rewired = network.declare(TopologySpec::default()).unwrap();
        assert_eq!(rewired.links, [((1, 2), false)]);
    }
}
