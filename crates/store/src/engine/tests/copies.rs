//! Copies in other stores: the whole way, and what a store answers from them.

mod hostile;
mod stores;
mod told;

use wire::{Flags, Header, Op, Packet};

use stores::{Stores, address_of, client, node};

const MS: u64 = 1_000_000;

#[test]
fn what_is_held_is_pulled_confirmed_and_read_and_pushed_again_after_a_write() {
    let mut stores = Stores::holding();
    assert_eq!(stores.valid, [true; 3]);
    (0..3).for_each(|at| assert_eq!(stores.read(at), Some(1)));
    assert_eq!(stores.counters(1).replicas.replica_reads_passed, 0);
    assert_eq!(stores.counters(0).read.fetches, 2, "one each");

    let newest = stores.begin_write(false);
    assert_eq!(stores.valid, [true, false, false], "at once");
    stores.run(3);
    assert_eq!(stores.valid, [true; 3], "pushed");
    assert_eq!(stores.counters(0).keys.invalidations, 0, "they were told");
    assert_eq!((stores.counters(0).read.fetches, stores.counters(0).keys.pushes), (2, 2));
    (0..3).for_each(|at| assert_eq!(stores.read(at), Some(newest)));
    let status = stores.status(2);
    assert_eq!((status.keys, status.valid, status.no_room), (1, 1, 0));
}

#[test]
fn a_write_past_the_switch_is_waited_for_and_pushed() {
    let mut stores = Stores::holding();
    for _ in 0..20 {
        let newest = stores.begin_write(true);
        stores.run(4);
        (0..3).for_each(|at| assert_eq!(stores.read(at), Some(newest)));
    }
    assert_eq!(stores.counters(0).keys.invalidations, 40, "one each, each time");
    let passed = |at| stores.counters(at).replicas.replica_reads_passed;
    assert_eq!((passed(1), passed(2)), (0, 0));
}

#[test]
fn a_store_that_is_cut_off_serves_no_longer_than_its_lease_and_nothing_of_before_after_it() {
    let mut stores = Stores::holding();
    stores.cut = vec![(0, 1)];
    let newest = stores.begin_write(true);
    let mut old = 0;
    while !stores.is_answered(newest) {
        old += usize::from(stores.read(1) == Some(1));
    }
    assert!(old > 0, "it waits for the lease");
    (0..300).for_each(|_| assert_eq!(stores.read(1), None));
    stores.cut.clear();
    (0..700).for_each(|_| assert_ne!(stores.read(1), Some(1)));
    assert_eq!((stores.status(1).valid, stores.read(1)), (1, Some(newest)), "again");
}

#[test]
fn two_stores_that_claim_one_number_get_one_lease() {
    let mut stores = Stores::holding();
    let before = stores.counters(0);
    let stranger = address_of(2);
    let lease = Header {
        tenant: wire::TENANT_SYSTEM,
        epoch: wire::Epoch::new(node(1), 0),
        ..Header::new(Op::LeaseRequest)
    };
    stores.hand_in(0, lease, &[], stranger);
    let ack = Header {
        epoch: wire::Epoch::new(node(1), wire::Epoch::MAX_NUMBER),
        flags: Flags::GRANT,
        ..Header::new(Op::InvalidateAck)
    };
    stores.hand_in(0, ack, &[], stranger);
    let after = stores.counters(0);
    assert_eq!(after.leases.dropped_lease_auth, before.leases.dropped_lease_auth + 1);
    assert_eq!(after.replicas.dropped_replica, before.replicas.dropped_replica + 1);
    assert_eq!(after.leases.leases_granted, before.leases.leases_granted);
}

#[test]
fn a_late_or_doubled_push_is_ignored() {
    let mut stores = Stores::holding();
    let epoch = stores.epoch_of(1).unwrap();
    let push =
        |epoch| Header { epoch, version: 9, flags: Flags::GRANT, ..Header::new(Op::ReplicaPush) };
    stores.hand_in(1, push(epoch), b"doubled!", address_of(0));
    let newest = stores.begin_write(false);
    stores.run(20);
    stores.hand_in(1, push(epoch), b"too late", address_of(0));
    assert_eq!(stores.counters(1).replicas.replica_grants_stale, 2);
    let forged = wire::Epoch::new(node(2), 1);
    stores.hand_in(1, push(forged), b"another's", address_of(0));
    stores.hand_in(1, push(epoch), b"stranger", address_of(2));
    assert_eq!(stores.counters(1).replicas.dropped_replica, 2);
    assert_eq!(stores.read(1), Some(newest));
}

/// The same read of a store that holds a copy, and what it answers at once.
fn read_at(stores: &mut Stores, at: usize, part: u16, total: u32, version: u64) -> Option<Vec<u8>> {
    let read = Header {
        client: 55,
        request: 1 + u64::from(part),
        node: node(at),
        part,
        total,
        version,
        ..Header::new(Op::ReadRequest)
    };
    let sent = stores.hand_in(at, read, &[], client());
    let is_reply = |bytes: &&Vec<u8>| Packet::decode(bytes).unwrap().header.op == Op::ReadReply;
    sent.iter().find(is_reply).cloned()
}

#[test]
fn a_value_of_many_parts_is_copied_whole_whatever_gets_lost() {
    for loses in [0, 7] {
        let mut stores = Stores::new();
        let value: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
        stores.put(value.clone(), 0);
        stores.loses = loses;
        stores.hold(1);
        stores.run(if loses == 0 { 30 } else { 3_000 });
        let status = stores.status(1);
        assert_eq!((status.valid, status.no_room), (1, 0));
        assert!(status.bytes > 100_000, "{}", status.bytes);
        let reply = read_at(&mut stores, 1, 0, 0, 0).unwrap();
        let first = Packet::decode(&reply).unwrap();
        assert_eq!((first.header.node, first.header.life), (node(1), 0));
        let (total, version) = (first.header.total, first.header.version);
        let mut whole = first.value.to_vec();
        while whole.len() < total as usize {
            let part = (whole.len() / wire::PART) as u16;
            let reply = read_at(&mut stores, 1, part, total, version).unwrap();
            let packet = Packet::decode(&reply).unwrap();
            assert_eq!(packet.header.version, version);
            whole.extend_from_slice(packet.value);
        }
        assert_eq!(whole, value);
        assert_eq!(stores.counters(1).replicas.replica_reads_passed, 0);
    }
}

#[test]
fn a_part_of_a_copy_that_is_not_valid_is_read_at_home() {
    let mut stores = Stores::new();
    stores.put(vec![9; 5000], 0);
    assert_eq!(read_at(&mut stores, 1, 4, 5000, 77), None, "passed on");
    stores.run(5);
    assert_eq!(stores.counters(1).replicas.replica_reads_passed, 1);
    assert_eq!(stores.counters(0).read.reads_parts, 1);
    assert_eq!(stores.status(1), Default::default(), "nothing is held for it");
    stores.cut = vec![(0, 1)];
    for _ in 0..3 {
        assert_eq!(read_at(&mut stores, 1, 4, 5000, 77), None);
    }
    assert_eq!(stores.waiting_reads(1), 3);
    stores.run(1_100);
    assert_eq!(stores.waiting_reads(1), 0, "forgotten");
}

#[test]
fn parts_of_a_copy_that_fits_a_packet_are_read_at_home() {
    let mut stores = Stores::new();
    stores.put(vec![9; 1300], 0);
    stores.hold(1);
    stores.run(30);
    let whole = read_at(&mut stores, 1, 0, 0, 0).expect("at once");
    let version = Packet::decode(&whole).unwrap().header.version;
    for (passed, (part, total, version)) in
        [(0, 1, wire::VERSION_PRESENT), (4, 1300, version)].into_iter().enumerate()
    {
        assert_eq!(read_at(&mut stores, 1, part, total, version), None);
        stores.run(5);
        assert_eq!(stores.counters(1).replicas.replica_reads_passed, passed as u64 + 1);
        assert_eq!(stores.counters(0).read.reads_parts, passed as u64 + 1);
    }
    assert_eq!(stores.waiting_reads(1), 0, "answered");
    assert_eq!(stores.counters(1).replicas.replica_reads_lost, 0);
}

#[test]
fn a_copy_lives_no_longer_than_its_value() {
    let mut stores = Stores::new();
    stores.put(vec![1; 20], 500);
    stores.hold(1);
    stores.run(10);
    let reply = read_at(&mut stores, 1, 0, 0, 0).unwrap();
    let left_ms = Packet::decode(&reply).unwrap().header.expiry_ms;
    assert!((400..500).contains(&left_ms), "{left_ms}");
    stores.run(500);
    assert_eq!(read_at(&mut stores, 1, 0, 0, 0), None, "passed on");
    assert_eq!(stores.status(1).valid, 0);
    stores.put(vec![2; 20], 0);
    stores.run(1_200);
    assert_eq!(stores.status(1).valid, 1, "asked for again");
}

#[test]
fn without_room_a_key_is_held_without_a_value_and_nobody_is_told() {
    let mut stores = Stores::with_config(|config| config.replica_memory = 1000);
    stores.put(vec![1; 900], 0);
    stores.hold(1);
    stores.run(50);
    let status = stores.status(1);
    assert_eq!((status.keys, status.valid, status.no_room), (1, 0, 1));
    assert!(!stores.valid[1]);
    assert_eq!(stores.counters(1).replicas.replica_confirms, 0);
    assert_eq!(read_at(&mut stores, 1, 0, 0, 0), None, "passed on");
    stores.put(vec![1; 90], 0);
    stores.run(1_500);
    assert_eq!(stores.status(1).valid, 1, "there is room for this");
}

#[test]
fn what_a_tenant_had_is_gone_with_it() {
    let mut stores = Stores::holding();
    stores.on(1, |engine, now_ns, out| {
        let mut cluster = engine.facts.config.cluster.clone();
        cluster.tenants.clear();
        engine.update(cluster, now_ns, out).unwrap();
    });
    assert_eq!(stores.status(1), Default::default());
}
