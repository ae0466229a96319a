//! What the kernel says of ways: its routes, its neighbours, and whether it forwards.

use std::{collections::HashMap, fs, net::IpAddr};

use dataplane::native::Route;
use futures_util::TryStreamExt;
use rtnetlink::{
    Error, Handle, RouteMessageBuilder,
    packet_route::{
        link::LinkAttribute,
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia},
    },
};
use tracing::warn;

/// The way to a destination, and the longest packet that it takes, in bytes.
pub type KernelWay = (Route, u32);

/// Interfaces that the kernel forwards from, in IPv4 and in IPv6.
pub type Forwarding = HashMap<u32, [bool; 2]>;

/// The kernel, for packets that come in by these interfaces.
pub struct Kernel {
    pub interfaces: Vec<(u32, String)>,
    pub netlink: Handle,
}

/// Who is asked for ways.
pub trait Answers {
    /// From which interfaces it forwards.
    fn forwarding(&self) -> Forwarding;

    /// The ways to all of these; `None`: it does not say.
    fn look_up(
        &self,
        all: Vec<IpAddr>,
    ) -> impl Future<Output = Option<HashMap<IpAddr, KernelWay>>> + Send;
}

/// An interface's Ethernet address and MTU.
type Links = HashMap<u32, ([u8; 6], u32)>;
type Neighbours = HashMap<(u32, IpAddr), [u8; 6]>;

impl Answers for Kernel {
    fn forwarding(&self) -> Forwarding {
        let is_on = |family, device: &str| {
            let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
            fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
        };
        // In IPv6 one setting is for all.
        let v6 = is_on("ipv6", "all");
        self.interfaces.iter().map(|(index, name)| (*index, [is_on("ipv4", name), v6])).collect()
    }

    async fn look_up(&self, all: Vec<IpAddr>) -> Option<HashMap<IpAddr, KernelWay>> {
        let looked = async {
            let (links, neighbours) = (self.links().await?, self.neighbours().await?);
            let mut ways = HashMap::new();
            for to in all {
                let way = match self.route(to).await {
                    Ok(Some(route)) => way(to, &route, &links, &neighbours),
                    // The kernel knows no way, or may not say.
                    Ok(None) | Err(Error::NetlinkError(_)) => (Route::None, 0),
                    Err(other) => return Err(other),
                };
                ways.insert(to, way);
            }
            Ok(ways)
        };
        looked
            .await
            .inspect_err(|e: &Error| warn!("routes cannot be read: {e}; the kernel forwards"))
            .ok()
    }
}

impl Kernel {
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

fn way(to: IpAddr, route: &RouteMessage, links: &Links, neighbours: &Neighbours) -> KernelWay {
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
