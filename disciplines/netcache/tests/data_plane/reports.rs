//! Counting: the sketch of misses, the counters of entries, reports of hot keys.

use dataplane::Event;

use harness::{Message, message::secret_of};

use crate::world::*;

fn drained(w: &World) -> Vec<Event> {
    let some = || -> Vec<Event> { w.switch.events.drain().expect("the ring").collect() };
    std::iter::repeat_with(some)
        .take_while(|events| !events.is_empty())
        .flatten()
        .collect()
}

#[test]
fn misses_are_estimated_and_a_hot_key_is_reported_once_per_window() {
    let w = world();
    report_from(&w, &[(SIGNED, 3)]);
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    for (window, threshold) in [(0, 3), (1, 3)] {
        let estimate = || w.switch.sketches.estimate(SIGNED, hash, window);
        for reads in 1..=6 {
            let run = w
                .switch
                .run(&Message::read(SIGNED, KEY).frame().bytes(), None);
            assert_eq!(estimate(), reads, "window {window}");
            let reports = run.moved.get("hot_report").copied().unwrap_or(0);
            assert_eq!(
                reports,
                u64::from(reads == threshold),
                "read {reads} of window {window}"
            );
        }
        let hot = Event::Hot {
            tenant: SIGNED,
            key: KEY.into(),
            count: 3,
            window,
        };
        assert_eq!(drained(&w), [hot]);
        w.switch.table.next_window();
    }
    assert_eq!(
        w.switch.sketches.estimate(SIGNED, hash, 2),
        0,
        "a new window begins with nothing"
    );
}

#[test]
fn each_tenant_has_its_own_threshold() {
    let w = world();
    report_from(&w, &[(SIGNED, 3), (OTHER, 1), (UNKNOWN, 1)]);
    for (tenant, reads_until_hot) in [(SIGNED, 3), (OTHER, 1)] {
        for _ in 1..reads_until_hot {
            w.send(Message::read(tenant, KEY));
            assert_eq!(drained(&w), []);
        }
        w.send_as("hot_report", Message::read(tenant, KEY));
        assert_eq!(drained(&w).len(), 1);
    }
    report_from(&w, &[(SIGNED, 9)]);
    let home = w.switch.dataplane().home();
    let thresholds = dataplane::TenantEntry::parameters(home).expect("tenants");
    assert!(thresholds.contains(&(SIGNED, [9, 0])) && thresholds.contains(&(OTHER, [1, 0])));
    assert!(thresholds.iter().all(|(id, _)| *id != UNKNOWN));
}

#[test]
fn other_tenants_reads_of_the_same_key_are_counted_apart() {
    let w = world();
    for _ in 0..5 {
        w.send_as("miss", Message::read(SIGNED, KEY));
    }
    let hash = secret_of(OTHER).key_hash(OTHER, KEY);
    assert_eq!(w.switch.sketches.estimate(OTHER, hash, 0), 0);
}

#[test]
fn reads_of_an_entry_are_counted_exactly_and_not_in_the_sketch() {
    let mut w = world();
    w.cached(SIGNED, KEY, V128);
    let slot = w.switch.table.scan()[0].slot;
    for _ in 0..5 {
        w.send_as("hit", Message::read(SIGNED, KEY));
    }
    assert_eq!(w.switch.table.requests(slot), 5);
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    assert_eq!(w.switch.sketches.estimate(SIGNED, hash, 0), 0);
}

#[test]
fn a_value_too_large_for_its_entry_is_told_once() {
    let mut w = world();
    w.lease(TERM);
    w.entry(SIGNED, KEY, 16);
    for _ in 0..2 {
        w.send_as("grant_too_large", w.grant(SIGNED, KEY, &[b'x'; 900]));
    }
    let event = Event::TooLarge {
        tenant: SIGNED,
        key: KEY.into(),
        value_len: 900,
    };
    assert_eq!(drained(&w), [event]);
    w.send_as("read_invalid", Message::read(SIGNED, KEY));
}

/// A key whose report found no room is not marked as reported: its next read tries again.
#[test]
fn a_report_that_finds_the_ring_full_is_made_later() {
    let w = world();
    report_from(&w, &[(SIGNED, 1)]);
    let key = |n: u32| format!("key{n:013}").into_bytes();
    let full = |n: &u32| {
        let mut out = vec![];
        w.switch.runner.run(
            &Message::read(SIGNED, &key(*n)).frame().bytes(),
            None,
            &mut out,
        );
        n.is_multiple_of(500) && w.switch.counters.get("hot_report_lost").expect("counters") > 0
    };
    let last = (1..100_000).find(full).expect("the ring holds 1 MiB");
    let lost = |n: &u32| {
        let run = w
            .switch
            .run(&Message::read(SIGNED, &key(*n)).frame().bytes(), None);
        run.moved.contains_key("hot_report_lost")
    };
    let unlucky = (last..last + 1_000).find(lost).expect("the ring is full");
    assert!(drained(&w).len() > 10_000);
    w.send_as("hot_report", Message::read(SIGNED, &key(unlucky)));
    let reported = drained(&w);
    assert!(matches!(&reported[..], [Event::Hot { key: hot, .. }] if *hot == key(unlucky)));
}
