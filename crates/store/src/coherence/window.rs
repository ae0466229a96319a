//! Rule 7: what a client's last writes were answered.

use std::collections::VecDeque;

use holder::mutants::{Mutant, mutant};

/// The last writes of one client, in order of their request ids, with their outcomes `O`.
///
/// Request ids rise, and have 64 bits: they never come again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window<O> {
    writes: VecDeque<(u64, WriteRecord<O>)>,
    /// The newest id that was forgotten. Nobody can tell whether an id up to it was applied.
    forgotten: Option<u64>,
}

/// What is known of one write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WriteRecord<O> {
    /// It is under way; and what it was answered before, if that was that others decide it.
    Pending(Option<O>),
    Answered(O),
}

/// What to do with a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<O> {
    /// New, and remembered as pending from now on: carry it out, then [`Window::finish`].
    New,
    /// A retransmission of one that is not done yet, which will be answered: ignore it.
    Pending,
    /// A retransmission: answer this again, without a grant.
    Answered(O),
    /// So old that its outcome is forgotten: ignore it. It must not be applied, and there is
    /// nothing to say.
    TooOld,
    /// As many as may be remembered are pending: it must try again.
    Full,
}

/// The newest id that was forgotten, and the writes that are not, by rising ids.
pub type KnownWrites<O> = (Option<u64>, Vec<(u64, O)>);

impl<O> Default for Window<O> {
    fn default() -> Window<O> {
        Window { writes: VecDeque::new(), forgotten: None }
    }
}

impl<O: Clone> Window<O> {
    /// Rule 7: a write has come. Remembers `limit` writes.
    pub fn begin(&mut self, request: u64, limit: usize) -> Verdict<O> {
        if self.forgotten.is_some_and(|forgotten| request <= forgotten) {
            return Verdict::TooOld;
        }
        if mutant(Mutant::WindowForgets) {
            self.writes.retain(|(id, known)| *id == request || known.is_pending());
        }
        let at = self.position(request);
        match self.writes.get(at) {
            Some((id, WriteRecord::Answered(_)))
                if *id == request && mutant(Mutant::AppliedAgain) =>
            {
                return Verdict::New;
            }
            Some((id, WriteRecord::Pending(_)))
                if *id == request && mutant(Mutant::PendingAppliedAgain) =>
            {
                return Verdict::New;
            }
            Some((id, known)) if *id == request => return known.verdict(),
            _ => {}
        }
        if self.writes.len() < limit {
            self.writes.insert(at, (request, WriteRecord::Pending(None)));
            return Verdict::New;
        }
        match self.writes.front() {
            Some((oldest, _)) if *oldest > request => Verdict::TooOld,
            Some((oldest, WriteRecord::Answered(_))) => {
                self.forgotten = Some(*oldest);
                self.writes.pop_front();
                self.writes.insert(at - 1, (request, WriteRecord::Pending(None)));
                Verdict::New
            }
            _ => Verdict::Full,
        }
    }

    /// What [`Window::begin`] would say, if nothing else than that the write is new or that there
    /// is no room.
    pub fn known(&self, request: u64) -> Option<Verdict<O>> {
        if self.forgotten.is_some_and(|forgotten| request <= forgotten) {
            return Some(Verdict::TooOld);
        }
        let (_, known) =
            self.writes.get(self.position(request)).filter(|(id, _)| *id == request)?;
        Some(known.verdict())
    }

    /// A write that was [`Verdict::New`] has this outcome.
    pub fn finish(&mut self, request: u64, outcome: O) {
        if let Some(known) = self.known_mut(request) {
            *known = WriteRecord::Answered(outcome);
        }
    }

    /// A write that was answered that others decide it is here again, to be decided: it is pending
    /// from now on.
    pub fn reopen(&mut self, request: u64) {
        if let Some(known) = self.known_mut(request)
            && let WriteRecord::Answered(outcome) = known
        {
            *known = WriteRecord::Pending(Some(outcome.clone()));
        }
    }

    /// A write that was [`Verdict::New`] was refused and not carried out: it may come again. One
    /// that was reopened is again what it was before: others may have decided it, and it is never
    /// new.
    pub fn forget(&mut self, request: u64) {
        let at = self.position(request);
        let Some((_, known @ WriteRecord::Pending(_))) =
            self.writes.get_mut(at).filter(|(id, _)| *id == request)
        else {
            return;
        };
        match known {
            WriteRecord::Pending(Some(before)) if !mutant(Mutant::MovedForgotten) => {
                *known = WriteRecord::Answered(before.clone());
            }
            _ => {
                self.writes.remove(at);
            }
        }
    }

    /// What is pending is not going to be decided: it may have been carried out for all that is
    /// known, and has this outcome. One that was reopened is again what it was before.
    pub fn give_up(&mut self, unknown: &O) {
        for (_, known) in &mut self.writes {
            if let WriteRecord::Pending(before) = known {
                *known = WriteRecord::Answered(before.take().unwrap_or_else(|| unknown.clone()));
            }
        }
    }

    /// What is known, if nothing is pending: the newest id that was forgotten, and the writes.
    pub fn known_writes(&self) -> Option<KnownWrites<O>> {
        let answered = |(id, known): &(u64, WriteRecord<O>)| match known {
            WriteRecord::Answered(outcome) => Some((*id, outcome.clone())),
            WriteRecord::Pending(_) => None,
        };
        let writes: Option<Vec<_>> = self.writes.iter().map(answered).collect();
        Some((self.forgotten, writes?))
    }

    /// A window of which this is known; the ids rise.
    pub fn of(forgotten: Option<u64>, writes: impl IntoIterator<Item = (u64, O)>) -> Window<O> {
        let known = writes.into_iter().map(|(id, outcome)| (id, WriteRecord::Answered(outcome)));
        Window { writes: known.collect(), forgotten }
    }

    /// Whether a write is pending.
    pub fn is_busy(&self) -> bool {
        self.writes.iter().any(|(_, known)| known.is_pending())
    }

    fn known_mut(&mut self, request: u64) -> Option<&mut WriteRecord<O>> {
        let at = self.position(request);
        let (_, known) = self.writes.get_mut(at).filter(|(id, _)| *id == request)?;
        Some(known)
    }

    /// Where a request id stands or would stand: almost always at the end.
    fn position(&self, request: u64) -> usize {
        let older = self.writes.iter().rev().position(|(id, _)| *id <= request);
        match older {
            None => 0,
            Some(back) => {
                let at = self.writes.len() - 1 - back;
                if self.writes[at].0 == request { at } else { at + 1 }
            }
        }
    }
}

impl<O: Clone> WriteRecord<O> {
    fn is_pending(&self) -> bool {
        matches!(self, WriteRecord::Pending(_))
    }

    /// What a write of which this is known gets when it comes again.
    fn verdict(&self) -> Verdict<O> {
        match self {
            WriteRecord::Pending(_) => Verdict::Pending,
            WriteRecord::Answered(outcome) => Verdict::Answered(outcome.clone()),
        }
    }
}
