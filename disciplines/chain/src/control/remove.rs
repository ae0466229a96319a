//! Items of keys that were deleted long ago go again: at the head first, which then takes no write
//! of the key; so what the others have stays as it is until it goes. No version of the key that
//! comes after has a number that one before had: the floor is remembered first.

use std::collections::BTreeMap;

use bytes::Bytes;
use decide::{Answer, Change, Key, Outcome, SwitchId};

use super::{context::Context, item, items::Items};
use crate::report::RemovableKeys;

/// Keys that are being removed at a time.
const MOST: usize = 1024;

/// A key whose items are being removed.
#[derive(Debug)]
struct Removal {
    /// Its last version, a delete.
    last: u64,
    /// Where it is to go yet, the next one first.
    from: Vec<SwitchId>,
    /// It is gone at the head.
    began: bool,
    asked: bool,
}

/// All keys whose items are being removed.
#[derive(Debug, Default)]
pub(super) struct Removals {
    all: BTreeMap<Key, Removal>,
}

impl Removals {
    /// Whether no key is being removed.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a key is being removed.
    pub fn has(&self, key: &Key) -> bool {
        self.all.contains_key(key)
    }

    /// A tail says which keys may go. None does while members come and go. Those that are going
    /// now, each with its last version.
    pub fn begin(
        &mut self,
        cx: &mut Context<'_>,
        by: SwitchId,
        removable: RemovableKeys,
        items: &Items,
    ) -> Vec<(Key, u64)> {
        let mut going = vec![];
        if removable.number != cx.facts.memory.number || !cx.facts.knows_all() {
            return going;
        }
        let floor = cx.facts.memory.floor;
        for (key, last) in removable.keys {
            let members = cx.facts.chain_with(&key).map(|chain| cx.facts.members_of(chain));
            let members = members.filter(|members| members.last() == Some(&by));
            let (Some(from), false) = (members, item::is_session(&key)) else { continue };
            let is_busy = items.is_making(&key) || self.has(&key);
            if is_busy || self.all.len() >= MOST {
                continue;
            }
            cx.facts.memory.floor = cx.facts.memory.floor.max(last);
            going.push((key.clone(), last));
            self.all.insert(key, Removal { last, from, began: false, asked: false });
        }
        if cx.facts.memory.floor != floor {
            cx.remember();
        }
        self.go_on(cx);
        going
    }

    /// The view is another: whatever was not removed everywhere is looked at when somebody wants
    /// the key.
    pub fn stop(&mut self) {
        self.all.clear();
    }

    /// Asks for what is next of each key.
    pub fn go_on(&mut self, cx: &mut Context<'_>) {
        for (key, removal) in &mut self.all {
            let Some(switch) = removal.from.first().copied() else { continue };
            if std::mem::replace(&mut removal.asked, true) {
                continue;
            }
            // The head's must be committed; then so is everybody's, and nothing comes after it.
            let last = removal.last.to_ne_bytes();
            let begins = match removal.began {
                true => last.to_vec(),
                false => [last, last].concat(),
            };
            cx.ask(switch, key.clone(), Change::RemoveIf(Bytes::from(begins)));
        }
    }

    /// A member's item is gone, or is not as it was.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { switch, key, change: Change::RemoveIf(_), outcome, .. } = answer else {
            return;
        };
        let Some(removal) = self.all.get_mut(key) else { return };
        if removal.from.first() != Some(&switch) {
            return;
        }
        removal.asked = false;
        // There is room again.
        cx.facts.full &= outcome != Outcome::Done;
        match outcome {
            Outcome::NotSent => {}
            Outcome::Done if removal.from.len() > 1 => {
                removal.from.remove(0);
                removal.began = true;
            }
            _ => drop(self.all.remove(key)),
        }
    }
}
