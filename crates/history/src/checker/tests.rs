use proptest::prelude::*;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::*;

fn op(client: u32, times: (u64, u64), need: Need, effect: Effect) -> Operation {
    let (call_ns, return_ns) = (times.0, Some(times.1));
    Operation {
        client,
        key: 0,
        call_ns,
        return_ns,
        need,
        effect,
        lapse: None,
    }
}

fn open(client: u32, call_ns: u64, need: Need, effect: Effect) -> Operation {
    Operation {
        client,
        key: 0,
        call_ns,
        return_ns: None,
        need,
        effect,
        lapse: None,
    }
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
        (
            "stale read",
            vec![write(0, (1, 2), 1), write(0, (3, 4), 2), read(1, (5, 6), 1)],
        ),
        (
            "new, then old",
            vec![
                write(0, (1, 2), 1),
                write(0, (3, 9), 2),
                read(1, (4, 5), 2),
                read(2, (6, 7), 1),
            ],
        ),
        (
            "lost update",
            vec![
                write(0, (1, 2), 1),
                swap(1, (3, 6), 1, 2),
                swap(2, (4, 7), 1, 3),
            ],
        ),
        (
            "resurrected delete",
            vec![write(0, (1, 2), 1), delete, read(2, (7, 8), 1)],
        ),
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
            vec![
                write(0, (1, 9), 1),
                write(1, (2, 8), 2),
                read(2, (3, 4), 2),
                read(2, (5, 6), 1),
            ],
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

/// The same history for stateright.
#[derive(Clone, Debug, PartialEq)]
struct Key(Option<u64>);

impl SequentialSpec for Key {
    type Op = (Need, Effect);
    type Ret = ();

    fn invoke(&mut self, (_, effect): &(Need, Effect)) {
        match effect {
            Effect::Keep => {}
            Effect::Write(value) => self.0 = Some(*value),
            Effect::Delete => self.0 = None,
        }
    }

    fn is_valid_step(&mut self, operation: &(Need, Effect), (): &()) -> bool {
        let is_met = operation.0.is_met(self.0);
        if is_met {
            self.invoke(operation);
        }
        is_met
    }
}

fn stateright_says(history: &[Operation]) -> bool {
    let mut events = vec![];
    for (i, operation) in history.iter().enumerate() {
        events.push((operation.call_ns, false, i));
        events.extend(operation.return_ns.map(|at| (at, true, i)));
    }
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(Key(None));
    for (_, is_return, i) in events {
        let operation = &history[i];
        if is_return {
            tester.on_return(operation.client, ()).unwrap();
        } else {
            tester
                .on_invoke(operation.client, (operation.need, operation.effect))
                .unwrap();
        }
    }
    tester.is_consistent()
}

/// Random histories of up to 8 operations of 4 clients, each ending in at most one open operation with no condition.
fn histories() -> impl Strategy<Value = Vec<Operation>> {
    let need = prop_oneof![
        2 => Just(Need::Any), 1 => Just(Need::Absent), 1 => Just(Need::Present),
        4 => (0..5u64).prop_map(Need::Value),
    ];
    let one = (
        0..4u32,
        0..20u64,
        1..12u64,
        need,
        0..3u8,
        prop::bool::weighted(0.15),
    );
    prop::collection::vec(one, 1..9).prop_map(|raw| {
        let mut busy_until = [Some(0u64); 4];
        let mut history = vec![];
        for (i, (client, call, long, need, effect, is_open)) in raw.into_iter().enumerate() {
            let Some(free) = busy_until[client as usize] else {
                continue;
            };
            let call_ns = 2 * (free + call % 4) + 1;
            let effect = match effect {
                0 => Effect::Keep,
                1 => Effect::Write(i as u64 % 5),
                _ => Effect::Delete,
            };
            // Stateright lets an open operation take part only as its specification allows without a return.
            let need = if is_open { Need::Any } else { need };
            let effect = if is_open {
                Effect::Write(i as u64 % 5)
            } else {
                effect
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn agrees_with_stateright(history in histories()) {
        prop_assert_eq!(!is_bad(&history), stateright_says(&history));
    }
}
