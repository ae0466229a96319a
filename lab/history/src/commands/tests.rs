//! What answers say, by a Redis of one line a command.

use wire::Cluster;

use super::*;
use crate::{
    Need, Verdict, check,
    values::{appended, chunk, counter, encode},
};

fn recorder() -> CommandRecorder {
    let cluster = Cluster::single(([10, 0, 0, 1], 1).into(), 4);
    let clients = ClientsConfig { keys: 4, ..ClientsConfig::new(cluster, vec![], 3) };
    let config = CommandsConfig { clients, store: 0, lent: vec![], flushes: 0.01, watches: 0.1 };
    CommandRecorder::new(&config, 7).unwrap()
}

/// Asks one thing, which is answered so.
fn ask(recorder: &mut CommandRecorder, action: Action, replies: Option<Vec<Value>>, at_ns: u64) {
    let is_transaction = action.needs_transaction();
    let replies = replies.map(|each| match is_transaction {
        true => vec![Value::Okay, Value::Okay, Value::Array(each)],
        false => each,
    });
    recorder.asked = Some(CommandQuestion {
        bytes: vec![],
        replies: 1,
        actions: vec![action],
        is_transaction,
        call_ns: at_ns,
    });
    recorder.told(replies, at_ns + 5);
}

fn verdicts(recorder: CommandRecorder) -> Vec<Verdict> {
    let by_key = recorder.into_recorded().by_key();
    by_key.into_values().map(|operations| check(&operations).unwrap()).collect()
}

#[test]
fn what_is_counted_and_appended_is_followed() {
    let story = |read: Vec<u8>| {
        let mut recorder = recorder();
        ask(
            &mut recorder,
            Action::Add { key: 0, number: 100, may_expire: false },
            Some(vec![Value::Int(100)]),
            10,
        );
        // Nobody knows whether this was added, and whether that was appended.
        ask(&mut recorder, Action::Add { key: 0, number: 7, may_expire: false }, None, 20);
        ask(&mut recorder, Action::Append { key: 0, number: 9, persists: false }, None, 30);
        ask(&mut recorder, Action::Get(0), Some(vec![Value::BulkString(read)]), 40);
        verdicts(recorder)
    };
    let longer = |text: &[u8]| [text, &chunk(9)].concat();
    for possible in [b"100".to_vec(), b"107".to_vec(), longer(b"100"), longer(b"107")] {
        assert_eq!(story(possible.clone()), [Verdict::Linearizable], "{possible:?}");
    }
    for impossible in [b"7".to_vec(), b"114".to_vec(), longer(b"93"), chunk(9)] {
        assert!(matches!(story(impossible)[..], [Verdict::Violation(_)]));
    }
}

#[test]
fn a_value_that_was_written_before_something_was_appended_cannot_wait() {
    let mut recorder = recorder();
    let write = Action::Set { key: 1, number: 5, ttl_ms: None };
    ask(&mut recorder, write, Some(vec![Value::Okay]), 10);
    let append = Action::Append { key: 1, number: 6, persists: false };
    ask(&mut recorder, append, Some(vec![Value::Int(100)]), 12);
    let value = [encode(5, 0), chunk(6)].concat();
    ask(&mut recorder, Action::Get(1), Some(vec![Value::BulkString(value)]), 20);
    let operations = &recorder.seen.operations;
    assert_eq!(operations[2].need, Need::Value(appended(Some(5), 6)));
    assert_eq!(verdicts(recorder), [Verdict::Linearizable]);
}

#[test]
fn a_copy_that_outlives_flushall_a_rename_or_a_transaction_is_a_violation() {
    let set = |number| Action::Set { key: 0, number, ttl_ms: None };
    let old = || Some(vec![Value::BulkString(encode(1, 0))]);
    let rename = Some(vec![Value::BulkString(encode(1, 0)), Value::Okay]);
    let stories = [
        (Action::FlushAll, Some(vec![Value::Okay])),
        (Action::Rename { key: 0, to: 1 }, rename),
        (Action::Count { key: 0, number: 3 }, Some(vec![Value::Int(1), Value::Int(3)])),
        (Action::Delete(vec![0, 2]), Some(vec![Value::Int(1)])),
    ];
    for (action, replies) in stories {
        let mut recorder = recorder();
        ask(&mut recorder, set(1), Some(vec![Value::Okay]), 10);
        ask(&mut recorder, action.clone(), replies, 20);
        ask(&mut recorder, Action::Get(0), old(), 30);
        let bad = verdicts(recorder).into_iter().filter(|v| *v != Verdict::Linearizable);
        assert_eq!(bad.count(), 1, "{action:?}");
    }
}

#[test]
fn a_counter_lives_for_as_long_as_it_did_before_and_what_is_appended_to_for_ever() {
    let gone_after = |before: Option<Action>, action: Action, replies: Vec<Value>| {
        let mut recorder = recorder();
        if let Some(before) = before {
            ask(&mut recorder, before, Some(vec![Value::Int(3)]), 0);
        }
        ask(&mut recorder, action, Some(replies), 10);
        ask(&mut recorder, Action::Get(0), Some(vec![Value::Nil]), 20);
        verdicts(recorder)[0].clone()
    };
    let add = |number, may_expire| Action::Add { key: 0, number, may_expire };
    for may_expire in [true, false] {
        let one = gone_after(None, add(3, may_expire), vec![Value::Int(3)]);
        assert_ne!(one, Verdict::Linearizable, "a new counter lives for ever");
        let another = gone_after(Some(add(3, may_expire)), add(4, may_expire), vec![Value::Int(7)]);
        assert_eq!(another == Verdict::Linearizable, may_expire);
    }
    let gone = |action: Action, replies: Vec<Value>| gone_after(None, action, replies);
    let append = Action::Append { key: 0, number: 3, persists: true };
    assert_eq!(append.commands(&[b"k"], 0)[0], [&b"PERSIST"[..], b"k"]);
    let verdict = gone(append, vec![Value::Int(0), Value::Int(16)]);
    assert_ne!(verdict, Verdict::Linearizable);
}

#[test]
fn what_was_refused_is_not_counted_as_carried_out() {
    let mut recorder = recorder();
    let refused = redis::parse_redis_value(b"-ERR unknown command\r\n").unwrap();
    ask(&mut recorder, Action::Take(0), Some(vec![refused]), 10);
    let swap = Action::Swap { key: 0, number: 1 };
    let given_up = vec![Value::Okay, Value::Nil, Value::Okay, Value::Okay, Value::Nil];
    ask(&mut recorder, swap, Some(given_up), 20);
    ask(&mut recorder, Action::Take(1), Some(vec![Value::Nil]), 30);
    let recorded = recorder.into_recorded();
    assert_eq!(recorded.commands, [("getdel".into(), 1)].into());
}

#[test]
fn of_a_key_that_was_lost_sight_of_only_what_was_before_is_judged() {
    let mut recorder = recorder();
    let set = Action::Set { key: 0, number: 1, ttl_ms: None };
    ask(&mut recorder, set, Some(vec![Value::Okay]), 10);
    ask(&mut recorder, Action::Get(1), Some(vec![Value::Nil]), 15);
    ask(&mut recorder, Action::Rename { key: 0, to: 1 }, None, 21);
    let there = Some(vec![Value::BulkString(encode(1, 0))]);
    ask(&mut recorder, Action::Get(1), there, 30);
    let by_key = recorder.into_recorded().by_key();
    assert_eq!(by_key[&1].len(), 1);
    assert_eq!(check(&by_key[&1]).unwrap(), Verdict::Linearizable);
}

#[test]
fn everything_is_drawn_and_a_transaction_is_as_many_replies_as_commands() {
    let mut recorder = recorder();
    let (mut kinds, mut transactions) = (std::collections::BTreeSet::new(), 0);
    for at_ns in 0..5_000 {
        let asked = recorder.next(at_ns).clone();
        kinds.extend(asked.actions.iter().map(|action| action.kind()));
        transactions += u64::from(asked.is_transaction);
        let mut replies = CommandReplies::default();
        replies.take(&b"+OK\r\n".repeat(asked.replies)).unwrap();
        assert_eq!(replies.whole(asked.replies + 1), None);
        assert_eq!(replies.whole(asked.replies).unwrap().len(), asked.replies);
    }
    assert!(transactions > 1_000);
    // PEXPIRE is drawn where values live for a while only.
    let missing = KINDS.iter().filter(|kind| !kinds.contains(*kind));
    assert_eq!(missing.collect::<Vec<_>>(), [&"pexpire", &"exec"]);
    assert_eq!(counter(3), 3 | 1 << 62);
}

#[test]
fn a_transaction_whose_watched_key_was_written_meanwhile_is_a_violation() {
    let story = |exec: Value, read| {
        let mut recorder = recorder();
        for (number, at_ns) in [(5, 10), (6, 20)] {
            let set = Action::Set { key: 0, number, ttl_ms: None };
            ask(&mut recorder, set, Some(vec![Value::Okay]), at_ns);
        }
        let queued = Value::SimpleString("QUEUED".into());
        let found = Value::BulkString(encode(5, 0));
        let replies = vec![Value::Okay, found, Value::Okay, queued, exec];
        // It began before the second value was written, and ends after it.
        let swap = Action::Swap { key: 0, number: 7 };
        recorder.asked = Some(CommandQuestion {
            bytes: vec![],
            replies: 5,
            actions: vec![swap],
            is_transaction: false,
            call_ns: 17,
        });
        recorder.told(Some(replies), 40);
        ask(&mut recorder, Action::Get(0), Some(vec![Value::BulkString(encode(read, 0))]), 50);
        verdicts(recorder)
    };
    assert_eq!(story(Value::Nil, 6), [Verdict::Linearizable]);
    let done = || Value::Array(vec![Value::Okay]);
    assert_eq!(story(done(), 6), [Verdict::Linearizable], "before the second was written");
    assert!(matches!(story(done(), 7)[..], [Verdict::Violation(_)]));
}
