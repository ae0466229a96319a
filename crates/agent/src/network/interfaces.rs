//! The switch's interfaces as the kernel has them: carrier, addresses and neighbours.
//!
//! Costs per reading: one request per interface, one dump of the addresses and one of the
//! neighbours of the namespace; at most one reading per [`PAUSE`] but for carrier losses, and one
//! per [`RECONCILE`] when nothing happens.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::{
    Error,
    packet_route::{
        address::{AddressAttribute, AddressFlags, AddressMessage},
        link::{LinkAttribute, LinkFlags, LinkMessage},
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use super::netlink::{self, Netlink, News};

/// Between two readings, unless a carrier was lost.
const PAUSE: Duration = Duration::from_millis(100);
/// After this long everything is read again, should the kernel's news have been lost.
const RECONCILE: Duration = Duration::from_secs(10);
/// After a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Addresses told of one interface, and neighbours: as many as the kernel keeps by default, and few
/// enough for one message to the controller.
const MOST: usize = 1024;

/// An interface that the switch is attached to. Lists are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Switched on and with carrier. An interface that is gone is not up.
    pub up: bool,
    /// Its usable addresses with their prefix lengths; none of link scope.
    pub addresses: Vec<IpNet>,
    /// Addresses that the kernel has a hardware address for; none of link scope.
    pub neighbours: Vec<IpAddr>,
}

impl Interface {
    fn gone(name: &str) -> Interface {
        Interface { name: name.into(), up: false, addresses: vec![], neighbours: vec![] }
    }
}

/// Reads these interfaces of this network namespace, in the order given.
///
/// # Errors
/// The kernel refused; an interface that is gone is no error.
pub(super) async fn read(netlink: &Netlink, names: &[String]) -> Result<Vec<Interface>, Error> {
    let mut interfaces: Vec<Interface> = vec![];
    let mut by_index = BTreeMap::new();
    for name in names {
        let mut interface = Interface::gone(name);
        if let Some(link) = link(netlink, name).await? {
            interface.up = is_up(&link);
            by_index.insert(link.header.index, interfaces.len());
        }
        interfaces.push(interface);
    }
    let mut addresses = netlink.handle.address().get().execute();
    while let Some(message) = addresses.try_next().await? {
        if let Some(at) = by_index.get(&message.header.index) {
            let addresses = &mut interfaces[*at].addresses;
            addresses.extend(usable(&message).filter(|_| addresses.len() < MOST));
        }
    }
    let mut neighbours = netlink.handle.neighbours().get().execute();
    while let Some(message) = neighbours.try_next().await? {
        if let Some(at) = by_index.get(&message.header.ifindex) {
            let neighbours = &mut interfaces[*at].neighbours;
            neighbours.extend(known(&message).filter(|_| neighbours.len() < MOST));
        }
    }
    for interface in &mut interfaces {
        interface.addresses.sort();
        interface.addresses.dedup();
        interface.neighbours.sort();
        interface.neighbours.dedup();
    }
    Ok(interfaces)
}

/// An interface's state, if there is one of that name.
///
/// # Errors
/// The kernel refused.
pub(super) async fn link(netlink: &Netlink, name: &str) -> Result<Option<LinkMessage>, Error> {
    let mut found = netlink.handle.link().get().match_name(name).execute();
    match found.try_next().await {
        Err(e) if netlink::errno(&e) == Some(nix::libc::ENODEV) => Ok(None),
        other => other,
    }
}

/// IFF_RUNNING is the operational state, which also knows of protocols that a port has to
/// pass first.
fn is_up(link: &LinkMessage) -> bool {
    let needed = LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running;
    link.header.flags.contains(needed)
}

/// On a point-to-point interface the local end counts.
fn usable(message: &AddressMessage) -> Option<IpNet> {
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    // Not yet, or not at all, ours to use: another host may have it.
    let contested = flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed)
        && !flags.contains(AddressFlags::Optimistic);
    let ip = local.or(address).filter(|ip| !contested && is_wider(*ip))?;
    IpNet::new(ip, message.header.prefix_len).ok()
}

fn known(message: &NeighbourMessage) -> Option<IpAddr> {
    let reached = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let (mut ip, mut has_hardware) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some((*v4).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some((*v6).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => has_hardware = !bytes.is_empty(),
            _ => {}
        }
    }
    ip.filter(|ip| reached && has_hardware && is_wider(*ip))
}

/// An address that means the same host on more than one link.
fn is_wider(ip: IpAddr) -> bool {
    let of_link = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(of_link || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified())
}

/// The interfaces as they were last read, told again after each change; empty before they were read
/// for the first time. Ends with its last receiver.
pub(super) fn watch(names: Vec<String>) -> watch::Receiver<Vec<Interface>> {
    let (tell, told) = watch::channel(vec![]);
    tokio::spawn(async move {
        let mut complained = false;
        while let Err(reason) = follow(&names, &tell).await {
            if !std::mem::replace(&mut complained, true) {
                warn!("interfaces: {reason}; trying again, the last known state stands");
            }
            tokio::select! {
                () = tell.closed() => return,
                () = sleep(RETRY) => {}
            }
        }
    });
    told
}

/// Follows the kernel's news until nobody listens any more.
async fn follow(names: &[String], tell: &watch::Sender<Vec<Interface>>) -> Result<(), String> {
    let no_socket = |e: std::io::Error| format!("no netlink socket: {e}");
    // Two sockets: a flood of news must not push out answers. News first, or a change could
    // slip between.
    let mut changes = Changes::listen(names).map_err(no_socket)?;
    let netlink = Netlink::open().map_err(no_socket)?;
    loop {
        let read = read(&netlink, names).await;
        let now = read.map_err(|e| format!("cannot be read: {}", netlink::describe(&e)))?;
        tell.send_if_modified(|last| {
            let changed = *last != now;
            *last = now;
            changed
        });
        tokio::select! {
            () = tell.closed() => return Ok(()),
            () = sleep(RECONCILE) => {}
            changed = changes.next(Instant::now() + PAUSE) => {
                changed.map_err(|_| "the kernel's news ended")?;
            }
        }
    }
}

/// How much happened: all that is kept of the news, so that nothing piles up however much there is
/// of it.
#[derive(Clone, Copy, Default)]
struct Counts {
    news: u64,
    carriers_lost: u64,
}

struct Changes {
    counts: watch::Receiver<Counts>,
    carriers_lost: u64,
}

impl Changes {
    fn listen(names: &[String]) -> std::io::Result<Changes> {
        let (socket, mut news) = netlink::news()?;
        let (tell, counts) = watch::channel(Counts::default());
        let names: HashSet<String> = names.iter().cloned().collect();
        tokio::spawn(async move {
            let _socket = socket;
            let mut down = HashSet::new();
            loop {
                let news = tokio::select! {
                    news = news.next() => news,
                    () = tell.closed() => None,
                };
                let Some(news) = news else { return };
                let lost = matches!(&news, News::Link(link) if has_lost(link, &names, &mut down));
                tell.send_modify(|counts| {
                    counts.news += 1;
                    counts.carriers_lost += u64::from(lost);
                });
            }
        });
        Ok(Changes { counts, carriers_lost: 0 })
    }

    /// Returns after some news: at once if a carrier was lost, else not before that time.
    async fn next(&mut self, not_before: Instant) -> Result<(), watch::error::RecvError> {
        self.counts.changed().await?;
        while self.counts.borrow_and_update().carriers_lost == self.carriers_lost {
            tokio::select! {
                () = sleep_until(not_before) => break,
                changed = self.counts.changed() => changed?,
            }
        }
        self.carriers_lost = self.counts.borrow().carriers_lost;
        Ok(())
    }
}

/// Whether one of these links went from up, or from being unheard of, to down.
fn has_lost(link: &LinkMessage, names: &HashSet<String>, down: &mut HashSet<String>) -> bool {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    let Some(name) = name.filter(|name| names.contains(*name)) else { return false };
    if is_up(link) {
        down.remove(name);
        return false;
    }
    down.insert(name.clone())
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn named(interfaces: &[Interface], name: &str) -> Interface {
        let found = interfaces.iter().find(|i| i.name == name);
        found.cloned().unwrap_or_else(|| Interface::gone(name))
    }

    #[test]
    fn reads_the_given_interfaces_and_nothing_else() {
        in_namespace(async {
            ip("link add left type veth peer name right");
            make("other");
            ip("addr add 10.0.1.254/24 dev left");
            ip("addr add 10.0.0.254/24 dev left");
            ip("addr add 169.254.1.1/16 dev left");
            ip("addr add 2001:db8:1::fe/64 dev left nodad");
            ip("addr add 10.9.0.1/24 dev other");
            ip("link set left up");
            ip("link set right up");
            ip("neigh add 10.0.1.1 dev left lladdr 02:00:00:00:00:01 nud permanent");
            ip("neigh add 2001:db8:1::1 dev left lladdr 02:00:00:00:00:01 nud stale");
            ip("neigh add fe80::1 dev left lladdr 02:00:00:00:00:01 nud stale");
            ip("neigh add 10.0.1.2 dev left nud failed");
            ip("neigh add 10.9.0.2 dev other lladdr 02:00:00:00:00:02 nud stale");
            until_up("left");
            let netlink = Netlink::open().unwrap();
            let names = ["left".to_owned(), "missing".to_owned()];
            let read = read(&netlink, &names).await.unwrap();
            let nets = ["10.0.0.254/24", "10.0.1.254/24", "2001:db8:1::fe/64"];
            let left = Interface {
                name: "left".into(),
                up: true,
                addresses: nets.map(|net| net.parse().unwrap()).into(),
                neighbours: ["10.0.1.1", "2001:db8:1::1"].map(|ip| ip.parse().unwrap()).into(),
            };
            assert_eq!(read, [left, Interface::gone("missing")]);
        });
    }

    #[test]
    fn tells_of_every_change() {
        in_namespace(async {
            ip("link add left type veth peer name right");
            ip("link set left up");
            let mut told = watch(vec!["left".into(), "late".into()]);
            ip("link set right up");
            until(&mut told, |all| named(all, "left").up).await;
            ip("addr add 10.0.1.254/24 dev left");
            until(&mut told, |all| named(all, "left").addresses.len() == 1).await;
            ip("neigh add 10.0.1.1 dev left lladdr 02:00:00:00:00:01 nud permanent");
            until(&mut told, |all| named(all, "left").neighbours.len() == 1).await;
            ip("neigh del 10.0.1.1 dev left");
            until(&mut told, |all| named(all, "left").neighbours.is_empty()).await;
            ip("link set right down");
            until(&mut told, |all| !named(all, "left").up).await;
            make("late");
            until(&mut told, |all| named(all, "late").up).await;
            ip("link del left");
            until(&mut told, |all| named(all, "left") == Interface::gone("left")).await;
        });
    }

    #[test]
    fn a_lost_carrier_is_told_before_the_pause_is_over() {
        in_namespace(async {
            ip("link add left type veth peer name right");
            ip("link set left up");
            ip("link set right up");
            until_up("left");
            let mut changes = Changes::listen(&["left".to_owned()]).unwrap();
            let far_away = Instant::now() + Duration::from_secs(3600);
            let next = changes.next(far_away);
            ip("link set right down");
            tokio::time::timeout(PATIENCE, next).await.unwrap().unwrap();
        });
    }
}
