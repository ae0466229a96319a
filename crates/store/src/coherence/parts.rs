//! Values in parts: when a write that comes in parts is whole, and which version a part that is
//! read has. docs/coherence.md, "Large values", says why the seven rules need no more.

use holder::mutants::{Mutant, mutant};

/// Which parts of a write have come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    come: Vec<bool>,
    missing: usize,
    first: usize,
}

impl Parts {
    /// None of so many, at least one.
    pub fn new(parts: usize) -> Parts {
        Parts { come: vec![false; parts], missing: parts, first: 0 }
    }

    /// Whether this one has come.
    pub fn has(&self, index: usize) -> bool {
        self.come[index]
    }

    /// One has come, for the first time or again. Returns the first that is missing; `None`: the
    /// write is whole, and takes place now.
    pub fn take(&mut self, index: usize) -> Option<usize> {
        if !self.come[index] {
            self.come[index] = true;
            self.missing -= 1;
        }
        if self.missing == 0 || mutant(Mutant::AppliedUnfinished) {
            return None;
        }
        while self.come[self.first] {
            self.first += 1;
        }
        Some(self.first)
    }
}

/// A part of version `wanted` is asked for, and the key has the version `present`: the version of
/// the part that answers, or `None`, if the first part of what there is has to. So all parts that a
/// reader joins are of one version.
pub fn version_of_part(wanted: u64, present: u64) -> Option<u64> {
    (wanted == present || mutant(Mutant::PartOfAnyVersion)).then_some(wanted)
}
