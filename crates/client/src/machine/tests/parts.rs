//! Values of many parts: what is joined, what is held meanwhile, what is sent again, and how a call
//! ends whose value never stays or whose parts did not all go. Calls by the thousand, over a
//! network that loses, duplicates and reorders, against real stores are the hunt's (`lab/hunt`).

use super::*;
use crate::tests::fake::State;

/// A value that tells which one it is in every word, so that a mixture of two shows.
fn value(stamp: u64, len: usize) -> Vec<u8> {
    stamp.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// A part of that version of the value, as the answer to a request.
fn part_of(datagram: &Bytes, part: u16, version: u64) -> Vec<u8> {
    let packet = Packet::decode(datagram).unwrap();
    let header = Header { op: Op::ReadReply, version, part, total: 5000, ..packet.header };
    let (whole, from) = (value(version, 5000), usize::from(part) * wire::PART);
    let end = whole.len().min(from + PART_BYTES);
    let mut bytes = vec![];
    Packet::new(header, packet.key, &whole[from..end]).encode(&Secret::NONE, &mut bytes).unwrap();
    bytes
}

/// What comes of a read of a value that is written when some of its parts are on their way: these
/// come late, behind the first part of the next version.
fn read_of_two_versions(mutant: bool) -> Bytes {
    let mut machine = machine(Options::default());
    machine.rules.joins_any_version = mutant;
    machine.begin(&get(b"k"), 0);
    let whole = sent(&mut machine);
    machine.take(&part_of(&whole[0], 0, 1), store(), MS);
    let before = sent(&mut machine);
    machine.take(&part_of(&before[0], 0, 2), store(), MS);
    let after = sent(&mut machine);
    for (requests, version) in [(&before[1..], 1), (&after[..], 2)] {
        for datagram in requests {
            let part = Packet::decode(datagram).unwrap().header.part;
            machine.take(&part_of(datagram, part, version), store(), MS);
        }
    }
    let (_, result) = machine.next_finished().expect("it is answered");
    result.unwrap().found().unwrap().unwrap().bytes
}

#[test]
fn parts_of_two_versions_are_not_joined_and_the_mutant_that_does_is_noticed() {
    assert_eq!(read_of_two_versions(false), value(2, 5000));
    let torn = read_of_two_versions(true);
    assert_eq!((&torn[..8], &torn[4992..]), (&value(2, 8)[..], &value(1, 8)[..]));
}

/// What an honest store answers.
fn reply_of(state: &mut State, datagram: &[u8]) -> Vec<u8> {
    let packet = Packet::decode(datagram).unwrap();
    let (header, value) = state.answer(&packet, datagram.len());
    let mut bytes = vec![];
    Packet::new(header, packet.key, &value).encode(&Secret::NONE, &mut bytes).unwrap();
    bytes
}

#[test]
fn no_more_is_held_than_has_arrived() {
    let mut machine = machine(Options::default());
    machine.begin(&get(b"k"), 0);
    let (_, datagram) = machine.next_datagram().unwrap();
    let packet = Packet::decode(&datagram).unwrap();
    let first = |total| {
        let header = Header { op: Op::ReadReply, version: 7, total, ..packet.header };
        let mut bytes = vec![];
        let part = Packet::new(header, packet.key, &[1; PART_BYTES]);
        part.encode(&Secret::NONE, &mut bytes).unwrap();
        bytes
    };
    machine.take(&first(1 << 20), store(), MS);
    assert_eq!(std::iter::from_fn(|| machine.next_datagram()).count(), 32);
    let Some(running) = machine.calls.get(&0) else {
        panic!("it goes on");
    };
    let held = running.call.held_bytes();
    assert!(held < 2 * PART_BYTES, "{held}");

    machine.begin(&get(b"k"), 2 * MS);
    let (_, datagram) = machine.next_datagram().unwrap();
    let packet = Packet::decode(&datagram).unwrap();
    let header = Header { op: Op::ReadReply, version: 7, total: (1 << 20) + 1, ..packet.header };
    let mut bytes = vec![];
    let part = Packet::new(header, packet.key, &[1; PART_BYTES]);
    part.encode(&Secret::NONE, &mut bytes).unwrap();
    machine.take(&bytes, store(), 3 * MS);
    let (_, result) = machine.next_finished().unwrap();
    assert!(matches!(result, Err(Error::ValueLength { .. })), "{result:?}");
}

#[test]
fn a_value_that_never_stays_is_a_timeout_that_says_so() {
    let (mut state, mut now) = (State::default(), 0);
    let mut machine = machine(Options::default());
    machine.begin(&get(b"k"), 0);
    let (_, result) = loop {
        now += MS;
        if machine.next_ns().is_some_and(|at| at <= now) {
            machine.timer(now);
        }
        for datagram in sent(&mut machine) {
            state.data.insert(b"k".to_vec(), (value(now, 5000), now, 0));
            machine.take(&reply_of(&mut state, &datagram), store(), now);
        }
        if let Some(finished) = machine.next_finished() {
            break finished;
        }
    };
    let error = result.unwrap_err().to_string();
    assert!(error.contains("was written again"), "{error}");
}

#[test]
fn a_write_is_unknown_only_if_a_store_was_sent_all_of_it() {
    let header = |datagram: &Bytes| Packet::decode(datagram).unwrap().header;
    let answer = |datagram: &Bytes, life, status, part| {
        let packet = Packet::decode(datagram).unwrap();
        let header = Header { op: Op::WriteReply, status, life, part, ..packet.header };
        let mut bytes = vec![];
        let reply = Packet::new(header, packet.key, b"");
        reply.encode(&Secret::NONE, &mut bytes).unwrap();
        bytes
    };
    // 40 parts do not go at once, 20 do.
    for (parts, unknown) in [(40, false), (20, true)] {
        let mut machine = machine(Options::default());
        let value = value(7, parts * PART_BYTES);
        machine.begin(&set(b"k", &value), 0);
        let first = sent(&mut machine);
        assert_eq!(first.len(), 1, "one part asks for the store's life");
        machine.take(&answer(&first[0], 5, Status::OtherLife, 0), store(), MS);
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
    let (mut state, mut now, mut forgets) = (State::default(), 0, 3);
    let mut machine = machine(Options::default());
    let value = value(7, 100 * PART_BYTES);
    machine.begin(&set(b"k", &value), 0);
    while machine.next_finished().is_none() {
        // Time passes when nothing is on its way any more.
        while let Some((_, datagram)) = machine.next_datagram() {
            if forgets > 0 && Packet::decode(&datagram).unwrap().header.part > 4 * 70 {
                forgets -= 1;
                state.forget_parts();
            }
            machine.take(&reply_of(&mut state, &datagram), store(), now + 1000);
        }
        now = machine.next_ns().unwrap_or(now);
        machine.timer(now);
    }
    assert_eq!((state.applied, &state.data[&b"k"[..]].0), (1, &value));
    assert!(now < 500 * MS, "{now}");
}
