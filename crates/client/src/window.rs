//! How far a client's writes to one store may run ahead of the oldest that has no outcome yet.
//!
//! A store remembers the last 256 writes of a client (rule 7). A write that was lost, and is
//! overtaken by more than that many, looks to the store like one that it has forgotten: it would
//! never be answered. So the ids of the writes in flight to a store span at most half of what it
//! remembers. They are numbered in a row of their own, for the second switch of a loan remembers
//! ids, not writes.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Semaphore;

/// Most writes from the oldest without an outcome to the newest.
const SPAN: usize = 128;

/// The writes of one client to one store, from the oldest that has no outcome. Ids must be taken in
/// the order of entering.
#[derive(Default)]
pub(crate) struct Writes {
    /// Number of the write at the front.
    first: u64,
    /// Per write, in order of request id: whether it has ended.
    ended: VecDeque<bool>,
}

impl Writes {
    /// The number of one more write, if there is a place for it.
    pub fn enter(&mut self) -> Option<u64> {
        (self.ended.len() < SPAN).then(|| {
            self.ended.push_back(false);
            self.first + self.ended.len() as u64 - 1
        })
    }

    /// Ends a write; returns how many places that frees.
    pub fn leave(&mut self, number: u64) -> usize {
        self.ended[(number - self.first) as usize] = true;
        let freed = self.ended.iter().take_while(|ended| **ended).count();
        self.ended.drain(..freed);
        self.first += freed as u64;
        freed
    }
}

/// [`Writes`] that tasks wait for a place among.
pub(crate) struct WriteWindow {
    places: Semaphore,
    writes: Mutex<Writes>,
}

/// A write's place in the window; ends the write when dropped.
pub(crate) struct Place<'a> {
    window: &'a WriteWindow,
    number: u64,
}

impl WriteWindow {
    pub fn new() -> WriteWindow {
        WriteWindow { places: Semaphore::new(SPAN), writes: Mutex::default() }
    }

    /// Waits for a place and takes an id for it: `new_id` is called in the order of the places.
    pub async fn enter<I>(&self, new_id: impl FnOnce() -> I) -> (Place<'_>, I) {
        let permit = self.places.acquire().await.expect("the semaphore is never closed");
        permit.forget();
        let mut writes = self.lock();
        let number = writes.enter().expect("there are as many permits as places");
        let window = self;
        (Place { window, number }, new_id())
    }

    fn lock(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let freed = self.window.lock().leave(self.number);
        self.window.places.add_permits(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_oldest_write_holds_back_the_span_and_no_more() {
        let window = WriteWindow::new();
        let mut id = 0;
        let mut enter = || {
            window
                .enter(|| {
                    id += 1;
                    id
                })
                .now_or_never()
        };
        let (oldest, first) = enter().unwrap();
        for n in 1..SPAN {
            assert_eq!(enter().unwrap().1, first + n);
        }
        assert!(enter().is_none(), "a write {SPAN} ahead of one without an outcome");
        drop(oldest);
        let held: Vec<_> = (0..SPAN).map(|_| enter().unwrap().0).collect();
        assert!(enter().is_none());
        drop(held);
        assert!(enter().is_some());
    }
}
