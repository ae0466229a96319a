//! Switches, hosts and links: which way packets go, and which way they should.
//!
//! A topology is declared in a file, learned from the switches' interfaces, or both. Learned:
//! switches with different addresses in one subnet are linked, and an address is attached to the
//! switch whose connected subnet holds it. Where a link is declared, the file's cost counts;
//! whether it is up is learned in either case, where the two switches share a subnet. What is
//! learned beyond the file is added.
//!
//! A link may have carrier and be silent: its ends hear nothing of each other's probes. It is told
//! as down, and is the way of last resort: who was wrong about it has cut nobody off.
//!
//! Shortest paths go by cost, then by the number of links, then by the lower node at each step, so
//! that everyone who asks gets the same one. Hosts do not forward.
//!
//! Cost: the graph is made anew when something changes; a path is one run of Dijkstra's algorithm
//! (tens of microseconds for some hundred links), all routes one run for each switch and family of
//! addresses.

mod declared;
mod learned;
mod neighbours;
mod routes;
#[cfg(test)]
mod tests;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::IpAddr,
    ops::Add,
};

use decide::SwitchId;
use ipnet::IpNet;
use petgraph::{
    algo::dijkstra,
    graph::{NodeIndex, UnGraph},
    visit::{EdgeRef, NodeFiltered},
};

use self::learned::{Port, Subnets};
pub use self::{
    declared::{DeclaredHost, DeclaredLink, DeclaredSwitch, DeclaredTopology},
    learned::Interface,
    neighbours::Neighbour,
    routes::Route,
    view::{LinkView, Source, SwitchView, TopologyView},
};

/// A switch or a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeId {
    /// A switch, by its number.
    Switch(SwitchId),
    /// A host of the topology file, by its name.
    Host(String),
}

impl NodeId {
    /// The switch's number, if it is one.
    pub fn switch(&self) -> Option<SwitchId> {
        match self {
            NodeId::Switch(id) => Some(*id),
            NodeId::Host(_) => None,
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeId::Switch(id) => write!(f, "switch {id}"),
            NodeId::Host(name) => write!(f, "host {name}"),
        }
    }
}

/// Length of a path: cost first, links second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Length {
    cost: u64,
    hops: u32,
}

impl Length {
    fn link(cost: u32) -> Length {
        Length { cost: u64::from(cost), hops: 1 }
    }
}

impl Add for Length {
    type Output = Length;

    fn add(self, other: Length) -> Length {
        Length { cost: self.cost + other.cost, hops: self.hops + other.hops }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Switch {
    name: String,
    interfaces: Vec<Interface>,
}

impl Switch {
    /// Whether it is the same as another one, but for neighbours of its interfaces.
    fn is_but_for_neighbours(&self, other: &Switch) -> bool {
        let pairs = || self.interfaces.iter().zip(&other.interfaces);
        self.name == other.name
            && self.interfaces.len() == other.interfaces.len()
            && pairs().all(|(ours, theirs)| ours.is_but_for_neighbours(theirs))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    cost: u32,
    /// With carrier at both ends.
    up: bool,
    /// Has carrier, and answers no probes.
    silent: bool,
    source: Source,
}

/// What a silent link costs more than others: any way around it is cheaper.
const SILENT_COST: u32 = 1 << 30;

impl Link {
    /// With what makes a silent one the last choice.
    fn weight(&self) -> u32 {
        match self.silent {
            true => self.cost.saturating_add(SILENT_COST),
            false => self.cost,
        }
    }

    /// Whether it carries packets, as far as is known.
    fn carries(&self) -> bool {
        self.up && !self.silent
    }
}

type Pair = (NodeId, NodeId);

/// What is declared and what was learned, and the graph of both.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    declared: DeclaredTopology,
    /// Those that attached at some time.
    switches: BTreeMap<SwitchId, Switch>,
    subnets: Subnets,
    links: BTreeMap<Pair, Link>,
    graph: UnGraph<NodeId, u32>,
    index: HashMap<NodeId, NodeIndex>,
}

impl Topology {
    /// Starts with what is declared; [`DeclaredTopology::default`] if nothing is.
    pub fn new(declared: DeclaredTopology) -> Topology {
        let mut topology = Topology { declared, ..Topology::default() };
        topology.rebuild();
        topology
    }

    /// Replaces what is declared.
    pub fn declare(&mut self, declared: DeclaredTopology) {
        self.declared = declared;
        self.rebuild();
    }

    /// A switch reported its interfaces. They hold until it reports others: while its agent is
    /// away, it goes on forwarding. Says whether links or subnets changed. Whom it has as
    /// neighbours changes with each machine that comes or falls silent, and only says where
    /// addresses are.
    pub fn learn(&mut self, id: SwitchId, name: &str, interfaces: Vec<Interface>) -> bool {
        let switch = Switch { name: name.into(), interfaces: learned::cut(interfaces) };
        let before = self.switches.get(&id);
        let is_as_before = before.is_some_and(|before| before.is_but_for_neighbours(&switch));
        // Hosts that are declared with addresses have links to where these are.
        let is_linked = self.declared.hosts.iter().any(|host| !host.address.is_empty());
        if before == Some(&switch) {
            return false;
        }
        self.switches.insert(id, switch);
        if is_as_before && !is_linked {
            return false;
        }
        self.rebuild();
        true
    }

    /// What switches reported earlier, by number and name: all at once.
    pub fn restore(&mut self, known: impl IntoIterator<Item = (SwitchId, String, Vec<Interface>)>) {
        let switch = |(id, name, interfaces)| {
            let interfaces = learned::cut(interfaces);
            (id, Switch { name, interfaces })
        };
        self.switches.extend(known.into_iter().map(switch));
        self.rebuild();
    }

    /// The interfaces that a switch reported last; none: it never did.
    pub fn interfaces_of(&self, id: SwitchId) -> Option<&[Interface]> {
        self.switches.get(&id).map(|switch| &*switch.interfaces)
    }

    /// What a switch reported counts no longer: it is gone for good.
    pub fn forget(&mut self, id: SwitchId) {
        self.switches.remove(&id);
        self.rebuild();
    }

    /// The shortest path, with both ends. None if there is none now.
    pub fn path(&self, from: &NodeId, to: &NodeId) -> Option<Vec<NodeId>> {
        let (start, end) = (*self.index.get(from)?, *self.index.get(to)?);
        let lengths = self.lengths(&[start, end], end);
        let mut path = vec![from.clone()];
        let mut at = start;
        let mut left = *lengths.get(&at)?;
        while at != end {
            let next = self.graph.edges(at).filter_map(|edge| {
                let next = if edge.source() == at { edge.target() } else { edge.source() };
                let length = *lengths.get(&next)?;
                (length + Length::link(*edge.weight()) == left).then_some((
                    &self.graph[next],
                    next,
                    length,
                ))
            });
            // Each step is a link shorter, so this ends.
            let (id, next, length) = next.min_by_key(|(id, _, _)| *id)?;
            path.push(id.clone());
            (at, left) = (next, length);
        }
        Some(path)
    }

    /// Where an address is: the declared host that has it, the switch that has it, or the switch
    /// that is connected to the smallest subnet that holds it; of several switches, one that has it
    /// as a neighbour, then the lowest.
    pub fn attachment(&self, address: IpAddr) -> Option<NodeId> {
        let address = address.to_canonical();
        let host = self.host_of(address).map(|h| NodeId::Host(h.name.clone()));
        if let Some(host) = host.filter(|host| self.index.contains_key(host)) {
            return Some(host);
        }
        self.switch_at(address).map(NodeId::Switch)
    }

    /// Links between two switches that carry packets, each with the lower number first.
    pub fn links_up(&self) -> BTreeSet<(SwitchId, SwitchId)> {
        let up = self.links.iter().filter(|(_, link)| link.carries());
        up.filter_map(|((a, b), _)| Some((a.switch()?, b.switch()?))).collect()
    }

    /// All of it, as the admin API shows it.
    pub fn view(&self) -> TopologyView {
        let declared: BTreeSet<SwitchId> = self.declared.switches.iter().map(|s| s.id).collect();
        let ids: BTreeSet<SwitchId> =
            self.switches.keys().copied().chain(declared.clone()).collect();
        let switches = ids.into_iter().map(|id| SwitchView {
            id,
            name: self.name_of(id),
            source: match declared.contains(&id) {
                true => Source::Declared,
                false => Source::Learned,
            },
            subnets: self
                .subnets
                .iter()
                .filter(|(_, ports)| ports.iter().any(|p| p.switch == id))
                .map(|(net, _)| *net)
                .collect(),
        });
        let name = |node: &NodeId| match node {
            NodeId::Switch(id) => self.name_of(*id),
            NodeId::Host(name) => name.clone(),
        };
        let links = self.links.iter().map(|((a, b), link)| LinkView {
            ends: [name(a), name(b)],
            cost: link.cost,
            up: link.carries(),
            source: link.source,
        });
        TopologyView { switches: switches.collect(), links: links.collect() }
    }

    fn name_of(&self, id: SwitchId) -> String {
        let declared = self.declared.switches.iter().find(|s| s.id == id);
        declared
            .map(|s| s.name.clone())
            .or_else(|| self.switches.get(&id).map(|s| s.name.clone()))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("switch {id}"))
    }

    fn host_of(&self, address: IpAddr) -> Option<&DeclaredHost> {
        let hosts = &self.declared.hosts;
        let has = |host: &&DeclaredHost| host.address.iter().any(|a| a.to_canonical() == address);
        hosts.iter().find(has).or_else(|| {
            let around = |host: &DeclaredHost| {
                let holding = host.network.iter().filter(|net| net.contains(&address));
                holding.map(ipnet::IpNet::prefix_len).max()
            };
            let behind = hosts.iter().filter_map(|host| Some((around(host)?, host)));
            behind.max_by_key(|(len, _)| *len).map(|(_, host)| host)
        })
    }

    fn switch_at(&self, address: IpAddr) -> Option<SwitchId> {
        let near = |port: &&Port| {
            let interfaces = &self.switches[&port.switch].interfaces;
            interfaces.iter().any(|i| i.neighbours.contains(&address))
        };
        let up = |port: &&Port| port.up;
        let holding = self.subnets.iter().filter(|(net, _)| net.contains(&address));
        let mut holding: Vec<(&IpNet, &Vec<Port>)> = holding.collect();
        holding.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        holding.into_iter().find_map(|(_, ports)| {
            let own = ports.iter().filter(up).find(|p| p.address == address);
            let near = || ports.iter().filter(up).find(near);
            let port = own.or_else(near).or_else(|| ports.iter().find(up))?;
            Some(port.switch)
        })
    }

    /// How far it is from everywhere to a node, through switches only.
    fn lengths(&self, ends: &[NodeIndex], to: NodeIndex) -> HashMap<NodeIndex, Length> {
        let forwards =
            |n: NodeIndex| ends.contains(&n) || matches!(self.graph[n], NodeId::Switch(_));
        let graph = NodeFiltered::from_fn(&self.graph, forwards);
        let lengths = dijkstra(&graph, to, None, |edge| Length::link(*edge.weight()));
        lengths.into_iter().collect()
    }

    fn rebuild(&mut self) {
        self.subnets = self.learn_subnets();
        let mut links = self.learned_links();
        for link in &self.declared.links {
            let [Some(a), Some(b)] = link.ends.each_ref().map(|name| self.named(name)) else {
                continue;
            };
            let pair = pair(a, b);
            let learned = links.get(&pair);
            let link = Link {
                cost: link.cost,
                up: learned.is_none_or(|learned| learned.up),
                silent: learned.is_some_and(|learned| learned.silent),
                source: Source::Declared,
            };
            links.insert(pair, link);
        }
        // A host without a declared link is where its addresses are.
        for host in &self.declared.hosts {
            let id = NodeId::Host(host.name.clone());
            if links.keys().any(|(_, b)| *b == id) {
                continue;
            }
            let at: BTreeSet<SwitchId> =
                host.address.iter().filter_map(|a| self.switch_at(a.to_canonical())).collect();
            for switch in at {
                let link = Link { cost: 1, up: true, silent: false, source: Source::Learned };
                links.insert((NodeId::Switch(switch), id.clone()), link);
            }
        }
        self.links = links;
        self.rebuild_graph();
    }

    fn rebuild_graph(&mut self) {
        let mut graph = UnGraph::default();
        let declared = self.declared.switches.iter().map(|s| s.id);
        let ids: BTreeSet<SwitchId> = self.switches.keys().copied().chain(declared).collect();
        let switches = ids.into_iter().map(NodeId::Switch);
        let ends = self.links.iter().filter(|(_, link)| link.up);
        let ends = ends.flat_map(|((a, b), _)| [a.clone(), b.clone()]);
        let nodes: BTreeSet<NodeId> = switches.chain(ends).collect();
        self.index = nodes.into_iter().map(|id| (id.clone(), graph.add_node(id))).collect();
        for ((a, b), link) in self.links.iter().filter(|(_, link)| link.up) {
            graph.add_edge(self.index[a], self.index[b], link.weight());
        }
        self.graph = graph;
    }

    fn learn_subnets(&self) -> Subnets {
        let mut subnets = Subnets::new();
        for (&switch, known) in &self.switches {
            for interface in &known.interfaces {
                for net in &interface.addresses {
                    subnets.entry(net.trunc()).or_default().push(Port {
                        switch,
                        address: net.addr(),
                        interface: interface.name.clone(),
                        up: interface.up,
                        silent: interface.silent.clone(),
                    });
                }
            }
        }
        subnets
    }

    /// Several wires between two switches are one link, which is silent when all of them are.
    fn learned_links(&self) -> BTreeMap<Pair, Link> {
        let mut links: BTreeMap<Pair, Link> = BTreeMap::new();
        for (net, ports) in &self.subnets {
            if learned::is_single(net) {
                continue;
            }
            for (i, a) in ports.iter().enumerate() {
                for b in ports[i + 1..].iter().filter(|b| learned::meet(a, b)) {
                    let pair = pair(NodeId::Switch(a.switch), NodeId::Switch(b.switch));
                    let link = links.entry(pair).or_insert(Link {
                        cost: 1,
                        up: false,
                        silent: true,
                        source: Source::Learned,
                    });
                    link.up |= a.up && b.up;
                    link.silent &= !(a.up && b.up) || learned::is_silent(a, b);
                }
            }
        }
        links
    }

    fn named(&self, name: &str) -> Option<NodeId> {
        let switch = self.declared.switches.iter().find(|s| s.name == name);
        let host = || self.declared.hosts.iter().find(|h| h.name == name);
        switch
            .map(|s| NodeId::Switch(s.id))
            .or_else(|| host().map(|h| NodeId::Host(h.name.clone())))
    }
}

/// The ends of a link in their order: switches before hosts.
fn pair(a: NodeId, b: NodeId) -> Pair {
    if a <= b { (a, b) } else { (b, a) }
}
