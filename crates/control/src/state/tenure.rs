//! The time during which a controller leads, by its own clock, and what its writes prove.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// A leader that standbys have heard nothing of for so long may be replaced.
pub(super) const SILENCE: Duration = Duration::from_millis(700);
/// The leader stops this long before: others' clocks may run faster than its own.
const MARGIN: Duration = Duration::from_millis(100);
/// A leader that etcd has not answered for so long stands by again, even if nobody took its place.
pub(super) const OUT_OF_REACH: Duration = Duration::from_millis(2500);

/// What ties a leader to its election.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The revision in which etcd's key `leader` was written.
    pub(super) leader_since: i64,
    /// When the newest sign of life that etcd took was sent.
    pub(super) heard: Instant,
}

impl Fence {
    /// Until when nobody can have taken its place.
    fn ends(&self) -> Instant {
        self.heard + SILENCE - MARGIN
    }
}

/// Numbers of a leader's transactions. etcd's key `written` holds the last one that was carried out, and each
/// compares it: a request that was given up, sent again and then arrives late does nothing.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// What `written` holds, as far as we know.
    pub(super) last: u64,
    /// The number that was used last.
    pub(super) used: u64,
}

/// The time during which a controller leads.
pub(super) struct Tenure {
    pub(super) term: u64,
    /// Held while a batch is written: they go one after the other.
    pub(super) writes: Arc<tokio::sync::Mutex<Writes>>,
    /// `None` if it has no end.
    fence: Option<Mutex<Fence>>,
    over: watch::Sender<bool>,
}

impl Tenure {
    /// One that ends only when its holder says so.
    pub(super) fn unlimited(term: u64) -> Tenure {
        Tenure {
            term,
            writes: Arc::default(),
            fence: None,
            over: watch::Sender::new(false),
        }
    }

    /// One that ends with its fence, unless that is renewed.
    pub(super) fn limited(term: u64, fence: Fence) -> Tenure {
        Tenure {
            fence: Some(Mutex::new(fence)),
            ..Tenure::unlimited(term)
        }
    }

    pub(super) fn fence(&self) -> Option<Fence> {
        self.locked().map(|fence| *fence)
    }

    fn locked(&self) -> Option<MutexGuard<'_, Fence>> {
        let fence = self.fence.as_ref()?;
        Some(
            fence
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// Whether nobody else can lead now, by this machine's clock. It may hold again when etcd has taken a sign of life.
    pub(super) fn holds(&self) -> bool {
        !self.is_over()
            && self
                .fence()
                .is_none_or(|fence| Instant::now() < fence.ends())
    }

    /// Whether it was ended, for good.
    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(super) async fn lost(&self) {
        let mut over = self.over.subscribe();
        // An error would mean that the sender is gone, but it is ours.
        let _ = over.wait_for(|over| *over).await;
    }

    /// Ends it; says why, the first time.
    pub(super) fn end(&self, why: &str) {
        if !self.over.send_replace(true) {
            tracing::info!(
                term = self.term,
                "this controller does not lead any more: {why}"
            );
        }
    }

    /// etcd took a sign of life that was sent then.
    pub(super) fn heard(&self, sent: Instant) {
        if let Some(mut fence) = self.locked() {
            fence.heard = fence.heard.max(sent);
        }
    }
}
