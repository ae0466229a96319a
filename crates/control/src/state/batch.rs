//! Changes that are to be remembered, and how they are cut into transactions.

use std::collections::{HashMap, HashSet};

use decide::{ItemKey, SwitchId};
use serde::Serialize;

use super::StateError;

/// Rows of one unit that are surely written together: etcd takes 128 operations per transaction
/// by default.
pub const ROWS_TOGETHER: usize = 100;
/// Longest row in bytes: etcd takes requests of 1.5 MiB by default.
pub const ROW_MAX: usize = 1 << 20;

/// Longest key in bytes.
const KEY_MAX: usize = 256;
/// Bytes of one transaction: one row of any length fits.
const TRANSACTION_MAX: usize = ROW_MAX + (256 << 10);

/// What changed since the last write, in order.
///
/// Rows between two calls of [`Batch::end_unit`] are a *unit*: its first [`ROWS_TOGETHER`] rows are
/// written whole or not at all, if they are not longer than [`ROW_MAX`] together. Units are written
/// in order: if writing fails or the process dies in between, the first ones are written and the
/// others not. With a file, all of a batch is written whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    rows: Vec<(String, Option<Vec<u8>>)>,
    /// Lengths of `rows` at which a unit ends.
    ends: Vec<usize>,
    /// Keys that a switch now holds (true) or no longer. Kept by a file only, as hints for
    /// a restart.
    pub items: Vec<(SwitchId, ItemKey, bool)>,
}

impl Batch {
    /// Sets a row, as JSON.
    ///
    /// # Panics
    /// If the value is no plain data: a map with keys that are no strings.
    pub fn put(&mut self, key: impl Into<String>, value: &impl Serialize) {
        let json = serde_json::to_vec(value).expect("plain data is always valid JSON");
        self.rows.push((key.into(), Some(json)));
    }

    /// Removes a row, if it is there.
    pub fn delete(&mut self, key: impl Into<String>) {
        self.rows.push((key.into(), None));
    }

    /// What came before may be written without what follows.
    pub fn end_unit(&mut self) {
        let end = self.rows.len();
        if self.ends.last().copied().unwrap_or(0) < end {
            self.ends.push(end);
        }
    }

    /// Adds what changed later, as units of its own.
    pub fn append(&mut self, later: Batch) {
        self.end_unit();
        let offset = self.rows.len();
        self.rows.extend(later.rows);
        self.ends.extend(later.ends.into_iter().map(|end| end + offset));
        self.items.extend(later.items);
    }

    /// Leaves the last change of each row and item only, as one unit: for a store that writes all
    /// of a batch or nothing, and cannot for a while. What waits then is no more than what is
    /// remembered.
    pub fn compact(&mut self) {
        let mut seen = HashSet::new();
        keep_last(&mut self.rows, |(key, _)| seen.insert(key.clone()));
        let mut seen = HashSet::new();
        keep_last(&mut self.items, |(switch, key, _)| seen.insert((*switch, key.clone())));
        self.ends.clear();
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.items.is_empty()
    }

    /// The changed rows in order; `None` removes one.
    pub fn rows(&self) -> &[(String, Option<Vec<u8>>)] {
        &self.rows
    }

    /// Whether every row can be stored, in either store.
    pub(super) fn check(&self) -> Result<(), StateError> {
        for (key, value) in &self.rows {
            let length = value.as_ref().map_or(0, Vec::len);
            let reason = if key.is_empty() || key.len() > KEY_MAX {
                format!("its key has {} bytes, expected 1 to {KEY_MAX}", key.len())
            } else if length > ROW_MAX {
                format!("{length} bytes, at most {ROW_MAX} can be stored")
            } else {
                continue;
            };
            let key = key.chars().take(KEY_MAX).collect();
            return Err(StateError::Row { key, reason });
        }
        Ok(())
    }

    /// The transactions of this batch: whole units as far as they fit.
    pub(super) fn transactions(&self) -> Vec<Transaction<'_>> {
        let mut done = Vec::new();
        let mut open = Transaction::default();
        let mut start = 0;
        for end in self.ends.iter().copied().chain([self.rows.len()]) {
            let unit = &self.rows[start..end];
            start = end;
            let bytes = unit.iter().map(size).sum();
            if !open.takes(unit.len(), bytes) {
                done.push(std::mem::take(&mut open));
            }
            for row in unit {
                if !open.takes(1, size(row)) {
                    done.push(std::mem::take(&mut open));
                }
                open.add(row);
            }
        }
        done.push(open);
        done.retain(|t| !t.rows.is_empty());
        done
    }
}

/// Keeps those that are new from the end.
fn keep_last<T>(all: &mut Vec<T>, is_new: impl FnMut(&T) -> bool) {
    all.reverse();
    all.retain(is_new);
    all.reverse();
}

fn size((key, value): &(String, Option<Vec<u8>>)) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len)
}

/// Rows that are written together.
#[derive(Default)]
pub(super) struct Transaction<'a> {
    /// Each key once: etcd refuses to write one twice in a transaction, and only the last
    /// write counts.
    rows: Vec<(&'a str, Option<&'a [u8]>)>,
    places: HashMap<&'a str, usize>,
    bytes: usize,
}

impl<'a> Transaction<'a> {
    fn takes(&self, rows: usize, bytes: usize) -> bool {
        self.rows.len() + rows <= ROWS_TOGETHER && self.bytes + bytes <= TRANSACTION_MAX
    }

    fn add(&mut self, row: &'a (String, Option<Vec<u8>>)) {
        let (key, value) = (row.0.as_str(), row.1.as_deref());
        self.bytes += size(row);
        match self.places.get(key) {
            Some(&place) => self.rows[place].1 = value,
            None => {
                self.places.insert(key, self.rows.len());
                self.rows.push((key, value));
            }
        }
    }

    /// The rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        self.rows.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(batch: &Batch) -> Vec<usize> {
        let transactions = batch.transactions();
        transactions.iter().map(|t| t.rows().count()).collect()
    }

    fn unit(batch: &mut Batch, name: &str, rows: usize) {
        (0..rows).for_each(|n| batch.put(format!("{name}/{n}"), &n));
        batch.end_unit();
    }

    #[test]
    fn units_are_not_cut_unless_they_are_too_large() {
        let mut batch = Batch::default();
        unit(&mut batch, "a", 60);
        unit(&mut batch, "b", 60);
        unit(&mut batch, "c", 40);
        unit(&mut batch, "d", 250);
        assert_eq!(lengths(&batch), [60, 100, 100, 100, 50]);
        assert!(Batch::default().transactions().is_empty());
    }

    #[test]
    fn long_rows_get_transactions_of_their_own() {
        let mut batch = Batch::default();
        let long = "x".repeat(ROW_MAX - 2);
        batch.put("a", &long);
        batch.put("b", &long);
        batch.put("c", &1);
        batch.check().unwrap();
        assert_eq!(lengths(&batch), [1, 2]);
        batch.put("d", &"x".repeat(ROW_MAX));
        let error = batch.check().unwrap_err().to_string();
        assert!(error.contains("\"d\""), "{error}");
    }

    #[test]
    fn what_waits_for_a_disk_is_no_more_than_what_is_remembered() {
        let key = |n| ItemKey { tenant: 7, key: vec![n].into() };
        let (mut waiting, mut whole) = (Batch::default(), Batch::default());
        for round in 0..50_u8 {
            let mut batch = Batch::default();
            (0..10).for_each(|n| batch.put(format!("kept/{n}"), &round));
            batch.delete(format!("kept/{}", round % 10));
            batch.items = vec![(1, key(round % 3), round % 2 == 0)];
            whole.append(batch.clone());
            waiting.append(batch);
            waiting.compact();
        }
        assert_eq!((waiting.rows.len(), waiting.items.len()), (10, 3));
        let [mut of_all, mut of_last] = [(); 2].map(|()| crate::state::LoadedState::default());
        of_all.apply(&whole);
        of_last.apply(&waiting);
        assert_eq!(of_last, of_all);
    }

    #[test]
    fn the_last_write_of_a_row_counts_also_over_batches() {
        let mut batch = Batch::default();
        batch.put("a", &1);
        batch.put("b", &1);
        batch.delete("a");
        let mut later = Batch::default();
        later.put("b", &2);
        batch.append(later);
        let transactions = batch.transactions();
        let rows: Vec<_> = transactions[0].rows().collect();
        assert_eq!(rows, [("a", None), ("b", Some(&b"2"[..]))]);
    }
}
