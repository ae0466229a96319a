//! The time during which a controller leads, by its own clock, and what its writes prove.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// The leader stops this long before others may begin: their clocks may run faster than its own.
const MARGIN: Duration = Duration::from_millis(100);

/// How long an election's parties wait for one another. All controllers of one state have the same.
///
/// Controllers have the default. Tests of what does not depend on it give so much time that no
/// machine is too busy for it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A leader that standbys have heard nothing of for so long may be replaced.
    pub silence: Duration,
    /// A leader that etcd has not answered for so long stands by again, even if nobody took
    /// its place.
    pub out_of_reach: Duration,
    /// How long an elected controller waits for its copy of the rows; then it reads
    /// everything itself.
    pub copy_within: Duration,
    /// How long one page of rows may take, or the beginning of a watch.
    pub page_within: Duration,
}

impl Pace {
    pub(super) const DEFAULT: Pace = Pace {
        silence: Duration::from_millis(700),
        out_of_reach: Duration::from_millis(2500),
        copy_within: Duration::from_millis(300),
        page_within: Duration::from_secs(5),
    };
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::DEFAULT
    }
}

/// What ties a leader to its election.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The revision in which etcd's key `leader` was written.
    pub(super) leader_since: i64,
    /// When the newest sign of life that etcd took was sent.
    pub(super) heard: Instant,
}

impl Fence {
    /// Whether nobody can have taken its place by now.
    fn holds(&self, pace: Pace, now: Instant) -> bool {
        now < self.heard + pace.silence - MARGIN
    }

    /// Whether etcd has not answered for so long that the leader gives up.
    pub(super) fn is_out_of_reach(&self, pace: Pace, now: Instant) -> bool {
        now.duration_since(self.heard) > pace.out_of_reach
    }
}

/// Numbers of a leader's transactions. etcd's key `written` holds the last one that was carried
/// out, and each compares it: a request that was given up, sent again and then arrives late
/// does nothing.
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
    pub(super) pace: Pace,
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
            pace: Pace::DEFAULT,
            writes: Arc::default(),
            fence: None,
            over: watch::Sender::new(false),
        }
    }

    /// One that ends with its fence, unless that is renewed.
    pub(super) fn limited(term: u64, pace: Pace, fence: Fence) -> Tenure {
        Tenure { pace, fence: Some(Mutex::new(fence)), ..Tenure::unlimited(term) }
    }

    pub(super) fn fence(&self) -> Option<Fence> {
        self.locked().map(|fence| *fence)
    }

    fn locked(&self) -> Option<MutexGuard<'_, Fence>> {
        let fence = self.fence.as_ref()?;
        Some(fence.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Whether nobody else can lead now, by this machine's clock. It may hold again when etcd has
    /// taken a sign of life.
    pub(super) fn holds(&self) -> bool {
        !self.is_over() && self.fence().is_none_or(|fence| fence.holds(self.pace, Instant::now()))
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
            tracing::info!(term = self.term, "this controller does not lead any more: {why}");
        }
    }

    /// etcd took a sign of life that was sent then.
    pub(super) fn heard(&self, sent: Instant) {
        if let Some(mut fence) = self.locked() {
            fence.heard = fence.heard.max(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_stops_before_it_is_replaced_and_gives_up_later() {
        let (pace, heard) = (Pace::DEFAULT, Instant::now());
        let fence = Fence { leader_since: 1, heard };
        let at = |ms| heard + Duration::from_millis(ms);
        // (ms after the last sign, whether it holds, whether it gives up)
        let rows = [
            (0, true, false),
            (599, true, false),
            (600, false, false),
            (2500, false, false),
            (2501, false, true),
        ];
        for (ms, holds, gives_up) in rows {
            assert_eq!(fence.holds(pace, at(ms)), holds, "{ms} ms");
            assert_eq!(fence.is_out_of_reach(pace, at(ms)), gives_up, "{ms} ms");
        }
        assert!(!fence.holds(pace, heard + pace.silence));
    }
}
