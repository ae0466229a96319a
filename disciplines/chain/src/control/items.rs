//! Items of keys and sessions: every member of the key's chain has one, the head the last of all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use chain_wire::session_key;
use decide::{Action, Change, Key, Outcome, Record, SwitchId};
use wire::OWN_KEYS;

use super::tenant::Tenant;
use crate::record::{SessionRecord, new_key};

/// Keys that are being made at a time; more are asked for again.
const MOST: usize = 4096;
/// A key that could not be made is left alone for this time.
const PAUSE: Duration = Duration::from_secs(1);
/// How much of an untouched record is compared before it goes: its last version, the committed one,
/// and its base.
const UNTOUCHED: usize = 24;

/// A key whose items are being made.
#[derive(Debug)]
struct Creation {
    /// Its versions begin above it, at every member.
    base: u64,
    /// Where it was asked for.
    asked: BTreeSet<SwitchId>,
    /// It was found to be nowhere, or everywhere but where it has just been asked for.
    began: bool,
    /// It cannot be had: what was made goes again.
    failed: bool,
}

/// All keys whose items are being made.
#[derive(Debug, Default)]
pub(crate) struct Items {
    making: BTreeMap<Key, Creation>,
    paused: BTreeMap<Key, Duration>,
    /// Keys to be looked at; all of them if the view or what switches hold is another.
    due: BTreeSet<Key>,
    all_due: bool,
}

impl Items {
    /// Whether a key is being made.
    pub fn is_making(&self, key: &Key) -> bool {
        self.making.contains_key(key)
    }

    /// All keys that are being made.
    pub fn being_made(&self) -> impl Iterator<Item = &Key> {
        self.making.keys()
    }

    /// These users' keys are not to be made any longer.
    pub fn give_up(&mut self, goes: impl Fn(&Key) -> bool) {
        self.making.retain(|key, _| is_session(key) || !goes(key));
    }

    /// The view is another, or what switches have.
    pub fn look_at_all(&mut self) {
        self.all_due = true;
    }
}

/// Whether it is a session's key.
pub(crate) fn is_session(key: &[u8]) -> bool {
    session_of(key).is_some()
}

fn session_of(key: &[u8]) -> Option<u64> {
    let client = u64::from_be_bytes(*key.get(2..)?.first_chunk()?);
    (key == session_key(client)).then_some(client)
}

/// What a new item begins with. `numbers`: of the view, and what it is filled under.
pub(crate) fn record(key: &[u8], base: u64, numbers: (u64, u64), shift: u8) -> Record {
    let (number, filled) = numbers;
    let bytes = match session_of(key) {
        Some(client) => Some(SessionRecord::new(client, number, filled).encode()),
        None => new_key(base, filled, shift),
    };
    Record::Given(bytes.unwrap_or_default())
}

impl Tenant {
    /// Switches were asked for keys that they have no item of.
    pub(super) fn wants(&mut self, now: Duration, keys: &[(Key, u64)]) {
        self.items.paused.retain(|_, until| *until > now);
        for (key, _) in keys {
            let is_users = key.first() != Some(&OWN_KEYS);
            let may_be = is_users || is_session(key);
            let is_known =
                self.items.making.contains_key(key) || self.items.paused.contains_key(key);
            let is_known =
                is_known || self.removals.has(key) || !is_users && self.forgetting.has(key);
            if !may_be || is_known || self.full || self.items.making.len() >= MOST {
                continue;
            }
            let making = Creation {
                base: self.memory.floor,
                asked: BTreeSet::new(),
                began: false,
                failed: false,
            };
            if !is_users {
                self.forgetting.made();
            }
            self.items.making.insert(key.clone(), making);
            self.items.due.insert(key.clone());
        }
    }

    /// A change of an item was answered.
    pub(super) fn answered(
        &mut self,
        now: Duration,
        switch: SwitchId,
        key: &Key,
        change: &Change,
        outcome: Outcome,
    ) {
        if let Some(held) = self.held.get_mut(&switch)
            && outcome == Outcome::Done
        {
            match change {
                Change::Put(_) => held.insert(key.clone()),
                Change::Remove | Change::RemoveIf(_) => held.remove(key),
            };
        }
        if self.forget_answered(switch, key, (change, outcome)) {
            return;
        }
        self.join_answered(now, switch, key, outcome);
        self.restore_answered(switch, key, (change, outcome));
        if matches!(change, Change::RemoveIf(_)) {
            self.removal_answered(switch, key, outcome);
        }
        let Some(making) = self.items.making.get_mut(key) else {
            return;
        };
        making.asked.remove(&switch);
        let is_put = matches!(change, Change::Put(_));
        match outcome {
            Outcome::Done | Outcome::NotSent => {}
            Outcome::NoRoom if is_put => (making.failed, self.full) = (true, true),
            _ => making.failed = true,
        }
        self.items.due.insert(key.clone());
    }

    /// Goes on with the keys that are being made, while every member has the view.
    pub(super) fn go_on_with_items(&mut self, now: Duration, out: &mut Vec<Action>) {
        if !self.is_confirmed() || !self.knows_all() {
            return;
        }
        let all = std::mem::take(&mut self.items.all_due);
        let mut due = std::mem::take(&mut self.items.due);
        if all {
            due = self.items.making.keys().cloned().collect();
        }
        for key in due {
            if let Some(making) = self.items.making.remove(&key)
                && let Some(making) = self.make(now, &key, making, out)
            {
                self.items.making.insert(key, making);
            }
        }
    }

    /// The members that are to have an item of a key, the head last; and who is the head, for a
    /// user's key.
    fn places(&self, key: &[u8]) -> (Vec<SwitchId>, Option<SwitchId>) {
        let chain = match is_session(key) {
            true => None,
            false => self.chain_with(key),
        };
        let (mut places, head) = match chain {
            None => (self.members(), None),
            Some(chain) => {
                let mut members = self.members_of(chain);
                members.reverse();
                let head = members.last().copied();
                (members, head)
            }
        };
        let join = self.join.as_ref().filter(|join| join.takes_items(chain));
        let joins = join.map(|join| join.switch);
        let is_new = |switch: &SwitchId| !places.contains(switch);
        if let Some(switch) = joins.filter(is_new) {
            places.insert(0, switch);
        }
        (places, head)
    }

    /// A key whose head has no item, while another member has one that this half did not make: an
    /// earlier controller's work was left half done, or the head lost it. The head leaves, and is
    /// filled again.
    fn is_torn(&mut self, key: &Key) -> bool {
        if is_session(key) {
            return false;
        }
        let members = match self.chain_with(key) {
            Some(chain) => self.members_of(chain),
            None => return false,
        };
        let Some((head, others)) = members.split_first() else {
            return false;
        };
        let torn = !self.has(*head, key) && others.iter().any(|other| self.has(*other, key));
        if torn {
            self.lost.insert(*head);
        }
        torn
    }

    fn has(&self, switch: SwitchId, key: &Key) -> bool {
        self.held.get(&switch).is_some_and(|held| held.contains(key))
    }

    /// Asks for what is next of a key; none: it is there, or gone again.
    fn make(
        &mut self,
        now: Duration,
        key: &Key,
        mut making: Creation,
        out: &mut Vec<Action>,
    ) -> Option<Creation> {
        if !making.began && self.is_torn(key) {
            return None;
        }
        making.began = true;
        let (places, head) = self.places(key);
        if making.failed {
            return self.unmake(now, key, making, &places, out);
        }
        let head_has = head.is_some_and(|head| self.has(head, key));
        let lacks = |switch: &SwitchId| !self.has(*switch, key);
        let others: Vec<SwitchId> = places
            .iter()
            .copied()
            .filter(|switch| Some(*switch) != head && lacks(switch))
            .collect();
        let next = match (others.is_empty(), head) {
            (true, Some(head)) if !head_has => vec![head],
            (true, _) => return None,
            _ => others,
        };
        for switch in next {
            if !making.asked.insert(switch) {
                continue;
            }
            // Who joins has nothing until it was copied, of a new key too: nobody else may know
            // that it is one.
            let join = self.join.as_ref();
            let joins = join.is_some_and(|join| join.switch == switch);
            let filled = if joins { 0 } else { self.memory.number };
            let record = record(key, making.base, (self.memory.number, filled), self.shift());
            out.push(Action::Change {
                switch,
                tenant: self.id,
                key: key.clone(),
                change: Change::Put(record),
            });
        }
        Some(making)
    }

    /// Removes what was made of a key whose head has no item: so it was never written.
    fn unmake(
        &mut self,
        now: Duration,
        key: &Key,
        mut making: Creation,
        places: &[SwitchId],
        out: &mut Vec<Action>,
    ) -> Option<Creation> {
        let there: Vec<SwitchId> =
            places.iter().copied().filter(|switch| self.has(*switch, key)).collect();
        let waits = !making.asked.is_empty();
        if there.is_empty() && !waits {
            self.items.paused.insert(key.clone(), now + PAUSE);
            return None;
        }
        let is_users = !is_session(key);
        for switch in there {
            if making.asked.insert(switch) {
                let change = match is_users {
                    true => Change::RemoveIf(untouched(making.base)),
                    false => Change::Remove,
                };
                out.push(Action::Change { switch, tenant: self.id, key: key.clone(), change });
            }
        }
        Some(making)
    }
}

/// How the record of a key begins that was never written.
fn untouched(base: u64) -> Bytes {
    let record = new_key(base, 0, 0).unwrap_or_default();
    record.slice(..UNTOUCHED.min(record.len()))
}
