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

use crate::{Limits, counters::Counters};

/// Least time between two log lines about foreign protocols, as in Redis.
const FOREIGN_EVERY_S: u64 = 60;

/// What all connections share, data aside.
pub(crate) struct GatewayState {
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

    /// Notes how many connections there are.
    pub fn set_connected(&self, connections: usize) {
        self.connected.store(connections, Relaxed);
    }

    /// Connections now.
    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }
}
