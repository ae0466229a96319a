//! Whatever switches say, in whatever order: one change per key and switch at a time, and no key is
//! sent to a switch while another may have it.

use std::{collections::BTreeMap, time::Duration};

use decide::{
    Action, Answer, Change, Eviction, HotKeys, Inventory, Key, Limits, Outcome, Room, SwitchId,
    WindowEnd,
};
use hot::testing::{key, number};
use proptest::prelude::*;

const TENANT: u32 = 0;
const SWITCHES: [SwitchId; 3] = [9, 2, 5];

#[derive(Clone, Debug)]
enum Step {
    Hot(usize, Vec<(u32, u64)>),
    End(usize, Vec<(u32, u64)>),
    Tick,
    Answer(usize, u8),
    Drop(usize, u32),
    Detach(usize),
    Attach(usize, bool),
    Pages(usize, u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let counted = || prop::collection::vec((0u32..60, 1u64..100), 0..40);
    prop_oneof![
        6 => (0usize..3, counted()).prop_map(|(s, keys)| Step::Hot(s, keys)),
        2 => (0usize..3, counted()).prop_map(|(s, items)| Step::End(s, items)),
        6 => Just(Step::Tick),
        12 => (any::<usize>(), 0u8..8).prop_map(|(n, o)| Step::Answer(n, o)),
        1 => (0usize..3, 0u32..60).prop_map(|(s, n)| Step::Drop(s, n)),
        1 => (0usize..3).prop_map(Step::Detach),
        1 => (0usize..3, any::<bool>()).prop_map(|(s, empty)| Step::Attach(s, empty)),
        1 => (0usize..3, 1u32..3, 0u32..3).prop_map(|(s, pages, lent)| Step::Pages(s, pages, lent.min(pages))),
    ]
}

#[derive(Default)]
struct Switch {
    pages: u32,
    lent: u32,
    window: u64,
    /// What it may have: an insertion counts from when it is asked for, an eviction when it is
    /// done.
    has: BTreeMap<u32, bool>,
}

proptest! {
    #[test]
    fn a_key_is_never_sent_to_two_switches(steps in prop::collection::vec(step(), 0..200)) {
        let limits = Limits { max_items: 12, ..Limits::default() };
        let mut controller = madinc::controller(limits);
        let mut switches: Vec<Switch> = SWITCHES.iter().map(|_| Switch { pages: 1, ..Switch::default() }).collect();
        let mut open: Vec<(usize, Change, u32)> = Vec::new();
        let mut now = Duration::from_secs(1);
        let rooms = |switches: &[Switch]| -> Vec<Room> {
            let room = |(at, s): (usize, &Switch)| Room { switch: SWITCHES[at], pages: s.pages, lent: s.lent, parameters: None };
            switches.iter().enumerate().map(room).collect()
        };
        let mut out = Vec::new();
        controller.room(now, TENANT, &rooms(&switches), &mut out);
        for switch in SWITCHES {
            controller.attached(now, switch, &mut out);
            let inventory = Inventory { switch, tenant: TENANT, held: &[], lost: &[] };
            controller.holds(now, inventory, &mut out);
        }
        for step in steps {
            out.clear();
            now += Duration::from_millis(40);
            match step {
                Step::Hot(at, keys) => {
                    let keys: Vec<_> = keys.into_iter().map(|(n, count)| (key(n), count)).collect();
                    let window = switches[at].window;
                    let hot = HotKeys { switch: SWITCHES[at], tenant: TENANT, window, keys: &keys };
                    controller.hot(now, hot, &mut out);
                }
                Step::End(at, items) => {
                    let items: Vec<_> = items.into_iter().map(|(n, count)| (key(n), count)).collect();
                    let window = switches[at].window;
                    switches[at].window += 1;
                    let end = WindowEnd { switch: SWITCHES[at], tenant: TENANT, window, items: &items, tallies: &[0; decide::TALLIES] };
                    controller.window_end(now, end, &mut out);
                }
                Step::Tick => controller.tick(now, &mut out),
                Step::Answer(n, outcome) => {
                    if open.is_empty() {
                        continue;
                    }
                    let (at, change, n) = open.remove(n % open.len());
                    let outcome = match (outcome, &change) {
                        (0, Change::Put(_)) => Outcome::NoRoom,
                        (1, Change::Put(_)) => Outcome::BucketFull,
                        (2, Change::Put(_)) => Outcome::Refused,
                        (3, _) => Outcome::NotSent,
                        _ => Outcome::Done,
                    };
                    match (&change, outcome) {
                        (Change::Put(_), Outcome::Done) => { switches[at].has.insert(n, true); }
                        (Change::Remove, Outcome::NotSent) => {}
                        _ => { switches[at].has.remove(&n); }
                    }
                    let answer = Answer { switch: SWITCHES[at], tenant: TENANT, key: &key(n), change: &change, outcome };
                    controller.answered(now, answer, &mut out);
                }
                Step::Drop(at, n) => {
                    let is_open = open.iter().any(|(s, _, k)| (*s, *k) == (at, n));
                    if is_open || switches[at].has.remove(&n).is_none() {
                        continue;
                    }
                    let eviction = Eviction { switch: SWITCHES[at], tenant: TENANT, keys: &[key(n)], unfit: false };
                    controller.dropped(now, eviction, &mut out);
                }
                Step::Detach(at) => controller.detached(now, SWITCHES[at], &mut out),
                Step::Attach(at, empty) => {
                    if open.iter().any(|(s, ..)| *s == at) {
                        continue;
                    }
                    let has: Vec<Key> = switches[at].has.keys().map(|n| key(*n)).collect();
                    let (held, lost) = if empty { (&[][..], &has[..]) } else { (&has[..], &[][..]) };
                    controller.attached(now, SWITCHES[at], &mut out);
                    let inventory = Inventory { switch: SWITCHES[at], tenant: TENANT, held, lost };
                    controller.holds(now, inventory, &mut out);
                    if empty {
                        switches[at].has.clear();
                    }
                }
                Step::Pages(at, pages, lent) => {
                    (switches[at].pages, switches[at].lent) = (pages, lent);
                    controller.room(now, TENANT, &rooms(&switches), &mut out);
                }
            }
            for action in &out {
                let Action::Change { switch, key, change, .. } = action else { continue };
                let at = SWITCHES.iter().position(|s| s == switch).unwrap();
                let n = number(key);
                prop_assert!(!open.iter().any(|(s, _, k)| (*s, *k) == (at, n)), "two open changes of {n}");
                open.push((at, change.clone(), n));
                if matches!(change, Change::Put(_)) {
                    for (other, has) in switches.iter().enumerate() {
                        prop_assert!(other == at || !has.has.contains_key(&n), "{n} is on {other} and goes to {at}");
                    }
                    switches[at].has.insert(n, false);
                }
            }
        }
    }
}
