//! Keys that switches read from copies: the backend is told, and not more than it bears.

use wire::ReadCount;

use super::{
    remote::{BackendCall, MARKS_AT_ONCE, RemoteBackend},
    *,
};
use crate::{
    backend::{Completion, Item, ReadOutcome},
    coherence::Watch,
};

/// Milliseconds of a round, and a moment more.
const ROUND_MS: u64 = 1_001;

/// A store before a backend elsewhere, of whose keys `0` to `keys` switch 1 holds copies.
fn with_copies(keys: u32) -> (Store, RemoteBackend) {
    let mut store = Store::new();
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    store.lease().expect("a lease");
    grant(&mut store, &backend, KEYED, keys);
    assert_eq!(store.engine.facts.directory.copies(), keys as usize);
    assert_eq!(backend.asked(), []);
    (store, backend)
}

/// Switch 1 gets copies of a tenant's keys `0` to `keys`.
fn grant(store: &mut Store, backend: &RemoteBackend, tenant: u32, keys: u32) {
    for n in 0..keys {
        let fetch = Header {
            tenant,
            epoch: Epoch::new(1, 10),
            flags: Flags::GRANT,
            ..Header::new(Op::FetchRequest)
        };
        store.hand_in(fetch, &n.to_be_bytes());
        let found = Item { value: b"v".to_vec(), version: 5, expiry_ms: 0 };
        let found = Completion::Get(backend.take_read(), ReadOutcome::Item(found));
        store.engine.complete(found, LATER_NS, &mut store.out);
    }
}

fn row(n: u32, reads: u32) -> ReadCount {
    ReadCount { tenant: KEYED, hash: SECRET.key_hash(KEYED, &n.to_be_bytes()), reads }
}

/// The switch tells so many milliseconds after [`LATER_NS`] what was read. It renews its lease.
fn tell(store: &mut Store, rows: &[ReadCount], ms: u64) {
    let lease = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        version: ms * 1_000_000,
        ..Header::new(Op::LeaseRequest)
    };
    store.hand_in_at(lease, &[], &[], 0, LATER_NS + ms * 1_000_000);
    let header =
        Header { tenant: TENANT_SYSTEM, epoch: Epoch::new(1, 0), ..Header::new(Op::ReadCounts) };
    for rows in rows.chunks(ReadCount::MOST) {
        let mut value = vec![];
        rows.iter().for_each(|row| row.encode(&mut value));
        store.hand_in_at(header, &[], &value, 0, LATER_NS + ms * 1_000_000);
    }
}

/// Time passes in steps of a millisecond; the commands that come, as the keys and the reads of
/// each.
fn marked(
    store: &mut Store,
    backend: &RemoteBackend,
    ms: std::ops::Range<u64>,
) -> Vec<Vec<(wire::KeyHash, u32)>> {
    let mut commands: Vec<Vec<_>> = vec![];
    for ms in ms {
        store.tick(ms);
        for call in backend.asked() {
            match call {
                BackendCall::Marks(_) => commands.push(vec![]),
                BackendCall::Mark(hash, reads) => commands.last_mut().unwrap().push((hash, reads)),
                _ => panic!("{call:?}"),
            }
        }
    }
    commands
}

#[test]
fn what_switches_read_is_marked_once_in_a_round_the_hottest_first() {
    let (mut store, backend) = with_copies(6);
    let rows: Vec<_> = (0..6).map(|n| row(n, 1_000 * (n + 1))).collect();
    tell(&mut store, &rows[..3], 0);
    tell(&mut store, &rows[3..], 0);
    let marks = marked(&mut store, &backend, 0..ROUND_MS);
    let expected: Vec<_> = rows.iter().rev().map(|row| (row.hash, row.reads)).collect();
    assert_eq!(marks.concat(), expected);
    assert_eq!(marks.len(), 6_usize.div_ceil(MARKS_AT_ONCE));
    // Told twice in a round it is marked in the next one, once.
    tell(&mut store, &rows[5..], ROUND_MS);
    assert_eq!(marked(&mut store, &backend, ROUND_MS..ROUND_MS + 1).len(), 1);
    tell(&mut store, &rows[5..], ROUND_MS + 1);
    tell(&mut store, &rows[5..], ROUND_MS + 2);
    assert_eq!(marked(&mut store, &backend, ROUND_MS + 1..2 * ROUND_MS - 1), [[]; 0]);
    let next = marked(&mut store, &backend, 2 * ROUND_MS - 1..3 * ROUND_MS);
    assert_eq!(next, [[(rows[5].hash, 12_000)]]);
    assert_eq!(store.engine.counters().elsewhere.marks, 8);
}

#[test]
fn the_backend_has_less_than_one_command_for_a_thousand_reads() {
    let (mut store, backend) = with_copies(200);
    let (mut reads, mut commands, mut seen) = (0u64, 0u64, std::collections::BTreeSet::new());
    for round in 0..40 {
        // Ten are hot, the others are read now and then.
        let rows: Vec<_> = (0..200).map(|n| row(n, if n < 10 { 300 } else { 10 })).collect();
        reads += rows.iter().map(|row| u64::from(row.reads)).sum::<u64>();
        let begin = round * ROUND_MS;
        tell(&mut store, &rows, begin);
        let marks = marked(&mut store, &backend, begin..begin + ROUND_MS);
        commands += marks.len() as u64;
        let hot = marks.concat().iter().filter(|mark| mark.1 >= 300).count();
        assert!(hot > 0, "round {round}: {marks:?}");
        seen.extend(marks.concat().iter().map(|mark| mark.0.0));
    }
    assert!(commands * 1_000 <= reads, "{commands} commands for {reads} reads");
    assert!(commands * 1_400 >= reads, "{commands} commands for {reads} reads");
    assert_eq!(seen.len(), 200, "each has its turn");
}

#[test]
fn a_tenant_with_many_hot_keys_leaves_the_others_their_marks() {
    let (mut store, backend) = with_copies(1);
    grant(&mut store, &backend, TENANT_OPEN, 200);
    let mine = row(0, 1);
    let hash = |n: u32| Secret::NONE.key_hash(TENANT_OPEN, &n.to_be_bytes());
    let theirs = |n: u32| ReadCount { tenant: TENANT_OPEN, hash: hash(n), reads: 100 };
    let rows: Vec<_> = (0..200).map(theirs).chain([mine]).collect();
    let mut all = 0;
    for round in 0..10 {
        let begin = round * ROUND_MS;
        tell(&mut store, &rows, begin);
        let marks = marked(&mut store, &backend, begin..begin + ROUND_MS).concat();
        assert!(marks.contains(&(mine.hash, 1)), "round {round}");
        all += marks.len();
    }
    assert!((100..1_000).contains(&all), "there is not one for each of 2,010: {all}");
}

#[test]
fn where_little_is_read_there_is_a_command_in_ten_seconds() {
    let (mut store, backend) = with_copies(1);
    let mut commands = 0;
    for round in 0..100 {
        let begin = round * ROUND_MS;
        tell(&mut store, &[row(0, 1)], begin);
        commands += marked(&mut store, &backend, begin..begin + ROUND_MS).len();
    }
    assert!((9..=11).contains(&commands), "{commands} commands in a hundred seconds");
}

#[test]
fn marks_are_spread_over_their_round() {
    let (mut store, backend) = with_copies(400);
    let rows: Vec<_> = (0..400).map(|n| row(n, 100_000)).collect();
    tell(&mut store, &rows, 0);
    let mut most = 0;
    for ms in 0..ROUND_MS {
        most = most.max(marked(&mut store, &backend, ms..ms + 1).len());
    }
    assert_eq!(most, 2, "commands at once");
    assert_eq!(store.engine.counters().elsewhere.marks, 400);
}

#[test]
fn what_has_no_copies_or_comes_from_nobody_is_not_marked() {
    let (mut store, backend) = with_copies(1);
    tell(&mut store, &[row(7, 100_000), row(0, 0)], 0);
    let forged = Header { tenant: KEYED, ..Header::new(Op::ReadCounts) };
    let mut value = vec![];
    row(0, 100_000).encode(&mut value);
    store.hand_in_at(forged, &[], &value, 0, LATER_NS);
    assert_eq!(marked(&mut store, &backend, 0..3 * ROUND_MS), [[]; 0]);
    let counters = store.engine.counters().elsewhere;
    assert_eq!((counters.reads_elsewhere, counters.dropped_read_counts), (0, 1));
    assert_eq!(store.engine.elsewhere.next_ns(), None, "there is nothing to do");
}
