//! Keys that are lent to switches: which ones, and what becomes of the packets about them. The loan itself is decided in
//! [`crate::coherence::Loan`], and what a write's life means in [`crate::coherence::judge`].

mod asked;
mod ends;
mod hot;
mod packets;
mod steps;
mod wanted;

use std::{cmp::Reverse, collections::BinaryHeap};

use bytes::Bytes;
use wire::maps::HashMap;

use super::{Engine, lease::Home};
use crate::{
    backend::{Key, Ticket},
    coherence::{Act, End, Ended, KeyLife, Loan, Nanos, Proceeds, Role, Terms},
    directory::KeyId,
    journal::{Journal, Switch},
    mutants::{Mutant, mutant},
    net::Outbox,
    shares::Shares,
};
use asked::Parked;
pub(super) use asked::absorbable;
use hot::{Hot, Pace};

/// Keys that may be lent at once.
const LOANS: usize = 1024;
/// Keys with a life of their own that are remembered; and for how long at least.
const LIVES: usize = 65_536;
const LIFE_KEPT_NS: Nanos = 86_400_000_000_000;
/// What reaches the store of a key within this time after it was lent was on its way already.
const GRACE_NS: Nanos = 5_000_000;

/// A key that is lent, or going to be.
struct Lent {
    loan: Loan<Bytes>,
    key: Box<[u8]>,
    owner: Home,
    keeper: Home,
    /// When the owner has begun, as far as is known.
    lent_ns: Option<Nanos>,
    pace: Pace,
    /// The key's copies are on their way out; then its value is read.
    clears: bool,
    reading: Option<Ticket>,
    timer_ns: Nanos,
}

impl Lent {
    fn new(loan: Loan<Bytes>, key: Box<[u8]>, owner: Home, keeper: Home) -> Lent {
        Lent {
            loan,
            key,
            owner,
            keeper,
            lent_ns: None,
            pace: Pace::default(),
            clears: false,
            reading: None,
            timer_ns: 0,
        }
    }

    /// The key as the backend knows it; its id is the loan's.
    fn named(&self, id: KeyId) -> Key<'_> {
        Key {
            tenant: id.0,
            hash: id.1,
            bytes: &self.key,
        }
    }

    /// The switch of that role, and where it is.
    fn party(&self, role: Role) -> (u16, Home) {
        let terms = self.loan.terms();
        match role {
            Role::Owner => (terms.owner, self.owner),
            Role::Keeper => (terms.keeper, self.keeper),
        }
    }
}

/// What is known of a key that was lent.
struct Known {
    life: KeyLife,
    /// Of the last loan.
    base: u64,
    keeper: (u16, Home),
}

/// All loans of a store.
pub(super) struct Loans {
    open: HashMap<KeyId, Lent>,
    lives: HashMap<KeyId, Known>,
    hot: Hot,
    parked: HashMap<(crate::clients::ClientId, u64), Parked>,
    next_ask_ns: Nanos,
    shares: Shares,
    /// Of the keys with a life of their own, and of the writes that are parked.
    lives_shares: Shares,
    parked_shares: Shares,
    timers: BinaryHeap<Reverse<(Nanos, KeyId)>>,
    pub journal: Option<Box<dyn Journal>>,
    /// Without a journal nothing may be lent that a backend in another process has.
    pub needs_journal: bool,
    /// The store ends: nothing is lent any more.
    pub stopping: bool,
    /// What lives are drawn from.
    seed: u64,
}

impl Loans {
    /// `seed` is another in each life of the store.
    pub fn new(tenants: usize, needs_journal: bool, seed: u64) -> Loans {
        Loans {
            open: HashMap::default(),
            lives: HashMap::default(),
            hot: Hot::new(tenants),
            parked: HashMap::default(),
            next_ask_ns: 0,
            shares: Shares::new(LOANS, tenants),
            lives_shares: Shares::new(LIVES, tenants),
            parked_shares: Shares::new(asked::PARKED, tenants),
            timers: BinaryHeap::new(),
            journal: None,
            needs_journal,
            stopping: false,
            seed,
        }
    }

    /// A number that follows from the seed and is another each time.
    fn draw(&mut self) -> u16 {
        self.seed = self.seed.wrapping_add(1);
        (wire::mixed(self.seed) >> 48) as u16
    }

    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
        self.lives_shares.share_among(tenants);
        self.parked_shares.share_among(tenants);
        self.hot.share_among(tenants);
    }

    /// When there is something to do.
    pub fn next_ns(&self) -> Option<Nanos> {
        let timer = self.timers.peek().map(|Reverse((at_ns, _))| *at_ns);
        let asks = (!self.parked.is_empty()).then_some(self.next_ask_ns);
        [timer, asks].into_iter().flatten().min()
    }

    /// What may be done with a key, if it is lent or going to be.
    pub fn proceeds(&self, id: &KeyId) -> Proceeds {
        if self.open.is_empty() {
            return Proceeds::Here;
        }
        let lent = self.open.get(id);
        lent.map_or(Proceeds::Here, |lent| lent.loan.proceeds())
    }

    /// Loans whose owner answers, and loans that are being called back.
    pub fn count(&self) -> (u64, u64) {
        let count = |is: fn(&Loan<Bytes>) -> bool| {
            self.open.values().filter(|lent| is(&lent.loan)).count() as u64
        };
        (count(Loan::is_lent), count(Loan::is_ending))
    }
}

fn switch_of(number: u16, home: &Home) -> Switch {
    Switch {
        number,
        slot: home.slot,
        address: home.peer.address,
        local: home.peer.local,
    }
}

impl Engine {
    /// Gives the store its journal of loans. What a former life lent is called back at once.
    pub fn keep_journal(&mut self, mut journal: Box<dyn Journal>, now_ns: u64, out: &mut Outbox) {
        let found = if mutant(Mutant::JournalForgotten) {
            vec![]
        } else {
            journal.found()
        };
        self.loans.journal = Some(journal);
        let over_ns =
            self.started_ns + crate::coherence::counted_ns(self.config.longest_lease_ns());
        for entry in found {
            self.counters.loans_found += 1;
            let home = |switch: &Switch| Home {
                peer: crate::net::Peer {
                    address: switch.address,
                    local: switch.local,
                },
                slot: switch.slot,
            };
            let id = (entry.tenant, entry.key_hash);
            let loan = Loan::found(entry.terms(), over_ns, now_ns);
            let (owner, keeper) = (home(&entry.owner), home(&entry.keeper));
            let lent = Lent::new(loan, entry.key.into(), owner, keeper);
            self.open_loan(id, lent, now_ns, out);
        }
    }

    /// Lends a key to X, with Y as its keeper.
    fn lend(&mut self, key: Key<'_>, owner: u16, keeper: u16, now_ns: u64, out: &mut Outbox) {
        let id = (key.tenant, key.hash);
        let Some(term) = self.leases.term(owner, now_ns) else {
            return;
        };
        let homes = (self.leases.address(owner), self.leases.address(keeper));
        let (Some(&x), Some(&y)) = homes else {
            return;
        };
        let life = self.new_life(&id);
        self.version += 1;
        let base = self.version;
        let terms = Terms {
            life,
            base,
            owner,
            keeper,
            bound_ns: self.write_back_ns(id.0),
        };
        let lent = Lent::new(Loan::new(terms, term, now_ns), key.bytes.into(), x, y);
        self.open_loan(id, lent, now_ns, out);
    }

    fn open_loan(&mut self, id: KeyId, lent: Lent, now_ns: u64, out: &mut Outbox) {
        self.loans.shares.take(id.0, 1);
        self.loans.open.insert(id, lent);
        self.loan_poll(id, now_ns, out);
    }

    /// A life that the key does not have, and has not had of late.
    fn new_life(&mut self, id: &KeyId) -> u16 {
        let known = self.loans.lives.get(id);
        let lent = self.loans.open.get(id).map(|lent| lent.loan.terms().life);
        let had = known.map(|known| [known.life.life, known.life.before, known.life.ended.life]);
        loop {
            let life = self.loans.draw();
            let is_had = had.is_some_and(|had| had.contains(&life)) || lent == Some(life);
            if life > wire::LIFE_UNKNOWN && life != self.replies.life && !is_had {
                return life;
            }
        }
    }

    fn write_back_ns(&self, tenant: u32) -> Nanos {
        let known = self.tenants.get(tenant);
        u64::from(known.map_or(0, |known| known.write_back_ms)) * 1_000_000
    }

    /// Writes within a second by which a tenant's key is hot.
    fn hot_from(&self, tenant: u32) -> u64 {
        let by_bound = || hot::hot_from(self.write_back_ns(tenant));
        self.config.lend_from.map_or_else(by_bound, u64::from)
    }

    /// Moves a loan on as far as it goes.
    fn loan_poll(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let mut acts = vec![];
        loop {
            let Some(lent) = self.loans.open.get_mut(&id) else {
                return;
            };
            if lent.loan.is_lent() && lent.lent_ns.is_none() {
                lent.lent_ns = Some(now_ns);
                lent.pace = Pace::new(lent.loan.terms().base, now_ns);
                self.counters.loans += 1;
                self.move_queued(id, now_ns, out);
                self.recall_if_unlendable(id, now_ns);
                continue;
            }
            let next_ns = lent.loan.poll(&mut self.leases, now_ns, &mut acts);
            if acts.is_empty() {
                if next_ns != Nanos::MAX && (lent.timer_ns <= now_ns || next_ns < lent.timer_ns) {
                    lent.timer_ns = next_ns;
                    self.loans.timers.push(Reverse((next_ns, id)));
                }
                return;
            }
            for act in std::mem::take(&mut acts) {
                self.perform(id, act, now_ns, out);
            }
        }
    }

    fn perform(&mut self, id: KeyId, act: Act<Bytes>, now_ns: u64, out: &mut Outbox) {
        match act {
            Act::Prepare(role) => self.send_lend(id, role, 0, None, out),
            Act::Begin(role, epoch, value) => self.send_lend(id, role, epoch, value, out),
            Act::Take { role, seal, newest } => self.send_take(id, role, None, seal, newest, out),
            Act::Clean(role, life) => self.send_take(id, role, Some(life), true, 0, out),
            Act::Record => self.record(id, true, now_ns),
            Act::Erase => self.record(id, false, now_ns),
            Act::Clear => self.clear(id, now_ns, out),
            Act::Put(version, value) => self.put_back(id, version, &value, now_ns),
            Act::Over(end) => self.loan_over(id, end, now_ns, out),
        }
    }

    /// A loan is over: its key is the store's again.
    fn loan_over(&mut self, id: KeyId, end: End, now_ns: u64, out: &mut Outbox) {
        let life = self.new_life(&id);
        let Some(lent) = self.loans.open.remove(&id) else {
            return;
        };
        self.loans.shares.give_back(id.0, 1);
        let lived_ns = lent.lent_ns.map_or(0, |lent_ns| now_ns - lent_ns);
        self.loans.hot.ended(id, lived_ns, now_ns);
        match end {
            End::Cancelled => self.counters.loans_cancelled += 1,
            End::Returned {
                tells,
                lost,
                lapsed,
            } => {
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
                let before = self
                    .loans
                    .lives
                    .get(&id)
                    .map_or(self.replies.life, |k| k.life.life);
                let known = Known {
                    life: KeyLife {
                        life,
                        since_ns: now_ns,
                        before,
                        ended: Ended {
                            life: terms.life,
                            tells,
                        },
                    },
                    base: terms.base,
                    keeper: (terms.keeper, lent.keeper),
                };
                if self.loans.lives.insert(id, known).is_none() {
                    self.loans.lives_shares.take(id.0, 1);
                }
            }
        }
        if let Some(at) = self.directory.find(&id) {
            self.directory.update(at, |e| e.state.release());
            self.drive(at, now_ns, out);
        }
        self.ask_parked(id, now_ns, out);
    }

    /// What is due of loans.
    pub(super) fn tick_loans(&mut self, now_ns: u64, out: &mut Outbox) {
        while let Some(&Reverse((at_ns, id))) = self.loans.timers.peek()
            && at_ns <= now_ns
        {
            self.loans.timers.pop();
            if let Some(lent) = self.loans.open.get_mut(&id)
                && lent.timer_ns == at_ns
            {
                lent.timer_ns = 0;
                if self.loans.stopping {
                    lent.loan.recall(now_ns);
                }
                self.loan_poll(id, now_ns, out);
            }
        }
        self.tick_parked(now_ns, out);
    }

    /// Calls a key back, if it is lent.
    pub(super) fn recall_loan(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        if let Some(lent) = self.loans.open.get_mut(&id) {
            lent.loan.recall(now_ns);
            self.loan_poll(id, now_ns, out);
        }
    }

    /// Makes room for one more key with a life of its own: those of which nobody knows any more go. A key that is lent may not find the
    /// room any more when it comes back; so many are more than there is room for at most as may be lent.
    fn has_life_room(&mut self, id: &KeyId, now_ns: u64) -> bool {
        let Loans {
            lives,
            open,
            lives_shares,
            ..
        } = &mut self.loans;
        if lives.contains_key(id) {
            return true;
        }
        if !lives_shares.has_room(id.0) {
            lives.retain(|id, known| {
                let is_old = now_ns >= known.life.since_ns + LIFE_KEPT_NS;
                let stays = open.contains_key(id) || !is_old;
                lives_shares.give_back(id.0, usize::from(!stays));
                stays
            });
        }
        lives_shares.has_room(id.0)
    }
}

/// The other one.
fn other(role: Role) -> Role {
    match role {
        Role::Owner => Role::Keeper,
        Role::Keeper => Role::Owner,
    }
}
