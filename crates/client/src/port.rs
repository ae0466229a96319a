//! One UDP socket, the requests that wait for answers on it, and the task that matches the two.

use std::{
    future::poll_fn,
    io::{self, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout_at,
};
use wire::Secret;

use crate::{
    Error,
    call::Outgoing,
    clock,
    counters::Counters,
    rules::Rules,
    waiting::{Incoming, Recipient, Reply, RequestTable},
};

/// Receive buffers handed to the kernel at once. The memory is touched only as far as it is filled.
const BATCH: usize = 16;
/// Bytes of one receive buffer: the most that the kernel coalesces into one (UDP GRO).
const SLOT: usize = 1 << 16;
/// Receive buffer of the socket in bytes; the kernel may allow less.
const SOCKET_BUFFER: usize = 4 << 20;

/// The socket of one address family.
pub(crate) struct Port {
    endpoint: Arc<Endpoint>,
    receiver: AbortHandle,
}

struct Endpoint {
    socket: UdpSocket,
    batched: UdpSocketState,
    secret: Secret,
    counters: Arc<Counters>,
    waiting: Mutex<RequestTable<Sender>>,
}

impl Port {
    /// Binds a socket of the family to a port of the system's choice and starts receiving. Must be
    /// called within a tokio runtime.
    pub fn open(v6: bool, rules: &Rules) -> Result<Port, Error> {
        let (socket, batched) = open_socket(v6, |socket| {
            // It also forbids fragments, and has the system refuse what is longer than the
            // interface carries, whatever ICMP says: anybody can send that, and `Paths` finds out
            // what it would tell.
            let batched = UdpSocketState::new((&socket).into())?;
            Ok((UdpSocket::from_std(socket.into())?, batched))
        })?;
        let endpoint = Arc::new(Endpoint {
            socket,
            batched,
            secret: rules.secrets.tag,
            counters: rules.counters.clone(),
            waiting: Mutex::new(RequestTable::new(rules.routes.stores.clone())),
        });
        let receiver = tokio::spawn(receive(endpoint.clone())).abort_handle();
        Ok(Port { endpoint, receiver })
    }

    /// A place for the answers to a call's requests.
    pub fn inbox(&self) -> Inbox<'_> {
        Inbox { port: self, requests: vec![], once: None, many: None }
    }

    /// Sends one datagram, unless the socket has no room before the deadline.
    pub async fn send(
        &self,
        datagram: &[u8],
        store: SocketAddr,
        deadline_ns: u64,
    ) -> io::Result<()> {
        self.endpoint.counters.sent.add_one();
        let socket = &self.endpoint.socket;
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

/// Answers to a large call that may wait for its task; more are as good as lost.
const MANY: usize = 256;

/// Where an answer goes.
enum Sender {
    /// To a call that has one request under way, for one answer.
    Once(oneshot::Sender<Reply>),
    /// To a call with many.
    Many {
        sender: mpsc::Sender<Reply>,
        /// Whether this request may have several answers.
        several: bool,
    },
}

impl Recipient for Sender {
    fn again(&self) -> Option<Sender> {
        match self {
            Sender::Many { sender, several: true } => {
                Some(Sender::Many { sender: sender.clone(), several: true })
            }
            _ => None,
        }
    }
}

impl Sender {
    fn send(self, reply: Reply) -> Option<()> {
        match self {
            Sender::Once(sender) => sender.send(reply).ok(),
            Sender::Many { sender, .. } => sender.try_send(reply).ok(),
        }
    }
}

/// A call's places in the table of waiting requests, given up when dropped: a cancelled call
/// leaves nothing.
pub(crate) struct Inbox<'a> {
    port: &'a Port,
    requests: Vec<u64>,
    /// Of a call with one request under way: the usual case, which costs no queue.
    once: Option<oneshot::Receiver<Reply>>,
    many: Option<(mpsc::Sender<Reply>, mpsc::Receiver<Reply>)>,
}

impl Inbox<'_> {
    /// Makes answers to this request arrive here.
    pub fn answers_to(&mut self, outgoing: &Outgoing, store: SocketAddr) {
        let Outgoing { request, ref datagram, many } = *outgoing;
        let first = self.requests.is_empty();
        if self.requests.last() != Some(&request) {
            self.requests.push(request);
        } else if self.once.is_some() {
            if !many {
                return; // sent again: its answer is waited for
            }
            // It was not sent after all, and goes in another form now, which has several.
            self.port.endpoint.waiting().remove(request);
            self.once = None;
        }
        // A call with a second request beside or after its first takes all of them from one queue.
        let sender = if first && !many {
            let (sender, receiver) = oneshot::channel();
            self.once = Some(receiver);
            Sender::Once(sender)
        } else {
            let (sender, _) = self.many.get_or_insert_with(|| mpsc::channel(MANY));
            Sender::Many { sender: sender.clone(), several: many }
        };
        let mut waiting = self.port.endpoint.waiting();
        waiting.insert(request, datagram.clone(), store, sender);
    }

    /// The next answer; none ever comes if nothing is waited for.
    pub async fn reply(&mut self) -> Reply {
        poll_fn(|context| self.poll_reply(context)).await
    }

    /// The first request may still be answered when others have been sent after it.
    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some(receiver) = &mut self.once
            && let Poll::Ready(reply) = Pin::new(receiver).poll(context)
        {
            self.once = None;
            // The sender lives in the table as long as this does, or has sent a reply.
            if let Ok(reply) = reply {
                return Poll::Ready(reply);
            }
        }
        let Some((_, receiver)) = &mut self.many else { return Poll::Pending };
        let reply = receiver.poll_recv(context);
        reply.map(|reply| reply.expect("a sender is here"))
    }

    /// Whether somebody who cannot sign in this tenant's name denied a request: a store that has
    /// another secret, or a forger.
    pub fn was_denied(&self) -> bool {
        let waiting = self.port.endpoint.waiting();
        let mut requests = self.requests.iter();
        requests.any(|request| waiting.was_denied(*request))
    }
}

impl Drop for Inbox<'_> {
    fn drop(&mut self) {
        let mut waiting = self.port.endpoint.waiting();
        for request in &self.requests {
            waiting.remove(*request);
        }
    }
}

/// Opens a socket of the family at a port of the system's choice, and makes of it what `make` does.
///
/// # Errors
/// [`Error::Socket`] if the system refuses it.
pub fn open_socket<T>(
    v6: bool,
    make: impl FnOnce(socket2::Socket) -> io::Result<T>,
) -> Result<T, Error> {
    bind(v6).and_then(make).map_err(|source| {
        let family = if v6 { "IPv6" } else { "IPv4" };
        Error::Socket { what: format!("cannot open an {family} UDP socket"), source }
    })
}

fn bind(v6: bool) -> io::Result<socket2::Socket> {
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
    Ok(socket)
}

async fn receive(endpoint: Arc<Endpoint>) {
    let mut memory = vec![0; BATCH * SLOT];
    let mut metas = [RecvMeta::default(); BATCH];
    loop {
        match endpoint.receive_batch(&mut memory, &mut metas).await {
            Ok(count) => {
                for (buffer, meta) in memory.chunks(SLOT).zip(&metas[..count]) {
                    let filled = &buffer[..meta.len];
                    filled.chunks(meta.stride.max(1)).for_each(|d| endpoint.take(d, meta.addr));
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

impl Endpoint {
    fn waiting(&self) -> MutexGuard<'_, RequestTable<Sender>> {
        // Nothing panics while it holds the lock, so a poisoned one holds a whole table.
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        done.send(reply)
    }
}
