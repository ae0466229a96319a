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
    loop {
        let next = async {
            match probes.next() {
                Some(next) => sleep_until(Instant::from_std(next)).await,
                None => pending().await,
            }
        };
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
            // A socket's own address may be no longer one of this machine.
            () = super::changed(&mut interfaces) => sockets.clear(),
            () = next => {}
        }
        for (from, socket) in &sockets {
            drain(*from, socket, &mut probes);
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
