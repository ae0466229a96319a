//! Client hosts with two addresses of each family: what they send comes from the one, then from
//! the other.

use anyhow::Context;
use lab::namespace;
use plan::topology::Interface;

use super::layout::SERVERS;
use crate::rig::Rig;

/// The last number of a client's second addresses.
const SECOND: u8 = 77;

/// A client host: its end of its link, and the switch's.
pub(super) struct Movable {
    own: Interface,
    switch: Interface,
    /// Whether it sends from its second addresses.
    has_moved: bool,
}

impl Movable {
    /// Gives a host its second addresses.
    ///
    /// # Errors
    /// A host without a link, or `ip` refuses.
    pub fn new(rig: &Rig, host: &str) -> anyhow::Result<Movable> {
        let ends = rig.topology().interfaces().into_iter();
        let pair = ends.flat_map(|[a, b]| [(a.clone(), b.clone()), (b, a)]);
        let mut own = pair.filter(|(own, _)| own.node == host);
        let (own, switch) = own.next().context("a client host without a link")?;
        let new = Movable { own, switch, has_moved: true };
        let (host, switch) = (rig.namespace(&new.own.node)?, rig.namespace(&new.switch.node)?);
        for (address, length) in new.addresses().into_iter().zip(["24", "64"]) {
            let dev = &new.own.name;
            let with = format!("{address}/{length}");
            // An address of IPv6 is there at once only without the search for others that have it:
            // the lab has that off.
            namespace::ip(&["-n", &host, "addr", "add", &with, "dev", dev])?;
            let (dev, mac) = (&new.switch.name, &new.own.mac);
            let neighbour = ["neigh", "replace", &address, "lladdr", mac, "dev", dev];
            namespace::ip(&[&["-n", &switch][..], &neighbour, &["nud", "permanent"]].concat())?;
        }
        Ok(Movable { has_moved: false, ..new })
    }

    /// The addresses that it sends from, IPv4's first.
    fn addresses(&self) -> [String; 2] {
        let (mut v4, mut v6) = (self.own.v4.octets(), self.own.v6.segments());
        if self.has_moved {
            v4[3] = SECOND;
            v6[7] = SECOND.into();
        }
        [std::net::Ipv4Addr::from(v4).to_string(), std::net::Ipv6Addr::from(v6).to_string()]
    }

    /// What it sends to the stores comes from its other addresses from now on.
    ///
    /// # Errors
    /// `ip` refuses.
    pub fn move_on(&mut self, rig: &Rig) -> anyhow::Result<()> {
        self.has_moved = !self.has_moved;
        let space = rig.namespace(&self.own.node)?;
        let [v4, v6] = self.addresses();
        for server in SERVERS {
            let end = rig.topology().first_interface(server);
            let end = end.context("a server without an address")?;
            let ways = [
                ("-4", end.v4.to_string(), self.switch.v4.to_string(), &v4),
                ("-6", end.v6.to_string(), self.switch.v6.to_string(), &v6),
            ];
            for (family, store, via, from) in ways {
                let way = ["route", "replace", &store, "via", &via, "src", from];
                namespace::ip(&[&["-n", &space, family][..], &way].concat())?;
            }
        }
        Ok(())
    }
}
