//! How far a client's writes to one store may run ahead of the oldest that has no outcome yet.
//!
//! A store remembers the last 256 writes of a client (rule 7). A write that was lost, and is overtaken by more than
//! that many, looks to the store like one that it has forgotten: it would never be answered. So the ids of the
//! writes in flight to a store span at most half of what it remembers.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Semaphore;

/// Most writes from the oldest without an outcome to the newest.
const SPAN: usize = 128;

pub(crate) struct WriteWindow {
    places: Semaphore,
    writes: Mutex<Writes>,
}

#[derive(Default)]
struct Writes {
    /// Number of the write at the front.
    first: u64,
    /// Per write, in order of request id: whether it has ended.
    ended: VecDeque<bool>,
}

/// A write's place in the window; ends the write when dropped.
pub(crate) struct Place<'a> {
    window: &'a WriteWindow,
    number: u64,
}

impl WriteWindow {
    pub fn new() -> WriteWindow {
        WriteWindow {
            places: Semaphore::new(SPAN),
            writes: Mutex::default(),
        }
    }

    /// Waits for a place and takes an id for it: `new_id` is called in the order of the places.
    pub async fn enter<I>(&self, new_id: impl FnOnce() -> I) -> (Place<'_>, I) {
        let permit = self
            .places
            .acquire()
            .await
            .expect("the semaphore is never closed");
        permit.forget();
        let mut writes = self.lock();
        let number = writes.first + writes.ended.len() as u64;
        writes.ended.push_back(false);
        (
            Place {
                window: self,
                number,
            },
            new_id(),
        )
    }

    fn lock(&self) -> MutexGuard<'_, Writes> {
        self.writes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut writes = self.window.lock();
        let at = (self.number - writes.first) as usize;
        writes.ended[at] = true;
        let freed = writes.ended.iter().take_while(|ended| **ended).count();
        writes.ended.drain(..freed);
        writes.first += freed as u64;
        drop(writes);
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
        assert!(
            enter().is_none(),
            "a write {SPAN} ahead of one without an outcome"
        );
        drop(oldest);
        let held: Vec<_> = (0..SPAN).map(|_| enter().unwrap().0).collect();
        assert!(enter().is_none());
        drop(held);
        assert!(enter().is_some());
    }
}
