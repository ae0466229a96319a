//! Messages that are published behind a subscription.
//!
//! Who subscribes does so by a connection of its own, which may have to be made first; who
//! publishes, by one that is there. To a Redis, which hears both as they were said, the message
//! comes second. So it waits until the subscriptions that were said before it are confirmed, of
//! whichever event loop, for a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::EventLoop;

/// A message does not wait longer: a server that confirms nothing would not take it either.
const WAITS_AT_MOST: Duration = Duration::from_millis(200);
/// How often it is looked whether those of other event loops are confirmed.
const LOOKED_EVERY: Duration = Duration::from_millis(1);

/// How many subscriptions all event loops have begun, and how many of them are over.
#[derive(Default)]
pub(crate) struct Subscriptions {
    begun: AtomicU64,
    over: AtomicU64,
}

/// One that is not confirmed, until it is dropped.
pub(super) struct OpenSubscription(Arc<Subscriptions>);

impl OpenSubscription {
    /// One more.
    pub fn begin(all: &Arc<Subscriptions>) -> OpenSubscription {
        all.begun.fetch_add(1, Relaxed);
        OpenSubscription(all.clone())
    }
}

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Relaxed);
    }
}

/// What a message waits for: so many subscriptions, or this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    begun: u64,
    until: Instant,
}

impl EventLoop {
    /// Whether a client's message has to wait.
    pub(super) fn is_behind_subscriptions(&mut self, at: usize) -> bool {
        let all = &self.shared.subscriptions;
        let until = self.now + WAITS_AT_MOST;
        let client = &mut self.clients[at];
        let new = || Behind { begun: all.begun.load(Relaxed), until };
        let behind = *client.behind.get_or_insert_with(new);
        let waits = all.over.load(Relaxed) < behind.begun && self.now < behind.until;
        match waits {
            true => self.publishers.push(at),
            false => client.behind = None,
        }
        waits
    }

    /// Has those looked at again whose messages wait.
    pub(super) fn wake_publishers(&mut self) {
        for at in std::mem::take(&mut self.publishers) {
            self.make_ready(at);
        }
    }

    /// When that has to be, at the latest.
    pub(super) fn next_publisher(&self) -> Option<Instant> {
        (!self.publishers.is_empty()).then(|| self.now + LOOKED_EVERY)
    }
}
