//! A rally: one connection alone, which sends its next commands as soon as it has its answers. To
//! be woken takes a loop longer than such a client needs for that; so for a moment the loop looks
//! again by itself before it has the system wake it. Where several connections are at work there is
//! mostly something to do at once, and nothing is gained by that.

use std::time::{Duration, Instant};

use mio::Token;

/// How long it looks by itself. Whoever takes longer is no rally.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// Rounds of the same connection alone, each soon after the one before, that make a rally.
const ROUNDS: u32 = 8;

/// The last rounds of a loop, as far as they are a rally.
#[derive(Default)]
pub(super) struct Rally {
    of: Option<Token>,
    rounds: u32,
}

impl Rally {
    /// Until when to look again, where nothing is there at `now`.
    pub fn looks_until(&self, now: Instant) -> Option<Instant> {
        (self.rounds >= ROUNDS).then(|| now + LOOKS_FOR)
    }

    /// A round begins, of these events, after the loop has had nothing to do for so long.
    pub fn round(&mut self, mut events: impl Iterator<Item = Token>, waited: Duration) {
        let alone = events.next().filter(|_| events.next().is_none());
        let goes_on = alone.is_some() && alone == self.of && waited <= LOOKS_FOR;
        self.rounds = if goes_on { self.rounds.saturating_add(1) } else { 0 };
        self.of = alone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_alone_that_is_quick_is_a_rally() {
        let (now, quick) = (Instant::now(), Duration::from_micros(20));
        let mut rally = Rally::default();
        let mut round = |tokens: &[usize], waited| {
            rally.round(tokens.iter().map(|token| Token(*token)), waited);
            rally.looks_until(now).is_some()
        };
        assert_eq!((0..).find(|_| round(&[4], quick)), Some(ROUNDS));
        for (other, waited) in
            [(&[6][..], quick), (&[4, 6], quick), (&[], quick), (&[4], LOOKS_FOR * 2)]
        {
            assert!(!round(other, waited), "{other:?}");
            let again = (0..).find(|_| round(&[4], quick));
            assert!(again >= Some(ROUNDS - 1), "{other:?}");
        }
    }
}
