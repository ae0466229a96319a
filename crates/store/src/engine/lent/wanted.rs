//! Requests for keys that are lent, and keys that are to be.

use wire::{Header, Packet, Status};

use super::{GRACE_NS, absorbable};
use crate::{
    backend::Key,
    coherence::{Named, Proceeds, Says, Verdict, judge},
    directory::KeyId,
    engine::{
        Engine,
        keys::Outcome,
        reply::{Answer, Origin},
    },
    mutants::{Mutant, mutant},
    net::Outbox,
};

/// Whether a write was told to name this life.
fn is_moved_to(verdict: &Verdict<Outcome>, life: u16) -> bool {
    match verdict {
        Verdict::Answered(outcome) => outcome.moved_to() == Some(life),
        _ => false,
    }
}

impl Engine {
    /// Whether a read may be answered from here. If its key is lent, it is dropped: who asks again finds the owner, or the key here.
    pub(in crate::engine) fn may_read(
        &mut self,
        origin: &Origin,
        key: Key<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let id = (key.tenant, key.hash);
        if self.loans.proceeds(&id) != Proceeds::Away || mutant(Mutant::ReadWhileLent) {
            return true;
        }
        self.counters.dropped_lent += 1;
        let of_store = origin.epoch.switch() & wire::NODE_STORE != 0;
        if of_store && origin.wants_grant {
            // Whoever holds copies has time: it is pushed one when the loan is over.
            if let Some(at) = self.directory.find(&id) {
                self.grant_later(at, origin.epoch, now_ns);
            }
            return false;
        }
        let by_owner = origin.op == wire::Op::FetchRequest
            && self.loans.open.get(&id).is_some_and(|lent| {
                let terms = lent.loan.terms();
                [terms.owner, terms.keeper].contains(&origin.epoch.switch())
            });
        if !by_owner {
            self.wanted(id, now_ns, out);
        }
        false
    }

    /// Somebody wants a lent key here; unless that was on its way when it was lent, it is called back. Whether it is.
    pub(super) fn wanted(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) -> bool {
        let lent = self.loans.open.get(&id);
        let is_new = |lent_ns: u64| now_ns < lent_ns + GRACE_NS;
        let on_its_way =
            lent.is_some_and(|lent| !lent.loan.is_ending() && lent.lent_ns.is_none_or(is_new));
        if !on_its_way {
            self.recall_loan(id, now_ns, out);
        }
        !on_its_way
    }

    /// What is done with a write that names a life. Where it is refused, it is answered here.
    pub(in crate::engine) fn judge_life(
        &mut self,
        origin: &Origin,
        key: Key<'_>,
        header: &Header,
        now_ns: u64,
        out: &mut Outbox,
    ) -> Option<Says> {
        let id = (key.tenant, key.hash);
        let own = self.replies.life;
        let known = self.loans.lives.get(&id).map(|known| known.life);
        let loan = self.loans.open.get(&id).and_then(|lent| {
            let since_ns = lent.loan.away_since_ns()?;
            Some((lent.loan.terms().life, since_ns))
        });
        let named = Named {
            life: header.life,
            past_owners: header.flags.has(wire::Flags::ALL),
            absorbable: absorbable(header),
        };
        let says = judge(named, own, known.as_ref(), loan, now_ns);
        let (life, age_ns) = match says {
            Says::Decide | Says::Ask => return Some(says),
            Says::StoreHas => {
                self.refuse_life(
                    origin,
                    key.bytes,
                    None,
                    now_ns - self.started_ns,
                    now_ns,
                    out,
                );
                return None;
            }
            Says::KeyHas(life, age_ns) => (life, age_ns),
        };
        // What this store has decided of it counts, whatever the key's life is by now.
        let look = self.clients.look(origin.client_id(), origin.request);
        if let Some(verdict @ (Verdict::Pending | Verdict::Answered(_))) = look
            && !is_moved_to(&verdict, header.life)
        {
            let key_life = header.life;
            let origin = &Origin {
                key_life,
                ..*origin
            };
            self.repeated(origin, key, &[], verdict, now_ns, out);
            return None;
        }
        let before = known.map_or(own, |known| known.life);
        let is_before = loan.is_some() && header.life == before;
        if is_before && named.absorbable {
            self.move_write(origin, key, life, now_ns, out);
            return None;
        }
        self.refuse_life(origin, key.bytes, Some(life), age_ns, now_ns, out);
        None
    }

    /// Refuses a write that names another life than the key's, or the store's.
    pub(super) fn refuse_life(
        &mut self,
        origin: &Origin,
        key: &[u8],
        key_life: Option<u16>,
        age_ns: u64,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        self.counters.refused_other_life += 1;
        let answer = Answer {
            expiry_ms: u32::try_from(age_ns / 1_000_000).unwrap_or(u32::MAX),
            key_life,
            ..Answer::status(Status::OtherLife)
        };
        self.replies.send(origin, key, &answer, now_ns, out);
    }

    /// A write has been taken: its key may be worth lending.
    pub(in crate::engine) fn count_write(
        &mut self,
        key: Key<'_>,
        packet: &Packet<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let id = (key.tenant, key.hash);
        let header = &packet.header;
        if self.write_back_ns(key.tenant) == 0
            || !absorbable(header)
            || packet.value.len() > super::packets::longest(key.bytes)
            || self.loans.open.contains_key(&id)
        {
            return;
        }
        let hot_from = self.hot_from(key.tenant);
        if !self.loans.hot.write(id, hot_from, now_ns) {
            return;
        }
        let (owner, keeper) = (header.epoch.switch(), header.node);
        if self.may_lend(id, owner, keeper, now_ns) {
            self.lend(key, owner, keeper, now_ns, out);
        }
    }

    fn may_lend(&mut self, id: KeyId, owner: u16, keeper: u16, now_ns: u64) -> bool {
        if self.lends_nothing().is_some() || self.loans.stopping || !self.is_lendable(id.0, id.1) {
            self.counters.loans_refused_unsafe += 1;
            return false;
        }
        // Stores hold copies, and keep nothing for others.
        let is_switch = |node| (1..=wire::SWITCH_MOST).contains(&node);
        if !is_switch(owner) || !is_switch(keeper) || owner == keeper {
            self.counters.loans_refused_path += 1;
            return false;
        }
        let serves = |switch| self.leases.term(switch, now_ns).is_some();
        if !serves(owner) || !serves(keeper) {
            self.counters.loans_refused_switch += 1;
            return false;
        }
        if !self.loans.shares.has_room(id.0) || !self.has_life_room(&id, now_ns) {
            self.counters.loans_refused_full += 1;
            return false;
        }
        true
    }
}
