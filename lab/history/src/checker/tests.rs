//! The checker against histories written by hand, each with one thing that it must see or must not
//! mind, and against random ones, for which Stateright's checker of linearizability says what is
//! true.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rand::RngExt;
use seed::{SeededRng, rng};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::*;
use crate::values::{appended, counter};

fn op(client: u32, times: (u64, u64), need: Need, effect: Effect) -> Operation {
    let (call_ns, return_ns) = (times.0, Some(times.1));
    Operation { client, key: 0, call_ns, return_ns, need, effect, lapse: None }
}

fn open(client: u32, call_ns: u64, need: Need, effect: Effect) -> Operation {
    Operation { client, key: 0, call_ns, return_ns: None, need, effect, lapse: None }
}

fn write(client: u32, times: (u64, u64), value: u64) -> Operation {
    op(client, times, Need::Any, Effect::Write(value))
}

fn read(client: u32, times: (u64, u64), value: u64) -> Operation {
    op(client, times, Need::Value(value), Effect::Keep)
}

fn is_bad(history: &[Operation]) -> bool {
    check(history).unwrap() != Verdict::Linearizable
}

#[test]
fn bad_histories_are_caught() {
    let delete = op(1, (5, 6), Need::Present, Effect::Delete);
    let swap = |client, times, from, to| op(client, times, Need::Value(from), Effect::Write(to));
    let bad: [(&str, Vec<Operation>); 6] = [
        ("stale read", vec![write(0, (1, 2), 1), write(0, (3, 4), 2), read(1, (5, 6), 1)]),
        (
            "new, then old",
            vec![write(0, (1, 2), 1), write(0, (3, 9), 2), read(1, (4, 5), 2), read(2, (6, 7), 1)],
        ),
        ("lost update", vec![write(0, (1, 2), 1), swap(1, (3, 6), 1, 2), swap(2, (4, 7), 1, 3)]),
        ("resurrected delete", vec![write(0, (1, 2), 1), delete, read(2, (7, 8), 1)]),
        ("value from nowhere", vec![read(1, (5, 6), 7)]),
        (
            "an open write twice",
            vec![
                open(0, 1, Need::Any, Effect::Write(1)),
                read(1, (2, 3), 1),
                write(1, (4, 5), 2),
                read(2, (6, 7), 1),
            ],
        ),
    ];
    for (name, history) in bad {
        assert!(is_bad(&history), "{name}");
        println!("{name} ... caught");
    }
}

#[test]
fn good_histories_pass() {
    let good: [(&str, Vec<Operation>); 3] = [
        (
            "an open write takes effect late",
            vec![
                write(0, (1, 2), 1),
                open(1, 3, Need::Any, Effect::Write(2)),
                read(0, (4, 5), 1),
                read(2, (90, 91), 2),
            ],
        ),
        (
            "concurrent writes in either order",
            vec![write(0, (1, 9), 1), write(1, (2, 8), 2), read(2, (3, 4), 2), read(2, (5, 6), 1)],
        ),
        (
            "an open delete explains an absence",
            vec![
                write(0, (1, 2), 1),
                open(1, 3, Need::Present, Effect::Delete),
                read(2, (4, 5), 1),
                op(2, (6, 7), Need::Absent, Effect::Keep),
            ],
        ),
    ];
    for (name, history) in good {
        assert!(!is_bad(&history), "{name}");
    }
}

/// A write whose value may be gone from `lapse.0` on, and is gone at `lapse.1`.
fn passing(client: u32, times: (u64, u64), value: u64, lapse: (u64, u64)) -> Operation {
    Operation {
        lapse: Some(Lapse { from_ns: lapse.0, until_ns: Some(lapse.1) }),
        ..write(client, times, value)
    }
}

#[test]
fn values_that_live_for_a_while_end_then_and_not_before() {
    let absent = |client, times| op(client, times, Need::Absent, Effect::Keep);
    let swap = |client, times, from, to| op(client, times, Need::Value(from), Effect::Write(to));
    let first = passing(0, (1, 2), 1, (10, 20));
    let longer = appended(Some(1), 7);
    let good: [(&str, Vec<Operation>); 9] = [
        (
            "an open append came before the end, and what it made stays",
            vec![first, open(1, 5, Need::Any, Effect::Append(7)), read(2, (30, 31), longer)],
        ),
        ("there before", vec![first, read(1, (5, 6), 1)]),
        ("gone in between", vec![first, absent(1, (11, 12))]),
        ("there in between", vec![first, read(1, (18, 19), 1)]),
        ("gone after", vec![first, absent(1, (30, 31))]),
        (
            "gone at the store, still there in a copy",
            vec![first, absent(1, (11, 12)), read(2, (13, 14), 1), absent(1, (15, 16))],
        ),
        ("overwritten for good", vec![first, write(1, (5, 6), 2), read(2, (30, 31), 2)]),
        (
            "an open swap came just before the end",
            vec![
                first,
                open(1, 5, Need::Value(1), Effect::Write(2)),
                read(2, (6, 7), 1),
                read(2, (30, 31), 2),
            ],
        ),
        (
            "a slow swap came just before the end",
            vec![first, swap(1, (5, 40), 1, 2), read(2, (50, 51), 2)],
        ),
    ];
    for (name, history) in good {
        assert!(!is_bad(&history), "{name}");
    }
    let bad: [(&str, Vec<Operation>); 6] = [
        ("gone too early", vec![first, absent(1, (5, 6))]),
        ("there too late", vec![first, read(1, (21, 22), 1)]),
        ("swapped after the end", vec![first, swap(1, (21, 22), 1, 2)]),
        (
            "a copy after something else was written",
            vec![first, op(1, (11, 12), Need::Absent, Effect::Write(2)), read(2, (13, 14), 1)],
        ),
        ("another's life", vec![first, write(1, (5, 6), 2), absent(2, (30, 31))]),
        (
            "gone, and swapped at the store",
            vec![first, absent(1, (11, 12)), swap(2, (13, 14), 1, 2)],
        ),
    ];
    for (name, history) in bad {
        assert!(is_bad(&history), "{name}");
        println!("{name} ... caught");
    }
}

/// The same history for stateright. A lapse is two operations of nobody: at the first the value
/// goes, if it is there, but may still be read from a copy; at the second no longer.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    state: Option<u64>,
    ghost: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Told(Need, Effect),
    /// Of an unknown outcome: takes effect if it can, or not at all.
    Open(Need, Effect),
    Lapse(u64),
    Fade(u64),
}

impl SequentialSpec for Key {
    type Op = Event;
    type Ret = ();

    fn invoke(&mut self, event: &Event) {
        match event {
            Event::Told(_, Effect::Keep) => {}
            Event::Told(_, effect) => {
                if let Some(state) = effect.on(self.state) {
                    (self.state, self.ghost) = (state, None);
                }
            }
            Event::Open(need, effect) => {
                if need.is_met(self.state) {
                    self.invoke(&Event::Told(*need, *effect));
                }
            }
            Event::Lapse(value) if self.state == Some(*value) => {
                (self.state, self.ghost) = (None, Some(*value));
            }
            Event::Fade(value) if self.ghost == Some(*value) => self.ghost = None,
            Event::Lapse(_) | Event::Fade(_) => {}
        }
    }

    fn is_valid_step(&mut self, event: &Event, (): &()) -> bool {
        let is_met = match event {
            Event::Told(need, Effect::Keep) if self.ghost.is_some() => {
                need.is_met(self.state) || need.is_met(self.ghost)
            }
            Event::Told(need, effect) => need.is_met(self.state) && effect.on(self.state).is_some(),
            Event::Open(..) | Event::Lapse(_) | Event::Fade(_) => true,
        };
        if is_met {
            self.invoke(event);
        }
        is_met
    }
}

fn stateright_says(history: &[Operation]) -> bool {
    // (when, whether it is a return, client, what)
    let mut events = vec![];
    let mut nobody = 100;
    let mut add = |client, call_ns, return_ns: Option<u64>, event: Event| {
        events.push((call_ns, false, client, event.clone()));
        events.extend(return_ns.map(|at| (at, true, client, event)));
    };
    for operation in history {
        let Operation { need, effect, .. } = *operation;
        let (return_ns, event) = match operation.return_ns {
            Some(at) => (at, Event::Told(need, effect)),
            None => (u64::MAX, Event::Open(need, effect)),
        };
        add(operation.client, operation.call_ns, Some(return_ns), event);
        if let (Some(lapse), Effect::Write(value)) = (operation.lapse, operation.effect) {
            nobody += 2;
            // Doubled times leave room for what comes right after.
            add(nobody, lapse.from_ns, lapse.until_ns, Event::Lapse(value));
            if let Some(until_ns) = lapse.until_ns {
                add(nobody + 1, until_ns + 1, Some(until_ns + 1), Event::Fade(value));
            }
        }
    }
    events.sort_by_key(|(at, is_return, ..)| (*at, *is_return));
    let mut tester = LinearizabilityTester::new(Key { state: None, ghost: None });
    for (_, is_return, client, event) in events {
        if is_return {
            tester.on_return(client, ()).unwrap();
        } else {
            tester.on_invoke(client, event).unwrap();
        }
    }
    tester.is_consistent()
}

/// Random histories of up to 8 operations of 4 clients, each ending in at most one open operation
/// with no condition.
fn histories() -> impl Strategy<Value = Vec<Operation>> {
    let need = prop_oneof![
        2 => Just(Need::Any), 1 => Just(Need::Absent), 1 => Just(Need::Present),
        4 => (0..5u64).prop_map(Need::Value),
        2 => (0..5u64, 0..3u64).prop_map(|(to, n)| Need::Value(appended(Some(to), n))),
        1 => (0..3u64).prop_map(|n| Need::Value(appended(None, n))),
        1 => (0..3u64).prop_map(|n| Need::Value(counter(n))),
    ];
    let one = (0..4u32, 0..20u64, 1..12u64, need, 0..5u8, prop::bool::weighted(0.15));
    prop::collection::vec(one, 1..9).prop_map(|raw| {
        let mut busy_until = [Some(0u64); 4];
        let mut history = vec![];
        for (i, (client, call, long, need, effect, is_open)) in raw.into_iter().enumerate() {
            let Some(free) = busy_until[client as usize] else { continue };
            let call_ns = 2 * (free + call % 4) + 1;
            let effect = match effect {
                0 => Effect::Keep,
                1 => Effect::Write(i as u64 % 5),
                2 => Effect::Append(i as u64 % 3),
                3 => Effect::Add(i as u64 % 3),
                _ => Effect::Delete,
            };
            // Stateright lets an open operation take part only as its specification allows without
            // a return.
            let need = if is_open { Need::Any } else { need };
            let effect = match effect {
                Effect::Keep | Effect::Delete if is_open => Effect::Write(i as u64 % 5),
                effect => effect,
            };
            let return_ns = (!is_open).then_some(call_ns + 2 * long - 1);
            busy_until[client as usize] = return_ns.map(|at| at / 2 + 1);
            history.push(Operation {
                client,
                key: 0,
                call_ns,
                return_ns,
                need,
                effect,
                lapse: None,
            });
        }
        history
    })
}

/// What four clients of one real key see: each operation takes effect at some moment between call
/// and return, values with a time to live end at some moment, and for a while after it a copy may
/// still be read. Without a mistake of the checker's such a history is good.
fn lived(rng: &mut SeededRng) -> Vec<Operation> {
    let mut busy_until = [0u64; 4];
    let mut history: Vec<Operation> = vec![];
    // (when, whether the value of the operation ends, operation)
    let mut moments = BTreeSet::new();
    for i in 0..rng.random_range(3..9) {
        let mut client: usize = rng.random_range(0..4);
        let call_ns = busy_until[client] + rng.random_range(1..8);
        let effect_ns = call_ns + rng.random_range(0..8);
        let mut return_ns = Some(effect_ns + rng.random_range(0..8));
        if rng.random_bool(0.25) {
            return_ns = None;
            // Nobody has anything after an operation of which he does not know the outcome.
            client = 10 + i;
        } else {
            busy_until[client] = return_ns.unwrap_or(0);
        }
        moments.insert((effect_ns, false, i));
        history.push(Operation {
            client: client as u32,
            key: 0,
            call_ns: call_ns * 8,
            return_ns: return_ns.map(|at| at * 8 + 2),
            need: Need::Any,
            effect: Effect::Keep,
            lapse: None,
        });
    }
    let (mut state, mut ghost) = (None, None);
    while let Some((now, ends, i)) = moments.pop_first() {
        if let Some((_, until)) = ghost
            && until < now
        {
            ghost = None;
        }
        let operation = &mut history[i];
        let until_ns = operation.lapse.and_then(|lapse| lapse.until_ns);
        if ends {
            if state == Some(i as u64) {
                ghost = Some((state, until_ns.map_or(u64::MAX, |at| at / 8)));
                state = None;
            }
            continue;
        }
        let write = Effect::Write(i as u64);
        (operation.need, operation.effect) = match (rng.random_range(0..10), state) {
            (0..4, _) => {
                let copy = ghost.filter(|_| rng.random());
                let seen = copy.map_or(state, |(value, _)| value);
                (seen.map_or(Need::Absent, Need::Value), Effect::Keep)
            }
            (4, _) => (Need::Any, write),
            (5, _) => (Need::Any, Effect::Append(i as u64)),
            (6..8, Some(value)) => (Need::Value(value), write),
            (8, None) => (Need::Absent, write),
            (8, Some(_)) => (Need::Present, Effect::Keep),
            (9, Some(_)) => (Need::Present, Effect::Delete),
            (_, None) => (Need::Absent, Effect::Keep),
            (_, Some(_)) => (Need::Present, Effect::Keep),
        };
        if let Effect::Keep = operation.effect {
            continue;
        }
        (state, ghost) = (operation.effect.on(state).expect("there is no counter"), None);
        if operation.effect == write && rng.random_bool(0.6) {
            let from = operation.return_ns.unwrap_or(operation.call_ns) / 8;
            let from = from.max(now) + rng.random_range(1..6);
            let end = from + rng.random_range(0..8);
            moments.insert((end, true, i));
            let until = end + rng.random_range(0..8);
            operation.lapse = Some(Lapse {
                from_ns: from * 8 - 1,
                until_ns: operation.return_ns.map(|_| until * 8 + 4),
            });
        }
    }
    history
}

/// Whether the reference, which tries orders one by one, is done with a history within its
/// lifetime: of what has no end it tries all.
fn is_quick_for_stateright(history: &[Operation]) -> bool {
    let open = |operation: &Operation| {
        let lapse = operation.lapse.filter(|lapse| lapse.until_ns.is_none());
        usize::from(operation.return_ns.is_none()) + usize::from(lapse.is_some())
    };
    history.iter().map(open).sum::<usize>() <= 3
}

/// A history with one thing in it that may not have been so.
fn spoiled(mut history: Vec<Operation>, rng: &mut SeededRng) -> Vec<Operation> {
    let at = rng.random_range(0..history.len());
    let operation = &mut history[at];
    match &mut operation.lapse {
        Some(Lapse { until_ns: Some(until_ns), from_ns }) => {
            *until_ns = until_ns.saturating_sub(8 * rng.random_range(0..8)).max(*from_ns + 5)
        }
        _ if operation.need == Need::Any => operation.need = Need::Absent,
        _ if rng.random() => operation.need = Need::Absent,
        _ => operation.need = Need::Value(rng.random_range(0..8)),
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn agrees_with_stateright(history in histories()) {
        prop_assert_eq!(!is_bad(&history), stateright_says(&history));
    }

    #[test]
    fn agrees_with_stateright_about_values_that_end(seed: u64) {
        let mut rng = rng(seed, "history");
        let history = lived(&mut rng);
        prop_assert!(!is_bad(&history), "a false alarm: {history:#?}");
        prop_assume!(is_quick_for_stateright(&history));
        prop_assert!(stateright_says(&history));
        let history = spoiled(history, &mut rng);
        prop_assert_eq!(!is_bad(&history), stateright_says(&history), "{:#?}", history);
    }
}
