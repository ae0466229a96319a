//! Items of keys that were deleted long ago go again: at the head first, which then takes no write
//! of the key; so what the others have stays as it is until it goes. No version of the key that
//! comes after has a number that one before had: the floor is remembered first.

use std::collections::BTreeMap;

use bytes::Bytes;
use decide::{Action, Change, Key, Outcome, SwitchId};

use super::{items, tenant::Tenant};
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
pub(crate) struct Removals {
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
}

impl Tenant {
    /// A tail says which keys may go. None does while members come and go.
    pub(super) fn may_remove(&mut self, by: SwitchId, of: RemovableKeys, out: &mut Vec<Action>) {
        let is_quiet = self.is_confirmed() && self.join.is_none() && self.knows_all();
        if of.number != self.memory.number || !is_quiet {
            return;
        }
        let floor = self.memory.floor;
        for (key, last) in of.keys {
            let members = self.chain_with(&key).map(|chain| self.members_of(chain));
            let members = members.filter(|members| members.last() == Some(&by));
            let (Some(from), false) = (members, items::is_session(&key)) else {
                continue;
            };
            let is_busy = self.items.is_making(&key) || self.removals.has(&key);
            if is_busy || self.removals.all.len() >= MOST {
                continue;
            }
            self.memory.floor = self.memory.floor.max(last);
            let removing = Removal { last, from, began: false, asked: false };
            self.removals.all.insert(key, removing);
        }
        if self.memory.floor != floor {
            self.remember(out);
        }
        self.go_on_removing(out);
    }

    /// The view is another: whatever was not removed everywhere is looked at when somebody wants
    /// the key.
    pub(super) fn stop_removing(&mut self) {
        self.removals.all.clear();
    }

    /// Asks for what is next of each key.
    pub(super) fn go_on_removing(&mut self, out: &mut Vec<Action>) {
        let tenant = self.id;
        for (key, removing) in &mut self.removals.all {
            let Some(switch) = removing.from.first().copied() else {
                continue;
            };
            if std::mem::replace(&mut removing.asked, true) {
                continue;
            }
            // The head's must be committed; then so is everybody's, and nothing comes after it.
            let last = removing.last.to_ne_bytes();
            let begins = match removing.began {
                true => last.to_vec(),
                false => [last, last].concat(),
            };
            out.push(Action::Change {
                switch,
                tenant,
                key: key.clone(),
                change: Change::RemoveIf(Bytes::from(begins)),
            });
        }
    }

    /// A member's item is gone, or is not as it was.
    pub(super) fn removal_answered(&mut self, switch: SwitchId, key: &Key, outcome: Outcome) {
        let Some(removing) = self.removals.all.get_mut(key) else {
            return;
        };
        if removing.from.first() != Some(&switch) {
            return;
        }
        removing.asked = false;
        // There is room again.
        self.full &= outcome != Outcome::Done;
        match outcome {
            Outcome::NotSent => {}
            Outcome::Done if removing.from.len() > 1 => {
                removing.from.remove(0);
                removing.began = true;
            }
            _ => drop(self.removals.all.remove(key)),
        }
    }
}
