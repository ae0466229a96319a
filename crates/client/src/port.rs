//! One UDP socket, the requests that wait for answers on it, and the task that matches the two.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use hashbrown::HashMap;
use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket, sync::oneshot, task::AbortHandle};
use wire::{HEADER_LEN, Header, Op, Packet, Secret, Status};

use crate::{Error, counters::Counters, request::Id};

/// Receive buffers handed to the kernel at once. The memory is touched only as far as it is filled.
const BATCH: usize = 16;
/// Bytes of one receive buffer: the most that the kernel coalesces into one (UDP GRO).
const SLOT: usize = 1 << 16;
/// Receive buffer of the socket in bytes; the kernel may allow less.
const SOCKET_BUFFER: usize = 4 << 20;

/// What came for a request.
pub(crate) enum Reply {
    /// An answer to this very request, about this very key.
    Answer(Header, Bytes),
    /// An answer to this read that carries another key.
    WrongKey,
}

/// A request that waits: its datagram says what must come back.
struct Waiting {
    datagram: Bytes,
    store: SocketAddr,
    /// An answer without a valid tag said that the request was denied.
    denied: bool,
    done: oneshot::Sender<Reply>,
}

impl Waiting {
    fn key(&self) -> &[u8] {
        &self.datagram[HEADER_LEN..][..usize::from(self.datagram[3])]
    }

    fn op(&self) -> Option<Op> {
        Op::try_from(self.datagram[1]).ok()
    }
}

/// The socket of one address family.
pub(crate) struct Port {
    shared: Arc<Shared>,
    receiver: AbortHandle,
}

struct Shared {
    socket: UdpSocket,
    batched: UdpSocketState,
    secret: Secret,
    counters: Arc<Counters>,
    waiting: Mutex<HashMap<u32, Waiting>>,
}

impl Port {
    /// Binds a socket of the family to a port of the system's choice and starts receiving. Must be
    /// called within a tokio runtime.
    pub fn open(v6: bool, secret: Secret, counters: Arc<Counters>) -> Result<Port, Error> {
        let (socket, batched) = bind(v6).map_err(|source| {
            let family = if v6 { "IPv6" } else { "IPv4" };
            Error::Socket {
                what: format!("cannot open an {family} UDP socket"),
                source,
            }
        })?;
        let waiting = Mutex::default();
        let shared = Arc::new(Shared {
            socket,
            batched,
            secret,
            counters,
            waiting,
        });
        let receiver = tokio::spawn(receive(shared.clone())).abort_handle();
        Ok(Port { shared, receiver })
    }

    /// Makes an answer to the datagram, which must be a request with this id, arrive at the result.
    pub fn expect(&self, id: Id, datagram: Bytes, store: SocketAddr) -> Expected<'_> {
        let (done, reply) = oneshot::channel();
        self.shared.waiting().insert(
            id.request,
            Waiting {
                datagram,
                store,
                denied: false,
                done,
            },
        );
        Expected {
            port: self,
            request: id.request,
            reply,
        }
    }

    /// Sends one datagram.
    pub async fn send(&self, datagram: &[u8], store: SocketAddr) -> io::Result<()> {
        self.shared.counters.sent.add_one();
        let socket = &self.shared.socket;
        match socket.try_send_to(datagram, store) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                socket.send_to(datagram, store).await.map(drop)
            }
            sent => sent.map(drop),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

/// A place in the table of waiting requests, given up when dropped: a cancelled call leaves nothing.
pub(crate) struct Expected<'a> {
    port: &'a Port,
    request: u32,
    /// What came.
    pub reply: oneshot::Receiver<Reply>,
}

impl Expected<'_> {
    /// Whether somebody who cannot sign in this tenant's name denied the request: a store that has another
    /// secret, or a forger.
    pub fn was_denied(&self) -> bool {
        let table = self.port.shared.waiting();
        table
            .get(&self.request)
            .is_some_and(|waiting| waiting.denied)
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.port.shared.waiting().remove(&self.request);
    }
}

fn bind(v6: bool) -> io::Result<(UdpSocket, UdpSocketState)> {
    let (domain, any): (_, SocketAddr) = if v6 {
        (socket2::Domain::IPV6, (Ipv6Addr::UNSPECIFIED, 0).into())
    } else {
        (socket2::Domain::IPV4, (Ipv4Addr::UNSPECIFIED, 0).into())
    };
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&any.into())?;
    let batched = UdpSocketState::new((&socket).into())?;
    Ok((UdpSocket::from_std(socket.into())?, batched))
}

async fn receive(shared: Arc<Shared>) {
    let mut memory = vec![0; BATCH * SLOT];
    let mut metas = [RecvMeta::default(); BATCH];
    loop {
        match shared.receive_batch(&mut memory, &mut metas).await {
            Ok(count) => {
                for (buffer, meta) in memory.chunks(SLOT).zip(&metas[..count]) {
                    let filled = &buffer[..meta.len];
                    filled
                        .chunks(meta.stride.max(1))
                        .for_each(|d| shared.take(d, meta.addr));
                }
            }
            // Errors of earlier sends surface here; calls notice by their deadline. The pause keeps
            // an error that stays from taking a whole core.
            Err(error) => {
                tracing::debug!(%error, "receiving failed");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
        // Nothing panics while it holds the lock, so a poisoned one holds a whole table.
        self.waiting
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn receive_batch(
        &self,
        memory: &mut [u8],
        metas: &mut [RecvMeta; BATCH],
    ) -> io::Result<usize> {
        let mut chunks = memory.chunks_mut(SLOT);
        let mut slices: [_; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.socket
            .async_io(Interest::READABLE, || {
                self.batched.recv((&self.socket).into(), &mut slices, metas)
            })
            .await
    }

    /// Hands a datagram to the request that it answers, if there is one.
    fn take(&self, datagram: &[u8], from: SocketAddr) {
        if self.deliver(datagram, from).is_none() {
            self.counters.ignored.add_one();
        } else {
            self.counters.answered.add_one();
        }
    }

    fn deliver(&self, datagram: &[u8], from: SocketAddr) -> Option<()> {
        let packet = Packet::decode(datagram).ok()?;
        let signed = packet.tag_is_valid(&self.secret);
        if !signed && packet.header.status != Status::Denied {
            return None;
        }
        let mut table = self.waiting();
        let waiting = table.get_mut(&packet.header.request)?;
        let reply = judge(&packet, from, waiting)?;
        if !signed {
            // It ends nothing: it only explains, should nothing better come.
            waiting.denied = true;
            return None;
        }
        let waiting = table.remove(&packet.header.request)?;
        drop(table);
        waiting.done.send(reply).ok()
    }
}

/// What this packet is to the request that waits; `None` if it is not its answer. Checks no tag.
fn judge(packet: &Packet<'_>, from: SocketAddr, waiting: &Waiting) -> Option<Reply> {
    let header = &packet.header;
    let sent = Header::from_bytes(waiting.datagram.first_chunk()?).ok()?;
    let same = (from.ip(), from.port()) == (waiting.store.ip(), waiting.store.port())
        && (header.client, header.request, header.tenant)
            == (sent.client, sent.request, sent.tenant)
        && Some(header.op) == waiting.op()?.reply();
    if !same {
        return None;
    }
    if packet.key != waiting.key() {
        return (header.op == Op::ReadReply).then_some(Reply::WrongKey);
    }
    if header.key_hash != sent.key_hash {
        return None;
    }
    Some(Reply::Answer(*header, Bytes::copy_from_slice(packet.value)))
}
