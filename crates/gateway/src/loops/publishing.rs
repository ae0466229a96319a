//! Messages that are published behind a subscription.
//!
//! Who subscribes does so by a connection of its own, which may have to be made first; who
//! publishes, by one that is there. To a Redis, which hears both as they were said, the message
//! comes second. So it waits until the subscriptions that were said before it are confirmed, of
//! whichever event loop, for a while.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::EventLoop;

/// A message does not wait longer: a server that confirms nothing would not take it either.
const WAITS_AT_MOST: Duration = Duration::from_millis(200);
/// How often it is looked whether those of other event loops are confirmed.
const LOOKED_EVERY: Duration = Duration::from_millis(1);

/// The subscriptions of all event loops, which have numbers in the order in which they were begun.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<SubscriptionNumbers>);

#[derive(Default)]
struct SubscriptionNumbers {
    /// How many were begun: the number of the next one.
    begun: u64,
    /// Those that are not confirmed.
    open: BTreeSet<u64>,
}

impl Subscriptions {
    fn numbers(&self) -> MutexGuard<'_, SubscriptionNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many were begun.
    fn begun(&self) -> u64 {
        self.numbers().begun
    }

    /// Whether of the first so many each is over.
    fn are_over(&self, first: u64) -> bool {
        self.numbers().open.first().is_none_or(|least| *least >= first)
    }
}

/// One that is not confirmed, until it is dropped.
pub(super) struct OpenSubscription {
    all: Arc<Subscriptions>,
    number: u64,
}

impl OpenSubscription {
    /// One more.
    pub fn begin(all: &Arc<Subscriptions>) -> OpenSubscription {
        let mut numbers = all.numbers();
        let number = numbers.begun;
        numbers.begun += 1;
        numbers.open.insert(number);
        OpenSubscription { all: all.clone(), number }
    }
}

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.all.numbers().open.remove(&self.number);
    }
}

/// What a message waits for: the first so many subscriptions, or this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    begun: u64,
    until: Instant,
}

impl EventLoop {
    /// Whether a client's message has to wait.
    pub(super) fn is_behind_subscriptions(&mut self, at: usize) -> bool {
        let all = &self.shared.subscriptions;
        let until = self.now + WAITS_AT_MOST;
        let client = &mut self.clients[at];
        let new = || Behind { begun: all.begun(), until };
        let behind = *client.behind.get_or_insert_with(new);
        let waits = self.now < behind.until && !all.are_over(behind.begun);
        match waits {
            true => self.publishers.push(at),
            false => client.behind = None,
        }
        waits
    }

    /// Has those looked at again whose messages wait.
    pub(super) fn wake_publishers(&mut self) {
        for at in std::mem::take(&mut self.publishers) {
            self.make_ready(at);
        }
    }

    /// When that has to be, at the latest.
    pub(super) fn next_publisher(&self) -> Option<Instant> {
        (!self.publishers.is_empty()).then(|| self.now + LOOKED_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_begun_later_do_not_count_for_one_before_them() {
        let all = Arc::default();
        let (first, second) = (OpenSubscription::begin(&all), OpenSubscription::begin(&all));
        let begun = all.begun();
        let later = [(); 3].map(|()| OpenSubscription::begin(&all));
        drop(later);
        assert!(!all.are_over(begun));
        drop(first);
        assert!(!all.are_over(begun));
        drop(second);
        assert!(all.are_over(begun));
    }
}
