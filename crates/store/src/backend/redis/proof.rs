//! Until when what a master tells counts, where others say who the master is.
//!
//! A master that is cut off from them, together with the store, goes on as one, and tells nothing
//! of what is written at its successor.

use std::time::Duration;

/// For so long after they were asked, the master that they name may be taken for the master. Two
/// rounds of questions have to fit in, each of which may wait twice for some that do not answer,
/// for a second.
pub(super) const LASTS: Duration = Duration::from_secs(5);

/// Their last word that was believed.
pub(super) struct Proof {
    /// What they say.
    what: &'static str,
    /// When they were asked for it.
    asked_ns: u64,
    /// It was said that there has been none for too long.
    is_lost: bool,
}

impl Proof {
    /// Before any word.
    pub fn new(what: &'static str) -> Proof {
        Proof { what, asked_ns: 0, is_lost: false }
    }

    /// What they have said is believed; they were asked then.
    pub fn is_given(&mut self, asked_ns: u64) {
        self.asked_ns = asked_ns;
        if std::mem::take(&mut self.is_lost) {
            tracing::warn!("backend: {} is known again", self.what);
        }
    }

    /// There is no word to believe, while the master that they named last is connected.
    pub fn fails(&mut self, why: &anyhow::Error, now_ns: u64) {
        tracing::debug!("{}: {why:#}", self.what);
        if now_ns >= self.until() && !std::mem::replace(&mut self.is_lost, true) {
            tracing::warn!(
                "backend: {} has not been known for {LASTS:?}: {why:#}; leases of copies lapse until it is",
                self.what
            );
        }
    }

    /// The latest time of which a master that is connected can prove that it has told of all that
    /// was written until then: by the last word no other has its place.
    pub fn until(&self) -> u64 {
        self.asked_ns + LASTS.as_nanos() as u64
    }
}
