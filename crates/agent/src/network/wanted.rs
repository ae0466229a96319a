//! The routes that the controller wants, against the interfaces that a switch has. No I/O.

use std::{collections::BTreeMap, net::IpAddr};

use api::proto::{Route, Routes};
use ipnet::IpNet;

use super::Interface;

/// Routes taken from the controller.
pub(super) const MOST_ROUTES: usize = 16_384;

/// Where packets to a prefix go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// Its address.
    pub via: IpAddr,
    /// The name of the interface that it is on.
    pub interface: &'a str,
}

/// Whether these routes are older than the last ones that a switch took: then it leaves them out.
pub fn is_old(routes: &Routes, last: &Routes) -> bool {
    (routes.term, routes.version) < (last.term, last.version)
}

/// The routes that make sense on a switch with these interfaces, by prefix; a line for each of the
/// others goes to `failed`.
pub fn check<'a>(
    wanted: &'a [Route],
    interfaces: &[Interface],
    failed: &mut Vec<String>,
) -> BTreeMap<IpNet, NextHop<'a>> {
    let mut checked = BTreeMap::new();
    if wanted.len() > MOST_ROUTES {
        let more = wanted.len() - MOST_ROUTES;
        failed.push(format!("{more} routes beyond the first {MOST_ROUTES} are left out"));
    }
    for route in wanted.iter().take(MOST_ROUTES) {
        let hop = parse(route, interfaces).and_then(|(prefix, via)| {
            if checked.contains_key(&prefix) {
                return Err("given twice; expected one next hop".to_owned());
            }
            let interface = route.interface.as_str();
            Ok((prefix, NextHop { via, interface }))
        });
        match hop {
            Ok((prefix, hop)) => drop(checked.insert(prefix, hop)),
            Err(reason) => failed.push(format!("{}: {reason}", cut(&route.prefix))),
        }
    }
    checked
}

/// What a peer sent, short enough to be sent back.
fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Checks everything of a route that can be known without asking for it, or says what is wrong.
fn parse(route: &Route, interfaces: &[Interface]) -> Result<(IpNet, IpAddr), String> {
    let prefix: IpNet = route
        .prefix
        .parse()
        .map_err(|_| "not a prefix; expected an address and a length, as 10.0.3.0/24".to_owned())?;
    if prefix != prefix.trunc() {
        let meant = prefix.trunc();
        return Err(format!("has bits set beyond its length; expected {meant}"));
    }
    let network = prefix.network();
    if network.is_multicast() || network.is_loopback() {
        return Err("multicast and loopback addresses are not routed".into());
    }
    let via = cut(&route.via);
    let hop: IpAddr =
        via.parse().map_err(|_| format!("via {via}: not an address; expected one as 10.0.1.1"))?;
    if hop.is_ipv4() != network.is_ipv4() {
        return Err(format!("via {hop}: expected an address of the same family"));
    }
    let name = cut(&route.interface);
    let Some(interface) = interfaces.iter().find(|i| i.name == route.interface) else {
        let names: Vec<&str> = interfaces.iter().map(|i| i.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("interface {name} is none of this switch's; expected one of {names}"));
    };
    if interfaces.iter().any(|i| i.addresses.iter().any(|a| a.addr() == hop)) {
        return Err(format!("via {hop}: an address of this switch itself"));
    }
    let of_link = matches!(hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if !of_link && !interface.addresses.iter().any(|subnet| subnet.contains(&hop)) {
        return Err(format!("via {hop}: in no subnet of {name}, so not reachable through it"));
    }
    Ok((prefix, hop))
}
