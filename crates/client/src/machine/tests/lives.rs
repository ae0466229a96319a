//! What becomes of writes whose store, or whose key alone, lives another life than they named.

use wire::{LIFE_MOVED, LIFE_UNKNOWN, PART_BYTES};

use super::*;

/// What a store answers that lives another life, `age_ms` old, than the one that the write names.
fn other_life(datagram: &[u8], life: u16, age_ms: u32) -> Vec<u8> {
    refused(datagram, life, age_ms, Flags::NONE)
}

/// The same of the key alone.
fn lent(datagram: &[u8], life: u16, age_ms: u32) -> Vec<u8> {
    refused(datagram, life, age_ms, Flags::CACHED)
}

fn refused(datagram: &[u8], life: u16, age_ms: u32, flags: Flags) -> Vec<u8> {
    let change =
        |header| Header { status: Status::OtherLife, flags, life, expiry_ms: age_ms, ..header };
    reply(datagram, change)
}

fn header(datagram: &Bytes) -> Header {
    Packet::decode(datagram).unwrap().header
}

/// A client that knows the life 77 of its store.
fn acquainted() -> Machine {
    let mut machine = machine(Options::default());
    machine.begin(&set(b"other", b"1"), 0);
    let first = sent(&mut machine);
    machine.take(&other_life(&first[0], 77, 5000), store(), MS);
    let again = sent(&mut machine);
    machine.take(&answer(&again[0], Status::Ok), store(), 2 * MS);
    assert!(machine.next_finished().unwrap().1.is_ok());
    machine
}

/// The one datagram that the machine sends now.
fn one(machine: &mut Machine) -> Bytes {
    let mut sent = sent(machine);
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

/// Likewise, and its write of the key `k`, begun at 100 ms.
fn writing() -> (Machine, Bytes) {
    let mut machine = acquainted();
    machine.begin(&set(b"k", b"1"), 100 * MS);
    let first = one(&mut machine);
    (machine, first)
}

#[test]
fn a_write_that_an_earlier_life_of_the_store_may_have_had_is_not_sent_to_the_next() {
    let mut machine = machine(Options::default());
    machine.begin(&set(b"k", b"1"), 0);
    let first = sent(&mut machine);
    assert_eq!(header(&first[0]).life, wire::LIFE_UNKNOWN);
    // Nobody has that life: nothing was done, however young the store is.
    machine.take(&other_life(&first[0], 77, 0), store(), MS);
    let again = sent(&mut machine);
    let (asked, repeated) = (header(&first[0]), header(&again[0]));
    assert_eq!((repeated.life, repeated.request), (77, asked.request));
    machine.take(&answer(&again[0], Status::Ok), store(), 2 * MS);
    assert!(machine.next_finished().unwrap().1.is_ok());

    for (age_ms, was_there_before) in [(100, true), (5, false)] {
        machine.begin(&set(b"k", b"2"), 100 * MS);
        let first = sent(&mut machine);
        machine.take(&other_life(&first[0], 78, age_ms), store(), 105 * MS);
        let again = sent(&mut machine);
        assert_eq!(again.len(), usize::from(was_there_before), "{age_ms} ms old");
        if was_there_before {
            machine.take(&answer(&again[0], Status::Ok), store(), 106 * MS);
            assert!(machine.next_finished().unwrap().1.is_ok());
            // Back to what it was, for the next round.
            machine.begin(&get(b"k"), 107 * MS);
            let read = sent(&mut machine);
            let mut of_77 = answer(&read[0], Status::Ok);
            of_77[2..4].copy_from_slice(&77u16.to_be_bytes());
            machine.take(&of_77, store(), 108 * MS);
            assert!(machine.next_finished().unwrap().1.is_ok());
        } else {
            let ended = machine.next_finished().unwrap().1;
            assert!(matches!(ended, Err(Error::OutcomeUnknown { .. })), "{ended:?}");
        }
    }
}

#[test]
fn a_write_that_began_after_its_key_was_lent_goes_on_in_the_loans_life() {
    for operation in
        [set(b"k", b"1"), Operation::Delete { key: b"k", condition: Condition::Always }]
    {
        let mut machine = acquainted();
        machine.begin(&operation, 100 * MS);
        let first = one(&mut machine);
        machine.take(&lent(&first, 90, 100), store(), 105 * MS);
        let again = one(&mut machine);
        let (asked, repeated) = (header(&first), header(&again));
        assert_eq!((asked.life, repeated.life), (77, 90));
        assert_eq!((repeated.request, repeated.flags), (asked.request, Flags::NONE));
        machine.take(&answer(&again, Status::Ok), store(), 106 * MS);
        assert!(machine.next_finished().unwrap().1.is_ok());
        // From now on at once, and for this key only.
        for (key, life) in [(b"k", 90), (b"l", 77)] {
            machine.begin(&set(key, b"2"), 110 * MS);
            assert_eq!(header(&one(&mut machine)).life, life);
        }
    }
}

#[test]
fn a_write_that_began_before_its_key_was_lent_passes_the_owner_and_never_names_the_loan() {
    let (mut machine, first) = writing();
    machine.take(&lent(&first, 90, 5), store(), 105 * MS);
    let again = one(&mut machine);
    let past = |datagram: &Bytes| {
        let Header { life, flags, request, .. } = header(datagram);
        (life, flags, request) == (77, Flags::ALL, header(&first).request)
    };
    assert!(past(&again), "{:?}", header(&again));
    // Whatever is said of lives that are older.
    machine.take(&lent(&again, 91, 5000), store(), 110 * MS);
    assert!(sent(&mut machine).is_empty(), "it asks again as fast as it is refused");
    let next = machine.next_ns().unwrap();
    machine.timer(next);
    assert!(past(&one(&mut machine)));
    machine.take(&answer(&again, Status::Ok), store(), next + MS);
    assert!(machine.next_finished().unwrap().1.is_ok());
    // The next write begins after the loan.
    machine.begin(&set(b"k", b"2"), next + 2 * MS);
    let next = header(&one(&mut machine));
    assert_eq!((next.life, next.flags), (91, Flags::NONE));
}

#[test]
fn a_write_past_the_owner_ends_when_its_store_has_forgotten_it() {
    let (mut machine, first) = writing();
    machine.take(&lent(&first, 90, 5), store(), 105 * MS);
    let again = one(&mut machine);
    machine.take(&other_life(&again, 78, 1000), store(), 110 * MS);
    let ended = machine.next_finished().unwrap().1;
    assert!(matches!(ended, Err(Error::OutcomeUnknown { .. })), "{ended:?}");
    assert!(sent(&mut machine).is_empty());
    machine.begin(&set(b"k", b"2"), 111 * MS);
    assert_eq!(header(&one(&mut machine)).life, 78, "the key's own is forgotten");
}

#[test]
fn a_write_that_the_store_has_moved_goes_into_the_loan_whatever_it_did_before() {
    for past_owner in [false, true] {
        let (mut machine, mut last) = writing();
        if past_owner {
            machine.take(&lent(&last, 90, 5), store(), 105 * MS);
            last = one(&mut machine);
            assert_eq!(header(&last).flags, Flags::ALL);
        }
        machine.take(&lent(&last, 90, LIFE_MOVED), store(), 106 * MS);
        if past_owner {
            let next = machine.next_ns().unwrap();
            machine.timer(next);
        }
        let Header { life, flags, .. } = header(&one(&mut machine));
        assert_eq!((life, flags), (90, Flags::NONE));
    }
}

#[test]
fn a_compare_keeps_its_condition_past_the_owner() {
    let mut machine = acquainted();
    let set =
        Operation::Set { key: b"k", value: b"1", ttl: None, condition: Condition::Version(5) };
    machine.begin(&set, 100 * MS);
    let first = one(&mut machine);
    machine.take(&lent(&first, 90, 5), store(), 105 * MS);
    let Header { flags, version, .. } = header(&one(&mut machine));
    assert_eq!((flags, version), (Flags::COMPARE.with(Flags::ALL), 5));
}

#[test]
fn a_refusal_that_comes_again_changes_nothing() {
    let (mut machine, first) = writing();
    machine.take(&lent(&first, 90, 1000), store(), 101 * MS);
    let again = one(&mut machine);
    let next = machine.next_ns();
    for ms in 102..110 {
        machine.take(&lent(&first, 90, 1001), store(), ms * MS);
        assert!(sent(&mut machine).is_empty());
        assert_eq!(machine.next_ns(), next, "it waits as if refused again");
    }
    machine.take(&answer(&again, Status::Ok), store(), 110 * MS);
    assert!(machine.next_finished().unwrap().1.is_ok());
}

#[test]
fn a_write_whose_life_changes_twice_waits_before_it_goes_on() {
    let (mut machine, first) = writing();
    machine.take(&lent(&first, 90, 1000), store(), 101 * MS);
    let second = one(&mut machine);
    machine.take(&lent(&second, 91, 1000), store(), 102 * MS);
    assert!(sent(&mut machine).is_empty());
    let next = machine.next_ns().unwrap();
    assert!(next > 102 * MS);
    machine.timer(next);
    assert_eq!(header(&one(&mut machine)).life, 91);
}

#[test]
fn the_owners_answer_counts_and_does_not_teach_the_stores_life() {
    for flags in [Flags::NONE, Flags::CACHED] {
        let (mut machine, first) = writing();
        machine.take(&lent(&first, 90, 1000), store(), 101 * MS);
        let ok = reply(&one(&mut machine), |header| Header { flags, ..header });
        machine.take(&ok, store(), 102 * MS);
        let (_, result) = machine.next_finished().unwrap();
        assert_eq!(result.unwrap().written().unwrap(), 7);
        machine.begin(&set(b"other", b"2"), 103 * MS);
        assert_eq!(header(&one(&mut machine)).life, 77);
    }
}

#[test]
fn each_part_of_a_write_names_its_keys_life() {
    for (age_ms, life, flags) in [(1000, 90, Flags::NONE), (1, 77, Flags::ALL)] {
        let mut machine = acquainted();
        machine.begin(&set(b"k", &[1; 3 * PART_BYTES]), 100 * MS);
        let first = sent(&mut machine);
        assert_eq!(first.len(), 3);
        machine.take(&lent(&first[0], 90, age_ms), store(), 105 * MS);
        // What the life before had taken is none of the next one's.
        let late = reply(&first[1], |header| Header { status: Status::Taken, part: 8, ..header });
        if flags == Flags::NONE {
            machine.take(&late, store(), 105 * MS);
        }
        let again = sent(&mut machine);
        let named: Vec<_> =
            again.iter().map(|part| (header(part).life, header(part).flags)).collect();
        assert_eq!(named, [(life, flags); 3]);
        machine.take(&answer(&again[2], Status::Ok), store(), 106 * MS);
        assert!(machine.next_finished().unwrap().1.is_ok());
    }
}

#[test]
fn a_life_without_a_name_is_not_gone_into() {
    for life in [0, LIFE_UNKNOWN] {
        let (mut machine, first) = writing();
        machine.take(&lent(&first, life, 1000), store(), 101 * MS);
        assert!(sent(&mut machine).is_empty());
        let ended = machine.next_finished().unwrap().1;
        assert!(matches!(ended, Err(Error::BadReply { .. })), "{ended:?}");
    }
}

#[test]
fn a_switch_teaches_nobody_the_life_of_a_store() {
    let mut machine = machine(Options::default());
    machine.begin(&get(b"k"), 0);
    let read = sent(&mut machine);
    let mut cached = answer(&read[0], Status::Ok);
    cached[2..4].copy_from_slice(&77u16.to_be_bytes());
    cached[41] |= Flags::CACHED.bits();
    machine.take(&cached, store(), MS);
    machine.begin(&set(b"k", b"1"), 2 * MS);
    let write = Packet::decode(&sent(&mut machine)[0]).unwrap().header;
    assert_eq!(write.life, wire::LIFE_UNKNOWN);
}

/// Its store's partitions, tenants or longest value become others while it is under way.
#[test]
fn a_write_that_is_refused_when_an_earlier_copy_may_be_done_has_no_known_outcome() {
    for status in [Status::WrongPartition, Status::TooLarge, Status::Denied] {
        for met_silence in [false, true] {
            let (mut machine, mut asked) = writing();
            let mut now_ns = 100 * MS;
            if met_silence {
                now_ns = machine.next_ns().unwrap();
                machine.timer(now_ns);
                asked = one(&mut machine);
            }
            let refusal = reply(&asked, |header| Header { status, version: 0, ..header });
            machine.take(&refusal, store(), now_ns + MS);
            let (_, result) = machine.next_finished().unwrap();
            let error = result.and_then(Answer::written).unwrap_err();
            let is_unknown = matches!(error, Error::OutcomeUnknown { .. });
            assert_eq!(is_unknown, met_silence, "{error}");
        }
    }
    let (mut machine, _) = writing();
    let again_ns = machine.next_ns().unwrap();
    machine.timer(again_ns);
    let too_long =
        reply(&one(&mut machine), |header| Header { status: Status::TooLarge, ..header });
    machine.take(&too_long, store(), again_ns + MS);
    let (_, result) = machine.next_finished().unwrap();
    let error = result.and_then(Answer::written).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { most: 7, .. }), "{error}");
}
