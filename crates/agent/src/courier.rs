//! Packets that the agent itself sends to stores: fetches and lease requests. The answers are taken by the
//! programs on their way in; should one reach the socket, no program stands on the path to that store.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
};

use decide::ItemKey;
use tracing::{debug, warn};
use wire::{Epoch, Flags, Header, KeyHash, Op, Packet, Secret, TENANT_SYSTEM};

fn is_lease(bytes: &[u8]) -> bool {
    Packet::decode(bytes).is_ok_and(|packet| packet.header.op == Op::LeaseReply)
}

#[derive(Default)]
pub(super) struct Courier {
    ipv4: Option<UdpSocket>,
    ipv6: Option<UdpSocket>,
    buffer: Vec<u8>,
    request: u32,
    warned: bool,
}

impl Courier {
    /// Asks a store to grant a key's value for an epoch. Padded to a whole packet: a store answers
    /// tenant 0 with no more bytes than it asked with.
    pub fn fetch(
        &mut self,
        store: SocketAddr,
        key: &ItemKey,
        hash: KeyHash,
        epoch: Epoch,
        secret: &Secret,
    ) {
        self.request = self.request.wrapping_add(1);
        let header = Header {
            tenant: key.tenant,
            key_hash: hash,
            epoch,
            flags: Flags::GRANT,
            client: u32::from(epoch.switch()),
            request: self.request,
            ..Header::new(Op::FetchRequest)
        };
        let padding = if *secret == Secret::NONE {
            wire::MAX_PAYLOAD
        } else {
            0
        };
        self.send(store, &Packet::new(header, &key.key, &[]), padding, secret);
    }

    /// Asks a store for its lease, dated `now_ns`.
    pub fn ask_for_lease(
        &mut self,
        store: SocketAddr,
        switch: u16,
        slot: u16,
        now_ns: u64,
        secret: &Secret,
    ) {
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            request: u32::from(slot),
            version: now_ns,
            ..Header::new(Op::LeaseRequest)
        };
        self.send(store, &Packet::new(header, &[], &[]), 0, secret);
    }

    fn socket(&mut self, store: SocketAddr) -> Option<&UdpSocket> {
        let (socket, any) = match store {
            SocketAddr::V4(_) => (&mut self.ipv4, "0.0.0.0:0"),
            SocketAddr::V6(_) => (&mut self.ipv6, "[::]:0"),
        };
        if socket.is_none() {
            let made = UdpSocket::bind(any).and_then(|s| s.set_nonblocking(true).map(|()| s));
            *socket = made
                .inspect_err(|e| warn!("socket towards stores: {e}"))
                .ok();
        }
        socket.as_ref()
    }

    /// A packet that is lost on the way, or here, is sent again by whoever still needs it.
    fn send(&mut self, store: SocketAddr, packet: &Packet<'_>, padded_to: usize, secret: &Secret) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let encoded = packet.encode(secret, &mut buffer).is_ok();
        buffer.resize(buffer.len().max(padded_to), 0);
        if encoded
            && let Some(socket) = self.socket(store)
            && let Err(e) = socket.send_to(&buffer, store)
        {
            debug!("to store {store}: {e}");
        }
        self.buffer = buffer;
    }

    /// Empties the sockets; what arrives here took a way around the programs.
    pub fn drain(&mut self) {
        let mut bytes = [0; 2048];
        for socket in [&self.ipv4, &self.ipv6].into_iter().flatten() {
            loop {
                match socket.recv_from(&mut bytes) {
                    Ok((len, from)) if !self.warned && is_lease(&bytes[..len]) => {
                        self.warned = true;
                        warn!(
                            "store {} answers through an interface that this switch is not attached to: \
                             nothing of it is cached; name that interface with --interface",
                            from.ip()
                        );
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // An ICMP error for an earlier packet: the store is not there (yet).
                    Err(_) => {}
                }
            }
        }
    }
}
