//! Cold keys: which are reported, and how well the pipe knows them.

use std::collections::BTreeSet;

use dataplane::Event;
use harness::{
    World,
    message::secret_of,
    switch::{in_this_process, on_roads},
};

use kvswitch::parameters;

use super::world::*;

fn drained(w: &World) -> Vec<Event> {
    let some = || -> Vec<Event> { w.switch.events.drain().expect("the ring").collect() };
    std::iter::repeat_with(some).take_while(|events| !events.is_empty()).flatten().collect()
}

fn a_cold_key_is_reported() {
    let w = world();
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    for window in [0, 1] {
        for reads in 1..=40 {
            w.send(read());
            assert_eq!(w.switch.sketches.estimate(SIGNED, hash, window), reads);
        }
        let hot = Event::Hot {
            tenant: SIGNED,
            key: KEY.into(),
            count: THRESHOLD,
            window,
            has_item: false,
        };
        assert_eq!(drained(&w), [hot], "window {window}: once");
        w.switch.table.next_window();
    }
    for _ in 1..THRESHOLD {
        w.send(read());
    }
    assert_eq!(drained(&w), [], "a new window begins with nothing");
}

#[test]
fn a_cold_key_is_reported_once_in_a_window() {
    on_roads(|| {
        a_cold_key_is_reported();
        in_this_process(a_cold_key_is_reported);
    });
}

/// Zipf-like: key `i` is read `10,000 / i` times, all mixed.
#[test]
fn the_hottest_keys_are_known_among_many() {
    const KEYS: u64 = 20_000;
    on_roads(|| {
        in_this_process(|| {
            let w = world();
            w.set_parameters(&[(ALONE, parameters::words(64, false))]);
            let mut left: Vec<(u64, u64)> = (1..=KEYS).map(|key| (key, 10_000 / key + 1)).collect();
            let mut random = 1u64;
            let mut reads = 0u64;
            while !left.is_empty() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % left.len();
                let key = format!("key{:013}", left[at].0);
                let mut read = Message::read(ALONE, key.as_bytes());
                read.header.client = reads;
                w.send(read);
                reads += 1;
                left[at].1 -= 1;
                if left[at].1 == 0 {
                    left.swap_remove(at);
                }
            }
            let reported: BTreeSet<Vec<u8>> = drained(&w)
                .into_iter()
                .filter_map(|event| match event {
                    Event::Hot { key, .. } => Some(key.to_vec()),
                    _ => None,
                })
                .collect();
            for key in 1..=100u64 {
                let name = format!("key{key:013}");
                let (is, hash) =
                    (10_000 / key + 1, secret_of(ALONE).key_hash(ALONE, name.as_bytes()));
                let known = w.switch.sketches.estimate(ALONE, hash, 0);
                assert!(known <= is, "{name} is never counted too often");
                assert!(known * 10 > is * 9, "{name}: {known} of {is}");
                assert!(reported.contains(name.as_bytes()), "{name}");
            }
        });
    });
}
