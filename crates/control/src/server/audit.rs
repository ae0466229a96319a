//! Who changed what, and when: kept with the state, the oldest entries go. What tenants do with
//! their own tokens has a part of its own, in which the tenant that did most loses its oldest:
//! however much they do, what operators did stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::journal::Journal;

/// Entries that are kept of what operators asked for.
const KEPT: usize = 10_000;
/// Entries that are kept of what tenants' own tokens asked for, and what followed from it.
const KEPT_OF_TENANTS: usize = 2_000;

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
    /// The tenant that asked for itself, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<u32>,
}

/// The log.
#[derive(Debug)]
pub struct Audit {
    entries: BTreeMap<u64, Entry>,
    /// How many of them tenants asked for, each for itself.
    own: BTreeMap<u32, usize>,
    next: u64,
}

impl Audit {
    /// As remembered.
    pub fn new(entries: Vec<(u64, Entry)>) -> Audit {
        let entries = BTreeMap::from_iter(entries);
        let next = entries.last_key_value().map_or(1, |(number, _)| number + 1);
        let mut own = BTreeMap::new();
        for tenant in entries.values().filter_map(|entry| entry.own) {
            *own.entry(tenant).or_default() += 1;
        }
        Audit { entries, own, next }
    }

    /// Adds an entry, for good once the journal is written.
    pub fn add(&mut self, journal: &mut Journal, entry: Entry) {
        tracing::info!(who = entry.who, "{}: {}", entry.what, entry.detail);
        journal.put(row(self.next), &entry);
        if let Some(tenant) = entry.own {
            *self.own.entry(tenant).or_default() += 1;
        }
        self.entries.insert(self.next, entry);
        self.next += 1;
        while let Some(goes) = self.excess() {
            journal.delete(row(goes));
            let own = self.entries.remove(&goes).and_then(|entry| entry.own);
            if let Some(count) = own.and_then(|tenant| self.own.get_mut(&tenant)) {
                *count -= 1;
            }
            self.own.retain(|_, count| *count > 0);
        }
    }

    /// The entry that is to go next, if there are too many.
    fn excess(&self) -> Option<u64> {
        let of_tenants: usize = self.own.values().sum();
        if self.entries.len() - of_tenants > KEPT {
            return self.oldest(None);
        }
        if of_tenants > KEPT_OF_TENANTS {
            let (tenant, _) = self.own.iter().max_by_key(|(_, count)| **count)?;
            return self.oldest(Some(*tenant));
        }
        None
    }

    fn oldest(&self, own: Option<u32>) -> Option<u64> {
        let mut entries = self.entries.iter();
        entries.find(|(_, entry)| entry.own == own).map(|(number, _)| *number)
    }

    /// Entries with their numbers, the oldest first, from after `after` on.
    pub fn after(&self, after: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let first = after.saturating_add(1);
        self.entries.range(first..).map(|(number, entry)| (*number, entry))
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
            own: None,
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

    /// A tenant's token returns a page and asks for it again, as fast as it can.
    #[test]
    fn tenants_do_not_roll_over_what_others_did() {
        let entry = |own| Entry {
            at_ms: 0,
            who: "me".into(),
            what: "pages.return".into(),
            detail: String::new(),
            own,
        };
        let mut journal = Journal::default();
        let mut audit = Audit::new(vec![(1, entry(None)), (2, entry(Some(9)))]);
        for _ in 0..KEPT {
            audit.add(&mut journal, entry(Some(7)));
        }
        audit.add(&mut journal, entry(None));
        let count = |own| audit.after(0).filter(|(_, entry)| entry.own == own).count();
        assert_eq!((count(None), count(Some(9))), (2, 1));
        assert_eq!(count(Some(7)), KEPT_OF_TENANTS - 1);
        let numbers: Vec<u64> = audit.after(0).map(|(number, _)| number).collect();
        assert_eq!((numbers[0], numbers[numbers.len() - 1]), (1, KEPT as u64 + 3));
        // What is remembered is the same.
        let mut remembered = BTreeMap::from([(1, entry(None)), (2, entry(Some(9)))]);
        for (key, value) in journal.take().0.rows() {
            let number = key["audit/".len()..].parse().unwrap();
            match value {
                Some(json) => remembered.insert(number, serde_json::from_slice(json).unwrap()),
                None => remembered.remove(&number),
            };
        }
        assert!(remembered.iter().eq(&audit.entries));
        let again = Audit::new(remembered.into_iter().collect());
        assert_eq!((again.next, &again.own), (audit.next, &audit.own));
    }
}
