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

/// Items that may go: deleted keys of which this switch is the tail, and idle sessions.
#[derive(Debug, Default)]
pub struct Garbage {
    /// The delete's version, and since when it is the last.
    since: BTreeMap<KeyHash, (u64, u64)>,
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
            self.since.remove(&item.hash);
            return;
        }
        if self.since.len() >= MOST && !self.since.contains_key(&item.hash) {
            return;
        }
        let (last, since_ns) = self.since.entry(item.hash).or_insert((record.last, now_ns));
        if *last != record.last {
            (*last, *since_ns) = (record.last, now_ns);
        }
        if now_ns >= *since_ns + AFTER_NS && self.ripe.len() < REPORTED {
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

    /// The keys whose items may go, if there are some: all items were gone through.
    pub fn take(&mut self, number: u64) -> Option<RemovableKeys> {
        let keys = std::mem::take(&mut self.ripe);
        // Those that went are not come by any more.
        if self.since.len() >= MOST {
            self.since.clear();
        }
        (!keys.is_empty()).then_some(RemovableKeys { number, keys })
    }
}
