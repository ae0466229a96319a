//! Whether a user may read every key. Only then its reads go by the network, where nobody asks who
//! reads.
//!
//! Redis is asked, by a connection of that user, for the value of the key that has no bytes: no
//! pattern of keys has it, so only who may read all keys may read this one. It is asked again while
//! reads go by the network. What it has said counts until it says something else.

use std::time::{Duration, Instant};

use super::{
    EventLoop,
    speaker::Speaker,
    upstream::{PendingCommand, Waiter},
    words::encode,
};

/// How often Redis is asked.
const ASKED_EVERY: Duration = Duration::from_millis(500);

impl EventLoop {
    /// Whether whoever speaks so may read every key of a store, as far as that is known.
    pub(super) fn may_read_all(&mut self, speaker: Speaker, store: usize) -> bool {
        if !self.users.is_asked_for(speaker.user) {
            return false;
        }
        let (now, reads) = (self.now, self.users.get(speaker.user).reads(store));
        let granted = reads.granted;
        if reads.asked.is_none_or(|asked: Instant| now >= asked + ASKED_EVERY) {
            reads.asked = Some(now);
            let mut bytes = vec![];
            encode(&[&b"GET"[..], b""], &mut bytes);
            let waiter = Waiter::Right { user: speaker.user, store };
            let pending = PendingCommand { waiter, command: 0, asked: now, writes: false };
            let at = self.common(store, speaker, 0);
            self.ask(at, &bytes, pending);
        }
        granted
    }

    /// What Redis says: it begins so.
    pub(super) fn hear_right(&mut self, user: u32, store: usize, said: &[u8]) {
        let reads = self.users.get(user).reads(store);
        if said.starts_with(b"-NOPERM") || said.starts_with(b"-NOAUTH") {
            reads.granted = false;
        } else if !said.starts_with(b"-") || said.starts_with(b"-WRONGTYPE") {
            reads.granted = true;
        }
        // Whatever else an error is about, it is not this.
    }
}
