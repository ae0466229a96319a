//! Cold keys: which are reported, and how well the pipe knows them.

use std::collections::BTreeMap;

use dataplane::Event;
use harness::{
    World,
    switch::{in_this_process, on_roads},
};

use kvswitch::parameters;

use crate::world::*;

fn drained(w: &World) -> Vec<Event> {
    let some = || -> Vec<Event> { w.switch.events.drain().expect("the ring").collect() };
    std::iter::repeat_with(some)
        .take_while(|events| !events.is_empty())
        .flatten()
        .collect()
}

fn counts(events: Vec<Event>) -> Vec<u32> {
    let count = |event| match event {
        Event::Hot { count, .. } => count,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(count).collect()
}

fn a_cold_key_is_reported() {
    let w = world();
    for _window in 0..2 {
        for _ in 0..40 {
            w.send(read());
        }
        let reported = counts(drained(&w));
        assert_eq!(
            reported,
            [4, 8, 16, 32],
            "at the threshold, and at doublings"
        );
        w.switch.table.next_window();
    }
    for _ in 0..3 {
        w.send(read());
    }
    assert_eq!(
        counts(drained(&w)),
        [0; 0],
        "a new window begins with nothing"
    );
}

#[test]
fn a_cold_key_is_reported_when_its_reads_have_doubled() {
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
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
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
            let mut known: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            for event in drained(&w) {
                let Event::Hot { key, count, .. } = event else {
                    continue;
                };
                let most = known.entry(key.to_vec()).or_default();
                *most = count.max(*most);
            }
            for key in 1..=100u64 {
                let name = format!("key{key:013}");
                let is = 10_000 / key + 1;
                let known = known.get(name.as_bytes()).copied().unwrap_or(0);
                assert!(u64::from(known) <= is, "{name} is never counted too often");
                assert!(u64::from(known) * 4 > is, "{name}: {known} of {is}");
            }
        });
    });
}
