//! The network as people are shown it.

use std::collections::{BTreeMap, HashMap};

use api::types::{LinkView, NetworkView, RouteTable, RouteView, TopologySpec, TopologyView};
use decide::SwitchId;

use super::View;
use crate::topology::{self, Source};

impl View<'_> {
    /// What was declared of the topology, and what is known of it.
    pub fn topology(&self) -> TopologyView {
        let view = self.around.network.topology().view();
        let ids: HashMap<&str, SwitchId> =
            view.switches.iter().map(|s| (s.name.as_str(), s.id)).collect();
        let link = |link: &topology::LinkView| {
            let [a, b] = link.ends.each_ref().map(|name| ids.get(name.as_str()));
            Some(LinkView {
                a: *a?,
                b: *b?,
                cost: link.cost,
                up: link.up,
                declared: link.source == Source::Declared,
            })
        };
        TopologyView {
            declared: *self.around.network.declared() != TopologySpec::default(),
            switches: self.switches(),
            links: view.links.iter().filter_map(link).collect(),
            networks: self.networks(&view.switches),
        }
    }

    /// Declared networks, then the subnets that one switch alone is connected to; the others
    /// are links.
    fn networks(&self, switches: &[topology::SwitchView]) -> Vec<NetworkView> {
        let spec = self.around.network.declared();
        let declared = spec.networks.iter().map(|n| NetworkView {
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
            let known = spec.networks.iter().any(|n| n.prefix == *prefix);
            (!known).then_some(NetworkView { prefix: *prefix, switch, declared: false })
        });
        declared.chain(learned).collect()
    }

    /// The routes that packets should go by, and whether switches have them.
    pub fn routes(&self) -> RouteTable {
        let network = self.around.network;
        let mut routes = vec![];
        for (id, planned) in network.topology().routes() {
            let Some(switch) = self.around.switches.get(id) else { continue };
            for route in planned {
                let prefix = route.prefix.to_string();
                let failure = switch.route_failure(&prefix);
                let in_force = network.is_managed() && switch.has_its_routes();
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
        RouteTable { managed: network.is_managed(), routes }
    }
}
