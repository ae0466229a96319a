//! Requests for keys that are lent, and keys that are to be.

use wire::{Header, Packet, Status};

use super::{GRACE_NS, Loans, hot_from, packets};
use crate::{
    backend::Key,
    coherence::{LifeVerdict, NamedLife, Verdict, Whereabouts, judge},
    directory::KeyId,
    engine::{
        context::{Context, Effect},
        holder_messages,
        pending_write::{WriteOutcome, absorbable},
        replies::{Answer, Origin},
    },
};
use holder::mutants::{Mutant, mutant};

/// What is to be done with a write, by the life of its key that it names.
pub(in crate::engine) enum LifeCheck {
    /// It is the store's: to be decided here, or with whoever kept it.
    Taken(LifeVerdict),
    /// It was decided before, and is to be answered so again, as one that named this life.
    Repeated(Verdict<WriteOutcome>, u16),
    /// It was answered or dropped.
    Over,
}

/// Whether a write was told to name this life.
fn is_moved_to(verdict: &Verdict<WriteOutcome>, life: u16) -> bool {
    match verdict {
        Verdict::Answered(outcome) => outcome.moved_to() == Some(life),
        _ => false,
    }
}

impl Loans {
    /// Whether a read may be answered from here. If its key is lent, it is dropped: who asks again
    /// finds the owner, or the key here. But for one whose value the backend does not take: there
    /// is no owner any more, and who asks hears what is wrong.
    pub fn may_read(&mut self, cx: &mut Context, origin: &Origin, key: Key<'_>) -> bool {
        let id = (key.tenant, key.hash);
        if self.proceeds(&id) != Whereabouts::Away || mutant(Mutant::ReadWhileLent) {
            return true;
        }
        self.counters.dropped_lent += 1;
        if origin.op == wire::Op::HolderFetch {
            holder_messages::refuse_grant(cx, origin, key.bytes);
            return false;
        }
        let of_store = wire::is_store(origin.epoch.switch());
        if of_store && origin.wants_grant {
            // Whoever holds copies has time: it is pushed one when the loan is over.
            cx.leave(Effect::GrantLater(id, origin.epoch));
            return false;
        }
        let by_owner = origin.op == wire::Op::FetchRequest
            && self.open.get(&id).is_some_and(|lent| {
                let terms = lent.loan.terms();
                [terms.owner, terms.keeper].contains(&origin.epoch.switch())
            });
        if self.open.get(&id).is_some_and(|lent| lent.loan.is_stuck()) {
            cx.refuse(origin, key.bytes, Status::BackendError);
        } else if !by_owner {
            self.wanted(cx, id);
        }
        false
    }

    /// Somebody wants a lent key here; unless that was on its way when it was lent, it is called
    /// back. Whether it is.
    pub(super) fn wanted(&mut self, cx: &mut Context, id: KeyId) -> bool {
        let lent = self.open.get(&id);
        let is_new = |lent_ns: u64| cx.now_ns < lent_ns + GRACE_NS;
        let on_its_way =
            lent.is_some_and(|lent| !lent.loan.is_ending() && lent.lent_ns.is_none_or(is_new));
        if !on_its_way {
            self.recall(cx, id);
        }
        !on_its_way
    }

    /// What is done with a write that names a life. Where it is refused, it is answered here.
    pub fn judge_life(
        &mut self,
        cx: &mut Context,
        origin: &Origin,
        key: Key<'_>,
        header: &Header,
    ) -> LifeCheck {
        let id = (key.tenant, key.hash);
        let own = cx.replies.life;
        let known = self.lives.get(&id).map(|known| known.life);
        let loan = self.open.get(&id).and_then(|lent| {
            let since_ns = lent.loan.away_since_ns()?;
            Some((lent.loan.terms().life, since_ns))
        });
        let named = NamedLife {
            life: header.life,
            past_owners: header.flags.has(wire::Flags::ALL),
            absorbable: absorbable(header),
        };
        let says = judge(named, own, known.as_ref(), loan, cx.now_ns);
        let (life, age_ns) = match says {
            LifeVerdict::Decide | LifeVerdict::Ask => return LifeCheck::Taken(says),
            LifeVerdict::StoreHas => {
                self.refuse_life(cx, origin, key.bytes, None, cx.now_ns - cx.started_ns);
                return LifeCheck::Over;
            }
            LifeVerdict::KeyHas(life, age_ns) => (life, age_ns),
        };
        // What this store has decided of it counts, whatever the key's life is by now.
        let look = cx.ledger.clients.look(origin.request_id());
        if let Some(verdict @ (Verdict::Pending | Verdict::Answered(_))) = look
            && !is_moved_to(&verdict, header.life)
        {
            return LifeCheck::Repeated(verdict, header.life);
        }
        let before = known.map_or(own, |known| known.life);
        let is_before = loan.is_some() && header.life == before;
        if is_before && named.absorbable {
            return match self.move_write(cx, origin, key, life) {
                Some(verdict) => LifeCheck::Repeated(verdict, origin.key_life),
                None => LifeCheck::Over,
            };
        }
        self.refuse_life(cx, origin, key.bytes, Some(life), age_ns);
        LifeCheck::Over
    }

    /// Refuses a write that names another life than the key's, or the store's.
    pub(super) fn refuse_life(
        &mut self,
        cx: &mut Context,
        origin: &Origin,
        key: &[u8],
        key_life: Option<u16>,
        age_ns: u64,
    ) {
        self.counters.refused_other_life += 1;
        let answer = Answer {
            expiry_ms: u32::try_from(age_ns / 1_000_000).unwrap_or(u32::MAX),
            key_life,
            ..Answer::status(Status::OtherLife)
        };
        cx.reply(origin, key, &answer);
    }

    /// A write has been taken: its key may be worth lending.
    pub fn count_write(&mut self, cx: &mut Context, key: Key<'_>, packet: &Packet<'_>) {
        let id = (key.tenant, key.hash);
        let header = &packet.header;
        if cx.tenants.write_back_ns(key.tenant) == 0
            || !absorbable(header)
            || packet.value.len() > packets::longest(key.bytes)
            || self.open.contains_key(&id)
        {
            return;
        }
        let hot_from = hot_from(cx, key.tenant);
        if !self.hot.write(id, hot_from, cx.now_ns) {
            return;
        }
        let (owner, keeper) = (header.epoch.switch(), header.node);
        if self.may_lend(cx, id, owner, keeper) {
            self.lend(cx, key, owner, keeper);
        }
    }

    fn may_lend(&mut self, cx: &mut Context, id: KeyId, owner: u16, keeper: u16) -> bool {
        let nothing = self.none_because(&cx.config, cx.backend.watch()).is_some();
        if nothing || self.stopping || cx.all_held || !cx.is_home_of(id.0, id.1) {
            self.counters.loans_refused_unsafe += 1;
            return false;
        }
        // Stores hold copies, and keep nothing for others.
        let is_switch = |node| (1..=wire::SWITCH_MOST).contains(&node);
        if !is_switch(owner) || !is_switch(keeper) || owner == keeper {
            self.counters.loans_refused_path += 1;
            return false;
        }
        let serves = |switch| cx.leases.term(switch, cx.now_ns).is_some();
        if !serves(owner) || !serves(keeper) {
            self.counters.loans_refused_switch += 1;
            return false;
        }
        let is_lent = |id: &KeyId| self.open.contains_key(id);
        if !self.shares.has_room(id.0) || !self.lives.has_room(&id, cx.now_ns, is_lent) {
            self.counters.loans_refused_full += 1;
            return false;
        }
        true
    }
}
