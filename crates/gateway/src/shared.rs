//! What all connections of a gateway have together, the data aside.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use client::Memory;

use crate::{Limits, counters::Counters, stats::Stats};

/// Least time between two log lines about foreign protocols, as in Redis.
const FOREIGN_EVERY_S: u64 = 60;

/// Rows that a table of commands may have.
const ROWS: usize = 1024;

/// What all connections share, data aside.
pub(crate) struct GatewayState {
    pub limits: Limits,
    pub memory: Memory,
    pub counters: Arc<Counters>,
    pub listen: SocketAddr,
    pub since: Instant,
    connected: AtomicUsize,
    /// Bytes that connections hold beyond what each has.
    held: AtomicUsize,
    /// What each command has cost.
    pub stats: Stats,
    /// When it was last said that a connection spoke another protocol: seconds after `since`, plus
    /// one; 0: never.
    foreign_said_s: AtomicU64,
}

impl GatewayState {
    pub fn new(
        limits: Limits,
        memory: Memory,
        counters: Arc<Counters>,
        listen: SocketAddr,
    ) -> GatewayState {
        GatewayState {
            limits,
            memory,
            counters,
            listen,
            since: Instant::now(),
            connected: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            stats: Stats::new(ROWS),
            foreign_said_s: AtomicU64::new(0),
        }
    }

    /// Counts a connection that speaks HTTP or TLS, and says so, but not each time.
    pub fn foreign(&self, peer: Option<SocketAddr>) {
        self.counters.foreign_protocols.add_one();
        let now_s = self.since.elapsed().as_secs() + 1;
        let said_s = self.foreign_said_s.load(Relaxed);
        if said_s == 0 || now_s - said_s >= FOREIGN_EVERY_S {
            self.foreign_said_s.store(now_s, Relaxed);
            tracing::warn!(
                ?peer,
                "closed a connection that speaks HTTP or TLS: a web page may be trying to reach this port"
            );
        }
    }

    /// Notes how many connections there are.
    pub fn set_connected(&self, connections: usize) {
        self.connected.store(connections, Relaxed);
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

    /// Connections now.
    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }
}
