//! What all connections hold together is bounded; where it comes to the bound, whoever has held
//! most for longest goes first.
//!
//! A connection that reads what it asked for, and sends what it begins, holds little. What counts
//! are answers that nobody reads, and commands of which the rest does not come.

use super::{EventLoop, client::Client};

/// What a connection may hold that is not counted.
const FREE_BYTES: usize = 16 << 10;

impl EventLoop {
    /// Counts what a connection holds now; ends connections while all hold too much.
    pub(super) fn count(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        let most = self.shared.most_held;
        // One alone may have half: the others have the rest, whoever comes. What counts is what it
        // sent, or does not read; room that a buffer has ahead is no fault of its client's.
        if client.unfinished() > most / 2 {
            return self.evict(at);
        }
        let held = client.held();
        let held = if held <= FREE_BYTES { 0 } else { held };
        if held == client.counted {
            return;
        }
        let before = std::mem::replace(&mut client.counted, held);
        self.held = self.held + held - before;
        if held < before {
            return self.shared.release(before - held);
        }
        self.shared.hold(held - before);
        self.keep_within();
    }

    /// Ends connections while all hold too much, and those of this loop more than its share: of
    /// others' nobody here is to blame. Another loop may have grown since, so this is looked at in
    /// each round.
    pub(super) fn keep_within(&mut self) {
        let (most, share) = (self.shared.most_held, self.shared.most_held / self.shared.sharers);
        while self.shared.held() > most && self.held > share {
            let all = self.clients.iter().filter(|(_, client)| client.counted > 0);
            // A large command that is just coming is larger than many of which nothing comes: what
            // counts is for how long, too.
            let lies = |client: &Client| {
                client.counted as u128 * u128::from(self.next_number - client.moved)
            };
            let largest = all.max_by_key(|(_, client)| (lies(client), client.counted));
            let Some((largest, _)) = largest else { return };
            self.evict(largest);
        }
    }

    fn evict(&mut self, at: usize) {
        let Some(client) = self.clients.get(at) else { return };
        self.shared.memory_refused(client.held());
        self.close(at);
    }
}
