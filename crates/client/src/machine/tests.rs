//! Single calls of a [`Machine`], step by step: what is sent, when, under which id, and how the
//! call ends when answers are late, refused or missing.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use proptest::prelude::*;
use wire::{Flags, Header, Op, PART_BYTES, Packet, Secret, Status};

use super::*;
use crate::Condition;

const MS: u64 = 1_000_000;

fn store() -> SocketAddr {
    ([10, 0, 0, 1], 7117).into()
}

fn machine(options: Options) -> Machine {
    Machine::new(&Cluster::single(store(), 4), 0, options, 1).unwrap()
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Set { key, value, ttl: None, condition: Condition::Always }
}

fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

/// What an honest store answers, with this status.
fn answer(datagram: &[u8], status: Status) -> Vec<u8> {
    reply(datagram, |header| Header { status, ..header })
}

/// The answer to a request, changed so.
fn reply(datagram: &[u8], change: impl Fn(Header) -> Header) -> Vec<u8> {
    let packet = Packet::decode(datagram).unwrap();
    let header = change(Header {
        op: packet.header.op.reply().unwrap(),
        flags: Flags::NONE,
        version: 7,
        expiry_ms: 0,
        ..packet.header
    });
    let value: &[u8] = match (packet.header.op, header.status) {
        (Op::ReadRequest | Op::CorrectionRequest, Status::Ok) => b"value",
        _ => b"",
    };
    Packet::new(header, packet.key, value).to_bytes(&Secret::NONE).unwrap()
}

fn sent(machine: &mut Machine) -> Vec<Bytes> {
    std::iter::from_fn(|| machine.next_datagram()).map(|(_, datagram)| datagram).collect()
}

#[test]
fn a_write_is_sent_for_no_longer_than_the_clusters_leases_allow() {
    let options = Options { deadline: Duration::from_secs(30), ..Options::default() };
    for (lease_ms, last_ms) in [(1000, 750), (2000, 1500), (10_000, 7500)] {
        let cluster = Cluster::single(store(), 4).with_lease_ms(lease_ms);
        let mut machine = Machine::new(&cluster, 0, options.clone(), 1).unwrap();
        machine.begin(&set(b"k", b"v"), 0);
        let mut last = 0;
        while let Some(now) = machine.next_ns() {
            machine.timer(now);
            if !sent(&mut machine).is_empty() {
                last = now;
            }
        }
        let (_, result) = machine.next_finished().unwrap();
        assert!(matches!(result, Err(Error::OutcomeUnknown { .. })));
        assert!(last < last_ms * MS, "leases of {lease_ms} ms: sent at {last}");
        assert!(last > last_ms * MS / 2, "leases of {lease_ms} ms: {last}");
    }
}

#[test]
fn operations_are_answered() {
    let mut machine = machine(Options::default());
    let number = machine.begin(&get(b"k"), 5);
    let first = sent(&mut machine);
    machine.take(&answer(&first[0], Status::Ok), store(), 2 * MS);
    let (ended, result) = machine.next_finished().unwrap();
    assert_eq!(ended, number);
    let value = result.unwrap().found().unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.version), (&b"value"[..], 7));
    assert_eq!((machine.next_ns(), machine.counts().answered), (None, 1));
    machine.take(&answer(&first[0], Status::Ok), store(), 3 * MS);
    assert_eq!(machine.counts().ignored, 1, "a duplicate answers nothing");
}

#[test]
fn a_timer_that_fires_long_after_the_deadline_sends_nothing() {
    let late = 10_000 * MS;
    for operation in [set(b"k", b"v"), get(b"k")] {
        let mut machine = machine(Options::default());
        machine.begin(&operation, 0);
        assert_eq!(sent(&mut machine).len(), 1);
        machine.timer(late);
        assert!(sent(&mut machine).is_empty(), "{operation:?}");
        let (_, result) = machine.next_finished().unwrap();
        let unknown = matches!(result, Err(Error::OutcomeUnknown { tries: 1, .. }));
        assert_eq!(unknown, matches!(operation, Operation::Set { .. }));
        assert!(machine.next_ns().is_none());
    }
}

/// Its driver stood still between what made a datagram and its sending: whether that is the first
/// of its call or another.
#[test]
fn what_waits_to_be_sent_when_its_deadline_comes_is_not_sent() {
    for is_first in [true, false] {
        let mut machine = machine(Options::default());
        machine.begin(&set(b"k", b"v"), 0);
        if !is_first {
            assert_eq!(sent(&mut machine).len(), 1);
            machine.timer(machine.next_ns().unwrap());
        }
        machine.begin(&get(b"other"), 9_999 * MS);
        machine.drop_late(10_000 * MS);
        let left = sent(&mut machine);
        let left = left.iter().map(|datagram| Packet::decode(datagram).unwrap().header.op);
        assert_eq!(left.collect::<Vec<_>>(), [Op::ReadRequest], "the other is in time");
    }
}

#[test]
fn what_was_put_off_is_not_sent_after_the_deadline() {
    let mut machine = machine(Options::default());
    machine.begin(&set(b"k", b"v"), 0);
    let first = sent(&mut machine);
    machine.take(&answer(&first[0], Status::TryAgain), store(), MS);
    assert!(machine.next_ns().unwrap() > MS);
    machine.timer(10_000 * MS);
    assert!(sent(&mut machine).is_empty());
    let (_, result) = machine.next_finished().unwrap();
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { try_again: true, each_put_off: true, .. }));
    assert!(error.to_string().contains("nothing was written, unless"), "{error}");
}

#[test]
fn a_write_of_which_one_try_met_silence_is_not_said_to_be_put_off_each_time() {
    let mut machine = machine(Options::default());
    machine.begin(&set(b"k", b"v"), 0);
    sent(&mut machine);
    let again_ns = machine.next_ns().unwrap();
    machine.timer(again_ns);
    let second = sent(&mut machine);
    machine.take(&answer(&second[0], Status::TryAgain), store(), again_ns + MS);
    machine.timer(10_000 * MS);
    let (_, result) = machine.next_finished().unwrap();
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { try_again: true, each_put_off: false, .. }));
    assert!(!error.to_string().contains("nothing was written"), "{error}");
}

/// Everything that is sent until the call ends, with what becomes of each datagram.
fn until_it_ends(operation: &Operation<'_>, answers: Option<Status>) -> (Vec<Bytes>, Error) {
    let mut machine = machine(Options::default());
    machine.begin(operation, 0);
    let (mut all, mut now) = (vec![], 0);
    loop {
        for datagram in sent(&mut machine) {
            if let Some(status) = answers {
                machine.take(&answer(&datagram, status), store(), now);
            }
            all.push(datagram);
        }
        let Some(next) = machine.next_ns() else { break };
        now = next;
        machine.timer(now);
    }
    let (_, result) = machine.next_finished().unwrap();
    (all, result.unwrap_err())
}

#[test]
fn silence_is_tried_again_under_one_id_and_then_a_timeout_or_unknown() {
    for operation in [set(b"k", b"v"), get(b"k")] {
        let is_write = matches!(operation, Operation::Set { .. });
        let (all, error) = until_it_ends(&operation, None);
        assert!(all.len() > 2, "{} tries", all.len());
        // From the second try on a read says that it is one: no switch is to send it elsewhere.
        let first = Packet::decode(&all[0]).unwrap();
        let status = if is_write { Status::Ok } else { Status::TryAgain };
        let again = Header { status, ..first.header };
        for datagram in &all[1..] {
            let packet = Packet::decode(datagram).unwrap();
            let header = Header { tag: again.tag, ..packet.header };
            assert_eq!((header, packet.key, datagram.len()), (again, first.key, all[0].len()));
        }
        assert_eq!(first.header.status, Status::Ok);
        assert!(all[2..].iter().all(|datagram| *datagram == all[1]));
        assert!(!is_write || all[1] == all[0]);
        let tries = match error {
            Error::OutcomeUnknown { tries, .. } if is_write => tries,
            Error::Timeout { tries, .. } if !is_write => tries,
            other => panic!("{other:?}"),
        };
        assert_eq!(tries as usize, all.len());
    }
}

#[test]
fn a_store_that_puts_a_write_off_for_ever_is_named() {
    let (all, error) = until_it_ends(&set(b"k", b"v"), Some(Status::TryAgain));
    assert!(all.len() > 2, "{} tries", all.len());
    let text = error.to_string();
    assert!(text.contains("it put off each of them") && !text.contains('\n'), "{text}");
}

#[test]
fn an_answer_after_the_deadline_is_taken_but_leads_to_no_other_request() {
    let late = 10_000 * MS;
    for (status, good) in [(Status::Ok, true), (Status::NeedPadding, false)] {
        let mut machine = machine(Options::default());
        machine.begin(&get(b"k"), 0);
        let first = sent(&mut machine);
        machine.take(&answer(&first[0], status), store(), late);
        assert!(sent(&mut machine).is_empty());
        assert_eq!(machine.next_finished().unwrap().1.is_ok(), good);
    }
}

#[test]
fn a_write_that_found_no_place_says_that_nothing_was_sent() {
    let options = Options { max_in_flight: 1, ..Options::default() };
    let mut machine = machine(options);
    machine.begin(&get(b"k"), 0);
    machine.begin(&set(b"k", b"v"), 0);
    assert_eq!(sent(&mut machine).len(), 1);
    machine.timer(10_000 * MS);
    let ended: Vec<_> = std::iter::from_fn(|| machine.next_finished()).collect();
    assert!(
        matches!(ended[1].1, Err(Error::TooManyInFlight { limit: 1 })) || {
            matches!(ended[0].1, Err(Error::TooManyInFlight { limit: 1 }))
        }
    );
    assert!(sent(&mut machine).is_empty());
}

#[test]
fn writes_run_no_further_ahead_than_a_store_remembers() {
    let mut machine = machine(Options::default());
    for _ in 0..200 {
        machine.begin(&set(b"k", b"v"), 0);
    }
    let under_way = sent(&mut machine);
    assert_eq!(under_way.len(), 128);
    // All but the oldest: it holds the others back.
    for datagram in &under_way[1..] {
        machine.take(&answer(datagram, Status::Ok), store(), MS);
    }
    assert!(sent(&mut machine).is_empty());
    machine.take(&answer(&under_way[0], Status::Ok), store(), MS);
    let rest = sent(&mut machine);
    assert_eq!(rest.len(), 72);
    let ids: Vec<u64> =
        under_way.iter().chain(&rest).map(|d| Packet::decode(d).unwrap().header.request).collect();
    assert!(ids.is_sorted());
}

#[test]
fn a_store_that_does_not_answer_has_no_more_places_than_its_window() {
    let other: SocketAddr = ([10, 0, 0, 2], 7117).into();
    let mut cluster = Cluster::single(store(), 2);
    cluster.stores[0].last = 0;
    cluster.stores.push(wire::Store::new(other, 1, 1));
    let keys = |address| {
        let home = |key: &[u8; 4]| cluster.store_of(0, Secret::NONE.key_hash(0, key)).address;
        (0u32..).map(u32::to_be_bytes).filter(move |key| home(key) == address)
    };
    let options = Options { max_in_flight: 150, ..Options::default() };
    let mut machine = Machine::new(&cluster, 0, options, 1).unwrap();
    for key in keys(store()).take(400) {
        machine.begin(&set(&key, b"v"), 0);
    }
    assert_eq!(sent(&mut machine).len(), 128);
    for key in keys(other).take(30) {
        machine.begin(&get(&key), 0);
    }
    let reads = sent(&mut machine);
    assert_eq!(reads.len(), 22, "as many places as are left");
    machine.take(&answer(&reads[0], Status::Ok), other, MS);
    assert_eq!(sent(&mut machine).len(), 1);
    machine.timer(10_000 * MS);
    assert_eq!((machine.free, machine.calls.len()), (150, 0), "whatever they waited for");
}

/// Whoever keeps writes of a lent key tells 192 ids back which it has kept
/// (`bpf/lent/windows.h`): what a client sends to others must not use them up.
#[test]
fn writes_to_a_store_are_numbered_in_a_row_whatever_else_is_sent() {
    let other: SocketAddr = ([10, 0, 0, 2], 7117).into();
    let mut cluster = Cluster::single(store(), 2);
    cluster.stores[0].last = 0;
    cluster.stores.push(wire::Store::new(other, 1, 1));
    let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
    let mut ids: HashMap<SocketAddr, Vec<u64>> = HashMap::new();
    let mut all = HashSet::new();
    for n in 0..400u32 {
        let key = n.to_be_bytes();
        let is_write = n % 8 < 2;
        machine.begin(&if is_write { set(&key, b"v") } else { get(&key) }, 0);
        let (to, datagram) = machine.next_datagram().expect("it is sent at once");
        let request = Packet::decode(&datagram).unwrap().header.request;
        assert!(all.insert(request), "an id is of one request");
        if is_write {
            ids.entry(to).or_default().push(request);
        }
        machine.take(&answer(&datagram, Status::Ok), to, MS);
    }
    assert_eq!(ids.len(), 2);
    for ids in ids.values() {
        assert!(ids.len() > 30 && ids.windows(2).all(|two| two[1] == two[0] + 1), "{ids:?}");
    }
}

#[test]
fn the_same_seed_sends_the_same() {
    let run = |seed| {
        let cluster = Cluster::single(store(), 4);
        let mut machine = Machine::new(&cluster, 0, Options::default(), seed).unwrap();
        machine.begin(&set(b"k", b"v"), 0);
        let mut all = vec![];
        while let Some(at) = machine.next_ns() {
            machine.timer(at);
            all.push((at, sent(&mut machine)));
        }
        all
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// What becomes of a datagram, and of the answer to it.
#[derive(Clone, Copy, Debug)]
struct Fate {
    lost: bool,
    twice: bool,
    /// Until the answer is there; it may come after those to later requests.
    delay_ms: u64,
    status: Status,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let status = prop_oneof![
        4 => Just(Status::Ok), 2 => Just(Status::TryAgain), 1 => Just(Status::NeedPadding),
    ];
    let fate = (prop::bool::weighted(0.3), prop::bool::weighted(0.2), 0..400u64, status);
    let fate =
        fate.prop_map(|(lost, twice, delay_ms, status)| Fate { lost, twice, delay_ms, status });
    prop::collection::vec(fate, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the network does, and however late the timers fire: each call ends once, at the
    /// first timer after its deadline at the latest, and sends nothing from its deadline on.
    #[test]
    fn a_call_ends_by_its_deadline_and_sends_nothing_after_it(
        fates in fates(), late_ms in prop::collection::vec(0..1000u64, 1..10), calls in 1..300u64,
    ) {
        let options = Options { max_in_flight: 150, ..Options::default() };
        let mut machine = machine(options);
        let mut fates = fates.iter().cycle();
        for number in 0..calls {
            let key = [number as u8 % 7];
            if number % 3 == 0 {
                machine.begin(&set(&key, b"v"), 0);
            } else {
                machine.begin(&get(&key), 0);
            }
        }
        let mut arrivals: BTreeSet<(u64, Vec<u8>)> = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut now = 0;
        loop {
            for datagram in sent(&mut machine) {
                prop_assert!(now < 1500 * MS, "sent at {}", now);
                let fate = fates.next().unwrap();
                if fate.lost {
                    continue;
                }
                let status = match Packet::decode(&datagram).unwrap().header.op.is_write() {
                    true if fate.status == Status::NeedPadding => Status::Ok,
                    _ => fate.status,
                };
                let bytes = answer(&datagram, status);
                let at = now + fate.delay_ms * MS;
                if fate.twice {
                    arrivals.insert((at + 3 * MS, bytes.clone()));
                }
                arrivals.insert((at, bytes));
            }
            while let Some((number, _)) = machine.next_finished() {
                prop_assert!(ended.insert(number), "{} ended twice", number);
            }
            let Some(timer) = machine.next_ns() else { break };
            let late_ms = late_ms[timer as usize % late_ms.len()];
            let fires = now.max(timer + late_ms * MS);
            match arrivals.first() {
                Some((at, _)) if *at < fires => {
                    let (at, bytes) = arrivals.pop_first().unwrap();
                    now = now.max(at);
                    machine.take(&bytes, store(), now);
                }
                _ => {
                    now = fires;
                    machine.timer(now);
                }
            }
        }
        prop_assert_eq!(ended.len() as u64, calls);
        prop_assert!(now <= 2500 * MS);
        prop_assert_eq!(machine.free, 150);
        prop_assert!(machine.waiting.is_empty() && machine.calls.is_empty());
    }
}

mod all_parts;
mod denied;
mod lives;
mod parts;
mod refused;
mod short_paths;

#[test]
fn an_answer_from_another_store_counts_for_a_read_if_it_says_that_it_is_that_store() {
    let other = |n| SocketAddr::from(([10, 0, 0, n], 7117));
    let mut cluster = Cluster::single(store(), 3);
    let range = |n: u8| wire::Store::new(other(n), u32::from(n) - 1, u32::from(n) - 1);
    cluster.stores = (1..=3).map(range).collect();
    let home_of = |datagram: &[u8]| {
        let hash = Packet::decode(datagram).unwrap().header.key_hash;
        cluster.store_of(0, hash).address
    };
    let named = |datagram: &[u8], node| {
        let answered = answer(datagram, Status::Ok);
        let packet = Packet::decode(&answered).unwrap();
        let header = Header { node, ..packet.header };
        Packet::new(header, packet.key, packet.value).to_bytes(&Secret::NONE).unwrap()
    };
    // (a read, the answer's node, its sender, whether it counts); the home is the first store.
    let (read, write) = (true, false);
    let rows = [
        (read, 0, other(1), true),
        (read, 0x8001, other(1), true),
        (read, 0x8001, other(2), true),
        (read, 0, other(2), false),
        (read, 0x8000, other(2), false),
        (read, 0x8002, other(2), false),
        (read, 2, other(2), false),
        (read, 0x8003, other(4), false),
        (read, wire::NODE_ALL, other(2), false),
        (write, 0x8001, other(1), true),
        (write, 0x8001, other(2), false),
    ];
    for (is_read, node, from, counts) in rows {
        let keys = (0..).map(|n: u32| format!("key {n}").into_bytes());
        let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
        for key in keys {
            let operation = if is_read { get(&key) } else { set(&key, b"v") };
            machine.begin(&operation, 0);
            let datagram = sent(&mut machine).remove(0);
            if home_of(&datagram) == other(1) {
                machine.take(&named(&datagram, node), from, MS);
                let finished = machine.next_finished().is_some();
                assert_eq!(finished, counts, "{is_read} {node:#x} {from}");
                break;
            }
        }
    }
}

/// A read's length when values of these lengths were read before it.
fn read_after(lens: &[(&[u8], usize)], key: &[u8]) -> usize {
    let mut machine = machine(Options::default());
    for (key, len) in lens {
        let hash = Secret::NONE.key_hash(0, key);
        machine.rules.sizes.saw(&hash, *len, 1391);
    }
    machine.begin(&get(key), 0);
    sent(&mut machine)[0].len() - wire::HEADER_LEN - key.len()
}

#[test]
fn a_read_leaves_room_for_what_its_key_is_likely_to_need() {
    let seen = [(&b"s"[..], 10), (b"L", 1380)];
    assert_eq!(read_after(&[], b"s"), 256, "what is expected");
    assert_eq!(read_after(&seen, b"s"), 256);
    assert_eq!(read_after(&seen, b"L"), 1380);
    assert_eq!(read_after(&seen, b"other"), 1380);
    assert_eq!(read_after(&[(b"P", 5000)], b"P"), PART_BYTES);
}
