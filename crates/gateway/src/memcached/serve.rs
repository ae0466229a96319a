//! The side of a gateway that serves memcached clients, from its sockets to its end.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use client::kit::LocalCopies;
use memcached::{AskedItem, AskedValues};
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::sleep};

use super::{
    client::Client,
    known::{Beside, Known, Questions},
    servers::Servers,
};
use crate::{
    loops::{Target, owners::Owners},
    shared::GatewayState,
};

/// A client that says nothing for so long is asked whether it is there, as by a memcached.
const ABSENT_AFTER: Duration = Duration::from_secs(300);
/// Pause after a failure to accept: out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// What a client is told when there are as many as there may be.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
/// Bytes of answers of one command that are put together from copies at once.
const ANSWER_BYTES: usize = 1 << 20;

/// What the side is made of.
pub(crate) struct MemcachedParts {
    /// One for each thread.
    pub listeners: Vec<TcpListener>,
    /// The stores' memcached ports.
    pub targets: Vec<Target>,
    /// Which of them a key's store has.
    pub owners: Owners,
    /// The copies that the gateway keeps.
    pub local: Option<LocalCopies>,
    pub shared: Arc<GatewayState>,
}

/// What its threads share.
pub(super) struct SideState {
    pub servers: Arc<Servers>,
    local: Option<LocalCopies>,
    known: Known,
    pub shared: Arc<GatewayState>,
}

/// Which of the values that a command asks for are here.
pub(super) enum Here {
    /// All, and they are answered.
    All,
    Some,
    None,
}

impl SideState {
    /// Answers a command from a copy, if there is one that may.
    pub fn item(&self, asked: &AskedItem<'_>, read_ns: u64, out: &mut bytes::BytesMut) -> bool {
        let answer = |value: &[u8], beside: Beside, out: &mut Vec<u8>| {
            asked.answer(value, beside.flags, beside.cas, out);
        };
        match self.local_answer(asked.name, read_ns, answer) {
            Some(answer) => {
                out.extend_from_slice(&answer);
                self.shared.counters.local_hits.add_one();
                true
            }
            None => false,
        }
    }

    /// Answers a command from copies, if there is one that may of each of its keys.
    pub fn values(&self, asked: &AskedValues<'_>, read_ns: u64, out: &mut bytes::BytesMut) -> Here {
        let before = out.len();
        for (at, name) in asked.names.iter().enumerate() {
            match self.value(asked, name, read_ns).filter(|_| out.len() - before < ANSWER_BYTES) {
                Some(answer) => out.extend_from_slice(&answer),
                None => {
                    out.truncate(before);
                    return if at == 0 { Here::None } else { Here::Some };
                }
            }
        }
        out.extend_from_slice(b"END\r\n");
        self.shared.counters.local_hits.add(asked.names.len() as u64);
        Here::All
    }

    /// What a server would say of one of the keys, from a copy, if there is one that may.
    pub fn value(&self, asked: &AskedValues<'_>, name: &[u8], read_ns: u64) -> Option<Vec<u8>> {
        if !asked.only_reads {
            return None;
        }
        self.local_answer(name, read_ns, |value, beside, out| {
            asked.answer(name, value, beside.flags, beside.cas, out);
        })
    }

    fn local_answer(
        &self,
        name: &[u8],
        read_ns: u64,
        answer: impl FnOnce(&[u8], Beside, &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let local = self.local.as_ref()?;
        // Such a key has another name at the store, where tenants' keys are.
        if wire::backend_name(wire::TENANT_OPEN, name).is_none() || name.len() > wire::MAX_KEY {
            return None;
        }
        let found = local.read(local.hash(name), name, read_ns, |copy| {
            let beside = self.known.beside(name, copy.version)?;
            let mut bytes = Vec::with_capacity(copy.value.len() + name.len() + 64);
            answer(&copy.value, beside, &mut bytes);
            Ok(bytes)
        });
        match found.ok()? {
            Ok(bytes) => Some(bytes),
            Err(asks) => {
                if asks {
                    self.known.want(name);
                }
                None
            }
        }
    }
}

/// What one client holds of the memory of all.
pub(super) struct Held {
    state: Arc<SideState>,
    bytes: usize,
}

impl Held {
    /// Nothing yet.
    pub fn new(state: Arc<SideState>) -> Held {
        Held { state, bytes: 0 }
    }

    /// So many bytes now; false: that is too much.
    pub fn is(&mut self, bytes: usize) -> bool {
        let shared = &self.state.shared;
        match bytes > self.bytes {
            true => shared.hold(bytes - self.bytes),
            false => shared.release(self.bytes - bytes),
        }
        let grows = bytes > self.bytes;
        self.bytes = bytes;
        if grows && shared.held() > shared.most_held {
            shared.memory_refused(bytes);
            return false;
        }
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.state.shared.release(self.bytes);
        self.state.shared.disconnect();
    }
}

/// The side, while it serves.
pub(crate) struct MemcachedSide {
    threads: Vec<JoinHandle<()>>,
    stopping: watch::Sender<bool>,
}

impl MemcachedSide {
    /// Begins to serve.
    ///
    /// # Errors
    /// The system gives no thread, or takes no socket.
    pub fn start(parts: MemcachedParts) -> anyhow::Result<MemcachedSide> {
        let MemcachedParts { listeners, targets, owners, local, shared } = parts;
        let (known, questions) = Known::new();
        let servers = Arc::new(Servers::new(targets, owners));
        let state = Arc::new(SideState { servers, local, known, shared });
        let (stopping, _) = watch::channel(false);
        let mut questions = Some(questions);
        let mut threads = vec![];
        for (number, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (state, stops, questions) = (state.clone(), stopping.subscribe(), questions.take());
            let serves = move || runtime.block_on(serve(listener, state, stops, questions));
            let name = format!("memcached-{number}");
            let thread = std::thread::Builder::new().name(name).spawn(serves);
            threads.push(thread.context("a thread for memcached clients")?);
        }
        Ok(MemcachedSide { threads, stopping })
    }

    /// Has it answer what it was sent, and end, within that time.
    pub async fn stop(self, within: Duration) {
        let _ = self.stopping.send(true);
        let are_over = async {
            while self.threads.iter().any(|thread| !thread.is_finished()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(within, are_over).await;
    }
}

/// Takes clients, and asks what copies do not tell, where this thread is the one that does.
async fn serve(
    listener: TcpListener,
    state: Arc<SideState>,
    mut stopping: watch::Receiver<bool>,
    questions: Option<Questions>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("memcached clients cannot be served: {error}"),
    };
    let asks = async {
        match (questions, &state.local) {
            (Some(questions), Some(local)) => {
                state.known.asks(questions, local, &state.servers).await;
            }
            _ => std::future::pending().await,
        }
    };
    let mut asks = std::pin::pin!(asks);
    let mut clients = JoinSet::new();
    while !*stopping.borrow() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => take_in(&state, stream, peer, &stopping, &mut clients),
                Err(error) => {
                    tracing::debug!("memcached clients: {error}");
                    sleep(ACCEPT_AGAIN).await;
                }
            },
            () = &mut asks => {}
            Some(_) = clients.join_next() => {}
            _ = stopping.changed() => {}
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

fn take_in(
    state: &Arc<SideState>,
    stream: TcpStream,
    peer: SocketAddr,
    stopping: &watch::Receiver<bool>,
    clients: &mut JoinSet<()>,
) {
    let shared = &state.shared;
    if !shared.connect() {
        shared.counters.rejected_connections.add_one();
        let _ = stream.try_write(TOO_MANY);
        return;
    }
    let asks = TcpKeepalive::new().with_time(ABSENT_AFTER).with_interval(ABSENT_AFTER / 3);
    let prepared =
        stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&asks));
    let client = Client::new(state.clone(), stream);
    match prepared {
        Ok(()) => {
            shared.counters.total_connections_received.add_one();
            clients.spawn(client.serve(stopping.clone()));
        }
        Err(error) => tracing::debug!(%peer, "a memcached client: {error}"),
    }
}
