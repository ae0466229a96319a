//! Copies and replicas beside each other, event by event: who gets what, and that a key has never
//! both.

use std::collections::BTreeSet;

use decide::{Change, Key, Outcome, Record, Settings};
use wire::Secret;

use super::*;
use crate::{
    servers::{HITS, LOADS, WRITES},
    settings,
};

const SWITCH: SwitchId = 3;
const TENANT: u32 = 7;
const STORES: usize = 4;

/// What a switch has of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Copy,
    Replicas,
}

/// A switch that does what it is asked at once, and drops copies of the keys that it cannot have.
struct Rig {
    control: Box<dyn Discipline>,
    now: Duration,
    items: BTreeMap<Key, Item>,
    unfit: BTreeSet<Key>,
    /// Copies that answer only a tenth of their reads.
    empty: BTreeSet<Key>,
    changes: usize,
}

impl Rig {
    fn new(copies: u32) -> Rig {
        let all = settings::ALL.iter().enumerate();
        let usual = all.fold(Settings::default(), |s, (at, of)| s.with(at, of.usual));
        let mut rig = Rig {
            control: controller(Limits {
                settings: usual.with(settings::COPIES, copies),
                ..Limits::default()
            }),
            now: Duration::ZERO,
            items: BTreeMap::new(),
            unfit: BTreeSet::new(),
            empty: BTreeSet::new(),
            changes: 0,
        };
        let addresses: Vec<_> = (1..=STORES as u8).map(|n| ([10, 0, 0, n], 7117).into()).collect();
        let homes = (0..STORES as u16).collect();
        let stores = Stores::new(addresses.clone(), TENANT, Secret([7; 16]), homes);
        rig.tell(|to, now, out| to.stores(now, TENANT, &stores, out));
        let room = Room { switch: SWITCH, pages: 8, lent: 0, parameters: None };
        rig.tell(|to, now, out| to.room(now, TENANT, &[room], out));
        rig.tell(|to, now, out| to.attached(now, SWITCH, out));
        let inventory = Inventory { switch: SWITCH, tenant: TENANT, held: &[], lost: &[] };
        rig.tell(|to, now, out| to.holds(now, inventory, out));
        for store in addresses {
            rig.tell(|to, now, out| to.store_attached(now, store, out));
        }
        rig
    }

    fn tell(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = vec![];
        event(&mut *self.control, self.now, &mut out);
        for action in out {
            if let Action::Change { key, change, .. } = action {
                self.change(&key, &change);
            }
        }
    }

    fn change(&mut self, key: &Key, change: &Change) {
        self.changes += 1;
        let before = self.items.remove(key);
        let item = match change {
            Change::Put(Record::Fetched) => Some(Item::Copy),
            Change::Put(Record::Given(_)) => Some(Item::Replicas),
            Change::Remove | Change::RemoveIf(_) => None,
        };
        let is_copied = before == Some(Item::Replicas) && item == Some(Item::Copy);
        assert!(!is_copied, "its stores would not know");
        self.items.extend(item.map(|item| (key.clone(), item)));
        let answer = Answer { switch: SWITCH, tenant: TENANT, key, change, outcome: Outcome::Done };
        self.tell(|to, now, out| to.answered(now, answer, out));
        if item == Some(Item::Copy) && self.unfit.contains(key) {
            self.items.remove(key);
            let eviction = Eviction {
                switch: SWITCH,
                tenant: TENANT,
                keys: std::slice::from_ref(key),
                unfit: true,
            };
            self.tell(|to, now, out| to.dropped(now, eviction, out));
        }
    }

    /// Windows with these requests, of which so many in a hundred write.
    fn windows(&mut self, count: usize, keys: &[(Key, u64)], writes: u64) {
        for _ in 0..count {
            self.now += Duration::from_secs(1);
            let (here, missed): (Vec<_>, Vec<_>) =
                keys.iter().cloned().partition(|(key, _)| self.items.contains_key(key));
            let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: 1, keys: &missed };
            self.tell(|to, now, out| to.hot(now, hot, out));
            let copies = here.iter().filter(|(key, _)| self.items.get(key) == Some(&Item::Copy));
            let empty = copies.filter(|(key, _)| self.empty.contains(key));
            let unanswered: Vec<_> = empty.map(|(key, n)| (key.clone(), n * 9 / 10)).collect();
            let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: 1, keys: &unanswered };
            self.tell(|to, now, out| to.hot(now, hot, out));
            let mut tallies = [0; decide::TALLIES];
            for (key, requests) in keys {
                let written = requests * writes / 100;
                let is_copy = self.items.get(key) == Some(&Item::Copy);
                let sent = if is_copy { written } else { *requests } / STORES as u64;
                tallies[WRITES] += written;
                tallies[HITS] += if is_copy { requests - written } else { 0 };
                let places = tallies[LOADS..].iter_mut().take(STORES);
                places.for_each(|place| *place += sent | (sent << 32));
            }
            // What nobody keeps.
            let cold = tallies[LOADS..].iter_mut().take(STORES);
            cold.for_each(|place| *place += 500 | (500 << 32));
            let end = WindowEnd {
                switch: SWITCH,
                tenant: TENANT,
                window: 1,
                items: &here,
                tallies: &tallies,
            };
            self.tell(|to, now, out| to.window_end(now, end, out));
            self.tell(|to, now, out| to.tick(now, out));
        }
    }

    fn item(&self, n: usize) -> Option<Item> {
        self.items.get(&key(n)).copied()
    }
}

fn key(n: usize) -> Key {
    Key::from(format!("key {n}"))
}

/// Some hot keys.
fn load() -> Vec<(Key, u64)> {
    let loads = [8000, 6000, 4000, 300];
    loads.into_iter().enumerate().map(|(n, l)| (key(n), l)).collect()
}

#[test]
fn what_fits_is_a_copy_and_what_does_not_has_replicas() {
    let mut rig = Rig::new(1);
    rig.unfit.insert(key(1));
    rig.windows(4, &load(), 5);
    assert_eq!(rig.item(0), Some(Item::Copy));
    assert_eq!(rig.item(1), Some(Item::Replicas));
    assert_eq!(rig.item(3), Some(Item::Copy));
    let changes = rig.changes;
    rig.windows(20, &load(), 5);
    assert_eq!((rig.changes, rig.items.len()), (changes, 4), "it settles");
}

#[test]
fn a_copy_that_is_empty_most_of_the_time_has_replicas_at_once() {
    let mut rig = Rig::new(1);
    rig.windows(4, &load(), 5);
    assert_eq!(rig.item(0), Some(Item::Copy));
    rig.empty.insert(key(0));
    for _ in 0..4 {
        rig.windows(1, &load(), 5);
        assert!(rig.item(0).is_some(), "never neither");
    }
    assert_eq!(rig.item(0), Some(Item::Replicas));
    let changes = rig.changes;
    rig.windows(20, &load(), 5);
    assert_eq!((rig.changes, rig.items.len()), (changes, 4), "it settles");
}

#[test]
fn a_key_that_fits_again_changes_sides() {
    let mut rig = Rig::new(1);
    rig.unfit.insert(key(1));
    rig.windows(4, &load(), 0);
    assert_eq!(rig.item(1), Some(Item::Replicas));
    rig.unfit.clear();
    rig.now += Duration::from_secs(700);
    rig.windows(3, &load(), 0);
    assert_eq!(rig.item(1), Some(Item::Copy));
}

#[test]
fn as_in_the_paper_there_are_no_copies() {
    let mut rig = Rig::new(0);
    rig.windows(4, &load(), 5);
    assert_eq!(rig.item(0), Some(Item::Replicas));
    assert!(!rig.items.values().any(|item| *item == Item::Copy));
}

#[test]
fn where_most_requests_write_there_is_neither() {
    let mut rig = Rig::new(1);
    rig.windows(4, &load(), 5);
    rig.windows(20, &load(), 80);
    assert_eq!(rig.items, BTreeMap::new());
}
