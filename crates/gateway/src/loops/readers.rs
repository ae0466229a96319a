//! Clients that ask for more than they have read.
//!
//! Of one that reads no command is taken while it is owed much, so that however much it has asked
//! for, little of it is here. One that does not read may be one that writes all of its commands
//! first: after a while they are taken all the same, and what answers hold is bounded
//! ([`memory`](super::memory)).

use std::time::{Duration, Instant};

use super::EventLoop;

/// Bytes that a client is owed and gets another command carried out.
const OWED_BYTES: usize = 1 << 20;
/// Which part of what all may hold that is at most.
const OWED_SHARE: usize = 8;
/// A client to which nothing has left for so long does not read.
const READS_WITHIN: Duration = Duration::from_secs(1);
/// How many commands of a client are under way before anything is known of its answers.
const FIRST_COMMANDS: usize = 8;

/// How a client reads what it asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Commands of it that may be under way: few where their answers are longer than it reads.
    pub commands: usize,
    /// Bytes that had left when that was looked at last.
    sent: u64,
    /// When they had become more.
    at: Instant,
    /// Its next command waits until it has read.
    is_awaited: bool,
    /// It is looked at again when it may have ceased to read.
    is_watched: bool,
}

impl Reading {
    /// Of one that has come at `now`.
    pub fn new(now: Instant) -> Reading {
        let (is_awaited, is_watched) = (false, false);
        Reading { commands: FIRST_COMMANDS, sent: 0, at: now, is_awaited, is_watched }
    }

    /// One more answer is here, of a client that is behind with reading those before it or is not.
    pub fn answered(&mut self, is_behind: bool, most: usize) {
        self.commands = match is_behind {
            true => self.commands.div_ceil(2),
            false => (self.commands + 1).min(most),
        };
    }
}

impl EventLoop {
    /// Bytes that a client may be owed and count as one that reads as fast as it is answered.
    pub(super) fn most_owed(&self) -> usize {
        OWED_BYTES.min(self.shared.most_held / OWED_SHARE)
    }

    /// Whether a client's next command has to wait until it has read more.
    pub(super) fn has_to_read(&mut self, at: usize) -> bool {
        let most = self.most_owed();
        let Some(client) = self.clients.get_mut(at).filter(|client| client.owed() > most) else {
            return false;
        };
        let (sent, reading) = (client.stream.sent, &mut client.reading);
        if sent != reading.sent {
            (reading.sent, reading.at) = (sent, self.now);
        }
        reading.is_awaited = self.now < reading.at + READS_WITHIN;
        if reading.is_awaited && !std::mem::replace(&mut reading.is_watched, true) {
            self.readers.push_back((self.now + READS_WITHIN, at));
        }
        reading.is_awaited
    }

    /// A client has read: its next command need not wait any more.
    pub(super) fn has_read(&mut self, at: usize) {
        let most = self.most_owed();
        let Some(client) = self.clients.get_mut(at).filter(|client| client.owed() <= most) else {
            return;
        };
        if std::mem::take(&mut client.reading.is_awaited) {
            self.make_ready(at);
        }
    }

    /// Has those looked at again who may have ceased to read.
    pub(super) fn wake_readers(&mut self) {
        while let Some((until, at)) = self.readers.front().copied()
            && until <= self.now
        {
            self.readers.pop_front();
            if let Some(client) = self.clients.get_mut(at) {
                client.reading.is_watched = false;
                self.make_ready(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_commands_are_under_way_while_answers_are_longer_than_their_client_reads() {
        let mut reading = Reading::new(Instant::now());
        (0..1000).for_each(|_| reading.answered(false, 256));
        assert_eq!(reading.commands, 256);
        (0..8).for_each(|_| reading.answered(true, 256));
        assert_eq!(reading.commands, 1);
        (0..8).for_each(|_| reading.answered(true, 256));
        assert_eq!(reading.commands, 1, "it is to have an end");
    }
}
