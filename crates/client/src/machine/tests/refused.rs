//! What becomes of a call whose datagram the system does not send, for it is longer than the
//! interface carries.

use std::io;

use nix::libc::EMSGSIZE;

use super::*;
use crate::waiting::Reply;

/// A call that was begun and started, with its first datagram.
fn started(rules: &Rules, operation: &Operation<'_>) -> (Call, Outgoing) {
    let mut call = Call::new(rules, operation, MS).unwrap();
    let step = call.start(rules, rules.new_id(None), MS);
    assert!(matches!(step, Step::Go));
    let first = call.next(rules, MS, 0.5).expect("a datagram");
    (call, first)
}

fn refuse(rules: &Rules, call: &mut Call, outgoing: &Outgoing) -> Result<(), Error> {
    let error = io::Error::from_raw_os_error(EMSGSIZE);
    call.not_sent(rules, outgoing, error, MS)
}

fn rules() -> Rules {
    let cluster = Cluster::single(store(), 4);
    Rules::new(&cluster, 0, Options::default(), 1).unwrap()
}

#[test]
fn a_read_is_padded_less_at_once() {
    let rules = rules();
    let other = wire::KeyHash::default();
    rules.sizes.saw(&other, 1380, 1391);
    let (mut call, first) = started(&rules, &get(b"k"));
    assert!(first.datagram.len() > 1280 - 28);
    refuse(&rules, &mut call, &first).unwrap();
    let second = call.next(&rules, MS, 0.5).expect("at once");
    assert!(second.datagram.len() <= 1280 - 28);
    assert!(call.next(&rules, MS, 0.5).is_none());
    let (_, next) = started(&rules, &get(b"l"));
    assert!(next.datagram.len() <= 1280 - 28, "others know it, too");
}

#[test]
fn a_write_goes_in_parts_under_its_id() {
    let rules = rules();
    let value = vec![7; 1380];
    let (mut call, first) = started(&rules, &set(b"k", &value));
    refuse(&rules, &mut call, &first).unwrap();
    let part = call.next(&rules, MS, 0.5).expect("at once");
    let packet = Packet::decode(&part.datagram).unwrap();
    assert_eq!((part.request, part.many), (first.request, true));
    assert_eq!((packet.header.total, packet.header.part), (1380, 0));
    assert_eq!(packet.value, [7; PART_BYTES]);
    let (_, next) = started(&rules, &set(b"k", &value));
    let next = Packet::decode(&next.datagram).unwrap().header;
    assert_eq!(next.total, 1380, "others do from the start");
}

#[test]
fn a_write_that_may_be_under_way_keeps_its_form() {
    let rules = rules();
    let life = Header { life: 77, ..Header::new(Op::WriteReply) };
    let other = wire::KeyHash::default();
    rules.lives.heard(0, &other, 1, &life);
    rules.paths.heard(0, true, MS);
    let value = vec![7; 1380];
    let (mut call, first) = started(&rules, &set(b"k", &value));
    call.timer(&rules, false, call.until_ns());
    let second = call.next(&rules, 50 * MS, 0.5).expect("again");
    assert_eq!(first.datagram, second.datagram);
    refuse(&rules, &mut call, &second).unwrap();
    call.timer(&rules, false, call.until_ns());
    let third = call.next(&rules, 150 * MS, 0.5).expect("again");
    assert_eq!(first.datagram, third.datagram);
    let error = call.timed_out(&rules).to_string();
    assert!(error.contains("unknown") && error.contains("MTU"), "{error}");
}

#[test]
fn a_long_write_names_no_life_until_the_path_has_carried_one() {
    let rules = rules();
    let life = Header { life: 77, ..Header::new(Op::WriteReply) };
    let key = Secret::NONE.key_hash(0, b"k");
    rules.lives.heard(0, &key, 1, &life);
    let value = vec![7; 1380];
    let life_of = |outgoing: &Outgoing| Packet::decode(&outgoing.datagram).unwrap().header.life;
    let (_, short) = started(&rules, &set(b"k", &value[..1000]));
    assert_eq!(life_of(&short), 77);
    let (mut call, first) = started(&rules, &set(b"k", &value));
    assert_eq!(life_of(&first), wire::LIFE_UNKNOWN, "nobody does it");
    call.timer(&rules, false, call.until_ns());
    let part = call.next(&rules, 50 * MS, 0.5).expect("at once");
    let header = Packet::decode(&part.datagram).unwrap().header;
    assert_eq!((part.request, header.total), (first.request, 1380));
    rules.paths.heard(0, true, 51 * MS);
    let (_, next) = started(&rules, &set(b"k", &value));
    assert_eq!(life_of(&next), 77);
}

#[test]
fn what_cannot_be_shorter_is_an_error_that_says_how_long_it_is() {
    let rules = rules();
    let (key, value) = ([7; 250], [7; 1000]);
    let (mut call, first) = started(&rules, &set(&key, &value));
    let error = refuse(&rules, &mut call, &first).unwrap_err().to_string();
    assert!(error.contains("1330 bytes") && error.contains("MTU"), "{error}");
}

/// A value beside a long key that the store says needs more room than the interface carries, whole
/// or in parts.
#[test]
fn a_read_that_cannot_be_shorter_is_not_sent_again_at_once() {
    let rules = rules();
    let (mut call, first) = started(&rules, &get(&[7; 200]));
    let needs_more = Header {
        request: first.request,
        total: 1100,
        status: Status::NeedPadding,
        ..Header::new(Op::ReadReply)
    };
    let reply = Reply::Answer(needs_more, Bytes::new());
    assert!(matches!(call.reply(&rules, reply, MS, 0.5), Step::Go));
    let mut refused = 0;
    while let Some(outgoing) = call.next(&rules, MS, 0.5) {
        refuse(&rules, &mut call, &outgoing).unwrap();
        refused += 1;
        assert!(refused < 10, "again and again");
    }
    assert!(refused > 0 && call.until_ns() > MS);
}

/// It was padded on the way to a switch, which may be all of the way that carries it.
#[test]
fn an_answer_from_a_switch_says_nothing_of_the_path_to_the_store() {
    for (flags, is_long) in [(Flags::CACHED, false), (Flags::NONE, true)] {
        let rules = rules();
        let (mut call, first) = started(&rules, &get(b"k"));
        let found = Header {
            request: first.request,
            key_len: 1,
            value_len: 1380,
            flags,
            ..Header::new(Op::ReadReply)
        };
        let reply = Reply::Answer(found, Bytes::from(vec![7; 1380]));
        assert!(matches!(call.reply(&rules, reply, MS, 0.5), Step::Done(Ok(_))));
        assert_eq!(rules.paths.is_long(0, MS), is_long);
    }
}
