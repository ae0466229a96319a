//! Reads that the switch cannot answer: what it adds to them, and what not.

use wire::{Epoch, Flags};

use harness::{Case, Expectation::*, Message, Switch};

use super::world::*;

#[test]
fn without_an_entry() {
    check(&[
        Case::of("a miss goes on as it came")
            .packet(|_| Message::read(SIGNED, KEY).padded(128))
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("with a made-up stamp of this switch, which is taken off")
            .packet(|_| {
                let forged = Epoch::new(Switch::ID, Epoch::MAX_NUMBER);
                Message::read(SIGNED, KEY).epoch(forged).flags(Flags::GRANT)
            })
            .then(Disowned, &["miss", "pass_local"]),
        Case::of("over IPv6")
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("with a VLAN tag: the kernel forwards it")
            .packet(|_| Message::read(SIGNED, KEY).vlan(5))
            .then(Forwarded, &["miss", "pass_vlan"]),
        Case::of("an evicted entry is a miss")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                let held = &w.switch.table.scan()[0];
                w.switch.table.evict(held.slot, held.place);
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["miss", "pass_local"]),
    ]);
}

#[test]
fn without_a_valid_value() {
    check(&[
        Case::of("an entry that was just made has no lease yet")
            .given(|w| w.entry(SIGNED, KEY, 128))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["read_no_lease", "pass_local"]),
        cached("no lease: a read is not asked to bring a grant")
            .and(|w| w.outlive_lease())
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["read_no_lease", "pass_local"]),
        entered("another switch has asked already: a packet has room for one")
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)).flags(Flags::GRANT))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        Case::of("the time to live has passed: asked for again, with a higher epoch")
            .given(|w| {
                entry(w);
                w.send_as("grant_installed", w.grant(SIGNED, KEY, V128).expiry_ms(60_000));
                w.outlive(SIGNED, KEY);
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Stamped { grant: true }, &["read_expired", "pass_local"]),
        cached("a new term: the entry of the old one is asked for again, with a higher epoch")
            .and(|w| w.lease(TERM + 1))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Stamped { grant: true }, &["read_invalid", "pass_local"]),
        cached("likewise over IPv6: the checksum follows")
            .and(|w| w.lease(TERM + 1))
            .packet(|_| Message::read(SIGNED, KEY).padded(129).over_ipv6())
            .then(Stamped { grant: true }, &["read_invalid", "pass_local"]),
        cached("a stamp that claims to be ours is replaced: only we know our epochs")
            .and(|w| w.lease(TERM + 1))
            .packet(|_| {
                Message::read(SIGNED, KEY).epoch(Epoch::new(Switch::ID, 1)).flags(Flags::GRANT)
            })
            .then(Stamped { grant: true }, &["read_invalid", "pass_local"]),
    ]);
}

#[test]
fn a_time_to_live() {
    check(&[entered("a value with a time to live is served with what is left of it")
        .and(|w| w.send_as("grant_installed", w.grant(SIGNED, KEY, V128).expiry_ms(60_000)))
        .packet(|_| Message::read(SIGNED, KEY))
        .then(AnsweredFor(V128, 60_000), &["hit"])]);
}

/// The first read of an entry asks under the epoch that the entry was made with; the reply fills
/// it.
#[test]
fn the_first_read_asks_for_the_entrys_epoch_and_its_reply_fills_it() {
    let mut w = world();
    w.lease(TERM);
    w.entry(SIGNED, KEY, 128);
    let epoch = w.epoch(SIGNED, KEY);
    let read = Message::read(SIGNED, KEY);
    let run = w.switch.run(&read.frame().bytes(), None);
    assert_eq!(run.moved.into_iter().collect::<Vec<_>>(), [("pass_local", 1), ("read_invalid", 1)]);
    let seen = harness::SeenFrame::read(&run.frame).expect("a right packet");
    let asked = read.clone().epoch(epoch).flags(Flags::GRANT);
    assert_eq!(seen.payload, asked.payload(), "signed again for {epoch:?}");

    w.send_as("grant_installed", Message::grant(wire::Op::ReadReply, SIGNED, KEY, V128, epoch));
    w.send_as("hit", read);
}
