//! Tells the control half what is committed of each key whose chain has this switch as the last
//! member that has everything.

use std::collections::BTreeMap;

use bytes::Bytes;
use decide::MESSAGE_MAX;
use wire::KeyHash;

use super::{Item, repair::chain_of};
use crate::{
    record::KeyRecord,
    snapshot::{ENTRY, Part, Save, SavedVersion},
    view::View,
};

/// Bytes of keys and values in one report; another one has room.
const PART_BYTES: usize = MESSAGE_MAX - (4 << 10);

/// What is told to the control half, and what was.
#[derive(Debug, Default)]
pub struct SnapshotSender {
    /// Asked for; it begins when the items are gone through from the first.
    asked: Option<Save>,
    round: Option<Round>,
    /// What was told before, of keys that there are.
    told: BTreeMap<KeyHash, u64>,
}

/// A round of telling that is under way.
#[derive(Debug)]
struct Round {
    part: Part,
    bytes: usize,
    told: BTreeMap<KeyHash, u64>,
    full: Vec<Part>,
}

impl SnapshotSender {
    /// The control half asks.
    pub fn ask(&mut self, save: Save) {
        self.asked = Some(save);
    }

    /// Items are gone through from the first.
    pub fn begins(&mut self) {
        if let Some(save) = self.asked.take() {
            if save.all {
                self.told.clear();
            }
            self.round = Some(Round {
                part: Part { round: save.round, nth: 0, is_last: false, keys: vec![] },
                bytes: 0,
                told: BTreeMap::new(),
                full: vec![],
            });
        }
    }

    /// An item was come by.
    pub(super) fn item(&mut self, view: &View, own: u8, item: &Item<'_>) {
        let Some(round) = &mut self.round else { return };
        let record = item.record.and_then(KeyRecord::decode);
        let Some((record, chain)) = record.zip(chain_of(view, item)) else { return };
        let full = chain.slots.len() - usize::from(chain.filling);
        let is_last = full > 0 && chain.slots[full - 1] == own;
        let Some(version) = record.version(record.clean).filter(|_| is_last) else { return };
        round.told.insert(item.hash, version.seq);
        if self.told.get(&item.hash) == Some(&version.seq) {
            return;
        }
        let value = version.value.clone();
        let length = ENTRY + item.key.len() + value.as_ref().map_or(0, Bytes::len);
        if round.bytes + length > PART_BYTES {
            round.end_part();
        }
        round.bytes += length;
        let saved = SavedVersion { seq: version.seq, value };
        let key = Bytes::copy_from_slice(item.key);
        round.part.keys.push((key, saved));
    }

    /// Items were gone through, to the end or not: what is to be reported.
    pub fn walked(&mut self, is_end: bool) -> Vec<Part> {
        let Some(mut round) = self.round.take() else { return vec![] };
        let mut parts = std::mem::take(&mut round.full);
        if is_end {
            round.part.is_last = true;
            parts.push(round.part);
            self.told = round.told;
        } else {
            self.round = Some(round);
        }
        parts
    }
}

impl Round {
    fn end_part(&mut self) {
        let next = Part { nth: self.part.nth + 1, keys: vec![], ..self.part };
        self.full.push(std::mem::replace(&mut self.part, next));
        self.bytes = 0;
    }
}
