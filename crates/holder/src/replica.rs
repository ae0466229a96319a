//! The other side of the rules: whoever holds copies of a store's keys, be it another store or a
//! holder at the clients' side. What `bpf/coherence.h` is for a switch.

use crate::{
    Nanos,
    mutants::{Mutant, mutant},
};

/// Taken off every deadline: of a time between a clock's reading and its use.
pub const MARGIN_NS: Nanos = 10_000_000;

/// Rule 1: one counter for all keys of who holds copies, which never gives a number twice, over
/// restarts too: it begins with the time since 1970 in 65,536ths of a second (docs/coherence.md,
/// "Epochs").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epochs {
    first: u64,
    since_ns: Nanos,
    newest: u64,
}

impl Epochs {
    /// All numbers are above this one, which is of the time that is now.
    pub fn new(first: u64, now_ns: Nanos) -> Epochs {
        Epochs { first, since_ns: now_ns, newest: first }
    }

    /// As many as time allows until now: a life that began now would take none of them again.
    pub fn allowed(&self, now_ns: Nanos) -> u64 {
        let passed = u128::from(now_ns.saturating_sub(self.since_ns)) << 16;
        u64::try_from(passed / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// Whether more were taken.
    pub fn is_ahead(&self, now_ns: Nanos) -> bool {
        self.newest - self.first > self.allowed(now_ns)
    }

    /// A number above all before.
    pub fn take(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// The highest number taken so far.
    pub fn newest(&self) -> u64 {
        self.newest
    }
}

/// Rule 6: the lease of one home, as its holder counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BorrowedLease {
    term: Option<u64>,
    until_ns: Nanos,
    /// Copies of epochs up to this one are of an earlier term.
    floor: u64,
}

impl BorrowedLease {
    /// A lease of this length in this term, which counts from when it was asked for. A new term
    /// kills every copy of the one before: what was granted in it was asked for under the `newest`
    /// epoch at most. False: it is over already, or dated in the future.
    pub fn lent(
        &mut self,
        term: u64,
        asked_ns: Nanos,
        length_ns: Nanos,
        now_ns: Nanos,
        newest: u64,
    ) -> bool {
        let until_ns = asked_ns.saturating_add(length_ns).saturating_sub(MARGIN_NS);
        if asked_ns > now_ns || until_ns <= now_ns {
            return false;
        }
        if self.term != Some(term) {
            self.term = Some(term);
            self.until_ns = 0;
            if !mutant(Mutant::ReplicaOfAnyTerm) {
                self.floor = newest;
            }
        }
        self.until_ns = self.until_ns.max(until_ns);
        true
    }

    /// Gives it up: nothing is served under it from here on. Its term, if it holds.
    pub fn give_up(&mut self, now_ns: Nanos) -> Option<u64> {
        let held = self.holds(now_ns);
        self.until_ns = 0;
        self.term.filter(|_| held)
    }

    /// From when on it does not hold.
    pub fn until_ns(&self) -> Nanos {
        self.until_ns
    }

    /// Whether it holds.
    pub fn holds(&self, now_ns: Nanos) -> bool {
        now_ns < self.until_ns
    }

    /// Whether copies of this epoch are of the present term.
    pub fn is_above_floor(&self, epoch: u64) -> bool {
        self.term.is_some() && epoch > self.floor
    }

    /// Whether both are of one term.
    pub fn is_same_term(&self, other: &BorrowedLease) -> bool {
        self.term == other.term
    }

    fn covers(&self, epoch: u64, now_ns: Nanos) -> bool {
        let holds = self.holds(now_ns) || mutant(Mutant::ReplicaWithoutLease);
        holds && self.is_above_floor(epoch)
    }
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopiedValue<V> {
    /// The value.
    pub value: V,
    /// Its version.
    pub version: u64,
    /// When its life ends; 0: it does not.
    pub expires_ns: Nanos,
}

/// What is left of a life that ends then, as packets say it: in milliseconds, 1 at least; 0: it
/// does not end.
pub fn left_ms(expires_ns: Nanos, now_ns: Nanos) -> u32 {
    match expires_ns {
        0 => 0,
        _ => (expires_ns.saturating_sub(now_ns) / 1_000_000).clamp(1, u32::MAX.into()) as u32,
    }
}

/// Whose a write is, and which: its client and request.
pub type WriteId = (u64, u64);

/// A write that is on its way to the home, and of which R has the value already.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidate<V> {
    write: WriteId,
    value: V,
}

/// What R holds of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<V> {
    epoch: u64,
    /// When that was taken: a value's life counts from then.
    epoch_ns: Nanos,
    valid: Option<CopiedValue<V>>,
    /// The write that the epoch was taken for, if a switch told of one.
    told: Option<WriteId>,
    candidate: Option<Candidate<V>>,
}

impl<V> Replica<V> {
    /// Without a value, under this epoch, which was just taken.
    pub fn new(epoch: u64, now_ns: Nanos) -> Replica<V> {
        Replica { epoch, epoch_ns: now_ns, valid: None, told: None, candidate: None }
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Rule 2: from now on no value of an earlier epoch is served.
    pub fn raise(&mut self, epoch: u64, now_ns: Nanos) {
        self.epoch = self.epoch.max(epoch);
        self.epoch_ns = now_ns;
        self.told = None;
        if !mutant(Mutant::ReplicaStaysValid) {
            self.valid = None;
        }
    }

    /// This write passed a switch, which sent a copy of it here: what it writes, if that may
    /// be kept.
    pub fn update(&mut self, epoch: u64, write: WriteId, value: Option<V>, now_ns: Nanos) {
        self.raise(epoch, now_ns);
        self.told = Some(write);
        self.candidate = value.map(|value| Candidate { write, value });
    }

    /// Whether this write is what the present epoch was taken for: another switch has sent it, too,
    /// and it ends nothing that the first one did not. What was installed since may be served on:
    /// its home knows of it.
    pub fn was_told(&self, write: WriteId) -> bool {
        self.told == Some(write)
    }

    /// The write whose value is here already, should its home apply it.
    pub fn candidate(&self) -> Option<WriteId> {
        self.candidate.as_ref().map(|candidate| candidate.write)
    }

    /// The candidate, if it is this write's. It is one no longer.
    pub fn take_candidate(&mut self, write: WriteId) -> Option<V> {
        let candidate = self.candidate.take()?;
        let is_it = candidate.write == write || mutant(Mutant::CandidateOfAnyWrite);
        is_it.then_some(candidate.value)
    }

    /// Rule 5: whether a grant under this epoch may be installed: the epoch is still the one that
    /// it was granted for, of the present term.
    pub fn would_take(&self, epoch: u64, lease: &BorrowedLease) -> bool {
        let same = epoch == self.epoch || mutant(Mutant::ReplicaOfAnyEpoch);
        same && lease.is_above_floor(self.epoch)
    }

    /// Rule 5: a grant of this value, which lives for so many milliseconds from when the epoch was
    /// taken; 0: for ever. False: it came too late, and is dropped.
    pub fn install(
        &mut self,
        epoch: u64,
        lease: &BorrowedLease,
        value: V,
        version: u64,
        expiry_ms: u32,
    ) -> bool {
        if !self.would_take(epoch, lease) {
            return false;
        }
        let life_ns = u64::from(expiry_ms) * 1_000_000;
        let expires_ns = match expiry_ms {
            0 => 0,
            // Two clocks part by less than 1/64 of it, as of a lease.
            _ => (self.epoch_ns + life_ns - life_ns / 64).saturating_sub(MARGIN_NS).max(1),
        };
        self.valid = Some(CopiedValue { value, version, expires_ns });
        self.candidate = None;
        true
    }

    /// Rule 6: what may be served now: valid, alive, under a lease that holds, of its term.
    pub fn serve(&self, lease: &BorrowedLease, now_ns: Nanos) -> Option<&CopiedValue<V>> {
        let alive = |copy: &&CopiedValue<V>| copy.expires_ns == 0 || now_ns < copy.expires_ns;
        let covered = lease.covers(self.epoch, now_ns);
        self.valid.as_ref().filter(alive).filter(|_| covered)
    }

    /// Whether there is a value, be its lease as it may.
    pub fn is_valid(&self) -> bool {
        self.valid.is_some()
    }

    /// The value, be its lease as it may.
    pub fn value(&self) -> Option<&V> {
        self.valid.as_ref().map(|copy| &copy.value)
    }

    /// The value's version.
    pub fn version(&self) -> Option<u64> {
        self.valid.as_ref().map(|copy| copy.version)
    }

    /// When the value's life ends, if it does.
    pub fn expires_ns(&self) -> Option<Nanos> {
        let at_ns = self.valid.as_ref()?.expires_ns;
        (at_ns != 0).then_some(at_ns)
    }
}

/// Which answers of a home count for a read that R passes on: those to what was asked after the
/// read had come. An earlier one may say what the key held before.
pub fn answers(asked: u64, newest_before: u64) -> bool {
    asked > newest_before || mutant(Mutant::OlderAnswerPassedOn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn lease() -> (BorrowedLease, Epochs) {
        let epochs = Epochs::new(100, S);
        let mut lease = BorrowedLease::default();
        assert!(lease.lent(7, S, 2 * S, S, epochs.newest()));
        (lease, epochs)
    }

    #[test]
    fn a_value_is_served_under_the_epoch_it_was_granted_for_and_no_other() {
        let (lease, mut epochs) = lease();
        let mut replica = Replica::new(epochs.take(), S);
        let first = replica.epoch();
        assert_eq!(replica.serve(&lease, S), None);
        replica.raise(epochs.take(), S);
        assert!(!replica.install(first, &lease, "old", 1, 0), "it came late");
        assert!(replica.install(replica.epoch(), &lease, "new", 2, 0));
        assert_eq!(replica.serve(&lease, S).map(|copy| copy.value), Some("new"));
        replica.raise(epochs.take(), S);
        assert_eq!(replica.serve(&lease, S), None);
    }

    #[test]
    fn no_more_epochs_are_taken_than_the_next_life_begins_above() {
        let mut epochs = Epochs::new(7 << 16, S);
        assert!(!epochs.is_ahead(S));
        (0..1 << 16).for_each(|_| _ = epochs.take());
        assert!(epochs.is_ahead(2 * S - 1));
        assert!(!epochs.is_ahead(2 * S));
        epochs.take();
        assert!(epochs.is_ahead(2 * S));
    }

    #[test]
    fn a_new_term_ends_what_the_one_before_granted() {
        let (mut lease, mut epochs) = lease();
        let mut replica = Replica::new(epochs.take(), S);
        let epoch = replica.epoch();
        assert!(replica.install(epoch, &lease, (), 1, 0));
        let end = 3 * S - MARGIN_NS;
        assert!(replica.serve(&lease, end - 1).is_some() && replica.serve(&lease, end).is_none());
        assert!(!lease.lent(7, S, 2 * S, end, epochs.newest()), "over");
        assert!(!lease.lent(7, 4 * S, 2 * S, 3 * S, 0), "from the future");
        assert!(lease.lent(7, 3 * S, 2 * S, 3 * S, epochs.newest()));
        assert!(replica.serve(&lease, 4 * S).is_some(), "the same term");
        assert!(lease.lent(8, 4 * S, 2 * S, 4 * S, epochs.newest()));
        assert!(replica.serve(&lease, 4 * S).is_none());
        assert!(!replica.install(epoch, &lease, (), 1, 0), "of the term before");
    }

    #[test]
    fn a_life_counts_from_the_epoch() {
        let (lease, mut epochs) = lease();
        let mut replica = Replica::new(epochs.take(), S);
        assert!(replica.install(replica.epoch(), &lease, (), 1, 1000));
        // S's clock may be the faster one.
        let end = 2 * S - S / 64 - MARGIN_NS;
        assert_eq!(replica.expires_ns(), Some(end));
        assert!(replica.serve(&lease, end - 1).is_some() && replica.serve(&lease, end).is_none());
    }

    #[test]
    fn a_candidate_is_of_one_write() {
        let mut replica = Replica::new(1, S);
        replica.update(2, (1, 1), Some("a"), S);
        replica.update(3, (2, 9), Some("b"), S);
        assert_eq!(replica.take_candidate((1, 1)), None);
        replica.update(4, (2, 9), Some("b"), S);
        assert_eq!(replica.take_candidate((2, 9)), Some("b"));
        assert_eq!(replica.take_candidate((2, 9)), None);
    }

    #[test]
    fn a_write_that_was_told_of_is_known_until_another_epoch_is_taken() {
        let mut replica = Replica::new(1, S);
        replica.update(2, (1, 1), Some("a"), S);
        assert!(replica.was_told((1, 1)) && !replica.was_told((1, 2)));
        assert_eq!(replica.candidate(), Some((1, 1)));
        replica.raise(3, S);
        assert!(!replica.was_told((1, 1)));
        assert_eq!(replica.candidate(), Some((1, 1)), "its value is here still");
    }
}
