//! Slots of a Redis Cluster that are not where the store is told of changes.

use holder::mutants::{Mutant, choose};

use super::{remote::RemoteBackend, *};
use crate::{
    backend::{Completion, Item, ReadOutcome},
    coherence::Watch,
};

/// Whether a switch is granted what the backend has read like this, where it is to tell of changes
/// or need not.
fn is_granted(watch: Watch, outcome: fn(Item<Vec<u8>>) -> ReadOutcome) -> bool {
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
    assert!(!is_granted(Watch::Tracked, ReadOutcome::Untold));
    assert!(is_granted(Watch::Unneeded, ReadOutcome::Untold), "nobody else writes");
    choose(Some(Mutant::GrantedUntold));
    assert!(is_granted(Watch::Tracked, ReadOutcome::Untold));
    choose(None);
}
