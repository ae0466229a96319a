//! Clients and a store in virtual time, with a network that loses, duplicates and reorders, values
//! of many parts that change all the time, and a store that restarts. What clients read is held
//! against what the store had.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use wire::{Flags, Header, PART_BYTES, Packet, Secret, Status};

use super::*;
use crate::{Condition, tests::fake::parts};

const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 7117).into()
}

/// What goes wrong, in percent of datagrams unless it says otherwise.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: u32,
    /// Of the answers only.
    lose_answers: u32,
    duplicate: u32,
    /// Longest way in microseconds; the shortest is 50.
    longest_us: u64,
    /// The store starts anew so often, in milliseconds; 0: never.
    restart_ms: u64,
    /// Of parts of writes.
    try_again: u32,
}

/// A value that tells which one it is in every word, so that a mixture of two shows.
fn value(stamp: u64, len: usize) -> Vec<u8> {
    stamp.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// The stamp of a value whose words all have the same.
fn stamp(bytes: &[u8]) -> Option<u64> {
    let stamp = u64::from_be_bytes(*bytes.first_chunk()?);
    (value(stamp, bytes.len()) == bytes).then_some(stamp)
}

/// One store with one key's value and the times that it had which.
struct Store {
    life: u16,
    born_ns: u64,
    joins: parts::Joins,
    answered: HashMap<(u64, u64), Header>,
    version: u64,
    value: Vec<u8>,
    /// By stamp: from when to when the key had it.
    held: BTreeMap<u64, Range<u64>>,
    /// Stamps of writes that took place, each once per time.
    applied: Vec<u64>,
}

impl Store {
    fn new() -> Store {
        let mut store = Store {
            life: 100,
            born_ns: 0,
            joins: parts::Joins::default(),
            answered: HashMap::new(),
            version: 0,
            value: vec![],
            held: BTreeMap::new(),
            applied: vec![],
        };
        store.put(value(1, 5000), 0);
        store
    }

    /// The life before wrote to a disk, and took what it remembered of clients along.
    fn restart(&mut self, now_ns: u64) {
        self.life += 1;
        self.born_ns = now_ns;
        self.joins = parts::Joins::default();
        self.answered.clear();
    }

    fn put(&mut self, value: Vec<u8>, now_ns: u64) {
        let new = stamp(&value).expect("a write was joined from parts of several");
        if let Some(old) = stamp(&self.value) {
            self.held.get_mut(&old).expect("it was put").end = now_ns;
        }
        self.held.insert(new, now_ns..u64::MAX);
        self.version += 10;
        self.value = value;
    }

    fn answer(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        now_ns: u64,
        try_again: bool,
    ) -> (Header, Vec<u8>) {
        let h = packet.header;
        let reply = Header {
            op: h.op.reply().unwrap(),
            flags: Flags::NONE,
            status: Status::Ok,
            life: self.life,
            expiry_ms: 0,
            part: 0,
            total: 0,
            ..h
        };
        let status = |status| (Header { status, ..reply }, vec![]);
        if !h.op.is_write() {
            return parts::read(packet, reply, &self.value, self.version, room);
        }
        if h.life != self.life {
            let (mut header, value) = status(Status::OtherLife);
            header.expiry_ms = ((now_ns - self.born_ns) / MS) as u32;
            return (header, value);
        }
        if let Some(header) = self.answered.get(&(h.client, h.request)) {
            return (*header, vec![]);
        }
        if try_again {
            return status(Status::TryAgain);
        }
        let whole = match self.joins.take(packet) {
            Ok(whole) => whole,
            Err(part) => {
                let (header, value) = status(Status::Taken);
                let total = h.total;
                return (Header { part, total, ..header }, value);
            }
        };
        self.applied.push(stamp(&whole).expect("torn on its way up"));
        self.put(whole, now_ns);
        let version = self.version;
        let header = Header { version, ..reply };
        self.answered.insert((h.client, h.request), header);
        (header, vec![])
    }
}

/// Whom a datagram reaches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Store(usize),
    Client(usize),
}

/// What came of a run.
#[derive(Default, Debug)]
struct Outcome {
    read: usize,
    /// Reads of values that were never written, or not while the read was under way.
    torn: usize,
    stale: usize,
    written: usize,
    unknown: usize,
    not_whole: usize,
    timeouts: usize,
    changes: u64,
    retransmitted: u64,
}

/// Lets two clients read and write values of many parts until `until_ms`, and looks at all that
/// they are told.
fn run(seed: u64, faults: Faults, until_ms: u64, mutant: bool) -> Outcome {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut store = Store::new();
    let mut clients: Vec<_> = (0..2)
        .map(|i| {
            let cluster = Cluster::single(address(), 4);
            Machine::new(&cluster, 0, Options::default(), seed * 2 + i).unwrap()
        })
        .collect();
    clients[0].rules.joins_any_version = mutant;
    let mut begun: BTreeMap<(usize, u64), (u64, Option<u64>)> = BTreeMap::new();
    let mut arrivals: BTreeSet<(u64, u64, Destination, Vec<u8>)> = BTreeSet::new();
    let (mut now, mut number, mut last_stamp) = (0, 0, 1);
    let (mut outcome, mut succeeded, mut impossible) = (Outcome::default(), vec![], vec![]);
    let mut restart_ns = faults.restart_ms * MS;
    loop {
        for (who, client) in clients.iter_mut().enumerate() {
            while let Some((call, result)) = client.next_finished() {
                let (since, wrote) = begun.remove(&(who, call)).unwrap();
                match (
                    wrote,
                    result.and_then(|answer| match wrote {
                        None => {
                            answer.found().map(|found| found.expect("it is never removed").bytes)
                        }
                        Some(_) => answer.written().map(|_| Bytes::new()),
                    }),
                ) {
                    (None, Ok(bytes)) => {
                        outcome.read += 1;
                        match stamp(&bytes).and_then(|stamp| store.held.get(&stamp)) {
                            None => outcome.torn += 1,
                            Some(held) if held.start > now || held.end < since => {
                                outcome.stale += 1
                            }
                            Some(_) => {}
                        }
                    }
                    (Some(stamp), Ok(_)) => {
                        outcome.written += 1;
                        succeeded.push(stamp);
                    }
                    (Some(_), Err(Error::OutcomeUnknown { .. })) => outcome.unknown += 1,
                    (Some(stamp), Err(Error::NotWhole { .. })) => {
                        outcome.not_whole += 1;
                        impossible.push(stamp);
                    }
                    (None, Err(Error::Timeout { .. })) => outcome.timeouts += 1,
                    (_, Err(error)) => panic!("{error}"),
                }
            }
            if now < until_ms * MS && begun.range((who, 0)..(who + 1, 0)).count() < 2 {
                let wrote = rng.random_bool(0.4).then(|| {
                    last_stamp += 1;
                    last_stamp
                });
                let call = match wrote {
                    None => client.begin(&Operation::Get { key: b"k" }, now),
                    Some(stamp) => {
                        let len = [64, 1500, 6000, 40_000, 40_000][rng.random_range(0..5)];
                        let set = Operation::Set {
                            key: b"k",
                            value: &value(stamp, len),
                            ttl: None,
                            condition: Condition::Always,
                        };
                        client.begin(&set, now)
                    }
                };
                begun.insert((who, call), (now, wrote));
            }
            while let Some((_, datagram)) = client.next_datagram() {
                let copies = 1 + u32::from(rng.random_ratio(faults.duplicate, 100));
                for _ in 0..copies {
                    let at = now + rng.random_range(50..=faults.longest_us.max(50)) * US;
                    number += 1;
                    if !rng.random_ratio(faults.lose, 100) {
                        arrivals.insert((at, number, Destination::Store(who), datagram.to_vec()));
                    }
                }
            }
        }
        let timer = clients.iter().filter_map(Machine::next_ns).min();
        let Some(timer) = timer else { break };
        if restart_ns > 0 && now >= restart_ns {
            store.restart(now);
            restart_ns += faults.restart_ms * MS;
        }
        match arrivals.first() {
            Some((at, ..)) if *at <= timer => {
                let (at, _, to, bytes) = arrivals.pop_first().unwrap();
                now = at;
                match to {
                    Destination::Client(who) => clients[who].take(&bytes, address(), now),
                    Destination::Store(who) => {
                        let packet = Packet::decode(&bytes).unwrap();
                        let try_again = rng.random_ratio(faults.try_again, 100);
                        let (header, value) = store.answer(&packet, bytes.len(), now, try_again);
                        let reply = Packet::new(header, packet.key, &value)
                            .to_bytes(&Secret::NONE)
                            .unwrap();
                        let at = now + rng.random_range(50..=faults.longest_us.max(50)) * US;
                        number += 1;
                        if !rng.random_ratio(faults.lose + faults.lose_answers, 100) {
                            arrivals.insert((at, number, Destination::Client(who), reply));
                        }
                    }
                }
            }
            _ => {
                now = timer;
                clients.iter_mut().for_each(|client| client.timer(now));
            }
        }
    }
    // Each write took place once at most; those that succeeded did, those that never were whole
    // did not.
    let times = |stamp| store.applied.iter().filter(|applied| **applied == stamp).count();
    assert!((2..=last_stamp).all(|stamp| times(stamp) <= 1), "seed {seed}");
    assert!(succeeded.iter().all(|stamp| times(*stamp) == 1), "seed {seed}");
    assert!(impossible.iter().all(|stamp| times(*stamp) == 0), "seed {seed}");
    for client in &clients {
        outcome.changes += client.counts().changed;
        outcome.retransmitted += client.counts().retransmitted;
        assert!(client.waiting.is_empty() && client.calls.is_empty());
    }
    outcome
}

const ROUGH: Faults =
    Faults { lose: 5, lose_answers: 0, duplicate: 5, longest_us: 400, restart_ms: 0, try_again: 0 };

#[test]
fn what_is_read_was_written_whole_and_while_it_was_read() {
    for (seed, faults) in [
        Faults::default(),
        ROUGH,
        // Nearly half of what the store says gets lost, all that it hears arrives.
        Faults { lose: 0, lose_answers: 45, ..ROUGH },
        Faults { restart_ms: 37, ..ROUGH },
        Faults { try_again: 2, ..ROUGH },
        Faults { lose: 20, restart_ms: 200, try_again: 1, ..ROUGH },
    ]
    .into_iter()
    .cycle()
    .take(12)
    .enumerate()
    {
        let outcome = run(seed as u64, faults, 500, false);
        let Outcome { torn, stale, .. } = outcome;
        assert_eq!((torn, stale), (0, 0), "seed {seed}: {outcome:?}");
        assert!(outcome.read > 5, "seed {seed}: {outcome:?}");
        assert!(outcome.written > 1, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_client_that_joins_parts_of_two_versions_is_noticed() {
    let far = Faults { longest_us: 3000, ..ROUGH };
    let torn: usize = (0..5).map(|seed| run(seed, far, 300, true).torn).sum();
    assert!(torn > 0);
}

#[test]
fn no_more_is_held_than_has_arrived() {
    let cluster = Cluster::single(address(), 4);
    let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
    machine.begin(&Operation::Get { key: b"k" }, 0);
    let (_, datagram) = machine.next_datagram().unwrap();
    let packet = Packet::decode(&datagram).unwrap();
    let first = |total| {
        let header = Header { op: wire::Op::ReadReply, version: 7, total, ..packet.header };
        let part = Packet::new(header, packet.key, &[1; PART_BYTES]);
        part.to_bytes(&Secret::NONE).unwrap()
    };
    machine.take(&first(1 << 20), address(), MS);
    assert_eq!(std::iter::from_fn(|| machine.next_datagram()).count(), 32);
    let Some(RunningCall { call, .. }) = machine.calls.get(&0) else {
        panic!("it goes on");
    };
    assert!(call.held_bytes() < 2 * PART_BYTES, "{}", call.held_bytes());

    machine.begin(&Operation::Get { key: b"k" }, 2 * MS);
    let (_, datagram) = machine.next_datagram().unwrap();
    let packet = Packet::decode(&datagram).unwrap();
    let header =
        Header { op: wire::Op::ReadReply, version: 7, total: (1 << 20) + 1, ..packet.header };
    let part = Packet::new(header, packet.key, &[1; PART_BYTES]);
    let bytes = part.to_bytes(&Secret::NONE).unwrap();
    machine.take(&bytes, address(), 3 * MS);
    let (_, result) = machine.next_finished().unwrap();
    assert!(matches!(result, Err(Error::ValueLength { .. })), "{result:?}");
}

#[test]
fn a_value_that_never_stays_is_a_timeout_that_says_so() {
    let mut store = Store::new();
    let cluster = Cluster::single(address(), 4);
    let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
    machine.begin(&Operation::Get { key: b"k" }, 0);
    let mut now = 0;
    let (_, result) = loop {
        now += MS;
        if machine.next_ns().is_some_and(|at| at <= now) {
            machine.timer(now);
        }
        while let Some((_, datagram)) = machine.next_datagram() {
            let packet = Packet::decode(&datagram).unwrap();
            let (header, value) = store.answer(&packet, datagram.len(), now, false);
            store.put(value_of(now), now);
            let reply = Packet::new(header, packet.key, &value).to_bytes(&Secret::NONE).unwrap();
            machine.take(&reply, address(), now);
        }
        if let Some(finished) = machine.next_finished() {
            break finished;
        }
    };
    let error = result.unwrap_err().to_string();
    assert!(error.contains("was written again"), "{error}");
}

fn value_of(stamp: u64) -> Vec<u8> {
    value(stamp, 5000)
}

#[test]
fn a_write_is_unknown_only_if_a_store_was_sent_all_of_it() {
    let header = |datagram: &Bytes| Packet::decode(datagram).unwrap().header;
    let answer = |datagram: &Bytes, life, status, part| {
        let packet = Packet::decode(datagram).unwrap();
        let header = Header { op: wire::Op::WriteReply, status, life, part, ..packet.header };
        Packet::new(header, packet.key, b"").to_bytes(&Secret::NONE).unwrap()
    };
    let sent = |machine: &mut Machine| -> Vec<Bytes> {
        std::iter::from_fn(|| machine.next_datagram().map(|(_, datagram)| datagram)).collect()
    };
    // 40 parts do not go at once, 20 do.
    for (parts, unknown) in [(40, false), (20, true)] {
        let cluster = Cluster::single(address(), 4);
        let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
        let set = Operation::Set {
            key: b"k",
            value: &value(7, parts * PART_BYTES),
            ttl: None,
            condition: Condition::Always,
        };
        machine.begin(&set, 0);
        let first = sent(&mut machine);
        assert_eq!(first.len(), 1, "one part asks for the store's life");
        machine.take(&answer(&first[0], 5, Status::OtherLife, 0), address(), MS);
        let window = sent(&mut machine);
        assert_eq!(window.len(), parts.min(32));
        assert!(window.iter().all(|part| header(part).life == 5));
        let ids = window.iter().map(|part| header(part).request);
        assert!(ids.eq(std::iter::repeat_n(header(&first[0]).request, window.len())));
        while let Some(at) = machine.next_ns() {
            machine.timer(at);
        }
        let (_, result) = machine.next_finished().unwrap();
        let error = result.unwrap_err();
        assert_eq!(matches!(error, Error::OutcomeUnknown { .. }), unknown, "{error}");
        assert_eq!(matches!(error, Error::NotWhole { .. }), !unknown, "{error}");
        assert!(sent(&mut machine).iter().all(|part| header(part).life == 5));
    }
}

#[test]
fn what_a_store_has_forgotten_is_sent_again() {
    let cluster = Cluster::single(address(), 4);
    let mut machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
    let mut store = Store::new();
    let set = Operation::Set {
        key: b"k",
        value: &value(7, 100 * PART_BYTES),
        ttl: None,
        condition: Condition::Always,
    };
    machine.begin(&set, 0);
    let mut now = 0;
    let mut forgets = 3;
    while machine.next_finished().is_none() {
        while let Some((_, datagram)) = machine.next_datagram() {
            let packet = Packet::decode(&datagram).unwrap();
            if forgets > 0 && packet.header.part > 4 * 70 {
                forgets -= 1;
                store.joins = parts::Joins::default();
            }
            let (header, value) = store.answer(&packet, datagram.len(), now, false);
            let reply = Packet::new(header, packet.key, &value).to_bytes(&Secret::NONE).unwrap();
            machine.take(&reply, address(), now + US);
        }
        now = machine.next_ns().unwrap_or(now);
        machine.timer(now);
    }
    assert_eq!(store.applied, [7]);
    assert!(now < 500 * MS, "{now}");
}
