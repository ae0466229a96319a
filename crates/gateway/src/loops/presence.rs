//! Whether a store answers by the network: where nothing answered, few reads are tried.

use std::time::{Duration, Instant};

use client::Error;

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

    /// A read has ended, with an error if nothing came of it. One that fails for want of memory
    /// here, or for its value's length, says nothing of others.
    pub fn ended(&mut self, error: Option<&Error>, now: Instant) {
        match error {
            None => self.unanswered = 0,
            Some(Error::Timeout { .. } | Error::Socket { .. }) => {
                self.unanswered += 1;
                self.tried_again = now + TRIED_EVERY;
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout() -> Error {
        Error::Timeout {
            store: ([10, 0, 0, 1], 7117).into(),
            after_ms: 500,
            tries: 3,
            changes: 0,
            try_again: false,
            denied: None,
            short_path: false,
        }
    }

    #[test]
    fn what_says_nothing_of_other_reads_does_not_keep_them_from_a_store() {
        let long =
            || Error::ValueLength { len: 20_000, max: 10_000, in_parts: true, sealed: false };
        let socket = || Error::Socket {
            what: "a socket".into(),
            source: std::io::ErrorKind::AddrNotAvailable.into(),
        };
        let rows: [(&dyn Fn() -> Error, bool); 4] = [
            (&|| Error::NoMemory { len: 20_000 }, true),
            (&long, true),
            (&timeout, false),
            (&socket, false),
        ];
        let now = Instant::now();
        for (error, is_there) in rows {
            let mut presence = Presence::new(now);
            (0..GONE_AFTER).for_each(|_| presence.ended(Some(&error()), now));
            assert_eq!(presence.tries(now), is_there, "{}", error());
        }
    }

    #[test]
    fn where_nothing_answers_one_read_in_a_second_is_tried() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut presence = Presence::new(began);
        for _ in 0..GONE_AFTER {
            assert!(presence.tries(at(0)));
            presence.ended(Some(&timeout()), at(0));
        }
        let tried = |presence: &mut Presence| {
            (1..=10_000).filter(|ms| presence.tries(at(*ms))).collect::<Vec<u64>>()
        };
        let seconds: Vec<u64> = (1..=10).map(|second| second * 1000).collect();
        assert_eq!(tried(&mut presence), seconds);
        presence.ended(None, at(10_000));
        assert_eq!(tried(&mut presence).len(), 10_000);
    }
}
