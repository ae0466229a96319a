//! Keys that were deleted and stay so: their items may go.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::KeyHash;

use super::{Item, repair::chain_of};
use crate::{record::KeyRecord, report::Removable, view::View};

/// A key is removed this long after its delete was first seen.
const AFTER_NS: u64 = 60_000_000_000;
/// Keys that are followed.
const MOST: usize = 4096;
/// Keys in one report.
const REPORTED: usize = 128;

/// Deleted keys of which this switch is the tail.
#[derive(Debug, Default)]
pub struct Removed {
    /// The delete's version, and since when it is the last.
    since: BTreeMap<KeyHash, (u64, u64)>,
    ripe: Vec<(Bytes, u64)>,
}

impl Removed {
    /// An item was come by.
    pub(super) fn item(&mut self, view: &View, own: u8, now_ns: u64, item: &Item<'_>) {
        let record = KeyRecord::decode(item.record);
        let chain = chain_of(view, item);
        let Some((record, chain)) = record.zip(chain) else {
            return;
        };
        let is_delete = record
            .version(record.last)
            .is_some_and(|v| v.value.is_none());
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
            self.ripe
                .push((Bytes::copy_from_slice(item.key), record.last));
        }
    }

    /// All items were gone through: what may go, if there is something.
    pub fn take(&mut self, number: u64) -> Option<Removable> {
        let keys = std::mem::take(&mut self.ripe);
        // Those that went are not come by any more.
        if self.since.len() >= MOST {
            self.since.clear();
        }
        (!keys.is_empty()).then_some(Removable { number, keys })
    }
}
