//! What a gateway counts. INFO shows all of it, under the names that Redis has where Redis counts
//! the same.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What a gateway has done since it started. INFO tells them in its section `stats`.
        #[derive(Default)]
        pub(crate) struct Counters { $($(#[doc = $doc])* pub $name: Counter,)* }

        impl Counters {
            /// Every counter by name.
            pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.get()),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections accepted.
    total_connections_received,
    /// Connections refused because there were as many as allowed.
    rejected_connections,
    /// Commands received.
    total_commands_processed,
    /// Bytes received from clients.
    total_net_input_bytes,
    /// Bytes sent to clients.
    total_net_output_bytes,
    /// Answers that are errors.
    total_error_replies,
    /// Connections closed because what came was no command.
    protocol_errors,
    /// Connections closed because what came was HTTP or TLS: a web page, most likely.
    foreign_protocols,
    /// Connections closed because TLS failed: no TLS, no certificate, or one of somebody else.
    tls_failures,
    /// Commands and values refused because the memory for large ones was in use, or too much waited
    /// for a server; connections closed that held too much.
    memory_refusals,
    /// Reads that found their key.
    keyspace_hits,
    /// Reads that did not.
    keyspace_misses,
    /// Reads that a switch answered.
    answered_by_switch,
    /// Reads that went by the network and were answered there.
    network_reads,
    /// Reads that went by the network, had no answer, and went on to the store or its Redis.
    network_fallbacks,
    /// Reads that were answered from copies that the gateway keeps.
    local_hits,
    /// Copies that stores have granted it.
    local_grants,
    /// Copies that it asked for and was not granted.
    local_refusals,
    /// Copies that stores have called back.
    local_invalidations,
    /// Writes whose outcome is unknown.
    outcome_unknown,
    /// Conditional writes tried again because another one came between.
    write_retries,
    /// Reads that went to a backend directly.
    direct_reads,
    /// Writes that went to a backend directly.
    direct_writes,
}

/// A count that may be a little behind when it is read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub fn add_one(&self) {
        self.add(1);
    }
}
