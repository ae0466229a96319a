//! How long agents and stores wait before they look for the leader again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// So many pauses are the first one: a leader that died has a successor within that time.
const PROMPT: u32 = 15;
const MOST: Duration = Duration::from_secs(1);

/// The pauses between rounds in which every controller was asked: short ones, then longer and
/// longer ones up to a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    taken: u32,
}

impl Pauses {
    /// The next one.
    pub fn next_pause(&mut self) -> Duration {
        let doubled = self.taken.saturating_sub(PROMPT - 1).min(8);
        self.taken = self.taken.saturating_add(1);
        (FIRST * (1 << doubled)).min(MOST)
    }

    /// A stream ended that lasted so long: the pauses begin anew, unless it ended at once.
    pub fn lasted(&mut self, time: Duration) {
        if time >= MOST {
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_ends_at_once_does_not_make_the_next_pause_shorter() {
        let mut pauses = Pauses::default();
        let prompt: Duration = (0..PROMPT).map(|_| pauses.next_pause()).sum();
        assert_eq!(prompt, FIRST * PROMPT);
        assert_eq!(pauses.next_pause(), FIRST * 2);
        pauses.lasted(Duration::from_millis(3));
        assert_eq!(pauses.next_pause(), FIRST * 4);
        assert_eq!((0..100).map(|_| pauses.next_pause()).max(), Some(MOST));
        pauses.lasted(MOST);
        assert_eq!(pauses.next_pause(), FIRST);
    }
}
