//! Who has which address, and the shortest ways: the same in every world.
//!
//! Link `n`, counted from 1, has the subnets 10.H.L.0/24 (H and L the high and the low byte of `n`)
//! and fd00:0:0:n::/64. Hosts are .1 and .2 in it, switches .254 and .253. Machines and links are
//! named by their places, so that a world of thousands of them is laid out at once.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, Ipv6Addr},
};

/// One end of a link, of the whole network: twice the link's place, plus its side.
pub type PortId = u32;

/// One end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The machine that has it.
    pub machine: u32,
    /// Which one of the machine's ports it is.
    pub index: u16,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// All ports of machines that are linked.
#[derive(Clone, Debug)]
pub struct Ports {
    all: Vec<Port>,
    of_machine: Vec<Vec<PortId>>,
    is_switch: Vec<bool>,
}

impl Ports {
    /// Those of these machines, which forward or do not, with links between them.
    pub fn new(is_switch: Vec<bool>, links: &[[usize; 2]]) -> Ports {
        let mut of_machine: Vec<Vec<PortId>> = vec![vec![]; is_switch.len()];
        let mut all = vec![];
        for (link, ends) in links.iter().enumerate() {
            let n = (link + 1) as u16;
            let [high, low] = n.to_be_bytes();
            let numbers: [u8; 2] = match ends.map(|end| is_switch[end]) {
                [false, false] => [1, 2],
                [false, true] => [1, 254],
                [true, false] => [254, 1],
                [true, true] => [254, 253],
            };
            for (side, number) in numbers.into_iter().enumerate() {
                let own = &mut of_machine[ends[side]];
                all.push(Port {
                    machine: ends[side] as u32,
                    index: own.len() as u16,
                    mac: [2, 0x53, 0x53, high, low, side as u8 + 1],
                    v4: Ipv4Addr::new(10, high, low, number),
                    v6: Ipv6Addr::new(0xfd00, 0, 0, n, 0, 0, 0, number.into()),
                });
                own.push((link * 2 + side) as PortId);
            }
        }
        Ports { all, of_machine, is_switch }
    }

    /// All of them, in the order of links, two for each.
    pub fn all(&self) -> &[Port] {
        &self.all
    }

    /// A port.
    #[inline]
    pub fn port(&self, port: PortId) -> &Port {
        &self.all[port as usize]
    }

    /// The port at the other end.
    #[inline]
    pub fn across(&self, port: PortId) -> &Port {
        &self.all[(port ^ 1) as usize]
    }

    /// A machine's ports, in the order of links.
    #[inline]
    pub fn of(&self, machine: u32) -> &[PortId] {
        &self.of_machine[machine as usize]
    }

    /// A machine's first port: others know it by its address.
    pub fn first_of(&self, machine: u32) -> Option<&Port> {
        self.of(machine).first().map(|port| self.port(*port))
    }

    /// How many machines there are, with ports or without.
    pub fn machines(&self) -> u32 {
        self.is_switch.len() as u32
    }

    /// The shortest ways from a machine to the subnet of each link, by the links that are up, over
    /// switches only: the index of the machine's port that leads there. An own subnet has its way
    /// whether the link is up or not.
    pub fn ways_from(&self, machine: u32, is_up: impl Fn(usize) -> bool) -> Vec<Option<u16>> {
        // Breadth first. A machine that is reached knows the first port on the way to it.
        let mut found = vec![None; self.all.len() / 2];
        let mut first = vec![None; self.is_switch.len()];
        let mut reached = vec![false; self.is_switch.len()];
        reached[machine as usize] = true;
        let mut queue = VecDeque::from([machine]);
        while let Some(at) = queue.pop_front() {
            for &port in self.of(at) {
                let link = (port / 2) as usize;
                if at != machine && !is_up(link) {
                    continue;
                }
                let index = match at == machine {
                    true => Some(self.port(port).index),
                    false => first[at as usize],
                };
                found[link] = found[link].or(index);
                let far = self.across(port).machine as usize;
                if is_up(link) && !std::mem::replace(&mut reached[far], true) {
                    first[far] = index;
                    if self.is_switch[far] {
                        queue.push_back(far as u32);
                    }
                }
            }
        }
        found
    }
}
