//! Holds: commands that others carry out, and that have their keys for themselves meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    remote::{BackendCall, RemoteBackend},
    *,
};
use crate::{
    backend::{Change, Completion},
    coherence::Watch,
    engine::{HoldEnd, HoldId, HoldRequest},
};

/// The name of the tenant's key in Redis.
fn name(key: &str) -> Vec<u8> {
    wire::backend_name(KEYED, key.as_bytes()).unwrap()
}

fn keys(keys: &[&str]) -> HoldRequest {
    HoldRequest { names: keys.iter().map(|key| name(key)).collect(), everything: false }
}

fn everything() -> HoldRequest {
    HoldRequest { names: vec![], everything: true }
}

const NONE: [HoldId; 0] = [];

impl Store {
    /// The holds that are had since this was asked last.
    fn had(&mut self) -> Vec<HoldId> {
        self.engine.take_held()
    }

    fn hold(&mut self, id: HoldId, wanted: HoldRequest) {
        self.out.clear();
        self.engine.hold(id, wanted, LATER_NS, &mut self.out);
    }

    fn end_hold(&mut self, id: HoldId, end: HoldEnd) {
        self.out.clear();
        self.engine.end_hold(id, end, LATER_NS, &mut self.out);
    }

    /// The keys that switch 1 was asked to give up since the last event.
    fn called_back(&mut self) -> Vec<Vec<u8>> {
        let calls = self.sent().filter_map(|bytes| {
            let packet = Packet::decode(&bytes).unwrap();
            (packet.header.op == Op::Invalidate).then(|| packet.key.to_vec())
        });
        calls.collect()
    }

    /// Whether switch 1 is granted the tenant's key under this epoch.
    fn grants(&mut self, key: &[u8], epoch: u64) -> bool {
        let fetch = Header {
            tenant: KEYED,
            epoch: Epoch::new(1, epoch),
            flags: Flags::GRANT,
            ..Header::new(Op::FetchRequest)
        };
        self.ask(fetch, key).unwrap().flags.has(Flags::GRANT)
    }
}

#[test]
fn a_hold_is_had_when_no_copy_of_its_keys_is_left_and_nothing_is_granted_until_it_ends() {
    let mut store = with_a_copy();
    store.hold(1, keys(&["k", "other"]));
    assert_eq!(store.called_back(), [b"k"]);
    assert_eq!(store.had(), NONE);
    assert!(!store.grants(b"k", 11), "its copy is being called back");
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.had(), [1]);
    for key in [b"k", &b"other"[..]] {
        assert!(!store.grants(key, 13), "its command is being carried out");
    }
    store.end_hold(1, HoldEnd::Over);
    assert_eq!(store.had(), NONE, "once");
    assert!(store.grants(b"k", 14));
    assert_eq!(store.engine.counters().holds.holds, 1);
}

#[test]
fn of_keys_without_copies_a_hold_is_had_at_once() {
    let mut store = Store::new();
    let long = "x".repeat(wire::MAX_KEY + 1);
    let mut wanted = keys(&["a", "b", "a", &long]);
    // Of a tenant that nobody knows, and of none.
    wanted.names.push(b"shortstop:9:a".to_vec());
    wanted.names.push(b"open".to_vec());
    store.hold(1, wanted);
    assert_eq!(store.had(), [1]);
    assert!(store.engine.is_at_work());
    store.end_hold(1, HoldEnd::Over);
    assert!(!store.engine.is_at_work());
    assert!(store.engine.facts.directory.is_settled(), "nothing is left of it");
}

#[test]
fn writes_wait_for_a_hold_and_it_for_them() {
    let mut store = Store::new();
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    store.hold(1, keys(&["k"]));
    store.hold(2, keys(&["k"]));
    assert_eq!(store.had(), [1]);
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits");
    store.end_hold(1, HoldEnd::Over);
    assert_eq!(store.had(), [2], "the next in turn");
    assert!(store.out.is_empty(), "the write waits for this one, too");
    store.end_hold(2, HoldEnd::Over);
    let (bytes, _) = store.out.pop().expect("the write is answered");
    assert_eq!(Packet::decode(&bytes).unwrap().header.status, Status::Ok);
}

#[test]
fn a_command_with_more_keys_than_writes_may_wait_leaves_the_writes_their_room() {
    let mut store = Store::new();
    let names = (0..=MAX_WAITING).map(|n| name(&format!("key {n}"))).collect();
    store.hold(1, HoldRequest { names, everything: false });
    (0..100).for_each(|_| store.tick(0));
    assert_eq!(store.had(), [1]);
    assert_eq!(store.write(TENANT_OPEN, 1, 1, b"k"), Some(Status::Ok), "another tenant's");
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok), "the same one's");
    store.end_hold(1, HoldEnd::Over);
    (0..100).for_each(|_| store.tick(0));
    assert_eq!(store.engine.facts.ledger.pending.all(), 0);
    assert!(store.engine.facts.directory.is_settled());
}

/// Whether it goes on at once.
fn is_at_it(store: &Store) -> bool {
    store.engine.next_deadline_ns() == Some(LATER_NS)
}

/// A key costs some microseconds: of a million others would wait for seconds, and leases lapse.
#[test]
fn a_command_with_many_keys_is_taken_and_let_go_piece_by_piece_and_others_go_on_meanwhile() {
    let mut store = with_a_copy();
    store.tick(0);
    let names = (0..100_000).map(|n| name(&format!("key {n}"))).collect();
    store.hold(1, HoldRequest { names, everything: false });
    let goes_on_piece_by_piece = |store: &mut Store| {
        let mut pieces = 0;
        while is_at_it(store) && pieces < 1_000 {
            store.tick(0);
            pieces += 1;
        }
        assert!((50..1_000).contains(&pieces), "{pieces}");
    };
    assert!(store.had().is_empty() && is_at_it(&store));
    let read = Header { tenant: KEYED, ..Header::new(Op::ReadRequest) };
    assert!(store.ask(read, b"key 0").is_some());
    goes_on_piece_by_piece(&mut store);
    assert_eq!(store.had(), [1]);
    store.end_hold(1, HoldEnd::Over);
    assert!(is_at_it(&store) && store.engine.is_at_work());
    assert_eq!(store.write(KEYED, 1, 5, b"z"), Some(Status::Ok));
    goes_on_piece_by_piece(&mut store);
    assert!(store.engine.facts.directory.is_settled() && !store.engine.is_at_work());
}

/// One with copies calls them all back, whatever the first of its keys waits for.
#[test]
fn a_command_with_many_keys_that_is_given_up_midway_holds_up_nothing() {
    let mut store = Store::new();
    let names = (0..100_000).map(|n| name(&format!("key {n}"))).collect();
    store.hold(1, HoldRequest { names, everything: false });
    store.end_hold(1, HoldEnd::Over);
    (0..200).for_each(|_| store.tick(0));
    assert_eq!(store.had(), NONE);
    assert!(store.engine.facts.directory.is_settled() && !store.engine.is_at_work());
}

#[test]
fn what_a_hold_leaves_has_a_version_of_its_own_before_the_next_write() {
    let mut store = Store::new();
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    store.hold(1, keys(&["k"]));
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None);
    assert_eq!(backend.asked(), []);
    store.end_hold(1, HoldEnd::Over);
    let [BackendCall::Settle(settled), BackendCall::Write(_, version)] = backend.asked()[..] else {
        panic!("a version for what is there, so that no compare-and-set with another holds");
    };
    assert!(settled < version);
}

#[test]
fn a_hold_that_nobody_wants_any_more_holds_up_nothing() {
    let mut store = with_a_copy();
    store.hold(1, keys(&["k", "other"]));
    store.hold(2, keys(&["k", "other"]));
    store.end_hold(1, HoldEnd::Over);
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.had(), [2]);
    // And one that had not its turn yet.
    store.hold(3, keys(&["k"]));
    store.end_hold(3, HoldEnd::Over);
    store.end_hold(2, HoldEnd::Over);
    assert_eq!(store.had(), NONE);
    assert!(store.engine.facts.directory.is_settled() && !store.engine.is_at_work());
}

#[test]
fn a_hold_whose_command_may_take_place_still_goes_on_for_a_lease() {
    let mut store = Store::new();
    store.hold(1, keys(&["k"]));
    assert_eq!(store.had(), [1]);
    store.end_hold(1, HoldEnd::Unknown);
    store.lease();
    assert!(!store.grants(b"k", 10));
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None);
    let lease_ms = store.engine.facts.leases.length_ns().div_ceil(1_000_000);
    // That a connection of the store's own is known to be over says nothing of this one.
    store.engine.complete(Completion::Settled, LATER_NS + 1, &mut store.out);
    store.tick(lease_ms - 1);
    assert!(
        store.out.pop().is_none_or(|(bytes, _)| {
            Packet::decode(&bytes).unwrap().header.op != Op::WriteReply
        })
    );
    store.out.clear();
    assert_eq!(
        store.engine.next_deadline_ns().map(|ns| ns <= LATER_NS + lease_ms * 1_000_000),
        Some(true)
    );
    store.tick(lease_ms);
    let answered =
        store.sent().any(|bytes| Packet::decode(&bytes).unwrap().header.op == Op::WriteReply);
    assert!(answered);
    assert_eq!(store.engine.counters().holds.holds_unknown, 1);
}

#[test]
fn a_store_that_waits_after_its_start_holds_nothing_before() {
    let mut store = Store::new();
    let starts_ns = store.engine.facts.takes_writes_from_ns();
    store.engine.hold(1, keys(&["k"]), 0, &mut store.out);
    store.engine.hold(2, everything(), 0, &mut store.out);
    store.engine.tick(starts_ns - 1, &mut store.out);
    assert_eq!(store.had(), NONE);
    assert!(store.engine.next_deadline_ns().is_some_and(|ns| ns <= starts_ns));
    store.engine.tick(starts_ns, &mut store.out);
    assert_eq!(store.had(), [1]);
    store.engine.end_hold(1, HoldEnd::Over, starts_ns, &mut store.out);
    assert_eq!(store.had(), [2]);
}

#[test]
fn everything_is_held_when_every_copy_is_gone_and_nothing_else_goes_on() {
    let mut store = with_a_copy();
    assert_eq!(store.write(KEYED, 1, 2, b"l"), Some(Status::Ok));
    assert!(store.grants(b"l", 10));
    store.hold(1, keys(&["m"]));
    store.hold(2, everything());
    let mut called = store.called_back();
    called.sort_unstable();
    assert_eq!(called, [b"k", b"l"]);
    // What comes now is put off; and nothing is granted.
    assert_eq!(store.write(KEYED, 1, 3, b"n"), Some(Status::TryAgain));
    assert!(!store.grants(b"n", 11));
    store.hold(3, keys(&["n"]));
    assert_eq!(store.had(), [1]);
    store.hand_in(ack(12, 10), b"k");
    store.hand_in(ack(13, 10), b"l");
    assert_eq!(store.had(), NONE, "the first hold is not over");
    store.end_hold(1, HoldEnd::Over);
    assert_eq!(store.had(), [2]);
    assert!(!store.grants(b"l", 14));
    store.end_hold(2, HoldEnd::Over);
    assert_eq!(store.had(), [3]);
    assert!(store.grants(b"l", 15));
    assert_eq!(
        store.write(KEYED, 1, 3, b"o"),
        Some(Status::Ok),
        "it came as if for the first time"
    );
}

#[test]
fn everything_is_held_only_when_no_write_may_take_place_any_more() {
    let mut store = Store::new();
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None);
    let [BackendCall::Write(ticket, _)] = backend.asked()[..] else { panic!("one write") };
    store.hold(1, everything());
    assert_eq!(store.had(), NONE);
    store.engine.complete(Completion::Change(ticket, Change::Failed), LATER_NS, &mut store.out);
    assert_eq!(store.had(), NONE, "it is in doubt");
    store.engine.complete(Completion::Settled, LATER_NS + 1, &mut store.out);
    assert_eq!(store.had(), [1]);
}

#[test]
fn what_comes_while_everything_is_held_costs_no_look_at_every_key() {
    let mut store = with_a_copy();
    let walks = || crate::directory::WALKS.with(std::cell::Cell::get);
    store.hold(1, everything());
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.had(), [1]);
    let before = walks();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), Some(Status::TryAgain));
    store.end_hold(1, HoldEnd::Unknown);
    assert_eq!(store.write(KEYED, 1, 3, b"k"), Some(Status::TryAgain));
    assert_eq!(walks(), before);
}

#[test]
fn a_tenant_that_goes_takes_no_hold_along() {
    let mut store = with_a_copy();
    let with = store.engine.facts.config.cluster.clone();
    let without = wire::Cluster { tenants: vec![], ..with };
    let mut wanted = keys(&["k", "l"]);
    wanted.names.push(b"open".to_vec());
    store.hold(1, wanted.clone());
    store.hold(2, wanted);
    store.engine.update(without, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.had(), NONE, "a copy of that tenant's key is there");
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.had(), [1]);
    store.end_hold(1, HoldEnd::Over);
    assert_eq!(store.had(), [2]);
    store.end_hold(2, HoldEnd::Over);
    assert!(store.engine.facts.directory.is_settled());
}

/// What may happen to holds.
#[derive(Clone, Debug)]
enum Happens {
    Asked(Vec<u8>),
    Everything,
    /// The hold of this place among those that are open.
    Ends(usize, bool),
    Granted(u8),
    Acknowledged(u8),
    Written(u8),
}

fn happens() -> impl Strategy<Value = Happens> {
    let key = 0..4u8;
    prop_oneof![
        4 => proptest::collection::vec(key.clone(), 0..4).prop_map(Happens::Asked),
        1 => Just(Happens::Everything),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, known)| Happens::Ends(at, known)),
        3 => key.clone().prop_map(Happens::Granted),
        3 => key.clone().prop_map(Happens::Acknowledged),
        2 => key.prop_map(Happens::Written),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However holds overlap: of two that have a key in common one is had at a time, no key that is
    /// held has a copy, and when all is said each has been had that was wanted.
    #[test]
    fn holds_exclude_each_other_and_none_waits_for_ever(
        events in proptest::collection::vec(happens(), 0..60),
    ) {
        let mut store = Store::new();
        store.lease();
        let key = |number: u8| format!("k{number}").into_bytes();
        let mut open: BTreeMap<HoldId, (Vec<u8>, bool)> = BTreeMap::new();
        let mut had: Vec<HoldId> = vec![];
        let (mut newest, mut epoch) = (0, 10);
        for event in events {
            epoch += 1;
            match event {
                Happens::Asked(numbers) => {
                    newest += 1;
                    let names = numbers.iter().map(|number| format!("k{number}"));
                    let names: Vec<String> = names.collect();
                    let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
                    store.hold(newest, keys(&names));
                    open.insert(newest, (numbers, false));
                }
                Happens::Everything => {
                    newest += 1;
                    store.hold(newest, everything());
                    open.insert(newest, ((0..4).collect(), true));
                }
                Happens::Ends(at, is_known) => {
                    let nth = (!open.is_empty()).then(|| open.keys().nth(at % open.len())).flatten();
                    if let Some(id) = nth.copied() {
                        let end = if is_known { HoldEnd::Over } else { HoldEnd::Unknown };
                        let lingers = end == HoldEnd::Unknown && had.contains(&id);
                        store.end_hold(id, end);
                        if !lingers {
                            open.remove(&id);
                            had.retain(|other| *other != id);
                        }
                    }
                }
                Happens::Granted(number) => drop(store.grants(&key(number), epoch)),
                Happens::Acknowledged(number) => store.hand_in(ack(epoch, 0), &key(number)),
                Happens::Written(number) => drop(store.write(KEYED, 1, epoch, &key(number))),
            }
            had.extend(store.engine.take_held());
            for (at, first) in had.iter().enumerate() {
                let (held, _) = &open[first];
                for second in &had[at + 1..] {
                    let shared = open[second].0.iter().any(|number| held.contains(number));
                    prop_assert!(!shared, "{first} and {second}");
                }
                for number in held {
                    let id = (KEYED, SECRET.key_hash(KEYED, &key(*number)));
                    let copies = store.engine.facts.directory.copies_of(&id);
                    prop_assert!(copies.is_empty(), "a copy of {number}");
                }
            }
        }
        // A lease later nothing lingers, and no copy has a lease.
        let mut ms = 3 * store.engine.facts.leases.length_ns() / 1_000_000;
        while !open.is_empty() {
            store.tick(ms);
            // Less, over all, than after what one of everything is refused.
            ms += 10;
            had.extend(store.engine.take_held());
            prop_assert!(!had.is_empty(), "{} wait for ever", open.len());
            for id in had.drain(..) {
                let end_ns = LATER_NS + ms * 1_000_000;
                store.engine.end_hold(id, HoldEnd::Over, end_ns, &mut store.out);
                open.remove(&id);
            }
            had.extend(store.engine.take_held());
        }
        store.tick(ms);
        prop_assert_eq!(store.engine.facts.ledger.pending.all(), 0);
        prop_assert!(store.engine.facts.directory.is_settled());
    }
}
