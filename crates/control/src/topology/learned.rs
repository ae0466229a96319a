//! What can be learned from the switches' own interfaces.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use decide::SwitchId;
use ipnet::IpNet;

/// Interfaces of one switch that are considered, and addresses and neighbours of each.
const INTERFACES_MAX: usize = 1024;
/// See [`INTERFACES_MAX`].
const ADDRESSES_MAX: usize = 1024;

/// An interface of a switch as its agent reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's name.
    pub name: String,
    /// Whether it is up with carrier.
    pub up: bool,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<IpNet>,
    /// Addresses that it has a hardware address for.
    pub neighbours: Vec<IpAddr>,
    /// Switches on its links that answer no probes any more.
    pub silent: Vec<SwitchId>,
}

impl Interface {
    /// Whether it is the same as another one, but for its neighbours.
    pub(super) fn is_but_for_neighbours(&self, other: &Interface) -> bool {
        let Interface { name, up, addresses, neighbours: _, silent } = self;
        (name, up, addresses, silent) == (&other.name, &other.up, &other.addresses, &other.silent)
    }
}

/// An address of a switch on a subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub switch: SwitchId,
    pub address: IpAddr,
    pub interface: String,
    pub up: bool,
    pub silent: Vec<SwitchId>,
}

/// Who is on which subnet.
pub(super) type Subnets = BTreeMap<IpNet, Vec<Port>>;

/// Takes over what may connect anything: no loopback, no link-local and no multicast addresses, and
/// not more than is considered.
pub(super) fn cut(interfaces: Vec<Interface>) -> Vec<Interface> {
    let cut = |mut interface: Interface| {
        interface.addresses.retain(|net| connects(net.addr()));
        interface.addresses.truncate(ADDRESSES_MAX);
        interface.neighbours.truncate(ADDRESSES_MAX);
        interface.silent.truncate(ADDRESSES_MAX);
        interface
    };
    interfaces.into_iter().take(INTERFACES_MAX).map(cut).collect()
}

fn connects(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => is_link_local(v6),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// Whether two ports are on one wire. Two switches with the very same address are not: each has a
/// subnet of its own that happens to be numbered alike, as those of container bridges are.
pub(super) fn meet(a: &Port, b: &Port) -> bool {
    a.switch != b.switch && a.address != b.address
}

/// Whether one of two ports on one wire hears nothing of the other any more.
pub(super) fn is_silent(a: &Port, b: &Port) -> bool {
    a.silent.contains(&b.switch) || b.silent.contains(&a.switch)
}

/// A subnet that connects nothing, but can be reached: a single address.
pub(super) fn is_single(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}
