//! Packets by the hundred thousand that were right once: cut, lengthened, with bits flipped and
//! fields that lie. `SHORTSTOP_TEST_SEED` replays a run; a failure names its seed.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use wire::Op;

use crate::{
    Message, World,
    switch::{Verdict, ending},
};

/// A frame as it was sent once, before it is spoiled.
pub struct Seed {
    frame: Vec<u8>,
    /// Where the UDP header begins, and where the key ends.
    udp: usize,
    key_end: usize,
    /// It changes tables: then only copies whose header or key was changed may be sent.
    acts: bool,
}

pub fn seed(message: &Message) -> Seed {
    let acts = !matches!(
        message.header.op,
        Op::ReadRequest | Op::CorrectionRequest | Op::LeaseOffer | Op::InvalidateAck
    );
    let ip = if message.from.is_ipv6() { 40 } else { 20 };
    let udp = 14 + ip + if message.vlan.is_some() { 4 } else { 0 };
    let key_end = udp + 8 + wire::HEADER_LEN + message.key.len();
    Seed { frame: message.frame().bytes(), udp, key_end, acts }
}

/// Every message over IPv4, IPv6 and a VLAN.
pub fn every_way(messages: &[Message]) -> Vec<Seed> {
    let ways = |m: &Message| [m.clone(), m.clone().over_ipv6(), m.clone().vlan(5)];
    let all = messages.iter().flat_map(ways);
    all.map(|message| seed(&message)).collect()
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

/// Packets between two looks at the counters, which take longer than all of them.
const AT_ONCE: u32 = 10;
/// Packets between two refills.
const REFILL: u32 = 500;

/// Sends `packets` spoiled copies; each must come to one end, with its verdict: of [`AT_ONCE`] in a
/// row there are as many ends with each verdict as packets that had it. `refill`: packets may
/// change tables, and this is done before every [`REFILL`]th. Returns the ends with their numbers.
pub fn noise(
    w: &World,
    seeds: &[Seed],
    packets: u32,
    refill: Option<&dyn Fn()>,
) -> BTreeMap<&'static str, u32> {
    let number = std::env::var("SHORTSTOP_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let number: u64 = number.unwrap_or(7117);
    println!("SHORTSTOP_TEST_SEED={number}");
    let mut random = SmallRng::seed_from_u64(number);
    let mut endings = BTreeMap::<&str, u32>::new();
    let mut before = w.switch.counts();
    for first in (0..packets).step_by(AT_ONCE as usize) {
        if let Some(refill) = refill.filter(|_| first % REFILL == 0) {
            refill();
            before = w.switch.counts();
        }
        let mut frames = vec![];
        let mut wanted = BTreeMap::<Verdict, u32>::new();
        for _ in first..packets.min(first + AT_ONCE) {
            let seed = &seeds[random.random_range(0..seeds.len())];
            let frame = loop {
                let frame = spoil(seed, &mut random);
                if refill.is_some() || !seed.acts || !is_intact(seed, &frame) {
                    break frame;
                }
            };
            let verdict = w.switch.runner.run(&frame, None, &mut vec![]);
            *wanted.entry(verdict).or_default() += 1;
            frames.push(frame);
        }
        let after = w.switch.counts();
        let mut moved = vec![];
        let mut ended = BTreeMap::<Verdict, u32>::new();
        for ((name, old), (_, new)) in before.iter().zip(&after) {
            if let Some(verdict) = ending(name).filter(|_| new > old) {
                let by = u32::try_from(new - old).expect("a packet's worth");
                moved.push((name, by));
                *ended.entry(verdict).or_default() += by;
                *endings.entry(name).or_default() += by;
            }
        }
        assert_eq!(
            wanted, ended,
            "seed {number}, packets from {first} on: verdicts, and those of {moved:?}: {frames:02x?}"
        );
        before = after;
    }
    println!("{packets} packets ended as {endings:#?}");
    endings
}
