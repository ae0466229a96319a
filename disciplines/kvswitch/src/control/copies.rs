//! The hybrid: which hot keys stand as copies of their values at the switch, instead of having
//! replicas.
//!
//! A copy leaves a key's home each write once, and the reads that meet the copy between a write and
//! its reply: the more of these the busier the home is, so that a copy of a key that is much
//! written can have a home do all of the key's work. r servers that share a key have all of its
//! reads and each write r times. So a copy costs all servers together less wherever it can be had,
//! but may cost one of them more.
//!
//! Every hot key begins as a copy, if there is room and more is read than written. It has replicas
//! instead if its value does not fit, which the switch says; if its copy answers less than half of
//! its reads, which the switch counts; and if its home has too much to do, the costliest of that
//! home first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{Change, Key, Outcome, Record};

/// A key with fewer requests in a window than this is not worth a change.
const LEAST: f64 = 4.0;
/// A copy makes way for a key only that has so many times its load.
const STAYS: f64 = 1.5;
/// Where more than this part of the requests writes, a copy is read once at most before it is gone.
const WRITES_MOST: f64 = 0.5;
/// So far below it they have to fall before there are copies again.
const WRITES_BELOW: f64 = 0.05;
/// The time for which a key is no copy whose value does not fit, or that cost too much; and the
/// time for one that only found no room, or was not sent.
const UNFIT: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(10);
/// What of an average server's load reads that a copy did not answer are at least before it is one
/// that costs too much.
const COSTS: f64 = 0.02;
/// Of the room, one part in so many is kept for more keys with replicas than there are; and no more
/// than that of all of them, but for keys that cannot be copies.
const RECORDS_LEAST: usize = 16;
const RECORDS_MOST: usize = 4;
/// A copy that leaves more than this part of a key's reads to its home is not worth having where
/// replicas can be had.
const EMPTY: f64 = 0.5;
/// What cost too much is tried again when it has less than this part of the load that it had.
const CHEAPER: f64 = 0.5;

/// The situation that a plan goes by.
pub struct Situation<'a> {
    /// The hottest keys with their loads in requests of a window, the hottest first.
    pub hottest: &'a [(Key, f64)],
    /// The load of any other key.
    pub load: &'a dyn Fn(&Key) -> f64,
    /// Requests of a window beyond which a key that is no copy gets replicas, and needs room for
    /// that.
    pub threshold: f64,
    /// How many servers a key of this load may have.
    pub most: &'a dyn Fn(f64) -> usize,
    /// The server that has a key's home; none: its requests are not counted here.
    pub home: &'a dyn Fn(&Key) -> Option<usize>,
    /// What each server has to do, in requests of a window beside its weight.
    pub loads: &'a [f64],
    /// What they have to do on average, and what is too much.
    pub average: f64,
    pub full: f64,
    /// The part of the requests that writes.
    pub writes: f64,
    /// Items that there is room for, of both kinds.
    pub room: usize,
    /// Keys that have replicas.
    pub records: usize,
    /// Changes that may be made.
    pub changes: usize,
    /// Keys that are left alone for now: those that have replicas.
    pub busy: &'a dyn Fn(&Key) -> bool,
}

/// A change of a copy. A plan has them in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyChange {
    /// It is to have replicas. Until then the switch has it as a copy.
    Yield(Key),
    /// It is a copy no longer.
    Remove(Key),
    /// It is to be one.
    Put(Key),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Asked,
    There,
    Leaving,
}

/// The state of a key that is a copy, or on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CopyState {
    stage: Stage,
    /// Reads of the present window that it did not answer; none: it was not there when that began.
    missed: Option<f64>,
    /// The reads that it did not answer in windows before, as far as one was whole.
    cost: Option<f64>,
}

impl CopyState {
    fn new(stage: Stage) -> CopyState {
        CopyState { stage, missed: None, cost: None }
    }

    fn window_end(&mut self) {
        if let Some(missed) = self.missed {
            self.cost = Some(self.cost.map_or(missed, |cost| (cost + missed) / 2.0));
        }
        self.missed = (self.stage == Stage::There).then_some(0.0);
    }
}

/// The exclusion of a key that is no copy for now.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Exclusion {
    until: Duration,
    /// The load; with less than it the key may be a copy before.
    load: f64,
}

/// The copies of a tenant at a switch.
#[derive(Debug)]
pub struct Copies {
    is_on: bool,
    /// Whether writes allow them.
    allowed: bool,
    /// Keys that are remembered as unfit.
    most: usize,
    keys: BTreeMap<Key, CopyState>,
    /// Keys that are to be copies as soon as they have no replicas.
    wanted: BTreeSet<Key>,
    unfit: BTreeMap<Key, Exclusion>,
}

impl Copies {
    /// None yet; never any unless `is_on`. `most` items may be there, of any kind.
    pub fn new(is_on: bool, most: usize) -> Copies {
        Copies {
            is_on,
            allowed: true,
            most: 4 * most.max(1),
            keys: BTreeMap::new(),
            wanted: BTreeSet::new(),
            unfit: BTreeMap::new(),
        }
    }

    /// The number of copies that are there or under way.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Keys that are known to be unfit: too large, or too costly, or without room for now.
    pub fn unfit(&self) -> usize {
        self.unfit.len()
    }

    /// Whether the switch has the key as a copy, or may have.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether the key is no affair of the replicas': it is a copy, or to be one.
    pub fn takes(&self, key: &Key) -> bool {
        self.has(key) || self.wanted.contains(key)
    }

    /// Keys of these that would be here if there were room.
    pub fn worth(&self, hottest: &[(Key, f64)]) -> usize {
        match self.is_on && self.allowed {
            true => hottest.partition_point(|(_, load)| *load >= LEAST),
            false => 0,
        }
    }

    /// `requests` reads of a copy went home in this window so far. False: the key is no copy.
    pub fn missed(&mut self, key: &Key, requests: u64) -> bool {
        let Some(copied) = self.keys.get_mut(key) else { return false };
        let missed = copied.missed.as_mut();
        if let Some(missed) = missed {
            *missed = missed.max(requests as f64);
        }
        true
    }

    /// What is to change after a window; it is taken as asked for.
    pub fn plan(&mut self, now: Duration, situation: &Situation<'_>) -> Vec<CopyChange> {
        let is_cheaper = |key: &Key, load: f64| load > 0.0 && (situation.load)(key) < load;
        self.unfit.retain(|key, unfit| unfit.until > now && !is_cheaper(key, unfit.load));
        self.wanted.clear();
        self.keys.values_mut().for_each(CopyState::window_end);
        let edge = WRITES_MOST - if self.allowed { 0.0 } else { WRITES_BELOW };
        self.allowed = situation.writes <= edge;
        if !self.is_on {
            return vec![];
        }
        let costly = self.costly(situation);
        for (key, load) in &costly {
            self.lost(now + UNFIT, load * CHEAPER, key);
        }
        let (chosen, room) =
            if self.allowed { self.chosen(situation) } else { (BTreeMap::new(), 0) };
        let changes = situation.changes - costly.len();
        let leaving = self.leaving(&chosen, room, changes, situation);
        let free = room.saturating_sub(self.len() - leaving.len());
        let most = free.min(changes - leaving.len());
        let absent = situation.hottest.iter().map(|(key, _)| key);
        let absent = absent.filter(|key| chosen.contains_key(*key) && !self.has(key));
        let absent = absent.take(most).cloned();
        let (wait, come): (Vec<Key>, Vec<Key>) = absent.partition(situation.busy);
        self.wanted = wait.into_iter().collect();
        let stages = leaving.iter().map(|key| (key, Stage::Leaving));
        for (key, stage) in stages.chain(come.iter().map(|key| (key, Stage::Asked))) {
            self.keys.insert(key.clone(), CopyState::new(stage));
        }
        let costly = costly.into_iter().map(|(key, _)| CopyChange::Yield(key));
        let leaving = leaving.into_iter().map(CopyChange::Remove);
        let come = come.into_iter().map(CopyChange::Put);
        costly.chain(leaving).chain(come).collect()
    }

    /// Copies that cost too much, with their loads. Of a home that has too much to do those that
    /// cost most, until it has no longer: of what others do not answer there it is to blame.
    fn costly(&self, situation: &Situation<'_>) -> Vec<(Key, f64)> {
        let there = self.keys.iter();
        let there = there.filter(|(_, copied)| copied.stage == Stage::There);
        let cost = |(key, copied): (&Key, &CopyState)| Some((copied.cost?, key.clone()));
        let worth = |(cost, _): &(f64, Key)| *cost > COSTS * situation.average;
        let mut there: Vec<(f64, Key)> = there.filter_map(cost).filter(worth).collect();
        there.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut loads = situation.loads.to_vec();
        let is_costly = |(cost, key): (f64, Key)| {
            let (load, home) = ((situation.load)(&key), (situation.home)(&key)?);
            let is_more = match situation.loads.get(home)? > &situation.full {
                true => loads[home] > situation.full,
                false => cost > load * EMPTY,
            };
            ((situation.most)(load) >= 2 && is_more).then(|| {
                loads[home] -= cost;
                (key, load)
            })
        };
        there.into_iter().filter_map(is_costly).take(situation.changes / 2).collect()
    }

    /// The hottest that fit, as many as there is room for; and that room, beside what those need
    /// that have replicas. These have theirs kept, and some more, for whose home will have too much
    /// to do next: they are smaller than copies, and few.
    fn chosen<'a>(&self, situation: &Situation<'a>) -> (BTreeMap<&'a Key, f64>, usize) {
        let load = |(key, load): &'a (Key, f64)| match self.has(key) {
            true => (key, load * STAYS),
            false => (key, *load),
        };
        let mut order: Vec<(&Key, f64)> = situation.hottest.iter().map(load).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let mut chosen = BTreeMap::new();
        let (least, most) = (situation.room / RECORDS_LEAST, situation.room / RECORDS_MOST);
        let (mut kept, mut needed) = ((situation.records + least).min(most), 0);
        for (key, load) in order {
            if chosen.len() + kept >= situation.room || load < LEAST {
                break;
            }
            if !self.unfit.contains_key(key) {
                chosen.insert(key, load);
            } else if load > situation.threshold {
                needed += 1;
                kept = kept.max(needed);
            }
        }
        (chosen, situation.room - kept)
    }

    /// Those that others need the room of, the coldest first.
    fn leaving(
        &self,
        chosen: &BTreeMap<&Key, f64>,
        room: usize,
        changes: usize,
        situation: &Situation<'_>,
    ) -> Vec<Key> {
        let new = chosen.keys().filter(|key| !self.has(key)).count();
        let excess = (self.len() + new).saturating_sub(room);
        let there = self
            .keys
            .iter()
            .filter(|(key, copied)| copied.stage == Stage::There && !chosen.contains_key(*key));
        let mut there: Vec<(f64, &Key)> =
            there.map(|(key, _)| ((situation.load)(key), key)).collect();
        there.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        // What leaves for another takes two changes.
        let most = match self.allowed {
            true => changes / 2,
            false => changes,
        };
        let coldest = there.into_iter().take(excess.min(most));
        coldest.map(|(_, key)| key.clone()).collect()
    }

    /// A change was answered. False: it is none that had been asked for of these.
    pub fn answered(
        &mut self,
        now: Duration,
        key: &Key,
        change: &Change,
        outcome: Outcome,
    ) -> bool {
        let Some(copied) = self.keys.get_mut(key) else { return false };
        let asked = match copied.stage {
            Stage::Asked => Change::Put(Record::Fetched),
            Stage::Leaving => Change::Remove,
            Stage::There => return false,
        };
        if asked != *change {
            return false;
        }
        match (copied.stage, outcome) {
            (Stage::Asked, Outcome::Done) | (Stage::Leaving, Outcome::NotSent) => {
                copied.stage = Stage::There;
            }
            (Stage::Leaving, _) => {
                self.keys.remove(key);
            }
            _ => self.lost(now + PAUSE, 0.0, key),
        }
        true
    }

    /// The switch gave a key up; `unfit`: it cannot have it. Of one that comes or goes its answer
    /// says more. False: it was none of these.
    pub fn dropped(&mut self, now: Duration, key: &Key, unfit: bool) -> bool {
        let Some(copied) = self.keys.get(key) else { return false };
        if copied.stage == Stage::There {
            self.lost(now + if unfit { UNFIT } else { PAUSE }, 0.0, key);
        }
        true
    }

    /// It is no copy until then, or until it has less load.
    fn lost(&mut self, until: Duration, load: f64, key: &Key) {
        self.keys.remove(key);
        if self.unfit.len() >= self.most {
            self.unfit.pop_first();
        }
        self.unfit.insert(key.clone(), Exclusion { until, load });
    }

    /// The switch attached, and has these of all keys. What is under way will be answered.
    pub fn holds(&mut self, held: &BTreeSet<&Key>) {
        self.keys.retain(|key, copied| copied.stage != Stage::There || held.contains(key));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u8) -> Key {
        Key::copy_from_slice(&[n])
    }

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    const PUT: Change = Change::Put(Record::Fetched);

    /// What is asked of the switch.
    fn of(change: &CopyChange) -> Change {
        match change {
            CopyChange::Put(_) => PUT,
            CopyChange::Remove(_) | CopyChange::Yield(_) => Change::Remove,
        }
    }

    struct Case {
        copies: Copies,
        loads: Vec<(Key, f64)>,
        room: usize,
        writes: f64,
        changes: usize,
        servers: usize,
        servers_have: [f64; 4],
        records: usize,
    }

    impl Case {
        /// Keys by number with their loads.
        fn of(loads: &[(u8, f64)], room: usize) -> Case {
            let mut given = Case {
                copies: Copies::new(true, 100),
                loads: vec![],
                room,
                writes: 0.0,
                changes: 100,
                servers: 4,
                servers_have: [100.0; 4],
                records: 0,
            };
            given.load(loads);
            given
        }

        fn load(&mut self, loads: &[(u8, f64)]) {
            self.loads = loads.iter().map(|(n, load)| (key(*n), *load)).collect();
            self.loads.sort_by(|a, b| b.1.total_cmp(&a.1));
        }

        fn plan(&mut self, s: u64, busy: impl Fn(&Key) -> bool) -> Vec<CopyChange> {
            let loads = &self.loads;
            let load = |key: &Key| loads.iter().find(|one| one.0 == key).map_or(0.0, |one| one.1);
            let situation = Situation {
                hottest: &self.loads,
                load: &load,
                threshold: 50.0,
                most: &|_| self.servers,
                home: &|key| Some(usize::from(key[0]) % 4),
                loads: &self.servers_have,
                average: 100.0,
                full: 110.0,
                writes: self.writes,
                room: self.room,
                records: self.records,
                changes: self.changes,
                busy: &busy,
            };
            self.copies.plan(at(s), &situation)
        }

        /// Plans, and all of it is done. What was put, and what was removed, by number.
        fn carry_out(&mut self, s: u64) -> (Vec<u8>, Vec<u8>) {
            let (mut put, mut removed) = (vec![], vec![]);
            for change in self.plan(s, |_| false) {
                let (to, key) = match &change {
                    CopyChange::Yield(key) => panic!("{key:?}"),
                    CopyChange::Put(key) => (&mut put, key),
                    CopyChange::Remove(key) => (&mut removed, key),
                };
                to.push(key[0]);
                assert!(self.copies.answered(at(s), key, &of(&change), Outcome::Done));
            }
            (put, removed)
        }
    }

    #[test]
    fn the_hottest_are_copies_as_far_as_there_is_room() {
        let mut given = Case::of(&[(1, 90.0), (2, 80.0), (3, 10.0), (4, 1.0)], 2);
        assert_eq!(given.carry_out(1), (vec![1, 2], vec![]));
        assert!(given.copies.takes(&key(1)) && !given.copies.takes(&key(3)));
        assert_eq!(given.copies.worth(&given.loads), 3);
        given.room = 9;
        assert_eq!(given.carry_out(2), (vec![3], vec![]));
        assert_eq!(given.carry_out(3), (vec![], vec![]));
    }

    #[test]
    fn what_is_much_hotter_takes_a_colder_ones_room() {
        let mut given = Case::of(&[(1, 90.0), (2, 80.0)], 2);
        given.carry_out(1);
        given.load(&[(1, 90.0), (2, 80.0), (3, 100.0)]);
        assert_eq!(given.carry_out(2), (vec![], vec![]));
        given.load(&[(1, 90.0), (2, 60.0), (3, 100.0)]);
        assert_eq!(given.carry_out(3), (vec![3], vec![2]));
    }

    #[test]
    fn what_is_unfit_is_no_copy_for_long_and_its_replicas_have_their_room() {
        let mut given = Case::of(&[(1, 90.0), (2, 80.0), (3, 70.0)], 2);
        assert_eq!(given.carry_out(1).0, [1, 2]);
        assert!(given.copies.dropped(at(1), &key(1), true));
        assert!(!given.copies.takes(&key(1)));
        // One stays for its record.
        assert_eq!(given.carry_out(2), (vec![], vec![]));
        given.room = 3;
        assert_eq!(given.carry_out(3).0, [3]);
        assert_eq!(given.carry_out(600).0, [0; 0]);
        given.room = 4;
        assert_eq!(given.carry_out(601).0, [1]);
    }

    #[test]
    fn what_comes_or_goes_does_so_when_that_is_answered() {
        let mut given = Case::of(&[(1, 90.0)], 2);
        assert_eq!(given.plan(1, |_| false), [CopyChange::Put(key(1))]);
        // What the switch had of it before.
        assert!(given.copies.dropped(at(1), &key(1), true));
        assert!(!given.copies.answered(at(1), &key(1), &Change::Remove, Outcome::Done));
        assert_eq!(given.copies.keys[&key(1)].stage, Stage::Asked);
        assert!(given.copies.answered(at(1), &key(1), &PUT, Outcome::Done));
        assert_eq!(given.copies.keys[&key(1)].stage, Stage::There);
        given.writes = 0.9;
        given.room = 0;
        assert_eq!(given.plan(2, |_| false), [CopyChange::Remove(key(1))]);
        assert!(given.copies.dropped(at(2), &key(1), false) && given.copies.has(&key(1)));
        assert!(!given.copies.answered(at(2), &key(1), &PUT, Outcome::Done));
        assert!(given.copies.answered(at(2), &key(1), &Change::Remove, Outcome::Done));
        assert!(!given.copies.has(&key(1)));
    }

    #[test]
    fn what_found_no_room_is_tried_again() {
        let mut given = Case::of(&[(1, 90.0)], 2);
        assert_eq!(given.plan(1, |_| false), [CopyChange::Put(key(1))]);
        assert!(given.copies.answered(at(1), &key(1), &PUT, Outcome::NoRoom));
        assert_eq!(given.carry_out(2).0, [0; 0]);
        assert!(!given.copies.takes(&key(1)));
        assert_eq!(given.carry_out(11).0, [1]);
        assert!(!given.copies.answered(at(12), &key(1), &PUT, Outcome::Done));
    }

    /// After a whole window in which these copies did not answer so many reads.
    fn missing(given: &mut Case, missed: &[(u8, u64)]) -> Vec<CopyChange> {
        given.carry_out(1);
        given.carry_out(2);
        for (n, requests) in missed {
            assert!(given.copies.missed(&key(*n), *requests));
        }
        given.plan(3, |_| false)
    }

    #[test]
    fn a_copy_that_answers_less_than_half_of_its_reads_has_replicas() {
        for (missed, yields) in [(44, false), (46, true)] {
            let mut given = Case::of(&[(1, 90.0), (2, 80.0)], 9);
            let planned = missing(&mut given, &[(1, missed), (2, 19)]);
            let expected: &[CopyChange] = match yields {
                true => &[CopyChange::Yield(key(1))],
                false => &[],
            };
            assert_eq!(planned, expected, "{missed}");
            assert_eq!(given.copies.has(&key(1)), !yields);
        }
    }

    #[test]
    fn of_a_home_with_too_much_to_do_only_as_many_go_as_it_takes() {
        let mut given = Case::of(&[(1, 90.0), (2, 80.0), (5, 80.0), (9, 70.0)], 9);
        given.servers_have[1] = 150.0;
        let planned = missing(&mut given, &[(1, 30), (2, 19), (5, 15), (9, 10)]);
        let of_it = [1, 5].map(|n| CopyChange::Yield(key(n)));
        assert_eq!(planned, of_it, "the costliest first; what is left is not too much");
    }

    #[test]
    fn where_keys_may_have_no_replicas_copies_stay_whatever_they_cost() {
        let mut given = Case::of(&[(1, 90.0)], 9);
        (given.servers, given.servers_have[1]) = (1, 150.0);
        assert_eq!(missing(&mut given, &[(1, 80)]), []);
    }

    #[test]
    fn what_cost_too_much_is_a_copy_again_with_half_of_its_load_or_after_some_time() {
        for (load, s, is_there) in [(60.0, 4, false), (40.0, 4, true), (60.0, 700, true)] {
            let mut given = Case::of(&[(1, 90.0)], 9);
            assert_eq!(missing(&mut given, &[(1, 60)]), [CopyChange::Yield(key(1))]);
            given.load(&[(1, load)]);
            given.carry_out(s);
            assert_eq!(given.copies.has(&key(1)), is_there, "{load} at {s}");
        }
    }

    #[test]
    fn a_window_in_which_a_copy_came_says_nothing_of_it() {
        let mut given = Case::of(&[(1, 90.0)], 9);
        given.carry_out(1);
        given.copies.missed(&key(1), 90);
        assert_eq!(given.carry_out(2), (vec![], vec![]));
        assert!(given.copies.has(&key(1)) && !given.copies.missed(&key(2), 90));
    }

    #[test]
    fn keys_with_replicas_have_their_room_and_some_more() {
        let loads: Vec<(u8, f64)> = (0..100).map(|n| (n, 90.0)).collect();
        for (records, copies) in [(0, 60), (10, 50), (90, 48)] {
            let mut given = Case::of(&loads, 64);
            given.records = records;
            assert_eq!(given.carry_out(1).0.len(), copies, "{records}");
        }
    }

    #[test]
    fn a_key_with_replicas_loses_them_first() {
        let mut given = Case::of(&[(1, 90.0)], 2);
        assert_eq!(given.plan(1, |_| true), []);
        assert!(given.copies.takes(&key(1)) && !given.copies.has(&key(1)));
        assert_eq!(given.carry_out(2).0, [1]);
    }

    #[test]
    fn where_more_is_written_than_read_there_are_none() {
        let mut given = Case::of(&[(1, 90.0)], 2);
        given.carry_out(1);
        for (writes, is_there) in [(0.49, true), (0.51, false), (0.47, false), (0.44, true)] {
            given.writes = writes;
            given.carry_out(2);
            assert_eq!(given.copies.has(&key(1)), is_there, "{writes}");
        }
    }

    #[test]
    fn what_a_switch_lost_is_put_again_and_never_without_the_setting() {
        let mut given = Case::of(&[(1, 90.0), (2, 80.0)], 2);
        given.carry_out(1);
        given.copies.holds(&[&key(2)].into());
        assert_eq!(given.carry_out(2), (vec![1], vec![]));
        given.copies = Copies::new(false, 100);
        assert_eq!(given.carry_out(3), (vec![], vec![]));
        assert_eq!(given.copies.worth(&given.loads), 0);
    }

    proptest! {
        /// Whatever the loads, and whatever the switch says: no more changes than may be, no more
        /// copies than there is room for.
        #[test]
        fn plans_keep_their_bounds(windows in prop::collection::vec((prop::collection::vec((0u8..30, 0.0f64..200.0), 0..40), 0u8..40, 0.0f64..0.7), 1..20), room in 0usize..20, changes in 0usize..12) {
            let mut given = Case::of(&[], room);
            given.changes = changes;
            for (s, (loads, says, writes)) in windows.into_iter().enumerate() {
                let s = s as u64;
                let loads: BTreeMap<u8, f64> = loads.into_iter().collect();
                given.load(&loads.into_iter().collect::<Vec<_>>());
                given.writes = writes;
                let planned = given.plan(s, |key| key[0] == says);
                prop_assert!(planned.len() <= changes);
                prop_assert!(given.copies.len() <= room + planned.len());
                for change in planned {
                    let (CopyChange::Put(key) | CopyChange::Remove(key) | CopyChange::Yield(key)) = &change;
                    let outcome = [Outcome::Done, Outcome::Done, Outcome::NoRoom, Outcome::NotSent][usize::from(says % 4)];
                    given.copies.answered(at(s), key, &of(&change), outcome);
                }
                let is_there = |copied: &CopyState| copied.stage == Stage::There;
                prop_assert!(given.copies.keys.values().all(is_there));
                prop_assert!(given.copies.len() <= room);
                given.copies.dropped(at(s), &key(says), says % 2 == 0);
            }
        }
    }
}
