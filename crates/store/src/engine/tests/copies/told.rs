//! Who is told of a write by a switch, who is not, who twice, and who is not to hold anything.

use wire::{Flags, Header, Op};

use super::stores::{Stores, address_of, client, node};
use crate::engine::tests::busy::make_busy;

/// How long the next write takes, in milliseconds.
fn write(stores: &mut Stores) -> u64 {
    let took_ms = stores.write();
    stores.run(20);
    took_ms
}

#[test]
fn a_store_that_no_switch_tells_is_waited_for_once() {
    let mut stores = Stores::holding();
    stores.updates[2] = 0;
    assert!(write(&mut stores) >= 5, "it might have been told");
    for _ in 0..5 {
        assert!(write(&mut stores) < 5);
    }
    assert_eq!(stores.counters(0).keys.invalidations, 6, "of the second only");
    assert_eq!(stores.counters(0).read.fetches, 2);
    stores.updates[2] = 1;
    assert!(write(&mut stores) < 5);
    assert_eq!(stores.counters(0).keys.invalidations, 7, "asked beside being told");
    for _ in 0..5 {
        assert!(write(&mut stores) < 5);
    }
    assert_eq!(stores.counters(0).keys.invalidations, 7, "told again");
    assert_eq!(stores.valid, [true; 3]);
}

#[test]
fn a_write_that_two_switches_tell_of_takes_one_epoch() {
    let mut stores = Stores::holding();
    stores.updates[1] = 2;
    let before = stores.epoch_of(1).unwrap();
    for _ in 0..10 {
        write(&mut stores);
    }
    let after = stores.epoch_of(1).unwrap();
    assert_eq!(after.number() - before.number(), 10);
    assert_eq!(stores.counters(1).replicas.replica_updates_again, 10);
    assert_eq!(stores.counters(0).keys.invalidations, 0);
    assert_eq!(stores.valid, [true; 3]);
}

#[test]
fn an_acknowledgement_that_is_repeated_ends_the_wait_as_the_first_would_have() {
    let mut stores = Stores::holding();
    let update = Header { client: 9, request: 1, node: node(1), ..Header::new(Op::ReplicaUpdate) };
    let acks: Vec<_> = (0..2).map(|_| stores.hand_in(1, update, b"8 bytes!", client())).collect();
    assert_eq!((acks[0].len(), &acks[0]), (1, &acks[1]));
    stores.run(1);
    // What H pushes meanwhile, for the write does not come, is served on.
    stores.run(20);
    assert_eq!(stores.status(1).valid, 1);
    assert_eq!(stores.hand_in(1, update, b"8 bytes!", client()), [[0u8; 0]; 0]);
    assert_eq!(stores.status(1).valid, 1);
    assert_eq!(stores.counters(1).replicas.replica_updates_again, 2);
}

#[test]
fn a_store_that_a_tenant_may_not_use_holds_nothing_of_it() {
    let mut stores = Stores::new();
    (0..3).for_each(|at| stores.limit(at, [0, 1]));
    stores.hold(1);
    let key = stores.key.clone();
    let held = stores.on(2, |engine, now_ns, out| {
        engine.at(now_ns, out, |engine| {
            engine.replicas.hold(&mut engine.facts, super::super::KEYED, &key)
        })
    });
    assert!(!held);
    // Its home refuses, too, whatever another build of that store asks for.
    let lease = Header {
        tenant: wire::TENANT_SYSTEM,
        epoch: wire::Epoch::new(node(2), 0),
        ..Header::new(Op::LeaseRequest)
    };
    stores.hand_in(0, lease, &[], address_of(2));
    let fetch = Header {
        epoch: wire::Epoch::new(node(2), 7),
        flags: Flags::GRANT,
        ..Header::new(Op::FetchRequest)
    };
    stores.hand_in(0, fetch, &[], address_of(2));
    assert_eq!(stores.counters(0).keys.grants_not_placed, 1);
}

#[test]
fn a_tenant_that_may_use_a_store_no_longer_is_held_there_no_longer() {
    let mut stores = Stores::holding();
    stores.limit(2, [0, 1]);
    assert_eq!(stores.status(2).keys, 0);
}

#[test]
fn a_tenant_that_has_no_room_anywhere_is_held_no_longer() {
    let mut stores = Stores::holding();
    stores.on(1, |engine, _, _| engine.place([(super::super::KEYED, 7)]));
    assert_eq!(stores.status(1).keys, 1);
    stores.on(1, |engine, _, _| engine.place([(9, 7)]));
    assert_eq!(stores.status(1), Default::default());
}

#[test]
fn a_value_that_comes_costs_what_a_write_costs() {
    let mut stores = Stores::new();
    stores.on(1, |engine, _, _| make_busy(engine, 10, 3));
    stores.write();
    stores.run(500);
    let served = |stores: &mut Stores| {
        let status = stores.on(1, |engine, now_ns, _| engine.status(now_ns));
        let partitions = status.partitions;
        partitions.iter().map(|p| p.served).sum::<u64>()
    };
    let before = served(&mut stores);
    stores.hold(1);
    stores.run(500);
    assert_eq!((stores.status(1).valid, served(&mut stores)), (1, before + 1));
    let read = Header { client: 55, request: 1, node: node(1), ..Header::new(Op::ReadRequest) };
    (0..4).for_each(|_| _ = stores.hand_in(1, read, &[], client()));
    assert_eq!(served(&mut stores), before + 5, "its queue is full");
    stores.begin_write(true);
    stores.run(30);
    assert_eq!(stores.status(1).valid, 0, "there is no time for it");
    assert!(stores.counters(1).requests.dropped_rate_limit > 0);
    stores.run(1_500);
    assert_eq!(stores.status(1).valid, 1);
}
