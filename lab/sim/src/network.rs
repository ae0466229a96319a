//! The network as it stands: who has which address, and the shortest ways.
//!
//! Link `n`, counted from 1, has the subnets 10.H.L.0/24 (H and L the high and the low byte of `n`)
//! and fd00:0:0:n::/64. Hosts are .1 and .2 in it, switches .254 and .253, as in a lab. So an
//! address says its link, and a route is a number in a table.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

use crate::packet::Mac;

/// One end of a link, of the whole world: twice the link's number, plus its side.
pub type PortId = u32;

/// A route to nowhere.
const NONE: u16 = u16::MAX;

/// One end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The machine that has it.
    pub machine: u32,
    /// Which one of the machine's ports it is.
    pub index: u16,
    /// Its hardware address.
    pub mac: Mac,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// All ports, and every machine's routes.
pub struct Network {
    ports: Vec<Port>,
    of_machine: Vec<Vec<PortId>>,
    is_switch: Vec<bool>,
    /// Per machine.
    ways: Vec<Arc<Ways>>,
    /// Per machine: what its routing daemon found.
    found: Vec<Vec<u16>>,
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

    fn set(&self, link: usize, index: u16) {
        self.by_link[link].store(index, Relaxed);
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
    /// The network of these machines, which forward or do not, with links between them; nothing has
    /// a route yet.
    pub fn new(is_switch: Vec<bool>, links: &[[usize; 2]]) -> Network {
        let mut of_machine = vec![vec![]; is_switch.len()];
        let mut ports = vec![];
        for (i, ends) in links.iter().enumerate() {
            let n = i as u16 + 1;
            let [high, low] = n.to_be_bytes();
            let numbers = match ends.map(|end| is_switch[end]) {
                [false, false] => [1, 2],
                [false, true] => [1, 254],
                [true, false] => [254, 1],
                [true, true] => [254, 253],
            };
            for (side, number) in numbers.into_iter().enumerate() {
                let own: &mut Vec<PortId> = &mut of_machine[ends[side]];
                ports.push(Port {
                    machine: ends[side] as u32,
                    index: own.len() as u16,
                    mac: [2, 0x53, 0x53, high, low, side as u8 + 1],
                    v4: Ipv4Addr::new(10, high, low, number),
                    v6: Ipv6Addr::new(0xfd00, 0, 0, n, 0, 0, 0, number.into()),
                });
                own.push((i * 2 + side) as PortId);
            }
        }
        let nowhere = || (0..links.len()).map(|_| AtomicU16::new(NONE));
        let ways = |_: &bool| {
            let by_link = nowhere().collect();
            Arc::new(Ways { by_link })
        };
        let ways = is_switch.iter().map(ways).collect();
        Network {
            ports,
            of_machine,
            found: vec![vec![NONE; links.len()]; is_switch.len()],
            set: vec![BTreeMap::new(); is_switch.len()],
            up: vec![true; links.len()],
            changes: 0,
            is_switch,
            ways,
        }
    }

    /// A port.
    #[inline]
    pub fn port(&self, port: PortId) -> &Port {
        &self.ports[port as usize]
    }

    /// The port at the other end.
    #[inline]
    pub fn across(&self, port: PortId) -> &Port {
        &self.ports[(port ^ 1) as usize]
    }

    /// A machine's ports, in the order of links.
    #[inline]
    pub fn ports_of(&self, machine: u32) -> &[PortId] {
        &self.of_machine[machine as usize]
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
        let there = |port: &PortId| (*port as usize) < self.ports.len();
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
        Some(self.of_machine[machine as usize][usize::from(index)])
    }

    /// The ways of a machine.
    pub fn ways(&self, machine: u32) -> &Arc<Ways> {
        &self.ways[machine as usize]
    }

    /// A machine's main address, that of its first port.
    pub fn address(&self, machine: u32) -> Option<Ipv4Addr> {
        let first = self.ports_of(machine).first()?;
        Some(self.port(*first).v4)
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
            self.settle(self.ports[link * 2 + side].machine);
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
                let port = self.of_machine[at].get(usize::from(*index));
                port.is_some_and(|port| self.up[(port / 2) as usize])
            };
            ways.set(link, set.filter(has_link).unwrap_or(*found));
        }
    }

    /// Routing daemons agree on everybody's shortest ways over the links that are up, through
    /// switches only.
    pub fn find_ways(&mut self) {
        for machine in 0..self.is_switch.len() as u32 {
            self.found[machine as usize] = self.ways_from(machine);
            self.settle(machine);
        }
    }

    /// Breadth first. A machine that is reached knows the first port on the way to it.
    fn ways_from(&self, machine: u32) -> Vec<u16> {
        let mut found = vec![NONE; self.up.len()];
        let mut first = vec![NONE; self.is_switch.len()];
        let mut reached = vec![false; self.is_switch.len()];
        reached[machine as usize] = true;
        let mut queue = VecDeque::from([machine]);
        while let Some(at) = queue.pop_front() {
            for &port in &self.of_machine[at as usize] {
                let link = (port / 2) as usize;
                // An own subnet has its route whether the link is up or not.
                if at != machine && !self.up[link] {
                    continue;
                }
                let index = match at == machine {
                    true => self.port(port).index,
                    false => first[at as usize],
                };
                if found[link] == NONE {
                    found[link] = index;
                }
                let far = self.ports[(port ^ 1) as usize].machine as usize;
                if self.up[link] && !std::mem::replace(&mut reached[far], true) {
                    first[far] = index;
                    if self.is_switch[far] {
                        queue.push_back(far as u32);
                    }
                }
            }
        }
        found
    }

    /// The ports on the way from a machine to an address, each the one that is sent out of; `None`
    /// if it does not arrive.
    pub fn path(&self, machine: u32, address: IpAddr) -> Option<Vec<PortId>> {
        let mut path = vec![];
        let mut at = machine;
        while !self.is_own(at, address) {
            let port = self.way(at, address)?;
            if !self.up[(port / 2) as usize] || path.len() > self.is_switch.len() {
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
    use super::*;

    /// client - switch - switch - server, and a detour.
    fn network() -> Network {
        let is_switch = vec![false, true, true, false, true];
        Network::new(is_switch, &[[0, 1], [1, 2], [2, 3], [1, 4], [4, 2]])
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
}
