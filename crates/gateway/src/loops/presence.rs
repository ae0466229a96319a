//! Whether a store answers by the network: where nothing answered, few reads are tried.

use std::time::{Duration, Instant};

/// Reads in a row without an answer after which a store is taken for gone.
const GONE_AFTER: u32 = 3;
/// It is tried again with one read so often.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// What is known of a store by the reads that went there by the network.
pub(super) struct Presence {
    unanswered: u32,
    tried_again: Instant,
}

impl Presence {
    /// Nothing is known.
    pub fn new(now: Instant) -> Presence {
        Presence { unanswered: 0, tried_again: now }
    }

    /// Whether a read has a chance of an answer. If it is one that tries, the next is not.
    pub fn tries(&mut self, now: Instant) -> bool {
        if self.unanswered < GONE_AFTER {
            return true;
        }
        let again = now >= self.tried_again;
        if again {
            self.tried_again = now + TRIED_EVERY;
        }
        again
    }

    /// A read was answered.
    pub fn answered(&mut self) {
        self.unanswered = 0;
    }

    /// A read was not.
    pub fn unanswered(&mut self, now: Instant) {
        self.unanswered += 1;
        self.tried_again = now + TRIED_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_answers_one_read_in_a_second_is_tried() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut presence = Presence::new(began);
        for _ in 0..GONE_AFTER {
            assert!(presence.tries(at(0)));
            presence.unanswered(at(0));
        }
        let tried = |presence: &mut Presence| {
            (1..=10_000).filter(|ms| presence.tries(at(*ms))).collect::<Vec<u64>>()
        };
        let seconds: Vec<u64> = (1..=10).map(|second| second * 1000).collect();
        assert_eq!(tried(&mut presence), seconds);
        presence.answered();
        assert_eq!(tried(&mut presence).len(), 10_000);
    }
}
