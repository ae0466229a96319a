//! Sends a switch's probes and takes the answers: one connected socket per neighbour, so that the
//! kernel's route to the link's own subnet leads out of the right interface, and a refusal says
//! whose it is.

use std::{
    collections::BTreeMap,
    future::pending,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
};

use api::proto::Setup;
use ipnet::IpNet;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Interface,
    probes::{Probes, Silent},
};
use crate::sockets::AT_ONCE;

/// Longest answer that is of interest.
const LONGEST: usize = 256;

/// Probes as the last setup says, until nobody gives any.
pub(super) async fn probe(
    mut setups: watch::Receiver<Option<Setup>>,
    mut interfaces: watch::Receiver<Vec<Interface>>,
    tell: watch::Sender<Silent>,
) {
    let mut probes = Probes::default();
    let mut sockets = BTreeMap::new();
    let mut links = links_of(&interfaces.borrow_and_update());
    loop {
        let next = async {
            match probes.next() {
                Some(next) => sleep_until(Instant::from_std(next)).await,
                None => pending().await,
            }
        };
        let mut is_moved = false;
        tokio::select! {
            changed = setups.changed() => {
                if changed.is_err() {
                    return;
                }
                if let Some(setup) = &*setups.borrow_and_update() {
                    probes.set_up(setup);
                }
                let neighbours: Vec<SocketAddr> = probes.neighbours().collect();
                sockets.retain(|to, _| neighbours.contains(to));
            }
            () = super::changed(&mut interfaces) => {
                let now = links_of(&interfaces.borrow_and_update());
                is_moved = now != links;
                links = now;
            }
            () = next => {}
        }
        for (from, socket) in &sockets {
            drain(*from, socket, &mut probes);
        }
        // A socket's own address may be no longer one of this machine.
        if is_moved {
            sockets.clear();
        }
        probes.due(std::time::Instant::now(), |to, datagram| {
            let socket = match sockets.get(&to) {
                Some(socket) => socket,
                None => match connect(to) {
                    Ok(socket) => sockets.entry(to).or_insert(socket),
                    Err(_) => return false,
                },
            };
            // That there is no answer on the link layer is no answer either.
            let sent = socket.send(datagram);
            sent.map_or_else(|e| e.kind() == ErrorKind::HostUnreachable, |_| true)
        });
        let silent = probes.silent();
        tell.send_if_modified(|last| {
            let is_news = *last != silent;
            *last = silent;
            is_news
        });
    }
}

/// What a socket's own address goes by, of each interface: neighbours come and go all the time.
fn links_of(interfaces: &[Interface]) -> Vec<(String, bool, Vec<IpNet>)> {
    let link = |i: &Interface| (i.name.clone(), i.up, i.addresses.clone());
    interfaces.iter().map(link).collect()
}

fn connect(to: SocketAddr) -> std::io::Result<UdpSocket> {
    let any = match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

fn drain(from: SocketAddr, socket: &UdpSocket, probes: &mut Probes) {
    let mut bytes = [0; LONGEST];
    for _ in 0..AT_ONCE {
        match socket.recv(&mut bytes) {
            Ok(len) => probes.take(from, &bytes[..len]),
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => probes.refused(from),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // That the neighbour cannot be reached: what was sent stays unanswered.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::Ipv4Addr};

    use wire::PORT;

    use super::{super::testing::*, *};

    /// Probes that are answered: more than may stay unanswered in a row.
    const ANSWERS: u8 = 40;
    /// From this one on the interfaces change with each.
    const FIRST: u8 = 5;

    /// A neighbour answers, and each time something of the interfaces changes before the answer is
    /// read. Returns from how many ports it was asked, once nobody was silent all along.
    async fn ports_with(change: fn(&mut Interface, u8)) -> usize {
        let at = (Ipv4Addr::LOCALHOST, PORT);
        let neighbour = tokio::net::UdpSocket::bind(at).await.unwrap();
        let mut interface = Interface {
            name: "lo".into(),
            up: true,
            addresses: vec!["127.0.0.1/8".parse().unwrap()],
            neighbours: vec![],
        };
        let (interfaces, to_watch) = watch::channel(vec![interface.clone()]);
        let (_setups, mut setups) = watch::channel(Some(setup(1, Some(("127.0.0.1", "lo")))));
        let (tell, silent) = watch::channel(Silent::new());
        setups.mark_changed();
        let probing = tokio::spawn(probe(setups, to_watch, tell));
        let (mut ports, mut bytes) = (BTreeSet::new(), [0; LONGEST]);
        for n in 0..ANSWERS {
            let asked = tokio::time::timeout(PATIENCE, neighbour.recv_from(&mut bytes));
            let (len, from) = asked.await.expect("it is probed").unwrap();
            ports.insert(from.port());
            neighbour.send_to(&answer(&bytes[..len], &SECRET), from).await.unwrap();
            if n >= FIRST {
                change(&mut interface, n);
                interfaces.send_replace(vec![interface.clone()]);
            }
            assert_eq!(*silent.borrow(), Silent::new(), "after {n}");
        }
        probing.abort();
        ports.len()
    }

    #[test]
    fn a_neighbour_that_answers_is_not_silent_whatever_changes_at_the_interfaces() {
        in_namespace(async {
            let machines: fn(&mut Interface, u8) = |interface, n| {
                interface.neighbours = vec![Ipv4Addr::new(10, 0, 0, n).into()];
            };
            assert_eq!(ports_with(machines).await, 1, "the socket stays");
            let addresses: fn(&mut Interface, u8) = |interface, n| {
                interface.addresses = vec![format!("10.0.0.{n}/24").parse().unwrap()];
            };
            assert!(ports_with(addresses).await > 1, "there may be another address to ask from");
        });
    }
}
