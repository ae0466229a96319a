//! Leases of stores: from the offer to the end, and terms.

use wire::Op;

use dataplane::TenantEntry;
use harness::{Case, Expectation::*, Message, Switch, message::address};
use wire::Secret;

use super::world::*;

#[test]
fn offers_and_replies() {
    check(&[
        Case::of("an offer becomes the request, dated now, in its place")
            .packet(|w| Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)))
            .then(AsksForLease, &["lease_offer"]),
        Case::of("over IPv6, padded")
            .packet(|w| {
                Message::lease(Op::LeaseOffer, Switch::ID, w.slot(true)).padded(9).over_ipv6()
            })
            .then(AsksForLease, &["lease_offer"]),
        Case::of("after a packet with a key: nothing of it is in the tag")
            .given(|w| {
                w.send(Message::read(SIGNED, KEY));
            })
            .packet(|w| Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)))
            .then(AsksForLease, &["lease_offer"]),
        Case::of("an offer to another switch goes on")
            .packet(|w| Message::lease(Op::LeaseOffer, 9, w.slot(false)))
            .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
        Case::of("a forged offer goes on")
            .packet(|w| {
                Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)).with_a_wrong_tag()
            })
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        Case::of("a reply is taken")
            .packet(|w| w.lease_reply(TERM, 600_000, 0))
            .then(Dropped, &["lease_renewed"]),
        Case::of("a reply that was delayed past the lease's end")
            .packet(|w| w.lease_reply(TERM, 2000, 2000))
            .then(Dropped, &["lease_stale"]),
        Case::of("a reply to a request from the future")
            .packet(|w| {
                w.lease_reply(TERM, 2000, 0).with(|reply| reply.header.version += 60_000_000_000)
            })
            .then(Dropped, &["lease_stale"]),
        Case::of("a reply from another host than the slot's store")
            .packet(|w| w.lease_reply(TERM, 2000, 0).sent_by(address(false, 3)))
            .then(Dropped, &["lease_stale"]),
        Case::of("a reply for a slot that there is not")
            .packet(|w| w.lease_reply(TERM, 2000, 0).with(|reply| reply.header.request = 1024))
            .then(Dropped, &["lease_stale"]),
    ]);
}

#[test]
fn what_a_lease_is_worth() {
    check(&[
        cached("renewed in the same term: served")
            .and(|w| w.lease(TERM))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        cached("lapsed: not served")
            .and(|w| w.outlive_lease())
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["read_no_lease", "pass_local"]),
        Case::of("lapsed, and a delayed reply comes: still not served")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                w.outlive_lease();
                w.send_as("lease_stale", w.lease_reply(TERM, 2000, 2000));
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["read_no_lease", "pass_local"]),
        cached("a delayed reply does not shorten a lease")
            .and(|w| w.send_as("lease_renewed", w.lease_reply(TERM, 90_000, 2000)))
            .packet(|w| {
                let state = w.switch.leases.state(w.slot(false));
                assert!(state.remaining_ms > 100_000, "{state:?}");
                Message::read(SIGNED, KEY)
            })
            .then(Answered(V128), &["hit"]),
        Case::of("a new term, then the value granted again: served")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                w.lease(TERM + 1);
                w.send_as("read_invalid", Message::read(SIGNED, KEY));
                w.send_as("grant_installed", w.grant(SIGNED, KEY, b"new"));
            })
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(b"new"), &["hit"]),
        Case::of("counted from when it was asked for")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                w.outlive_lease();
                w.send_as("lease_renewed", w.lease_reply(TERM, 60_000, 2000));
            })
            .packet(|w| {
                let state = w.switch.leases.state(w.slot(false));
                assert!(state.remaining_ms <= 58_000 && state.term == TERM, "{state:?}");
                Message::read(SIGNED, KEY)
            })
            .then(Answered(V128), &["hit"]),
    ]);
}

fn without_system_secret(w: &mut World) {
    let system = tenants().into_iter().map(|tenant| match tenant.id {
        wire::TENANT_SYSTEM => TenantEntry { secret: Secret::NONE, ..tenant },
        _ => tenant,
    });
    w.install(&system.collect::<Vec<_>>());
}

/// What ends at the switch no other receiver verifies.
#[test]
fn without_a_system_secret_the_checksum_decides() {
    fn reply(w: &World) -> Message {
        w.lease_reply(TERM, 2000, 0).signed_with(Secret::NONE)
    }
    fn offer(w: &World) -> Message {
        Message::lease(Op::LeaseOffer, Switch::ID, w.slot(false)).signed_with(Secret::NONE)
    }
    fn invalidate(w: &World) -> Message {
        let granted = wire::Epoch::new(Switch::ID, w.switch.table.epoch());
        Message::from_store(Op::Invalidate, SIGNED, KEY).epoch(granted).signed_with(Secret::NONE)
    }
    check(&[
        Case::of("a lease reply that is whole")
            .given(without_system_secret)
            .packet(reply)
            .then(Dropped, &["lease_renewed"]),
        Case::of("a lease reply with a flipped bit")
            .given(without_system_secret)
            .packet(|w| reply(w).with_a_flipped_bit())
            .then(Dropped, &["drop_spoiled"]),
        Case::of("a lease reply without a checksum")
            .given(without_system_secret)
            .packet(|w| reply(w).without_checksum())
            .then(Dropped, &["drop_spoiled"]),
        Case::of("an offer that is whole")
            .given(without_system_secret)
            .packet(offer)
            .then(AsksForLease, &["lease_offer"]),
        Case::of("an offer with a flipped bit asks for nothing")
            .given(without_system_secret)
            .packet(|w| offer(w).with_a_flipped_bit())
            .then(Dropped, &["drop_spoiled"]),
        Case::of("a probe that is whole")
            .given(without_system_secret)
            .packet(|_| probe_of(Switch::ID, 77).signed_with(Secret::NONE))
            .then(Heard, &["probe"]),
        Case::of("what a flipped bit made a probe is not answered: its sender sent none")
            .given(without_system_secret)
            .packet(|_| probe_of(Switch::ID, 77).signed_with(Secret::NONE).with_a_flipped_bit())
            .then(Dropped, &["drop_spoiled"]),
        Case::of("an invalidation that is whole")
            .given(without_system_secret)
            .packet(invalidate)
            .then(Acknowledged, &["invalidate"]),
        Case::of("likewise over IPv6")
            .given(without_system_secret)
            .packet(|w| invalidate(w).over_ipv6())
            .then(Acknowledged, &["invalidate"]),
        Case::of("an invalidation with a flipped bit")
            .given(without_system_secret)
            .packet(|w| invalidate(w).with_a_flipped_bit())
            .then(Dropped, &["drop_spoiled"]),
    ]);
}

/// A processor that counts ticks may be held up; what the coarse clock shows is then long past.
#[test]
fn a_late_clock_serves_nothing_past_its_end() {
    const LATE_NS: u64 = 90_000_000;
    harness::switch::in_this_process(|| {
        for its_life in [false, true] {
            let mut w = world();
            w.lease(TERM);
            w.entry(SIGNED, KEY, 128);
            let grant = w.grant(SIGNED, KEY, V128).expiry_ms(60_000);
            w.send_as("grant_installed", grant);
            w.switch.runner.late(LATE_NS);
            w.send_as("hit", Message::read(SIGNED, KEY));
            let now = w.switch.leases.now_ns().to_ne_bytes();
            if its_life {
                w.poke_item(SIGNED, KEY, ItemField::ExpiryNs, &now);
                w.send_as("read_expired", Message::read(SIGNED, KEY));
            } else {
                w.switch.poke("leases", w.slot(false).into(), 16, &now);
                w.send_as("read_no_lease", Message::read(SIGNED, KEY));
            }
        }
    });
}

#[test]
fn probes() {
    check(&[
        Case::of("a probe is answered in its place, with its number")
            .packet(|_| probe_of(Switch::ID, 77))
            .then(Heard, &["probe"]),
        Case::of("over IPv6, padded")
            .packet(|_| probe_of(Switch::ID, 78).padded(9).over_ipv6())
            .then(Heard, &["probe"]),
        Case::of("a probe of another switch goes on")
            .packet(|_| probe_of(9, 77))
            .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
        Case::of("a forged probe goes on")
            .packet(|_| probe_of(Switch::ID, 77).with_a_wrong_tag())
            .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
        Case::of("an answer is for the agent's socket")
            .packet(|_| Message::lease(Op::ProbeReply, 9, 0))
            .then(Forwarded, &["pass_local"]),
    ]);
}

fn probe_of(switch: u16, number: u64) -> Message {
    Message::lease(Op::ProbeRequest, switch, 0).with(|probe| probe.header.version = number)
}
