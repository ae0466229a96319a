//! What changed and is to be remembered, in the order in which it changed, and how far it is.
//!
//! Whoever must not act before a change is safe asks for the position after it and waits until that is durable.

use std::collections::VecDeque;

use serde::Serialize;

/// A row of the state store: its key, and its value; none: the row goes.
pub type Row = (String, Option<Vec<u8>>);

/// Rows on their way to the state store.
#[derive(Debug, Default)]
pub struct Journal {
    rows: VecDeque<Row>,
    /// Rows ever noted, and those of them that are durable.
    made: u64,
    durable: u64,
}

impl Journal {
    /// A row is to be as `value`.
    pub fn put(&mut self, key: String, value: &impl Serialize) {
        let json = serde_json::to_vec(value).expect("plain data is always valid JSON");
        self.note((key, Some(json)));
    }

    /// A row is to go.
    pub fn delete(&mut self, key: String) {
        self.note((key, None));
    }

    fn note(&mut self, row: Row) {
        self.rows.push_back(row);
        self.made += 1;
    }

    /// The position after everything noted so far.
    pub fn position(&self) -> u64 {
        self.made
    }

    /// Up to which position everything is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Rows to write next, in order, at most so many. They stay until [`Journal::written`] says that they are.
    pub fn next(&self, most: usize) -> Vec<Row> {
        self.rows.iter().take(most).cloned().collect()
    }

    /// The first `count` rows are durable.
    pub fn written(&mut self, count: usize) {
        self.rows.drain(..count.min(self.rows.len()));
        self.durable = self.made - self.rows.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_durable_when_all_before_it_is_written() {
        let mut journal = Journal::default();
        journal.put("a".into(), &1);
        let first = journal.position();
        journal.delete("b".into());
        let second = journal.position();
        assert_eq!(journal.next(1), [("a".into(), Some(b"1".to_vec()))]);
        journal.written(1);
        assert!(journal.durable() >= first && journal.durable() < second);
        journal.put("c".into(), &2);
        assert_eq!(journal.next(9).len(), 2);
        journal.written(2);
        assert_eq!(journal.durable(), journal.position());
    }
}
