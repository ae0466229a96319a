//! Slots of a Redis Cluster that are not where the store is told of changes.

use holder::mutants::{Mutant, choose};

use super::{remote::RemoteBackend, *};
use crate::{
    backend::{Completion, Item, ReadOutcome},
    coherence::Watch,
};

/// A store whose backend is to tell of changes, or need not, and is being asked for a grant of a
/// key.
fn asked_for_grant(watch: Watch) -> (Store, RemoteBackend) {
    let mut store = Store::new();
    let backend = RemoteBackend::new(watch);
    store.engine.facts.backend = Box::new(backend.clone());
    store.lease().expect("a lease");
    store.engine.facts.outside.watches(watch);
    let fetch = Header {
        tenant: KEYED,
        epoch: Epoch::new(1, 10),
        flags: Flags::GRANT,
        ..Header::new(Op::FetchRequest)
    };
    store.hand_in(fetch, b"k");
    (store, backend)
}

/// Whether a switch is granted what the backend has read like this, where it is to tell of changes
/// or need not.
fn is_granted(watch: Watch, outcome: fn(Item<Vec<u8>>) -> ReadOutcome) -> bool {
    let (mut store, backend) = asked_for_grant(watch);
    let item = Item { value: b"v".to_vec(), version: 5, expiry_ms: 0 };
    let found = Completion::Get(backend.take_read(), outcome(item));
    store.engine.complete(found, LATER_NS, &mut store.out);
    let answers: Vec<Header> =
        store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header).collect();
    let answer = answers.iter().find(|header| header.status == Status::Ok).expect("it is answered");
    answer.flags.has(Flags::GRANT)
}

#[test]
fn what_was_read_where_nobody_tells_of_changes_is_not_granted() {
    choose(None);
    assert!(is_granted(Watch::Tracked, ReadOutcome::Item));
    assert!(!is_granted(Watch::Tracked, untold));
    assert!(is_granted(Watch::Unneeded, untold), "nobody else writes");
    choose(Some(Mutant::GrantedUntold));
    assert!(is_granted(Watch::Tracked, untold));
    choose(None);
}

fn untold(item: Item<Vec<u8>>) -> ReadOutcome {
    ReadOutcome::Untold(Some(item))
}

/// Two clients read a key, one after the other, while the backend is asked for a grant of it; it
/// answers as a server that does not tell of changes. The values that clients are told then, and
/// once the backend has answered the next question with another value.
fn told_to_those_who_joined() -> [Vec<Vec<u8>>; 2] {
    let (mut store, backend) = asked_for_grant(Watch::Tracked);
    store.engine.facts.outside.seen(LATER_NS);
    for request in 1..=2 {
        store.hand_in(Header { tenant: KEYED, request, ..Header::new(Op::ReadRequest) }, b"k");
    }
    let values = |store: &mut Store| -> Vec<Vec<u8>> {
        let sent: Vec<Vec<u8>> = store.sent().collect();
        let packets = sent.iter().map(|bytes| Packet::decode(bytes).expect("a packet"));
        let read = packets.filter(|packet| packet.header.op == Op::ReadReply);
        read.map(|packet| packet.value.to_vec()).collect()
    };
    values(&mut store);
    let mut answers = |value: &[u8]| {
        let item = Item { value: value.to_vec(), version: 5, expiry_ms: 0 };
        let found = Completion::Get(backend.take_read(), untold(item));
        store.engine.complete(found, LATER_NS, &mut store.out);
        let told = values(&mut store);
        (told, backend.count(|call| matches!(call, super::remote::BackendCall::Read(_))))
    };
    let (first, asked) = answers(b"old");
    let then = if asked > 0 { answers(b"new").0 } else { vec![] };
    [first, then]
}

/// Somebody may have written the key at the slot's new node after it had answered, and before the
/// clients asked.
#[test]
fn who_joined_a_question_is_not_answered_by_who_does_not_tell_of_changes() {
    choose(None);
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    assert_eq!(told_to_those_who_joined(), [vec![], vec![new.clone(), new]]);
    choose(Some(Mutant::JoinedUntold));
    assert_eq!(told_to_those_who_joined(), [vec![old.clone(), old], vec![]]);
    choose(None);
}
