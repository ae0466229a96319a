//! Routes that the controller wants, in the kernel's main table.
//!
//! Ours carry the protocol number [`PROTOCOL`]; routes of other protocols are never touched. The
//! kernel takes the route of the lowest metric among those of the same prefix. Ours have
//! [`METRIC`]: before those of routing daemons (20 and more), behind what an operator sets by hand
//! in IPv4, where the metric is 0 unless told otherwise. In IPv6 a route set by hand has 1024: give
//! it a metric below ours if it is to win. A route that stands before ours, or a subnet of the
//! switch itself, is reported as a failure.
//!
//! Routes stay when the agent stops: the switch goes on forwarding, and the next agent takes them
//! over. There is one main table in a network namespace, so only one switch there may be
//! given routes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::{
    Error, RouteMessageBuilder,
    packet_route::{
        AddressFamily,
        route::{
            RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
            RouteType,
        },
    },
};

use api::proto::Route;

use super::{
    interfaces,
    netlink::{self, Netlink},
    wanted::check,
};

/// Our number among the kernel's routing protocols (`ip route` shows `proto 117`): none of those
/// that iproute2 or the kernel's headers name.
pub(crate) const PROTOCOL: u8 = 117;
/// The metric of our routes.
pub(crate) const METRIC: u32 = 17;
/// What came of [`Routes::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteChanges {
    /// Routes that are new or have a new next hop.
    pub installed: usize,
    /// Routes that nobody wants any more.
    pub removed: usize,
    /// One line for each route that is not in force.
    pub failed: Vec<String>,
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    via: IpAddr,
    index: u32,
}

/// A route of our protocol in the kernel. `hop` is none if it is not one that [`Routes::apply`]
/// makes.
struct OwnRoute {
    prefix: IpNet,
    metric: u32,
    tos: u8,
    hop: Option<Hop>,
}

/// Someone else's route of a prefix that we want.
struct Foreign {
    protocol: RouteProtocol,
    metric: u32,
}

/// The kernel's routes as far as they matter here.
#[derive(Default)]
struct Table {
    ours: Vec<OwnRoute>,
    foreign: BTreeMap<IpNet, Foreign>,
}

/// The switch's routes.
pub(crate) struct Routes {
    netlink: Netlink,
    interfaces: Vec<String>,
}

impl Routes {
    /// For a switch with these interfaces. Changes nothing yet.
    ///
    /// # Errors
    /// The kernel has no more sockets.
    pub fn open(interfaces: Vec<String>) -> io::Result<Routes> {
        let netlink = Netlink::open()?;
        Ok(Routes { netlink, interfaces })
    }

    /// Installs these routes, and removes what else is of our protocol. To be repeated at will; a
    /// route that only gets a new next hop is replaced in one step; if the kernel refuses that, the
    /// old one stays in force.
    pub async fn apply(&self, wanted: &[Route]) -> RouteChanges {
        let mut applied = RouteChanges::default();
        if let Err(e) = self.try_apply(wanted, &mut applied).await {
            let said = netlink::describe(&e);
            let line = format!(
                "routes: the kernel's tables cannot be read: {said}; nothing more was done"
            );
            applied.failed.push(line);
        }
        applied
    }

    async fn try_apply(&self, wanted: &[Route], applied: &mut RouteChanges) -> Result<(), Error> {
        let wanted = self.check(wanted, &mut applied.failed).await?;
        let table = self.table(&wanted).await?;
        let mut installed = BTreeSet::new();
        for (prefix, hop) in &wanted {
            let has = |o: &&OwnRoute| o.prefix == *prefix && o.metric == METRIC && o.tos == 0;
            let existing = table.ours.iter().find(has);
            match table.foreign.get(prefix) {
                Some(other) if other.protocol == RouteProtocol::Kernel => {
                    let line =
                        format!("{prefix}: a subnet of this switch itself; it needs no route");
                    applied.failed.push(line);
                    continue;
                }
                Some(other) if other.metric <= METRIC => {
                    let (name, metric) = (protocol_name(other.protocol), other.metric);
                    applied.failed.push(format!(
                        "{prefix}: a route of protocol {name} with metric {metric} stands before ours"
                    ));
                    // Of our metric there can be only one; behind a lower one ours waits for
                    // its turn.
                    if metric == METRIC && existing.is_none() {
                        continue;
                    }
                }
                _ => {}
            }
            installed.insert(*prefix);
            if existing.is_some_and(|existing| existing.hop == Some(*hop)) {
                continue;
            }
            match self.install(*prefix, *hop, existing.is_some()).await {
                Ok(()) => applied.installed += 1,
                Err(e) => {
                    let (via, said) = (hop.via, netlink::describe(&e));
                    let line = format!("{prefix} via {via}: the kernel refused it: {said}");
                    applied.failed.push(line);
                }
            }
        }
        for old in &table.ours {
            if old.metric == METRIC && old.tos == 0 && installed.contains(&old.prefix) {
                continue;
            }
            match self.remove(old).await {
                Ok(()) => applied.removed += 1,
                Err(e) if netlink::errno(&e) == Some(nix::libc::ESRCH) => {} // gone since
                Err(e) => {
                    let (prefix, said) = (old.prefix, netlink::describe(&e));
                    let line = format!("{prefix}: not wanted any more, but not removed: {said}");
                    applied.failed.push(line);
                }
            }
        }
        Ok(())
    }

    /// The routes that make sense on this switch, by prefix; a line for each of the others.
    async fn check(
        &self,
        wanted: &[Route],
        failed: &mut Vec<String>,
    ) -> Result<BTreeMap<IpNet, Hop>, Error> {
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let interfaces = interfaces::read(&self.netlink, &self.interfaces).await?;
        let mut indices = BTreeMap::new();
        for name in &self.interfaces {
            if let Some(link) = interfaces::link(&self.netlink, name).await? {
                indices.insert(name.as_str(), link.header.index);
            }
        }
        let mut hops = BTreeMap::new();
        for (prefix, next) in check(wanted, &interfaces, failed) {
            match indices.get(next.interface) {
                Some(index) => {
                    let (via, index) = (next.via, *index);
                    hops.insert(prefix, Hop { via, index });
                }
                None => failed.push(format!("{prefix}: interface {} is gone", next.interface)),
            }
        }
        Ok(hops)
    }

    /// Reads the main tables; of others' routes keeps the foremost of each wanted prefix.
    async fn table(&self, wanted: &BTreeMap<IpNet, Hop>) -> Result<Table, Error> {
        let mut table = Table::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut filter = RouteMessage::default();
            filter.header.address_family = family;
            filter.header.table = RouteHeader::RT_TABLE_MAIN;
            let mut routes = self.netlink.handle.route().get(filter).execute();
            loop {
                match routes.try_next().await {
                    Ok(Some(route)) => table.take(&route, wanted),
                    Ok(None) => break,
                    Err(e) if has_no_table(&e) => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(table)
    }

    /// Without `replace` nothing is touched that is there, also if it came since we looked.
    async fn install(&self, prefix: IpNet, hop: Hop, replace: bool) -> Result<(), Error> {
        let mut route = message(prefix);
        route.header.protocol = RouteProtocol::Other(PROTOCOL);
        let attributes = [
            RouteAttribute::Gateway(hop.via.into()),
            RouteAttribute::Oif(hop.index),
            RouteAttribute::Priority(METRIC),
        ];
        route.attributes.extend(attributes);
        let request = self.netlink.handle.route().add(route);
        let request = if replace { request.replace() } else { request };
        request.execute().await
    }

    /// Whatever its kind and next hop; with our protocol number the kernel cannot take another's
    /// for it.
    async fn remove(&self, old: &OwnRoute) -> Result<(), Error> {
        let mut route = message(old.prefix);
        route.header.protocol = RouteProtocol::Other(PROTOCOL);
        route.header.scope = RouteScope::NoWhere;
        route.header.kind = RouteType::Unspec;
        route.header.tos = old.tos;
        route.attributes.push(RouteAttribute::Priority(old.metric));
        self.netlink.handle.route().del(route).execute().await
    }
}

impl Table {
    fn take(&mut self, route: &RouteMessage, wanted: &BTreeMap<IpNet, Hop>) {
        // The kernel filters by table only when it checks strictly.
        if route.header.table != RouteHeader::RT_TABLE_MAIN {
            return;
        }
        let (mut to, mut via, mut index, mut metric) = (None, None, None, 0);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Destination(address) => to = address_of(address),
                RouteAttribute::Gateway(address) => via = address_of(address),
                RouteAttribute::Oif(oif) => index = Some(*oif),
                RouteAttribute::Priority(priority) => metric = *priority,
                _ => {}
            }
        }
        let any: IpAddr = match route.header.address_family {
            AddressFamily::Inet => [0; 4].into(),
            _ => [0; 16].into(),
        };
        let len = route.header.destination_prefix_length;
        let Ok(prefix) = IpNet::new(to.unwrap_or(any), len) else { return };
        let (protocol, tos) = (route.header.protocol, route.header.tos);
        if protocol == RouteProtocol::Other(PROTOCOL) {
            let is_plain = route.header.kind == RouteType::Unicast;
            let hop = via.zip(index).filter(|_| is_plain);
            let hop = hop.map(|(via, index)| Hop { via, index });
            self.ours.push(OwnRoute { prefix, metric, tos, hop });
        } else if tos == 0 && wanted.contains_key(&prefix) {
            let is_subnet = protocol == RouteProtocol::Kernel;
            let foreign = self.foreign.entry(prefix);
            let kept = foreign.or_insert(Foreign { protocol, metric });
            let kept_is_subnet = kept.protocol == RouteProtocol::Kernel;
            if !kept_is_subnet && (is_subnet || metric < kept.metric) {
                *kept = Foreign { protocol, metric };
            }
        }
    }
}

/// The main table is made with its first route; a kernel without IPv6 has none of that family.
fn has_no_table(error: &Error) -> bool {
    use nix::libc::{EAFNOSUPPORT, ENOENT, EOPNOTSUPP};
    matches!(netlink::errno(error), Some(ENOENT | EOPNOTSUPP | EAFNOSUPPORT))
}

fn message(prefix: IpNet) -> RouteMessage {
    let mut route = match prefix {
        IpNet::V4(_) => RouteMessageBuilder::<std::net::Ipv4Addr>::new().build(),
        IpNet::V6(_) => RouteMessageBuilder::<std::net::Ipv6Addr>::new().build(),
    };
    route.header.destination_prefix_length = prefix.prefix_len();
    let to = RouteAttribute::Destination(prefix.network().into());
    route.attributes.push(to);
    route
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn protocol_name(protocol: RouteProtocol) -> String {
    match protocol {
        RouteProtocol::Other(number) => number.to_string(),
        named => format!("{named:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn route(prefix: &str, via: &str, interface: &str) -> Route {
        Route { prefix: prefix.into(), via: via.into(), interface: interface.into() }
    }

    fn switch() -> Routes {
        for (name, number) in [("left", 1), ("right", 2)] {
            make(name);
            ip(&format!("addr add 10.0.{number}.254/24 dev {name}"));
            ip(&format!("addr add 2001:db8:{number}::fe/64 dev {name} nodad"));
        }
        Routes::open(vec!["left".into(), "right".into(), "missing".into()]).unwrap()
    }

    fn counts(applied: &RouteChanges) -> (usize, usize) {
        assert_eq!(applied.failed, [""; 0]);
        (applied.installed, applied.removed)
    }

    fn ours() -> Vec<String> {
        let mut lines = vec![];
        for family in ["-4", "-6"] {
            let shown = ip(&format!("{family} route show table main proto {PROTOCOL}"));
            let words = |line: &str| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
            lines.extend(shown.lines().map(words));
        }
        lines
    }

    #[test]
    fn installs_replaces_and_removes_ours_and_nothing_else() {
        in_namespace(async {
            let routes = switch();
            ip("route add 10.7.0.0/16 via 10.0.1.7");
            ip("route add 10.8.0.0/16 via 10.0.1.7 proto 42 metric 17");
            let before = (ip("-4 route"), ip("-6 route"));
            let both = [
                route("10.0.3.0/24", "10.0.1.1", "left"),
                route("2001:db8:3::/64", "2001:db8:1::1", "left"),
            ];
            assert_eq!(counts(&routes.apply(&both).await), (2, 0));
            let first =
                ["10.0.3.0/24 via 10.0.1.1 dev left", "2001:db8:3::/64 via 2001:db8:1::1 dev left"];
            assert_eq!(ours(), first);
            assert_eq!(counts(&routes.apply(&both).await), (0, 0));
            let moved = [
                route("2001:db8:3::/64", "2001:db8:2::1", "right"),
                route("10.0.3.0/24", "10.0.2.1", "right"),
            ];
            assert_eq!(counts(&routes.apply(&moved).await), (2, 0));
            let second = [
                "10.0.3.0/24 via 10.0.2.1 dev right",
                "2001:db8:3::/64 via 2001:db8:2::1 dev right",
            ];
            assert_eq!(ours(), second);
            // Another agent takes over; half of it goes.
            let routes = Routes::open(vec!["right".into()]).unwrap();
            assert_eq!(counts(&routes.apply(&moved[1..]).await), (0, 1));
            assert_eq!(ours(), second[..1]);
            // Left by an older one, of forms that are not made any more.
            ip("route add 10.0.4.0/24 via 10.0.2.1 proto 117 metric 90");
            ip("route add blackhole 10.0.5.0/24 proto 117");
            assert_eq!(counts(&routes.apply(&[]).await), (0, 3));
            assert_eq!((ip("-4 route"), ip("-6 route")), before);
        });
    }

    #[test]
    fn what_stands_before_ours_stays_and_is_told() {
        in_namespace(async {
            let routes = switch();
            ip("route add 10.0.3.0/24 via 10.0.1.7 proto static");
            ip("route add 10.0.4.0/24 via 10.0.1.7 proto 42 metric 17");
            ip("route add 10.0.5.0/24 via 10.0.1.7 proto 12 metric 32");
            let wanted = [
                route("10.0.3.0/24", "10.0.2.1", "right"),
                route("10.0.4.0/24", "10.0.2.1", "right"),
                route("10.0.5.0/24", "10.0.2.1", "right"),
                route("10.0.1.0/24", "10.0.2.1", "right"),
                route("2001:db8:1::/64", "2001:db8:2::1", "right"),
            ];
            let before = ip("-6 route");
            let told = [
                "10.0.1.0/24: a subnet of this switch itself; it needs no route",
                "10.0.3.0/24: a route of protocol static with metric 0 stands before ours",
                "10.0.4.0/24: a route of protocol babel with metric 17 stands before ours",
                "2001:db8:1::/64: a subnet of this switch itself; it needs no route",
            ];
            assert_eq!(routes.apply(&wanted).await.failed, told);
            assert!(ip("route get 10.0.3.1").contains("via 10.0.1.7"));
            assert!(ip("route get 10.0.4.1").contains("via 10.0.1.7"));
            assert!(ip("route get 10.0.5.1").contains("via 10.0.2.1"));
            assert_eq!(ip("-6 route"), before);
            // Ours waited behind the static one.
            ip("route del 10.0.3.0/24 proto static");
            assert!(ip("route get 10.0.3.1").contains("via 10.0.2.1"));
        });
    }

    #[test]
    fn what_cannot_be_is_told_in_one_line_each() {
        in_namespace(async {
            let routes = switch();
            let rows = [
                (
                    ("ten", "10.0.1.1", "left"),
                    "ten: not a prefix; expected an address and a length, as 10.0.3.0/24",
                ),
                (
                    ("10.0.3.7/24", "10.0.1.1", "left"),
                    "10.0.3.7/24: has bits set beyond its length; expected 10.0.3.0/24",
                ),
                (
                    ("224.0.0.0/4", "10.0.1.1", "left"),
                    "224.0.0.0/4: multicast and loopback addresses are not routed",
                ),
                (
                    ("10.0.3.0/24", "left", "left"),
                    "10.0.3.0/24: via left: not an address; expected one as 10.0.1.1",
                ),
                (
                    ("10.0.3.0/24", "2001:db8:1::1", "left"),
                    "10.0.3.0/24: via 2001:db8:1::1: expected an address of the same family",
                ),
                (
                    ("10.0.3.0/24", "10.0.1.1", "up"),
                    "10.0.3.0/24: interface up is none of this switch's; expected one of left, right, missing",
                ),
                (
                    ("10.0.3.0/24", "10.0.1.1", "right"),
                    "10.0.3.0/24: via 10.0.1.1: in no subnet of right, so not reachable through it",
                ),
                (
                    ("10.0.3.0/24", "10.0.1.254", "left"),
                    "10.0.3.0/24: via 10.0.1.254: an address of this switch itself",
                ),
            ];
            let mut wanted = vec![route("10.0.9.0/24", "10.0.1.1", "left")];
            wanted.extend(rows.iter().map(|((prefix, via, on), _)| route(prefix, via, on)));
            wanted.push(route("10.0.9.0/24", "10.0.2.1", "right"));
            let mut told: Vec<&str> = rows.iter().map(|(_, line)| *line).collect();
            told.push("10.0.9.0/24: given twice; expected one next hop");
            let applied = routes.apply(&wanted).await;
            assert_eq!(applied.failed, told);
            assert_eq!(
                (applied.installed, ours()),
                (1, vec!["10.0.9.0/24 via 10.0.1.1 dev left".to_owned()])
            );
            ip("link set right down");
            let down = routes.apply(&[route("10.0.9.0/24", "10.0.2.1", "right")]).await;
            assert_eq!(down.failed.len(), 1);
            assert!(
                down.failed[0].starts_with("10.0.9.0/24 via 10.0.2.1: the kernel refused it: ")
            );
        });
    }
}
