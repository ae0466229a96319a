//! Rules 3 to 5 for one key: who may hold a copy, one write at a time, and what may be granted.

use std::{collections::VecDeque, ops::Range};

use wire::Epoch;

use super::{
    Copy, Invalidate, Leases, Nanos, SwitchId, copies::Copies, untold::UntoldStores, waits::Waits,
};
use holder::mutants::{Mutant, mutant};

/// A write as the rules see it. Its contents `W` are the caller's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write<W> {
    /// (X, e): the write passed X, and X took epoch e. [`Epoch::NONE`] if it passed no switch. X
    /// takes the epoch whether or not it had an entry, so this proves that any copy X was granted
    /// below e is invalid.
    pub epoch: Epoch,
    /// A switch has sent it to the stores that hold copies, too: their acknowledgements are on
    /// their way.
    pub told_stores: bool,
    /// What to write.
    pub body: W,
}

/// What the store remembers of one key. A key without copies and writes needs no state:
/// [`KeyState::default`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyState<W> {
    copies: Copies,
    current: Option<Current<W>>,
    queue: VecDeque<Write<W>>,
    /// A write failed in the backend and may still take place until then; 0: none, or that is
    /// [settled](KeyState::settle).
    doubt_until_ns: Nanos,
    /// The key is lent, or about to be: no write is begun with, nothing is granted, and its copies
    /// are called back.
    held: bool,
    untold: UntoldStores,
}

/// The one thing that goes on for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Current<W> {
    task: Task<W>,
    waits: Waits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task<W> {
    /// Waits for copies to go before it may be applied.
    Write(Write<W>),
    /// Every copy is gone; the backend has the write.
    Applying(Write<W>),
    /// The copies are called back to make room in the directory; nothing is written.
    Recall,
}

/// What became of a write that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission<W> {
    /// It is the key's current write.
    Started,
    /// Another write to the key goes first.
    Queued,
    /// Too many are queued already; here it is again.
    Refused(W),
}

/// What the caller must do next for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Hand [`KeyState::applying`] to the backend, then call [`KeyState::applied`].
    Apply,
    /// The backend has the current write: nothing, until it answers.
    Applying,
    /// Poll again at this time, or when an acknowledgement comes.
    Wait(Nanos),
    /// Nothing goes on.
    Idle,
    /// The key is held, no copy of it is left and no write under way.
    Held,
}

/// Why a grant was refused. The request is answered all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoGrant {
    /// A write is pending: its value is not the newest yet, the old one will not be for long.
    WritePending,
    /// The switch holds no lease of ours.
    NoLease,
    /// The directory holds as many copies as it may.
    DirectoryFull,
}

impl<W> Default for KeyState<W> {
    fn default() -> KeyState<W> {
        KeyState {
            copies: Copies::default(),
            current: None,
            queue: VecDeque::new(),
            doubt_until_ns: 0,
            held: false,
            untold: UntoldStores::default(),
        }
    }
}

impl<W> KeyState<W> {
    /// The switches that may hold a copy, in the order of their numbers.
    pub fn copies(&self) -> &[Copy] {
        self.copies.all()
    }

    /// The copy that a switch may hold.
    pub fn copy_of(&self, switch: SwitchId) -> Option<&Copy> {
        self.copies.of(switch)
    }

    /// How many copies there are at switches of these numbers.
    pub fn copies_among(&self, numbers: Range<SwitchId>) -> usize {
        self.copies.among(numbers)
    }

    /// Whether a write or a recall goes on.
    pub fn is_busy(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty() || self.held
    }

    /// The key is going to be lent: what is under way ends, its copies are called back, and writes
    /// wait behind until [`KeyState::release`]. Call [`KeyState::poll`] next.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// The loan is over. Call [`KeyState::poll`] next.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// The writes that wait behind.
    pub fn queued(&self) -> impl Iterator<Item = &Write<W>> {
        self.queue.iter()
    }

    /// Takes them out: they are somebody else's to carry out.
    pub fn take_queued(&mut self) -> VecDeque<Write<W>> {
        std::mem::take(&mut self.queue)
    }

    /// Whether the key is held.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Writes that were taken and are not over.
    pub fn writes(&self) -> usize {
        let current = match &self.current {
            Some(current) => !matches!(current.task, Task::Recall),
            None => false,
        };
        self.queue.len() + usize::from(current)
    }

    /// The key's tenant is gone: what was not begun with is given up; how many writes that were.
    /// What the backend has may still take place, and copies may be served, whoever has the key
    /// then, so they go before whatever comes; and so does what waits and `stays`, which is asked
    /// of all. A key that is lent stays held: its owner may still answer, and its value comes back.
    /// Call [`KeyState::recall`] and [`KeyState::poll`] next.
    pub fn abandon(&mut self, mut stays: impl FnMut(&mut W) -> bool) -> usize {
        let before = self.writes();
        if mutant(Mutant::ForgottenWithTenant) {
            self.doubt_until_ns = 0;
            self.copies.clear();
        }
        self.untold = UntoldStores::default();
        self.queue.retain_mut(|write| stays(&mut write.body));
        if let Some(current) = &mut self.current {
            let (stays, is_applying) = match &mut current.task {
                Task::Write(write) => (stays(&mut write.body), false),
                Task::Applying(write) => (stays(&mut write.body), true),
                Task::Recall => (true, false),
            };
            if is_applying && mutant(Mutant::ForgottenWithTenant) {
                self.current = None;
            } else if !is_applying && !stays {
                current.task = Task::Recall;
            }
        }
        before - self.writes()
    }

    /// Whether this is the state of a key that nobody has asked for: then it need not be kept.
    pub fn is_forgettable(&self) -> bool {
        self.copies.is_empty() && self.is_settled()
    }

    /// Rule 3: takes a write. One at a time: if another is under way, it queues behind, unless
    /// `queue_limit` do already. Call [`KeyState::poll`] next.
    pub fn submit(&mut self, write: Write<W>, queue_limit: usize) -> Submission<W> {
        self.passed(write.epoch);
        if !self.is_busy() {
            self.queue.push_back(write);
            return Submission::Started;
        }
        if self.queue.len() >= queue_limit {
            return Submission::Refused(write.body);
        }
        self.queue.push_back(write);
        Submission::Queued
    }

    /// Calls every copy back, to make room in the directory or because another has changed the key.
    /// False: something goes on already.
    pub fn recall(&mut self, now_ns: Nanos) -> bool {
        if self.is_busy() {
            return false;
        }
        self.begin(Task::Recall, now_ns);
        true
    }

    // -----------------------------------------------------------------------------------------------------------
    // Rule 4: a write is applied only when no copy of the old value can be served any more.

    /// Rule 4: (X, e) proves that X has taken epoch e for this key. If e > granted(X), whatever X
    /// was granted is invalid for certain: X serves an entry only at the epoch it was granted for,
    /// and epochs only rise. It ends the wait for X. Equal or lower numbers prove nothing: the
    /// grant may have reached X after them. Returns whether there was such a copy.
    pub fn prove_invalid(&mut self, proof: Epoch) -> bool {
        self.end(proof.switch(), |copy| proof.number() > copy.granted)
    }

    /// Forgets a switch's copy, and the wait for it, if either is such a one. Returns whether there
    /// was such a copy.
    fn end(&mut self, switch: SwitchId, is_over: impl Fn(&Copy) -> bool) -> bool {
        if let Some(current) = &mut self.current {
            current.waits.end(switch, &is_over);
        }
        self.copies.end(switch, is_over)
    }

    /// Rule 4: a write passed X with (X, e).
    fn passed(&mut self, proof: Epoch) {
        if mutant(Mutant::EpochNotCompared) {
            self.trust(proof.switch());
        }
        self.prove_invalid(proof);
    }

    /// Rule 4: a part of a write passed X with (X, e). The write itself comes when it is whole;
    /// that X took e is proof as soon as it is known. Returns whether there was such a copy.
    pub fn part_passed(&mut self, proof: Epoch) -> bool {
        if mutant(Mutant::PartNotCompared) {
            return self.trust(proof.switch());
        }
        self.prove_invalid(proof)
    }

    /// Rule 4: X acknowledged an INVALIDATE for `echoed`. Returns whether that ends the wait for
    /// a copy.
    pub fn acknowledged(&mut self, ack: Epoch, echoed: u64) -> bool {
        if mutant(Mutant::AckNotCompared) {
            return self.trust(ack.switch());
        }
        self.prove_invalid(ack) || self.disprove_grant(ack, echoed)
    }

    /// Takes a switch's copy for invalid, as some mutants do.
    fn trust(&mut self, switch: SwitchId) -> bool {
        self.prove_invalid(Epoch::new(switch, Epoch::MAX_NUMBER))
    }

    /// Rule 4, against forgery: X acknowledged an INVALIDATE for exactly `echoed`, yet with a
    /// number that is not higher. Numbers only rise (rule 1), so X had never taken that epoch:
    /// whoever asked for the grant made it up. X has invalidated its entry all the same, and can
    /// install nothing for an epoch it has not taken. Without this, one made-up number would hold
    /// up every write to the key for a lease. Returns whether there was such a copy.
    pub(super) fn disprove_grant(&mut self, ack: Epoch, echoed: u64) -> bool {
        self.end(ack.switch(), |copy| copy.granted == echoed && ack.number() <= echoed)
    }

    /// Whether what goes on waits for copies of others still: until they are heard of, or a time
    /// comes that [`KeyState::poll`] has given, nothing is to be done for the key.
    pub fn waits_still(&self) -> bool {
        self.current.as_ref().is_some_and(|current| !current.waits.is_empty())
    }

    /// Moves the key on as far as it goes at `now_ns`: begins the next write, gives up copies whose
    /// lease has run out, sends and repeats INVALIDATEs into `out`. Returns what to do next.
    pub fn poll<A>(
        &mut self,
        leases: &mut Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Invalidate>,
    ) -> Step {
        loop {
            // What may still take place would do so over whatever came after it.
            if self.current.is_none() && now_ns < self.doubt_until_ns {
                return Step::Wait(self.doubt_until_ns);
            }
            if self.current.is_none() && self.is_withheld() {
                self.drop_lapsed(leases, now_ns);
                if self.copies.is_empty() || mutant(Mutant::LentWithCopies) {
                    return Step::Held;
                }
                self.begin(Task::Recall, now_ns);
            }
            if self.current.is_none() {
                match self.queue.pop_front() {
                    Some(write) => {
                        // Proof may have become weaker or stronger since it was queued:
                        // compare again.
                        self.passed(write.epoch);
                        self.begin(Task::Write(write), now_ns);
                    }
                    None => return Step::Idle,
                }
            }
            self.drop_lapsed(leases, now_ns);
            let current = self.current.as_mut().expect("set above");
            current.waits.time_out(now_ns);
            if !current.waits.is_empty() {
                if let Task::Write(write) = &current.task {
                    current.waits.note_untold(write.epoch, &mut self.untold, now_ns);
                }
                let next_ns = current.waits.repeat(leases, now_ns, out);
                // Of a recall nothing is applied: it would only begin again.
                let is_write = matches!(current.task, Task::Write(_));
                if !(is_write && mutant(Mutant::AppliedBeforeAcknowledged)) {
                    return Step::Wait(next_ns);
                }
                current.waits.clear();
            }
            match self.current.take().expect("set above").task {
                Task::Recall => {}
                Task::Write(write) => {
                    self.current =
                        Some(Current { task: Task::Applying(write), waits: Waits::default() });
                    return Step::Apply;
                }
                applying @ Task::Applying(_) => {
                    self.current = Some(Current { task: applying, waits: Waits::default() });
                    return Step::Applying;
                }
            }
        }
    }

    /// Whether writes wait for a loan.
    fn is_withheld(&self) -> bool {
        let writes = mutant(Mutant::WrittenWhileLent) && !self.queue.is_empty();
        self.held && !writes
    }

    /// Rule 4: begins to wait for every copy that is left.
    fn begin(&mut self, task: Task<W>, now_ns: Nanos) {
        let told_by = match &task {
            Task::Write(write) if write.told_stores => Some(write.epoch.switch()),
            _ => None,
        };
        let is_told = |switch| {
            let hears = |via| !self.untold.has((via, switch));
            wire::is_store(switch) && told_by.is_some_and(hears)
        };
        let goes_unasked = |copy: &Copy| {
            let off_path =
                matches!(&task, Task::Write(write) if write.epoch.switch() != copy.switch);
            off_path && mutant(Mutant::OffPathNotInvalidated)
        };
        let copies = self.copies.all().iter().filter(|copy| !goes_unasked(copy));
        let waits = Waits::begin(copies, is_told, now_ns);
        self.current = Some(Current { task, waits });
    }

    /// Rules 4 and 6: a copy whose lease has run out, or whose term is over, is dead; nobody waits
    /// for it.
    pub fn drop_lapsed<A>(&mut self, leases: &Leases<A>, now_ns: Nanos) {
        let alive = |copy: &Copy| leases.holds(copy.switch, copy.term, now_ns);
        self.copies.retain(alive);
        if let Some(current) = &mut self.current {
            current.waits.retain(alive);
        }
    }

    /// Switches that are waited for in vain: their leases have run out.
    pub fn lapsed_waits<A>(&self, leases: &Leases<A>, now_ns: Nanos) -> usize {
        let is_dead = |copy: &Copy| !leases.holds(copy.switch, copy.term, now_ns);
        self.current.as_ref().map_or(0, |current| current.waits.count(is_dead))
    }

    /// The write that every copy has made way for.
    pub fn applying(&self) -> Option<&Write<W>> {
        match &self.current {
            Some(Current { task: Task::Applying(write), .. }) => Some(write),
            _ => None,
        }
    }

    /// A switch has told this store of the write that is being applied: of the next one that passes
    /// the same switch, too, it will hear unasked.
    pub fn told(&mut self, store: SwitchId) {
        if let Some(via) = self.applying().map(|write| write.epoch.switch()) {
            self.untold.forget((via, store));
        }
    }

    /// The backend has answered: the write is over, and here it is, to be replied to.
    /// `doubt_until_ns` is not 0 if the backend failed, so that the write may still take place:
    /// until then nothing is granted, and no other write is begun with.
    pub fn applied(&mut self, doubt_until_ns: Nanos) -> Option<Write<W>> {
        self.doubt_until_ns = self.doubt_until_ns.max(doubt_until_ns);
        match self.current.take() {
            Some(Current { task: Task::Applying(write), .. }) => Some(write),
            other => {
                self.current = other;
                None
            }
        }
    }

    /// Whether a write that failed can no longer take place, as of `now_ns`; true once. Until then
    /// its key had one version, and maybe the value of before, maybe that of the write: whoever has
    /// read under that version has read one of the two. The caller gives what is there a version of
    /// its own before anything else is done, so before [`KeyState::poll`].
    pub fn settle(&mut self, now_ns: Nanos) -> bool {
        let is_over = self.doubt_until_ns > 0 && now_ns >= self.doubt_until_ns;
        if is_over {
            self.doubt_until_ns = 0;
        }
        is_over
    }

    /// Whether a write that failed may still take place.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt_until_ns > 0
    }

    /// The backend proves that as of `now_ns` it cannot; [`KeyState::settle`] says so next.
    pub fn ends_doubt(&mut self, now_ns: Nanos) {
        self.doubt_until_ns = self.doubt_until_ns.min(now_ns);
    }

    // -----------------------------------------------------------------------------------------------------------
    // Rule 5: grants.

    /// Rule 5: X asks for a grant for (X, e). If it may have one, granted(X) is raised here, before
    /// the reply leaves: a write that comes next then waits for X although the grant is still on
    /// its way. `room`: whether the directory may take one more copy.
    ///
    /// # Errors
    /// Why not; the state is unchanged then.
    pub fn grant<A>(
        &mut self,
        epoch: Epoch,
        leases: &Leases<A>,
        room: bool,
        now_ns: Nanos,
    ) -> Result<(), NoGrant> {
        let between_two = self.current.is_none() && !self.queue.is_empty();
        if between_two && mutant(Mutant::TwoWritesAtOnce) {
            return Ok(());
        }
        self.may_grant()?;
        let term = leases.term(epoch.switch(), now_ns).ok_or(NoGrant::NoLease)?;
        if mutant(Mutant::GrantedNotRaised) {
            return Ok(());
        }
        self.copies.raise(epoch, term, room).then_some(()).ok_or(NoGrant::DirectoryFull)
    }

    /// Whether the newest grant to X is this one, and nothing has happened since that ends it: what
    /// was read for it is still what may be granted, as far as the store has heard.
    pub fn stands(&self, epoch: Epoch) -> bool {
        let copy = self.copy_of(epoch.switch());
        !self.is_busy() && copy.is_some_and(|copy| copy.granted == epoch.number())
    }

    /// Whether no write goes on, or may still take place.
    pub fn is_settled(&self) -> bool {
        !self.is_busy() && self.doubt_until_ns == 0
    }

    fn may_grant(&self) -> Result<(), NoGrant> {
        let busy = self.is_busy() && !mutant(Mutant::GrantDuringWrite);
        if busy || self.doubt_until_ns > 0 {
            return Err(NoGrant::WritePending);
        }
        Ok(())
    }
}
