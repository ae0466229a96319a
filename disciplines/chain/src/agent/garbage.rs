//! Keys that were deleted and stay so, or were never written, and sessions of clients that have
//! gone: their items may go.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::{KeyHash, OWN_KEYS};

use super::{Item, repair::chain_of};
use crate::{
    record::{KeyRecord, SessionRecord},
    report::{IdleSessions, RemovableKeys},
    view::View,
};

/// A key is removed this long after its delete was first seen.
const AFTER_NS: u64 = 60_000_000_000;
/// Keys that are followed.
const MOST: usize = 4096;
/// Keys in one report.
const REPORTED: usize = 128;

/// A key whose delete is its last version.
#[derive(Debug)]
struct DeletedKey {
    /// The delete's version.
    last: u64,
    /// When it was first seen.
    since_ns: u64,
    /// When it was come by: the number of times that all items had been gone through.
    pass: u64,
}

/// Items that may go: deleted keys of which this switch is the tail, and idle sessions.
#[derive(Debug, Default)]
pub struct Garbage {
    deleted: BTreeMap<KeyHash, DeletedKey>,
    pass: u64,
    ripe: Vec<(Bytes, u64)>,
    idle: Vec<(Bytes, u64)>,
}

impl Garbage {
    /// An item was come by.
    pub(super) fn item(&mut self, view: &View, own: u8, now_ns: u64, item: &Item<'_>) {
        if item.key.first() == Some(&OWN_KEYS) {
            return self.session(view, item);
        }
        let record = item.record.and_then(KeyRecord::decode);
        let chain = chain_of(view, item);
        let Some((record, chain)) = record.zip(chain) else { return };
        // One that was never written has no version at all: it was asked for, and refused.
        let newest = record.version(record.last);
        let is_delete = match newest {
            Some(version) => version.value.is_none(),
            None => record.last == record.base,
        };
        let is_tail = chain.slots.last() == Some(&own) && !chain.filling;
        if !is_delete || !is_tail || record.last != record.clean {
            self.deleted.remove(&item.hash);
            return;
        }
        if self.deleted.len() >= MOST && !self.deleted.contains_key(&item.hash) {
            return;
        }
        let new = DeletedKey { last: record.last, since_ns: now_ns, pass: self.pass };
        let deleted = self.deleted.entry(item.hash).or_insert(new);
        deleted.pass = self.pass;
        if deleted.last != record.last {
            (deleted.last, deleted.since_ns) = (record.last, now_ns);
        }
        if now_ns >= deleted.since_ns + AFTER_NS && self.ripe.len() < REPORTED {
            self.ripe.push((Bytes::copy_from_slice(item.key), record.last));
        }
    }

    fn session(&mut self, view: &View, item: &Item<'_>) {
        let session = item.record.and_then(SessionRecord::decode);
        if let Some(session) = session
            && session.seen < view.purge_below
            && self.idle.len() < REPORTED
        {
            let key = Bytes::copy_from_slice(item.key);
            self.idle.push((key, session.seen));
        }
    }

    /// Sessions that may go, if there are some.
    pub fn take_idle(&mut self, number: u64) -> Option<IdleSessions> {
        let sessions = std::mem::take(&mut self.idle);
        (!sessions.is_empty()).then_some(IdleSessions { number, sessions })
    }

    /// Items were gone through to the end. Those that went are not come by any more; one that could
    /// not be read may be the next time.
    pub fn passed(&mut self) {
        self.deleted.retain(|_, deleted| deleted.pass + 1 >= self.pass);
        self.pass += 1;
    }

    /// The keys whose items may go, if there are some.
    pub fn take(&mut self, number: u64) -> Option<RemovableKeys> {
        let keys = std::mem::take(&mut self.ripe);
        (!keys.is_empty()).then_some(RemovableKeys { number, keys })
    }
}
