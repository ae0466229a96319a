//! Paths that carry less than an Ethernet frame: what is longer vanishes, requests and answers
//! alike, and nobody says so.

use std::collections::BTreeMap;

use super::*;
use crate::tests::fake::State;

/// Bytes of UDP payload that a path carries over VXLAN, over WireGuard, and at least.
const PATHS: [usize; 3] = [1450 - 28, 1420 - 28, 1280 - 28];
/// Bytes of a value that fits a packet beside a key of one byte, and fits none of these paths.
const LARGE: usize = 1380;
/// From a request to its answer.
const ROUND_TRIP: u64 = MS / 10;

/// One client and a store, with a path in between.
struct World {
    machine: Machine,
    state: State,
    secret: Secret,
    now: u64,
    /// Longest datagram in bytes that the path carries.
    longest: usize,
    /// Nothing arrives before this.
    away_until: u64,
    /// The store answers no writes.
    is_slow: bool,
    arrivals: VecDeque<(u64, Vec<u8>)>,
    /// What did not arrive, and what left.
    lost: usize,
    sent: usize,
}

impl World {
    /// `secret`: the tenant has one, so that answers may be longer than requests.
    fn new(secret: bool, longest: usize) -> World {
        let mut cluster = Cluster::single(store(), 4);
        cluster.tenants.push(wire::Tenant::new(7, "09".repeat(16)));
        let (tenant, secret) = match secret {
            true => (7, Secret([9; 16])),
            false => (0, Secret::NONE),
        };
        World {
            machine: Machine::new(&cluster, tenant, Options::default(), 1).unwrap(),
            state: State::default(),
            secret,
            now: MS,
            longest,
            away_until: 0,
            is_slow: false,
            arrivals: VecDeque::new(),
            lost: 0,
            sent: 0,
        }
    }

    fn holds(&mut self, key: &[u8], len: usize) {
        let value = value_of(key, len);
        self.state.data.insert(key.to_vec(), (value, len as u64, 0));
    }

    /// Carries out operations at once; what came of each.
    fn all(&mut self, operations: &[Operation<'_>]) -> Vec<Result<Answer, Error>> {
        let mut results = BTreeMap::new();
        for operation in operations {
            self.machine.begin(operation, self.now);
        }
        loop {
            while let Some((_, datagram)) = self.machine.next_datagram() {
                self.sent += 1;
                self.arrive(&datagram);
            }
            while let Some((number, result)) = self.machine.next_finished() {
                results.insert(number, result);
            }
            let Some(timer) = self.machine.next_ns() else {
                return results.into_values().collect();
            };
            match self.arrivals.front() {
                Some((at, _)) if *at <= timer => {
                    let (at, bytes) = self.arrivals.pop_front().unwrap();
                    self.now = self.now.max(at);
                    self.machine.take(&bytes, store(), self.now);
                }
                _ => {
                    self.now = timer;
                    self.machine.timer(timer);
                }
            }
        }
    }

    fn one(&mut self, operation: &Operation<'_>) -> Result<Answer, Error> {
        self.all(&[*operation]).remove(0)
    }

    /// Reads a key; whether all was right.
    fn reads(&mut self, key: &[u8], len: usize) {
        let found = self.one(&get(key)).and_then(Answer::found);
        let found = found.unwrap_or_else(|error| panic!("{len} bytes: {error}"));
        assert_eq!(found.expect("it is there").bytes, value_of(key, len));
    }

    /// A datagram comes to the store, and its answer leaves.
    fn arrive(&mut self, datagram: &[u8]) {
        if datagram.len() > self.longest || self.now < self.away_until {
            self.lost += 1;
            return;
        }
        let packet = Packet::decode(datagram).unwrap();
        if self.is_slow && packet.header.op.is_write() {
            return;
        }
        let room = match self.secret == Secret::NONE {
            true => datagram.len(),
            false => wire::MAX_PAYLOAD,
        };
        let (header, value) = self.state.answer(&packet, room);
        let reply = Packet::new(header, packet.key, &value).to_bytes(&self.secret).unwrap();
        if reply.len() > self.longest {
            self.lost += 1;
            return;
        }
        self.arrivals.push_back((self.now + ROUND_TRIP, reply));
    }
}

fn value_of(key: &[u8], len: usize) -> Vec<u8> {
    (0..len).map(|at| key[0] ^ (at / 7) as u8).collect()
}

#[test]
fn small_values_are_read_at_once_after_large_ones() {
    for (secret, longest) in [true, false].into_iter().flat_map(|s| PATHS.map(|l| (s, l))) {
        let mut world = World::new(secret, longest);
        world.holds(b"L", LARGE);
        world.reads(b"L", LARGE);
        for number in 0..500u32 {
            let key = number.to_be_bytes();
            world.holds(&key, 100);
            let before = world.lost;
            world.reads(&key, 100);
            let was_lost = world.lost > before;
            assert!(!was_lost || number < 3, "{secret} {longest}: read {number}");
        }
        let before = (world.lost, world.sent);
        world.reads(b"L", LARGE);
        let more = (world.lost - before.0, world.sent - before.1);
        assert_eq!(more, (0, 2), "the large one comes in two parts");
    }
}

#[test]
fn a_key_that_leaves_no_room_for_a_part_is_read_while_its_value_is_small() {
    let key = [7; 250];
    for secret in [true, false] {
        let mut world = World::new(secret, PATHS[2]);
        world.holds(b"L", LARGE);
        world.reads(b"L", LARGE);
        world.holds(&key, 900);
        world.reads(&key, 900);
        world.holds(&key, 1300);
        let error = world.one(&get(&key)).unwrap_err();
        assert!(error.to_string().contains("MTU"), "{error}");
        world.holds(&key, 20);
        world.reads(&key, 20);
    }
}

#[test]
fn a_large_write_goes_in_parts_if_it_vanishes_and_the_next_at_once() {
    for (secret, longest) in [true, false].into_iter().flat_map(|s| PATHS.map(|l| (s, l))) {
        let mut world = World::new(secret, longest);
        let large = value_of(b"k", LARGE);
        for number in 1..=5 {
            assert!(world.one(&set(b"k", &large)).unwrap().written().is_ok());
            assert_eq!(world.state.applied, number);
        }
        let before = world.lost;
        world.now += 1_000_000 * MS;
        assert!(world.one(&set(b"k", &large)).unwrap().written().is_ok());
        assert_eq!(world.lost, before, "it is known");
        world.reads(b"k", LARGE);
        assert!(world.one(&set(b"s", b"small")).unwrap().written().is_ok());
    }
}

#[test]
fn a_write_on_a_path_that_has_become_short_ends_with_an_error_that_says_so() {
    let mut world = World::new(false, wire::MAX_PAYLOAD);
    let large = value_of(b"k", LARGE);
    assert!(world.one(&set(b"k", &large)).unwrap().written().is_ok());
    world.longest = PATHS[0];
    let mut results = world.all(&[set(b"k", &large), get(b"s")]);
    assert!(results.pop().is_some_and(|read| read.is_ok()));
    let error = results.remove(0).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{text}");
    assert!(text.contains("MTU") && !text.contains('\n'), "{text}");
}

#[test]
fn a_store_that_is_slow_is_not_taken_for_a_short_path() {
    for secret in [true, false] {
        let mut world = World::new(secret, wire::MAX_PAYLOAD);
        world.is_slow = true;
        let large = value_of(b"k", LARGE);
        let error = world.one(&set(b"k", &large)).unwrap_err().to_string();
        assert!(!error.contains("MTU"), "{error}");
        assert!(!world.machine.rules.paths.was_short(0));
        assert!(!world.machine.rules.paths.is_short(0, world.now));
    }
}

#[test]
fn a_store_that_was_away_is_not_taken_for_a_short_path() {
    for secret in [true, false] {
        let mut world = World::new(secret, wire::MAX_PAYLOAD);
        let keys: Vec<[u8; 1]> = (0..20).map(|number| [number]).collect();
        for key in &keys {
            world.holds(key, LARGE);
        }
        let reads: Vec<_> = keys.iter().map(|key| get(key)).collect();
        for first in [true, false] {
            world.away_until = world.now + 700 * MS;
            let results = world.all(&reads);
            assert!(results.iter().all(Result::is_ok), "{secret} {first}");
            let is_short = world.machine.rules.paths.is_short(0, world.now);
            assert!(!is_short, "{secret} {first}");
            let before = world.sent;
            world.reads(&keys[0], LARGE);
            assert_eq!(world.sent - before, 1, "{secret} {first}: in one packet");
        }
    }
}

#[test]
fn a_path_that_carries_more_again_is_noticed() {
    let mut world = World::new(false, PATHS[0]);
    world.holds(b"L", LARGE);
    (0..3).for_each(|_| world.reads(b"L", LARGE));
    assert!(world.machine.rules.paths.is_short(0, world.now));
    world.longest = wire::MAX_PAYLOAD;
    world.now += 61_000 * MS;
    let before = world.sent;
    world.reads(b"L", LARGE);
    assert_eq!(world.sent - before, 1, "whole again");
}

#[test]
fn values_of_one_length_cost_no_second_round_trip() {
    for len in [300, 1000, LARGE] {
        let mut world = World::new(false, wire::MAX_PAYLOAD);
        for number in 0..2000u32 {
            let key = number.to_be_bytes();
            world.holds(&key, len);
            world.reads(&key, len);
        }
        let counts = world.machine.counts();
        assert_eq!((counts.padded, counts.sent), (1, 2001), "{len}");
    }
}

#[test]
fn reads_of_small_values_are_not_padded_to_the_largest_for_ever() {
    let mut world = World::new(false, wire::MAX_PAYLOAD);
    world.holds(b"L", LARGE);
    world.reads(b"L", LARGE);
    world.holds(b"s", 10);
    world.reads(b"s", 10);
    world.machine.begin(&get(b"s"), world.now);
    let (_, read) = world.machine.next_datagram().unwrap();
    assert_eq!(read.len(), wire::HEADER_LEN + 1 + 256, "what is expected");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the path carries, of 1280 bytes on, and whatever was read before: each value is
    /// read, whole and right.
    #[test]
    fn every_value_is_read_over_every_path(
        secret in any::<bool>(), longest in 1280 - 28..=wire::MAX_PAYLOAD,
        lens in prop::collection::vec((0..4u8, 0..4000usize), 1..20),
    ) {
        let mut world = World::new(secret, longest);
        for (key, len) in lens {
            world.holds(&[key], len);
            world.reads(&[key], len);
        }
    }
}
