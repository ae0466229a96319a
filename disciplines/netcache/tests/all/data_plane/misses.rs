//! Reads that the switch cannot answer: what it adds to them, and what not.

use wire::{Epoch, Flags};

use harness::{Case, Expectation::*, Message, Switch};

use super::world::*;

#[test]
fn without_an_entry() {
    check(&[
        Case {
            name: "a miss goes on as it came",
            given: |_| {},
            packet: |_| Message::read(SIGNED, KEY).padded(128),
            then: Forwarded,
            counts: &["miss", "pass_local"],
        },
        Case {
            name: "with a made-up stamp of this switch, which is taken off",
            given: |_| {},
            packet: |_| {
                let forged = Epoch::new(Switch::ID, Epoch::MAX_NUMBER);
                Message::read(SIGNED, KEY).epoch(forged).flags(Flags::GRANT)
            },
            then: Disowned,
            counts: &["miss", "pass_local"],
        },
        Case {
            name: "over IPv6",
            given: |_| {},
            packet: |_| Message::read(SIGNED, KEY).over_ipv6(),
            then: Forwarded,
            counts: &["miss", "pass_local"],
        },
        Case {
            name: "with a VLAN tag: the kernel forwards it",
            given: |_| {},
            packet: |_| Message::read(SIGNED, KEY).vlan(5),
            then: Forwarded,
            counts: &["miss", "pass_vlan"],
        },
        Case {
            name: "an evicted entry is a miss",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                let held = &w.switch.table.scan()[0];
                w.switch.table.evict(held.slot, held.place);
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Forwarded,
            counts: &["miss", "pass_local"],
        },
    ]);
}

#[test]
fn without_a_valid_value() {
    check(&[
        Case {
            name: "an entry that was just made has no lease yet",
            given: |w| w.entry(SIGNED, KEY, 128),
            packet: |_| Message::read(SIGNED, KEY),
            then: Forwarded,
            counts: &["read_no_lease", "pass_local"],
        },
        Case {
            name: "no lease: a read is not asked to bring a grant",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                w.outlive_lease();
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Forwarded,
            counts: &["read_no_lease", "pass_local"],
        },
        Case {
            name: "another switch has asked already: a packet has room for one",
            given: |w| {
                w.lease(TERM);
                w.entry(SIGNED, KEY, 128);
            },
            packet: |_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)).flags(Flags::GRANT),
            then: Forwarded,
            counts: &["read_invalid", "pass_local"],
        },
        Case {
            name: "the time to live has passed: asked for again, with a higher epoch",
            given: |w| {
                w.lease(TERM);
                w.entry(SIGNED, KEY, 128);
                w.send_as("grant_installed", w.grant(SIGNED, KEY, V128).expiry_ms(60_000));
                w.outlive(SIGNED, KEY);
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Stamped { grant: true },
            counts: &["read_expired", "pass_local"],
        },
        Case {
            name: "a new term: the entry of the old one is asked for again, with a higher epoch",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                w.lease(TERM + 1);
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Stamped { grant: true },
            counts: &["read_invalid", "pass_local"],
        },
        Case {
            name: "likewise over IPv6: the checksum follows",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                w.lease(TERM + 1);
            },
            packet: |_| Message::read(SIGNED, KEY).padded(129).over_ipv6(),
            then: Stamped { grant: true },
            counts: &["read_invalid", "pass_local"],
        },
        Case {
            name: "a stamp that claims to be ours is replaced: only we know our epochs",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                w.lease(TERM + 1);
            },
            packet: |_| {
                Message::read(SIGNED, KEY).epoch(Epoch::new(Switch::ID, 1)).flags(Flags::GRANT)
            },
            then: Stamped { grant: true },
            counts: &["read_invalid", "pass_local"],
        },
    ]);
}

#[test]
fn a_time_to_live() {
    check(&[Case {
        name: "a value with a time to live is served with what is left of it",
        given: |w| {
            w.lease(TERM);
            w.entry(SIGNED, KEY, 128);
            w.send_as("grant_installed", w.grant(SIGNED, KEY, V128).expiry_ms(60_000));
        },
        packet: |_| Message::read(SIGNED, KEY),
        then: AnsweredFor(V128, 60_000),
        counts: &["hit"],
    }]);
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
