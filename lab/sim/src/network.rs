//! The network as it stands: which links are up, and the shortest ways.
//!
//! Addresses are those that a plan's links have by their numbers ([`plan::network`]). So an address
//! says its link, and a route is a number in a table.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

use plan::network::{Port, PortId, Ports};

/// A route to nowhere.
const NONE: u16 = u16::MAX;

/// All ports, and every machine's routes.
pub struct Network {
    ports: Ports,
    /// Per machine.
    ways: Vec<Arc<Ways>>,
    /// Per machine: what its routing daemon found.
    found: Vec<Vec<Option<u16>>>,
    /// Per machine: routes that go before those, by link.
    set: Vec<BTreeMap<usize, u16>>,
    /// Per link, as the kernels at its ends see it.
    up: Vec<bool>,
    /// How often that changed.
    changes: u64,
}

/// The ways of one machine. Shared with its programs, which look into it while they run.
pub struct Ways {
    /// Per link: the port that leads to its subnet, by its index.
    by_link: Vec<AtomicU16>,
}

impl Ways {
    /// The index of the port that leads to an address.
    #[inline]
    pub fn to(&self, address: IpAddr) -> Option<u16> {
        self.get(link_of(address))
    }

    #[inline]
    fn get(&self, link: usize) -> Option<u16> {
        let index = self.by_link.get(link)?.load(Relaxed);
        (index != NONE).then_some(index)
    }

    fn set(&self, link: usize, index: Option<u16>) {
        self.by_link[link].store(index.unwrap_or(NONE), Relaxed);
    }
}

/// The link of an address.
#[inline]
pub(crate) fn link_of(address: IpAddr) -> usize {
    let n = match address {
        IpAddr::V4(v4) => match v4.octets() {
            [10, high, low, _] => u16::from_be_bytes([high, low]),
            _ => 0,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0xfd00, _, _, n, ..] => n,
            _ => 0,
        },
    };
    usize::from(n).wrapping_sub(1)
}

impl Network {
    /// The network of these ports; nothing has a route yet.
    pub fn new(ports: Ports) -> Network {
        let (links, machines) = (ports.all().len() / 2, ports.machines() as usize);
        let nowhere = || (0..links).map(|_| AtomicU16::new(NONE)).collect();
        Network {
            ports,
            ways: (0..machines).map(|_| Arc::new(Ways { by_link: nowhere() })).collect(),
            found: vec![vec![None; links]; machines],
            set: vec![BTreeMap::new(); machines],
            up: vec![true; links],
            changes: 0,
        }
    }

    /// A port.
    #[inline]
    pub fn port(&self, port: PortId) -> &Port {
        self.ports.port(port)
    }

    /// The port at the other end.
    #[inline]
    pub fn across(&self, port: PortId) -> &Port {
        self.ports.across(port)
    }

    /// A machine's ports, in the order of links.
    #[inline]
    pub fn ports_of(&self, machine: u32) -> &[PortId] {
        self.ports.of(machine)
    }

    /// Whether an address is this port's.
    #[inline]
    pub fn has(&self, port: PortId, address: IpAddr) -> bool {
        let port = self.port(port);
        match address {
            IpAddr::V4(v4) => port.v4 == v4,
            IpAddr::V6(v6) => port.v6 == v6,
        }
    }

    /// The port that has an address.
    pub fn owner(&self, address: IpAddr) -> Option<PortId> {
        let first = link_of(address).checked_mul(2)? as PortId;
        let ends = [first, first.wrapping_add(1)];
        let there = |port: &PortId| (*port as usize) < self.ports.all().len();
        ends.into_iter().filter(there).find(|port| self.has(*port, address))
    }

    /// Whether an address is one of this machine.
    #[inline]
    pub fn is_own(&self, machine: u32, address: IpAddr) -> bool {
        self.owner(address).is_some_and(|port| self.port(port).machine == machine)
    }

    /// The port through which a machine sends to an address.
    #[inline]
    pub fn way(&self, machine: u32, address: IpAddr) -> Option<PortId> {
        let index = self.ways[machine as usize].to(address)?;
        Some(self.ports.of(machine)[usize::from(index)])
    }

    /// The ways of a machine.
    pub fn ways(&self, machine: u32) -> &Arc<Ways> {
        &self.ways[machine as usize]
    }

    /// A machine's main address, that of its first port.
    pub fn address(&self, machine: u32) -> Option<Ipv4Addr> {
        self.ports.first_of(machine).map(|port| port.v4)
    }

    /// Whether a link carries anything.
    pub fn is_up(&self, link: usize) -> bool {
        self.up[link]
    }

    /// How often links went down or came back.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A link goes down or comes back. The kernels at its ends know at once, routing daemons later.
    pub fn set_up(&mut self, link: usize, is_up: bool) {
        self.up[link] = is_up;
        self.changes += 1;
        for side in 0..2 {
            self.settle(self.port((link * 2 + side) as PortId).machine);
        }
    }

    /// Gives a machine routes that go before its routing daemon's: by link, the index of the port
    /// that leads there.
    pub fn set_routes(&mut self, machine: u32, routes: BTreeMap<usize, u16>) {
        self.set[machine as usize] = routes;
        self.settle(machine);
    }

    /// Brings a machine's ways up to date: a route out of a port that is down does not count.
    fn settle(&self, machine: u32) {
        let (at, ways) = (machine as usize, &self.ways[machine as usize]);
        for (link, found) in self.found[at].iter().enumerate() {
            let set = self.set[at].get(&link).copied();
            let has_link = |index: &u16| {
                let port = self.ports_of(machine).get(usize::from(*index));
                port.is_some_and(|port| self.up[(port / 2) as usize])
            };
            ways.set(link, set.filter(has_link).or(*found));
        }
    }

    /// Routing daemons agree on everybody's shortest ways over the links that are up, through
    /// switches only.
    pub fn find_ways(&mut self) {
        for machine in 0..self.ports.machines() {
            self.found[machine as usize] = self.ports.ways_from(machine, |link| self.up[link]);
            self.settle(machine);
        }
    }

    /// The ports on the way from a machine to an address, each the one that is sent out of; `None`
    /// if it does not arrive.
    pub fn path(&self, machine: u32, address: IpAddr) -> Option<Vec<PortId>> {
        let mut path = vec![];
        let mut at = machine;
        while !self.is_own(at, address) {
            let port = self.way(at, address)?;
            if !self.up[(port / 2) as usize] || path.len() > self.ways.len() {
                return None;
            }
            path.push(port);
            at = self.across(port).machine;
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use plan::{Plan, shapes};

    use super::*;

    /// client - switch - switch - server, and a detour.
    fn network() -> Network {
        let is_switch = vec![false, true, true, false, true];
        Network::new(Ports::new(is_switch, &[[0, 1], [1, 2], [2, 3], [1, 4], [4, 2]]))
    }

    #[test]
    fn ways_are_the_shortest_there_are() {
        let mut network = network();
        let server: IpAddr = network.address(3).unwrap().into();
        assert_eq!(server.to_string(), "10.0.3.1");
        assert_eq!(network.path(0, server), None);
        network.find_ways();
        assert_eq!(network.path(0, server), Some(vec![0, 2, 4]));
        network.set_up(1, false);
        assert_eq!(network.path(0, server), None, "not noticed yet");
        network.find_ways();
        let detour = Some(vec![0, 6, 8, 4]);
        assert_eq!(network.path(0, server), detour);
        assert_eq!(network.path(0, network.port(5).v6.into()), detour);
    }

    #[test]
    fn routes_that_are_set_go_first_while_their_port_is_up() {
        let mut network = network();
        network.find_ways();
        let server: IpAddr = network.address(3).unwrap().into();
        network.set_routes(1, BTreeMap::from([(2, 2)]));
        assert_eq!(network.path(0, server), Some(vec![0, 6, 8, 4]));
        network.set_up(3, false);
        assert_eq!(network.path(0, server), Some(vec![0, 2, 4]));
        network.set_up(3, true);
        assert_eq!(network.path(0, server), Some(vec![0, 6, 8, 4]));
        network.set_routes(1, BTreeMap::new());
        assert_eq!(network.path(0, server), Some(vec![0, 2, 4]));
    }

    #[test]
    fn addresses_have_their_owners() {
        let network = network();
        for port in 0..10 {
            let Port { v4, v6, machine, .. } = *network.port(port);
            assert_eq!(network.owner(v4.into()), Some(port));
            assert_eq!(network.owner(v6.into()), Some(port));
            assert!(network.is_own(machine, v4.into()));
        }
        for nobody in ["10.0.1.77", "10.0.6.1", "127.0.0.1", "0.0.0.0", "::1"] {
            assert_eq!(network.owner(nobody.parse().unwrap()), None, "{nobody}");
        }
    }

    /// The network of a plan, with routes.
    fn of(plan: &Plan) -> Network {
        let mut network = Network::new(plan.ports().unwrap());
        network.find_ways();
        network
    }

    #[test]
    fn everybody_reaches_everybody() {
        for plan in [shapes::row(2, 3, 2), shapes::row(1, 1, 4), shapes::racks(3, 1, 4)] {
            let network = of(&plan);
            let machines = 0..plan.sites.len() as u32;
            for (from, to) in
                machines.clone().flat_map(|from| machines.clone().map(move |to| (from, to)))
            {
                let address = network.address(to).unwrap().into();
                assert!(network.path(from, address).is_some());
            }
        }
    }

    #[test]
    fn a_thousand_servers_fit() {
        let plan = shapes::racks(32, 1, 32);
        let network = of(&plan);
        let place = |name| plan.sites.iter().position(|site| site.name == name).unwrap() as u32;
        let address = network.address(place("server32-32")).unwrap().into();
        assert_eq!(network.path(place("client1-1"), address).unwrap().len(), 4);
    }
}
