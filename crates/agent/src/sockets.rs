//! Packets through this machine's sockets. Should a store's answer reach one, no program stands on
//! the path to that store.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
};

use nix::sys::socket::{setsockopt, sockopt};
use tracing::{debug, warn};
use wire::{Op, Packet};

use super::courier::Courier;

/// Bytes of answers that may wait at a socket.
const ROOM: usize = 1 << 20;
/// Datagrams that are taken from a socket at a time. Whoever sends more of them than this process
/// can take must not keep it from everything else; what is left is taken the next time.
pub(super) const AT_ONCE: usize = 1024;

fn is_lease(bytes: &[u8]) -> bool {
    Packet::decode(bytes).is_ok_and(|packet| packet.header.op == Op::LeaseReply)
}

/// A socket per family, made when it is needed.
#[derive(Default)]
pub(super) struct Sockets {
    ipv4: Option<UdpSocket>,
    ipv6: Option<UdpSocket>,
    warned: bool,
}

impl Sockets {
    fn socket(&mut self, store: SocketAddr) -> Option<&UdpSocket> {
        let (socket, any) = match store {
            SocketAddr::V4(_) => (&mut self.ipv4, "0.0.0.0:0"),
            SocketAddr::V6(_) => (&mut self.ipv6, "[::]:0"),
        };
        if socket.is_none() {
            let made = UdpSocket::bind(any).and_then(|s| s.set_nonblocking(true).map(|()| s));
            // Best effort: without the privilege the usual size has to do.
            if let Ok(made) = &made {
                let _ = setsockopt(made, sockopt::RcvBufForce, &ROOM);
            }
            *socket = made.inspect_err(|e| warn!("socket towards stores: {e}")).ok();
        }
        socket.as_ref()
    }
}

impl Courier for Sockets {
    fn send(&mut self, store: SocketAddr, datagram: &[u8]) {
        if let Some(socket) = self.socket(store)
            && let Err(e) = socket.send_to(datagram, store)
        {
            debug!("to store {store}: {e}");
        }
    }

    fn receive(&mut self, take: &mut dyn FnMut(SocketAddr, &[u8])) {
        let mut bytes = [0; 2048];
        for socket in [&self.ipv4, &self.ipv6].into_iter().flatten() {
            for _ in 0..AT_ONCE {
                match socket.recv_from(&mut bytes) {
                    Ok((len, from)) if is_lease(&bytes[..len]) => {
                        if self.warned {
                            continue;
                        }
                        self.warned = true;
                        warn!(
                            "store {} answers through an interface that this switch is not attached to: \
                             nothing of it is cached; name that interface with --interface",
                            from.ip()
                        );
                    }
                    Ok((len, from)) => take(from, &bytes[..len]),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // An ICMP error for an earlier packet: the store is not there (yet).
                    Err(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_taken_piece_by_piece() {
        let mut sockets = Sockets::default();
        let to = SocketAddr::from(([127, 0, 0, 1], wire::PORT));
        let port = sockets.socket(to).unwrap().local_addr().unwrap().port();
        let to = SocketAddr::new(to.ip(), port);
        let received = |sockets: &mut Sockets| {
            let mut count = 0;
            sockets.receive(&mut |_, _| count += 1);
            count
        };
        // A machine that is busy may deliver some of them later.
        let flooded = (0..100).any(|_| {
            (0..AT_ONCE + 500).for_each(|_| sockets.send(to, &[]));
            let count = received(&mut sockets);
            assert!(count <= AT_ONCE, "{count}");
            count == AT_ONCE
        });
        assert!(flooded);
        assert!(received(&mut sockets) > 0, "the rest");
    }
}
