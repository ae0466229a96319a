//! Tenants that are removed and are there again: what was decided for the one before stays decided.

use super::{
    remote::{BackendCall, RemoteBackend},
    *,
};
use crate::{
    backend::{Change, Completion, Item, ReadOutcome, Ticket},
    coherence::Watch,
    engine::{HoldEnd, HoldRequest},
};

/// The tenants of a store are others from now on.
pub fn update(store: &mut Store, tenants: Vec<wire::Tenant>) {
    let cluster = wire::Cluster { tenants, ..store.engine.facts.config.cluster.clone() };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    store.out.clear();
}

/// The tenant is removed, and made anew.
pub fn remove_and_create(store: &mut Store) {
    let with = store.engine.facts.config.cluster.tenants.clone();
    update(store, vec![]);
    update(store, with);
}

fn applied(store: &Store) -> u64 {
    store.engine.counters().write.writes_applied
}

#[test]
fn a_write_that_comes_again_after_its_tenant_was_made_anew_is_answered_again() {
    let mut store = Store::new();
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    remove_and_create(&mut store);
    assert_eq!(store.write(KEYED, 2, 1, b"k"), Some(Status::Ok), "somebody writes after it");
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    assert_eq!(applied(&store), 2);
    assert_eq!(store.write(KEYED, 1, 2, b"k"), Some(Status::Ok));
    assert_eq!(applied(&store), 3);
}

#[test]
fn a_write_that_waited_when_its_tenant_was_removed_is_in_doubt_afterwards() {
    let mut store = with_a_copy();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
    remove_and_create(&mut store);
    assert_eq!(store.write(KEYED, 1, 2, b"k"), Some(Status::BackendError));
    assert_eq!(store.write(KEYED, 1, 3, b"k"), None, "the copy is still called back");
    store.hand_in(ack(12, 10), b"k");
    let (bytes, _) = store.out.pop().expect("an answer");
    assert_eq!(Packet::decode(&bytes).unwrap().header.status, Status::Ok);
}

/// A store before a backend elsewhere, which has not answered a write of the tenant's key when the
/// tenant was removed and made anew.
fn with_a_write_at_the_backend() -> (Store, RemoteBackend, Ticket) {
    let mut store = Store::new();
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None);
    let ticket = backend.take_write();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for it");
    remove_and_create(&mut store);
    (store, backend, ticket)
}

/// A grant of the key is asked for; whether the reply to the read, which the backend answers with
/// nothing, is one.
fn is_granted(store: &mut Store, backend: &RemoteBackend, epoch: u64) -> bool {
    let fetch = Header {
        tenant: KEYED,
        epoch: Epoch::new(1, epoch),
        flags: Flags::GRANT,
        client: epoch,
        ..Header::new(Op::FetchRequest)
    };
    store.hand_in(fetch, b"k");
    let item = Item { value: b"v".to_vec(), version: 1, expiry_ms: 0 };
    let found = Completion::Get(backend.take_read(), ReadOutcome::Item(item));
    store.engine.complete(found, LATER_NS, &mut store.out);
    let (bytes, _) = store.out.pop().expect("an answer");
    Packet::decode(&bytes).unwrap().header.flags.has(Flags::GRANT)
}

#[test]
fn what_is_at_the_backend_when_its_tenant_goes_is_waited_for_by_the_tenant_that_is_made_anew() {
    let (mut store, backend, ticket) = with_a_write_at_the_backend();
    store.lease();
    assert!(!is_granted(&mut store, &backend, 10), "it may take place after what was read");
    assert_eq!(store.write(KEYED, 2, 1, b"k"), None);
    assert_eq!(backend.asked(), [], "one write at a time");
    store.engine.complete(Completion::Change(ticket, Change::Done(5)), LATER_NS, &mut store.out);
    let asked = backend.asked();
    let [BackendCall::Write(second, _)] = asked[..] else { panic!("the next: {asked:?}") };
    store.engine.complete(Completion::Change(second, Change::Done(6)), LATER_NS, &mut store.out);
    assert!(is_granted(&mut store, &backend, 11));
    assert_eq!(store.engine.facts.ledger.pending.all(), 0);
}

#[test]
fn a_write_that_fails_after_its_tenant_went_is_in_doubt_for_the_one_that_is_made_anew() {
    let (mut store, backend, ticket) = with_a_write_at_the_backend();
    store.engine.complete(Completion::Change(ticket, Change::Failed), LATER_NS, &mut store.out);
    // Also where the doubt was there before the tenant went.
    remove_and_create(&mut store);
    assert_eq!(store.write(KEYED, 2, 1, b"k"), None);
    assert_eq!(backend.asked(), [], "what failed may still take place");
    store.tick(store.engine.facts.leases.length_ns().div_ceil(1_000_000));
    let asked = backend.asked();
    let [BackendCall::Settle(_), BackendCall::Write(..)] = asked[..] else { panic!("{asked:?}") };
}

#[test]
fn copies_of_a_tenant_that_is_gone_are_called_back_and_waited_for() {
    let mut store = with_a_copy();
    remove_and_create(&mut store);
    assert_eq!(store.write(KEYED, 5, 1, b"k"), None, "the switch may not have heard of that");
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(applied(&store), 2);
    // Also where nobody writes any more.
    let mut store = with_a_copy();
    update(&mut store, vec![]);
    store.tick(1);
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.engine.facts.directory.copies(), 0);
    let id = (KEYED, SECRET.key_hash(KEYED, b"k"));
    assert_eq!(store.engine.facts.directory.find(&id), None, "nothing is left of it");
}

#[test]
fn a_command_that_is_carried_out_when_its_tenant_goes_has_its_keys_until_it_is_answered() {
    let mut store = with_a_copy();
    let names = [b"k", b"l"].map(|key| wire::backend_name(KEYED, key).unwrap()).to_vec();
    store.engine.hold(1, HoldRequest { names, everything: false }, LATER_NS, &mut store.out);
    assert_eq!(store.engine.take_held(), [0; 0], "its key has a copy");
    remove_and_create(&mut store);
    assert_eq!(store.engine.take_held(), [0; 0], "it still has");
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.engine.take_held(), [1]);
    remove_and_create(&mut store);
    assert_eq!(store.write(KEYED, 5, 1, b"k"), None);
    assert_eq!(store.write(KEYED, 5, 2, b"l"), None);
    let before = applied(&store);
    store.engine.end_hold(1, HoldEnd::Over, LATER_NS, &mut store.out);
    assert_eq!(applied(&store), before + 2);
    assert!(store.engine.facts.directory.is_settled());
}

/// Whoever writes by another way than the tenant's packets does not wait for its return.
#[test]
fn a_key_of_a_tenant_that_is_gone_is_held_until_its_copies_have_gone() {
    for secret in ["09", "08"] {
        let mut store = with_a_copy();
        let with = vec![wire::Tenant::new(KEYED, secret.repeat(16))];
        update(&mut store, vec![]);
        let names = vec![wire::backend_name(KEYED, b"k").unwrap()];
        store.engine.hold(1, HoldRequest { names, everything: false }, LATER_NS, &mut store.out);
        update(&mut store, with);
        assert_eq!(store.engine.take_held(), [0; 0], "a switch serves it");
        store.hand_in(ack(12, 10), b"k");
        assert_eq!(store.engine.take_held(), [1]);
        store.engine.end_hold(1, HoldEnd::Over, LATER_NS, &mut store.out);
        assert!(store.engine.facts.directory.is_settled());
    }
}

/// Before it takes writes nothing is held, and the cluster may be another one by then.
#[test]
fn a_hold_has_the_keys_of_the_tenants_that_are_there_when_it_begins() {
    let mut store = Store::new();
    let with = store.engine.facts.config.cluster.tenants.clone();
    let without = wire::Cluster { tenants: vec![], ..store.engine.facts.config.cluster.clone() };
    let cluster = wire::Cluster { tenants: with, ..without.clone() };
    store.engine.update(without, 1, &mut store.out).unwrap();
    // Nothing is left of them, and they are forgotten.
    let again = store.engine.facts.config.cluster.clone();
    store.engine.update(again, 1, &mut store.out).unwrap();
    let names = vec![wire::backend_name(KEYED, b"k").unwrap()];
    store.engine.hold(1, HoldRequest { names, everything: false }, 1, &mut store.out);
    store.engine.update(cluster, 1, &mut store.out).unwrap();
    store.tick(0);
    assert_eq!(store.engine.take_held(), [1]);
    assert_eq!(store.write(KEYED, 1, 1, b"k"), None, "it waits for the command");
}

#[test]
fn another_tenant_with_the_number_of_one_that_is_gone_has_writes_of_its_own() {
    let mut store = Store::new();
    assert_eq!(store.write(TENANT_OPEN, 1, 1, b"k"), Some(Status::Ok));
    let other = |id| wire::Tenant::new(id, "08".repeat(16));
    update(&mut store, vec![other(8)]);
    update(&mut store, vec![wire::Tenant::new(8, "07".repeat(16)), other(9)]);
    let ask = |store: &mut Store, tenant, secret: [u8; 16]| {
        let secret = Secret(secret);
        let key_hash = secret.key_hash(tenant, b"k");
        let header =
            Header { tenant, key_hash, client: 1, request: 1, ..Header::new(Op::WriteRequest) };
        let bytes = Packet::new(header, b"k", &[]).to_bytes(&secret).unwrap();
        let peer = Peer { address: store.client, local: None };
        store.out.clear();
        store.engine.receive(&bytes, peer, LATER_NS, &mut store.out);
        let (bytes, _) = store.out.pop().unwrap();
        Packet::decode(&bytes).unwrap().header.status
    };
    assert_eq!(ask(&mut store, 9, [8; 16]), Status::Ok);
    update(&mut store, vec![wire::Tenant::new(9, "07".repeat(16))]);
    assert_eq!(ask(&mut store, 9, [7; 16]), Status::Ok);
    assert_eq!(applied(&store), 3);
}

#[test]
fn what_a_tenant_that_is_gone_wrote_is_forgotten_when_nobody_sends_it_again() {
    let mut store = Store::new();
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    update(&mut store, vec![]);
    let until_ns = store.engine.facts.ledger.next_ns().expect("a time");
    assert!(store.engine.next_deadline_ns().is_some_and(|next_ns| next_ns <= until_ns));
    store.engine.tick(until_ns, &mut store.out);
    assert_eq!(store.engine.facts.ledger.clients.all().count(), 0);
    assert_eq!(store.engine.facts.ledger.next_ns(), None);
}

#[cfg(debug_assertions)]
#[test]
fn what_is_forgotten_with_a_tenant_is_noticed() {
    use holder::mutants::{
        Mutant::{DecidedForgotten, ForgottenWithTenant},
        is_noticed,
    };
    let again = a_write_that_comes_again_after_its_tenant_was_made_anew_is_answered_again;
    assert!(is_noticed(DecidedForgotten, again));
    for test in [
        copies_of_a_tenant_that_is_gone_are_called_back_and_waited_for,
        what_is_at_the_backend_when_its_tenant_goes_is_waited_for_by_the_tenant_that_is_made_anew,
        a_write_that_fails_after_its_tenant_went_is_in_doubt_for_the_one_that_is_made_anew,
        a_command_that_is_carried_out_when_its_tenant_goes_has_its_keys_until_it_is_answered,
    ] {
        assert!(is_noticed(ForgottenWithTenant, test));
    }
}
