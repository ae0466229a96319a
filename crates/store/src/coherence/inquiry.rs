//! Questions that are asked until they are answered: invalidations, and what the parties of a loan
//! are asked.

use super::Nanos;

/// A question is repeated after this time at first, then after twice the time each time.
pub(super) const BACKOFF_FIRST_NS: Nanos = 5_000_000;
/// The longest time between two repetitions.
const BACKOFF_MOST_NS: Nanos = 100_000_000;

/// Something that is asked until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inquiry {
    /// Since when.
    pub since_ns: Nanos,
    /// When it is asked next.
    pub next_ns: Nanos,
    backoff_ns: Nanos,
}

impl Inquiry {
    /// One that goes on since then, and is asked first at another time.
    pub fn new(since_ns: Nanos, first_ns: Nanos) -> Inquiry {
        Inquiry { since_ns, next_ns: first_ns, backoff_ns: BACKOFF_FIRST_NS }
    }

    /// Whether it is to be asked now; if so, it is taken to be.
    pub fn is_due(&mut self, now_ns: Nanos) -> bool {
        let due = self.next_ns <= now_ns;
        if due {
            self.next_ns = now_ns + self.backoff_ns;
            self.backoff_ns = (2 * self.backoff_ns).min(BACKOFF_MOST_NS);
        }
        due
    }
}
