//! Writes of which a backend elsewhere has not said whether they took place.

use super::{
    remote::{BackendCall, RemoteBackend},
    *,
};
use crate::{
    backend::{Change, Completion, Refusal},
    coherence::Watch,
};

/// A store before a backend elsewhere, which said of a first write that it failed, at [`LATER_NS`].
fn in_doubt() -> (Store, RemoteBackend) {
    after(Change::Failed)
}

/// Likewise, or something else.
fn after(change: Change) -> (Store, RemoteBackend) {
    let mut store = Store::new();
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None);
    let [BackendCall::Write(ticket, _)] = backend.asked()[..] else {
        panic!("one write");
    };
    store.engine.complete(Completion::Change(ticket, change), LATER_NS, &mut store.out);
    let (bytes, _) = store.out.pop().expect("an answer");
    assert_eq!(Packet::decode(&bytes).unwrap().header.status, Status::BackendError);
    (store, backend)
}

/// Milliseconds after which a write that failed can no longer take place: a lease.
fn doubt_ms(store: &Store) -> u64 {
    store.engine.facts.leases.length_ns().div_ceil(1_000_000)
}

#[test]
fn a_write_waits_until_the_one_before_it_can_no_longer_take_place() {
    let (mut store, backend) = in_doubt();
    let doubt_ms = doubt_ms(&store);
    assert_eq!(store.write(KEYED, 2, 1, b"k"), None);
    let delete = Header { tenant: KEYED, client: 3, ..Header::new(Op::DeleteRequest) };
    assert_eq!(store.ask(delete, b"k"), None);
    // What is there may be read, and other keys written.
    store.hand_in(Header { tenant: KEYED, ..Header::new(Op::ReadRequest) }, b"k");
    assert!(matches!(backend.asked()[..], [BackendCall::Read(_)]));
    assert_eq!(store.write(KEYED, 2, 2, b"other"), None);
    assert!(matches!(backend.asked()[..], [BackendCall::Write(..)]));
    store.tick(doubt_ms - 1);
    assert_eq!(backend.asked(), [], "it may still take place, over what was answered since");
    store.tick(doubt_ms);
    let [BackendCall::Settle(settled), BackendCall::Write(ticket, version)] = backend.asked()[..]
    else {
        panic!("one write at a time, and the version before it");
    };
    assert!(settled < version);
    let done = Completion::Change(ticket, Change::Done(5));
    store.engine.complete(done, LATER_NS + doubt_ms * 1_000_000, &mut store.out);
    assert!(matches!(backend.asked()[..], [BackendCall::Write(..)]), "the next at once");
    assert_eq!(store.engine.counters().requests.backend_errors, 1);
}

#[test]
fn what_is_there_after_a_doubt_has_a_version_of_its_own_though_nobody_writes() {
    let (mut store, backend) = in_doubt();
    let doubt_ms = doubt_ms(&store);
    for ms in [1, doubt_ms - 1, doubt_ms, doubt_ms + 1, 2 * doubt_ms] {
        store.tick(ms);
        let settled = matches!(backend.asked()[..], [BackendCall::Settle(_)]);
        assert_eq!(settled, ms == doubt_ms, "{ms} ms");
    }
    let id = (KEYED, SECRET.key_hash(KEYED, b"k"));
    assert_eq!(store.engine.facts.directory.find(&id), None, "nothing is left of it");
}

#[test]
fn a_write_waits_no_longer_once_the_one_before_it_is_known_to_be_over() {
    let (mut store, backend) = in_doubt();
    assert_eq!(store.write(KEYED, 2, 1, b"k"), None);
    assert_eq!(backend.asked(), []);
    store.engine.complete(Completion::Settled, LATER_NS + 1, &mut store.out);
    let [BackendCall::Settle(settled), BackendCall::Write(ticket, version)] = backend.asked()[..]
    else {
        panic!("the write, and before it a version for what is there");
    };
    assert!(settled < version);
    // A failure that comes later is another doubt.
    store.engine.complete(Completion::Change(ticket, Change::Failed), LATER_NS + 2, &mut store.out);
    assert_eq!(store.write(KEYED, 2, 2, b"k"), None);
    assert_eq!(backend.asked(), []);
}

#[test]
fn a_write_that_the_backend_refused_leaves_no_doubt() {
    let (mut store, backend) = after(Change::Refused(Refusal::new("OOM no room")));
    assert_eq!(store.write(KEYED, 2, 1, b"k"), None);
    assert!(matches!(backend.asked()[..], [BackendCall::Write(..)]));
}
