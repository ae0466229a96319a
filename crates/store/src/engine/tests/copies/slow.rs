//! A backend that answers later.

use std::sync::{Arc, Mutex};

use super::super::loans::world::LastingBackend;
use crate::backend::{Answer, Backend, Change, Completion, Item, Key, Put, ReadOutcome, Ticket};

/// A backend in another process: it does what it is asked in order, and answers later.
pub struct Slow {
    pub inner: LastingBackend,
    pub answers: Arc<Mutex<Vec<Completion>>>,
}

impl Slow {
    fn later<T>(&self, completion: Completion) -> Answer<T> {
        self.answers.lock().unwrap().push(completion);
        Answer::Later
    }
}

impl Backend for Slow {
    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        let found = match self.inner.get(key, now_ns, ticket) {
            Answer::Now(Some(item)) => ReadOutcome::Item(Item {
                value: item.value.to_vec(),
                version: item.version,
                expiry_ms: item.expiry_ms,
            }),
            _ => ReadOutcome::Absent,
        };
        self.later(Completion::Get(ticket, found))
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        match self.inner.put(key, put, now_ns, ticket) {
            Answer::Now(change) => self.later(Completion::Change(ticket, change)),
            Answer::Later => Answer::Later,
        }
    }
}
