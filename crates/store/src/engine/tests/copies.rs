//! Copies in other stores: the whole way, and whatever a network does to it.

mod clients;
mod hostile;
mod slow;
mod told;
mod world;

use wire::{Flags, Header, Op, Packet};

use world::{ClientOp, Faults, STORES, World, address_of, node};

const MS: u64 = 1_000_000;
/// The wait of stores after their start is over then.
const READY_NS: u64 = 1_100 * MS;

/// A world in which both others hold the key, which has a value.
fn holding(seed: u64, clients: usize) -> World {
    let mut world = World::new(seed, clients);
    world.run_until(READY_NS);
    world.call(0, ClientOp::Write);
    world.run(20);
    assert!(world.is_free(0));
    world.hold(1);
    world.hold(2);
    world.run(20);
    world
}

#[test]
fn what_is_held_is_pulled_confirmed_and_read_and_pushed_again_after_a_write() {
    let mut world = holding(1, 1);
    assert_eq!(world.valid, [true; 3]);
    for _ in 0..30 {
        world.call(0, ClientOp::Read);
        world.run(2);
    }
    assert!(world.redirected > 10, "{}", world.redirected);
    assert_eq!(world.counters(1).replicas.replica_reads_passed, 0);
    assert_eq!(world.counters(0).read.fetches, 2, "one each");

    world.call(0, ClientOp::Write);
    assert_eq!(world.valid, [true, false, false], "at once");
    world.run(3);
    assert_eq!(world.valid, [true; 3], "pushed");
    assert_eq!(world.counters(0).keys.invalidations, 0, "they were told");
    assert_eq!((world.counters(0).read.fetches, world.counters(0).keys.pushes), (2, 2));
    for _ in 0..30 {
        world.call(0, ClientOp::Read);
        world.run(2);
    }
    world.judge().unwrap();
    let status = world.status(2);
    assert_eq!((status.keys, status.valid, status.no_room), (1, 1, 0));
}

#[test]
fn a_write_past_the_switch_is_waited_for_and_pushed() {
    let mut world = holding(2, 1);
    for _ in 0..20 {
        world.call(0, ClientOp::WriteAround);
        world.run(4);
        world.call(0, ClientOp::Read);
        world.run(4);
    }
    assert_eq!(world.counters(0).keys.invalidations, 40, "one each, each time");
    assert!(world.redirected > 5);
    world.judge().unwrap();
}

#[test]
fn a_store_that_is_cut_off_serves_no_longer_than_its_lease_and_nothing_of_before_after_it() {
    let mut world = holding(3, 2);
    world.cut = vec![(0, 1)];
    world.call(0, ClientOp::WriteAround);
    while !world.is_free(0) {
        world.run(1);
        if world.is_free(1) {
            world.call(1, ClientOp::Read);
        }
    }
    for _ in 0..300 {
        if world.is_free(1) {
            world.call(1, ClientOp::Read);
        }
        world.run(2);
    }
    world.cut.clear();
    for _ in 0..300 {
        if world.is_free(1) {
            world.call(1, ClientOp::Read);
        }
        world.run(2);
    }
    assert_eq!(world.status(1).valid, 1, "again");
    world.judge().unwrap();
}

#[test]
fn two_stores_that_claim_one_number_get_one_lease() {
    let mut world = holding(4, 1);
    let before = world.counters(0);
    let stranger = address_of(2);
    let lease = Header {
        tenant: wire::TENANT_SYSTEM,
        epoch: wire::Epoch::new(node(1), 0),
        ..Header::new(Op::LeaseRequest)
    };
    world.hand_in(0, lease, &[], stranger);
    let ack = Header {
        epoch: wire::Epoch::new(node(1), wire::Epoch::MAX_NUMBER),
        flags: Flags::GRANT,
        ..Header::new(Op::InvalidateAck)
    };
    world.hand_in(0, ack, &[], stranger);
    let after = world.counters(0);
    assert_eq!(after.leases.dropped_lease_auth, before.leases.dropped_lease_auth + 1);
    assert_eq!(after.replicas.dropped_replica, before.replicas.dropped_replica + 1);
    assert_eq!(after.leases.leases_granted, before.leases.leases_granted);
}

#[test]
fn a_late_or_doubled_push_is_ignored() {
    let mut world = holding(5, 1);
    let epoch = world.epoch_of(1).unwrap();
    let push =
        |epoch| Header { epoch, version: 9, flags: Flags::GRANT, ..Header::new(Op::ReplicaPush) };
    world.hand_in(1, push(epoch), b"doubled!", address_of(0));
    world.call(0, ClientOp::Write);
    world.run(20);
    world.hand_in(1, push(epoch), b"too late", address_of(0));
    assert_eq!(world.counters(1).replicas.replica_grants_stale, 2);
    let forged = wire::Epoch::new(node(2), 1);
    world.hand_in(1, push(forged), b"another's", address_of(0));
    world.hand_in(1, push(epoch), b"stranger", address_of(2));
    assert_eq!(world.counters(1).replicas.dropped_replica, 2);
    for _ in 0..20 {
        world.call(0, ClientOp::Read);
        world.run(2);
    }
    world.judge().unwrap();
}

/// The same read of a store that holds a copy, and what it answers at once.
fn read_at(world: &mut World, at: usize, part: u16, total: u32, version: u64) -> Option<Vec<u8>> {
    let read = Header {
        client: 55,
        request: 1 + u64::from(part),
        node: node(at),
        part,
        total,
        version,
        ..Header::new(Op::ReadRequest)
    };
    let client = "10.0.1.9:5000".parse().unwrap();
    let sent = world.hand_in(at, read, &[], client);
    let is_reply = |bytes: &&Vec<u8>| Packet::decode(bytes).unwrap().header.op == Op::ReadReply;
    sent.iter().find(is_reply).cloned()
}

#[test]
fn a_value_of_many_parts_is_copied_whole_whatever_gets_lost() {
    for lose in [0, 200] {
        let mut world = World::new(7, 1);
        world.run_until(READY_NS);
        let value: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
        world.put(0, value.clone(), 0);
        world.faults.lose = lose;
        world.hold(1);
        world.run(if lose == 0 { 30 } else { 3_000 });
        let status = world.status(1);
        assert_eq!((status.valid, status.no_room), (1, 0));
        assert!(status.bytes > 100_000, "{}", status.bytes);
        let reply = read_at(&mut world, 1, 0, 0, 0).unwrap();
        let first = Packet::decode(&reply).unwrap();
        assert_eq!((first.header.node, first.header.life), (node(1), 0));
        let (total, version) = (first.header.total, first.header.version);
        let mut whole = first.value.to_vec();
        while whole.len() < total as usize {
            let part = (whole.len() / wire::PART) as u16;
            let reply = read_at(&mut world, 1, part, total, version).unwrap();
            let packet = Packet::decode(&reply).unwrap();
            assert_eq!(packet.header.version, version);
            whole.extend_from_slice(packet.value);
        }
        assert_eq!(whole, value);
        assert_eq!(world.counters(1).replicas.replica_reads_passed, 0);
    }
}

#[test]
fn a_part_of_a_copy_that_is_not_valid_is_read_at_home() {
    let mut world = World::new(7, 1);
    world.run_until(READY_NS);
    world.put(0, vec![9; 5000], 0);
    assert_eq!(read_at(&mut world, 1, 4, 5000, 77), None, "passed on");
    world.run(5);
    assert_eq!(world.counters(1).replicas.replica_reads_passed, 1);
    assert_eq!(world.counters(0).read.reads_parts, 1);
    assert_eq!(world.status(1), Default::default(), "nothing is held for it");
    world.cut = vec![(0, 1)];
    for _ in 0..3 {
        assert_eq!(read_at(&mut world, 1, 4, 5000, 77), None);
    }
    assert_eq!(world.waiting_reads(1), 3);
    world.run(1_100);
    assert_eq!(world.waiting_reads(1), 0, "forgotten");
}

#[test]
fn parts_of_a_copy_that_fits_a_packet_are_read_at_home() {
    let mut world = World::new(7, 1);
    world.run_until(READY_NS);
    world.put(0, vec![9; 1300], 0);
    world.hold(1);
    world.run(30);
    let whole = read_at(&mut world, 1, 0, 0, 0).expect("at once");
    let version = Packet::decode(&whole).unwrap().header.version;
    for (passed, (part, total, version)) in
        [(0, 1, wire::VERSION_PRESENT), (4, 1300, version)].into_iter().enumerate()
    {
        assert_eq!(read_at(&mut world, 1, part, total, version), None);
        world.run(5);
        assert_eq!(world.counters(1).replicas.replica_reads_passed, passed as u64 + 1);
        assert_eq!(world.counters(0).read.reads_parts, passed as u64 + 1);
    }
    assert_eq!(world.waiting_reads(1), 0, "answered");
    assert_eq!(world.counters(1).replicas.replica_reads_lost, 0);
}

#[test]
fn a_copy_lives_no_longer_than_its_value() {
    let mut world = World::new(8, 1);
    world.run_until(READY_NS);
    world.put(0, vec![1; 20], 500);
    world.hold(1);
    world.run(10);
    let reply = read_at(&mut world, 1, 0, 0, 0).unwrap();
    let left_ms = Packet::decode(&reply).unwrap().header.expiry_ms;
    assert!((400..500).contains(&left_ms), "{left_ms}");
    world.run(500);
    assert_eq!(read_at(&mut world, 1, 0, 0, 0), None, "passed on");
    assert_eq!(world.status(1).valid, 0);
    world.put(0, vec![2; 20], 0);
    world.run(1_200);
    assert_eq!(world.status(1).valid, 1, "asked for again");
}

#[test]
fn without_room_a_key_is_held_without_a_value_and_nobody_is_told() {
    let mut world = World::with_config(9, 1, |config| config.replica_memory = 1000);
    world.run_until(READY_NS);
    world.put(0, vec![1; 900], 0);
    world.hold(1);
    world.run(50);
    let status = world.status(1);
    assert_eq!((status.keys, status.valid, status.no_room), (1, 0, 1));
    assert!(!world.valid[1]);
    assert_eq!(world.counters(1).replicas.replica_confirms, 0);
    assert_eq!(read_at(&mut world, 1, 0, 0, 0), None, "passed on");
    world.put(0, vec![1; 90], 0);
    world.run(1_500);
    assert_eq!(world.status(1).valid, 1, "there is room for this");
}

#[test]
fn what_a_tenant_had_is_gone_with_it() {
    let mut world = holding(10, 1);
    world.on(1, |engine, now_ns, out| {
        let mut cluster = engine.facts.config.cluster.clone();
        cluster.tenants.clear();
        engine.update(cluster, now_ns, out).unwrap();
    });
    assert_eq!(world.status(1), Default::default());
}

/// One world with everything drawn from a seed; what clients say, and how much there was to see.
fn at_random(seed: u64) -> (Result<(), String>, [u64; 3]) {
    let mut world = holding(seed, 3);
    let per_mille = [0, 10, 50, 150];
    let draw = |world: &mut World| per_mille[world.draw() as usize % 4];
    world.faults = Faults {
        lose: draw(&mut world),
        duplicate: draw(&mut world),
        late: draw(&mut world),
        latest_ms: [3, 20, 200][world.draw() as usize % 3],
        alter: [0, 0, 200][world.draw() as usize % 3],
    };
    world.fans_out = !world.draw().is_multiple_of(4);
    for turn in 1..STORES {
        world.updates[turn] = [1, 1, 2, 0][world.draw() as usize % 4];
    }
    let (end_ns, fault) = (world.now_ns + 3_500 * MS, world.draw() % 8);
    let fault_ns = world.now_ns + (200 + world.draw() % 500) * MS;
    let (mut is_broken, mut is_mended) = (false, false);
    while world.now_ns < end_ns && world.history.len() < 220 {
        if !is_broken && world.now_ns >= fault_ns {
            is_broken = true;
            begin(&mut world, fault);
        }
        if is_broken && !is_mended && world.now_ns >= fault_ns + 1_400 * MS {
            is_mended = true;
            end(&mut world, fault);
        }
        let pause = 1 + world.draw() % 15;
        world.run(pause);
        let client = world.draw() as usize % 3;
        if world.is_free(client) {
            let op = match world.draw() % 20 {
                0..12 => ClientOp::Read,
                12..15 => ClientOp::Write,
                15 | 16 => ClientOp::WriteAround,
                17 => ClientOp::WriteIfPresent,
                18 => ClientOp::WriteIfAbsent,
                _ => ClientOp::Delete,
            };
            world.call(client, op);
        }
    }
    let grants =
        world.counters(1).replicas.replica_grants + world.counters(2).replicas.replica_grants;
    let passed = world.counters(1).replicas.replica_reads_passed;
    let seen = [world.redirected, grants, passed];
    (world.judge(), seen)
}

/// Something goes wrong.
fn begin(world: &mut World, fault: u64) {
    match fault {
        1 => world.start(1),
        2 => world.start(0),
        3 => world.stand_still(1, 1_300),
        4 => world.cut = vec![(0, 1)],
        5 => world.release(1),
        6 => world.stop(2),
        7 => world.stand_still(0, 1_300),
        _ => {}
    }
    if fault == 1 {
        world.hold(1);
    }
}

/// It is over.
fn end(world: &mut World, fault: u64) {
    match fault {
        4 => world.cut.clear(),
        5 => world.hold(1),
        6 => {
            world.start(2);
            world.hold(2);
        }
        _ => {}
    }
}

const SEEDS: u64 = 300;

#[test]
fn whatever_the_network_does_and_whatever_restarts_clients_see_one_copy() {
    let mut all = [0; 3];
    for seed in 0..SEEDS {
        let (verdict, seen) = at_random(seed);
        if let Err(what) = verdict {
            panic!("seed {seed}: {what}");
        }
        all.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
    }
    println!("redirected, grants, passed on: {all:?}");
    assert!(all.iter().all(|seen| *seen > 3 * SEEDS), "{all:?}");
}

/// Each way to break the rules of copies in stores is found by one of these runs.
#[cfg(debug_assertions)]
#[test]
fn every_mutant_of_replicas_is_found() {
    super::all_are_found(
        |mutant| mutant.is_of_replicas(),
        4 * SEEDS,
        |seed| at_random(seed).0.is_err(),
    );
}

/// For a longer look.
#[test]
#[ignore = "minutes; for changes to copies in stores"]
fn many_seeds() {
    for seed in SEEDS..50 * SEEDS {
        if let Err(what) = at_random(seed).0 {
            panic!("seed {seed}: {what}");
        }
    }
}
