//! Routes that make packets go the shortest way.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use decide::SwitchId;
use ipnet::IpNet;
use petgraph::{algo::dijkstra, graph::UnGraph};

use super::{Length, NodeId, Topology, learned, pair};

/// A route of a switch's kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where to.
    pub prefix: IpNet,
    /// The next switch's address on a subnet that both are connected to.
    pub via: IpAddr,
    /// The interface that leads there.
    pub interface: String,
}

/// The cheapest way from one switch to a neighbour.
struct Step {
    to: SwitchId,
    cost: u32,
    via: IpAddr,
    interface: String,
    silent: bool,
}

impl Topology {
    /// For each switch that reported and each subnet that it is not connected to, the next hop on
    /// the shortest path to the nearest switch that is; by learned interfaces only, as a next hop
    /// needs an address. IPv4 goes over links with IPv4 addresses and IPv6 over those with IPv6
    /// ones. A subnet that cannot be reached has no route.
    pub fn routes(&self) -> BTreeMap<SwitchId, Vec<Route>> {
        let mut routes: BTreeMap<SwitchId, Vec<Route>> =
            self.switches.keys().map(|id| (*id, vec![])).collect();
        for v4 in [true, false] {
            self.add_routes(v4, &mut routes);
        }
        routes
    }

    fn add_routes(&self, v4: bool, routes: &mut BTreeMap<SwitchId, Vec<Route>>) {
        let steps = self.steps(v4);
        let lengths = lengths(&steps);
        for (net, ports) in self.subnets.iter().filter(|(net, _)| is_v4(net) == v4) {
            let on_it: BTreeSet<SwitchId> =
                ports.iter().filter(|p| p.up).map(|p| p.switch).collect();
            let left = |from: SwitchId| {
                let to = on_it.iter().filter_map(|to| lengths.get(to)?.get(&from));
                to.min().copied()
            };
            for (from, routes) in routes.iter_mut().filter(|(id, _)| !on_it.contains(id)) {
                let next = steps.get(from).into_iter().flatten().filter_map(|step| {
                    let length = left(step.to)? + Length::link(step.cost);
                    Some((length, step.to, step))
                });
                if let Some((_, _, step)) = next.min_by_key(|(length, to, _)| (*length, *to)) {
                    routes.push(Route {
                        prefix: *net,
                        via: step.via,
                        interface: step.interface.clone(),
                    });
                }
            }
        }
    }

    /// To which neighbours each switch can send packets of a family; over the first subnet of
    /// several, if not over a silent wire.
    fn steps(&self, v4: bool) -> BTreeMap<SwitchId, Vec<Step>> {
        let mut steps: BTreeMap<SwitchId, Vec<Step>> = BTreeMap::new();
        for (net, ports) in self.subnets.iter().filter(|(net, _)| is_v4(net) == v4) {
            if learned::is_single(net) {
                continue;
            }
            for from in ports.iter().filter(|p| p.up) {
                for to in ports.iter().filter(|p| p.up && learned::meet(from, p)) {
                    let pair = pair(NodeId::Switch(from.switch), NodeId::Switch(to.switch));
                    let Some(link) = self.links.get(&pair).filter(|link| link.up) else { continue };
                    let step = Step {
                        to: to.switch,
                        cost: link.weight(),
                        via: to.address,
                        interface: from.interface.clone(),
                        silent: learned::is_silent(from, to),
                    };
                    let steps = steps.entry(from.switch).or_default();
                    match steps.iter_mut().find(|other| other.to == step.to) {
                        Some(other) if other.silent && !step.silent => *other = step,
                        Some(_) => {}
                        None => steps.push(step),
                    }
                }
            }
        }
        steps
    }
}

fn is_v4(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

/// How far it is to each switch, from each.
fn lengths(steps: &BTreeMap<SwitchId, Vec<Step>>) -> BTreeMap<SwitchId, HashMap<SwitchId, Length>> {
    let mut graph: UnGraph<SwitchId, u32> = UnGraph::default();
    let index: BTreeMap<SwitchId, _> = steps.keys().map(|id| (*id, graph.add_node(*id))).collect();
    for (from, steps) in steps {
        // Every step goes both ways, and is met from both ends.
        for step in steps.iter().filter(|step| *from < step.to) {
            if let Some(to) = index.get(&step.to) {
                graph.add_edge(index[from], *to, step.cost);
            }
        }
    }
    let from_all = |to| {
        let lengths = dijkstra(&graph, to, None, |edge| Length::link(*edge.weight()));
        let by_id = lengths.into_iter().map(|(node, length)| (graph[node], length));
        by_id.collect()
    };
    index.iter().map(|(id, node)| (*id, from_all(*node))).collect()
}
