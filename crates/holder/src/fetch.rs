//! A grant that is under way: asked for, and asked for again, until the value is whole.

use std::collections::BTreeSet;

use wire::{Header, KeyHash, PART, PART_BYTES};

use crate::Nanos;

/// A question without an answer is asked again after this time, then after twice that and so on.
const AGAIN_NS: Nanos = 20_000_000;
/// How often it is asked.
const TRIES: u32 = 6;
/// Parts of a value that are asked for at a time.
const PARTS_AT_ONCE: usize = 32;
/// How often a value that was written meanwhile is begun anew.
const BEGINNINGS: u32 = 4;

/// A key of which a grant is under way.
pub(crate) struct Fetch {
    /// The store's place.
    pub store: usize,
    pub key: Box<[u8]>,
    pub key_hash: KeyHash,
    /// What it is asked for under.
    pub epoch: u64,
    /// When it is asked again.
    pub next_ns: Nanos,
    tries: u32,
    beginnings: u32,
    joined: Option<JoinedValue>,
}

/// A value that comes in parts.
struct JoinedValue {
    version: u64,
    total: u32,
    expiry_ms: u32,
    bytes: Vec<u8>,
    /// Parts that were asked for and are not here.
    awaited: BTreeSet<u16>,
    /// The first part that was not asked for.
    next: usize,
}

/// A part that is asked for; the first, of whatever version: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedPart {
    pub part: u16,
    pub total: u32,
    pub version: u64,
}

/// What came of a packet of a grant.
pub(crate) enum Progress {
    /// More has to come; these parts are to be asked for now.
    Parts(Vec<WantedPart>),
    /// The value, its version, and how long it lives in ms (0: for ever).
    Whole(Vec<u8>, u64, u32),
    /// It is given up.
    Over,
}

impl Fetch {
    /// One that is asked for at `now_ns`.
    pub fn new(
        store: usize,
        key: Box<[u8]>,
        key_hash: KeyHash,
        epoch: u64,
        now_ns: Nanos,
    ) -> Fetch {
        let next_ns = now_ns + AGAIN_NS;
        Fetch { store, key, key_hash, epoch, next_ns, tries: 1, beginnings: 0, joined: None }
    }

    /// Bytes of the value of which parts are here, with room for the others.
    pub fn bytes(&self) -> usize {
        self.joined.as_ref().map_or(0, |joined| joined.bytes.len())
    }

    /// The time has come to ask again: for what. None: it was asked often enough.
    pub fn again(&mut self, now_ns: Nanos) -> Option<Vec<Option<WantedPart>>> {
        if self.tries == TRIES {
            return None;
        }
        self.next_ns = now_ns + (AGAIN_NS << self.tries);
        self.tries += 1;
        Some(match &self.joined {
            None => vec![None],
            Some(joined) => joined.awaited.iter().map(|part| Some(joined.wanted(*part))).collect(),
        })
    }

    /// A packet of the grant has come, of a value that is at most so long.
    pub fn take(
        &mut self,
        header: &Header,
        value: &[u8],
        longest: usize,
        now_ns: Nanos,
    ) -> Progress {
        if header.total == 0 && header.part == 0 {
            return Progress::Whole(value.to_vec(), header.version, header.expiry_ms);
        }
        let joined = self.joined.take().filter(|joined| joined.is_of(header));
        let joined = match joined {
            Some(joined) => Some(joined),
            None if header.part > 0 || header.total as usize > longest => None,
            None if self.beginnings == BEGINNINGS => None,
            None => {
                self.beginnings += 1;
                Some(JoinedValue::begun_by(header))
            }
        };
        let Some(mut joined) = joined else { return Progress::Over };
        if !joined.put(header.part, value) {
            return Progress::Over;
        }
        if joined.is_whole() {
            return Progress::Whole(joined.bytes, joined.version, joined.expiry_ms);
        }
        let parts = joined.ask_for_more();
        self.joined = Some(joined);
        self.tries = 1;
        self.next_ns = now_ns + AGAIN_NS;
        Progress::Parts(parts)
    }
}

impl JoinedValue {
    fn begun_by(first: &Header) -> JoinedValue {
        JoinedValue {
            version: first.version,
            total: first.total,
            expiry_ms: first.expiry_ms,
            bytes: vec![0; first.total as usize],
            awaited: BTreeSet::from([0]),
            next: PART_BYTES,
        }
    }

    fn is_of(&self, header: &Header) -> bool {
        self.version == header.version && self.total == header.total
    }

    fn wanted(&self, part: u16) -> WantedPart {
        WantedPart { part, total: self.total, version: self.version }
    }

    /// Puts a part where it belongs. False: it is none.
    fn put(&mut self, part: u16, value: &[u8]) -> bool {
        let from = usize::from(part) * PART;
        let ends = (from + PART_BYTES).min(self.bytes.len());
        let Some(room) = self.bytes.get_mut(from..ends).filter(|room| room.len() == value.len())
        else {
            return false;
        };
        room.copy_from_slice(value);
        self.awaited.remove(&part);
        true
    }

    fn is_whole(&self) -> bool {
        self.awaited.is_empty() && self.next >= self.bytes.len()
    }

    fn ask_for_more(&mut self) -> Vec<WantedPart> {
        let mut parts = vec![];
        while self.awaited.len() < PARTS_AT_ONCE && self.next < self.bytes.len() {
            let part = (self.next / PART) as u16;
            self.awaited.insert(part);
            self.next += PART_BYTES;
            parts.push(self.wanted(part));
        }
        parts
    }
}
