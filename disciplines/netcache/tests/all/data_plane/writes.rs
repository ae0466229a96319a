//! Writes, deletes and a store's invalidations: what was cached is served no more.

use wire::{Epoch, Flags, Op};

use harness::{Case, Expectation::*, Message, Switch};

use super::world::*;

fn invalidate(w: &World, switch: u16) -> Message {
    invalidate_of(w, switch, SIGNED)
}

fn invalidate_of(w: &World, switch: u16, tenant: u32) -> Message {
    let granted = Epoch::new(switch, w.switch.table.epoch());
    Message::from_store(Op::Invalidate, tenant, KEY).epoch(granted)
}

#[test]
fn writes_are_stamped() {
    check(&[
        cached("a write to a cached key: GRANT, since the switch has an entry")
            .packet(|_| Message::write(SIGNED, KEY, b"new"))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of("a write to a key without an entry: no GRANT")
            .given(|w| w.lease(TERM))
            .packet(|_| Message::write(SIGNED, KEY, b"new"))
            .then(Stamped { grant: false }, &["write", "pass_local"]),
        Case::of("a GRANT that the client wrote itself is taken off")
            .packet(|_| Message::write(SIGNED, KEY, b"new").flags(Flags::GRANT))
            .then(Stamped { grant: false }, &["write", "pass_local"]),
        cached("a conditional write keeps its condition")
            .packet(|_| Message::write(SIGNED, KEY, b"new").flags(Flags::COMPARE).version(77))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        cached("over IPv6, odd lengths: the checksum follows")
            .packet(|_| Message::write(SIGNED, KEY, b"new").over_ipv6())
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        cached("over IPv6, a checksum that is right and looks like one left to a device")
            .packet(|_| Message::write(SIGNED, KEY, b"new").over_ipv6().that_seems_unfinished())
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        cached("without a UDP checksum")
            .packet(|_| Message::write(SIGNED, KEY, b"new").without_checksum())
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of("an open tenant's write stays without a tag")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::write(OPEN, KEY, b"new"))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        cached("with a VLAN tag")
            .packet(|_| Message::write(SIGNED, KEY, b"new").vlan(5))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_vlan"]),
        cached("a delete of a cached key")
            .packet(|_| Message::delete(SIGNED, KEY))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of("a delete of a key without an entry")
            .packet(|_| Message::delete(SIGNED, KEY))
            .then(Stamped { grant: false }, &["write", "pass_local"]),
        Case::of("stamped by another switch, no entry here: left to it")
            .packet(|_| Message::write(SIGNED, KEY, b"new").epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["write", "pass_local"]),
        cached("stamped by another switch that has an entry: left to it, yet invalid here")
            .packet(|_| {
                Message::write(SIGNED, KEY, b"new").epoch(Epoch::new(9, 5)).flags(Flags::GRANT)
            })
            .then(Forwarded, &["write", "write_invalidated", "pass_local"]),
        cached("stamped by another switch without an entry: ours takes the place")
            .packet(|_| Message::write(SIGNED, KEY, b"new").epoch(Epoch::new(9, 5)))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of(
            "stamped by another switch, which named a second one: left to them, yet invalid here",
        )
        .given(|w| w.cached(SIGNED, KEY, V128))
        .packet(|_| {
            Message::write(SIGNED, KEY, b"new")
                .epoch(Epoch::new(9, 5))
                .with(|write| write.header.node = 33)
        })
        .then(Forwarded, &["write", "write_invalidated", "pass_local"]),
        Case::of("a stamp that claims to be ours, no entry: only we know our epochs")
            .packet(|_| {
                Message::write(SIGNED, KEY, b"new")
                    .epoch(Epoch::new(Switch::ID, 1))
                    .flags(Flags::GRANT)
            })
            .then(Stamped { grant: false }, &["write", "pass_local"]),
        cached("a stamp that claims to be ours, of a cached key")
            .packet(|_| {
                Message::write(SIGNED, KEY, b"new")
                    .epoch(Epoch::new(Switch::ID, 1))
                    .flags(Flags::GRANT)
            })
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
    ]);
}

#[test]
fn what_was_written_is_not_served() {
    check(&[
        cached("after a write")
            .and(|w| w.send(Message::write(SIGNED, KEY, b"new")))
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        cached("after a delete")
            .and(|w| w.send(Message::delete(SIGNED, KEY)))
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        Case::of("after a write that another switch stamped")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                let elsewhere = Epoch::new(9, 5);
                let write = Message::write(SIGNED, KEY, b"new").epoch(elsewhere);
                w.send(write.flags(Flags::GRANT));
            })
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        cached("after the store's invalidation")
            .and(|w| w.send_as("invalidate", invalidate(w, Switch::ID)))
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        cached("another tenant's write of the same key changes nothing")
            .and(|w| w.send(Message::write(OTHER, KEY, b"new")))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        cached("a forged write changes nothing")
            .and(|w| {
                w.send_as("bypass_bad_tag", Message::write(SIGNED, KEY, b"new").with_a_wrong_tag())
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
    ]);
}

#[test]
fn invalidations_are_acknowledged() {
    check(&[
        cached("of a cached key")
            .packet(|w| invalidate(w, Switch::ID))
            .then(Acknowledged, &["invalidate"]),
        Case::of("of a key without an entry: whatever comes later has a higher epoch")
            .packet(|w| invalidate(w, Switch::ID))
            .then(Acknowledged, &["invalidate"]),
        cached("over IPv6, padded")
            .packet(|w| invalidate(w, Switch::ID).padded(31).over_ipv6())
            .then(Acknowledged, &["invalidate"]),
        cached("for another switch: it goes on")
            .packet(|w| invalidate(w, 9))
            .then(Forwarded, &["pass_local"]),
        cached("another switch's acknowledgement goes on")
            .packet(|_| {
                Message::from_client(Op::InvalidateAck, SIGNED, KEY).epoch(Epoch::new(9, 5))
            })
            .then(Forwarded, &["pass_local"]),
    ]);
}

/// A store whose invalidation is not acknowledged gives up the switch's lease, and with it
/// everybody's copies.
#[test]
fn invalidations_are_acknowledged_whosever_key_it_is() {
    check(&[
        Case::of("of a tenant that the switch does not know")
            .packet(|w| invalidate_of(w, Switch::ID, UNKNOWN))
            .then(Acknowledged, &["invalidate"]),
        Case::of("likewise over IPv6")
            .packet(|w| invalidate_of(w, Switch::ID, UNKNOWN).over_ipv6())
            .then(Acknowledged, &["invalidate"]),
        Case::of("of a tenant whose discipline is not here")
            .packet(|w| invalidate_of(w, Switch::ID, PLAIN))
            .then(Acknowledged, &["invalidate"]),
        Case::of("of a tenant whose secret is being changed")
            .given(|w| w.cached(ROTATING, KEY, V128))
            .packet(|w| invalidate_of(w, Switch::ID, ROTATING))
            .then(Acknowledged, &["invalidate"]),
        Case::of("of the open tenant")
            .packet(|w| invalidate_of(w, Switch::ID, OPEN))
            .then(Acknowledged, &["invalidate"]),
        Case::of("of a tenant that is gone by now: its copy is invalid all the same")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                let others = tenants().into_iter().filter(|t| t.id != SIGNED);
                w.install(&others.collect::<Vec<_>>());
                w.send_as("invalidate", invalidate(w, Switch::ID));
                w.install(&tenants());
            })
            .packet(|_| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        Case::of("a tenant's own secret is not enough")
            .packet(|w| {
                let secret = harness::message::secret_of(SIGNED);
                invalidate(w, Switch::ID).signed_with(secret)
            })
            .then(Dropped, &["drop_forged"]),
        Case::of("with a wrong tag, of a tenant that the switch does not know")
            .packet(|w| invalidate_of(w, Switch::ID, UNKNOWN).with_a_wrong_tag())
            .then(Dropped, &["drop_forged"]),
        Case::of("before the system's secret is known: nothing could be signed")
            .given(|w| w.install(&[]))
            .packet(|w| invalidate(w, Switch::ID))
            .then(Dropped, &["drop_forged"]),
        Case::of("for another switch, of an unknown tenant: it goes on")
            .packet(|w| invalidate_of(w, 9, UNKNOWN))
            .then(Forwarded, &["bypass_unknown_tenant", "pass_local"]),
    ]);
}

/// A stamp counts the checksum on, so that what was wrong stays wrong: the receiver's kernel drops
/// it.
#[test]
fn a_flipped_bit_still_shows_behind_the_stamp() {
    fn flipped(w: &mut World) {
        w.cached(SIGNED, KEY, V128);
        for write in
            [Message::write(SIGNED, KEY, b"new"), Message::write(SIGNED, KEY, b"new").over_ipv6()]
        {
            let run = w.switch.run(&write.clone().with_a_flipped_bit().frame().bytes(), None);
            assert_eq!(run.moved.get("write_invalidated"), Some(&1));
            let seen = harness::SeenFrame::read(&run.frame);
            assert!(seen.is_err_and(|wrong| wrong.contains("UDP checksum")));
            // Who sends none is not protected.
            let bare = write.without_checksum();
            if bare.from.is_ipv4() {
                let run = w.switch.run(&bare.frame().bytes(), None);
                let seen = harness::SeenFrame::read(&run.frame).expect("a right packet");
                assert_eq!(seen.checksum, 0);
            }
        }
    }
    flipped(&mut world());
    harness::switch::in_this_process(|| flipped(&mut world()));
}

/// What a socket of this machine sent, and left the checksum to a device: a native switch leaves it
/// out over IPv4, for nobody will finish it; a generic one leaves it to whoever takes the packet.
#[test]
fn a_stamp_leaves_a_checksum_for_a_device_to_finish() {
    fn stamped(w: &mut World) {
        w.cached(SIGNED, KEY, V128);
        let write = Message::write(SIGNED, KEY, b"new").unfinished();
        let run = w.switch.run(&write.frame().bytes(), None);
        assert_eq!(run.moved.get("write_invalidated"), Some(&1));
        let seen = harness::SeenFrame::read(&run.frame).expect("a right packet");
        assert_eq!(seen.checksum, 0);
        w.switch.leave_checksums();
        for write in [write.clone(), write.over_ipv6()] {
            let mut run = w.switch.run(&write.frame().bytes(), None);
            assert_ne!(run.frame, write.frame().bytes(), "it is stamped");
            harness::frame::finish(&mut run.frame);
            harness::SeenFrame::read(&run.frame).expect("right once it is finished");
        }
        // One that was finished, and looks as if it were not.
        for write in [Message::write(SIGNED, KEY, b"new"), Message::write(SIGNED, KEY, b"n")] {
            let write = write.that_seems_unfinished();
            let run = w.switch.run(&write.frame().bytes(), None);
            assert_ne!(run.frame, write.frame().bytes(), "it is stamped");
            harness::SeenFrame::read(&run.frame).expect("right as it stands");
        }
    }
    stamped(&mut world());
    harness::switch::in_this_process(|| stamped(&mut world()));
}
