//! Reads that are answered from copies that the gateway keeps: no packet, no other process.
//!
//! A copy answers a read that nothing of its connection is to come before: no write and no read of
//! the same key that is under way, and nothing of which it is not known what it reads.

use ::client::kit::Miss;

use super::{
    EventLoop,
    client::{Client, write_value},
    commands::{Command, LocalRead},
    dispatch::CommandText,
    speaker::NOBODY,
};

impl Client {
    /// Whether a read of this key may be answered at once: nothing that is under way could be
    /// about it.
    fn may_read_beside(&self, key: u64) -> bool {
        self.waiting() == 0 || self.writes() == 0 && self.reads_others_than(key)
    }
}

impl EventLoop {
    /// Answers the value of a key from a copy.
    ///
    /// # Errors
    /// There is none that may answer; [`Miss::AtStore`]: the key's store is at work on one.
    pub(super) fn read_local(
        &mut self,
        at: usize,
        command: Command,
        name: &[u8],
        place: (u64, usize),
    ) -> Result<(), Miss> {
        self.serve_local(at, command, name, place, |client, value| client.answer_value(value))
    }

    /// Answers what a command asks about the value of one key from a copy of it, if there is one.
    /// Whether it did. Of a user who has logged in only the right to GET is known.
    pub(super) fn ask_local(&mut self, at: usize, command: Command, said: CommandText<'_>) -> bool {
        let (Some(asks), Some(name)) = (command.local, said.word(1)) else { return false };
        let client = &self.clients[at];
        let is_user = client.user != NOBODY;
        if self.local.is_none() || is_user || client.ties.any() || client.tracking.is_some() {
            return false;
        }
        let range = match (asks, said.words.len()) {
            (LocalRead::Range, 4) => {
                let number = |at| said.word(at).and_then(resp::integer);
                match (number(2), number(3)) {
                    (Some(first), Some(last)) => (first, last),
                    _ => return false,
                }
            }
            (LocalRead::Exists | LocalRead::Length | LocalRead::Type, 2) => (0, -1),
            _ => return false,
        };
        let place = (self.key_hash(name), self.store_of(name));
        let served = self.serve_local(at, command, name, place, |client, value| {
            let mut bytes = vec![];
            match asks {
                LocalRead::Exists => bytes.extend_from_slice(b":1\r\n"),
                LocalRead::Length => {
                    bytes.extend_from_slice(format!(":{}\r\n", value.len()).as_bytes());
                }
                LocalRead::Type => bytes.extend_from_slice(b"+string\r\n"),
                LocalRead::Range => write_value(part(value, range), &mut bytes),
            }
            client.answer(&bytes);
        });
        served.is_ok()
    }

    fn serve_local(
        &mut self,
        at: usize,
        command: Command,
        name: &[u8],
        (key, store): (u64, usize),
        answer: impl FnOnce(&mut Client, &[u8]),
    ) -> Result<(), Miss> {
        let client = &self.clients[at];
        if self.local.is_none() || key == 0 || !client.may_read_beside(key) {
            return Err(Miss::Elsewhere);
        }
        let speaker = client.speaker();
        if !self.may_read_all(speaker, store) {
            return Err(Miss::Elsewhere);
        }
        let Some(local) = &self.local else { return Err(Miss::Elsewhere) };
        let client = &mut self.clients[at];
        let served = local.read(key, name, self.read_ns, |copy| answer(client, &copy.value));
        if served.is_ok() {
            match self.local_hits.iter_mut().find(|(row, _)| *row == command.row) {
                Some((_, times)) => *times += 1,
                None => self.local_hits.push((command.row, 1)),
            }
            self.touch_client(at);
        }
        served
    }

    /// Tells what was answered from copies in this round.
    pub(super) fn count_local(&mut self) {
        for (row, times) in self.local_hits.drain(..) {
            self.shared.counters.local_hits.add(times);
            self.shared.stats.note_at_once(row, times);
        }
    }

    /// Whether a key is the tenant's, and short enough for packets.
    pub(super) fn is_own_key(&self, name: &[u8]) -> bool {
        let is_others =
            self.tenant.is_none() && wire::backend_name(wire::TENANT_OPEN, name).is_none();
        !is_others && (1..=wire::MAX_KEY).contains(&name.len())
    }

    /// The hash of a key that reads of it are told apart by; 0: it is not the tenant's.
    pub(super) fn key_hash(&self, name: &[u8]) -> u64 {
        use std::hash::BuildHasher;
        match &self.local {
            _ if !self.is_own_key(name) => 0,
            Some(local) => local.hash(name).max(1),
            None => self.hasher.hash_one(name).max(1),
        }
    }
}

/// The bytes of a value from the first place to the last, both counted from the end where they are
/// below 0.
fn part(value: &[u8], (first, last): (i64, i64)) -> &[u8] {
    let len = value.len() as i64;
    if first < 0 && last < 0 && first > last {
        return &[];
    }
    let place = |at: i64| if at < 0 { len.saturating_add(at).max(0) } else { at };
    let (first, last) = (place(first), place(last).min(len - 1));
    if first > last {
        return &[];
    }
    &value[first as usize..=last as usize]
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_as_redis_has_them() {
        let cases: [((i64, i64), &str); 9] = [
            ((0, -1), "This"),
            ((1, 2), "hi"),
            ((-3, -2), "hi"),
            ((-2, -3), ""),
            ((3, 1), ""),
            ((0, 99), "This"),
            ((-99, 0), "T"),
            ((4, 9), ""),
            ((i64::MIN, i64::MAX), "This"),
        ];
        for (range, expected) in cases {
            assert_eq!(part(b"This", range), expected.as_bytes(), "{range:?}");
        }
        assert!(part(b"", (0, -1)).is_empty());
    }
}
