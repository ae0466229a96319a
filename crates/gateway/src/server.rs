//! Takes connections, as many as are allowed, and gives each a task.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use client::Memory;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    Limits,
    counters::Counters,
    data::Data,
    resp::{connection::Connection, session::Session},
};

/// After an error of accept (no file descriptor is free) it is tried again so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Least time between two log lines about foreign protocols, as in Redis.
const FOREIGN_EVERY_S: u64 = 60;

/// What all connections share, data aside.
pub(crate) struct Shared {
    pub limits: Limits,
    pub memory: Memory,
    pub counters: Arc<Counters>,
    pub listen: SocketAddr,
    pub since: Instant,
    connected: AtomicUsize,
    /// When it was last said that a connection spoke another protocol: seconds after `since`, plus
    /// one; 0: never.
    foreign_said_s: AtomicU64,
}

impl Shared {
    pub fn new(
        limits: Limits,
        memory: Memory,
        counters: Arc<Counters>,
        listen: SocketAddr,
    ) -> Shared {
        Shared {
            limits,
            memory,
            counters,
            listen,
            since: Instant::now(),
            connected: AtomicUsize::new(0),
            foreign_said_s: AtomicU64::new(0),
        }
    }

    /// Counts a connection that speaks HTTP or TLS, and says so, but not each time.
    pub fn foreign(&self, peer: SocketAddr) {
        self.counters.foreign_protocols.add_one();
        let now_s = self.since.elapsed().as_secs() + 1;
        let said_s = self.foreign_said_s.load(Relaxed);
        if said_s == 0 || now_s - said_s >= FOREIGN_EVERY_S {
            self.foreign_said_s.store(now_s, Relaxed);
            tracing::warn!(
                %peer,
                "closed a connection that speaks HTTP or TLS: a web page may be trying to reach this port"
            );
        }
    }

    /// Connections now.
    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }
}

/// Serves until `stop` is done; connections end with it.
pub(crate) async fn serve<D: Data>(
    listener: TcpListener,
    data: Arc<D>,
    shared: Arc<Shared>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    let mut connections = JoinSet::new();
    let mut id = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => {
                shared.connected.store(connections.len(), Relaxed);
                continue;
            }
            () = &mut stop => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        if connections.len() >= shared.limits.connections {
            shared.counters.rejected_connections.add_one();
            refuse(stream);
            continue;
        }
        shared.counters.total_connections_received.add_one();
        id += 1;
        let session = Session::new(id, peer);
        let connection = Connection::new(session, data.clone(), shared.clone());
        connections.spawn(async move {
            let mut stream = stream;
            let _ = stream.set_nodelay(true);
            let (read, write) = stream.split();
            if let Err(error) = connection.serve(read, write).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
        shared.connected.store(connections.len(), Relaxed);
    }
}

/// Says why, as far as that is possible without waiting.
fn refuse(mut stream: TcpStream) {
    use futures_util::FutureExt;
    let line = b"-ERR max number of clients reached\r\n";
    let _ = stream.write_all(line).now_or_never();
}
