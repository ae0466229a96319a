//! Writes that come again (rule 7).

use wire::Status;

use super::Keys;
use crate::{
    backend::{Key, Refusal},
    coherence::Verdict,
    engine::{
        context::Context,
        pending_write::{PendingWrite, WriteOutcome},
        refusals::refused,
        replies::{Answer, Origin},
    },
};
use holder::mutants::{Mutant, mutant};

impl Keys {
    /// Whether a write that names this life of its key is new. One that is not is answered here,
    /// or ignored.
    pub fn is_new(
        &mut self,
        cx: &mut Context,
        job: &PendingWrite,
        key: Key<'_>,
        life: u16,
    ) -> bool {
        match cx.ledger.clients.begin(job.id(), cx.now_ns) {
            Verdict::New => true,
            // It comes as it was told to.
            Verdict::Answered(outcome) if outcome.moved_to().is_some_and(|to| to == life) => {
                cx.ledger.clients.reopen(job.id());
                true
            }
            verdict => {
                self.repeat(cx, &job.origin, key, &job.value, verdict);
                false
            }
        }
    }

    /// A write, or a part of one, that is not new: answers it as it was answered before, if it was.
    pub fn repeat(
        &mut self,
        cx: &mut Context,
        origin: &Origin,
        key: Key<'_>,
        value: &[u8],
        verdict: Verdict<WriteOutcome>,
    ) {
        let counters = &mut cx.ledger.counters;
        match verdict {
            Verdict::New => {}
            Verdict::Pending => counters.duplicates_pending += 1,
            Verdict::TooOld => counters.duplicates_too_old += 1,
            Verdict::Answered(outcome) => {
                counters.duplicates_answered += 1;
                if let Some(number) = outcome.refusal() {
                    let refusal = cx.ledger.refusals.get(number).cloned();
                    let words = refusal.as_ref().map(Refusal::words).unwrap_or_default();
                    return cx.reply(origin, key.bytes, &refused(origin, key.bytes, words));
                }
                let grant = mutant(Mutant::RepeatedAnswerGrants)
                    && origin.wants_grant
                    && self.grant(cx, origin, key);
                let answer =
                    Answer { value: if grant { value } else { &[] }, grant, ..outcome.answer() };
                cx.reply(origin, key.bytes, &answer);
            }
            Verdict::Full => {
                counters.refused_clients_full += 1;
                cx.refuse(origin, key.bytes, Status::TryAgain);
            }
        }
    }
}
