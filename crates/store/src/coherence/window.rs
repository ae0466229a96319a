//! Rule 7: what a client's last writes were answered.

use std::collections::VecDeque;

use crate::mutants::{Mutant, mutant};

/// The last writes of one client, in order of their request ids, with their outcomes `O`.
///
/// Request ids rise, and have 64 bits: they never come again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window<O> {
    writes: VecDeque<(u64, Option<O>)>,
    /// The newest id that was forgotten. Nobody can tell whether an id up to it was applied.
    forgotten: Option<u64>,
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
            let is_kept = |(id, outcome): &(u64, Option<O>)| *id == request || outcome.is_none();
            self.writes.retain(is_kept);
        }
        let at = self.position(request);
        match self.writes.get(at) {
            Some((id, Some(_))) if *id == request && mutant(Mutant::AppliedAgain) => {
                return Verdict::New;
            }
            Some((id, Some(outcome))) if *id == request => {
                return Verdict::Answered(outcome.clone());
            }
            Some((id, None)) if *id == request && mutant(Mutant::PendingAppliedAgain) => {
                return Verdict::New;
            }
            Some((id, None)) if *id == request => return Verdict::Pending,
            _ => {}
        }
        if self.writes.len() < limit {
            self.writes.insert(at, (request, None));
            return Verdict::New;
        }
        match self.writes.front() {
            Some((oldest, _)) if *oldest > request => Verdict::TooOld,
            Some((oldest, Some(_))) => {
                self.forgotten = Some(*oldest);
                self.writes.pop_front();
                self.writes.insert(at - 1, (request, None));
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
        let (_, outcome) =
            self.writes.get(self.position(request)).filter(|(id, _)| *id == request)?;
        Some(outcome.clone().map_or(Verdict::Pending, Verdict::Answered))
    }

    /// A write that was [`Verdict::New`] has this outcome.
    pub fn finish(&mut self, request: u64, outcome: O) {
        let at = self.position(request);
        if let Some((_, pending)) = self.writes.get_mut(at).filter(|(id, _)| *id == request) {
            *pending = Some(outcome);
        }
    }

    /// A write that was answered that others decide it is here again, to be decided: it is pending
    /// from now on.
    pub fn reopen(&mut self, request: u64) {
        let at = self.position(request);
        if let Some((_, outcome)) = self.writes.get_mut(at).filter(|(id, _)| *id == request) {
            *outcome = None;
        }
    }

    /// A write that was [`Verdict::New`] was refused and not carried out: it may come again.
    pub fn forget(&mut self, request: u64) {
        let at = self.position(request);
        if self.writes.get(at).is_some_and(|(id, outcome)| *id == request && outcome.is_none()) {
            self.writes.remove(at);
        }
    }

    /// Whether a write is pending.
    pub fn is_busy(&self) -> bool {
        self.writes.iter().any(|(_, outcome)| outcome.is_none())
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
