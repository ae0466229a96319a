//! Which replies fill an entry, and which must not.

use wire::{Epoch, Flags, Op};

use harness::{
    Case,
    Expectation::*,
    Message, Switch,
    message::{address, secret_of},
};

use super::world::*;

fn entry(w: &mut World) {
    w.lease(TERM);
    w.entry(SIGNED, KEY, 128);
}

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
        Case {
            name: "a read reply is installed on its way to the client",
            given: entry,
            packet: |w| grant(w, Op::ReadReply),
            then: Forwarded,
            counts: &["grant_installed", "pass_local"],
        },
        Case {
            name: "a write reply",
            given: entry,
            packet: |w| grant(w, Op::WriteReply),
            then: Forwarded,
            counts: &["grant_installed", "pass_local"],
        },
        Case {
            name: "a fetch reply is the switch's own",
            given: entry,
            packet: |w| grant(w, Op::FetchReply),
            then: Dropped,
            counts: &["grant_installed", "fetch_reply"],
        },
        Case {
            name: "a write reply's value is served from then on",
            given: |w| {
                entry(w);
                w.send_as("grant_installed", grant(w, Op::WriteReply));
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Answered(V128),
            counts: &["hit"],
        },
        Case {
            name: "a value of just the entry's room",
            given: |w| {
                w.lease(TERM);
                w.entry(SIGNED, KEY, 128);
            },
            packet: |w| w.grant(SIGNED, KEY, &[b'f'; 128]),
            then: Dropped,
            counts: &["grant_installed", "fetch_reply"],
        },
    ]);
}

#[test]
fn not_for_this_epoch() {
    check(&[
        Case {
            name: "an old epoch",
            given: entry,
            packet: |w| {
                let epoch = w.epoch(SIGNED, KEY).number() - 1;
                grant(w, Op::ReadReply).epoch(Epoch::new(Switch::ID, epoch))
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "an epoch that was never taken",
            given: entry,
            packet: |w| {
                let epoch = w.epoch(SIGNED, KEY).number() + 1;
                grant(w, Op::ReadReply).epoch(Epoch::new(Switch::ID, epoch))
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "a second grant for an epoch that has its value",
            given: |w| w.cached(SIGNED, KEY, V128),
            packet: |w| {
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                Message::grant(Op::ReadReply, SIGNED, KEY, b"another", taken)
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "a second write between the stamp and the grant",
            given: |w| {
                entry(w);
                w.send(Message::write(SIGNED, KEY, b"first"));
            },
            packet: |w| {
                let first = grant(w, Op::WriteReply);
                w.send(Message::write(SIGNED, KEY, b"second"));
                first
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "an invalidation between the stamp and the grant",
            given: entry,
            packet: |w| {
                let first = grant(w, Op::ReadReply);
                let epoch = first.header.epoch;
                w.send_as(
                    "invalidate",
                    Message::from_store(Op::Invalidate, SIGNED, KEY).epoch(epoch),
                );
                first
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "a new term between the stamp and the grant",
            given: entry,
            packet: |w| {
                let first = grant(w, Op::ReadReply);
                w.lease(TERM + 1);
                first
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
        Case {
            name: "the entry was evicted and made anew meanwhile",
            given: entry,
            packet: |w| {
                let old = grant(w, Op::ReadReply);
                let held = w.switch.table.scan().remove(0);
                w.switch.table.evict(held.slot, held.place);
                w.switch.table.quiesce().expect("membarrier");
                let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
                let table = &w.switch.table;
                table.insert(SIGNED, hash, KEY, held.lease, held.place).expect("free again");
                old
            },
            then: Forwarded,
            counts: &["grant_stale", "pass_local"],
        },
    ]);
}

#[test]
fn refused() {
    check(&[
        Case {
            name: "from a host that is not the entry's store",
            given: entry,
            packet: |w| grant(w, Op::ReadReply).sent_by(address(false, 3)),
            then: Forwarded,
            counts: &["grant_refused", "pass_local"],
        },
        Case {
            name: "from the same number in the other family",
            given: entry,
            packet: |w| grant(w, Op::ReadReply).over_ipv6(),
            then: Forwarded,
            counts: &["grant_refused", "pass_local"],
        },
        Case {
            name: "with a wrong tag",
            given: entry,
            packet: |w| grant(w, Op::ReadReply).with_a_wrong_tag(),
            then: Forwarded,
            counts: &["bypass_bad_tag", "pass_local"],
        },
        Case {
            name: "too large for the entry's cells",
            given: entry,
            packet: |w| {
                Message::grant(Op::ReadReply, SIGNED, KEY, &[b'x'; 129], w.epoch(SIGNED, KEY))
            },
            then: Forwarded,
            counts: &["grant_too_large", "pass_local"],
        },
        Case {
            name: "for a key without an entry",
            given: entry,
            packet: |w| Message::grant(Op::ReadReply, SIGNED, b"gone", V128, w.epoch(SIGNED, KEY)),
            then: Forwarded,
            counts: &["grant_no_entry", "pass_local"],
        },
        Case {
            name: "for another switch",
            given: entry,
            packet: |w| {
                let epoch = Epoch::new(9, w.epoch(SIGNED, KEY).number());
                grant(w, Op::ReadReply).epoch(epoch)
            },
            then: Forwarded,
            counts: &["pass_local"],
        },
        Case {
            name: "another switch's fetch reply goes on",
            given: entry,
            packet: |w| {
                let epoch = Epoch::new(9, w.epoch(SIGNED, KEY).number());
                grant(w, Op::FetchReply).epoch(epoch)
            },
            then: Forwarded,
            counts: &["pass_local"],
        },
        Case {
            name: "a reply without GRANT is only a reply",
            given: entry,
            packet: |w| grant(w, Op::ReadReply).flags(Flags::NONE),
            then: Forwarded,
            counts: &["pass_local"],
        },
        Case {
            name: "a fetch reply without GRANT: not found",
            given: entry,
            packet: |w| {
                let epoch = w.epoch(SIGNED, KEY);
                let reply = Message::from_store(Op::FetchReply, SIGNED, KEY).epoch(epoch);
                reply.status(wire::Status::NotFound)
            },
            then: Dropped,
            counts: &["fetch_reply"],
        },
        Case {
            name: "while another CPU is writing the item",
            given: |w| {
                entry(w);
                w.poke_item(SIGNED, KEY, ItemField::Seq, &4_000_001u32.to_ne_bytes());
            },
            packet: |w| grant(w, Op::ReadReply),
            then: Forwarded,
            counts: &["grant_busy", "pass_local"],
        },
    ]);
}

/// Until its next invalidation the value in an entry is the one that was granted for its epoch.
#[test]
fn what_was_not_installed_leaves_no_trace() {
    check(&[
        Case {
            name: "a second grant for an epoch that has its value",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                let second = Message::grant(Op::ReadReply, SIGNED, KEY, b"another", taken);
                w.send_as("grant_stale", second);
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Answered(V128),
            counts: &["hit"],
        },
        Case {
            name: "a delayed grant for an epoch before",
            given: |w| {
                w.lease(TERM);
                w.entry(SIGNED, KEY, 128);
                let delayed =
                    Message::grant(Op::ReadReply, SIGNED, KEY, b"old", w.epoch(SIGNED, KEY));
                w.send(Message::write(SIGNED, KEY, V128));
                w.send_as("grant_installed", grant(w, Op::WriteReply));
                w.send_as("grant_stale", delayed);
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Answered(V128),
            counts: &["hit"],
        },
        Case {
            name: "a grant that is too large",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                let taken = Epoch::new(Switch::ID, w.switch.table.epoch());
                w.send(Message::grant(Op::ReadReply, SIGNED, KEY, &[b'x'; 900], taken));
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Answered(V128),
            counts: &["hit"],
        },
    ]);
}

/// What a bit flipped in on the way is neither kept nor served.
#[test]
fn grants_that_did_not_arrive_whole() {
    check(&[
        Case {
            name: "a flipped bit of the value: goes on to the client, whose kernel drops it",
            given: entry,
            packet: |w| grant(w, Op::ReadReply).with_a_flipped_bit(),
            then: Forwarded,
            counts: &["grant_spoiled", "pass_local"],
        },
        Case {
            name: "likewise over IPv6, in a write's reply",
            given: entry_of_an_ipv6_store,
            packet: |w| grant(w, Op::WriteReply).over_ipv6().with_a_flipped_bit(),
            then: Forwarded,
            counts: &["grant_spoiled", "pass_local"],
        },
        Case {
            name: "over IPv6 and whole",
            given: entry_of_an_ipv6_store,
            packet: |w| grant(w, Op::WriteReply).over_ipv6(),
            then: Forwarded,
            counts: &["grant_installed", "pass_local"],
        },
        Case {
            name: "in a fetch's reply",
            given: entry,
            packet: |w| grant(w, Op::FetchReply).with_a_flipped_bit(),
            then: Dropped,
            counts: &["grant_spoiled", "fetch_reply"],
        },
        Case {
            name: "without a checksum nobody knows",
            given: entry,
            packet: |w| grant(w, Op::FetchReply).without_checksum(),
            then: Dropped,
            counts: &["grant_spoiled", "fetch_reply"],
        },
        Case {
            name: "the next one that is whole is installed, and served",
            given: |w| {
                entry(w);
                w.send_as("grant_spoiled", grant(w, Op::FetchReply).with_a_flipped_bit());
                w.send_as("read_invalid", Message::read(SIGNED, KEY));
                w.send_as("grant_installed", grant(w, Op::FetchReply));
            },
            packet: |_| Message::read(SIGNED, KEY),
            then: Answered(V128),
            counts: &["hit"],
        },
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
