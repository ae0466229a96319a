//! Changes of items: asked for, answered, and what stores hear of them.

use std::time::Duration;

use decide::{Action, Change, Key, Outcome, Record, Stores};

use super::{Side, server_at};
use crate::{
    control::{
        holdings::Holdings,
        situation::{Places, Turns},
        table::turns_of,
    },
    record::Replicas,
};

/// The time for which a key is left alone that cannot be at the switch, and the short time if it
/// only found no room.
const PAUSE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_secs(1);

/// A change that the switch has not answered.
#[derive(Debug)]
pub(super) struct PendingChange {
    change: Change,
    /// Where the key was before.
    before: Places,
    turns: Turns,
    /// Whether its stores are to be told all anew.
    anew: bool,
    /// Whether an inherited item was there before.
    pub(super) inherited: bool,
}

impl Side {
    pub(super) fn put(
        &mut self,
        key: &Key,
        servers: Places,
        anew: bool,
        stores: &Stores,
        there: &[bool],
        out: &mut Vec<Action>,
    ) {
        let before = self.table.servers(key).cloned().unwrap_or_default();
        let was_there = |at: &usize| !anew && before.contains(at);
        let valid: Vec<usize> = servers.iter().copied().filter(was_there).collect();
        let turns = turns_of(&servers, &|at| self.weight(at));
        let Some(record) = self.record(key, &servers, &turns, &valid, stores, there) else {
            return;
        };
        self.counts.puts += 1;
        let turns_before = self.table.turns(key);
        self.table.set(key, servers);
        self.table.set_turns(key, turns);
        if let Some(home) = self.ring.home(key, stores, there) {
            self.table.set_home(key, home);
        }
        let change = Change::Put(Record::Given(record));
        let asked = PendingChange { change, before, turns: turns_before, anew, inherited: false };
        self.ask(key, asked, out);
    }

    pub(super) fn remove(&mut self, key: &Key, out: &mut Vec<Action>) {
        self.counts.removes += 1;
        let before = self.table.servers(key).cloned().unwrap_or_default();
        let turns = self.table.turns(key);
        self.table.set(key, vec![]);
        let change = Change::Remove;
        self.ask(key, PendingChange { change, before, turns, anew: false, inherited: false }, out);
    }

    fn ask(&mut self, key: &Key, mut asked: PendingChange, out: &mut Vec<Action>) {
        asked.inherited = self.inherited.remove(key);
        self.send(key.clone(), asked.change.clone(), out);
        self.asked.insert(key.clone(), asked);
    }

    pub(super) fn send(&self, key: Key, change: Change, out: &mut Vec<Action>) {
        out.push(Action::Change { switch: self.switch, tenant: self.tenant, key, change });
    }

    /// A change was answered: stores hear of it now. An answer to another change than the one that
    /// is under way says nothing of that.
    pub fn answered(
        &mut self,
        now: Duration,
        key: &Key,
        change: &Change,
        outcome: Outcome,
        stores: &Stores,
        holds: &mut Holdings,
    ) {
        if self.copies.answered(now, key, change, outcome) {
            return self.copy_answered(key, outcome);
        }
        let is_its = |asked: &PendingChange| asked.change == *change;
        if !self.asked.get(key).is_some_and(is_its) {
            return;
        }
        let Some(asked) = self.asked.remove(key) else { return };
        let servers = self.table.servers(key).cloned().unwrap_or_default();
        if outcome != Outcome::Done {
            return self.failed(now, key, outcome, asked, stores, holds);
        }
        if *change == Change::Remove {
            self.inherited.remove(key);
        }
        let home = stores.home_of(key);
        let store = |at: &usize| stores.addresses().get(*at).copied();
        let gone = asked.before.iter().filter(|at| **at != home && !servers.contains(at));
        for store in gone.filter_map(store) {
            holds.release(self.tenant, store, key);
        }
        for at in servers.iter().filter(|at| **at != home) {
            let Some(store) = store(at) else { continue };
            if !asked.before.contains(at) {
                holds.hold(self.tenant, store, key);
            } else if asked.anew {
                holds.again(self.tenant, store, key);
            }
        }
    }

    /// Nothing else stands there any more, unless the switch was not even asked.
    fn copy_answered(&mut self, key: &Key, outcome: Outcome) {
        if outcome != Outcome::NotSent {
            self.inherited.remove(key);
        }
        match outcome {
            Outcome::NoRoom => {
                self.counts.no_room += 1;
                self.capacity.no_room(self.items());
            }
            Outcome::NotSent => self.counts.not_sent += 1,
            _ => {}
        }
    }

    fn failed(
        &mut self,
        now: Duration,
        key: &Key,
        outcome: Outcome,
        asked: PendingChange,
        stores: &Stores,
        holds: &mut Holdings,
    ) {
        let pause = match outcome {
            Outcome::NotSent => {
                self.counts.not_sent += 1;
                SHORT
            }
            Outcome::NoRoom => {
                self.counts.no_room += 1;
                self.capacity.no_room(self.items().saturating_sub(1));
                SHORT
            }
            _ => PAUSE,
        };
        // What was redirected and is no longer is worth another try at once.
        if outcome != Outcome::NoRoom || asked.before.is_empty() {
            self.paused.insert(key.clone(), now + pause);
        }
        if outcome == Outcome::NotSent {
            if asked.anew {
                self.missing.insert(key.clone());
            }
            if asked.inherited {
                self.inherited.insert(key.clone());
            }
            self.table.set(key, asked.before);
            return self.table.set_turns(key, asked.turns);
        }
        self.table.set(key, asked.before);
        self.drop_key(key, stores, holds);
    }

    /// The switch gave items up; `unfit`: it cannot have copies of them.
    pub fn dropped(
        &mut self,
        now: Duration,
        keys: &[Key],
        unfit: bool,
        stores: &Stores,
        holds: &mut Holdings,
    ) {
        for key in keys {
            if self.copies.dropped(now, key, unfit) {
                self.counts.dropped += 1;
                continue;
            }
            // Its answer says more.
            if self.asked.contains_key(key) {
                continue;
            }
            self.counts.dropped += 1;
            self.paused.insert(key.clone(), now + SHORT);
            self.inherited.remove(key);
            self.drop_key(key, stores, holds);
        }
    }

    /// A key stands nowhere any more.
    pub(super) fn drop_key(&mut self, key: &Key, stores: &Stores, holds: &mut Holdings) {
        let servers = match self.asked.get_mut(key) {
            Some(asked) => std::mem::take(&mut asked.before),
            None => self.table.servers(key).cloned().unwrap_or_default(),
        };
        let home = stores.home_of(key);
        let others = servers.iter().filter(|at| **at != home);
        for store in others.filter_map(|at| stores.addresses().get(*at)) {
            holds.release(self.tenant, *store, key);
        }
        self.table.set(key, vec![]);
        self.missing.remove(key);
    }

    /// The record of a key that is at these servers, with so many turns each; what `valid` are has
    /// confirmed it, as far as we know.
    fn record(
        &self,
        key: &Key,
        servers: &[usize],
        turns: &[usize],
        valid: &[usize],
        stores: &Stores,
        there: &[bool],
    ) -> Option<bytes::Bytes> {
        let at = self.ring.home(key, stores, there)?;
        let home = server_at(&self.ring, stores, at);
        let again = servers.iter().zip(turns).flat_map(|(at, turns)| {
            let holder = stores.node(*at);
            std::iter::repeat_n(holder, turns - usize::from(holder != home.holder))
        });
        let others = servers.iter().filter(|other| **other != at);
        let record = Replicas {
            home,
            is_entry: at != stores.home_of(key),
            replicas: others.map(|at| server_at(&self.ring, stores, *at)).collect(),
            again: again.collect(),
            valid: valid.iter().map(|at| stores.node(*at)).collect(),
        };
        record.encode()
    }
}
