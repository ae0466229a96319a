//! Reads by the network: one datagram each, which a switch on the way may answer.
//!
//! All reads of one key that clients ask for while none of it is on its way are one read. Those
//! that come while one is on its way are the next one: they must not be answered with what was read
//! before they were asked. So a key has one read on its way, however many wait, and no client's
//! reads of it go back in time.

use std::time::Instant;

use client::{Answer, Error, Operation};
use hashbrown::{HashMap, HashTable};
use slab::Slab;

use super::{packets::Packets, presence::Presence, upstream::PendingCommand};

/// A key with the reads of it.
struct Key {
    name: Box<[u8]>,
    hash: u64,
    /// The number of its store.
    store: usize,
    /// Who is answered by the read that is on its way, or leaves at the end of this round.
    now: Vec<(PendingCommand, u8)>,
    /// Who is answered by the one after it.
    next: Vec<(PendingCommand, u8)>,
    is_away: bool,
}

/// What became of a read.
pub(super) struct EndedRead {
    /// Everybody who waits for it, with the protocol that each speaks.
    pub waiters: Vec<(PendingCommand, u8)>,
    /// Those who asked after it had left, if there is no answer: they are not asked for here any
    /// more.
    pub later: Vec<(PendingCommand, u8)>,
    pub name: Box<[u8]>,
    pub hash: u64,
}

/// Something that has ended: a read, or a call that somebody else began.
pub(super) enum Ending {
    Read(EndedRead, Result<Answer, Error>),
    Call(u64, Result<Answer, Error>),
}

/// The reads of a loop.
pub(super) struct Reads {
    pub packets: Packets,
    keys: Slab<Key>,
    /// Which of them is a name's, by its hash.
    by_name: HashTable<usize>,
    by_call: HashMap<u64, usize>,
    /// Keys of which a read leaves at the end of this round.
    leaving: Vec<usize>,
    /// Of each store: one that is there says nothing of another.
    presences: Vec<Presence>,
}

impl Reads {
    /// By these packets; nothing is on its way.
    pub fn new(packets: Packets) -> Reads {
        Reads {
            packets,
            keys: Slab::new(),
            by_name: HashTable::new(),
            by_call: HashMap::new(),
            leaving: vec![],
            presences: vec![],
        }
    }

    /// Whether a read of a key of this store has a chance of an answer: where nothing answered,
    /// few are tried.
    pub fn is_there(&mut self, store: usize, now: Instant) -> bool {
        if store >= self.presences.len() {
            self.presences.resize_with(store + 1, || Presence::new(now));
        }
        self.presences[store].tries(now)
    }

    /// Has a key of this store read for somebody, who is answered in this protocol.
    pub fn ask(
        &mut self,
        name: &[u8],
        (hash, store): (u64, usize),
        pending: PendingCommand,
        protocol: u8,
    ) {
        let keys = &mut self.keys;
        if let Some(at) = self.by_name.find(hash, |at| *keys[*at].name == *name) {
            let key = &mut keys[*at];
            let waiters = if key.is_away { &mut key.next } else { &mut key.now };
            return waiters.push((pending, protocol));
        }
        let now = vec![(pending, protocol)];
        let key = Key { name: name.into(), hash, store, now, next: vec![], is_away: false };
        let at = keys.insert(key);
        self.by_name.insert_unique(hash, at, |at| keys[*at].hash);
        self.leaving.push(at);
    }

    /// Sends the reads that leave in this round, and whatever else leaves, all at once.
    pub fn flush(&mut self) {
        for at in self.leaving.drain(..) {
            let key = &mut self.keys[at];
            key.is_away = true;
            let call = self.packets.begin(&Operation::Get { key: &key.name });
            self.by_call.insert(call, at);
        }
        self.packets.flush();
    }

    /// The next thing that has ended. A read after it of the same key leaves in this round.
    pub fn next_done(&mut self, now: Instant) -> Option<Ending> {
        let (call, answer) = self.packets.next_finished()?;
        let Some(at) = self.by_call.remove(&call) else { return Some(Ending::Call(call, answer)) };
        let key = &mut self.keys[at];
        let hash = key.hash;
        let waiters = std::mem::take(&mut key.now);
        let next = std::mem::take(&mut key.next);
        if let Some(presence) = self.presences.get_mut(key.store) {
            presence.ended(answer.as_ref().err(), now);
        }
        let later = match &answer {
            Ok(_) => {
                key.now = next;
                vec![]
            }
            Err(_) => next,
        };
        key.is_away = false;
        let name = if key.now.is_empty() {
            if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == at) {
                entry.remove();
            }
            self.keys.remove(at).name
        } else {
            self.leaving.push(at);
            key.name.clone()
        };
        Some(Ending::Read(EndedRead { waiters, later, name, hash }, answer))
    }
}
