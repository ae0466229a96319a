//! A client against chains that do what they promise, over a network that does not.

use std::{cell::RefCell, rc::Rc};

use client::{Condition, Error, Operation, Seal};

use crate::{
    Identity, KeyState, Options, Reads, Virtual,
    fake::{Chains, Faults, MS, TENANT, World, cluster, options, switch},
    recipes::Asks,
};

const FAULTS: Faults = Faults { lose: 10, duplicate: 10, busy: 5, longest_us: 3000 };

async fn put(
    client: &Virtual,
    key: &[u8],
    value: &[u8],
    condition: Condition,
) -> Result<u64, Error> {
    let set = Operation::Set { key, value, ttl: None, condition };
    client.call(set).await?.written()
}

async fn get(client: &Virtual, key: &[u8]) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let found = client.call(Operation::Get { key }).await?.found()?;
    Ok(found.map(|value| (value.version, value.bytes.to_vec())))
}

/// Runs one task of a client to its end and returns what it gives.
fn run<T: 'static>(
    world: &mut World,
    client: &Virtual,
    task: impl AsyncFnOnce(Virtual) -> T + 'static,
) -> T {
    let result = Rc::new(RefCell::new(None));
    let (out, its) = (result.clone(), client.clone());
    client.spawn(async move {
        let value = task(its).await;
        *out.borrow_mut() = Some(value);
    });
    let end_ns = world.now_ns + 60_000 * MS;
    world.run_until(end_ns);
    result.take().expect("the task did not end within a minute")
}

fn quiet(members: &[u8]) -> World {
    World::new(Chains::new(members), Faults::default(), 1)
}

#[test]
fn what_is_written_is_read_by_either_protocol() {
    for protocol in [1, 2] {
        let mut world = quiet(&[1, 2, 3]);
        world.chains.protocol = protocol;
        let client = world.client(options());
        run(&mut world, &client, async move |c| {
            assert_eq!(get(&c, b"a").await.unwrap(), None);
            let first = put(&c, b"a", b"one", Condition::Absent).await.unwrap();
            assert_eq!(get(&c, b"a").await.unwrap(), Some((first, b"one".to_vec())));
            let again = put(&c, b"a", b"two", Condition::Absent).await;
            assert!(matches!(again, Err(Error::Mismatch { current }) if current == first));
            let second = put(&c, b"a", b"two", Condition::Version(first)).await.unwrap();
            assert!(second > first);
            let delete = |condition| Operation::Delete { key: b"a", condition };
            let wrong = c.call(delete(Condition::Version(first))).await.unwrap();
            assert!(matches!(wrong.removed(), Err(Error::Mismatch { .. })));
            let right = c.call(delete(Condition::Version(second))).await.unwrap();
            assert!(right.removed().unwrap());
            let gone = c.call(delete(Condition::Always)).await.unwrap();
            assert!(!gone.removed().unwrap());
            assert_eq!(get(&c, b"a").await.unwrap(), None);
        });
        if protocol == 2 {
            let asked = &world.chains.asked;
            assert!(asked[&3] >= 3 && !asked.contains_key(&2), "{asked:?}");
        }
    }
}

#[test]
fn writes_take_place_once_whatever_the_network_does() {
    for seed in 0..20 {
        let mut world = World::new(Chains::new(&[1, 2, 3]), FAULTS, seed);
        let client = world.client(options());
        for writer in 0..40u32 {
            let c = client.clone();
            client.spawn(async move {
                for n in 0..5u32 {
                    let value = [writer.to_be_bytes(), n.to_be_bytes()].concat();
                    put(&c, b"key", &value, Condition::Always).await.unwrap();
                }
            });
        }
        let second_ns = 1000 * MS;
        // Other members come and go.
        for members in [&[2, 3][..], &[2, 3, 4], &[4, 1], &[1]] {
            let end_ns = world.now_ns + second_ns / 50;
            world.run_until(end_ns);
            world.chains.become_members(members);
        }
        let end_ns = world.now_ns + 60 * second_ns;
        assert!(world.run_until(end_ns), "seed {seed}: not all are answered");
        let mut applied = world.chains.applied.clone();
        assert_eq!(applied.len(), 200, "seed {seed}");
        applied.sort();
        applied.dedup();
        assert_eq!(applied.len(), 200, "seed {seed}: one took place twice");
    }
}

#[test]
fn a_dead_head_is_got_around_within_one_wait_of_the_news() {
    let mut world = quiet(&[1, 2, 3]);
    let client = world.client(Options::new(vec![switch(1), switch(2), switch(3)]));
    run(&mut world, &client, async |c| put(&c, b"a", b"1", Condition::Always).await.unwrap());
    world.chains.dead.insert(1);
    let (c, begun_ns) = (client.clone(), world.now_ns);
    client.spawn(async move {
        put(&c, b"a", b"2", Condition::Always).await.unwrap();
    });
    assert!(!world.run_until(begun_ns + 300 * MS), "nobody could answer");
    world.chains.become_members(&[2, 3]);
    // Each wait is 40 ms and a quarter at most; one switch of three, asked in turn, is dead.
    assert!(world.run_until(begun_ns + 300 * MS + 105 * MS));
    assert_eq!(world.chains.applied.len(), 2);
}

/// As behind NAT, or a filter that remembers whom somebody asked.
#[test]
fn where_only_who_was_asked_can_answer_one_time_out_finds_a_way() {
    for protocol in [1, 2] {
        let mut world = quiet(&[1, 2, 3]);
        (world.filters, world.chains.protocol) = (true, protocol);
        let client = world.client(Options::new(vec![switch(1), switch(2)]));
        let begun_ns = world.now_ns;
        let ended_ns = run(&mut world, &client, async |c| {
            put(&c, b"a", b"1", Condition::Always).await.unwrap();
            get(&c, b"a").await.unwrap();
            c.now_ns()
        });
        let took_ns = ended_ns - begun_ns;
        assert!(took_ns < 40 * MS, "{took_ns}");
        let before = client.counts().retransmitted;
        run(&mut world, &client, async move |c| {
            for n in 0..20u8 {
                put(&c, &[b'k', n], b"1", Condition::Always).await.unwrap();
                get(&c, &[b'k', n]).await.unwrap();
            }
        });
        assert_eq!(client.counts().retransmitted, before, "there is a way");
    }
}

#[test]
fn reads_go_to_whom_the_options_say_and_past_the_dead() {
    async fn reads(c: Virtual, n: usize) {
        for _ in 0..n {
            get(&c, b"a").await.unwrap();
        }
    }
    let mut world = quiet(&[1, 2, 3]);
    let client = world.client(Options { reads: Reads::At(switch(2)), ..options() });
    run(&mut world, &client, async |c| reads(c, 50).await);
    assert_eq!(world.chains.asked[&2], 50);
    world.chains.dead.insert(2);
    run(&mut world, &client, async |c| reads(c, 3).await);
    assert!(world.chains.asked[&3] >= 3);
}

#[test]
fn errors_say_what_is_known() {
    let mut world = quiet(&[1]);
    let client = world.client(options());
    run(&mut world, &client, async move |c| {
        let reserved = put(&c, b"\0x", b"", Condition::Always).await;
        assert!(matches!(reserved, Err(Error::ReservedKey)));
        let long = put(&c, b"k", &[0; 1472 - 80 - 1 - 40 + 1], Condition::Always).await;
        assert!(matches!(long, Err(Error::ValueLength { max: 1351, .. })), "{long:?}");
        put(&c, b"k", &[0; 1351], Condition::Always).await.unwrap();
    });
    world.chains.full = true;
    let full = run(&mut world, &client, async |c| put(&c, b"new", b"", Condition::Always).await);
    assert!(matches!(full, Err(Error::OutcomeUnknown { no_room: true, .. })), "{full:?}");
    world.chains.dead.insert(1);
    run(&mut world, &client, async move |c| {
        let write = put(&c, b"k", b"", Condition::Always).await;
        assert!(matches!(write, Err(Error::OutcomeUnknown { .. })), "{write:?}");
        let read = get(&c, b"k").await;
        assert!(matches!(read, Err(Error::Timeout { .. })), "{read:?}");
    });
}

#[test]
fn what_is_read_relaxed_says_so_however_often_it_is_sent() {
    let mut machine = crate::Machine::new(&cluster(), TENANT, options(), 1).unwrap();
    let flags = |machine: &mut crate::Machine| {
        let (_, datagram) = machine.next_datagram().expect("it asks");
        wire::Packet::decode(&datagram).unwrap().header.flags
    };
    machine.begin_relaxed(b"k", 0);
    assert_eq!(flags(&mut machine), wire::Flags::COMPARE);
    machine.timer(machine.next_ns().expect("it waits"));
    assert_eq!(flags(&mut machine), wire::Flags::COMPARE);
    machine.begin(&Operation::Get { key: b"other" }, 0);
    while let Some((_, datagram)) = machine.next_datagram() {
        let packet = wire::Packet::decode(&datagram).unwrap();
        let is_relaxed = packet.header.flags.has(wire::Flags::COMPARE);
        assert_eq!(is_relaxed, packet.key == b"k");
    }
}

#[test]
fn a_path_that_carries_no_long_datagrams_is_named() {
    let mut world = quiet(&[1, 2, 3]);
    let client = world.client(options());
    run(&mut world, &client, async move |c| {
        put(&c, b"long", &[7; 1300], Condition::Always).await.unwrap();
        assert_eq!(get(&c, b"long").await.unwrap().unwrap().1.len(), 1300);
    });
    // A tunnel from now on.
    world.carries = 1252;
    run(&mut world, &client, async move |c| {
        put(&c, b"short", &[7; 1000], Condition::Always).await.unwrap();
        let write = put(&c, b"long", &[8; 1300], Condition::Always).await;
        assert!(matches!(write, Err(Error::OutcomeUnknown { short_path: true, .. })), "{write:?}");
        let read = get(&c, b"long").await;
        assert!(matches!(read, Err(Error::Timeout { short_path: true, .. })), "{read:?}");
        assert_eq!(get(&c, b"short").await.unwrap().unwrap().1.len(), 1000);
    });
    // Switches that are dead have no short path.
    world.chains.dead.extend([1, 2, 3]);
    run(&mut world, &client, async move |c| {
        let write = put(&c, b"long", &[8; 1300], Condition::Always).await;
        assert!(matches!(write, Err(Error::OutcomeUnknown { short_path: false, .. })), "{write:?}");
        let read = get(&c, b"long").await;
        assert!(matches!(read, Err(Error::Timeout { short_path: false, .. })), "{read:?}");
    });
}

#[test]
fn another_generation_ends_the_writes_under_way() {
    let mut world = World::new(Chains::new(&[1]), Faults { lose: 40, ..FAULTS }, 3);
    let client = world.client(options());
    let unknown = Rc::new(RefCell::new(0));
    for n in 0..16u8 {
        let (c, unknown) = (client.clone(), unknown.clone());
        client.spawn(async move {
            for _ in 0..100 {
                match put(&c, &[b'k', n], b"", Condition::Always).await {
                    Ok(_) => {}
                    Err(Error::OutcomeUnknown { .. }) => *unknown.borrow_mut() += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    world.run_until(world.now_ns + 100 * MS);
    world.chains.number = 2 << 48;
    assert!(world.run_until(world.now_ns + 60_000 * MS));
    assert!((1..=16).contains(&*unknown.borrow()), "{unknown:?}");
}

#[test]
fn a_watch_tells_what_comes_and_nothing_old() {
    for seed in 0..10 {
        let mut world = World::new(Chains::new(&[1, 2]), FAULTS, seed);
        let (writer, watcher) = (world.client(options()), world.client(options()));
        let told = Rc::new(RefCell::new(vec![]));
        let (w, out) = (watcher.clone(), told.clone());
        let until_ns = world.now_ns + 10_000 * MS;
        watcher.spawn(async move {
            let tell = |watched: KeyState| {
                let last = watched.value.as_deref() == Some(&b"9"[..]);
                out.borrow_mut().push(watched.version);
                !last
            };
            Asks::watch(&w, b"key", tell, until_ns).await.unwrap();
        });
        let w = writer.clone();
        writer.spawn(async move {
            for n in 0..10u8 {
                put(&w, b"key", &[b'0' + n], Condition::Always).await.unwrap();
                w.until(w.now_ns() + 20 * MS).await;
            }
        });
        assert!(world.run_until(until_ns), "seed {seed}");
        let told = told.borrow();
        assert!(told.is_sorted() && *told.last().unwrap() == 10, "{told:?}");
        assert!(world.now_ns < 4_000_000_000, "the last state came within some seconds");
    }
}

#[test]
fn whoever_goes_on_as_another_writes_anew_and_is_no_further_client() {
    let mut world = World::new(Chains::new(&[1, 2, 3]), FAULTS, 11);
    for n in 0..140u64 {
        let identity = Some(Identity { client: 0xc11e, first: 1 + n * 1000 });
        let client = world.client(Options { identity, ..options() });
        let value = n.to_be_bytes();
        let write =
            async move |c: Virtual| put(&c, b"key", &value, Condition::Always).await.unwrap();
        assert_eq!(run(&mut world, &client, write), n + 1);
        let read = run(&mut world, &client, async |c| get(&c, b"key").await.unwrap());
        assert_eq!(read, Some((n + 1, value.to_vec())));
    }
    assert_eq!((world.chains.sessions(), world.chains.applied.len()), (1, 140));
}

#[test]
fn sealed_keys_are_found_again() {
    let mut world = quiet(&[1, 2]);
    let seal = Some(Seal::new([5; 32]));
    let client = world.client(Options { seal, ..options() });
    run(&mut world, &client, async move |c| {
        for n in 0..600u32 {
            let key = n.to_string();
            put(&c, key.as_bytes(), key.as_bytes(), Condition::Always).await.unwrap();
        }
        for n in 0..600u32 {
            let key = n.to_string();
            let (_, value) = get(&c, key.as_bytes()).await.unwrap().unwrap();
            assert_eq!(value, key.as_bytes());
        }
    });
}
