//! Who changed what, and when: kept with the state, the oldest entries go.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::journal::Journal;

/// Entries that are kept.
const KEPT: usize = 10_000;

/// The key of an entry's row.
fn row(number: u64) -> String {
    format!("audit/{number:016}")
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The name of the token that asked, or `controller`.
    pub who: String,
    /// What was done: `tenant.create`.
    pub what: String,
    /// To whom, and how.
    pub detail: String,
}

/// The log.
#[derive(Debug)]
pub struct Audit {
    first: u64,
    entries: VecDeque<Entry>,
}

impl Audit {
    /// As remembered, by rising numbers.
    pub fn new(entries: Vec<(u64, Entry)>) -> Audit {
        Audit {
            first: entries.first().map_or(1, |(seq, _)| *seq),
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        }
    }

    /// Adds an entry, for good once the journal is written.
    pub fn add(&mut self, journal: &mut Journal, entry: Entry) {
        tracing::info!(who = entry.who, "{}: {}", entry.what, entry.detail);
        let seq = self.first + self.entries.len() as u64;
        journal.put(row(seq), &entry);
        self.entries.push_back(entry);
        while self.entries.len() > KEPT {
            journal.delete(row(self.first));
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Entries with their numbers, the oldest first, from after `after` on.
    pub fn after(&self, after: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let skip = (after + 1).saturating_sub(self.first) as usize;
        (self.first..).zip(&self.entries).skip(skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_numbers_go_on() {
        let mut journal = Journal::default();
        let entry = |n: usize| Entry {
            at_ms: n as u64,
            who: "me".into(),
            what: "test".into(),
            detail: String::new(),
        };
        let mut audit = Audit::new(vec![(41, entry(0))]);
        (1..=KEPT).for_each(|n| audit.add(&mut journal, entry(n)));
        let (first, entry) = audit.after(0).next().unwrap();
        assert_eq!((first, entry.at_ms), (42, 1));
        assert_eq!(audit.after(41 + KEPT as u64 - 1).count(), 1);
        assert_eq!(audit.after(u64::MAX - 1).count(), 0);
        // The rows say the same: one came for each that was added, and the first one went.
        let (batch, _) = journal.take();
        let (kept, gone): (Vec<_>, Vec<_>) = batch.rows().iter().partition(|r| r.1.is_some());
        let row = |n| row(41 + n as u64);
        assert!(kept.iter().map(|r| &r.0).eq(&(1..=KEPT).map(row).collect::<Vec<_>>()));
        assert_eq!(gone, [&(row(0), None)]);
    }
}
