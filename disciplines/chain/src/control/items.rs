//! Items of keys and sessions: every member of the key's chain has one, the head the last of all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use decide::{Answer, Change, Key, Outcome, SwitchId};
use wire::OWN_KEYS;

use super::{
    context::{Context, Facts},
    item,
    join::Join,
};

/// Keys that are being made at a time; more are asked for again.
const MOST: usize = 4096;
/// A key that could not be made is left alone for this time.
const PAUSE: Duration = Duration::from_secs(1);

/// A key whose items are being made.
#[derive(Debug)]
struct Creation {
    /// Its versions begin above it, at every member.
    base: u64,
    /// Changes that are on their way.
    asked: BTreeMap<SwitchId, Change>,
    /// Where it was put, with what the record began with.
    made: BTreeMap<SwitchId, Bytes>,
    /// It was found to be nowhere, or everywhere but where it has just been asked for.
    began: bool,
    /// It cannot be had: what was made goes again.
    failed: bool,
}

/// All keys whose items are being made.
#[derive(Debug, Default)]
pub(super) struct Items {
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
        self.making.retain(|key, _| item::is_session(key) || !goes(key));
    }

    /// The view is another, or what switches have.
    pub fn look_at_all(&mut self) {
        self.all_due = true;
    }

    /// Switches were asked for keys that they have no item of. Those that are about to go anyway
    /// are not made. Returns how many sessions are being made from now on.
    pub fn wants(
        &mut self,
        cx: &Context<'_>,
        keys: &[(Key, u64)],
        goes: impl Fn(&Key) -> bool,
    ) -> usize {
        self.paused.retain(|_, until| *until > cx.now);
        let mut sessions = 0;
        for (key, _) in keys {
            let is_users = key.first() != Some(&OWN_KEYS);
            let may_be = is_users || item::is_session(key);
            let is_known = self.is_making(key) || self.paused.contains_key(key) || goes(key);
            let is_known = is_known || cx.facts.crowded.has(key);
            if !may_be || is_known || cx.facts.full || self.making.len() >= MOST {
                continue;
            }
            sessions += usize::from(!is_users);
            self.making.insert(key.clone(), Creation::above(cx.facts.memory.floor));
            self.due.insert(key.clone());
        }
        sessions
    }

    /// A change of an item was answered.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { switch, key, change, outcome, .. } = answer;
        let Some(making) = self.making.get_mut(key) else { return };
        self.due.insert(key.clone());
        // Others ask for changes of the key, too: who joins is given all keys.
        if making.asked.get(&switch) != Some(change) {
            return;
        }
        making.asked.remove(&switch);
        match (change, outcome) {
            (_, Outcome::NotSent) => {}
            (Change::Put(record), Outcome::Done) => {
                making.made.insert(switch, item::beginning(key, record));
            }
            (Change::Put(_), Outcome::NoRoom) => (making.failed, cx.facts.full) = (true, true),
            (Change::Put(_), Outcome::BucketFull) => {
                making.failed = true;
                cx.facts.crowded.add(cx.now, key);
            }
            (Change::Put(_), _) => making.failed = true,
            // It is gone, or is used by now, and stays.
            _ => drop(making.made.remove(&switch)),
        }
    }

    /// Goes on with the keys that are being made, while every member has the view. Those of lost
    /// chains wait.
    pub fn go_on(&mut self, cx: &mut Context<'_>, join: Option<&Join>, lost: &[usize]) {
        if !cx.facts.is_confirmed() || !cx.facts.knows_all() {
            return;
        }
        let all = std::mem::take(&mut self.all_due);
        let mut due = std::mem::take(&mut self.due);
        if all {
            due = self.making.keys().cloned().collect();
        }
        for key in due {
            let is_user = !item::is_session(&key);
            if is_user && cx.facts.chain_with(&key).is_some_and(|chain| lost.contains(&chain)) {
                continue;
            }
            let making = self.making.remove(&key);
            let next = making.map(|making| making.go_on(cx, &key, join, lost));
            match next {
                Some(Next::Waits(making)) => drop(self.making.insert(key, making)),
                Some(Next::Failed) => drop(self.paused.insert(key, cx.now + PAUSE)),
                Some(Next::Over) | None => {}
            }
        }
    }
}

/// How it stands with a key after what is next was asked for.
enum Next {
    /// Something is on its way.
    Waits(Creation),
    /// It is there, or not this half's to make.
    Over,
    /// What was made is gone again.
    Failed,
}

impl Creation {
    fn above(base: u64) -> Creation {
        Creation {
            base,
            asked: BTreeMap::new(),
            made: BTreeMap::new(),
            began: false,
            failed: false,
        }
    }

    /// Asks for what is next.
    fn go_on(
        mut self,
        cx: &mut Context<'_>,
        key: &Key,
        join: Option<&Join>,
        lost: &[usize],
    ) -> Next {
        if !self.began
            && let Some(head) = torn_head(cx.facts, key)
        {
            cx.facts.lost.insert(head);
            return Next::Over;
        }
        self.began = true;
        if self.failed {
            return self.undo(cx, key);
        }
        let (places, head) = places(cx.facts, key, join, lost);
        let lacks = |switch: &SwitchId| !cx.facts.has(*switch, key);
        let is_other = |switch: &SwitchId| Some(*switch) != head;
        let others: Vec<SwitchId> = places.into_iter().filter(is_other).filter(lacks).collect();
        let next = match others.is_empty() {
            true => head.filter(lacks).into_iter().collect(),
            false => others,
        };
        if next.is_empty() {
            return Next::Over;
        }
        let number = cx.facts.memory.number;
        for switch in next {
            if self.asked.contains_key(&switch) {
                continue;
            }
            // Who joins has nothing until it was copied, of a new key too: nobody else may know
            // that it is one.
            let joins = join.is_some_and(|join| join.switch == switch);
            let filled = if joins { 0 } else { number };
            let record = item::record(key, self.base, (number, filled), cx.facts.shift());
            self.ask(cx, switch, key, Change::Put(record));
        }
        Next::Waits(self)
    }

    /// Removes what was put here, where nobody has used it since. What was there before stays.
    fn undo(mut self, cx: &mut Context<'_>, key: &Key) -> Next {
        self.made.retain(|switch, _| cx.facts.has(*switch, key));
        if self.made.is_empty() && self.asked.is_empty() {
            return Next::Failed;
        }
        for (switch, begins) in self.made.clone() {
            if !self.asked.contains_key(&switch) {
                self.ask(cx, switch, key, Change::RemoveIf(begins));
            }
        }
        Next::Waits(self)
    }

    fn ask(&mut self, cx: &mut Context<'_>, switch: SwitchId, key: &Key, change: Change) {
        self.asked.insert(switch, change.clone());
        cx.ask(switch, key.clone(), change);
    }
}

/// The members that are to have an item of a key, the head last; and who is the head, for a
/// user's key. A session is at the members of all chains but those that are lost.
fn places(
    facts: &Facts,
    key: &[u8],
    join: Option<&Join>,
    lost: &[usize],
) -> (Vec<SwitchId>, Option<SwitchId>) {
    let chain = match item::is_session(key) {
        true => None,
        false => facts.chain_with(key),
    };
    let (mut places, head) = match chain {
        None => {
            let chains = (0..facts.chains().len()).filter(|chain| !lost.contains(chain));
            let all: BTreeSet<SwitchId> = chains.flat_map(|c| facts.members_of(c)).collect();
            (all.into_iter().collect(), None)
        }
        Some(chain) => {
            let mut members = facts.members_of(chain);
            members.reverse();
            let head = members.last().copied();
            (members, head)
        }
    };
    let joins = join.filter(|join| join.takes_items(chain)).map(|join| join.switch);
    let is_new = |switch: &SwitchId| !places.contains(switch);
    if let Some(switch) = joins.filter(is_new) {
        places.insert(0, switch);
    }
    (places, head)
}

/// The head of a key that has no item, while another member has one that this half did not make: an
/// earlier controller's work was left half done, or the head lost it. The head leaves, and is
/// filled again.
fn torn_head(facts: &Facts, key: &Key) -> Option<SwitchId> {
    if item::is_session(key) {
        return None;
    }
    let members = facts.members_of(facts.chain_with(key)?);
    let (head, others) = members.split_first()?;
    let torn = !facts.has(*head, key) && others.iter().any(|other| facts.has(*other, key));
    torn.then_some(*head)
}
