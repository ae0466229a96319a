//! One UDP socket, the requests that wait for answers on it, and the task that matches the two.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket, sync::oneshot, task::AbortHandle, time::timeout_at};
use wire::Secret;

use crate::{
    Error, clock,
    counters::Counters,
    waiting::{Incoming, Reply, Waiting},
};

/// Receive buffers handed to the kernel at once. The memory is touched only as far as it is filled.
const BATCH: usize = 16;
/// Bytes of one receive buffer: the most that the kernel coalesces into one (UDP GRO).
const SLOT: usize = 1 << 16;
/// Receive buffer of the socket in bytes; the kernel may allow less.
const SOCKET_BUFFER: usize = 4 << 20;

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
    waiting: Mutex<Waiting<oneshot::Sender<Reply>>>,
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
    pub fn expect(&self, request: u64, datagram: Bytes, store: SocketAddr) -> Expected<'_> {
        let (done, reply) = oneshot::channel();
        self.shared.waiting().insert(request, datagram, store, done);
        Expected {
            port: self,
            request,
            reply,
        }
    }

    /// Sends one datagram, unless the socket has no room before the deadline.
    pub async fn send(
        &self,
        datagram: &[u8],
        store: SocketAddr,
        deadline_ns: u64,
    ) -> io::Result<()> {
        self.shared.counters.sent.add_one();
        let socket = &self.shared.socket;
        loop {
            match socket.try_send_to(datagram, store) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    timeout_at(clock::timer(deadline_ns), socket.writable()).await??;
                    if clock::now_ns() >= deadline_ns {
                        return Err(e);
                    }
                }
                sent => return sent.map(drop),
            }
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
    request: u64,
    /// What came.
    pub reply: oneshot::Receiver<Reply>,
}

impl Expected<'_> {
    /// Whether somebody who cannot sign in this tenant's name denied the request: a store that has another
    /// secret, or a forger.
    pub fn was_denied(&self) -> bool {
        self.port.shared.waiting().was_denied(self.request)
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.port.shared.waiting().remove(self.request);
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
    fn waiting(&self) -> MutexGuard<'_, Waiting<oneshot::Sender<Reply>>> {
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
        let incoming = Incoming::read(datagram, &self.secret)?;
        let (done, reply) = self.waiting().take(&incoming, from)?;
        done.send(reply).ok()
    }
}
