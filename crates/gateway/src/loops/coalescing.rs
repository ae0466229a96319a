//! Whether datagrams that leave in a round may go to the system several as one message.
//!
//! The system divides such a message on its way out. Where the way leads into a container's or a
//! virtual machine's link instead, the message may cross that whole; and a switch that runs in
//! generic mode on the other side would take it for its first datagram. What followed in it is sent
//! again when its time has come. Where that is so, datagrams leave one by one for a while.

use datagrams::Sender;

/// Datagrams that followed another in its message after which it is judged what became of them.
const SAMPLE: u64 = 64;
const PAUSE_NS: u64 = 60_000_000_000;

/// Senders of either kind, and which of them it is now.
pub(super) struct Coalescing {
    many: Sender,
    single: Sender,
    /// Since it was last judged.
    followers: u64,
    /// Datagrams that had been sent again when it was last judged.
    repeated: u64,
    paused_until_ns: u64,
}

impl Coalescing {
    pub fn new() -> Coalescing {
        Coalescing {
            many: Sender::coalescing(),
            single: Sender::default(),
            followers: 0,
            repeated: 0,
            paused_until_ns: 0,
        }
    }

    /// What is to send a round's datagrams, of which so many follow another in its message if it
    /// may have several. `repeated`: datagrams that have been sent again so far.
    pub fn sender(&mut self, followers: usize, repeated: u64, now_ns: u64) -> &mut Sender {
        if self.is_on(followers, repeated, now_ns) { &mut self.many } else { &mut self.single }
    }

    fn is_on(&mut self, followers: usize, repeated: u64, now_ns: u64) -> bool {
        let is_paused = now_ns < self.paused_until_ns;
        if is_paused || self.followers >= SAMPLE {
            let again = repeated - self.repeated;
            let are_lost = !is_paused && again * 2 >= self.followers;
            (self.followers, self.repeated) = (0, repeated);
            if are_lost {
                tracing::info!(again, "datagrams in messages of several get lost: one by one now");
                self.paused_until_ns = now_ns + PAUSE_NS;
            }
        }
        let is_on = now_ns >= self.paused_until_ns;
        self.followers += if is_on { followers as u64 } else { 0 };
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_NS: u64 = 1_000_000;

    #[test]
    fn where_what_follows_is_lost_they_leave_one_by_one_for_a_while() {
        let mut coalescing = Coalescing::new();
        // Five rounds of fifteen that follow one; all that followed of the first are sent again.
        let rounds = (0..6).map(|round| {
            let repeated = if round < 5 { 0 } else { 40 };
            coalescing.is_on(15, repeated, round * ROUND_NS)
        });
        assert_eq!(rounds.collect::<Vec<_>>(), [true, true, true, true, true, false]);
        let paused_until = 5 * ROUND_NS + PAUSE_NS;
        assert!(!coalescing.is_on(15, 75, paused_until - 1));
        // What was sent again meanwhile does not count.
        assert!((0..20).all(|round| coalescing.is_on(15, 75, paused_until + round * ROUND_NS)));
    }

    #[test]
    fn a_lossy_path_does_not_end_it() {
        let mut coalescing = Coalescing::new();
        assert!((0..1000).all(|round| coalescing.is_on(15, 6 * round, round * ROUND_NS)));
    }
}
