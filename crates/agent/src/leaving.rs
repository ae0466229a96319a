//! How a switch leaves in order: it gives every store its lease back, so that no write waits for
//! what is gone (docs/coherence.md, "Leaving").
//!
//! First stores are told, and take back the keys that are lent to the switch, which goes on serving
//! meanwhile. Then it serves nothing any more, and says so. No agent may write the tables at the
//! same time. Like [`Tables`](crate::Tables) it reads no clock and opens no socket.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use dataplane::{Backing, Error, LeaseState, Leases, Table, TenantEntry};
use wire::{Op, Packet, Secret, TENANT_SYSTEM};

use crate::courier::{Courier, Requests, ReturnedLease};

/// What is not answered is said again after this time.
const AGAIN: Duration = Duration::from_millis(20);
/// A store that has not answered for this long is not waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Keys that are lent are waited for so long: longer than a store waits for a switch that is gone.
const RETURNS_WITHIN: Duration = Duration::from_secs(5);
/// For so long a switch that leaves asks for no lease, in nanoseconds. Its programs may still do so
/// until they are detached; nothing that they are lent then has a slot.
const ASKS_NOTHING_NS: u64 = 1_000_000_000;

/// A store whose lease is given back.
struct Lender {
    lease: LeaseState,
    /// When it answered last, or was first told.
    heard: Instant,
    /// It is done with what it was told.
    is_done: bool,
    /// It did not answer.
    is_mute: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Stores take back what they have lent.
    Announcing,
    /// They are told that nothing is served any more.
    GivingBack,
    Over,
}

/// A switch that leaves.
pub struct SwitchDeparture {
    leases: Leases,
    switch: u16,
    secret: Secret,
    requests: Requests,
    lenders: Vec<Lender>,
    stage: Stage,
    since: Instant,
    next: Instant,
    before_ns: u64,
}

impl SwitchDeparture {
    /// A switch with these tables leaves. What it says goes by `courier`.
    ///
    /// # Errors
    /// If the tables cannot be reached.
    pub fn begin(
        at: impl Into<Backing>,
        courier: Box<dyn Courier>,
        now: Instant,
    ) -> Result<SwitchDeparture, Error> {
        let at = at.into();
        let leases = Leases::open(&at)?;
        let secret = TenantEntry::secret_of(&at, TENANT_SYSTEM)?.unwrap_or(Secret::NONE);
        let switch = Table::open(&at)?.switch_id();
        let lent = leases.all().into_iter().filter(|lease| lease.term != 0);
        let lender = |lease| Lender { lease, heard: now, is_done: false, is_mute: false };
        let lenders = lent.map(lender).collect();
        let requests = Requests::new(courier);
        let stage = Stage::Announcing;
        // By this a store tells what was said before the switch came back.
        let (since, next, before_ns) = (now, now, leases.now_ns());
        Ok(SwitchDeparture {
            leases,
            switch,
            secret,
            requests,
            lenders,
            stage,
            since,
            next,
            before_ns,
        })
    }

    /// Says what is due and hears what was answered; due every millisecond or so. True once every
    /// store has its lease back, or is not waited for.
    ///
    /// # Errors
    /// Running programs cannot be waited for.
    pub fn tick(&mut self, now: Instant) -> Result<bool, Error> {
        for (from, datagram) in self.requests.receive() {
            self.hear(from.ip(), &datagram, now);
        }
        for lender in self.lenders.iter_mut().filter(|lender| !lender.is_done) {
            lender.is_mute = now > lender.heard + PATIENCE;
        }
        let waits = self.lenders.iter().any(|lender| !lender.is_done && !lender.is_mute);
        let is_late = now > self.since + RETURNS_WITHIN;
        match self.stage {
            Stage::Announcing if !waits || is_late => {
                self.give_up(now)?;
                self.say(now);
            }
            Stage::GivingBack if !waits || is_late => self.stage = Stage::Over,
            Stage::Over => {}
            _ if now >= self.next => self.say(now),
            _ => {}
        }
        Ok(self.stage == Stage::Over)
    }

    /// The stores that have not answered: what they have of keys that were here may be written once
    /// the lease that they lent has lapsed.
    pub fn mute(&self) -> impl Iterator<Item = IpAddr> {
        self.lenders.iter().filter(|lender| !lender.is_done).map(|lender| lender.lease.store)
    }

    /// The stores that were told.
    pub fn stores(&self) -> usize {
        self.lenders.len()
    }

    /// From here on nothing is served.
    fn give_up(&mut self, now: Instant) -> Result<(), Error> {
        for LeaseState { slot, term, .. } in self.leases.give_up()? {
            let lender = self.lenders.iter_mut().find(|lender| lender.lease.slot == slot);
            lender.into_iter().for_each(|lender| lender.lease.term = term);
        }
        for lender in &mut self.lenders {
            lender.is_done = false;
            if !lender.is_mute {
                lender.heard = now;
            }
        }
        self.before_ns = self.leases.now_ns() + ASKS_NOTHING_NS;
        self.stage = Stage::GivingBack;
        self.since = now;
        Ok(())
    }

    fn hear(&mut self, from: IpAddr, datagram: &[u8], now: Instant) {
        let Ok(packet) = Packet::decode(datagram) else { return };
        let header = &packet.header;
        let is_ours = header.op == Op::LeaseReturned && header.epoch.switch() == self.switch;
        if !is_ours || !packet.tag_is_valid(&self.secret) {
            return;
        }
        // What is heard of one stage says nothing of the next: it was asked with another date.
        if header.version != self.before_ns {
            return;
        }
        let of = |lender: &&mut Lender| {
            lender.lease.store == from.to_canonical() && lender.lease.term == header.client
        };
        if let Some(lender) = self.lenders.iter_mut().find(of) {
            lender.heard = now;
            lender.is_mute = false;
            lender.is_done = header.expiry_ms == 0 || self.stage == Stage::GivingBack;
        }
    }

    fn say(&mut self, now: Instant) {
        self.next = now + AGAIN;
        if self.stage == Stage::Announcing {
            // Programs renew it meanwhile, in another term if it had lapsed: a store takes no word
            // about an earlier one.
            for Lender { lease, .. } in &mut self.lenders {
                lease.term = self.leases.state(lease.slot).term;
            }
        }
        let serves_ms = match self.stage {
            Stage::Announcing => RETURNS_WITHIN.as_millis() as u32,
            _ => 0,
        };
        for lender in self.lenders.iter().filter(|lender| !lender.is_done) {
            let lease = ReturnedLease {
                store: SocketAddr::new(lender.lease.store, wire::PORT),
                slot: lender.lease.slot,
                term: lender.lease.term,
                before_ns: self.before_ns,
                serves_ms,
            };
            self.requests.give_back(&lease, self.switch, &self.secret);
        }
    }
}
