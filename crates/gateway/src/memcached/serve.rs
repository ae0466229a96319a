//! The side of a gateway that serves memcached clients, from its sockets to its end.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use client::kit::LocalCopies;
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::sleep};

use super::{
    client::Client,
    learner::{Learner, Questions},
    memory::ClientsMemory,
    servers::Servers,
    state::SideState,
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

/// Connections that a gateway has to a store's memcached port at the most: a memcached takes 1,024
/// of all its clients, and there are other gateways.
pub const MEMCACHED_LINKS: usize = 128;

/// How many of them each of so many threads has.
fn links_of_server(threads: usize) -> usize {
    (MEMCACHED_LINKS / threads.max(1)).max(1)
}

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
    /// The longest lease that anybody may have.
    pub lease: Duration,
    pub shared: Arc<GatewayState>,
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
        let MemcachedParts { listeners, targets, owners, local, lease, shared } = parts;
        let (learner, questions) = Learner::new();
        let (learner, memory) = (Arc::new(learner), Arc::new(ClientsMemory::default()));
        let (stopping, _) = watch::channel(false);
        let most = links_of_server(listeners.len());
        let mut questions = Some(questions);
        let mut threads = vec![];
        for (number, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let servers = Arc::new(Servers::new(targets.clone(), owners.clone(), most, lease));
            let (local, learner, memory) = (local.clone(), learner.clone(), memory.clone());
            let state = SideState { servers, local, learner, memory, shared: shared.clone() };
            let (stops, questions) = (stopping.subscribe(), questions.take());
            let serves = move || runtime.block_on(serve(listener, state.into(), stops, questions));
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
                state.learner.asks(questions, local, &state.servers).await;
            }
            _ => std::future::pending().await,
        }
    };
    let mut asks = Box::pin(asks);
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
            stops = stopping.changed() => {
                if stops.is_err() {
                    return;
                }
            }
        }
    }
    drop(listener);
    // What is asked for itself takes no connection of clients' any more.
    drop(asks);
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
        let _ = SockRef::from(&stream).send(TOO_MANY);
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
