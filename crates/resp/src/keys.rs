//! Which words of a command are keys, by the key specifications of the server's `COMMAND`.
//!
//! Where a specification is incomplete, or a word cannot be understood, more words are taken for
//! keys than are: a key that is held for nothing costs a little, one that is forgotten would leave
//! a copy.

use crate::{number::integer, words::Words};

/// A word that is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWord {
    /// Which word of the command; its name is 0.
    pub index: usize,
    /// Whether what is under the key may be changed, and not only be read.
    pub may_change: bool,
}

/// Where the keys of a specification begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// At this word.
    Index(usize),
    /// Behind this word in any case, looked for from a word on; negative: from the end, backwards.
    Keyword(Vec<u8>, i64),
    /// The server does not say.
    Unknown,
}

/// Which words from there on are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Up to the last, from the first, or if negative from the end; every so many; of the words
    /// that are left only one in `limit` parts if that is more than 1.
    Range {
        /// Relative to the first key, or negative.
        last: i64,
        /// From one key to the next.
        step: usize,
        /// Into how many parts the words that are left fall.
        limit: usize,
    },
    /// As many as a word says.
    Count {
        /// Where that word stands.
        at: usize,
        /// Where the first key stands.
        first: usize,
        /// From one key to the next.
        step: usize,
    },
    /// The server does not say.
    Unknown,
}

/// One specification of a command's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where they begin.
    pub search: Search,
    /// Which they are.
    pub finding: Finding,
    /// Whether what is there may be changed.
    pub may_change: bool,
}

impl KeySpec {
    fn first(&self, words: Words<'_>) -> Option<usize> {
        match &self.search {
            Search::Index(index) => Some(*index),
            Search::Keyword(keyword, from) => {
                let is_it = |index: &usize| {
                    words.get(*index).is_some_and(|word| word.eq_ignore_ascii_case(keyword))
                };
                let len = words.len();
                let found = match usize::try_from(*from) {
                    Ok(from) => (from..len).find(is_it),
                    Err(_) => {
                        let from = len.saturating_sub(from.unsigned_abs() as usize);
                        (1..=from).rev().find(is_it)
                    }
                };
                found.map(|index| index + 1)
            }
            Search::Unknown => None,
        }
    }

    pub(crate) fn find(&self, words: Words<'_>, out: &mut Vec<KeyWord>) {
        let Some(first) = self.first(words) else { return };
        let len = words.len();
        let (first, end, step) = match self.finding {
            Finding::Range { last, step, limit } => {
                let end = match usize::try_from(last) {
                    Ok(last) => first.saturating_add(last).saturating_add(1),
                    Err(_) => {
                        let left = len.saturating_sub(first);
                        let from = if limit > 1 { first + left / limit } else { len };
                        (from + 1).saturating_sub(last.unsigned_abs() as usize)
                    }
                };
                (first, end, step)
            }
            Finding::Count { at, first: behind, step } => {
                let count = words.get(first.saturating_add(at)).and_then(integer);
                let first = first.saturating_add(behind);
                let end = match count.map(usize::try_from) {
                    Some(Ok(count)) => first.saturating_add(count.saturating_mul(step.max(1))),
                    Some(Err(_)) | None => len,
                };
                (first, end, step)
            }
            Finding::Unknown => return,
        };
        let keys = (first..end.min(len)).step_by(step.max(1));
        out.extend(keys.map(|index| KeyWord { index, may_change: self.may_change }));
    }
}
