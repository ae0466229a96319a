//! Tenants that are removed and are there again: what was decided for the one before stays decided.

use super::*;

/// The tenants of a store are others from now on.
fn update(store: &mut Store, tenants: Vec<wire::Tenant>) {
    let cluster = wire::Cluster { tenants, ..store.engine.facts.config.cluster.clone() };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    store.out.clear();
}

/// The tenant is removed, and made anew.
fn remove_and_create(store: &mut Store) {
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
    assert_eq!(store.write(KEYED, 1, 3, b"k"), Some(Status::Ok));
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
