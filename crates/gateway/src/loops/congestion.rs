//! Commands that servers have not taken yet.
//!
//! A server that stands still takes nothing, and what it was sent stays here, also when the client
//! who asked has gone. So it is bounded, for all servers and loops together: beyond a quarter of
//! what connections may hold, nobody goes far ahead of his answers; beyond half of it, a large
//! command, or one that would stand behind such, is refused.

use super::{
    EventLoop,
    upstream::{PendingCommand, Upstream},
};

/// Bytes of commands that a client may have under way: beyond them it waits for answers.
const AHEAD_BYTES: usize = 1 << 20;
/// The same while servers take less than they are sent. So much of a connection, of a client's or
/// to a server, is refused at no time.
const FREE_BYTES: usize = 16 << 10;

impl EventLoop {
    /// How many bytes of commands a client may have under way and send another.
    pub(super) fn may_be_ahead(&self) -> usize {
        match self.shared.waiting_for_servers() > self.shared.most_held / 4 {
            true => FREE_BYTES,
            false => AHEAD_BYTES,
        }
    }

    /// Refuses a command that would stand behind too much.
    pub(super) fn refuse_for_backlog(&mut self, at: usize, pending: PendingCommand) {
        let upstream = &self.upstreams[at];
        let role = self.targets[upstream.kind.target].role;
        self.shared.counters.memory_refusals.add_one();
        // What else it says might be a transaction's end, and the rest of that be carried out.
        let owner = upstream.owner.and_then(|(place, _)| self.clients.get_mut(place));
        if let Some(owner) = owner {
            owner.closing = true;
        }
        let line = format!("-TRYAGAIN nothing was done: {role} takes no commands\r\n");
        self.refuse(pending, &line);
    }

    /// Whether a command of so many bytes is too much for this connection now.
    pub(super) fn is_too_much(&self, upstream: &Upstream, len: usize) -> bool {
        let is_full = self.shared.waiting_for_servers() > self.shared.most_held / 2;
        is_full && upstream.backlog.bytes() + len > FREE_BYTES
    }
}
