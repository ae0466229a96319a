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
        if held < before {
            return self.shared.release(before - held);
        }
        self.shared.hold(held - before);
        while self.shared.held() > most {
            let all = self.clients.iter().filter(|(_, client)| client.counted > 0);
            // A large command that is just coming is larger than many of which nothing comes: what
            // counts is for how long, too.
            let lies = |client: &Client| {
                client.counted as u128 * u128::from(self.next_number - client.moved)
            };
            let most = all.max_by_key(|(_, client)| (lies(client), client.counted));
            let Some((largest, _)) = most else { return };
            self.evict(largest);
        }
    }

    fn evict(&mut self, at: usize) {
        let Some(client) = self.clients.get(at) else { return };
        self.shared.memory_refused(client.held());
        self.close(at);
    }
}
