//! Values that come in parts which nobody asked for one by one.

use super::*;

/// A machine of a tenant with a secret that has seen a value in parts, and its read of another.
fn reads_all() -> (Machine, Bytes) {
    let mut cluster = Cluster::single(store(), 4);
    cluster.tenants.push(wire::Tenant::new(7, "09".repeat(16)));
    let mut machine = Machine::new(&cluster, 7, Options::default(), 1).unwrap();
    let other = wire::KeyHash::default();
    machine.rules.sizes.saw(&other, 4 * PART_BYTES, 1391);
    machine.begin(&Operation::Get { key: b"k" }, 0);
    let (_, read) = machine.next_datagram().expect("a read");
    assert!(Packet::decode(&read).unwrap().header.flags.has(Flags::ALL));
    (machine, read)
}

/// A switch's answer to it with that part; more: the next one comes as well.
fn part_of_all(read: &Bytes, part: usize, more: bool) -> Vec<u8> {
    let read = Packet::decode(read).unwrap();
    let header = Header {
        op: Op::ReadReply,
        flags: match more {
            true => Flags::CACHED.with(Flags::ALL),
            false => Flags::CACHED,
        },
        version: 5,
        part: (part * PART_BYTES / wire::PART) as u16,
        total: 4 * PART_BYTES as u32,
        ..read.header
    };
    let secret = Secret([9; 16]);
    let value = [part as u8; PART_BYTES];
    Packet::new(header, read.key, &value).to_bytes(&secret).unwrap()
}

#[test]
fn what_a_switch_says_is_the_last_part_is_waited_for_and_then_the_rest_is_asked_for() {
    for order in [[0, 1, 2], [0, 2, 1]] {
        let (mut machine, read) = reads_all();
        for part in order {
            assert!(machine.next_datagram().is_none(), "others are to come");
            machine.take(&part_of_all(&read, part, part < 2), store(), 1000);
        }
        let (_, rest) = machine.next_datagram().expect("at once");
        let rest = Packet::decode(&rest).unwrap().header;
        assert_eq!((rest.part, rest.flags.has(Flags::ALL)), (12, false));
        assert!(machine.next_datagram().is_none());
    }
}

#[test]
fn one_read_is_answered_with_all_parts() {
    let (mut machine, read) = reads_all();
    for part in 0..4 {
        machine.take(&part_of_all(&read, part, part < 3), store(), 1000);
    }
    let (_, result) = machine.next_finished().expect("all are here");
    let value = result.and_then(Answer::found).unwrap().expect("a value");
    assert_eq!((value.bytes.len(), value.from_switch), (4 * PART_BYTES, true));
    assert!(machine.next_datagram().is_none());
}

#[test]
fn a_part_that_is_lost_on_its_way_is_asked_for_when_nothing_comes_any_more() {
    let (mut machine, read) = reads_all();
    for part in [0, 2, 3] {
        machine.take(&part_of_all(&read, part, part < 3), store(), 1000);
    }
    assert!(machine.next_datagram().is_none());
    let at = machine.next_ns().expect("it waits");
    machine.timer(at);
    let (_, rest) = machine.next_datagram().expect("the lost one");
    assert_eq!(Packet::decode(&rest).unwrap().header.part, 4);
}

#[test]
fn what_comes_before_the_first_part_is_waited_past() {
    // The first is lost on its way; or it is overtaken.
    for overtaken in [false, true] {
        let (mut machine, read) = reads_all();
        machine.take(&part_of_all(&read, 1, true), store(), 1000);
        assert!(machine.next_finished().is_none(), "that is no answer yet");
        if !overtaken {
            let at = machine.next_ns().expect("it waits");
            machine.timer(at);
            let (_, again) = machine.next_datagram().expect("the whole value is asked for again");
            let [again, read] = [&again, &read].map(|sent| Packet::decode(sent).unwrap().header);
            assert_eq!((again.request, again.part), (read.request, 0));
        }
        for part in 0..4 {
            machine.take(&part_of_all(&read, part, part < 3), store(), 2000);
        }
        let (_, result) = machine.next_finished().expect("all are here");
        assert_eq!(result.and_then(Answer::found).unwrap().unwrap().bytes.len(), 4 * PART_BYTES);
    }
}
