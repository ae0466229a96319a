//! Tenants that want everything: what the others have stays theirs.

use super::{busy::make_busy, *};

/// A read of a tenant's key that passed switch 1.
fn asked_through_a_switch(tenant: u32) -> Header {
    Header { tenant, epoch: Epoch::new(1, 10), flags: Flags::GRANT, ..Header::new(Op::ReadRequest) }
}

fn is_granted(store: &mut Store, tenant: u32, key: &[u8]) -> bool {
    store.write(tenant, 1, u64::from(key[0]) << 8 | 1, key);
    let reply = store.ask(asked_through_a_switch(tenant), key);
    reply.is_some_and(|reply| reply.flags.has(Flags::GRANT))
}

#[test]
fn a_tenant_that_fills_the_directory_recalls_its_own_copies_only() {
    let mut store = Store::with(|config| config.directory_limit = 400);
    store.lease().expect("a lease");
    let mine: Vec<[u8; 2]> = (0..100).map(|n| [n, 1]).collect();
    for key in &mine[..50] {
        assert!(is_granted(&mut store, KEYED, key));
    }
    for n in 0..2000u32 {
        store.hand_in(asked_through_a_switch(TENANT_OPEN), &n.to_be_bytes());
        for bytes in store.sent() {
            let packet = Packet::decode(&bytes).unwrap();
            let recalled = packet.header.op == Op::Invalidate;
            assert!(!recalled || packet.header.tenant == TENANT_OPEN);
        }
    }
    assert!(store.engine.counters().keys.grants_directory_full > 0);
    assert!(store.engine.counters().keys.directory_evictions > 0);
    for key in &mine[50..] {
        assert!(is_granted(&mut store, KEYED, key), "its share is a hundred");
    }
}

#[test]
fn a_tenant_that_comes_later_gets_its_share_from_whoever_took_all() {
    let mut tenants = vec![];
    let mut store = Store::with(|config| {
        config.directory_limit = 400;
        tenants = std::mem::take(&mut config.cluster.tenants);
    });
    store.lease().expect("a lease");
    for n in 0..400u32 {
        store.hand_in(asked_through_a_switch(TENANT_OPEN), &n.to_be_bytes());
    }
    assert_eq!(store.engine.facts.directory.copies(), 400, "it was alone");
    let cluster = wire::Cluster { tenants, ..store.engine.facts.config.cluster.clone() };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    for n in 0..100u8 {
        store.write(KEYED, 1, u64::from(n) + 1, &[n]);
        let mut ask = || {
            store.hand_in(asked_through_a_switch(KEYED), &[n]);
            let mut granted = false;
            for bytes in store.sent().collect::<Vec<_>>() {
                let Packet { header, key, .. } = Packet::decode(&bytes).unwrap();
                granted |= header.flags.has(Flags::GRANT);
                if header.op == Op::Invalidate {
                    assert_eq!(header.tenant, TENANT_OPEN);
                    let called_back =
                        Header { epoch: Epoch::new(1, 11), ..Header::new(Op::InvalidateAck) };
                    store.hand_in(called_back, key);
                }
            }
            granted
        };
        assert!(ask() || ask(), "copy {n} of the hundred that are its share");
    }
}

#[test]
fn a_tenant_whose_writes_wait_leaves_room_for_the_others() {
    let mut store = Store::new();
    store.lease().expect("a lease");
    let mut last = None;
    for n in 0..=MAX_WAITING as u32 / 64 {
        store.hand_in(asked_through_a_switch(TENANT_OPEN), &n.to_be_bytes());
        for request in 0..64 {
            last = store.write(TENANT_OPEN, u64::from(n), request, &n.to_be_bytes());
        }
    }
    assert_eq!(last, Some(Status::TryAgain), "it has all that it gets");
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
}

#[test]
fn copies_are_granted_where_the_controller_has_placed_the_tenant_only() {
    let mut store = Store::new();
    store.lease().expect("a lease");
    store.engine.place([(TENANT_OPEN, 1), (KEYED, 2)]);
    assert!(is_granted(&mut store, TENANT_OPEN, b"a"));
    assert!(!is_granted(&mut store, KEYED, b"b"));
    assert_eq!(store.engine.counters().keys.grants_not_placed, 1);
    let fetch = Header { op: Op::FetchRequest, ..asked_through_a_switch(KEYED) };
    let fetched = store.ask(fetch, b"b").expect("the value");
    assert!(!fetched.flags.has(Flags::GRANT));
    let write = Header { request: 7, op: Op::WriteRequest, ..asked_through_a_switch(KEYED) };
    let written = store.ask(write, b"b").expect("written");
    assert!(!written.flags.has(Flags::GRANT));
    assert_eq!(store.engine.facts.directory.copies(), 1);
}

#[test]
fn fetches_cost_what_reads_cost() {
    for op in [Op::ReadRequest, Op::FetchRequest] {
        let mut store = Store::with(|_| {});
        make_busy(&mut store.engine, 100, 3);
        store.lease().expect("a lease");
        for _ in 0..20 {
            store.hand_in(Header { op, ..asked_through_a_switch(KEYED) }, b"k");
        }
        assert_eq!(store.engine.counters().requests.dropped_rate_limit, 16, "{op:?}");
    }
}
