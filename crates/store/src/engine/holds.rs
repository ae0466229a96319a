//! Holds: a command of Redis or memcached, which the store does not carry out itself, has its keys
//! for itself while it is carried out, as a write has (rules 3 and 4).
//!
//! A hold takes its turn at each of its keys where writes take theirs: the copies are called back,
//! nothing is granted, and what is written of the key waits. It takes its keys one after the other
//! in the order of their hashes, so of two holds that have keys in common one goes first and
//! neither waits for the other for ever. When it has the last it is *ready*, and the command may be
//! carried out. It is let go when the command can no longer take place: its answer has come, or the
//! connection that it was sent on has been ended by Redis. Where neither can be had it lingers for
//! a lease, as a write does whose answer was lost. Then each key has a new version.
//!
//! One command may have a million keys. So an event takes, calls back and lets go so many of them
//! at most, and the next ticks the rest: what else has come is not kept waiting.
//!
//! A hold of everything (FLUSHALL) is ready when no other hold and no write goes on, nothing is
//! lent, and no copy is left of any key; what comes meanwhile is put off. So it does not wait for
//! ever, as for a lent key whose value the backend refuses: after a time it is refused, and nothing
//! was done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    context::Context,
    hold::{HoldEnd, HoldId, HoldRequest},
};
use crate::{coherence::Nanos, counters::HoldCounters, directory::KeyId};
use holder::mutants::{Mutant, mutant};

/// Keys that one event takes and lets go, of all holds, and that it calls back for each.
const KEYS_AT_ONCE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not begun: it waits for the store's start, or for a hold of everything.
    Queued,
    /// It waits for the key behind those that it has; or for everything to be at rest.
    Taking,
    /// Its command may be carried out.
    Ready,
    /// Nobody wants it any more: the key that it waits for it will let go at once.
    Given,
    /// Its command may still take place.
    Lingering,
}

struct Hold {
    /// What it is asked for, until it begins: whose keys these are may be another's by then.
    names: Vec<Vec<u8>>,
    /// In the order of their hashes.
    keys: Vec<(KeyId, Box<[u8]>)>,
    /// How many of them it has.
    taken: usize,
    /// It waits for its turn at the key behind those.
    waits: bool,
    /// Of how many of its keys the copies have been called back.
    recalled: usize,
    everything: bool,
    phase: Phase,
}

/// All of them.
#[derive(Default)]
pub(super) struct HoldRegistry {
    open: BTreeMap<HoldId, Hold>,
    /// Those that have not begun, in the order in which they came.
    queue: VecDeque<HoldId>,
    /// The hold of everything that has begun.
    everything: Option<HoldId>,
    /// When it is refused, if it is not ready before.
    refused_ns: Nanos,
    /// Those that were refused since the last time that was asked.
    refused: Vec<HoldId>,
    lingering: BTreeSet<(Nanos, HoldId)>,
    /// Those that go on with the next tick, whatever else they wait for.
    unfinished: BTreeSet<HoldId>,
    /// Keys of holds that are over, which are still to be let go.
    over: VecDeque<(HoldId, Vec<KeyId>)>,
    /// Keys that this event has taken or let go.
    steps: usize,
    /// Those that are ready since the last time that was asked.
    ready: Vec<HoldId>,
    pub counters: HoldCounters,
}

impl HoldRegistry {
    /// A hold is asked for. It begins with [`HoldRegistry::next_to_begin`].
    pub fn ask(&mut self, id: HoldId, wanted: HoldRequest) {
        self.counters.holds += 1;
        self.counters.holds_of_everything += u64::from(wanted.everything);
        let HoldRequest { names, everything } = wanted;
        let hold = Hold {
            names,
            keys: vec![],
            taken: 0,
            waits: false,
            // The first is taken at once.
            recalled: 1,
            everything,
            phase: Phase::Queued,
        };
        self.open.insert(id, hold);
        self.queue.push_back(id);
    }

    /// The next that may begin now, if there is one: it has.
    pub fn next_to_begin(&mut self, cx: &mut Context) -> Option<HoldId> {
        if self.everything.is_some() || !cx.takes_writes(cx.now_ns) {
            return None;
        }
        let id = self.queue.pop_front()?;
        let hold = self.open.get_mut(&id)?;
        hold.phase = Phase::Taking;
        let names = std::mem::take(&mut hold.names);
        if !hold.everything {
            hold.keys.extend(names.iter().flat_map(|name| keys_of(cx, name)));
            hold.keys.sort_unstable();
            hold.keys.dedup();
        }
        if hold.everything {
            self.everything = Some(id);
            // What does come back is back in half of that.
            self.refused_ns = cx.now_ns + 2 * cx.returns_within_ns();
            cx.all_held = true;
            // Before its command can be carried out: whoever reads in Redis sees what came of it.
            cx.all_change();
        }
        Some(id)
    }

    /// Whether a hold is one of everything.
    pub fn is_of_everything(&self, id: HoldId) -> bool {
        self.open.get(&id).is_some_and(|hold| hold.everything)
    }

    /// The next keys of a hold whose copies are to be called back, before it is their turn.
    pub fn later_keys(&mut self, id: HoldId) -> Vec<KeyId> {
        let taking = self.open.get_mut(&id).filter(|hold| hold.phase == Phase::Taking);
        let Some(hold) = taking else { return vec![] };
        let later = hold.keys.iter().skip(hold.recalled).take(KEYS_AT_ONCE);
        let later: Vec<_> = later.map(|(id, _)| *id).collect();
        hold.recalled += later.len();
        if hold.recalled < hold.keys.len() {
            self.unfinished.insert(id);
        }
        later
    }

    /// The key that a hold needs next, if it is to wait for one now. Where it has all it is ready.
    pub fn next_key(&mut self, id: HoldId) -> Option<(KeyId, Box<[u8]>)> {
        let is_asking = |hold: &&mut Hold| hold.phase == Phase::Taking && !hold.waits;
        let hold = self.open.get_mut(&id).filter(is_asking).filter(|hold| !hold.everything)?;
        let Some(key) = hold.keys.get(hold.taken).cloned() else {
            hold.phase = Phase::Ready;
            self.ready.push(id);
            return None;
        };
        if self.steps == KEYS_AT_ONCE {
            self.unfinished.insert(id);
            return None;
        }
        self.steps += 1;
        hold.waits = true;
        Some(key)
    }

    /// A hold has its turn at the key that it waited for.
    pub fn has_taken(&mut self, id: HoldId) {
        let Some(hold) = self.open.get_mut(&id) else { return };
        hold.taken += 1;
        hold.waits = false;
        if hold.phase == Phase::Given {
            self.forget(id);
        }
    }

    /// Another event begins.
    pub fn begin_event(&mut self) {
        self.steps = 0;
    }

    /// The holds that were to go on with this tick.
    pub fn take_unfinished(&mut self) -> BTreeSet<HoldId> {
        std::mem::take(&mut self.unfinished)
    }

    /// The next key that is to be let go with this event, and the hold that had it.
    pub fn next_to_let_go(&mut self) -> Option<(HoldId, KeyId)> {
        while let Some((hold, keys)) = self.over.front_mut()
            && self.steps < KEYS_AT_ONCE
        {
            if let Some(key) = keys.pop() {
                self.steps += 1;
                return Some((*hold, key));
            }
            self.over.pop_front();
        }
        None
    }

    /// A hold of everything is ready, if nothing else goes on any more. `lent`: how many keys are.
    pub fn settle_everything(&mut self, cx: &Context, lent: impl FnOnce() -> usize) {
        let Some(id) = self.taking_everything() else { return };
        let begun = self.open.values().filter(|hold| hold.phase != Phase::Queued).count();
        let no_copies = cx.directory.copies() == 0 && cx.directory.is_settled();
        let rests = begun == 1
            && cx.ledger.pending.all() == 0
            && (no_copies || mutant(Mutant::EverythingWithCopies))
            && lent() == 0;
        if let Some(hold) = self.open.get_mut(&id).filter(|_| rests) {
            hold.phase = Phase::Ready;
            self.ready.push(id);
        }
    }

    /// A hold is not needed any more.
    pub fn end(&mut self, cx: &mut Context, id: HoldId, end: HoldEnd) {
        let Some(hold) = self.open.get_mut(&id) else { return };
        match hold.phase {
            Phase::Queued => {
                self.queue.retain(|other| *other != id);
                self.open.remove(&id);
            }
            Phase::Taking if hold.waits => hold.phase = Phase::Given,
            Phase::Ready if end == HoldEnd::Unknown && !mutant(Mutant::HoldForgotten) => {
                self.counters.holds_unknown += 1;
                hold.phase = Phase::Lingering;
                self.lingering.insert((cx.now_ns + cx.leases.length_ns(), id));
            }
            Phase::Ready | Phase::Taking => self.let_go(cx, id),
            Phase::Given | Phase::Lingering => {}
        }
    }

    /// The hold of everything that has begun, if it is not ready.
    fn taking_everything(&self) -> Option<HoldId> {
        let is_taking = |id: &HoldId| self.open.get(id).is_some_and(|h| h.phase == Phase::Taking);
        self.everything.filter(is_taking)
    }

    /// Refuses the hold of everything that is late, and those behind it, which would wait for the
    /// same while everything waits for them.
    fn refuse_late(&mut self, cx: &mut Context) {
        let is_late = cx.now_ns >= self.refused_ns;
        let Some(id) = self.taking_everything().filter(|_| is_late) else { return };
        let is_refused = |at: &HoldId| self.open.get(at).is_some_and(|hold| hold.everything);
        let behind = self.queue.iter().copied().filter(is_refused);
        let refused: Vec<HoldId> = std::iter::once(id).chain(behind).collect();
        tracing::warn!(
            "{} commands that may change every key were refused: what they wait for, keys that are lent or others' commands, does not end",
            refused.len()
        );
        self.counters.holds_refused += refused.len() as u64;
        refused.iter().for_each(|id| self.end(cx, *id, HoldEnd::Over));
        self.refused.extend(refused);
    }

    /// Those that have lingered for long enough are over, and what is late is refused.
    pub fn tick(&mut self, cx: &mut Context) {
        self.refuse_late(cx);
        while let Some((at_ns, id)) = self.lingering.first().copied()
            && at_ns <= cx.now_ns
        {
            self.lingering.pop_first();
            self.let_go(cx, id);
        }
    }

    /// When [`HoldRegistry::tick`] or [`HoldRegistry::next_to_begin`] has something to do next.
    pub fn next_ns(&self, cx: &Context) -> Option<Nanos> {
        let lingers = self.lingering.first().map(|(at_ns, _)| *at_ns);
        let starts = (!self.queue.is_empty() && !cx.takes_writes(cx.now_ns))
            .then(|| cx.takes_writes_from_ns());
        let is_at_it = !self.unfinished.is_empty() || !self.over.is_empty();
        let refuses = self.taking_everything().map(|_| self.refused_ns);
        [lingers, starts, refuses, is_at_it.then_some(cx.now_ns)].into_iter().flatten().min()
    }

    /// Those that have become ready since the last time.
    pub fn take_ready(&mut self) -> Vec<HoldId> {
        std::mem::take(&mut self.ready)
    }

    /// Those that were refused since the last time.
    pub fn take_refused(&mut self) -> Vec<HoldId> {
        std::mem::take(&mut self.refused)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.over.is_empty()
    }

    /// A hold is over: the keys that it has are to have a new version; of one of everything all
    /// keys get it here.
    fn let_go(&mut self, cx: &mut Context, id: HoldId) {
        if self.everything == Some(id) {
            self.everything = None;
            cx.all_held = false;
            let version = cx.versions.next();
            cx.backend.forget_versions(version);
            cx.all_change();
        }
        self.forget(id);
    }

    fn forget(&mut self, id: HoldId) {
        let Some(hold) = self.open.remove(&id) else { return };
        let keys = hold.keys[..hold.taken].iter().rev();
        self.over.push_back((id, keys.map(|(id, _)| *id).collect()));
    }
}

/// The tenant and the key that a name in the backend is made of, if there is such a key.
fn parts_of(name: &[u8]) -> Option<(u32, &[u8])> {
    let (tenant, key) = wire::key_of_backend_name(name);
    (!key.is_empty() && key.len() <= wire::MAX_KEY).then_some((tenant, key))
}

/// The keys of a name in the backend, also of tenants that have gone; none if nobody can have a
/// copy of what has that name.
fn keys_of<'a>(cx: &'a Context, name: &'a [u8]) -> impl Iterator<Item = (KeyId, Box<[u8]>)> {
    let ids = |(tenant, key): (u32, &'a [u8])| {
        cx.tenants.ids_of(tenant, key).map(move |id| (id, key.into()))
    };
    parts_of(name).into_iter().flat_map(ids)
}

/// The key of a tenant that has this name in the backend, if the tenant is there.
pub(super) fn key_of(cx: &Context, name: &[u8]) -> Option<KeyId> {
    let (tenant, key) = parts_of(name)?;
    let known = cx.tenants.get(tenant)?;
    Some((tenant, known.secrets.hash.key_hash(tenant, key)))
}
