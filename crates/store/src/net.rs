//! The UDP socket: datagrams come in by `recvmmsg` (through `quinn-udp`) and leave by `sendmmsg`
//! (through [`datagrams`]).
//!
//! Cost: one system call for up to 32 requests and one for up to 64 replies. No receive coalescing
//! and no segmentation offload, both on purpose: the far end may be a virtual link with a packet
//! program in generic mode, which must see one datagram per frame.

use std::{
    convert::Infallible,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
};

use datagrams::{Datagram, Destination, Refusal, Sender};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket};

/// Longest datagram taken whole, in bytes; the rest of a longer one is cut off and it is refused as
/// truncated.
const MAX_DATAGRAM: usize = 4096;
/// Datagrams taken in one system call.
const BATCH: usize = 32;
/// Kernel buffer asked for in each direction, in bytes: 10 ms of 100-byte requests at 1 M/s,
/// several times over.
const SOCKET_BUFFER: usize = 16 << 20;

/// The other end of an exchange, and the local address that it knows us by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Where the datagram came from.
    pub address: SocketAddr,
    /// The local address that it was sent to; replies leave from it.
    pub local: Option<IpAddr>,
}

impl Peer {
    /// Whether it is at this address, over whichever IP.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        let own = self.address;
        (own.ip().to_canonical(), own.port()) == (address.ip().to_canonical(), address.port())
    }
}

/// A bound socket with its receive buffers.
pub struct Endpoint {
    socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    meta: [RecvMeta; BATCH],
    sender: Sender,
}

impl Endpoint {
    /// Binds `address`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Those of the system, with the address named.
    pub fn bind(address: SocketAddr) -> anyhow::Result<Endpoint> {
        use anyhow::Context;
        use socket2::{Domain, Protocol, Socket, Type};
        let open = || -> io::Result<Endpoint> {
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
            enlarge_buffers(&socket);
            socket.bind(&address.into())?;
            let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
            setsockopt(&socket, sockopt::UdpGroSegment, &false)?;
            Ok(Endpoint {
                socket: UdpSocket::from_std(socket.into())?,
                state,
                buffers: vec![0; BATCH * MAX_DATAGRAM],
                meta: [RecvMeta::default(); BATCH],
                sender: Sender::default(),
            })
        };
        open().with_context(|| format!("cannot listen on UDP {address}"))
    }

    /// The address bound to, with the port that the system chose if 0 was asked for.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits until there is something to receive.
    ///
    /// # Errors
    /// Those of the reactor.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Takes one batch of datagrams, hands each to `each`, and returns how many there were; 0: none
    /// are left.
    ///
    /// # Errors
    /// Those of `recvmmsg` other than `EAGAIN`.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8], Peer)) -> io::Result<usize> {
        let Endpoint { socket, state, buffers, meta, .. } = self;
        let mut chunks = buffers.chunks_exact_mut(MAX_DATAGRAM);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("BATCH chunks")));
        let received = socket.try_io(Interest::READABLE, || {
            state.recv(UdpSockRef::from(&*socket), &mut slices, meta)
        });
        let count = match received {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) => return Err(e),
        };
        for (slice, meta) in slices.iter().zip(meta.iter()).take(count) {
            let peer = Peer { address: meta.addr, local: meta.dst_ip };
            for datagram in slice[..meta.len].chunks(meta.stride.max(1)) {
                each(datagram, peer);
            }
        }
        Ok(count)
    }

    /// Sends everything in `outbox` and empties it. Returns how many datagrams the system did not
    /// take: they are lost like any other datagram.
    pub fn send(&mut self, outbox: &mut Outbox) -> u64 {
        let outgoing = outbox.messages().map(|(bytes, peer)| Datagram {
            parts: [bytes, &[]],
            to: Destination::Address(peer.address),
            source: peer.local,
        });
        let skip = |_| Ok::<_, Infallible>(Refusal::Skip);
        let Ok(lost) = self.sender.send(&self.socket, outgoing, skip);
        outbox.clear();
        lost
    }
}

/// As large as the system allows: past its limit where we are privileged, else up to it.
fn enlarge_buffers(socket: &socket2::Socket) {
    let size = &SOCKET_BUFFER;
    let receive = setsockopt(socket, sockopt::RcvBufForce, size)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, size));
    let send = setsockopt(socket, sockopt::SndBufForce, size)
        .or_else(|_| setsockopt(socket, sockopt::SndBuf, size));
    for error in [receive, send].into_iter().filter_map(Result::err) {
        tracing::warn!("socket buffers stay at the system's default: {}", io::Error::from(error));
    }
    // Past the system's limit it gives less, without a word.
    if let Ok(bytes) = socket.recv_buffer_size()
        && bytes < SOCKET_BUFFER
    {
        tracing::warn!(
            "the system lets this process have {bytes} bytes for datagrams that have come, of {SOCKET_BUFFER}: bursts of \
             them will be lost; raise net.core.rmem_max and wmem_max"
        );
    }
}

/// Replies of one round, encoded one after another in one buffer that is used again.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    messages: Vec<Outgoing>,
}

struct Outgoing {
    start: usize,
    end: usize,
    peer: Peer,
}

impl Outbox {
    /// Encodes a packet for `peer`.
    ///
    /// # Errors
    /// As [`wire::Packet::encode`]; nothing is queued then.
    pub fn push(
        &mut self,
        packet: &wire::Packet<'_>,
        secret: &wire::Secret,
        peer: Peer,
    ) -> Result<(), wire::EncodeError> {
        let start = self.bytes.len();
        packet.encode(secret, &mut self.bytes)?;
        self.messages.push(Outgoing { start, end: self.bytes.len(), peer });
        Ok(())
    }

    /// Queues a datagram that is encoded already.
    pub fn push_bytes(&mut self, bytes: &[u8], peer: Peer) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.messages.push(Outgoing { start, end: self.bytes.len(), peer });
    }

    /// What is queued, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], Peer)> {
        let bytes = |m: &Outgoing| (&self.bytes[m.start..m.end], m.peer);
        self.messages.iter().map(bytes)
    }

    /// Takes the newest datagram out again, to be sent later.
    pub fn pop(&mut self) -> Option<(Vec<u8>, Peer)> {
        let last = self.messages.pop()?;
        Some((self.bytes.split_off(last.start), last.peer))
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Forgets everything queued; the buffers stay.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }
}
