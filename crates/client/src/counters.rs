//! What a client counts while it works, by which a caller sees why calls took long.
//!
//! Calls and sockets add one at a time; [`crate::Client::counts`] and [`crate::Machine::counts`]
//! read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a client has done since it was made. See [`crate::Client::counts`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// The live counters behind [`Counts`].
        #[derive(Default)]
        pub(crate) struct Counters { $(pub $name: Counter,)* }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Datagrams sent, retransmissions included.
    sent,
    /// Datagrams sent again because no answer came in time.
    retransmitted,
    /// Datagrams that answered a call.
    answered,
    /// Datagrams that answered nothing: late, duplicated, malformed, from elsewhere, or with a
    /// wrong tag.
    ignored,
    /// Reads asked again past every cache because the answer carried another key.
    corrected,
    /// Reads asked again with more padding.
    padded,
    /// Reads that began again because the value changed before all its parts were here.
    changed,
    /// Requests that a store put off with `TryAgain`.
    put_off,
    /// Reads answered from copies that this client keeps.
    local_hits,
    /// Copies that stores granted.
    local_grants,
    /// Copies that stores called back.
    local_invalidations,
}

/// A count that may be a little behind when it is read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add_one(&self) {
        self.add(1);
    }

    pub fn add(&self, times: u64) {
        self.0.fetch_add(times, Relaxed);
    }
}
