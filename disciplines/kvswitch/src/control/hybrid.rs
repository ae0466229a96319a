//! Copies and replicas beside each other, event by event: who gets what, and that a key has never
//! both.

use std::collections::BTreeSet;

use decide::{Key, Outcome, Record};

use super::{
    tests::{Rig, STORES, SWITCH, TENANT, limits},
    *,
};
use crate::{
    servers::{HITS, LOADS, WRITES},
    settings,
};

/// What a switch has of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Copy,
    Replicas,
}

/// Surroundings in which there may be copies, or not.
struct Hybrid {
    rig: Rig,
    /// Copies that answer only a tenth of their reads.
    empty: BTreeSet<Key>,
    /// Requests of a window at each server for keys that nobody keeps.
    cold: u64,
}

impl Hybrid {
    fn new(copies: u32) -> Hybrid {
        let settings = limits().settings.with(settings::COPIES, copies);
        Hybrid { rig: Rig::with(settings), empty: BTreeSet::new(), cold: 500 }
    }

    /// Windows with these requests, of which so many in a hundred write.
    fn windows(&mut self, count: usize, keys: &[(Key, u64)], writes: u64) {
        for _ in 0..count {
            self.rig.now += Duration::from_secs(1);
            let (here, missed): (Vec<_>, Vec<_>) =
                keys.iter().cloned().partition(|(key, _)| self.rig.items.contains_key(key));
            let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: 1, keys: &missed };
            self.rig.tell(|to, now, out| to.hot(now, hot, out));
            let copies =
                here.iter().filter(|(key, _)| self.rig.items.get(key) == Some(&Record::Fetched));
            let empty = copies.filter(|(key, _)| self.empty.contains(key));
            let unanswered: Vec<_> = empty.map(|(key, n)| (key.clone(), n * 9 / 10)).collect();
            let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: 1, keys: &unanswered };
            self.rig.tell(|to, now, out| to.hot(now, hot, out));
            let mut tallies = [0; decide::TALLIES];
            for (key, requests) in keys {
                let written = requests * writes / 100;
                let is_copy = self.rig.items.get(key) == Some(&Record::Fetched);
                let sent = if is_copy { written } else { *requests } / STORES as u64;
                tallies[WRITES] += written;
                tallies[HITS] += if is_copy { requests - written } else { 0 };
                let places = tallies[LOADS..].iter_mut().take(STORES);
                places.for_each(|place| *place += sent | (sent << 32));
            }
            let cold = tallies[LOADS..].iter_mut().take(STORES);
            cold.for_each(|place| *place += self.cold | (self.cold << 32));
            let end = WindowEnd {
                switch: SWITCH,
                tenant: TENANT,
                window: 1,
                items: &here,
                tallies: &tallies,
            };
            self.rig.tell(|to, now, out| to.window_end(now, end, out));
            self.rig.tell(|to, now, out| to.tick(now, out));
        }
    }

    fn item(&self, n: usize) -> Option<Item> {
        self.rig.items.get(&key(n)).map(|record| match record {
            Record::Fetched => Item::Copy,
            Record::Given(_) => Item::Replicas,
        })
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
    let mut at = Hybrid::new(1);
    at.rig.unfit.insert(key(1));
    at.windows(4, &load(), 5);
    assert_eq!(at.item(0), Some(Item::Copy));
    assert_eq!(at.item(1), Some(Item::Replicas));
    assert_eq!(at.item(3), Some(Item::Copy));
    let changes = at.rig.changes;
    at.windows(20, &load(), 5);
    assert_eq!((at.rig.changes, at.rig.items.len()), (changes, 4), "it settles");
}

#[test]
fn a_copy_that_is_empty_most_of_the_time_has_replicas_at_once() {
    let mut at = Hybrid::new(1);
    at.windows(4, &load(), 5);
    assert_eq!(at.item(0), Some(Item::Copy));
    at.empty.insert(key(0));
    for _ in 0..4 {
        at.windows(1, &load(), 5);
        assert!(at.item(0).is_some(), "never neither");
    }
    assert_eq!(at.item(0), Some(Item::Replicas));
    let changes = at.rig.changes;
    at.windows(20, &load(), 5);
    assert_eq!((at.rig.changes, at.rig.items.len()), (changes, 4), "it settles");
}

#[test]
fn a_key_that_fits_again_changes_sides() {
    let mut at = Hybrid::new(1);
    at.rig.unfit.insert(key(1));
    at.windows(4, &load(), 0);
    assert_eq!(at.item(1), Some(Item::Replicas));
    at.rig.unfit.clear();
    at.rig.now += Duration::from_secs(700);
    at.windows(3, &load(), 0);
    assert_eq!(at.item(1), Some(Item::Copy));
}

/// Not even sent, what was to become a copy is still what a leader before made of it.
#[test]
fn an_inherited_record_that_could_not_become_a_copy_goes_when_nobody_asks_for_it() {
    let mut at = Hybrid::new(0);
    at.windows(4, &load(), 5);
    assert_eq!(at.item(0), Some(Item::Replicas));
    at.rig.settings = limits().settings.with(settings::COPIES, 1);
    at.rig.lead();
    at.rig.outcome = Outcome::NotSent;
    at.windows(1, &load(), 5);
    at.windows(20, &load()[1..], 5);
    assert_eq!(at.item(0), Some(Item::Replicas));
    at.rig.outcome = Outcome::Done;
    at.rig.story.clear();
    at.windows(20, &load()[1..], 5);
    assert_eq!(at.item(0), None);
    assert!(at.rig.story.contains(&"end".into()));
}

#[test]
fn a_tenant_whose_requests_copies_answer_all_is_not_idle() {
    let mut at = Hybrid::new(1);
    at.windows(4, &load(), 0);
    at.cold = 0;
    for _ in 0..30 {
        at.windows(1, &load(), 0);
        assert_eq!(at.rig.wanted(), 4);
        assert!((0..4).all(|n| at.item(n) == Some(Item::Copy)));
    }
    // What is hot goes on being learnt.
    at.windows(4, &[(key(9), 8000)], 0);
    assert_eq!(at.item(9), Some(Item::Copy));
    at.windows(10, &[], 0);
    assert_eq!(at.rig.wanted(), 0, "nobody asks");
}

#[test]
fn as_in_the_paper_there_are_no_copies() {
    let mut at = Hybrid::new(0);
    at.windows(4, &load(), 5);
    assert_eq!(at.item(0), Some(Item::Replicas));
    assert!(!at.rig.items.values().any(|record| *record == Record::Fetched));
}

#[test]
fn where_most_requests_write_there_is_neither() {
    let mut at = Hybrid::new(1);
    at.windows(4, &load(), 5);
    at.windows(20, &load(), 80);
    assert_eq!(at.rig.items, BTreeMap::new());
}
