//! Whether a user may read every key. Only then its reads go by the network, where nobody asks who
//! reads.
//!
//! Redis is asked, by a connection of that user, for the value of the key that has no bytes: no
//! pattern of keys has it, so only who may read all keys may read this one. It is asked again while
//! reads go by the network, and what it has said counts for a while.

use super::{EventLoop, speaker::Speaker, upstream::Waiter, validity::Validity};

/// What Redis says of rights counts from when it was asked: of whoever has read nothing since it is
/// not known. It counts for more than a second, which is how often a network that did not answer is
/// tried.
pub(super) const RIGHT: Validity =
    Validity { holds_ns: 2_000_000_000, asked_every_ns: 500_000_000 };

impl EventLoop {
    /// Whether whoever speaks so may read every key of a store, as far as that is known.
    pub(super) fn may_read_all(&mut self, speaker: Speaker, store: usize) -> bool {
        if !self.users.is_asked_for(speaker.user) {
            return false;
        }
        let (asked_ns, reads) = (self.now_ns, self.users.get(speaker.user).reads(store));
        let granted = RIGHT.holds(reads.granted, asked_ns);
        if RIGHT.is_due(reads.asked, asked_ns) {
            reads.asked = Some(asked_ns);
            let at = self.common(store, speaker, 0);
            let waiter = Waiter::Right { user: speaker.user, store, asked_ns };
            self.ask_for(waiter, at, &[b"GET", b""]);
        }
        granted
    }

    /// What Redis says to the question of then: its last bytes, which are all of an error unless it
    /// came in pieces.
    pub(super) fn hear_right(
        &mut self,
        (user, store): (u32, usize),
        asked_ns: u64,
        said: &[u8],
        is_error: bool,
    ) {
        let reads = self.users.get(user).reads(store);
        reads.granted = match says(said, is_error) {
            Some(may) => may.then_some(asked_ns),
            None => reads.granted,
        };
    }
}

/// Whether an answer says that its user may read every key; `None`: it is about something else.
fn says(said: &[u8], is_error: bool) -> Option<bool> {
    let is = |code: &[u8]| said.starts_with(code);
    match is_error {
        true if is(b"-WRONGTYPE ") => Some(true),
        true if is(b"-") && !is(b"-NOPERM ") && !is(b"-NOAUTH ") => None,
        // It is that, or the end of an error whose beginning nobody knows any more.
        true => Some(false),
        false => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::says;

    #[test]
    fn only_what_permits_it_is_a_permission() {
        let rows: [(&str, bool, Option<bool>); 7] = [
            ("$-1\r\n", false, Some(true)),
            ("-WRONGTYPE Operation against a key\r\n", true, Some(true)),
            ("-NOPERM this user has no permissions\r\n", true, Some(false)),
            ("-NOAUTH Authentication required.\r\n", true, Some(false)),
            ("-LOADING Redis is loading\r\n", true, None),
            ("PERM this user has no permissions\r\n", true, Some(false)),
            ("\n", true, Some(false)),
        ];
        for (said, is_error, expected) in rows {
            assert_eq!(says(said.as_bytes(), is_error), expected, "{said:?}");
        }
    }
}
