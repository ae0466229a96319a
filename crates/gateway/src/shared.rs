//! What all connections of a gateway have together, the data aside.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use client::{Memory, kit::LocalCopies};
use resp::CommandTable;

use crate::{
    Limits, cluster_nodes::ClusterNodes, counters::Counters, loops::publishing::Subscriptions,
    names::Names, stats::Stats,
};

/// Least time between two log lines about foreign protocols, as in Redis, or failures of TLS.
const SAID_EVERY_S: u64 = 60;

/// Rows that a table of commands may have.
const ROWS: usize = 1024;

/// What all connections share, data aside.
pub(crate) struct GatewayState {
    pub limits: Limits,
    /// What large commands and values take theirs from.
    pub memory: Memory,
    pub counters: Arc<Counters>,
    pub listen: SocketAddr,
    /// What names of servers mean.
    pub names: Arc<Names>,
    /// The gateways that look like nodes of a Redis Cluster.
    pub nodes: Arc<ClusterNodes>,
    pub since: Instant,
    connected: AtomicUsize,
    /// Bytes that connections hold beyond what each has.
    held: AtomicUsize,
    /// How many they may hold.
    pub most_held: usize,
    /// How many share that: event loops, and all memcached clients as one.
    pub sharers: usize,
    /// Bytes that servers have not taken.
    waiting_for_servers: AtomicUsize,
    /// The copies that it keeps.
    pub copies: Option<LocalCopies>,
    /// What each command has cost.
    pub stats: Stats,
    told: Mutex<Option<ToldCommands>>,
    /// Whether the Redis behind the first store wants clients to log in, as it said last.
    pub asks_login: AtomicBool,
    /// Subscriptions, as far as messages wait for them.
    pub subscriptions: Arc<Subscriptions>,
    /// When it was last said that a connection spoke another protocol.
    foreign_said: LogMoment,
    /// When it was last said that a connection held too much.
    memory_said: LogMoment,
    /// When it was last said that a connection could not be secured.
    tls_said: LogMoment,
}

/// What commands there are, as a server has told one event loop. The question takes a Redis
/// milliseconds, in which it answers nobody else: so one asks for all.
#[derive(Clone)]
pub(crate) struct ToldCommands {
    /// The store that has told them.
    pub store: usize,
    /// The run id of the Redis, if it is known.
    pub of: Option<String>,
    pub table: Arc<CommandTable>,
}

/// When something was said last that others can cause at will: seconds after the start, plus one;
/// 0: never.
#[derive(Default)]
struct LogMoment(AtomicU64);

impl LogMoment {
    /// Whether it may be said again, so long after the start.
    fn is_due(&self, since_start: Duration) -> bool {
        let now_s = since_start.as_secs() + 1;
        let said_s = self.0.load(Relaxed);
        let is_due = said_s == 0 || now_s - said_s >= SAID_EVERY_S;
        if is_due {
            self.0.store(now_s, Relaxed);
        }
        is_due
    }
}

impl GatewayState {
    pub fn new(
        limits: Limits,
        memory: Memory,
        counters: Arc<Counters>,
        listen: SocketAddr,
        names: Arc<Names>,
    ) -> GatewayState {
        let most_held = limits.memory_bytes - memory.used_and_total().1.min(limits.memory_bytes);
        GatewayState {
            limits,
            memory,
            counters,
            listen,
            names,
            nodes: Arc::default(),
            since: Instant::now(),
            connected: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            most_held,
            sharers: 1,
            waiting_for_servers: AtomicUsize::new(0),
            copies: None,
            stats: Stats::new(ROWS),
            told: Mutex::default(),
            asks_login: AtomicBool::new(false),
            subscriptions: Arc::default(),
            foreign_said: LogMoment::default(),
            memory_said: LogMoment::default(),
            tls_said: LogMoment::default(),
        }
    }

    /// What commands there are, if a server has told one of the loops.
    pub fn told_commands(&self) -> Option<ToldCommands> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server has told one of them.
    pub fn tell_commands(&self, told: ToldCommands) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    /// Counts a connection that speaks HTTP or TLS, and says so, but not each time.
    pub fn foreign(&self, peer: Option<SocketAddr>) {
        self.counters.foreign_protocols.add_one();
        if self.foreign_said.is_due(self.since.elapsed()) {
            tracing::warn!(
                ?peer,
                "closed a connection that speaks HTTP or TLS: a web page may be trying to reach this port"
            );
        }
    }

    /// Counts a connection that held too much, and says so, but not each time: it may come again at
    /// once.
    pub fn memory_refused(&self, bytes: usize) {
        self.counters.memory_refusals.add_one();
        if self.memory_said.is_due(self.since.elapsed()) {
            tracing::warn!(
                "closed a connection that held {bytes} bytes: answers that it does not read, or not as fast as they come, or a \
                 command whose rest does not come (--max-memory)"
            );
        }
    }

    /// Counts a connection that could not be secured, and says why, but not each time. Other errors
    /// of a connection concern nobody.
    pub fn tls_failed(&self, peer: Option<SocketAddr>, error: &io::Error) {
        if error.kind() != io::ErrorKind::InvalidData {
            return;
        }
        self.counters.tls_failures.add_one();
        if self.tls_said.is_due(self.since.elapsed()) {
            tracing::warn!(?peer, "closed a connection that TLS does not work with: {error}");
        }
    }

    /// Takes a place among the connections, if one is free.
    pub fn connect(&self) -> bool {
        let free = |connected| (connected < self.limits.connections).then_some(connected + 1);
        self.connected.fetch_update(Relaxed, Relaxed, free).is_ok()
    }

    /// Gives it back.
    pub fn disconnect(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// Notes that connections hold so much more.
    pub fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Relaxed);
    }

    /// Notes that they hold so much less.
    pub fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }

    /// What connections hold, in bytes.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Notes that so many bytes wait for a server by one connection, and how many did before.
    pub fn wait_for_servers(&self, before: usize, now: usize) {
        self.waiting_for_servers.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// Bytes of commands that servers have not taken.
    pub fn waiting_for_servers(&self) -> usize {
        self.waiting_for_servers.load(Relaxed)
    }

    /// Connections now.
    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }
}
