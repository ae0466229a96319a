//! What changed and is to be remembered, in the order in which it changed, and how far it is.
//!
//! Whoever must not act before a change is safe asks for the position after it and waits until that
//! is durable.

use serde::Serialize;

use crate::state::Batch;

/// Rows on their way to the state store.
#[derive(Debug, Default)]
pub struct Journal {
    pending: Batch,
    /// Rows ever noted, and those of them that are durable.
    made: u64,
    durable: u64,
}

impl Journal {
    /// A row is to be as `value`.
    pub fn put(&mut self, key: String, value: &impl Serialize) {
        self.pending.put(key, value);
        self.made += 1;
    }

    /// A row is to go.
    pub fn delete(&mut self, key: String) {
        self.pending.delete(key);
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

    /// Whether rows wait to be taken.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is to be written, with the position after it. One batch at a time.
    pub fn take(&mut self) -> (Batch, u64) {
        self.pending.end_unit();
        (std::mem::take(&mut self.pending), self.made)
    }

    /// The batch up to this position is durable.
    pub fn written(&mut self, position: u64) {
        self.durable = position;
    }

    /// The batch that was taken last could not be written: it comes first again.
    pub fn put_back(&mut self, mut batch: Batch) {
        batch.append(std::mem::take(&mut self.pending));
        self.pending = batch;
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
        let (batch, position) = journal.take();
        journal.delete("b".into());
        assert!(journal.durable() < first);
        journal.put_back(batch);
        let (batch, second) = journal.take();
        assert_eq!(batch.rows().len(), 2);
        assert_eq!(batch.rows()[0].0, "a");
        journal.written(second);
        assert!(position < second && journal.durable() == journal.position());
        assert!(!journal.is_pending());
    }
}
