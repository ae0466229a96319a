//! Packets by the hundred thousand that were right once: cut, lengthened, with bits flipped and fields that lie.
//! `SHORTSTOP_TEST_SEED` replays a run; a failure names its seed.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use wire::{Epoch, Op};

use harness::{Message, Switch, switch::ending};

use crate::world::*;

/// What well-formed packets end as.
const OF_WELL_FORMED: [&str; 8] = [
    "drop_over_rate",
    "drop_rounds",
    "drop_refused",
    "drop_source",
    "drop_spoiled", // the system has a secret
    // Nothing is lent here.
    "drop_keep_old",
    "drop_lent_busy",
    "drop_lent_over",
];
const PACKETS: u32 = 110_000;

/// A frame as it was sent once, before it is spoiled.
struct Seed {
    frame: Vec<u8>,
    /// Where the UDP header begins, and where the key ends.
    udp: usize,
    key_end: usize,
    /// It changes tables: then only copies whose header or key was changed may be sent.
    acts: bool,
}

fn seed(message: &Message) -> Seed {
    let acts = !matches!(
        message.header.op,
        Op::ReadRequest | Op::CorrectionRequest | Op::LeaseOffer | Op::InvalidateAck
    );
    let ip = if message.from.is_ipv6() { 40 } else { 20 };
    let udp = 14 + ip + if message.vlan.is_some() { 4 } else { 0 };
    let key_end = udp + 8 + wire::HEADER_LEN + message.key.len();
    Seed {
        frame: message.frame().bytes(),
        udp,
        key_end,
        acts,
    }
}

/// One packet of every kind that the programs know, for a key that is cached, over IPv4, IPv6 and a VLAN.
fn seeds(w: &World, tenant: u32) -> Vec<Seed> {
    let here = Epoch::new(Switch::ID, w.switch.table.epoch());
    let kinds = [
        Message::read(tenant, KEY).padded(128),
        Message::read(tenant, KEY),
        Message::read(tenant, b"another key"),
        Message::read(tenant, &[b'k'; 250]),
        Message::write(tenant, KEY, V128),
        Message::delete(tenant, KEY),
        Message::from_client(Op::CorrectionRequest, tenant, KEY),
        Message::from_store(Op::Invalidate, tenant, KEY).epoch(here),
        Message::from_client(Op::InvalidateAck, tenant, KEY).epoch(here),
        Message::grant(Op::ReadReply, tenant, KEY, V128, here),
        Message::grant(Op::WriteReply, tenant, KEY, V128, here),
        Message::grant(Op::FetchReply, tenant, KEY, V128, here),
        Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)),
        w.lease_reply(TERM, 600_000, 0),
    ];
    let every_way = |m: &Message| [m.clone(), m.clone().over_ipv6(), m.clone().vlan(5)];
    kinds
        .iter()
        .flat_map(every_way)
        .map(|message| seed(&message))
        .collect()
}

/// Bytes of the packet that say how long something is or what it is, from the UDP header on.
const TELLING: [usize; 12] = [4, 5, 8, 9, 12, 48, 49, 50, 51, 58, 59, 63];

fn spoil(seed: &Seed, random: &mut SmallRng) -> Vec<u8> {
    let mut frame = seed.frame.clone();
    for _ in 0..random.random_range(1..=3) {
        let len = frame.len();
        match random.random_range(0..8) {
            0 => frame.truncate(random.random_range(14..=len)),
            1 => frame.resize(random.random_range(14..=3_500), random.random()),
            2 => {
                let at = random.random_range(0..len);
                frame[at] ^= 1 << random.random_range(0..8);
            }
            3 => {
                // Where most of the fields are.
                let at = random.random_range(seed.udp..seed.key_end).min(len - 1);
                frame[at] ^= 1 << random.random_range(0..8);
            }
            4 => {
                let at = seed.udp + TELLING[random.random_range(0..TELLING.len())];
                frame[at.min(len - 1)] = random.random();
            }
            5 => {
                let from = (seed.udp + 8).min(len - 1);
                random.fill(&mut frame[from..]);
            }
            6 => {
                // Ours up to the length of the key, and from there on anything.
                let from = (seed.udp + 10).min(len - 1);
                random.fill(&mut frame[from..]);
            }
            _ => {
                let at = random.random_range(14.min(len - 1)..len);
                let by = random.random_range(0..=(len - at).min(40)).min(len - 14);
                frame.drain(at..at + by);
            }
        }
        frame.resize(frame.len().max(14), 0);
    }
    frame
}

fn is_intact(seed: &Seed, frame: &[u8]) -> bool {
    let header_and_key = seed.udp + 8..seed.key_end;
    frame.get(header_and_key.clone()) == seed.frame.get(header_and_key)
}

/// What some packets have done is undone now and then, so that there are hits.
fn fill_again(w: &World, tenant: u32) {
    w.lease(TERM);
    w.send(Message::write(tenant, KEY, b""));
    w.send_as("grant_installed", w.grant(tenant, KEY, V128));
}

pub const TABLES: [&str; 4] = ["config", "buckets", "pages", "leases"];

fn run(w: &World, tenant: u32, may_act: bool) {
    let number = std::env::var("SHORTSTOP_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let number: u64 = number.unwrap_or(7117);
    let mut random = SmallRng::seed_from_u64(number);
    let seeds = seeds(w, tenant);
    let mut endings = BTreeMap::<&str, u32>::new();
    let mut out = vec![];
    let mut before = w.switch.counts();
    for packet in 0..PACKETS {
        if may_act && packet % 500 == 0 {
            fill_again(w, tenant);
            before = w.switch.counts();
        }
        let seed = &seeds[random.random_range(0..seeds.len())];
        let frame = loop {
            let frame = spoil(seed, &mut random);
            if may_act || !seed.acts || !is_intact(seed, &frame) {
                break frame;
            }
        };
        let verdict = w.switch.runner.run(&frame, None, &mut out);
        let after = w.switch.counts();
        let moved: Vec<_> = before
            .iter()
            .zip(&after)
            .filter_map(|((name, old), (_, new))| Some((*name, new - old, ending(name)?)))
            .filter(|(_, by, _)| *by > 0)
            .collect();
        before = after;
        let [(name, 1, wanted)] = moved[..] else {
            panic!("seed {number}, packet {packet}: endings {moved:?}, expected one: {frame:02x?}");
        };
        assert_eq!(
            verdict, wanted,
            "seed {number}, packet {packet}: {name}: {frame:02x?}"
        );
        *endings.entry(name).or_default() += 1;
    }
    println!("tenant {tenant}, seed {number}: {PACKETS} packets ended as {endings:#?}");
    let missing: Vec<_> = before
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| name.starts_with("drop_") && !OF_WELL_FORMED.contains(name))
        .filter(|name| !endings.contains_key(name))
        .collect();
    assert!(
        missing.is_empty(),
        "seed {number}: nothing ended as {missing:?}"
    );
}

#[test]
fn with_a_secret_they_change_no_table() {
    let mut w = world();
    w.cached(SIGNED, KEY, V128);
    // Its own rows say what tenant 0 and others may do; here all that is left is signed.
    let signed = [SIGNED, wire::TENANT_SYSTEM].map(|id| harness::switch::tenant(id, 3));
    w.install(&signed);
    let tables = || TABLES.map(|name| w.switch.snapshot(name));
    let before = tables();
    run(&w, SIGNED, false);
    for ((name, before), after) in TABLES.iter().zip(before).zip(tables()) {
        assert!(before == after, "{name} has changed");
    }
    let events: Vec<_> = w.switch.events.drain().expect("the ring").collect();
    assert_eq!(events, []);
    w.send_as("hit", Message::read(SIGNED, KEY));
}

#[test]
fn without_a_secret_each_comes_to_one_end() {
    let mut w = world();
    w.cached(OPEN, KEY, V128);
    run(&w, OPEN, true);
}
