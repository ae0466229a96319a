//! What the backend said of writes that it refused, to be said again to who asks again (rule 7).

use std::collections::VecDeque;

use wire::{Op, Status};

use super::replies::{Answer, Origin};
use crate::backend::Refusal;

/// Different refusals that are remembered. Backends have few.
const MOST: usize = 64;

/// The refusals, each under a number that it keeps until it is forgotten.
#[derive(Default)]
pub(super) struct Refusals {
    kept: VecDeque<Refusal>,
    forgotten: u64,
}

impl Refusals {
    /// The number of a refusal, 1 or above.
    pub fn number(&mut self, refusal: &Refusal) -> u64 {
        let at = self.kept.iter().position(|kept| kept == refusal).unwrap_or_else(|| {
            if self.kept.len() == MOST {
                self.kept.pop_front();
                self.forgotten += 1;
            }
            self.kept.push_back(refusal.clone());
            self.kept.len() - 1
        });
        self.forgotten + 1 + at as u64
    }

    /// The refusal of this number, if it is remembered.
    pub fn get(&self, number: u64) -> Option<&Refusal> {
        self.kept.get(number.checked_sub(self.forgotten + 1)? as usize)
    }
}

/// What a request is answered that the backend refused with these words. Who left too little room
/// for them is told how much they take; where that cannot be said he goes without.
pub(super) fn refused<'a>(origin: &Origin, key: &[u8], words: &'a str) -> Answer<'a> {
    // Of the others none looks at words.
    let words = match origin.op {
        Op::ReadRequest | Op::CorrectionRequest | Op::WriteRequest | Op::DeleteRequest => {
            words.as_bytes()
        }
        _ => &[],
    };
    let fits = origin.allows(key, words.len());
    if !fits && origin.wanted.total == 0 {
        let total = words.len() as u32;
        return Answer { total, ..Answer::status(Status::NeedPadding) };
    }
    Answer {
        version: wire::BACKEND_REFUSED,
        value: if fits { words } else { &[] },
        ..Answer::status(Status::BackendError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_number_until_it_is_forgotten() {
        let mut refusals = Refusals::default();
        let said = |n: usize| Refusal::new(&format!("ERR {n}"));
        assert_eq!(refusals.get(0), None);
        assert_eq!(refusals.number(&said(0)), 1);
        assert_eq!(refusals.number(&said(1)), 2);
        assert_eq!(refusals.number(&said(0)), 1, "the same words");
        assert_eq!(refusals.get(2), Some(&said(1)));
        let last = (2..=MOST).map(|n| refusals.number(&said(n))).last().unwrap();
        assert_eq!(refusals.get(1), None, "the first had to go");
        assert_eq!(refusals.get(2), Some(&said(1)));
        assert_eq!(refusals.get(last), Some(&said(MOST)));
        assert_eq!(refusals.get(last + 1), None);
    }
}
