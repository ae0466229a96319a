//! Counting: the sketch of misses, the counters of entries, reports of hot keys.

use dataplane::Event;

use harness::{
    Message, Switch,
    message::{address, secret_of},
};
use wire::{Epoch, Op};

use super::world::*;

fn drained(w: &World) -> Vec<Event> {
    let some = || -> Vec<Event> { w.switch.events.drain().expect("the ring").collect() };
    std::iter::repeat_with(some).take_while(|events| !events.is_empty()).flatten().collect()
}

#[test]
fn misses_are_estimated_and_a_hot_key_is_reported_once_per_window() {
    let w = world();
    report_from(&w, &[(SIGNED, 3)]);
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    for (window, threshold) in [(0, 3), (1, 3)] {
        let estimate = || w.switch.sketches.estimate(SIGNED, hash, window);
        for reads in 1..=6 {
            let run = w.switch.run(&Message::read(SIGNED, KEY).frame().bytes(), None);
            assert_eq!(estimate(), reads, "window {window}");
            let reports = run.moved.get("hot_report").copied().unwrap_or(0);
            assert_eq!(reports, u64::from(reads == threshold), "read {reads} of window {window}");
        }
        let hot = Event::Hot { tenant: SIGNED, key: KEY.into(), count: 3, window, has_item: false };
        assert_eq!(drained(&w), [hot]);
        w.switch.table.next_window();
    }
    assert_eq!(w.switch.sketches.estimate(SIGNED, hash, 2), 0, "a new window begins with nothing");
}

/// Cells that were never written belong to no window, however often the filter's marks have begun
/// anew.
#[test]
fn a_hot_key_is_reported_once_in_each_window_whatever_its_number() {
    let w = world();
    report_from(&w, &[(SIGNED, 1)]);
    for window in 0..520 {
        let frame = Message::read(SIGNED, &numbered_key(window)).frame().bytes();
        for _ in 0..2 {
            w.switch.runner.run(&frame, None, &mut vec![]);
        }
        let windows: Vec<u32> = drained(&w).into_iter().filter_map(hot_in).collect();
        assert_eq!(windows, [window]);
        w.switch.table.next_window();
    }
}

/// The window of a report.
fn hot_in(event: Event) -> Option<u32> {
    match event {
        Event::Hot { window, .. } => Some(window),
        _ => None,
    }
}

#[test]
fn many_reads_are_counted_in_steps() {
    let w = world();
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    let frame = Message::read(SIGNED, KEY).frame().bytes();
    let read = |times| {
        for _ in 0..times {
            w.switch.runner.run(&frame, None, &mut vec![]);
        }
    };
    let estimate = || w.switch.sketches.estimate(SIGNED, hash, 0);
    read(2048);
    assert_eq!(estimate(), 2048, "so far one by one");
    read(10_000);
    // Steps of 64, each by a chance of one in 64: a standard deviation of 800.
    let counted = estimate() - 2048;
    assert_eq!(counted % 64, 0);
    assert!((5_000..15_000).contains(&counted), "{counted}");
}

/// In rows that count every key in all of its cells it would be some 3,900.
#[test]
fn keys_that_share_a_cell_are_taken_for_one_another_rarely() {
    let w = world();
    w.switch.table.scatter(7);
    for n in 0..30_000 {
        let frame = Message::read(SIGNED, &numbered_key(n)).frame().bytes();
        w.switch.runner.run(&frame, None, &mut vec![]);
    }
    let is_more = |n: &u32| {
        let hash = secret_of(SIGNED).key_hash(SIGNED, &numbered_key(*n));
        w.switch.sketches.estimate(SIGNED, hash, 0) > 1
    };
    let more = (0..30_000).filter(is_more).count();
    assert!(more < 2_000, "{more}");
}

/// The marks of windows come again after 16 of them.
#[test]
fn what_was_counted_in_a_window_does_not_count_in_another_with_its_mark() {
    in_both_worlds(|w| {
        let next = |windows| (0..windows).for_each(|_| _ = w.switch.table.next_window());
        let read = |times| {
            (0..times)
                .for_each(|_| _ = w.switch.run(&Message::read(SIGNED, KEY).frame().bytes(), None))
        };
        let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
        report_from(&w, &[(SIGNED, 3)]);
        next(5);
        for windows in [16, 32] {
            read(4);
            assert_eq!(drained(&w).len(), 1);
            next(windows);
            read(1);
            assert_eq!(w.switch.sketches.estimate(SIGNED, hash, w.switch.table.window()), 1);
            assert_eq!(drained(&w), []);
        }
    });
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
    let home = w.switch.backing();
    let thresholds = dataplane::TenantEntry::parameters(&home).expect("tenants");
    assert!(thresholds.contains(&(SIGNED, [9, 0])) && thresholds.contains(&(OTHER, [1, 0])));
    assert!(thresholds.iter().all(|(id, _)| *id != UNKNOWN));
}

/// The word for these longest keys and values.
const fn longest(key: u32, value: u32) -> u32 {
    key << 16 | value
}

#[test]
fn keys_that_may_not_be_cached_are_not_reported() {
    let w = world();
    let len = KEY.len() as u32;
    for (word, reported) in [(longest(len - 1, 0), false), (longest(len, 1), true)] {
        w.set_parameters(&[(SIGNED, [1, word])]);
        let frame = Message::read(SIGNED, KEY).frame();
        let counts = w.switch.run(&frame.bytes(), None).moved;
        assert_eq!(counts.contains_key("hot_report"), reported);
    }
}

#[test]
fn of_a_value_that_may_not_be_cached_the_agent_hears_that_no_item_holds_it() {
    for op in [Op::ReadReply, Op::WriteReply, Op::FetchReply] {
        let mut w = world();
        w.lease(TERM);
        w.entry(SIGNED, KEY, 128);
        w.set_parameters(&[(SIGNED, [9, longest(0, 127)])]);
        let grant = |w: &World| Message::grant(op, SIGNED, KEY, V128, w.epoch(SIGNED, KEY));
        let too_large = Event::TooLarge { tenant: SIGNED, key: KEY.into(), value_len: u16::MAX };
        w.send_as("grant_too_large", grant(&w));
        w.send_as("grant_too_large", grant(&w));
        assert_eq!(drained(&w), [too_large], "it is told once");
        w.set_parameters(&[(SIGNED, [9, longest(0, 128)])]);
        w.send_as("grant_installed", grant(&w));
        assert_eq!(drained(&w), []);
    }
}

/// Replies that a tenant makes up fill nobody's ring: without an item that one could be for, or not
/// from its store, nothing is told.
#[test]
fn of_values_that_may_not_be_cached_and_that_nobody_asked_for_the_agent_hears_nothing() {
    let mut w = world();
    w.lease(TERM);
    w.set_parameters(&[(SIGNED, [9, longest(0, 127)])]);
    for op in [Op::ReadReply, Op::WriteReply, Op::FetchReply] {
        for number in 0..10 {
            let epoch = Epoch::new(Switch::ID, 1_000 + number);
            w.send_as("grant_no_entry", Message::grant(op, SIGNED, KEY, V128, epoch));
        }
    }
    w.entry(SIGNED, KEY, 128);
    let granted = w.epoch(SIGNED, KEY);
    let grant = Message::grant(Op::ReadReply, SIGNED, KEY, V128, granted);
    w.send_as("grant_refused", grant.clone().sent_by(address(false, 3)));
    let before = Epoch::new(Switch::ID, granted.number() - 1);
    w.send_as("grant_stale", grant.epoch(before));
    assert_eq!(drained(&w), []);
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
    let place = w.switch.table.scan()[0].place;
    for _ in 0..5 {
        w.send_as("hit", Message::read(SIGNED, KEY));
    }
    assert_eq!(w.switch.table.requests(place), 5);
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
    let event = Event::TooLarge { tenant: SIGNED, key: KEY.into(), value_len: 900 };
    assert_eq!(drained(&w), [event]);
    w.send_as("read_invalid", Message::read(SIGNED, KEY));
}

/// A key whose report found no room is not marked as reported: its next read tries again.
#[test]
fn a_report_that_finds_the_ring_full_is_made_later() {
    let w = world();
    report_from(&w, &[(SIGNED, 1)]);
    // Long ones: a tenant may not report enough short ones in a window to fill it.
    let key = |n: u32| format!("key{n:0247}").into_bytes();
    let full = |n: &u32| {
        let mut out = vec![];
        w.switch.runner.run(&Message::read(SIGNED, &key(*n)).frame().bytes(), None, &mut out);
        n.is_multiple_of(100) && w.switch.counters.get("hot_report_lost").expect("counters") > 0
    };
    let last = (1..100_000).find(full).expect("the ring holds 1 MiB");
    let lost = |n: &u32| {
        let run = w.switch.run(&Message::read(SIGNED, &key(*n)).frame().bytes(), None);
        run.moved.contains_key("hot_report_lost")
    };
    let unlucky = (last..last + 1_000).find(lost).expect("the ring is full");
    assert!(drained(&w).len() > 3_000);
    w.send_as("hot_report", Message::read(SIGNED, &key(unlucky)));
    let reported = drained(&w);
    assert!(matches!(&reported[..], [Event::Hot { key: hot, .. }] if *hot == key(unlucky)));
}

/// Runs in the kernel and in this process.
fn in_both_worlds(test: fn(World)) {
    test(world());
    harness::switch::in_this_process(|| test(world()));
}

fn numbered_key(n: u32) -> Vec<u8> {
    format!("key{n:013}").into_bytes()
}

/// Reads keys until one is not reported for that reason; drains the ring in between.
fn report_until(w: &World, tenant: u32, counter: &str) -> Option<u32> {
    (0..50_000).find(|n| {
        let mut out = vec![];
        let read = Message::read(tenant, &numbered_key(*n));
        w.switch.runner.run(&read.frame().bytes(), None, &mut out);
        if n.is_multiple_of(500) {
            drained(w);
        }
        w.switch.counters.get(counter).expect("counters") > 0
    })
}

#[test]
fn a_tenant_that_reports_everything_leaves_the_others_their_share() {
    in_both_worlds(|w| {
        report_from(&w, &[(SIGNED, 1), (OTHER, 1)]);
        let ends = report_until(&w, SIGNED, "hot_report_share");
        let ends = ends.expect("a tenant's reports in one window have an end");
        assert!((4_096..8_192).contains(&ends), "{ends}");
        drained(&w);
        for n in 0..100 {
            let run = w.switch.run(&Message::read(OTHER, &numbered_key(n)).frame().bytes(), None);
            let reported = run.moved.contains_key("hot_report");
            // Once in some thirty the Bloom filter takes a key for a reported one.
            assert!(reported || !run.moved.contains_key("hot_report_share"), "{n}");
        }
        assert!(drained(&w).len() > 80);
        w.switch.table.next_window();
        w.send_as("hot_report", Message::read(SIGNED, &numbered_key(ends)));
    });
}

/// There are 256 of these marks.
#[test]
fn reports_of_a_window_are_no_part_of_the_share_in_another_with_its_mark() {
    in_both_worlds(|w| {
        report_from(&w, &[(SIGNED, 1)]);
        let ends = report_until(&w, SIGNED, "hot_report_share").expect("a share");
        (0..256).for_each(|_| _ = w.switch.table.next_window());
        w.send_as("hot_report", Message::read(SIGNED, &numbered_key(ends)));
    });
}

/// What a request claims to be its key's hash leads to cells of its own tenant.
#[test]
fn a_claimed_hash_reaches_no_other_tenants_counts() {
    const SALT: u64 = 0x9e37_79b9_7f4a_7c15;
    in_both_worlds(|w| {
        w.switch.table.scatter(0x0123_4567_89ab_cdef);
        report_from(&w, &[(SIGNED, 1), (OTHER, 1)]);
        let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
        let salt = |tenant: u32| u64::from(tenant).wrapping_mul(SALT);
        let low = hash.low() ^ salt(SIGNED) ^ salt(OTHER);
        let mut aimed = Message::read(OTHER, b"another");
        aimed.header.key_hash.0[8..].copy_from_slice(&low.to_be_bytes());
        aimed.header.key_hash.0[..8].copy_from_slice(&hash.high().to_be_bytes());
        w.send_as("hot_report", aimed);
        assert_eq!(w.switch.sketches.estimate(SIGNED, hash, 0), 0);
        w.send_as("hot_report", Message::read(SIGNED, KEY));
        assert_eq!(w.switch.sketches.estimate(SIGNED, hash, 0), 1);
    });
}
