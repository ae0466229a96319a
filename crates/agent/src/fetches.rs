//! Values of new entries that are still to be fetched. Reads would fetch them too, but later.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use dataplane::Place;
use decide::ItemKey;
use wire::Epoch;

/// After so many a key is taken to have no value, and its entry is given up.
const TRIES: u32 = 4;
/// A new entry waits so long for an answer that passes: what is hot has its value by then, and its
/// store has one request less.
const PATIENCE: Duration = Duration::from_millis(80);
/// From the first fetch to the second; it doubles. Longer than a full queue takes at a store that
/// has too much to do: asked again sooner, it would have more.
const FIRST_PAUSE: Duration = Duration::from_millis(160);
/// Looked at in one tick; the rest wait for the next.
const PER_TICK: usize = 1_000;

struct Fetch {
    key: ItemKey,
    place: Place,
    due: Instant,
    tries: u32,
}

/// What is to be done about fetches at one moment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FetchRound {
    /// To be asked for, each under its item's epoch.
    pub send: Vec<(ItemKey, Epoch)>,
    /// Keys that have no value.
    pub without_value: Vec<ItemKey>,
}

#[derive(Default)]
pub(super) struct Fetches {
    queue: VecDeque<Fetch>,
}

impl Fetches {
    /// Wants the value of an item that lies there.
    pub fn add(&mut self, key: ItemKey, place: Place, now: Instant) {
        self.push(key, place, now + PATIENCE, 0);
    }

    /// Items that were read but hold no value (their key was deleted, say) get another try,
    /// then go.
    pub fn add_again(&mut self, items: impl Iterator<Item = (ItemKey, Place)>, now: Instant) {
        if self.queue.is_empty() {
            items.for_each(|(key, place)| self.push(key, place, now, TRIES / 2));
        }
    }

    fn push(&mut self, key: ItemKey, place: Place, due: Instant, tries: u32) {
        self.queue.push_back(Fetch { key, place, due, tries });
    }

    /// What is due at `now`. `wants` says under which epoch an item wants its value: it may have
    /// one by now, or be gone.
    pub fn due(
        &mut self,
        now: Instant,
        wants: impl Fn(&ItemKey, Place) -> Option<Epoch>,
    ) -> FetchRound {
        let (mut due, mut again) = (FetchRound::default(), vec![]);
        for _ in 0..self.queue.len().min(PER_TICK) {
            let Some(fetch) = self.queue.pop_front() else { break };
            let Some(epoch) = wants(&fetch.key, fetch.place) else { continue };
            if fetch.due > now {
                again.push(fetch);
            } else if fetch.tries >= TRIES {
                due.without_value.push(fetch.key);
            } else {
                due.send.push((fetch.key.clone(), epoch));
                again.push(Fetch {
                    due: now + FIRST_PAUSE * (1 << fetch.tries),
                    tries: fetch.tries + 1,
                    ..fetch
                });
            }
        }
        self.queue.extend(again);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { page: 1, cell: 0, cells: 3 };

    fn key(name: &'static str) -> ItemKey {
        ItemKey { tenant: 7, key: name.into() }
    }

    fn wants_all(_: &ItemKey, _: Place) -> Option<Epoch> {
        Some(Epoch::new(1, 5))
    }

    /// How often it was sent until it was given up, if asked every millisecond.
    fn sent_until_given_up(fetches: &mut Fetches, start: Instant) -> (usize, Duration) {
        let mut sent = 0;
        for ms in 0.. {
            let since = Duration::from_millis(ms);
            let due = fetches.due(start + since, wants_all);
            sent += due.send.len();
            if !due.without_value.is_empty() {
                return (sent, since);
            }
        }
        unreachable!()
    }

    #[test]
    fn waits_for_an_answer_that_passes_then_is_sent_in_doubling_steps_and_then_given_up() {
        let (start, mut fetches) = (Instant::now(), Fetches::default());
        fetches.add(key("a"), PLACE, start);
        let (sent, since) = sent_until_given_up(&mut fetches, start);
        assert_eq!((sent, since), (4, PATIENCE + FIRST_PAUSE * 15));
        assert_eq!(fetches.due(start + since * 2, wants_all), FetchRound::default());
        fetches.add_again([(key("a"), PLACE)].into_iter(), start);
        assert_eq!(sent_until_given_up(&mut fetches, start).0, 2);
    }

    #[test]
    fn what_has_a_value_or_is_gone_is_left_out() {
        let (start, mut fetches) = (Instant::now(), Fetches::default());
        fetches.add(key("a"), PLACE, start);
        fetches.add(key("b"), PLACE, start);
        assert_eq!(fetches.due(start, wants_all), FetchRound::default());
        let due =
            fetches.due(start + PATIENCE, |key, _| (key.key == "b").then(|| Epoch::new(1, 9)));
        assert_eq!(due.send, [(key("b"), Epoch::new(1, 9))]);
        let later = start + Duration::from_secs(9);
        let due = fetches.due(later, wants_all);
        assert_eq!(due.send.len(), 1);
        fetches.add_again([(key("a"), PLACE)].into_iter(), later);
        assert_eq!(fetches.due(later, wants_all), FetchRound::default(), "others are under way");
    }

    #[test]
    fn so_many_in_one_tick_and_no_more() {
        let (start, mut fetches) = (Instant::now(), Fetches::default());
        (0..PER_TICK + 1).for_each(|_| fetches.add(key("a"), PLACE, start));
        let due = start + PATIENCE;
        assert_eq!(fetches.due(due, wants_all).send.len(), PER_TICK);
        assert_eq!(fetches.due(due, wants_all).send.len(), 1);
    }
}
