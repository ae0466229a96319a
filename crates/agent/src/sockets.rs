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
            loop {
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
