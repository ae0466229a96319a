//! Leases (rule 6): asked for by switches and by stores that hold copies, offered by this one.

use std::collections::BTreeMap;

use wire::{Epoch, Header, NodeId, Op, Packet, Secret, TENANT_SYSTEM};

use super::{context::Context, lease_holder::LeaseHolder};
use crate::{
    coherence::{Lease, LeaseAnswer, Nanos, Watch},
    counters::LeaseCounters,
    directory::KeyId,
    net::Peer,
};
use holder::mutants::{Mutant, mutant};

/// Leases that lapsed longer ago than this many lease lengths are offered no more.
const OFFER_LAPSED: u64 = 30;
/// The same without a system secret: whoever forges one request then has few offers sent to
/// somebody else.
const OFFER_LAPSED_UNSIGNED: u64 = 2;
const NS_PER_MS: Nanos = 1_000_000;
/// So long before leases are offered the backend is asked whether it is what it was: it has
/// answered when they are asked for, and they are lent whole.
const ASKED_BEFORE_NS: Nanos = 20 * NS_PER_MS;

/// How far a switch, or a store that holds copies, has gone.
pub(super) enum Departure {
    /// It still serves, and what is lent to it is to come back.
    Announced(NodeId),
    /// It serves nothing any more under the lease that it named. Whether that is the one that it
    /// was lent last, which ends with that.
    Gone(NodeId, bool),
    /// It has come back: it has another lease than the one that it named, or was lent it on a
    /// request from after the time by which it would have been gone. What it said comes late, or
    /// once more, and what is lent to it stays.
    Returned(NodeId),
}

/// What lends leases out.
#[derive(Default)]
pub(super) struct Lessor {
    next_offer_ns: Nanos,
    /// When the backend was asked for the sake of that offer.
    asked_ns: Option<Nanos>,
    /// How many offers were made.
    offers: u64,
    /// The number of each one's last offer, until a lease came of it.
    offered: BTreeMap<u16, u64>,
    pub counters: LeaseCounters,
}

impl Lessor {
    /// Whether who speaks of a lease may speak for that switch or store.
    fn is_trusted(&mut self, cx: &Context, packet: &Packet<'_>, peer: Peer) -> bool {
        let header = &packet.header;
        let known = header.tenant == TENANT_SYSTEM && header.epoch.switch() != 0;
        let signed = known && packet.tag_is_valid(&cx.system_secret());
        let is_trusted = signed && cx.may_speak(header.epoch, peer);
        self.counters.dropped_lease_auth += u64::from(!is_trusted);
        is_trusted
    }

    /// Somebody asks for a lease.
    pub fn asked(&mut self, cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
        let header = &packet.header;
        let switch = header.epoch.switch();
        if !self.is_trusted(cx, packet, peer) {
            return;
        }
        if cx.leaves {
            return;
        }
        // While it waits out the leases of its former self a store lends none: an answer of the
        // former self that comes late must not bring its term back. What that self still had on its
        // way to the backend has arrived by then, too.
        if !cx.takes_writes(cx.now_ns) {
            self.counters.leases_refused_starting += 1;
            return;
        }
        let home = LeaseHolder { peer, slot: header.request };
        // Where others write to the backend: no lease goes beyond what is known of that.
        let length_ns = cx.config.lease_ns();
        let directory = &cx.directory;
        let copies = |id: &KeyId| directory.copies_of(id);
        let lendable = cx.outside.lendable_ns(switch, length_ns, cx.now_ns, copies);
        let Some(lent_ns) = lendable else {
            self.counters.leases_refused_unwatched += 1;
            return;
        };
        // Somebody may have caught it, and sends it once more whenever the lease has lapsed. Were
        // it lent then, by that date, the switch itself would be taken for one with another clock.
        // Or the switch was started anew; then it answers an offer that nobody has seen before.
        let offered = self.offered.get(&switch).copied();
        let may_be_repeated = cx.leases.may_be_repeated(switch, header.version, cx.now_ns);
        let may_be_repeated = may_be_repeated && !mutant(Mutant::RepeatedRequestLent);
        if may_be_repeated && offered != Some(header.client) {
            self.counters.leases_refused_dated += 1;
            // An offer that was not answered stays, or others' requests would make it void.
            let number = offered.unwrap_or_else(|| self.next_offer(cx));
            self.offer_to(cx, switch, home, number);
            return;
        }
        match cx.leases.request(switch, home, header.version, cx.now_ns) {
            LeaseAnswer::Refused => self.counters.leases_refused_mute += 1,
            LeaseAnswer::Overtaken | LeaseAnswer::GivenBack => {}
            LeaseAnswer::OtherClock => self.counters.leases_refused_clock += 1,
            LeaseAnswer::Lent { term, new_term } => {
                self.counters.leases_granted += 1;
                self.counters.lease_terms += u64::from(new_term);
                self.offered.remove(&switch);
                let reply = Header {
                    tenant: TENANT_SYSTEM,
                    epoch: header.epoch,
                    request: header.request,
                    version: header.version,
                    client: term,
                    expiry_ms: (lent_ns / 1_000_000) as u32,
                    ..Header::new(Op::LeaseReply)
                };
                cx.send(reply, &[], &[], peer);
            }
        }
    }

    /// Somebody gives a lease back, or says that it is going to: what is told of that.
    pub fn returned(
        &mut self,
        cx: &mut Context,
        packet: &Packet<'_>,
        peer: Peer,
    ) -> Option<Departure> {
        if !self.is_trusted(cx, packet, peer) {
            return None;
        }
        let header = &packet.header;
        let (who, term) = (header.epoch.switch(), header.client);
        let serves_ns = u64::from(header.expiry_ms) * NS_PER_MS;
        // An announcement of an earlier release has no date.
        let is_dated = serves_ns == 0 || header.version != 0;
        let gone_by_ns = is_dated.then(|| header.version.wrapping_add(serves_ns));
        let asked_since = |gone_by_ns| cx.leases.asked_since(who, term, gone_by_ns);
        if cx.leases.has_another(who, term) || gone_by_ns.is_some_and(asked_since) {
            return Some(Departure::Returned(who));
        }
        if serves_ns > 0 {
            cx.leases.leaves(who, term, gone_by_ns, serves_ns, cx.now_ns);
            return Some(Departure::Announced(who));
        }
        let held = cx.leases.holds(who, term, cx.now_ns);
        let is_over = cx.leases.give_back(who, term, header.version, cx.now_ns);
        self.counters.leases_given_back += u64::from(held && is_over);
        Some(Departure::Gone(who, is_over))
    }

    /// Answers who gives a lease back, to whom so many keys are lent.
    pub fn acknowledge(&self, cx: &mut Context, asked: &Header, lent: usize, peer: Peer) {
        let reply = Header {
            tenant: TENANT_SYSTEM,
            epoch: asked.epoch,
            request: asked.request,
            version: asked.version,
            client: asked.client,
            expiry_ms: lent.try_into().unwrap_or(u32::MAX),
            ..Header::new(Op::LeaseReturned)
        };
        cx.send(reply, &[], &[], peer);
    }

    /// When leases are to be offered next.
    pub fn next_ns(&self, cx: &Context) -> Option<Nanos> {
        let before_ns = if self.is_to_ask(cx) { ASKED_BEFORE_NS } else { 0 };
        (!cx.leaves).then(|| self.next_offer_ns.saturating_sub(before_ns))
    }

    /// Whether the backend is to be asked before the next offer: leases are lent from the time of a
    /// question, and somebody has one.
    fn is_to_ask(&self, cx: &Context) -> bool {
        self.asked_ns.is_none()
            && cx.outside.watch() == Watch::Tracked
            && cx.leases.iter().next().is_some()
    }

    /// Offers everybody the next lease, if that is due, and says whether it was; a data plane then
    /// asks by itself.
    pub fn offer(&mut self, cx: &mut Context) -> bool {
        if cx.leaves {
            return false;
        }
        if self.is_to_ask(cx) && cx.now_ns + ASKED_BEFORE_NS >= self.next_offer_ns {
            self.asked_ns = Some(cx.now_ns);
            cx.backend.ask();
        }
        let is_answered = self.asked_ns.is_some_and(|asked_ns| cx.outside.seen_ns() > asked_ns);
        if cx.now_ns < self.next_offer_ns && !is_answered {
            return false;
        }
        self.next_offer_ns = cx.now_ns + cx.config.lease_ns() / 3;
        self.asked_ns = None;
        let is_unsigned = cx.system_secret() == Secret::NONE;
        let lengths = if is_unsigned { OFFER_LAPSED_UNSIGNED } else { OFFER_LAPSED };
        let patience_ns = lengths * cx.leases.length_ns();
        let is_offered = |lease: &Lease<LeaseHolder>| {
            cx.now_ns <= lease.until_ns + patience_ns && !lease.is_given_back()
        };
        // Holders ask by themselves.
        let others = cx.leases.iter().filter(|(who, _)| !wire::is_holder(*who));
        let to = others.filter(|(_, lease)| is_offered(lease));
        let to: Vec<_> = to.map(|(switch, lease)| (switch, lease.address)).collect();
        for (switch, home) in to {
            let number = self.next_offer(cx);
            self.offer_to(cx, switch, home, number);
        }
        true
    }

    /// The number of an offer that nobody has seen: those of other lives are others.
    fn next_offer(&mut self, cx: &Context) -> u64 {
        self.offers += 1;
        cx.leases.first_term().wrapping_add(self.offers).max(1)
    }

    /// Offers a lease. The request that this becomes has the offer's number.
    fn offer_to(&mut self, cx: &mut Context, switch: u16, home: LeaseHolder, number: u64) {
        self.offered.insert(switch, number);
        let offer = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            request: home.slot,
            client: number,
            ..Header::new(Op::LeaseOffer)
        };
        cx.send(offer, &[], &[], home.peer);
        self.counters.lease_offers += 1;
    }
}
