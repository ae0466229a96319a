//! Who is told of a write by a switch, who is not, who twice, and who is not to hold anything.

use wire::{Flags, Header, Op};

use super::{
    MS, READY_NS, holding,
    world::{ClientOp, World, address_of, node},
};
use crate::engine::tests::busy::make_busy;

/// How long the next write takes, in milliseconds.
fn write(world: &mut World) -> u64 {
    let before_ns = world.now_ns;
    world.call(0, ClientOp::Write);
    while !world.is_free(0) {
        let next_ns = world.now_ns + MS / 4;
        world.run_until(next_ns);
    }
    let took_ms = (world.now_ns - before_ns) / MS;
    world.run(20);
    took_ms
}

#[test]
fn a_store_that_no_switch_tells_is_waited_for_once() {
    let mut world = holding(2, 1);
    world.slow = false;
    world.updates[2] = 0;
    assert!(write(&mut world) >= 5, "it might have been told");
    for _ in 0..5 {
        assert!(write(&mut world) < 5);
    }
    assert_eq!(world.counters(0).keys.invalidations, 6, "of the second only");
    assert_eq!(world.counters(0).read.fetches, 2);
    world.updates[2] = 1;
    assert!(write(&mut world) < 5);
    assert_eq!(world.counters(0).keys.invalidations, 7, "asked beside being told");
    for _ in 0..5 {
        assert!(write(&mut world) < 5);
    }
    assert_eq!(world.counters(0).keys.invalidations, 7, "told again");
    assert_eq!(world.valid, [true; 3]);
    world.judge().unwrap();
}

#[test]
fn a_write_that_two_switches_tell_of_takes_one_epoch() {
    let mut world = holding(2, 1);
    world.updates[1] = 2;
    let before = world.epoch_of(1).unwrap();
    for _ in 0..10 {
        write(&mut world);
    }
    let after = world.epoch_of(1).unwrap();
    assert_eq!(after.number() - before.number(), 10);
    assert_eq!(world.counters(1).replicas.replica_updates_again, 10);
    assert_eq!(world.counters(0).keys.invalidations, 0);
    assert_eq!(world.valid, [true; 3]);
    world.judge().unwrap();
}

#[test]
fn an_acknowledgement_that_is_repeated_ends_the_wait_as_the_first_would_have() {
    let mut world = holding(2, 1);
    let update = Header { client: 9, request: 1, node: node(1), ..Header::new(Op::ReplicaUpdate) };
    let client = "10.0.1.9:5000".parse().unwrap();
    let acks: Vec<_> = (0..2).map(|_| world.hand_in(1, update, b"8 bytes!", client)).collect();
    assert_eq!((acks[0].len(), &acks[0]), (1, &acks[1]));
    world.run(1);
    // What H pushes meanwhile, for the write does not come, is served on.
    world.run(20);
    assert_eq!(world.status(1).valid, 1);
    assert_eq!(world.hand_in(1, update, b"8 bytes!", client), [[0u8; 0]; 0]);
    assert_eq!(world.status(1).valid, 1);
    assert_eq!(world.counters(1).replicas.replica_updates_again, 2);
}

#[test]
fn a_store_that_a_tenant_may_not_use_holds_nothing_of_it() {
    let mut world = World::new(3, 1);
    for at in 0..3 {
        world.on(at, |engine, now_ns, out| {
            let mut cluster = engine.facts.config.cluster.clone();
            let tenant = cluster.tenants.last_mut().unwrap();
            tenant.stores = vec![address_of(0), address_of(1)];
            engine.update(cluster, now_ns, out).unwrap();
        });
    }
    world.run_until(READY_NS);
    world.hold(1);
    let key = world.key.clone();
    let held = world.on(2, |engine, now_ns, out| {
        engine.at(now_ns, out, |engine| {
            engine.replicas.hold(&mut engine.facts, super::super::KEYED, &key)
        })
    });
    assert_eq!(held, Some(false));
    // Its home refuses, too, whatever another build of that store asks for.
    let lease = Header {
        tenant: wire::TENANT_SYSTEM,
        epoch: wire::Epoch::new(node(2), 0),
        ..Header::new(Op::LeaseRequest)
    };
    world.hand_in(0, lease, &[], address_of(2));
    let fetch = Header {
        epoch: wire::Epoch::new(node(2), 7),
        flags: Flags::GRANT,
        ..Header::new(Op::FetchRequest)
    };
    world.hand_in(0, fetch, &[], address_of(2));
    assert_eq!(world.counters(0).keys.grants_not_placed, 1);
}

#[test]
fn a_tenant_that_may_use_a_store_no_longer_is_held_there_no_longer() {
    let mut world = holding(3, 1);
    world.on(2, |engine, now_ns, out| {
        let mut cluster = engine.facts.config.cluster.clone();
        let tenant = cluster.tenants.last_mut().unwrap();
        tenant.stores = vec![address_of(0), address_of(1)];
        engine.update(cluster, now_ns, out).unwrap();
    });
    assert_eq!(world.status(2).keys, 0);
}

#[test]
fn a_tenant_that_has_no_room_anywhere_is_held_no_longer() {
    let mut world = holding(3, 1);
    world.on(1, |engine, _, _| engine.place([(super::super::KEYED, 7)]));
    assert_eq!(world.status(1).keys, 1);
    world.on(1, |engine, _, _| engine.place([(9, 7)]));
    assert_eq!(world.status(1), Default::default());
}

#[test]
fn a_value_that_comes_costs_what_a_write_costs() {
    let mut world = World::new(4, 1);
    world.run_until(READY_NS);
    world.on(1, |engine, _, _| make_busy(engine, 10, 3));
    world.call(0, ClientOp::Write);
    world.run(500);
    assert!(world.is_free(0));
    let served = |world: &mut World| {
        let status = world.on(1, |engine, now_ns, _| engine.status(now_ns));
        let partitions = status.unwrap().partitions;
        partitions.iter().map(|p| p.served).sum::<u64>()
    };
    let before = served(&mut world);
    world.hold(1);
    world.run(500);
    assert_eq!((world.status(1).valid, served(&mut world)), (1, before + 1));
    let read = Header { client: 55, request: 1, node: node(1), ..Header::new(Op::ReadRequest) };
    let client = "10.0.1.9:5000".parse().unwrap();
    (0..4).for_each(|_| _ = world.hand_in(1, read, &[], client));
    assert_eq!(served(&mut world), before + 5, "its queue is full");
    world.call(0, ClientOp::WriteAround);
    world.run(30);
    assert_eq!(world.status(1).valid, 0, "there is no time for it");
    assert!(world.counters(1).requests.dropped_rate_limit > 0);
    world.run(1_500);
    assert_eq!(world.status(1).valid, 1);
}
