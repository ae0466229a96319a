//! Leases: asked for by switches, offered by us; and the INVALIDATEs that go the same way.

use std::cmp::Reverse;

use wire::{Epoch, Header, Op, Packet, Secret};

use super::Engine;
use crate::{
    coherence::LeaseAnswer,
    directory::{KeyId, Place},
    net::{Outbox, Peer},
};

/// Where a switch is, and under which number it knows its lease of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Home {
    pub peer: Peer,
    pub slot: u64,
}

/// Leases that lapsed longer ago than this many lease lengths are offered no more.
const OFFER_LAPSED: u64 = 30;
/// Likewise, without a system secret: whoever forges one request then has few offers sent to somebody else.
const OFFER_LAPSED_UNSIGNED: u64 = 2;
/// Keys looked at for dead copies each time leases are offered: a million keys within some 40 seconds.
const SWEEP_KEYS: usize = 16_384;

impl Engine {
    /// A switch asks for a lease (rule 6).
    pub(super) fn lease(&mut self, packet: &Packet<'_>, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let secret = self.system_secret();
        let switch = header.epoch.switch();
        let known = header.tenant == wire::TENANT_SYSTEM && switch != 0;
        let signed = known && packet.tag_is_valid(&secret);
        if !signed || !self.may_speak(header.epoch, peer) {
            self.counters.dropped_lease_auth += 1;
            return;
        }
        // While it waits out the leases of its former self a store lends none: an answer of the former self that comes late must
        // not bring its term back. What that self still had on its way to the backend has arrived by then, too.
        if !self.takes_writes(now_ns) {
            self.counters.leases_refused_starting += 1;
            return;
        }
        let home = Home {
            peer,
            slot: header.request,
        };
        // Where others write to the backend: no lease goes beyond what is known of that.
        let length_ns = self.config.lease_ns();
        let directory = &self.directory;
        let holds = |id: &KeyId| directory.holds(id, switch);
        let Some(lent_ns) = self.outside.lendable_ns(length_ns, now_ns, holds) else {
            self.counters.leases_refused_unwatched += 1;
            return;
        };
        match self.leases.request(switch, home, header.version, now_ns) {
            LeaseAnswer::Refused => self.counters.leases_refused_mute += 1,
            LeaseAnswer::Overtaken => {}
            LeaseAnswer::OtherClock => self.counters.leases_refused_clock += 1,
            LeaseAnswer::Lent { term, new_term } => {
                self.counters.leases_granted += 1;
                self.counters.lease_terms += u64::from(new_term);
                let mut reply = Header::new(Op::LeaseReply);
                reply.tenant = wire::TENANT_SYSTEM;
                reply.epoch = header.epoch;
                reply.request = header.request;
                reply.version = header.version;
                reply.client = term;
                reply.expiry_ms = (lent_ns / 1_000_000) as u32;
                let _ = out.push(&Packet::new(reply, &[], &[]), &secret, peer);
            }
        }
    }

    /// Offers every switch its next lease, which its data plane then asks for by itself.
    fn offer_leases(&mut self, now_ns: u64, out: &mut Outbox) {
        let secret = self.system_secret();
        let lengths = if secret == Secret::NONE {
            OFFER_LAPSED_UNSIGNED
        } else {
            OFFER_LAPSED
        };
        let patience_ns = lengths * self.leases.length_ns();
        for (switch, lease) in self.leases.iter() {
            if now_ns > lease.until_ns + patience_ns {
                continue;
            }
            let mut offer = Header::new(Op::LeaseOffer);
            offer.tenant = wire::TENANT_SYSTEM;
            offer.epoch = Epoch::new(switch, 0);
            offer.request = lease.address.slot;
            let _ = out.push(&Packet::new(offer, &[], &[]), &secret, lease.address.peer);
            self.counters.lease_offers += 1;
        }
    }

    /// Sends an INVALIDATE for a key; `epoch` is (X, granted(X)).
    pub(super) fn invalidate(&mut self, at: Place, epoch: Epoch, out: &mut Outbox) {
        let home = self.leases.address(epoch.switch());
        let (Some(home), Some(entry)) = (home, self.directory.get(at)) else {
            return;
        };
        let (tenant, key_hash) = entry.id;
        let secret = self.system_secret();
        let mut header = Header::new(Op::Invalidate);
        header.tenant = tenant;
        header.key_hash = key_hash;
        header.epoch = epoch;
        self.counters.invalidations += 1;
        let _ = out.push(&Packet::new(header, &entry.key, &[]), &secret, home.peer);
    }

    /// Offers leases and repeats invalidations that are due.
    pub(super) fn timers(&mut self, now_ns: u64, out: &mut Outbox) {
        if now_ns >= self.next_offer_ns {
            self.next_offer_ns = now_ns + self.config.lease_ns() / 3;
            self.offer_leases(now_ns, out);
            for at in self.directory.sweep(&self.leases, now_ns, SWEEP_KEYS) {
                self.drive(at, now_ns, out);
            }
        }
        while let Some(&Reverse((at_ns, at))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            self.directory.update(at, |e| {
                if e.timer_ns == at_ns {
                    e.timer_ns = 0;
                }
            });
            self.drive(at, now_ns, out);
        }
    }

    pub(super) fn system_secret(&self) -> Secret {
        self.tenants.tag_of(wire::TENANT_SYSTEM)
    }
}
