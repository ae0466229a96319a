//! Who is a member: numbers, what is held back, what is copied.

use chain::{
    packets::{Beat, Peer, PeerKind, encode_notes, flags},
    record::{Note, SessionRecord},
    view::Protocol,
};

use super::net::*;

fn status(net: &Net, message: Message) -> Status {
    net.ask(message).header.status
}

/// The same switches less the last, under the next number; those that are left know it.
fn without_the_last(net: &mut Net) -> Vec<usize> {
    let left: Vec<usize> = (0..net.switches.len() - 1).collect();
    net.view.number += 1;
    net.view.chains = vec![chain(left.iter().map(|slot| *slot as u8).collect())];
    net.configure(&left);
    left
}

fn nothing_is_passed_on_while_an_excluded_member_may_answer() {
    let mut net = Net::ready(3, 2);
    net.ask(net.write(0, b"one"));
    // Version 2 is at the first two only.
    net.lose(|going| going.to == Some(2));
    let lost = net.write(0, b"two");
    assert!(net.send(lost.clone()).is_empty());
    net.lose_nothing();
    let left = without_the_last(&mut net);
    let lost = lost.epoch(Epoch(net.view.number));
    assert_eq!(status(&net, lost.clone()), Status::TryAgain);
    assert_eq!(net.count("order_held"), 1);
    net.confirm(&left);
    // What is dirty is not answered; and what others pass is applied, and goes no further.
    assert_eq!(status(&net, net.read(1)), Status::TryAgain);
    let old = net.read(2).epoch(Epoch(net.view.number - 1));
    assert_eq!(net.send(old)[0].value, b"one", "it still may");
    net.settle(&[0]);
    assert!(net.send(lost.clone()).is_empty(), "the tail commits nothing");
    assert_eq!(net.count("drop_order_held"), 1);
    assert_eq!(net.record(1).clean, 1);
    net.settle(&[1]);
    assert_eq!(status(&net, lost), Status::Ok);
    assert_eq!(net.record(0).clean, 2);
    assert_eq!(net.ask(net.read(0)).value, b"two");
}

/// The last one is cut off and left out, and another switch has its slot at once: what the one
/// before may still answer is waited for all the same.
fn whoever_had_a_slot_before_is_waited_for() {
    let mut net = Net::ready(3, 2);
    net.ask(net.write(0, b"one"));
    let left = without_the_last(&mut net);
    net.confirm(&left);
    let other = chain::view::Member { address: host(3, false), switch: 103, life: life_of(3) };
    net.view.members[2] = Some(other);
    net.view.number += 1;
    net.view.chains = vec![chain::view::Chain {
        slots: vec![0, 1, 2],
        filling: true,
        fill_number: net.view.number,
    }];
    net.configure(&left);
    net.confirm(&left);
    for slot in left.iter().copied() {
        let mut beat = net.beat(2, slot);
        beat.from.set_ip(other.address);
        let said = Beat { life: other.life, ..Beat::decode(&beat.value).expect("a beat") };
        beat.value = said.encode().to_vec();
        let came = net.send(beat);
        assert_eq!((came.len(), came[0].to.ip()), (1, other.address), "it is heard");
        // Its row is in force since long ago.
        let mut state = net.state(slot);
        state[8..16].copy_from_slice(&1u64.to_ne_bytes());
        net.set_state(slot, &state);
    }
    let old = net.read(2).epoch(Epoch(net.view.number - 2));
    assert_eq!(net.send(old)[0].value, b"one", "it still may");
    assert_eq!(status(&net, net.write(0, b"two")), Status::TryAgain);
    assert_eq!(net.count("order_held"), 1);
    net.settle(&left);
    let came = net.send(net.write(0, b"two"));
    assert_eq!((came.len(), came[0].to.ip()), (1, other.address), "it is passed on");
    assert_eq!(net.versions_of(&left), [(2, 1), (2, 1)]);
}

fn another_number_counts_for_nothing() {
    let mut net = Net::ready(3, 2);
    let beat = net.beat(2, 1);
    let before = net.view.number;
    let left = without_the_last(&mut net);
    net.confirm(&left);
    net.settle(&left);
    assert!(net.send(beat).is_empty());
    assert_eq!(net.count("drop_order_number"), 1);
    // The one that was left out passes nothing on here, nor acknowledges.
    net.view.number = before;
    for (from, kind) in [(2, PeerKind::Pass), (2, PeerKind::Nack), (2, PeerKind::Ask)] {
        assert!(net.send(net.says(from, 1, Peer::new(kind), 1, b"")).is_empty());
        assert_eq!(net.count("drop_order_number"), 1, "{kind:?}");
    }
    // A row with a lower number than one that was in force is none.
    net.configure(&[0]);
    assert_eq!(net.ask(net.read(0)).header.status, Status::TryAgain);
}

fn whoever_has_other_tables_is_no_member() {
    let net = Net::ready(2, 1);
    let mut beat = net.beat(0, 1);
    let other = Beat { life: 5, ..Beat::decode(&beat.value).expect("a beat") };
    beat.value = other.encode().to_vec();
    assert!(net.send(beat).is_empty());
    assert_eq!(net.count("drop_order_stranger"), 1);
    // Nor is who has begun anew: its row is not for these tables.
    net.switches[1].switch.poke("config", 0, 32, &77u64.to_ne_bytes());
    let came = net.send(net.read(1));
    assert_eq!(came[0].header.op, Op::ChainRead, "it is the kernel's");
    assert_eq!(net.send(net.beat(0, 1))[0].header.op, Op::PeerSignal);
}

/// Two members with the version 1 of the key; a third one has joined, and is to be filled.
fn joining() -> Net {
    let mut net = all_but_one(3);
    net.ask(net.write(0, b"one"));
    join(&mut net);
    net
}

/// All of so many switches but the last are members, and have the key.
fn all_but_one(switches: usize) -> Net {
    let mut net = Net::with_members(switches, switches - 1);
    for slot in 0..switches - 1 {
        net.put_key(slot, 2);
        net.put_session(slot);
    }
    net
}

/// The last one joins.
fn join(net: &mut Net) {
    net.put_session(net.switches.len() - 1);
    join_with_session(net);
}

/// The last one joins, and has the client's session.
fn join_with_session(net: &mut Net) {
    let all: Vec<usize> = (0..net.switches.len()).collect();
    net.put_new(all.len() - 1, 2, 0);
    net.view.number += 1;
    net.view.chains = vec![chain::view::Chain {
        slots: all.iter().map(|slot| *slot as u8).collect(),
        filling: true,
        fill_number: net.view.number,
    }];
    net.configure(&all);
    net.confirm(&all);
    net.settle(&all);
}

fn a_head_that_is_alone_is_joined() {
    let mut net = all_but_one(2);
    net.ask(net.write(0, b"one"));
    join(&mut net);
    assert_eq!(net.ask(net.read(1)).from.ip(), host(0, false));
    let refused = net.write_if(0, b"x", Some(wire::VERSION_ABSENT));
    let answer = net.ask(refused);
    assert_eq!(answer.header.status, Status::Mismatch);
    assert_eq!(answer.from.ip(), host(1, false));
    net.lose(|going| going.to == Some(1));
    let write = net.write(0, b"two");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    assert_eq!(net.ask(write).header.status, Status::Ok);
    assert_eq!(net.versions(), [(2, 2); 2]);
    assert_eq!(net.ask(net.read(1)).value, b"two");
}

/// The tail went, and with it the only one that knew of a version that it was committed.
fn what_was_committed_before_a_tail_began_is_known_again() {
    let mut net = all_but_one(3);
    net.lose(|going| going.packet.header.op != Op::PeerMessage);
    let write = net.write(0, b"one");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    assert_eq!(net.versions_of(&[0, 1]), [(1, 0), (1, 1)]);
    join(&mut net);
    let ask = |slot: usize| net.says(slot, 2, Peer::new(PeerKind::Ask), 1, b"");
    assert!(net.send(ask(0)).is_empty());
    assert_eq!(net.versions_of(&[0, 1]), [(1, 1), (1, 1)], "the one before it says so");
    assert!(net.send(ask(1)).is_empty());
    let answer = net.ask(write.epoch(Epoch(net.view.number)));
    assert_eq!((answer.header.status, answer.header.version), (Status::Ok, 1));
}

fn a_write_from_before_is_answered_by_the_member_before_a_tail() {
    let mut net = all_but_one(3);
    net.lose(|going| going.packet.header.op != Op::PeerMessage);
    let write = net.write(0, b"one");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    join(&mut net);
    let answer = net.ask(write.epoch(Epoch(net.view.number)));
    assert_eq!((answer.header.status, answer.header.version), (Status::Ok, 1));
    assert_eq!(answer.from.ip(), host(1, false));
}

fn copy(net: &Net, more_flags: u8, fill: u64, value: &[u8]) -> (u64, u64) {
    let peer = Peer {
        flags: more_flags,
        accepted: net.view.number - 1,
        fill,
        session: session_hash(),
        ..Peer::new(PeerKind::Copy)
    };
    let came = net.send(net.says(1, 2, peer, 1, value));
    assert_eq!(came.len(), 1, "{:?}", net.counted);
    let (said, _) = Peer::decode(&came[0].value).expect("an answer");
    assert_eq!((said.kind, came[0].to.port()), (PeerKind::Copied, 50_000));
    (came[0].header.version, said.fill)
}

fn a_tail_that_is_filled_by_copies() {
    let net = joining();
    let fill = net.view.number;
    for slot in 0..3 {
        let answer = net.ask(net.read(slot));
        assert_eq!(answer.value, b"one", "the one before has the last word");
    }
    assert_eq!(copy(&net, flags::BARE, 0, b""), (0, 0), "only asked");
    assert_eq!(copy(&net, 0, fill, b"one"), (1, fill));
    let answer = net.ask(net.read(2));
    assert_eq!((answer.from.ip(), &answer.value[..]), (host(2, false), &b"one"[..]));
    assert_eq!(copy(&net, 0, fill, b"another"), (1, fill), "once");
    assert_eq!(net.ask(net.read(2)).value, b"one");
    let answer = net.ask(net.write(0, b"two"));
    assert_eq!((answer.header.version, answer.from.ip()), (2, host(2, false)));
    assert_eq!(net.versions(), [(2, 2); 3]);
    // A session's notes: the newer of each place.
    let session = net.session(0);
    let peer = Peer { fill, ..Peer::new(PeerKind::CopySession) };
    let mut message = net.says(1, 2, peer, 5, &encode_notes(&session));
    message.key = chain_wire::session_key(message.header.client).to_vec();
    let key = message.key.clone();
    let came = net.send(message.hash_of(&key));
    let (said, _) = Peer::decode(&came[0].value).expect("an answer");
    assert_eq!((said.kind, said.fill), (PeerKind::Copied, fill));
    assert_eq!(net.session(2).notes.map(|n| n.request), session.notes.map(|n| n.request));
}

fn a_tail_that_is_filled_by_a_write() {
    let net = joining();
    let answer = net.ask(net.write(0, b"two"));
    assert_eq!((answer.header.version, answer.from.ip()), (2, host(2, false)));
    assert_eq!(net.record(2).filled, net.view.number);
    assert_eq!(net.versions(), [(2, 2); 3]);
    assert_eq!(copy(&net, 0, net.view.number, b"one"), (2, net.view.number));
    assert_eq!(net.ask(net.read(2)).value, b"two");
}

fn a_refusal_is_remembered_by_a_tail_without_the_key() {
    let net = joining();
    let refused = net.write_if(0, b"x", Some(wire::VERSION_ABSENT));
    let answer = net.ask(refused.clone());
    assert_eq!((answer.header.status, answer.header.version), (Status::Mismatch, 1));
    assert_eq!(answer.from.ip(), host(2, false));
    // The first write that it has part in is lost, and comes again: only then it jumps.
    net.lose(|going| going.to == Some(2));
    let write = net.write(0, b"two");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    assert_eq!(net.ask(write).header.status, Status::Ok);
    assert_eq!(net.versions(), [(2, 2); 3]);
    assert_eq!(net.ask(refused).header.status, Status::Mismatch);
}

/// The last one is told what the one before had noted of the client's writes before this number;
/// of others only that those before them have ended.
fn copy_session(net: &Net) {
    let mut session = net.session(1);
    for note in session.notes.iter_mut().filter(|n| n.under == net.view.number as u32) {
        *note = note.before();
    }
    let peer = Peer { fill: net.view.number, ..Peer::new(PeerKind::CopySession) };
    let mut message = net.says(1, 2, peer, 5, &encode_notes(&session));
    message.key = chain_wire::session_key(message.header.client).to_vec();
    let key = message.key.clone();
    assert_eq!(net.send(message.hash_of(&key)).len(), 1, "{:?}", net.counted);
}

/// The last one was the head once, noted of a write that it was applied, and passed it to nobody;
/// it left, and is to join. The write, and what it has noted.
fn one_that_was_the_head() -> (Net, Message, SessionRecord) {
    let net = all_but_one(3);
    net.ask(net.write(0, b"one"));
    let retried = net.write(0, b"two");
    let (request, before) = (retried.header.request, net.view.number - 1);
    let mut session = SessionRecord::new(CLIENT, before, before);
    session.notes[request as usize % 16] =
        Note { request, seq: 2, chain: Some(0), under: before as u32, ..Note::default() };
    (net, retried, session)
}

fn join_with(net: &mut Net, session: &SessionRecord) {
    let record = session.encode();
    net.switches[2].given(TENANT, &chain_wire::session_key(CLIENT), &record, record.len());
    join_with_session(net);
}

/// The last one is alone, and the write is sent to it.
fn ask_the_last(net: &mut Net, write: Message) -> (Status, u64) {
    net.view.number += 1;
    net.view.chains = vec![chain(vec![2])];
    net.configure(&[2]);
    net.settle(&[2]);
    let mut write = write.epoch(Epoch(net.view.number));
    write.to.set_ip(host(2, false));
    let answer = net.ask(write);
    (answer.header.status, answer.header.version)
}

/// Its note of the write says nothing of the version that another one made meanwhile.
fn notes_of_an_earlier_membership_are_forgotten() {
    let (mut net, retried, mut session) = one_that_was_the_head();
    let request = retried.header.request;
    let unknown = Note { request: 31, seq: 1, ..Note::default() };
    session.notes[15] = unknown;
    join_with(&mut net, &session);
    for _ in 0..2 {
        copy_session(&net);
        let noted = net.session(2).notes;
        assert_eq!(noted[1], Note { under: 0, ..net.session(1).notes[1] }, "it is copied");
        assert!(noted[2].request < request, "{:?}", noted[2]);
        assert_eq!(noted[15], unknown.forgotten());
    }
    assert_eq!(copy(&net, 0, net.view.number, b"one"), (1, net.view.number));
    let other = net.write(2, b"other");
    assert_eq!(ask_the_last(&mut net, other), (Status::Ok, 2));
    assert_eq!(ask_the_last(&mut net, retried), (Status::Ok, 3));
}

/// It is passed the write, as another head has taken it, before it is copied the client's notes.
fn what_a_write_comes_to_while_one_is_filled_is_noted_whatever_was_noted_before() {
    for is_refused in [false, true] {
        let (mut net, mut retried, session) = one_that_was_the_head();
        let request = retried.header.request;
        if is_refused {
            retried = net.write_if(0, b"two", Some(7)).numbered(request);
        }
        join_with(&mut net, &session);
        let answer = net.ask(retried.clone().epoch(Epoch(net.view.number)));
        let outcome = (answer.header.status, answer.header.version);
        let expected = if is_refused { (Status::Mismatch, 1) } else { (Status::Ok, 2) };
        assert_eq!(outcome, expected);
        copy_session(&net);
        copy(&net, 0, net.view.number, b"one");
        assert_eq!(ask_the_last(&mut net, retried), expected, "it is known");
    }
}

fn in_netchain_the_head_hears_of_every_other_version() {
    let net = Net::ready_for(3, 2, Protocol::NetChain);
    for _ in 0..6 {
        assert_eq!(status(&net, net.write(0, b"v")), Status::Ok);
    }
    assert_eq!(net.versions()[0], (6, 6));
    assert_eq!(net.versions()[2], (6, 6));
    assert!(net.versions()[1].1 >= 4, "it is told by what passes");
}

#[test]
fn members() {
    in_both!(
        nothing_is_passed_on_while_an_excluded_member_may_answer,
        whoever_had_a_slot_before_is_waited_for,
        another_number_counts_for_nothing,
        whoever_has_other_tables_is_no_member,
        a_tail_that_is_filled_by_copies,
        a_tail_that_is_filled_by_a_write,
        a_refusal_is_remembered_by_a_tail_without_the_key,
        in_netchain_the_head_hears_of_every_other_version,
        a_head_that_is_alone_is_joined,
        what_was_committed_before_a_tail_began_is_known_again,
        a_write_from_before_is_answered_by_the_member_before_a_tail,
        notes_of_an_earlier_membership_are_forgotten,
        what_a_write_comes_to_while_one_is_filled_is_noted_whatever_was_noted_before,
    );
}
