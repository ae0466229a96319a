//! Which replies fill an entry, and which must not.

use wire::{Epoch, Flags, Op};

use harness::{
    Case,
    Expectation::*,
    Message, Switch,
    message::{address, secret_of},
};

use super::world::*;

fn entry_of_an_ipv6_store(w: &mut World) {
    entry(w);
    let std::net::IpAddr::V6(store) = address(true, 2) else { unreachable!("asked for") };
    let slot = w.slot(false).into();
    w.switch.poke("leases", slot, 0, &store.octets());
}

fn grant(w: &World, op: Op) -> Message {
    Message::grant(op, SIGNED, KEY, V128, w.epoch(SIGNED, KEY))
}

#[test]
fn installed() {
    check(&[
        entered("a read reply is installed on its way to the client")
            .packet(|w| grant(w, Op::ReadReply))
            .then(Forwarded, &["grant_installed", "pass_local"]),
        entered("a write reply")
            .packet(|w| grant(w, Op::WriteReply))
            .then(Forwarded, &["grant_installed", "pass_local"]),
        entered("a fetch reply is the switch's own")
            .packet(|w| grant(w, Op::FetchReply))
            .then(Dropped, &["grant_installed", "fetch_reply"]),
        entered("a write reply's value is served from then on")
            .and(|w| w.send_as("grant_installed", grant(w, Op::WriteReply)))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        entered("a value of just the entry's room")
            .packet(|w| w.grant(SIGNED, KEY, &[b'f'; 128]))
            .then(Dropped, &["grant_installed", "fetch_reply"]),
    ]);
}

/// The last number is taken again and again, and nothing is granted under it: numbers that began
/// anew would leave copies of before valid.
#[test]
fn when_its_epochs_are_used_up_a_switch_claims_what_is_so_and_serves_nothing_more() {
    const LAST: u64 = Epoch::MAX_NUMBER;
    const EPOCH: usize = 64; // in `struct config` of `bpf/maps.h`
    const ANOTHER: &[u8] = b"another";
    let count_from =
        |w: &World, epoch: u64| w.switch.poke("config", 0, EPOCH, &epoch.to_ne_bytes());
    let stamp_of = |w: &World, message: &Message| {
        let run = w.switch.run(&message.frame().bytes(), None);
        let seen = harness::SeenFrame::read(&run.frame).expect("right checksums");
        let header = wire::Packet::decode(&seen.payload).expect("ours").header;
        (header.epoch, header.flags.has(Flags::GRANT))
    };
    let mut w = world();
    count_from(&w, LAST - 100);
    w.cached(SIGNED, KEY, V128);
    w.cached(SIGNED, ANOTHER, V128);
    count_from(&w, LAST - 2);
    let (read, write) = (Message::read(SIGNED, KEY), Message::write(SIGNED, KEY, b"new"));
    let before = Epoch::new(Switch::ID, LAST - 1);
    assert_eq!(stamp_of(&w, &write), (before, true));
    w.send_as("grant_installed", w.grant(SIGNED, KEY, V128));
    w.send_as("hit", read.clone());
    let last = Epoch::new(Switch::ID, LAST);
    for _ in 0..3 {
        assert_eq!(stamp_of(&w, &write), (last, false), "a claim, and no grant is asked for");
        for epoch in [before, last] {
            let grant = Message::grant(Op::FetchReply, SIGNED, KEY, V128, epoch);
            w.send_as("grant_stale", grant);
        }
        w.send_as("read_invalid", read.clone());
        assert_eq!(stamp_of(&w, &read), (Epoch::NONE, false), "it goes on as it came");
        let place = w.switch.table.scan().into_iter().find(|held| held.key == KEY);
        let place = place.expect("the entry").place;
        assert_eq!(w.switch.table.wants_value(place, 0), None, "the agent fetches nothing");
        let call = Message::from_store(Op::Invalidate, SIGNED, KEY).epoch(before);
        assert_eq!(stamp_of(&w, &call), (last, false), "it is acknowledged");
    }
    // What was granted before is right until it is written, or its store's term ends.
    w.send_as("hit", Message::read(SIGNED, ANOTHER));
    w.lease(TERM + 1);
    w.send_as("read_invalid", Message::read(SIGNED, ANOTHER));
    w.entry(SIGNED, b"one more", 128);
    w.send_as("read_invalid", Message::read(SIGNED, b"one more"));
}

#[test]
fn not_for_this_epoch() {
    check(&[
        entered("an old epoch")
            .packet(|w| {
                let epoch = w.epoch(SIGNED, KEY).number() - 1;
                grant(w, Op::ReadReply).epoch(Epoch::new(Switch::ID, epoch))
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        entered("an epoch that was never taken")
            .packet(|w| {
                let epoch = w.epoch(SIGNED, KEY).number() + 1;
                grant(w, Op::ReadReply).epoch(Epoch::new(Switch::ID, epoch))
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        cached("a second grant for an epoch that has its value")
            .packet(|w| {
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                Message::grant(Op::ReadReply, SIGNED, KEY, b"another", taken)
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        entered("a second write between the stamp and the grant")
            .and(|w| w.send(Message::write(SIGNED, KEY, b"first")))
            .packet(|w| {
                let first = grant(w, Op::WriteReply);
                w.send(Message::write(SIGNED, KEY, b"second"));
                first
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        entered("an invalidation between the stamp and the grant")
            .packet(|w| {
                let first = grant(w, Op::ReadReply);
                let epoch = first.header.epoch;
                w.send_as(
                    "invalidate",
                    Message::from_store(Op::Invalidate, SIGNED, KEY).epoch(epoch),
                );
                first
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        entered("a new term between the stamp and the grant")
            .packet(|w| {
                let first = grant(w, Op::ReadReply);
                w.lease(TERM + 1);
                first
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
        entered("the entry was evicted and made anew meanwhile")
            .packet(|w| {
                let old = grant(w, Op::ReadReply);
                let held = w.switch.table.scan().remove(0);
                w.switch.table.evict(held.slot, held.place);
                w.switch.table.quiesce().expect("membarrier");
                let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
                let table = &w.switch.table;
                table.insert(SIGNED, hash, KEY, held.lease, held.place).expect("free again");
                old
            })
            .then(Forwarded, &["grant_stale", "pass_local"]),
    ]);
}

#[test]
fn refused() {
    check(&[
        entered("from a host that is not the entry's store")
            .packet(|w| grant(w, Op::ReadReply).sent_by(address(false, 3)))
            .then(Forwarded, &["grant_refused", "pass_local"]),
        entered("from the same number in the other family")
            .packet(|w| grant(w, Op::ReadReply).over_ipv6())
            .then(Forwarded, &["grant_refused", "pass_local"]),
        entered("with a wrong tag")
            .packet(|w| grant(w, Op::ReadReply).with_a_wrong_tag())
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        entered("too large for the entry's cells")
            .packet(|w| {
                Message::grant(Op::ReadReply, SIGNED, KEY, &[b'x'; 129], w.epoch(SIGNED, KEY))
            })
            .then(Forwarded, &["grant_too_large", "pass_local"]),
        entered("for a key without an entry")
            .packet(|w| Message::grant(Op::ReadReply, SIGNED, b"gone", V128, w.epoch(SIGNED, KEY)))
            .then(Forwarded, &["grant_no_entry", "pass_local"]),
        entered("for another switch")
            .packet(|w| {
                let epoch = Epoch::new(9, w.epoch(SIGNED, KEY).number());
                grant(w, Op::ReadReply).epoch(epoch)
            })
            .then(Forwarded, &["pass_local"]),
        entered("another switch's fetch reply goes on")
            .packet(|w| {
                let epoch = Epoch::new(9, w.epoch(SIGNED, KEY).number());
                grant(w, Op::FetchReply).epoch(epoch)
            })
            .then(Forwarded, &["pass_local"]),
        entered("a reply without GRANT is only a reply")
            .packet(|w| grant(w, Op::ReadReply).flags(Flags::NONE))
            .then(Forwarded, &["pass_local"]),
        entered("a fetch reply without GRANT: not found")
            .packet(|w| {
                let epoch = w.epoch(SIGNED, KEY);
                let reply = Message::from_store(Op::FetchReply, SIGNED, KEY).epoch(epoch);
                reply.status(wire::Status::NotFound)
            })
            .then(Dropped, &["fetch_reply"]),
        entered("while another CPU is writing the item")
            .and(|w| w.poke_item(SIGNED, KEY, ItemField::Seq, &4_000_001u32.to_ne_bytes()))
            .packet(|w| grant(w, Op::ReadReply))
            .then(Forwarded, &["grant_busy", "pass_local"]),
    ]);
}

/// Until its next invalidation the value in an entry is the one that was granted for its epoch.
#[test]
fn what_was_not_installed_leaves_no_trace() {
    check(&[
        Case::of("a second grant for an epoch that has its value")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                let second = Message::grant(Op::ReadReply, SIGNED, KEY, b"another", taken);
                w.send_as("grant_stale", second);
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        Case::of("a delayed grant for an epoch before")
            .given(|w| {
                w.lease(TERM);
                w.entry(SIGNED, KEY, 128);
                let delayed =
                    Message::grant(Op::ReadReply, SIGNED, KEY, b"old", w.epoch(SIGNED, KEY));
                w.send(Message::write(SIGNED, KEY, V128));
                w.send_as("grant_installed", grant(w, Op::WriteReply));
                w.send_as("grant_stale", delayed);
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        Case::of("a grant that is too large")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                w.send(Message::grant(Op::ReadReply, SIGNED, KEY, &[b'x'; 900], taken));
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
    ]);
}

/// What a bit flipped in on the way is neither kept nor served.
#[test]
fn grants_that_did_not_arrive_whole() {
    check(&[
        entered("a flipped bit of the value: goes on to the client, whose kernel drops it")
            .packet(|w| grant(w, Op::ReadReply).with_a_flipped_bit())
            .then(Forwarded, &["grant_spoiled", "pass_local"]),
        Case::of("likewise over IPv6, in a write's reply")
            .given(entry_of_an_ipv6_store)
            .packet(|w| grant(w, Op::WriteReply).over_ipv6().with_a_flipped_bit())
            .then(Forwarded, &["grant_spoiled", "pass_local"]),
        Case::of("over IPv6 and whole")
            .given(entry_of_an_ipv6_store)
            .packet(|w| grant(w, Op::WriteReply).over_ipv6())
            .then(Forwarded, &["grant_installed", "pass_local"]),
        entered("in a fetch's reply")
            .packet(|w| grant(w, Op::FetchReply).with_a_flipped_bit())
            .then(Dropped, &["grant_spoiled", "fetch_reply"]),
        entered("without a checksum nobody knows")
            .packet(|w| grant(w, Op::FetchReply).without_checksum())
            .then(Dropped, &["grant_spoiled", "fetch_reply"]),
        Case::of("the next one that is whole is installed, and served")
            .given(|w| {
                entry(w);
                w.send_as("grant_spoiled", grant(w, Op::FetchReply).with_a_flipped_bit());
                w.send_as("read_invalid", Message::read(SIGNED, KEY));
                w.send_as("grant_installed", grant(w, Op::FetchReply));
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
    ]);
}

/// Sums of odd lengths, and of every length up to some words.
#[test]
fn values_of_every_length_are_verified_and_answered_with_right_checksums() {
    fn lengths(w: &mut World) {
        w.lease(TERM);
        for key_len in [15, 16] {
            for len in 1..40 {
                let key = [&vec![b'k'; key_len - 1][..], &[len]].concat();
                let value: Vec<u8> = (0..len).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
                w.entry(SIGNED, &key, value.len());
                let spoiled = w.grant(SIGNED, &key, &value).with_a_flipped_bit();
                w.send_as("grant_spoiled", spoiled);
                w.send_as("grant_installed", w.grant(SIGNED, &key, &value));
                for ipv6 in [false, true] {
                    let read = Message::read(SIGNED, &key);
                    let read = if ipv6 { read.over_ipv6() } else { read };
                    let run = w.switch.run(&read.frame().bytes(), None);
                    assert_eq!(run.moved.get("hit"), Some(&1), "{:?}", run.moved);
                    let seen = harness::SeenFrame::read(&run.frame).expect("right checksums");
                    assert!(seen.checksum != 0 && seen.payload.ends_with(&value));
                }
            }
        }
    }
    lengths(&mut world());
    harness::switch::in_this_process(|| lengths(&mut world()));
}
