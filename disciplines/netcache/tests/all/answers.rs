//! What the controller makes of answers, drops and switches that come and go.

use std::{collections::HashMap, time::Duration};

use decide::{
    Action, Answer, Change, Discipline, Eviction, HotKeys, Inventory, Key, Limits, Outcome, Record,
    Room, WindowEnd,
};
use hot::testing::{key, number};
use proptest::prelude::*;

const SWITCH: u16 = 3;
const TENANT: u32 = 0;
const INSERT: Change = Change::Put(Record::Fetched);
const EVICT: Change = Change::Remove;

struct Rig {
    controller: Box<dyn Discipline>,
    now: Duration,
}

impl Rig {
    fn new(max_items: usize) -> Rig {
        let controller = netcache::controller(Limits { max_items, ..Limits::default() });
        let mut rig = Rig { controller, now: Duration::from_secs(1) };
        rig.room(64);
        rig.tell(|to, now, out| to.attached(now, SWITCH, out));
        rig.holds(&[], &[]);
        rig
    }

    /// The changes that a number of pages causes.
    fn room(&mut self, pages: u32) -> Vec<(Change, Key)> {
        let room = Room { switch: SWITCH, pages, lent: 0, parameters: None };
        self.tell(|to, now, out| to.room(now, TENANT, &[room], out))
    }

    /// The changes that what the switch has causes.
    fn holds(&mut self, held: &[Key], lost: &[Key]) -> Vec<(Change, Key)> {
        let inventory = Inventory { switch: SWITCH, tenant: TENANT, held, lost };
        self.tell(|to, now, out| to.holds(now, inventory, out))
    }

    /// The changes that an event causes.
    fn tell(
        &mut self,
        event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) -> Vec<(Change, Key)> {
        let mut out = Vec::new();
        event(&mut *self.controller, self.now, &mut out);
        out.into_iter()
            .filter_map(|action| match action {
                Action::Change { change, key, .. } => Some((change, key)),
                _ => None,
            })
            .collect()
    }

    fn report(&mut self, window: u64, keys: &[(u32, u64)]) -> Vec<(Change, Key)> {
        let keys: Vec<_> = keys.iter().map(|&(n, count)| (key(n), count)).collect();
        let hot = HotKeys { switch: SWITCH, tenant: TENANT, window, keys: &keys };
        self.tell(|to, now, out| to.hot(now, hot, out))
    }

    fn end(&mut self, window: u64, items: &[(u32, u64)]) -> Vec<(Change, Key)> {
        let items: Vec<_> = items.iter().map(|&(n, count)| (key(n), count)).collect();
        self.now += Duration::from_secs(1);
        let end = WindowEnd {
            switch: SWITCH,
            tenant: TENANT,
            window,
            items: &items,
            tallies: &[0; decide::TALLIES],
        };
        self.tell(|to, now, out| to.window_end(now, end, out))
    }

    fn answer(&mut self, change: Change, n: u32, outcome: Outcome) -> Vec<(Change, Key)> {
        self.answer_of(&key(n), &change, outcome)
    }

    fn answer_of(&mut self, key: &Key, change: &Change, outcome: Outcome) -> Vec<(Change, Key)> {
        let answer = Answer { switch: SWITCH, tenant: TENANT, key, change, outcome };
        self.tell(|to, now, out| to.answered(now, answer, out))
    }

    /// The switch gave the item of a key up.
    fn evict(&mut self, n: u32, unfit: bool) -> Vec<(Change, Key)> {
        let eviction = Eviction { switch: SWITCH, tenant: TENANT, keys: &[key(n)], unfit };
        self.tell(|to, now, out| to.dropped(now, eviction, out))
    }
}

#[test]
fn without_room_the_coldest_goes_and_the_key_is_tried_again() {
    let mut rig = Rig::new(10);
    assert_eq!(rig.report(1, &[(1, 2), (2, 50)]).len(), 2);
    rig.answer(INSERT, 1, Outcome::Done);
    assert_eq!(rig.answer(INSERT, 2, Outcome::NoRoom), [(EVICT, key(1))]);
    assert_eq!(rig.report(1, &[(2, 100)]), [], "paused");
    rig.answer(EVICT, 1, Outcome::Done);
    rig.end(1, &[]);
    assert_eq!(rig.report(2, &[(2, 90)]), [(INSERT, key(2))]);
}

#[test]
fn an_answer_from_before_pages_came_says_nothing_of_the_room_since() {
    let mut rig = Rig::new(10_000);
    rig.room(1);
    let hot: Vec<_> = (0..300).map(|n| (n, 9)).collect();
    assert_eq!(rig.report(1, &hot).len(), 300);
    rig.room(10);
    (0..128).for_each(|n| assert_eq!(rig.answer(INSERT, n, Outcome::Done), []));
    (128..300).for_each(|n| assert_eq!(rig.answer(INSERT, n, Outcome::NoRoom), []));
    let mut again: Vec<u32> = rig.report(1, &hot).iter().map(|(_, k)| number(k)).collect();
    again.sort_unstable();
    assert_eq!(again, (128..300).collect::<Vec<_>>());
}

#[test]
fn a_key_whose_bucket_is_full_is_left_alone_for_a_while() {
    let mut rig = Rig::new(10);
    rig.report(1, &[(1, 9)]);
    assert_eq!(rig.answer(INSERT, 1, Outcome::BucketFull), []);
    let mut tries = Vec::new();
    for window in 1..60 {
        rig.end(window, &[]);
        if !rig.report(window + 1, &[(1, 9)]).is_empty() {
            tries.push(window);
            rig.answer(INSERT, 1, Outcome::BucketFull);
        }
    }
    assert_eq!(tries, [10, 30], "after 10 s, then 20 s, then 40 s");
    assert_eq!(rig.controller.counters(SWITCH)["answered_bucket_full"], 3);
}

#[test]
fn a_dropped_item_recurs_in_the_next_window() {
    let mut rig = Rig::new(10);
    rig.report(1, &[(1, 9)]);
    rig.answer(INSERT, 1, Outcome::Done);
    assert_eq!(rig.evict(1, false), []);
    rig.end(1, &[]);
    assert_eq!(rig.report(2, &[(1, 9)]), [(INSERT, key(1))]);
}

#[test]
fn a_key_that_got_no_value_is_tried_again_soon_and_then_less_and_less() {
    let mut rig = Rig::new(10);
    let mut tries = Vec::new();
    for window in 1..40 {
        if !rig.report(window, &[(1, 9)]).is_empty() {
            tries.push(window);
            rig.answer(INSERT, 1, Outcome::Done);
            rig.evict(1, true);
        }
        rig.end(window, &[]);
    }
    assert_eq!(tries, [1, 3, 7, 15, 31], "after 2 s, then 4 s, 8 s, 16 s");
}

#[test]
fn a_command_that_was_not_sent_is_asked_for_again() {
    let mut rig = Rig::new(10);
    rig.report(1, &[(1, 9)]);
    rig.answer(INSERT, 1, Outcome::NotSent);
    rig.end(1, &[]);
    assert_eq!(rig.report(2, &[(1, 2)]), [(INSERT, key(1))]);
}

#[test]
fn a_switch_that_lost_its_memory_is_filled_again() {
    let mut rig = Rig::new(10);
    rig.report(1, &[(1, 9), (2, 9)]);
    rig.answer(INSERT, 1, Outcome::Done);
    rig.answer(INSERT, 2, Outcome::Done);
    rig.tell(|to, now, out| to.detached(now, SWITCH, out));
    rig.tell(|to, now, out| to.attached(now, SWITCH, out));
    assert_eq!(rig.holds(&[key(2)], &[key(1)]), [(INSERT, key(1))]);
}

#[test]
fn a_switch_that_holds_too_much_is_told_to_evict() {
    let mut rig = Rig::new(2);
    let held: Vec<_> = (0..5).map(key).collect();
    rig.tell(|to, now, out| to.attached(now, SWITCH, out));
    let changes = rig.holds(&held, &[]);
    assert_eq!(changes.len(), 3);
    assert!(changes.iter().all(|(change, _)| *change == EVICT));
}

#[test]
fn a_very_hot_key_wins_at_once_and_stays() {
    let mut rig = Rig::new(100);
    let items: Vec<(u32, u64)> = (0..100).map(|n| (n, 5)).collect();
    rig.report(1, &items);
    for (n, _) in &items {
        rig.answer(INSERT, *n, Outcome::Done);
    }
    for window in 1..6 {
        rig.end(window, &items);
    }
    let changes = rig.report(6, &[(1000, 60)]);
    assert!(matches!(changes[..], [(EVICT, _), (INSERT, _)]), "{changes:?}");
    let (_, evicted) = &changes[0];
    rig.answer_of(evicted, &EVICT, Outcome::Done);
    rig.answer(INSERT, 1000, Outcome::Done);
    let back = (number(evicted), 5);
    assert_eq!(rig.report(6, &[back]), [], "equals do not take turns");
}

#[derive(Clone, Debug)]
enum Step {
    Hot(Vec<(u32, u64)>),
    End(Vec<(u32, u64)>),
    Answer(usize, u8),
    Drop(u32),
    Reattach(Vec<u32>, Vec<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let counted =
        || prop::collection::vec((0u32..200, any::<u64>().prop_map(|n| n >> (n % 64))), 0..40);
    let keys = || prop::collection::vec(0u32..200, 0..30);
    prop_oneof![
        4 => counted().prop_map(Step::Hot),
        2 => counted().prop_map(Step::End),
        8 => (any::<usize>(), 0u8..8).prop_map(|(n, o)| Step::Answer(n, o)),
        1 => (0u32..200).prop_map(Step::Drop),
        1 => (keys(), keys()).prop_map(|(held, lost)| Step::Reattach(held, lost)),
    ]
}

proptest! {
    /// Whatever a switch says: one change per key at a time, and no more items wanted than allowed.
    #[test]
    fn keeps_within_its_limits(steps in prop::collection::vec(step(), 0..120)) {
        let mut rig = Rig::new(16);
        let mut open: Vec<(Change, Key)> = Vec::new();
        let mut window = 1;
        for step in steps {
            let changes = match step {
                Step::Hot(keys) => rig.report(window, &keys),
                Step::End(items) => {
                    window += 1;
                    rig.end(window - 1, &items)
                }
                Step::Answer(n, outcome) => {
                    if open.is_empty() {
                        continue;
                    }
                    let (change, key) = open.remove(n % open.len());
                    let outcome = match outcome {
                        0 => Outcome::NoRoom,
                        1 => Outcome::BucketFull,
                        2 => Outcome::Refused,
                        3 => Outcome::NotSent,
                        _ => Outcome::Done,
                    };
                    rig.answer_of(&key, &change, outcome)
                }
                Step::Drop(n) => rig.evict(n, false),
                Step::Reattach(held, lost) => {
                    let held: Vec<_> = held.into_iter().map(key).collect();
                    let lost: Vec<_> = lost.into_iter().map(key).filter(|k| !held.contains(k)).collect();
                    rig.tell(|to, now, out| to.attached(now, SWITCH, out));
                    rig.holds(&held, &lost)
                }
            };
            open.extend(changes);
            let mut per_key: HashMap<&Key, usize> = HashMap::new();
            for (_, key) in &open {
                *per_key.entry(key).or_default() += 1;
            }
            prop_assert!(per_key.values().all(|n| *n == 1), "two open changes of one key: {open:?}");
            let counters = rig.controller.counters(SWITCH);
            prop_assert!(counters["items_wanted"] <= 16, "{counters:?}");
            prop_assert!(counters["contenders"] <= 8192);
        }
    }
}
