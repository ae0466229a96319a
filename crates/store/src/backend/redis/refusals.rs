//! A server that refuses requests because of how it is: what the log and the store's status say of
//! that.

use std::time::Duration;

use redis::ConnectionAddr;

use crate::{
    backend::{outage::Outage, remote::Health},
    clock::boot_ns,
};

/// A server that has refused nothing for so long is said to refuse nothing any more.
const CALM: Duration = Duration::from_secs(10);

/// The refusals of the master.
pub(super) struct Refusals {
    outage: Outage,
    /// When the last one came.
    refused_ns: u64,
    health: Health,
}

impl Refusals {
    /// None so far.
    pub fn new(health: Health) -> Refusals {
        Refusals { outage: Outage::default(), refused_ns: 0, health }
    }

    /// A batch was answered by the server there, which refused some of it with these words, or
    /// nothing. Says that there are refusals, and that there are none any more.
    pub fn note(&mut self, at: &ConnectionAddr, refused: Option<&str>) {
        let now_ns = boot_ns();
        if let Some(why) = refused {
            self.refused_ns = now_ns;
            self.health.refuses(why, now_ns);
            if self.outage.failed(why, now_ns) {
                tracing::warn!("backend: Redis at {at} refuses requests: {why}");
            }
        } else if now_ns >= self.refused_ns + CALM.as_nanos() as u64 {
            self.health.refuses_nothing();
            if self.outage.answered(now_ns).is_some() {
                tracing::warn!("backend: Redis at {at} has refused nothing for {CALM:?}");
            }
        }
    }
}
