//! Who is silent: found from what each member's agent says of the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Who does not hear another says so at about the same time as others that do not; they are waited
/// for.
const OTHERS_WITHIN: Duration = Duration::from_millis(40);
/// A member's agent says something more often than this.
const MUTE_AFTER: Duration = Duration::from_millis(150);
/// Only what was said within this time counts.
const HEARD_FOR: Duration = Duration::from_millis(300);

/// When a member last said whom it does not hear, and whom it did not hear yet: the time, and two
/// masks of slots.
type SilenceReport = (Duration, u16, u16);

/// What members say of one another, by slot.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    by_slot: BTreeMap<u8, SilenceReport>,
    /// When each member's agent last said anything, under whichever view.
    spoke: BTreeMap<u8, Duration>,
    /// Since when somebody is not heard.
    since: Option<Duration>,
}

/// How little a member would be missed, for those that as many others do not hear; before that,
/// whether nothing is heard of it either.
pub type Weight = (bool, bool, bool, usize);

impl Reports {
    /// The member in that slot does not hear those in the slots of the first mask, and did not hear
    /// those of the second yet.
    pub fn say(&mut self, now: Duration, slot: u8, (silent, unheard): (u16, u16)) {
        self.by_slot.insert(slot, (now, silent, unheard));
    }

    /// The agent of the member in that slot said something: it lives.
    pub fn spoke(&mut self, now: Duration, slot: u8) {
        self.spoke.insert(slot, now);
    }

    /// There is no member in that slot any longer.
    pub fn forget(&mut self, slot: u8) {
        self.spoke.remove(&slot);
    }

    /// All begins anew: the view is another one.
    pub fn clear(&mut self) {
        let spoke = std::mem::take(&mut self.spoke);
        *self = Reports { spoke, ..Reports::default() };
    }

    /// Whether a member's agent said something once, and nothing for long.
    fn stopped(&self, now: Duration, slot: u8) -> bool {
        let spoke = self.spoke.get(&slot);
        spoke.is_some_and(|spoke| *spoke + MUTE_AFTER < now)
    }

    /// Whether nothing was heard of a member for long.
    pub fn is_mute(&self, now: Duration, slot: u8) -> bool {
        let heard = self.by_slot.get(&slot);
        heard.is_none_or(|(heard, ..)| *heard + MUTE_AFTER < now)
    }

    /// As [`Reports::in_the_way`], once all the others had time to say whom they do not hear.
    pub fn leaving(
        &mut self,
        now: Duration,
        chains: &[Vec<u8>],
        weight: impl Fn(u8) -> Weight,
    ) -> BTreeSet<u8> {
        let gone = self.in_the_way(now, chains, weight);
        if gone.is_empty() {
            self.since = None;
            return gone;
        }
        let since = *self.since.get_or_insert(now);
        let said = |slot: &u8| {
            let heard = self.by_slot.get(slot);
            gone.contains(slot) || heard.is_some_and(|(heard, ..)| *heard >= since)
        };
        let all_said = chains.iter().flatten().all(said);
        match all_said || now >= since + OTHERS_WITHIN {
            true => gone,
            false => BTreeSet::new(),
        }
    }

    /// Who has to go so that everybody hears everybody within each of these chains: again and again
    /// the one that is in most pairs that do not hear each other; of several the one of the highest
    /// weight. Who says nothing itself goes before all others: where two die at once that are in
    /// chains with a third, but in none together, that one does not hear two, and lives.
    fn in_the_way(
        &self,
        now: Duration,
        chains: &[Vec<u8>],
        weight: impl Fn(u8) -> Weight,
    ) -> BTreeSet<u8> {
        let mut pairs = BTreeSet::new();
        for (slot, (heard, silent, unheard)) in &self.by_slot {
            // Who was not told of the view yet is waited for, unless nobody is there to be told.
            let misses = |other: u8| {
                let is_in = |mask: &u16| mask & 1 << other != 0;
                is_in(silent) || is_in(unheard) && self.stopped(now, other)
            };
            let others = (0..16u8).filter(|other| misses(*other));
            let is_new = *heard + HEARD_FOR >= now;
            pairs.extend(
                others
                    .filter(|other| is_new && other != slot)
                    .map(|other| (*slot.min(&other), *slot.max(&other))),
            );
        }
        let together = |(a, b): &(u8, u8)| {
            let mut chains = chains.iter();
            chains.any(|chain| chain.contains(a) && chain.contains(b))
        };
        pairs.retain(together);
        let mut gone = BTreeSet::new();
        while !pairs.is_empty() {
            let in_pairs = |slot: u8| {
                let has = |(a, b): &&(u8, u8)| *a == slot || *b == slot;
                pairs.iter().filter(has).count()
            };
            let all: BTreeSet<u8> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let is_mute = |slot| weight(slot).0;
            let most =
                all.into_iter().max_by_key(|slot| (is_mute(*slot), in_pairs(*slot), weight(*slot)));
            let Some(most) = most else { break };
            pairs.retain(|(a, b)| *a != most && *b != most);
            gone.insert(most);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn weight(slot: u8) -> Weight {
        (false, false, false, slot.into())
    }

    #[test]
    fn the_one_that_nobody_hears_goes() {
        let mut reports = Reports::default();
        reports.say(NOW, 0, (1 << 1, 0));
        reports.say(NOW, 2, (1 << 1, 0));
        // It hears nobody either.
        reports.say(NOW, 1, (1 << 0 | 1 << 2, 0));
        let chains = [vec![0, 1, 2]];
        assert_eq!(reports.in_the_way(NOW, &chains, weight), [1].into());
    }

    #[test]
    fn who_does_not_hear_two_that_are_dead_stays() {
        let mut reports = Reports::default();
        reports.say(NOW, 2, (1 << 0 | 1 << 1, 0));
        let chains = [vec![0, 2], vec![2, 1], vec![0, 3], vec![1, 3]];
        let mute = |slot: u8| (slot < 2, false, false, 0);
        assert_eq!(reports.in_the_way(NOW, &chains, mute), [0, 1].into());
        // As long as all say something, it is the one that two do not hear.
        assert_eq!(reports.in_the_way(NOW, &chains, weight), [2].into());
    }

    #[test]
    fn the_others_are_waited_for_a_moment() {
        let mut reports = Reports::default();
        let chains = [vec![0, 1, 2]];
        reports.say(NOW, 1, (1 << 0, 0));
        assert_eq!(reports.leaving(NOW, &chains, weight), [].into());
        let later = NOW + Duration::from_millis(10);
        reports.say(later, 2, (1 << 0, 0));
        assert_eq!(reports.leaving(later, &chains, weight), [0].into());
        // The third has nothing to say, or cannot.
        let mut reports = Reports::default();
        reports.say(NOW, 1, (1 << 0, 0));
        assert_eq!(reports.leaving(NOW, &chains, weight), [].into());
        assert!(!reports.is_mute(later, 1) && reports.is_mute(later, 0));
        let later = NOW + OTHERS_WITHIN;
        assert_eq!(reports.leaving(later, &chains, weight), [1].into());
    }

    #[test]
    fn of_two_the_lighter_stays_and_of_none_both() {
        let mut reports = Reports::default();
        reports.say(NOW, 0, (1 << 1, 0));
        assert_eq!(reports.in_the_way(NOW, &[vec![1, 0]], weight), [1].into());
        let heavy = |slot| (false, slot == 0, false, 0);
        assert_eq!(reports.in_the_way(NOW, &[vec![1, 0]], heavy), [0].into());
        assert_eq!(reports.in_the_way(NOW, &[vec![0], vec![1]], heavy), [].into());
        let late = NOW + Duration::from_millis(301);
        assert_eq!(reports.in_the_way(late, &[vec![0, 1]], heavy), [].into());
    }

    #[test]
    fn who_was_not_told_yet_is_waited_for_unless_nobody_is_there() {
        let mut reports = Reports::default();
        let chains = [vec![0, 1, 2]];
        (0..3).for_each(|slot| reports.spoke(NOW, slot));
        reports.clear();
        let later = NOW + Duration::from_millis(200);
        for slot in [0, 2] {
            reports.spoke(later, slot);
            reports.say(later, slot, (0, 1 << 1));
        }
        assert_eq!(reports.in_the_way(later, &chains, weight), [1].into());
        reports.spoke(later, 1);
        assert_eq!(reports.in_the_way(later, &chains, weight), [].into());
        // One that was never heard of joins.
        reports.forget(1);
        assert_eq!(reports.in_the_way(later, &chains, weight), [].into());
    }
}
