//! A Redis client's connection: what it has sent and is not carried out, and its answers in their
//! order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use resp::{RequestParser, did_write};

use super::{
    publishing::Behind,
    readers::Reading,
    speaker::{NOBODY, Speaker},
    stream::Stream,
    tracked_connections::TrackedConnections,
    turns::Turn,
};
use crate::strings::session::Session;

/// Appends a value as RESP has it.
pub(super) fn write_value(value: &[u8], out: &mut Vec<u8>) {
    // The length is written from its last digit on, so that it is copied once.
    let mut head = *b"                    \r\n";
    let mut from = head.len() - 2;
    let mut rest = value.len();
    loop {
        from -= 1;
        head[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    from -= 1;
    head[from] = b'$';
    let head = &head[from..];
    out.reserve(head.len() + value.len() + 2);
    out.extend_from_slice(head);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether a name may stand in CLIENT LIST.
pub(super) fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// The ways by which a command may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the Redis itself.
    Direct,
    /// To the store's RESP port.
    Store,
    /// By a connection of the client's own.
    Own,
    /// By the network, where switches answer.
    Network,
    /// Carried out here, by packets.
    Job,
}

/// How many there are.
const WAYS: usize = 5;
/// One whose turn was not enough is taken to be slow for so long.
const SLOW_FOR: Duration = Duration::from_millis(10);
/// Bytes that are read from a socket at once, unless a longer command is known to come.
const SHORT_READ_BYTES: usize = 16 << 10;
/// Bytes of answers that wait for their client before it counts as one that does not read.
const BEHIND_BYTES: usize = 64 << 10;
/// Bytes of answers that have left to a client who reads them: more than systems keep for one who
/// does not.
const READER_BYTES: u64 = 256 << 10;

/// The place of an answer that is still to come, or that came before those in front of it.
struct Slot {
    way: Way,
    /// The hash of the key that it reads; 0: it is no read of one key.
    key: u64,
    /// Of a command that may change something.
    writes: bool,
    /// It tells whether the client's own connection has written anything ([`did_write`]).
    tells_of_writes: bool,
    done: bool,
    /// Something of it has come.
    heard: bool,
    /// Bytes of its command.
    asked: usize,
    bytes: Vec<u8>,
    /// What answers nothing and comes behind it.
    pushes: Vec<u8>,
}

impl Slot {
    fn new(way: Way, key: u64) -> Slot {
        let (writes, tells_of_writes, done, heard) = (false, false, false, false);
        let (bytes, pushes) = (vec![], vec![]);
        Slot { way, key, writes, tells_of_writes, done, heard, asked: 0, bytes, pushes }
    }
}

/// What the answer to a command that is under way will change, if it is no error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transition {
    pub protocol: Option<u8>,
    /// Who the client is then.
    pub user: Option<u32>,
    /// It was said by the client's own connection.
    pub by_own: bool,
}

/// What keeps a client on its own connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ties {
    pub transaction: bool,
    /// No store has heard of the transaction yet: it is at that of its first key.
    pub unplaced: bool,
    /// A command of the transaction was refused here: it cannot be carried out.
    pub refused: bool,
    /// The answer to a command of the transaction tells of what it has written.
    pub queued_write: bool,
    pub watches: bool,
    pub database: bool,
    /// A user of whom only its own connection knows.
    pub user: bool,
    /// It has asked who has what its connection has written (WAIT).
    pub waits: bool,
    /// Nothing of what it sends is looked at any more.
    pub raw: bool,
}

impl Ties {
    /// Whether there is any.
    pub fn any(self) -> bool {
        let Ties { transaction, watches, database, user, waits, raw, .. } = self;
        transaction || watches || database || user || waits || raw
    }

    /// What is left of them once a transaction is over.
    pub fn after_transaction(self) -> Ties {
        let Ties { database, user, waits, raw, .. } = self;
        Ties { database, user, waits, raw, ..Ties::default() }
    }
}

/// What a client is called, and its library.
#[derive(Default)]
pub(super) struct Names {
    pub own: Vec<u8>,
    pub library: Vec<u8>,
    pub library_version: Vec<u8>,
}

/// One connection.
pub(super) struct Client {
    pub stream: Stream,
    /// No other client of this loop has it, before or after.
    pub number: u64,
    /// 2 or 3.
    pub protocol: u8,
    /// Who has logged in.
    pub user: u32,
    /// What has come and is not carried out.
    pub input: Vec<u8>,
    /// How far a command has been looked at of which a part has come.
    pub part: Option<Box<RequestParser>>,
    slots: VecDeque<Slot>,
    /// Number of the first slot's answer.
    first: u64,
    /// Answers to come, by way.
    under_way: [u32; WAYS],
    /// Those of them at the store that may change something.
    writes: u32,
    /// It has written by connections that clients share, or by one of its own that is gone, and
    /// nothing since by its own that replicas are told behind that.
    pub wrote_beside_own: bool,
    /// It may have written by its own connection.
    pub wrote_by_own: bool,
    /// Bytes of the commands whose answers are to come.
    pub asked_bytes: usize,
    /// Bytes in slots.
    stashed: usize,
    /// Which of the connections that clients share its commands go by.
    pub lane: u8,
    /// How it reads what it asks for.
    pub reading: Reading,
    pub then: Option<Transition>,
    /// What its next command waits for, a message.
    pub behind: Option<Behind>,
    pub ties: Ties,
    /// Hashes of the keys that jobs of it name, with the number of jobs.
    named: Option<Box<HashMap<u64, u32>>>,
    /// What is remembered of it where no server does.
    pub session: Option<Box<Session>>,
    /// Its own connection.
    pub own: Option<usize>,
    /// Its own connections to all stores, which track what it reads.
    pub tracking: Option<Box<TrackedConnections>>,
    pub names: Option<Box<Names>>,
    /// Of its commands by its own connection one may wait for as long as it likes.
    pub blocks: bool,
    /// It has said that nothing more will come.
    pub ended: bool,
    /// Nothing more is taken from it; it ends once its answers have left.
    pub closing: bool,
    /// It waits for answers before its next command can go on.
    pub waits: bool,
    pub is_ready: bool,
    /// When a turn of it was over last and there was more of it.
    pub went_on_at: Option<Instant>,
    pub is_dirty: bool,
    /// Bytes of it that are counted in the memory of all.
    pub counted: usize,
    /// When something of a command came last: a number that grows.
    pub moved: u64,
}

impl Client {
    /// A connection that was just accepted.
    pub fn new(stream: Stream, number: u64, now: Instant) -> Client {
        Client {
            stream,
            number,
            protocol: 2,
            user: NOBODY,
            input: vec![],
            part: None,
            slots: VecDeque::new(),
            first: 0,
            under_way: [0; WAYS],
            writes: 0,
            wrote_beside_own: false,
            wrote_by_own: false,
            asked_bytes: 0,
            stashed: 0,
            lane: 0,
            reading: Reading::new(now),
            then: None,
            behind: None,
            ties: Ties::default(),
            named: None,
            session: None,
            own: None,
            tracking: None,
            names: None,
            blocks: false,
            ended: false,
            closing: false,
            waits: false,
            is_ready: false,
            went_on_at: None,
            is_dirty: false,
            counted: 0,
            moved: number,
        }
    }

    /// How it speaks, and as whom.
    pub fn speaker(&self) -> Speaker {
        Speaker { protocol: self.protocol, user: self.user }
    }

    /// Notes what it calls itself, if it does: the next connection of its own is told. Redis takes
    /// no name that may not stand in CLIENT LIST.
    pub fn be_named(&mut self, name: Option<&[u8]>) {
        if let Some(name) = name.filter(|name| is_printable(name)) {
            self.names.get_or_insert_default().own = name.to_vec();
        }
    }

    /// Answers to come by this way.
    pub fn under_way(&self, way: Way) -> u32 {
        self.under_way[way as usize]
    }

    /// Whether all of them come by its own connection, or nothing is to come.
    pub fn is_by_own(&self) -> bool {
        self.waiting() as u32 == self.under_way(Way::Own)
    }

    /// Whether it waits by its own connection for what may never come.
    pub fn is_blocked(&self) -> bool {
        self.blocks && self.under_way(Way::Own) > 0
    }

    /// Answers that have not been given, in all.
    pub fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Commands at the store that may change something.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// Whether a read of this key is under way by this way.
    pub fn reads(&self, way: Way, key: u64) -> bool {
        self.under_way(way) > 0
            && self.slots.iter().any(|slot| slot.way == way && slot.key == key && !slot.done)
    }

    /// Whether a read of one of these keys is under way by this way.
    pub fn reads_any(&self, way: Way, keys: &[u64]) -> bool {
        keys.iter().any(|key| self.reads(way, *key))
    }

    /// Whether a job under way names one of these keys.
    pub fn names(&self, keys: &[u64]) -> bool {
        let named = self.named.as_ref();
        named.is_some_and(|named| keys.iter().any(|key| named.contains_key(key)))
    }

    /// A job names these keys.
    pub fn name_keys(&mut self, keys: &[u64]) {
        let named = self.named.get_or_insert_default();
        keys.iter().for_each(|key| *named.entry(*key).or_default() += 1);
    }

    /// It has ended.
    pub fn release_keys(&mut self, keys: &[u64]) {
        let Some(named) = &mut self.named else { return };
        for key in keys {
            if let Some(count) = named.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    named.remove(key);
                }
            }
        }
    }

    /// Whether everything that is under way is a read of one key, and none of this.
    pub fn reads_others_than(&self, key: u64) -> bool {
        self.slots.iter().all(|slot| slot.done || slot.key != 0 && slot.key != key)
    }

    /// Whether everything that is under way is a read of one key.
    pub fn reads_single_keys(&self) -> bool {
        self.slots.iter().all(|slot| slot.done || slot.key != 0)
    }

    /// A place for an answer behind those to come: its number.
    pub fn place(&mut self, way: Way, key: u64, writes: bool) -> u64 {
        self.under_way[way as usize] += 1;
        self.writes += u32::from(writes && way == Way::Store);
        match way {
            Way::Store | Way::Direct if writes => self.wrote_beside_own = true,
            Way::Own if writes => self.wrote_by_own = true,
            _ => {}
        }
        self.slots.push_back(Slot { writes, ..Slot::new(way, key) });
        self.first + self.slots.len() as u64 - 1
    }

    /// The command of the last answer that is to come has so many bytes.
    pub fn asked(&mut self, bytes: usize) {
        if let Some(slot) = self.slots.back_mut().filter(|slot| !slot.done) {
            slot.asked = bytes;
            self.asked_bytes += bytes;
        }
    }

    /// The last answer that is to come tells whether the client's own connection has written
    /// anything.
    pub fn last_tells_of_writes(&mut self) {
        if let Some(slot) = self.slots.back_mut() {
            slot.tells_of_writes = true;
        }
    }

    /// An answer that is still to come will come by another way.
    pub fn reroute(&mut self, answer: u64, way: Way) {
        let at = answer.checked_sub(self.first).map(|at| at as usize);
        let Some(slot) = at.and_then(|at| self.slots.get_mut(at)).filter(|slot| !slot.done) else {
            return;
        };
        self.under_way[slot.way as usize] -= 1;
        self.under_way[way as usize] += 1;
        slot.way = way;
    }

    /// An answer that is known already, behind those to come.
    pub fn answer(&mut self, bytes: &[u8]) {
        if self.slots.is_empty() {
            return self.stream.out().extend_from_slice(bytes);
        }
        self.stashed += bytes.len();
        let bytes = bytes.to_vec();
        self.slots.push_back(Slot { done: true, bytes, ..Slot::new(Way::Own, 0) });
    }

    /// A part of this answer has come, which lies elsewhere.
    pub fn hear(&mut self, answer: u64) {
        let at = answer.checked_sub(self.first).map(|at| at as usize);
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            slot.heard = true;
        }
    }

    /// Something that answers nothing: it was said after all that has come of answers so far.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.slots.iter_mut().rev().find(|slot| slot.heard) {
            None => self.stream.out().extend_from_slice(bytes),
            Some(slot) => {
                slot.pushes.extend_from_slice(bytes);
                self.stashed += bytes.len();
            }
        }
    }

    /// A value that is known already, behind the answers to come.
    pub fn answer_value(&mut self, value: &[u8]) {
        if self.slots.is_empty() {
            return write_value(value, self.stream.out());
        }
        let mut bytes = Vec::with_capacity(value.len() + 16);
        write_value(value, &mut bytes);
        self.answer(&bytes);
    }

    /// Bytes of the answer with this number, which ends with them or not.
    pub fn give(&mut self, answer: u64, bytes: &[u8], ends: bool) {
        let Some(at) = answer.checked_sub(self.first).map(|at| at as usize) else { return };
        let Some(slot) = self.slots.get_mut(at) else { return };
        if slot.tells_of_writes && !slot.heard && did_write(bytes) {
            self.wrote_beside_own = false;
        }
        slot.heard = true;
        if ends {
            slot.done = true;
            self.asked_bytes -= slot.asked;
            self.under_way[slot.way as usize] -= 1;
            self.writes -= u32::from(slot.writes && slot.way == Way::Store);
        }
        if at > 0 {
            slot.bytes.extend_from_slice(bytes);
            self.stashed += bytes.len();
            return;
        }
        self.stream.out().extend_from_slice(bytes);
        while self.slots.front().is_some_and(|slot| slot.done)
            && let Some(slot) = self.slots.pop_front()
        {
            self.first += 1;
            self.stashed -= slot.pushes.len();
            self.stream.out().extend_from_slice(&slot.pushes);
            if let Some(slot) = self.slots.front_mut() {
                let bytes = std::mem::take(&mut slot.bytes);
                self.stashed -= bytes.len();
                self.stream.out().extend_from_slice(&bytes);
            }
        }
    }

    /// Parts of its answers lie elsewhere, so many bytes more.
    pub fn stash(&mut self, bytes: usize) {
        self.stashed += bytes;
    }

    /// So many bytes less.
    pub fn unstash(&mut self, bytes: usize) {
        self.stashed -= bytes;
    }

    /// Whether everything is answered and has left.
    pub fn is_done(&self) -> bool {
        self.slots.is_empty() && self.stream.waiting() == 0
    }

    /// Memory that it takes beyond what every connection has.
    pub fn held(&self) -> usize {
        let part = self.part.as_ref().map_or(0, |part| part.held());
        self.stream.held() + self.input.capacity() + part + self.stashed
    }

    /// Bytes of commands that are not whole and of answers that have not left.
    pub fn unfinished(&self) -> usize {
        self.stream.waiting() + self.input.len() + self.stashed
    }

    /// Whether so many bytes of answers are here that no more are to come before they are sent, or
    /// counted.
    pub fn owes_much(&self) -> bool {
        self.owed() > BEHIND_BYTES
    }

    /// Bytes of answers that are here.
    pub fn owed(&self) -> usize {
        self.stream.waiting() + self.stashed
    }

    /// Which kind of turn it has at `now`.
    pub fn turn(&self, now: Instant) -> Turn {
        let goes_on = |at| now.saturating_duration_since(at) < SLOW_FOR;
        if self.stream.waiting() > BEHIND_BYTES {
            return Turn::Last;
        }
        match self.stream.sent {
            READER_BYTES.. => match self.went_on_at.is_some_and(goes_on) {
                true => Turn::Long,
                false => Turn::Short,
            },
            0 => Turn::Last,
            _ if self.part.is_some() || self.went_on_at.is_some_and(goes_on) => Turn::Last,
            _ => Turn::Short,
        }
    }

    /// Answers to come by ways on which others' commands wait behind its own.
    pub fn before_others(&self) -> u32 {
        self.under_way(Way::Direct) + self.under_way(Way::Store)
    }

    /// Bytes that are read from it at once: few while they may be many commands.
    pub fn bytes_at_once(&self) -> usize {
        let wanted = self.part.as_ref().map_or(0, |part| part.wanted());
        wanted.saturating_sub(self.input.len()).max(SHORT_READ_BYTES)
    }

    /// Keeps what has come behind what waits already, in no more room than the command there needs,
    /// or twice what is there of it.
    pub fn keep(&mut self, bytes: &[u8]) {
        let needed = self.input.len() + bytes.len();
        if needed > self.input.capacity() {
            let wanted = self.part.as_ref().map_or(0, |part| part.wanted());
            let room = wanted.clamp(needed, 2 * needed);
            self.input.reserve_exact(room - self.input.len());
        }
        self.input.extend_from_slice(bytes);
    }

    /// Gives back what an idle connection does not need.
    pub fn rest(&mut self) {
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
        if self.input.is_empty() {
            self.input = vec![];
        }
        if self.named.as_ref().is_some_and(|named| named.is_empty()) {
            self.named = None;
        }
        self.stream.rest();
    }
}
