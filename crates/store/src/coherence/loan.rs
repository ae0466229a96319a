//! The loan of one key: a switch X, the owner, answers its reads and writes, and a switch Y, the
//! keeper, has each write before X answers it.
//!
//! Why in this order: Y is prepared and begun before X, so that nothing is absorbed that nobody
//! keeps. X and Y number their records (epochs) when they are prepared, and are begun under that
//! number only, so that a message that comes late makes no record live. Copies are gone before X is
//! begun: they would be served beside its value. The end is sealing both, or X's lease having
//! lapsed: what X answered last is then at Y.

use super::{Leases, Nanos, SwitchId, inquiry::Inquiry};
use holder::mutants::{Mutant, mutant};

/// Versions of one loan: its base and so many less one above it.
pub const VERSIONS: u64 = 1 << 20;
/// A switch that is asked to prepare has so long to do it.
const PREPARE_NS: Nanos = 100_000_000;
/// A switch that is told to begin has so long; then the loan is called back.
const BEGIN_NS: Nanos = 500_000_000;
/// A keeper is waited for so long at least once the owner has given its value back.
const PATIENCE_NS: Nanos = 100_000_000;
/// A journal that failed is asked again after this.
const JOURNAL_NS: Nanos = 1_000_000_000;

/// Which of the two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// X: answers.
    Owner,
    /// Y: keeps.
    Keeper,
}

/// When the owner's lease is over, beside by lapsing in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OwnerLease {
    /// It was lent in this term.
    In(u64),
    /// By a former life of the store: it is over at this time.
    Until(Nanos),
}

/// What a loan is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The life that writes to the key name while it is lent, L.
    pub life: u16,
    /// The owner gives its values versions above this one, [`VERSIONS`] less one at most. No value
    /// has this one. Of a loan that is not begun yet, or was found in a journal: no later
    /// than that.
    pub base: u64,
    /// X.
    pub owner: SwitchId,
    /// Y.
    pub keeper: SwitchId,
    /// The store has each answered write so much later at most.
    pub bound_ns: Nanos,
}

/// What a switch says of its record when it is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAnswer<V> {
    /// It has a record of this loan.
    pub found: bool,
    /// It will answer and keep nothing under it any more.
    pub sealed: bool,
    /// Version of the newest that it has.
    pub version: u64,
    /// And that, unless the store said that it has it.
    pub value: Option<V>,
}

/// What the caller must do. What is asked of a switch may get lost: it is asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act<V> {
    /// Ask a switch for a record; answered by [`Loan::prepared`].
    Prepare(Role),
    /// Remember the loan, beyond a crash; answered by [`Loan::journaled`].
    Record,
    /// Hold the key, have its copies called back, read it; answered by [`Loan::cleared`].
    Clear,
    /// Tell a switch to begin under this epoch; answered by [`Loan::begun`]. The owner gets
    /// the value.
    Begin(Role, u64, Option<(u64, V)>),
    /// Ask for the newest beyond this version, and maybe seal the record; answered by
    /// [`Loan::taken`].
    Take {
        /// Whom.
        role: Role,
        /// Seal it.
        seal: bool,
        /// The newest that is here.
        newest: u64,
    },
    /// Write this to the backend, under this version; answered by [`Loan::put`].
    Put(u64, V),
    /// Forget the loan for good; answered by [`Loan::journaled`].
    Erase,
    /// It is over. Nothing follows.
    Over(End),
}

/// How a loan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The owner was never told to begin.
    Cancelled,
    /// It was called back.
    Returned {
        /// The keeper is sealed and there: it can be asked which writes it kept.
        tells: bool,
        /// Neither had its record: answered writes may be lost.
        lost: bool,
        /// The owner did not answer: its lease had to lapse.
        lapsed: bool,
    },
}

/// What is done to its key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whereabouts {
    /// The loan is being prepared: the key is the store's.
    Here,
    /// Its writes wait: the owner may not have begun yet.
    Held,
    /// Whatever is here may be old.
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Preparing(Role),
    Recording,
    /// The journal may have it, or not: it failed. Nobody was told to begin.
    Withdrawing,
    Clearing,
    Beginning(Role),
    Lent,
    Recalling,
    Flushing,
    Closing,
    Over,
}

/// One of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Party {
    switch: SwitchId,
    epoch: u64,
    /// What its answer to the recall was: whether it had the record.
    answer: Option<bool>,
}

/// The newest that the backend has, and what is on its way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BackendState {
    version: u64,
    putting: Option<u64>,
    /// The last write failed, and may still take place until then, so none is tried before; 0: it
    /// did not fail.
    not_before_ns: Nanos,
}

/// A loan. Values are `V`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loan<V> {
    terms: Terms,
    lent: OwnerLease,
    owner: Party,
    keeper: Party,
    phase: Phase,
    asking: Inquiry,
    /// Of the phase, where it is not asking: the caller has been told.
    told: bool,
    /// It was called back while the journal had not answered yet.
    unwanted: bool,
    /// The owner may have begun, from then on.
    away_since_ns: Option<Nanos>,
    newest: Option<(u64, V)>,
    backed: BackendState,
    /// When the keeper is asked next, and whether it is being asked.
    pull_ns: Nanos,
    pulling: bool,
    /// When the owner was done, in a recall.
    owner_done_ns: Option<Nanos>,
    end: End,
}

impl<V: Clone> Loan<V> {
    /// A loan to be made, to switches of which the owner holds a lease of this term.
    pub fn new(terms: Terms, term: u64, now_ns: Nanos) -> Loan<V> {
        Loan::make(terms, OwnerLease::In(term), Phase::Preparing(Role::Keeper), now_ns)
    }

    /// A loan that a former life of the store made, which is called back now. Whatever leases it
    /// lent are over at `over_ns`.
    pub fn found(terms: Terms, over_ns: Nanos, now_ns: Nanos) -> Loan<V> {
        let mut loan = Loan::make(terms, OwnerLease::Until(over_ns), Phase::Recalling, now_ns);
        loan.away_since_ns = Some(now_ns);
        loan
    }

    fn make(terms: Terms, lent: OwnerLease, phase: Phase, now_ns: Nanos) -> Loan<V> {
        let party = |switch| Party { switch, ..Party::default() };
        Loan {
            lent,
            owner: party(terms.owner),
            keeper: party(terms.keeper),
            phase,
            asking: Inquiry::new(now_ns, now_ns),
            told: false,
            unwanted: false,
            away_since_ns: None,
            newest: None,
            backed: BackendState { version: terms.base, putting: None, not_before_ns: 0 },
            pull_ns: 0,
            pulling: false,
            owner_done_ns: None,
            end: End::Cancelled,
            terms,
        }
    }

    /// What it is made of.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What may be done with the key.
    pub fn proceeds(&self) -> Whereabouts {
        match self.phase {
            Phase::Preparing(_) | Phase::Recording | Phase::Withdrawing => Whereabouts::Here,
            // The owner was not told to begin, and a keeper that was has no value: nothing can come
            // over what is written before the journal forgets.
            Phase::Closing if self.end == End::Cancelled => Whereabouts::Here,
            // The backend has what was written, and nothing is written until the journal forgets.
            Phase::Closing | Phase::Over => Whereabouts::Held,
            _ if self.away_since_ns.is_some() => Whereabouts::Away,
            _ => Whereabouts::Held,
        }
    }

    /// Since when the owner may have begun.
    pub fn away_since_ns(&self) -> Option<Nanos> {
        self.away_since_ns
    }

    /// Whether the owner answers, as far as is known.
    pub fn is_lent(&self) -> bool {
        self.phase == Phase::Lent
    }

    /// Whether it is being called back, or was.
    pub fn is_ending(&self) -> bool {
        use Phase::{Closing, Flushing, Over, Recalling};
        matches!(self.phase, Recalling | Flushing | Closing | Over)
    }

    /// Whether it is not going to be made, and only the journal is to forget it: nothing of it can
    /// come over what is done to its key, however long that takes.
    pub fn is_withdrawn(&self) -> bool {
        match self.phase {
            Phase::Withdrawing => true,
            Phase::Recording => self.unwanted,
            Phase::Closing => self.end == End::Cancelled,
            _ => false,
        }
    }

    /// Whether all that there was has come back, and the backend has not taken it: that may last.
    pub fn is_stuck(&self) -> bool {
        self.phase == Phase::Flushing && self.backed.not_before_ns > 0
    }

    /// Whether the keeper may have been told to begin: then there was a value to lend.
    pub fn may_be_kept(&self) -> bool {
        self.newest.is_some()
    }

    fn enter(&mut self, phase: Phase, now_ns: Nanos) {
        self.phase = phase;
        self.asking = Inquiry::new(now_ns, now_ns);
        self.told = false;
    }

    fn party(&mut self, role: Role) -> &mut Party {
        match role {
            Role::Owner => &mut self.owner,
            Role::Keeper => &mut self.keeper,
        }
    }

    // -----------------------------------------------------------------------------------------------------------
    // What others say. Call `poll` after each.

    /// A switch has answered [`Act::Prepare`]: its epoch, or that it will not.
    pub fn prepared(&mut self, role: Role, epoch: Option<u64>, now_ns: Nanos) {
        if self.phase != Phase::Preparing(role) {
            return;
        }
        let Some(epoch) = epoch else { return self.enter(Phase::Over, now_ns) };
        self.party(role).epoch = epoch;
        let next = match role {
            Role::Keeper => Phase::Preparing(Role::Owner),
            Role::Owner => Phase::Recording,
        };
        self.enter(next, now_ns);
    }

    /// The journal has answered [`Act::Record`] or [`Act::Erase`], whichever was asked last.
    pub fn journaled(&mut self, done: bool, now_ns: Nanos) {
        match (self.phase, done) {
            (Phase::Recording, true) if self.unwanted => self.enter(Phase::Closing, now_ns),
            (Phase::Recording, true) => self.enter(Phase::Clearing, now_ns),
            // A part of it may be on the disk, and a next life would take that for a loan.
            (Phase::Recording, false) => {
                self.enter(Phase::Withdrawing, now_ns);
                self.asking.next_ns = now_ns + JOURNAL_NS;
            }
            (Phase::Withdrawing | Phase::Closing, true) => self.enter(Phase::Over, now_ns),
            (Phase::Withdrawing | Phase::Closing, false) => {
                self.told = false;
                self.asking.next_ns = now_ns + JOURNAL_NS;
            }
            _ => {}
        }
    }

    /// The answer to [`Act::Clear`]: nobody holds a copy, and this is the key's value with its
    /// version; `None`: it cannot be lent. `base`: versions from there on are the owner's. They are
    /// above the value's, or the owner could absorb nothing.
    pub fn cleared(&mut self, value: Option<(u64, V)>, base: u64, now_ns: Nanos) {
        if self.phase != Phase::Clearing {
            return;
        }
        self.terms.base = base;
        self.backed.version = base;
        let next = match value {
            Some(_) => Phase::Beginning(Role::Keeper),
            None => Phase::Closing,
        };
        self.newest = value;
        self.enter(next, now_ns);
    }

    /// A switch has answered [`Act::Begin`].
    pub fn begun(&mut self, role: Role, done: bool, now_ns: Nanos) {
        if self.phase != Phase::Beginning(role) {
            return;
        }
        if !done {
            return self.recall(now_ns);
        }
        let next = match role {
            Role::Keeper => Phase::Beginning(Role::Owner),
            Role::Owner => Phase::Lent,
        };
        self.pull_ns = now_ns + self.terms.bound_ns / 2;
        self.enter(next, now_ns);
    }

    /// A switch has answered [`Act::Take`].
    pub fn taken(&mut self, role: Role, taken: RecordAnswer<V>, now_ns: Nanos) {
        if self.away_since_ns.is_none() {
            return;
        }
        if let (true, Some(value)) = (taken.found, taken.value) {
            self.offered(taken.version, value);
        }
        match self.phase {
            Phase::Lent if !taken.found || taken.sealed => self.recall(now_ns),
            Phase::Lent if role == Role::Keeper && self.pulling => {
                self.pulling = false;
                self.pull_ns = self.asking.since_ns + self.terms.bound_ns / 2;
            }
            Phase::Recalling if !taken.found || taken.sealed => {
                let before = self.party(role).answer;
                self.party(role).answer = Some(taken.found || before == Some(true));
            }
            _ => {}
        }
    }

    /// A value that one of the two has.
    fn offered(&mut self, version: u64, value: V) {
        let base = self.terms.base;
        let is_found = matches!(self.lent, OwnerLease::Until(_));
        let of_loan = version > base && (is_found || version - base < VERSIONS);
        let is_kept = |newest: &(u64, V)| newest.0 > self.terms.base;
        let newest = self.newest.as_ref();
        let newer = if mutant(Mutant::OldestFlushed) {
            !newest.is_some_and(is_kept)
        } else {
            newest.is_none_or(|(newest, _)| version > *newest)
        };
        if of_loan && newer {
            self.newest = Some((version, value));
        }
    }

    /// The backend has answered [`Act::Put`]; one that failed may still take place until
    /// `doubt_until_ns`.
    pub fn put(&mut self, done: bool, doubt_until_ns: Nanos) {
        if let Some(version) = self.backed.putting.take() {
            if done {
                self.backed.version = self.backed.version.max(version);
                self.backed.not_before_ns = 0;
            } else {
                self.backed.not_before_ns = doubt_until_ns;
            }
        }
    }

    /// The key is wanted here.
    pub fn recall(&mut self, now_ns: Nanos) {
        match self.phase {
            Phase::Preparing(_) => self.enter(Phase::Over, now_ns),
            // The owner was not told to begin: nothing can have been absorbed.
            Phase::Clearing | Phase::Beginning(Role::Keeper) => self.enter(Phase::Closing, now_ns),
            Phase::Beginning(Role::Owner) if self.away_since_ns.is_none() => {
                self.enter(Phase::Closing, now_ns);
            }
            Phase::Beginning(Role::Owner) | Phase::Lent => self.enter(Phase::Recalling, now_ns),
            // The journal's answer must come first; then it forgets the loan at once.
            Phase::Recording => self.unwanted = !mutant(Mutant::RecallUnrecorded),
            Phase::Withdrawing
            | Phase::Recalling
            | Phase::Flushing
            | Phase::Closing
            | Phase::Over => {}
        }
    }

    // -----------------------------------------------------------------------------------------------------------
    // What is due.

    /// Moves the loan on as far as it goes at `now_ns`; what is to be done is put into `out`.
    /// Returns when it is to be polled again.
    pub fn poll<A>(
        &mut self,
        leases: &mut Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Act<V>>,
    ) -> Nanos {
        loop {
            let before = self.phase;
            let next_ns = self.step(leases, now_ns, out);
            if self.phase == before {
                return next_ns;
            }
        }
    }

    fn step<A>(&mut self, leases: &mut Leases<A>, now_ns: Nanos, out: &mut Vec<Act<V>>) -> Nanos {
        match self.phase {
            Phase::Preparing(role) => self.prepare(role, leases, now_ns, out),
            Phase::Recording => self.tell(Act::Record, out),
            Phase::Clearing => self.tell(Act::Clear, out),
            Phase::Beginning(role) => self.begin(role, leases, now_ns, out),
            Phase::Lent => self.pull(leases, now_ns, out),
            Phase::Recalling => self.take_back(leases, now_ns, out),
            Phase::Flushing => self.flush(now_ns, out),
            Phase::Withdrawing | Phase::Closing if self.asking.next_ns > now_ns => {
                self.asking.next_ns
            }
            Phase::Withdrawing | Phase::Closing => self.tell(Act::Erase, out),
            Phase::Over => self.tell(Act::Over(self.end), out),
        }
    }

    /// Tells the caller once.
    fn tell(&mut self, act: Act<V>, out: &mut Vec<Act<V>>) -> Nanos {
        if !std::mem::replace(&mut self.told, true) {
            out.push(act);
        }
        Nanos::MAX
    }

    fn prepare<A>(
        &mut self,
        role: Role,
        leases: &Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Act<V>>,
    ) -> Nanos {
        let until_ns = self.asking.since_ns + PREPARE_NS;
        if now_ns >= until_ns || !self.owner_serves(leases, now_ns) {
            self.enter(Phase::Over, now_ns);
            return now_ns;
        }
        if self.asking.is_due(now_ns) {
            out.push(Act::Prepare(role));
        }
        self.asking.next_ns.min(until_ns)
    }

    fn begin<A>(
        &mut self,
        role: Role,
        leases: &Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Act<V>>,
    ) -> Nanos {
        let until_ns = self.asking.since_ns + BEGIN_NS;
        if now_ns >= until_ns || !self.owner_serves(leases, now_ns) {
            self.recall(now_ns);
            return now_ns;
        }
        if self.asking.is_due(now_ns) {
            if role == Role::Owner {
                self.away_since_ns.get_or_insert(now_ns);
            }
            let value = self.newest.clone().filter(|_| role == Role::Owner);
            out.push(Act::Begin(role, self.party(role).epoch, value));
        }
        self.asking.next_ns.min(until_ns)
    }

    fn owner_serves<A>(&self, leases: &Leases<A>, now_ns: Nanos) -> bool {
        match self.lent {
            OwnerLease::In(term) => leases.holds(self.owner.switch, term, now_ns),
            OwnerLease::Until(until_ns) => now_ns < until_ns,
        }
    }

    fn owner_until_ns<A>(&self, leases: &Leases<A>) -> Nanos {
        match self.lent {
            OwnerLease::In(_) => leases.until_ns(self.owner.switch).unwrap_or(0),
            OwnerLease::Until(until_ns) => until_ns,
        }
    }

    fn newest_version(&self) -> u64 {
        self.newest.as_ref().map_or(0, |(version, _)| *version)
    }

    /// While it is lent: asks the keeper for the newest when half of the bound is over. It has the
    /// other half to answer.
    fn pull<A>(&mut self, leases: &Leases<A>, now_ns: Nanos, out: &mut Vec<Act<V>>) -> Nanos {
        let unheard = self.pulling && now_ns >= self.asking.since_ns + self.terms.bound_ns / 2;
        if unheard || !self.owner_serves(leases, now_ns) {
            self.recall(now_ns);
            return now_ns;
        }
        if !self.pulling && now_ns >= self.pull_ns {
            self.pulling = true;
            self.asking = Inquiry::new(now_ns, now_ns);
        }
        if self.pulling && self.asking.is_due(now_ns) {
            out.push(Act::Take { role: Role::Keeper, seal: false, newest: self.newest_version() });
        }
        let pull_ns = if self.pulling {
            let until_ns = self.asking.since_ns + self.terms.bound_ns / 2;
            self.asking.next_ns.min(until_ns)
        } else {
            self.pull_ns
        };
        let put_ns = self.write_newest(now_ns, out);
        pull_ns.min(put_ns).min(self.owner_until_ns(leases))
    }

    /// Hands the backend the newest, if it has not got it. When to try again.
    fn write_newest(&mut self, now_ns: Nanos, out: &mut Vec<Act<V>>) -> Nanos {
        let backed = &mut self.backed;
        let newest = self.newest.as_ref();
        let Some((version, value)) = newest.filter(|(version, _)| *version > backed.version) else {
            return Nanos::MAX;
        };
        if backed.putting.is_some() {
            return Nanos::MAX;
        }
        if now_ns < backed.not_before_ns {
            return backed.not_before_ns;
        }
        backed.putting = Some(*version);
        out.push(Act::Put(*version, value.clone()));
        Nanos::MAX
    }

    /// The recall: seals both, as long as it takes.
    fn take_back<A>(
        &mut self,
        leases: &mut Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Act<V>>,
    ) -> Nanos {
        let serves = self.owner_serves(leases, now_ns);
        let owner_done =
            self.owner.answer.is_some() || !serves || mutant(Mutant::OwnerNotWaitedFor);
        if owner_done {
            self.owner_done_ns.get_or_insert(now_ns);
        } else if let OwnerLease::In(term) = self.lent
            && now_ns.saturating_sub(self.asking.since_ns) > leases.length_ns() / 2
        {
            // Rule 6: one that does not answer is not renewed, or it would hold the key for ever.
            leases.stop_renewing(self.owner.switch, term);
        }
        let until_ns = self.waits_until_ns(leases.length_ns());
        if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            let found = |party: &Party| party.answer == Some(true);
            self.end = End::Returned {
                tells: found(&self.keeper),
                lost: !found(&self.owner) && !found(&self.keeper),
                lapsed: self.owner.answer.is_none(),
            };
            self.enter(Phase::Flushing, now_ns);
            return now_ns;
        }
        if self.asking.is_due(now_ns) {
            for role in [Role::Owner, Role::Keeper] {
                if self.party(role).answer.is_none() {
                    out.push(Act::Take { role, seal: true, newest: self.newest_version() });
                }
            }
        }
        let lease_ns = if serves { self.owner_until_ns(leases) } else { Nanos::MAX };
        let next_ns = self.asking.next_ns.min(until_ns.unwrap_or(Nanos::MAX));
        next_ns.min(lease_ns)
    }

    /// Until when more answers are waited for; `None`: until the owner is done.
    fn waits_until_ns(&self, lease_ns: Nanos) -> Option<Nanos> {
        let done_ns = self.owner_done_ns?;
        Some(match (self.owner.answer, self.keeper.answer) {
            // Whatever was answered is at the keeper: it was there before.
            (_, Some(true)) | (Some(true), Some(false)) => done_ns,
            (Some(true), None) => done_ns + self.terms.bound_ns.max(PATIENCE_NS),
            (Some(false), Some(false)) => done_ns,
            _ => done_ns + lease_ns,
        })
    }

    /// Both are sealed: the backend gets what it has not got.
    fn flush(&mut self, now_ns: Nanos, out: &mut Vec<Act<V>>) -> Nanos {
        let next_ns = self.write_newest(now_ns, out);
        if self.backed.putting.is_none() && next_ns == Nanos::MAX {
            self.enter(Phase::Closing, now_ns);
        }
        next_ns
    }
}

#[cfg(test)]
mod tests;
