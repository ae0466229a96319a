//! Copies to a filling tail what this switch, the one before it, had applied of each key before it
//! adopted the fill number, and what it had noted of each client's writes of the chains that it
//! fills. All items are gone through again and again until the tail has said of each that it has
//! it, also of those that could not be read yet.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Header, KeyHash, Op, Status};

use super::{Item, repair::chain_of};
use crate::{
    packets::{self, Peer, PeerKind, flags},
    record::{KeyRecord, SessionRecord},
    report::FilledChain,
    view::View,
};

/// More is sent when no more copies than this are on their way: answers wait at a socket until they
/// are looked for.
const UNDER_WAY: usize = 128;
/// Looks at some items in one tick.
const LOOKS: u32 = 64;

/// A tail that is being filled.
#[derive(Debug, Default)]
struct Job {
    /// The keys that the tail has.
    done: BTreeSet<KeyHash>,
    /// This look through the items found something that the tail has not, as far as is known.
    lacks: bool,
    /// A whole look through the items found nothing that the tail has not.
    is_filled: bool,
}

/// All tails that this switch fills, by chain and fill number.
#[derive(Debug, Default)]
pub struct Copier {
    jobs: BTreeMap<FilledChain, Job>,
    next: u32,
    /// Copies that were sent and not answered.
    under_way: usize,
    /// Whether any was answered since the last tick, and how many looks are left until the next.
    has_answered: bool,
    looks: u32,
    /// Nothing is held back here: what was applied before is committed.
    may: bool,
}

impl Copier {
    /// This is the view now.
    pub fn under(&mut self, view: &View, own: u8) {
        let jobs = (0u16..).zip(&view.chains).filter_map(|(chain, of)| {
            let before_last = of.slots.iter().rev().nth(1);
            let fills = of.filling && before_last == Some(&own);
            let fill_number = of.fill_number;
            fills.then_some(FilledChain { chain, fill_number })
        });
        let mut before = std::mem::take(&mut self.jobs);
        self.jobs = jobs.map(|job| (job, before.remove(&job).unwrap_or_default())).collect();
        for job in self.jobs.values_mut() {
            job.lacks = true;
        }
        (self.next, self.may) = (0, false);
    }

    /// Whether anything may be copied at the moment.
    pub fn may(&mut self, may: bool) {
        self.may = may;
    }

    /// Chains whose tails have everything.
    pub fn filled(&self) -> Vec<FilledChain> {
        let filled = self.jobs.iter().filter(|(_, job)| job.is_filled);
        filled.map(|(filled, _)| *filled).collect()
    }

    /// A tick: where to look on, if there is something to copy. If nothing was answered since the
    /// last one, all that is on its way is taken for lost.
    pub fn next(&mut self) -> Option<u32> {
        if !std::mem::take(&mut self.has_answered) {
            self.under_way = 0;
        }
        self.looks = LOOKS;
        self.from()
    }

    /// Where to look on before the next tick: not from the beginning, since answers are still to
    /// come.
    pub fn more(&mut self) -> Option<u32> {
        let may = self.looks > 0 && self.next != 0;
        let from = self.from().filter(|_| may)?;
        self.looks -= 1;
        Some(from)
    }

    fn from(&self) -> Option<u32> {
        let may = self.may && self.under_way <= UNDER_WAY;
        let to_do = may && self.jobs.values().any(|job| !job.is_filled);
        to_do.then_some(self.next)
    }

    /// Items were looked at, up to there.
    pub fn walked(&mut self, next: Option<u32>) {
        if !self.may {
            return;
        }
        if next.is_none() {
            for job in self.jobs.values_mut() {
                job.is_filled |= !job.lacks;
                job.lacks = false;
            }
        }
        self.next = next.unwrap_or(0);
    }

    /// What is to be sent of an item, and to whom.
    pub(super) fn item(&mut self, view: &View, item: &Item<'_>) -> Vec<(u8, Header, Vec<u8>)> {
        let mut out = vec![];
        if !self.may {
            return out;
        }
        let session = wire::OWN_KEYS == item.key.first().copied().unwrap_or_default();
        let all: Vec<FilledChain> = self.jobs.keys().copied().collect();
        for (filled, job) in &mut self.jobs {
            let Some(chain) = view.chains.get(usize::from(filled.chain)) else { continue };
            let is_its = chain_of(view, item).is_some_and(|its| std::ptr::eq(its, chain));
            if !(session || is_its) || job.is_filled || job.done.contains(&item.hash) {
                continue;
            }
            job.lacks = true;
            let message = item.record.and_then(|record| match session {
                true => session_copy(record, filled.fill_number, &all),
                false => copy(record, filled.fill_number),
            });
            if let Some(((header, value), tail)) = message.zip(chain.slots.last()) {
                self.under_way += 1;
                out.push((*tail, header, value));
            }
        }
        out
    }

    /// A tail answered.
    pub fn answered(&mut self, header: &Header, peer: &Peer) {
        if peer.kind != PeerKind::Copied {
            return;
        }
        self.under_way = self.under_way.saturating_sub(1);
        self.has_answered = true;
        for (filled, job) in &mut self.jobs {
            if peer.fill == filled.fill_number {
                job.done.insert(header.key_hash);
            }
        }
    }
}

/// The newest version from before; that there is none; or the question whether the tail has one
/// already, since later ones passed.
fn copy(record: &[u8], fill_number: u64) -> Option<(Header, Vec<u8>)> {
    let record = KeyRecord::decode(record)?;
    let boundary = record.boundary(fill_number);
    let mut peer = Peer { fill: fill_number, ..Peer::new(PeerKind::Copy) };
    let mut header = Header { version: boundary, ..Header::new(Op::PeerMessage) };
    let Some(version) = record.version(boundary) else {
        peer.flags = flags::BARE;
        if boundary != record.base {
            peer.fill = 0;
        }
        return Some((header, peer.encode().to_vec()));
    };
    (peer.session, peer.accepted) = (version.session, version.accepted);
    peer.clean = boundary;
    (header.client, header.request) = (version.client, version.request);
    if version.value.is_none() {
        peer.flags = flags::DELETE;
    }
    let value = version.value.as_deref().unwrap_or_default();
    Some((header, [&peer.encode()[..], value].concat()))
}

/// `all`: the chains whose tails are filled from here.
fn session_copy(record: &[u8], fill_number: u64, all: &[FilledChain]) -> Option<(Header, Vec<u8>)> {
    let mut session = SessionRecord::decode(record)?;
    let fills = |chain: u8| all.contains(&FilledChain { chain: chain.into(), fill_number });
    for note in &mut session.notes {
        let is_new = note.under != 0 && (note.under.wrapping_sub(fill_number as u32) as i32) >= 0;
        *note = match note.chain {
            _ if note.refused == Some(Status::Forgotten) || note.request == 0 => *note,
            None => note.forgotten(),
            // What was noted under the number comes with its write, and so does what is of a chain
            // that the tail has all of: a note of a write that the tail never gets would take a
            // later version of another client for it.
            Some(chain) if is_new || !fills(chain) => note.before(),
            Some(_) => *note,
        };
    }
    let peer = Peer { fill: fill_number, ..Peer::new(PeerKind::CopySession) };
    let header =
        Header { version: session.seen, client: session.client, ..Header::new(Op::PeerMessage) };
    let notes = packets::encode_notes(&session);
    Some((header, [&peer.encode()[..], &notes[..]].concat()))
}
