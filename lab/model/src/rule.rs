//! The ways to break a rule that the model is run with, in the switches' C or in the store: each
//! must be caught.

use dataplane::native;
use store::mutants;

/// What breaks a rule of docs/coherence.md, or a part of one: in the switches' C or in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// One of `bpf/mutants.h`.
    Switch(&'static native::Mutant),
    /// One of the store's.
    Store(mutants::Mutant),
}

impl BrokenRule {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            BrokenRule::Switch(mutant) => &mutant.name,
            BrokenRule::Store(mutant) => mutant.name(),
        }
    }

    /// Rule and what happens, for a line of a test's output.
    pub fn title(self) -> String {
        let (rule, breaks) = match self {
            BrokenRule::Switch(mutant) => (mutant.rule, mutant.breaks.as_str()),
            BrokenRule::Store(mutant) => (mutant.rule(), mutant.breaks()),
        };
        format!("rule {rule}: {} ({breaks})", self.name())
    }
}
