//! Reads that are answered from copies that the gateway keeps: no packet, no other process.
//!
//! A copy answers a read that nothing of its connection is to come before: no write and no read of
//! the same key that is under way, and nothing of which it is not known what it reads.

use super::{EventLoop, client::Client, commands::Command};

impl Client {
    /// Whether a read of this key may be answered at once: nothing that is under way could be
    /// about it.
    fn may_read_beside(&self, key: u64) -> bool {
        self.waiting() == 0 || self.writes() == 0 && self.reads_others_than(key)
    }
}

impl EventLoop {
    /// Answers the value of a key from a copy, if there is one. Whether it did.
    pub(super) fn read_local(
        &mut self,
        at: usize,
        command: Command,
        name: &[u8],
        (key, store): (u64, usize),
    ) -> bool {
        let client = &self.clients[at];
        if self.local.is_none() || key == 0 || !client.may_read_beside(key) {
            return false;
        }
        let speaker = client.speaker();
        if !self.may_read_all(speaker, store) {
            return false;
        }
        let Some(local) = &self.local else { return false };
        let client = &mut self.clients[at];
        let is_there = local.read(key, name, self.read_ns, |value| client.answer_value(value));
        if is_there {
            self.shared.counters.local_hits.add_one();
            self.shared.stats.note(command.row, std::time::Duration::ZERO, false);
            self.touch_client(at);
        }
        is_there
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
