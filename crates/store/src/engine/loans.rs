//! Keys that are lent to switches: which ones, and what becomes of the packets about them. The loan
//! itself is decided in [`crate::coherence::Loan`], and what a write's life means in
//! [`crate::coherence::judge`].

mod endings;
mod hot_keys;
mod known_lives;
mod packets;
mod parked;
mod recalls;
mod requests;
mod steps;

use std::{cmp::Reverse, collections::BinaryHeap};

use bytes::Bytes;
use wire::maps::HashMap;

use super::{
    context::{Context, Effect, named},
    lease_holder::LeaseHolder,
};
use crate::{
    backend::{Key, Ticket},
    clients::RequestId,
    coherence::{Act, End, EndedLoan, KeyLife, Loan, Nanos, Role, Terms, Whereabouts, counted_ns},
    counters::LoanCounters,
    directory::KeyId,
    journal::{Journal, Switch},
    shares::Shares,
};
use endings::Endings;
use holder::mutants::{Mutant, mutant};
use hot_keys::{HotKeys, WritePace};
use known_lives::{KnownLife, KnownLives};
use parked::ParkedWrite;
pub(super) use requests::LifeCheck;

/// Keys that may be lent at once.
const LOANS: usize = 1024;
/// What reaches the store of a key within this time after it was lent was on its way already.
const GRACE_NS: Nanos = 5_000_000;

/// A key that is lent, or going to be.
struct LentKey {
    loan: Loan<Bytes>,
    key: Box<[u8]>,
    owner: LeaseHolder,
    keeper: LeaseHolder,
    /// When the owner has begun, as far as is known.
    lent_ns: Option<Nanos>,
    pace: WritePace,
    /// The key's copies are on their way out; then its value is read.
    clears: bool,
    reading: Option<Ticket>,
    timer_ns: Nanos,
}

impl LentKey {
    fn new(loan: Loan<Bytes>, key: Box<[u8]>, owner: LeaseHolder, keeper: LeaseHolder) -> LentKey {
        LentKey {
            loan,
            key,
            owner,
            keeper,
            lent_ns: None,
            pace: WritePace::default(),
            clears: false,
            reading: None,
            timer_ns: 0,
        }
    }

    /// The key as the backend knows it; its id is the loan's.
    fn named(&self, id: KeyId) -> Key<'_> {
        named(id, &self.key)
    }

    /// The switch of that role, and where it is.
    fn party(&self, role: Role) -> (u16, LeaseHolder) {
        let terms = self.loan.terms();
        match role {
            Role::Owner => (terms.owner, self.owner),
            Role::Keeper => (terms.keeper, self.keeper),
        }
    }
}

/// All loans of a store.
pub(super) struct Loans {
    open: HashMap<KeyId, LentKey>,
    lives: KnownLives,
    hot: HotKeys,
    parked: HashMap<RequestId, ParkedWrite>,
    endings: Endings,
    next_ask_ns: Nanos,
    shares: Shares,
    /// Of the writes that are parked.
    parked_shares: Shares,
    timers: BinaryHeap<Reverse<(Nanos, KeyId)>>,
    pub journal: Option<Box<dyn Journal>>,
    /// Without a journal nothing may be lent that a backend in another process has.
    pub needs_journal: bool,
    /// The store ends: nothing is lent any more.
    pub stopping: bool,
    /// What lives are drawn from.
    seed: u64,
    pub counters: LoanCounters,
}

impl Loans {
    /// `seed` is another in each life of the store.
    pub fn new(tenants: usize, needs_journal: bool, seed: u64) -> Loans {
        Loans {
            open: HashMap::default(),
            lives: KnownLives::new(tenants),
            hot: HotKeys::new(tenants),
            parked: HashMap::default(),
            endings: Endings::default(),
            next_ask_ns: 0,
            shares: Shares::new(LOANS, tenants),
            parked_shares: Shares::new(parked::PARKED, tenants),
            timers: BinaryHeap::new(),
            journal: None,
            needs_journal,
            stopping: false,
            seed,
            counters: LoanCounters::default(),
        }
    }

    /// A number that follows from the seed and is another each time.
    fn draw(&mut self) -> u16 {
        self.seed = self.seed.wrapping_add(1);
        (wire::mixed(self.seed) >> 48) as u16
    }

    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
        self.lives.share_among(tenants);
        self.parked_shares.share_among(tenants);
        self.hot.share_among(tenants);
    }

    /// When there is something to do.
    pub fn next_ns(&self) -> Option<Nanos> {
        let timer = self.timers.peek().map(|Reverse((at_ns, _))| *at_ns);
        let asks = (!self.parked.is_empty()).then_some(self.next_ask_ns);
        [timer, asks, self.endings.next_ns()].into_iter().flatten().min()
    }

    /// Whether a key is lent, or going to be, or on its way back.
    pub fn is_open(&self, id: &KeyId) -> bool {
        self.open.contains_key(id)
    }

    /// What may be done with a key, if it is lent or going to be.
    pub fn proceeds(&self, id: &KeyId) -> Whereabouts {
        if self.open.is_empty() {
            return Whereabouts::Here;
        }
        let lent = self.open.get(id);
        lent.map_or(Whereabouts::Here, |lent| lent.loan.proceeds())
    }

    /// Loans whose owner answers, and loans that are being called back.
    pub fn count(&self) -> (u64, u64) {
        let count = |is: fn(&Loan<Bytes>) -> bool| {
            self.open.values().filter(|lent| is(&lent.loan)).count() as u64
        };
        (count(Loan::is_lent), count(Loan::is_ending))
    }
}

fn switch_of(number: u16, home: &LeaseHolder) -> Switch {
    Switch { number, slot: home.slot, address: home.peer.address, local: home.peer.local }
}

impl Loans {
    /// Gives the store its journal of loans. What a former life lent is called back at once.
    pub fn keep_journal(&mut self, cx: &mut Context, mut journal: Box<dyn Journal>) {
        let found = if mutant(Mutant::JournalForgotten) { vec![] } else { journal.found() };
        self.journal = Some(journal);
        let over_ns = cx.started_ns + counted_ns(cx.config.longest_lease_ns());
        for entry in found {
            self.counters.loans_found += 1;
            let home = |switch: &Switch| LeaseHolder {
                peer: crate::net::Peer { address: switch.address, local: switch.local },
                slot: switch.slot,
            };
            let id = (entry.tenant, entry.key_hash);
            let loan = Loan::found(entry.terms(), over_ns, cx.now_ns);
            let (owner, keeper) = (home(&entry.owner), home(&entry.keeper));
            let lent = LentKey::new(loan, entry.key.into(), owner, keeper);
            self.open_loan(cx, id, lent);
        }
    }

    /// Lends a key to X, with Y as its keeper.
    fn lend(&mut self, cx: &mut Context, key: Key<'_>, owner: u16, keeper: u16) {
        let id = (key.tenant, key.hash);
        let Some(term) = cx.leases.term(owner, cx.now_ns) else { return };
        if [owner, keeper].iter().any(|switch| cx.leases.is_leaving(*switch, cx.now_ns)) {
            return;
        }
        let homes = (cx.leases.address(owner), cx.leases.address(keeper));
        let (Some(&x), Some(&y)) = homes else { return };
        let life = self.new_life(cx, &id);
        let base = cx.versions.next();
        let terms = Terms { life, base, owner, keeper, bound_ns: cx.tenants.write_back_ns(id.0) };
        let lent = LentKey::new(Loan::new(terms, term, cx.now_ns), key.bytes.into(), x, y);
        self.open_loan(cx, id, lent);
    }

    fn open_loan(&mut self, cx: &mut Context, id: KeyId, lent: LentKey) {
        self.shares.take(id.0, 1);
        self.open.insert(id, lent);
        self.poll(cx, id);
    }

    /// A life that the key does not have, and has not had of late.
    fn new_life(&mut self, cx: &Context, id: &KeyId) -> u16 {
        let known = self.lives.get(id);
        let lent = self.open.get(id).map(|lent| lent.loan.terms().life);
        let had = known.map(|known| [known.life.life, known.life.before, known.life.ended.life]);
        loop {
            let life = self.draw();
            let is_had = had.is_some_and(|had| had.contains(&life)) || lent == Some(life);
            if life > wire::LIFE_UNKNOWN && life != cx.replies.life && !is_had {
                return life;
            }
        }
    }

    /// Moves a loan on as far as it goes.
    fn poll(&mut self, cx: &mut Context, id: KeyId) {
        let mut acts = vec![];
        loop {
            let Some(lent) = self.open.get_mut(&id) else { return };
            if lent.loan.is_lent() && lent.lent_ns.is_none() {
                lent.lent_ns = Some(cx.now_ns);
                lent.pace = WritePace::new(lent.loan.terms().base, cx.now_ns);
                self.counters.loans += 1;
                cx.leave(Effect::Begun(id));
                self.recall_if_unlendable(cx, id);
                continue;
            }
            let next_ns = lent.loan.poll(&mut cx.leases, cx.now_ns, &mut acts);
            if acts.is_empty() {
                if next_ns != Nanos::MAX && (lent.timer_ns <= cx.now_ns || next_ns < lent.timer_ns)
                {
                    lent.timer_ns = next_ns;
                    self.timers.push(Reverse((next_ns, id)));
                }
                return;
            }
            for act in std::mem::take(&mut acts) {
                self.perform(cx, id, act);
            }
        }
    }

    fn perform(&mut self, cx: &mut Context, id: KeyId, act: Act<Bytes>) {
        match act {
            Act::Prepare(role) => self.send_lend(cx, id, role, 0, None),
            Act::Begin(role, epoch, value) => self.send_lend(cx, id, role, epoch, value),
            Act::Take { role, seal, newest } => self.send_take(cx, id, role, seal, newest),
            Act::Record => self.record(cx, id, true),
            Act::Erase => {
                if self.open.get(&id).is_some_and(|lent| lent.loan.is_withdrawn()) {
                    cx.leave(Effect::Release(id));
                }
                self.record(cx, id, false);
            }
            Act::Clear => self.clear(cx, id),
            Act::Put(version, value) => self.put_back(cx, id, version, &value),
            Act::Over(end) => self.over(cx, id, end),
        }
    }

    /// A loan is over: its key is the store's again.
    fn over(&mut self, cx: &mut Context, id: KeyId, end: End) {
        let life = self.new_life(cx, &id);
        let Some(lent) = self.open.remove(&id) else { return };
        self.shares.give_back(id.0, 1);
        let lived_ns = lent.lent_ns.map_or(0, |lent_ns| cx.now_ns - lent_ns);
        self.hot.ended(id, lived_ns, cx.now_ns);
        match end {
            End::Cancelled => {
                self.counters.loans_cancelled += 1;
                // A keeper that has begun would keep its record for a day.
                if lent.loan.may_be_kept() {
                    let life = lent.loan.terms().life;
                    self.endings.begin_at(id, &lent, Role::Keeper, life, cx.now_ns);
                    self.tick_endings(cx);
                }
            }
            End::Returned { tells, lost, lapsed } => {
                self.counters.loans_returned += 1;
                self.counters.loans_lapsed += u64::from(lapsed);
                let terms = lent.loan.terms();
                if lost {
                    self.counters.loans_lost += 1;
                    tracing::warn!(
                        "tenant {}: switches {} and {} both lost a key that was lent to them: its writes of the last {} ms may be lost",
                        id.0,
                        terms.owner,
                        terms.keeper,
                        terms.bound_ns / 1_000_000
                    );
                }
                let known = self.lives.get(&id);
                let before = known.map_or(cx.replies.life, |known| known.life.life);
                let known = KnownLife {
                    life: KeyLife {
                        life,
                        since_ns: cx.now_ns,
                        before,
                        ended: EndedLoan { life: terms.life, tells },
                    },
                    base: terms.base,
                    keeper: (terms.keeper, lent.keeper),
                };
                self.lives.insert(id, known);
                self.endings.begin(id, &lent, cx.now_ns);
                self.tick_endings(cx);
            }
        }
        cx.leave(Effect::Release(id));
        self.ask_parked(cx, id);
    }

    /// What is due of loans.
    pub fn tick(&mut self, cx: &mut Context) {
        while let Some(&Reverse((at_ns, id))) = self.timers.peek()
            && at_ns <= cx.now_ns
        {
            self.timers.pop();
            if let Some(lent) = self.open.get_mut(&id)
                && lent.timer_ns == at_ns
            {
                lent.timer_ns = 0;
                if self.stopping {
                    lent.loan.recall(cx.now_ns);
                }
                self.poll(cx, id);
            }
        }
        self.tick_parked(cx);
        self.tick_endings(cx);
    }

    /// Calls a key back, if it is lent.
    pub fn recall(&mut self, cx: &mut Context, id: KeyId) {
        if let Some(lent) = self.open.get_mut(&id) {
            lent.loan.recall(cx.now_ns);
            self.poll(cx, id);
        }
    }
}

/// Writes within a second by which a tenant's key is hot.
fn hot_from(cx: &Context, tenant: u32) -> u64 {
    let by_bound = || hot_keys::hot_from(cx.tenants.write_back_ns(tenant));
    cx.config.lend_from.map_or_else(by_bound, u64::from)
}

/// The other one.
fn other(role: Role) -> Role {
    match role {
        Role::Owner => Role::Keeper,
        Role::Keeper => Role::Owner,
    }
}
