//! The kernel's routes and neighbours, remembered by destination, so that the packet path
//! asks nobody.
//!
//! A packet to a destination that is not known passes to the kernel, which forwards it and finds
//! the neighbour; meanwhile the destination is looked up. All are looked up again when the kernel
//! tells of a change, and every [`RECONCILE`]; what no packet went to in between is forgotten.
//! Costs a lock that is only read and a look into a hash table for each packet.
//!
//! Routes are asked for by destination alone: rules that look at more, and several next hops, count
//! only as far as the kernel's answer goes.

use std::{
    collections::HashMap,
    fs,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use dataplane::native::{Fib, Route};
use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::{
    Error, Handle, MulticastGroup, RouteMessageBuilder,
    packet_route::{
        link::LinkAttribute,
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia},
    },
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::warn;

/// After this long everything is looked up again, should the kernel's news have been lost.
const RECONCILE: Duration = Duration::from_secs(10);
/// News that comes together is answered together.
const PAUSE: Duration = Duration::from_millis(20);
/// Destinations that are remembered; the kernel forwards to the others.
const MOST: usize = 16_384;
/// Destinations that may wait to be looked up.
const QUEUE: usize = 1024;

struct Way {
    route: Route,
    /// Longest packet in bytes.
    mtu: u32,
    used: AtomicBool,
}

#[derive(Default)]
struct KnownWays {
    ways: HashMap<IpAddr, Way>,
    /// Interfaces that the kernel forwards from, in IPv4 and in IPv6.
    forwards: HashMap<u32, [bool; 2]>,
}

/// What packets are forwarded by.
pub struct Ways {
    known: Arc<RwLock<KnownWays>>,
    ask: mpsc::Sender<IpAddr>,
}

/// Looks ways up for as long as it lives.
pub struct Lookup(JoinHandle<()>);

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ways {
    /// Begins, for packets that come in by these interfaces. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no more sockets.
    pub fn open(interfaces: Vec<(u32, String)>) -> std::io::Result<(Ways, Lookup)> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv6Rule,
        ];
        let (news_connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        let known = Arc::<RwLock<KnownWays>>::default();
        let (ask, mut asked) = mpsc::channel(QUEUE);
        let keeper = Keeper { interfaces, netlink, known: known.clone() };
        keeper.look_at_forwarding();
        let work = async move {
            tokio::join!(news_connection, connection, async {
                loop {
                    let news = tokio::select! {
                        Some(first) = asked.recv() => {
                            let mut all = vec![first];
                            while let Ok(more) = asked.try_recv() {
                                all.push(more);
                            }
                            keeper.learn(all).await;
                            continue;
                        }
                        Some(_) = messages.next() => true,
                        () = sleep(RECONCILE) => false,
                    };
                    if news {
                        sleep(PAUSE).await;
                        while timeout(Duration::ZERO, messages.next())
                            .await
                            .is_ok_and(|m| m.is_some())
                        {}
                    }
                    keeper.look_again(!news).await;
                }
            });
        };
        Ok((Ways { known, ask }, Lookup(tokio::spawn(work))))
    }
}

impl Fib for Ways {
    fn route(&self, _from: IpAddr, to: IpAddr, len: u16, ingress: u32) -> Route {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // A packet on the recirculation port came in by some other before.
        if let Some(forwards) = known.forwards.get(&ingress)
            && !forwards[usize::from(to.is_ipv6())]
        {
            return Route::Off;
        }
        let Some(way) = known.ways.get(&to) else {
            let _ = self.ask.try_send(to);
            return Route::NoNeighbour { port: 0 };
        };
        if !way.used.load(Relaxed) {
            way.used.store(true, Relaxed);
        }
        if matches!(way.route, Route::By { .. }) && u32::from(len) > way.mtu {
            return Route::TooLong;
        }
        way.route
    }
}

struct Keeper {
    interfaces: Vec<(u32, String)>,
    netlink: Handle,
    known: Arc<RwLock<KnownWays>>,
}

/// An interface's Ethernet address and MTU.
type Links = HashMap<u32, ([u8; 6], u32)>;
type Neighbours = HashMap<(u32, IpAddr), [u8; 6]>;

impl Keeper {
    fn look_at_forwarding(&self) {
        let is_on = |family, device: &str| {
            let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
            fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
        };
        // In IPv6 one setting is for all.
        let v6 = is_on("ipv6", "all");
        let forwards =
            self.interfaces.iter().map(|(index, name)| (*index, [is_on("ipv4", name), v6]));
        let forwards = forwards.collect();
        self.known.write().unwrap_or_else(PoisonError::into_inner).forwards = forwards;
    }

    /// Looks up destinations that nobody knew.
    async fn learn(&self, mut all: Vec<IpAddr>) {
        all.sort_unstable();
        all.dedup();
        let room = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            all.retain(|to| !known.ways.contains_key(to));
            MOST.saturating_sub(known.ways.len())
        };
        all.truncate(room);
        if all.is_empty() {
            return;
        }
        if let Some(ways) = self.look_up(all).await {
            self.known.write().unwrap_or_else(PoisonError::into_inner).ways.extend(ways);
        }
    }

    /// Looks up everything once more; what nobody used is forgotten now and then.
    async fn look_again(&self, forget: bool) {
        self.look_at_forwarding();
        let all = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let used = |way: &Way| way.used.swap(!forget, Relaxed) || !forget;
            known.ways.iter().filter(|(_, way)| used(way)).map(|(to, _)| *to).collect()
        };
        // What cannot be looked up is not relied on any longer.
        let ways = self.look_up(all).await.unwrap_or_default();
        self.known.write().unwrap_or_else(PoisonError::into_inner).ways = ways;
    }

    async fn look_up(&self, all: Vec<IpAddr>) -> Option<HashMap<IpAddr, Way>> {
        let looked = async {
            let (links, neighbours) = (self.links().await?, self.neighbours().await?);
            let mut ways = HashMap::new();
            for to in all {
                let (route, mtu) = match self.route(to).await {
                    Ok(Some(route)) => way(to, &route, &links, &neighbours),
                    // The kernel knows no way, or may not say.
                    Ok(None) | Err(Error::NetlinkError(_)) => (Route::None, 0),
                    Err(other) => return Err(other),
                };
                ways.insert(to, Way { route, mtu, used: AtomicBool::new(true) });
            }
            Ok(ways)
        };
        looked
            .await
            .inspect_err(|e: &Error| warn!("routes cannot be read: {e}; the kernel forwards"))
            .ok()
    }

    async fn route(&self, to: IpAddr) -> Result<Option<RouteMessage>, Error> {
        let question = match to {
            IpAddr::V4(to) => {
                RouteMessageBuilder::<std::net::Ipv4Addr>::new().destination_prefix(to, 32).build()
            }
            IpAddr::V6(to) => {
                RouteMessageBuilder::<std::net::Ipv6Addr>::new().destination_prefix(to, 128).build()
            }
        };
        let mut answer = self.netlink.route().get(question).execute();
        answer.try_next().await
    }

    async fn links(&self) -> Result<Links, Error> {
        let mut found = Links::new();
        let mut links = self.netlink.link().get().execute();
        while let Some(link) = links.try_next().await? {
            let (mut address, mut mtu) = (None, 0);
            for attribute in &link.attributes {
                match attribute {
                    LinkAttribute::Address(bytes) => address = bytes.as_slice().try_into().ok(),
                    LinkAttribute::Mtu(bytes) => mtu = *bytes,
                    _ => {}
                }
            }
            found.extend(address.map(|address| (link.header.index, (address, mtu))));
        }
        Ok(found)
    }

    async fn neighbours(&self) -> Result<Neighbours, Error> {
        let mut found = Neighbours::new();
        let mut neighbours = self.netlink.neighbours().get().execute();
        while let Some(message) = neighbours.try_next().await? {
            found.extend(neighbour(&message));
        }
        Ok(found)
    }
}

fn neighbour(message: &NeighbourMessage) -> Option<((u32, IpAddr), [u8; 6])> {
    let valid = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let (mut ip, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                ip = Some(IpAddr::from(*v4))
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some((*v6).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                address = bytes.as_slice().try_into().ok()
            }
            _ => {}
        }
    }
    Some(((message.header.ifindex, ip.filter(|_| valid)?), address?))
}

fn way(to: IpAddr, route: &RouteMessage, links: &Links, neighbours: &Neighbours) -> (Route, u32) {
    let (mut port, mut via, mut mtu) = (0, to, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => port = *index,
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => via = (*v4).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => via = (*v6).into(),
            RouteAttribute::Via(RouteVia::Inet(v4)) => via = (*v4).into(),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => via = (*v6).into(),
            RouteAttribute::Metrics(all) => {
                mtu = all.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    if route.header.kind != RouteType::Unicast {
        return (Route::None, 0);
    }
    // Of an interface without Ethernet.
    let Some((from, own)) = links.get(&port).copied() else { return (Route::None, 0) };
    let mtu = mtu.unwrap_or(own);
    match neighbours.get(&(port, via)) {
        Some(to) => (Route::By { port, from, to: *to }, mtu),
        None => (Route::NoNeighbour { port }, mtu),
    }
}
