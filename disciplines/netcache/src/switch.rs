//! What one switch should cache.
//!
//! Every key that was reported or is cached has a *mass*: its requests, each window's discounted by the age
//! of the window (half after 15 s), so that keys of less than a request per second gather evidence, and a
//! *pace*: what its latest window alone proves, so that a key that became hot wins at once. A reported
//! key is compared with the coldest of some cached items drawn at random; at each window's end the best
//! candidates are compared with the coldest items of all, and only few may change.
//!
//! Cost: a report is one look-up and, if the key is fast, [`SAMPLE`] reads; a window's end is a pass over
//! items and candidates and a sort of them, some milliseconds for 10,000 items.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use control::{Action, Change, ItemKey, Limits, Outcome, SwitchId};
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};

use crate::{
    estimate::{lower, unreported, upper, usual_overlap},
    table::{Entry, Table},
    threshold::Threshold,
};

/// Windows after which an observation counts half.
const HALF_LIFE_WINDOWS: f64 = 15.0;
/// Cached items that a hot key is compared with.
const SAMPLE: usize = 32;
/// Of this many items, one may change at a window's end.
const CHANGE_ONE_IN: usize = 16;
/// Candidates remembered per item that may be cached, and at least.
const CANDIDATES_PER_ITEM: usize = 4;
const CANDIDATES_MIN: usize = 4096;
/// What an item that the switch held before we knew it is taken to have been requested.
const HELD_MASS: f64 = 3.0;
/// Less of the expected requests than this on the cached items, and history is discounted.
const OVERLAP_MIN: f64 = 0.5;
/// The longest pause after an insertion failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Counts {
    reports: u64,
    inserts: u64,
    evicts: u64,
    no_room: u64,
    bucket_full: u64,
    refused: u64,
    not_sent: u64,
    dropped: u64,
    candidates_forgotten: u64,
    history_discounted: u64,
}

/// The cache of one switch as the controller wants it, with what it knows of the keys.
pub struct SwitchCache {
    switch: SwitchId,
    limits: Limits,
    /// Cached, or being inserted.
    cached: Table,
    /// Seen, but not cached.
    candidates: Table,
    /// Changes that were not answered yet; no other change of the key is asked for meanwhile.
    asked: HashMap<ItemKey, Change>,
    /// Evictions that could not be sent, to be asked for again at the window's end.
    owed: BTreeSet<ItemKey>,
    threshold: Threshold,
    /// Items that fit, as far as is known: falls when the switch says that it has no room.
    capacity: usize,
    /// The discounted number of windows that masses were gathered in.
    windows: f64,
    /// The window that is under way, and when it began.
    window: u64,
    began: Duration,
    /// Requests per window by which the sketch overstates a key; learnt from what items that were inserted got.
    noise: f64,
    reports_in_window: usize,
    /// Replacements that reports may still cause in this window.
    swaps_left: usize,
    random: SmallRng,
    counts: Counts,
}

impl SwitchCache {
    /// Knows nothing yet but the last threshold, if any.
    pub fn new(
        switch: SwitchId,
        limits: Limits,
        threshold: Option<u32>,
        now: Duration,
    ) -> SwitchCache {
        SwitchCache {
            switch,
            limits,
            cached: Table::default(),
            candidates: Table::default(),
            asked: HashMap::new(),
            owed: BTreeSet::new(),
            threshold: Threshold::new(threshold, limits.reports_per_window),
            capacity: limits.max_items,
            windows: 0.0,
            window: 0,
            began: now,
            noise: 0.0,
            reports_in_window: 0,
            swaps_left: limits.max_items,
            random: SmallRng::seed_from_u64(limits.seed ^ u64::from(switch)),
            counts: Counts::default(),
        }
    }

    /// The switch came (back): what it holds is cached, what it lost is inserted again.
    pub fn attached(
        &mut self,
        now: Duration,
        held: &[ItemKey],
        lost: &[ItemKey],
        out: &mut Vec<Action>,
    ) {
        out.push(self.tell_threshold());
        self.began = now;
        let holds: HashSet<&ItemKey> = held.iter().collect();
        for key in held {
            if let Some(entry) = self.cached.get_mut(key) {
                entry.cached_in.get_or_insert(self.window);
            } else if self.asked.contains_key(key) {
                // Its eviction is under way.
            } else if self.cached.len() < self.limits.max_items {
                let mut entry = self
                    .candidates
                    .take(key)
                    .unwrap_or_else(|| Entry::new(key.clone()));
                entry.mass = entry.mass.max(HELD_MASS);
                entry.cached_in = Some(self.window);
                self.cached.put(entry);
            } else {
                self.ask(Change::Evict, key.clone(), out);
            }
        }
        let gone = |e: &&Entry| e.cached_in.is_some() && !holds.contains(&e.key);
        let gone: Vec<ItemKey> = self
            .cached
            .entries()
            .iter()
            .filter(gone)
            .map(|e| e.key.clone())
            .collect();
        for key in &gone {
            let entry = self.cached.take(key).expect("just listed");
            self.candidates.put(Entry {
                cached_in: None,
                ..entry
            });
        }
        for key in lost.iter().chain(&gone) {
            if self.cached.contains(key) || self.asked.contains_key(key) || !self.has_room() {
                continue;
            }
            let mut entry = self
                .candidates
                .take(key)
                .unwrap_or_else(|| Entry::new(key.clone()));
            entry.mass = entry.mass.max(HELD_MASS);
            self.insert(entry, out);
        }
    }

    /// Missed keys with their requests in the window so far.
    pub fn hot(
        &mut self,
        now: Duration,
        window: u64,
        keys: &[(ItemKey, u64)],
        out: &mut Vec<Action>,
    ) {
        self.window = window;
        self.counts.reports += keys.len() as u64;
        self.reports_in_window += keys.len();
        if self.threshold.reported(keys.len()) {
            out.push(self.tell_threshold());
        }
        let length = f64::from(self.limits.window_ms.max(1)) / 1000.0;
        let elapsed = (now.saturating_sub(self.began).as_secs_f64() / length).clamp(0.1, 1.0);
        for (key, count) in keys {
            let count = (*count as f64 - self.noise).max(1.0);
            if let Some(entry) = self.cached.get_mut(key) {
                // Missed before it was cached, or while a write had it invalid.
                entry.reported(window, count, elapsed);
                continue;
            }
            if !self.candidates.contains(key) {
                self.candidates.put(Entry::new(key.clone()));
            }
            let entry = self.candidates.get_mut(key).expect("just put");
            entry.reported(window, count, elapsed);
            let (pace, ready) = (entry.pace, entry.paused_until <= now);
            if !ready || self.asked.contains_key(key) {
                continue;
            }
            if self.has_room() {
                let entry = self.candidates.take(key).expect("just reported");
                self.insert(entry, out);
            } else if pace > 1.0 && self.swaps_left > 0 && !self.is_behind() {
                let Some((coldest, rate)) = self.coldest_of_sample() else {
                    continue;
                };
                if outpaces(pace, rate) {
                    self.swaps_left -= 1;
                    self.swap(&coldest, key, out);
                }
            }
        }
        if self.candidates.len() > 2 * self.max_candidates() {
            self.forget_candidates(now);
        }
    }

    /// A window ended; `items` are the cached items that had requests in it.
    pub fn window_end(
        &mut self,
        now: Duration,
        window: u64,
        items: &[(ItemKey, u64)],
        out: &mut Vec<Action>,
    ) {
        let idle = items.is_empty() && self.reports_in_window == 0;
        if !idle {
            self.account(window, items);
            if self.windows >= 3.0 {
                self.improve(now, window, out);
            }
            self.forget_candidates(now);
        }
        for key in std::mem::take(&mut self.owed) {
            if !self.cached.contains(&key) && !self.asked.contains_key(&key) {
                self.ask(Change::Evict, key, out);
            }
        }
        if self.threshold.window_end() {
            out.push(self.tell_threshold());
        }
        self.capacity = (self.capacity + self.capacity / 100 + 1).min(self.limits.max_items);
        self.swaps_left = self.limits.max_items;
        self.reports_in_window = 0;
        self.window = window.wrapping_add(1);
        self.began = now;
    }

    /// A change was answered.
    pub fn answered(
        &mut self,
        now: Duration,
        change: Change,
        key: &ItemKey,
        outcome: Outcome,
        out: &mut Vec<Action>,
    ) {
        if self.asked.get(key) != Some(&change) {
            return;
        }
        self.asked.remove(key);
        let (pause, counter) = match outcome {
            Outcome::Done => {
                if let (Change::Insert, Some(entry)) = (change, self.cached.get_mut(key)) {
                    entry.cached_in = Some(self.window);
                }
                return;
            }
            Outcome::NoRoom => (Duration::from_secs(1), &mut self.counts.no_room),
            Outcome::BucketFull => (Duration::from_secs(10), &mut self.counts.bucket_full),
            Outcome::Refused => (PAUSE_MAX, &mut self.counts.refused),
            Outcome::NotSent => (Duration::from_secs(1), &mut self.counts.not_sent),
        };
        *counter += 1;
        if change == Change::Evict {
            if outcome == Outcome::NotSent {
                self.owed.insert(key.clone());
            }
            return;
        }
        self.give_up(now, key, pause);
        if outcome == Outcome::NoRoom {
            self.capacity = self.cached.len().max(1);
            // Makes room for the next one that is worth it: this key, after its pause, or another.
            if let Some((coldest, _)) = self.coldest_of_sample() {
                self.evict(&coldest, out);
            }
        }
    }

    /// The switch gave items up by itself.
    pub fn dropped(&mut self, now: Duration, keys: &[ItemKey]) {
        for key in keys {
            self.counts.dropped += 1;
            if !self.asked.contains_key(key) {
                self.give_up(now, key, Duration::from_millis(500));
            }
        }
    }

    /// Named counters and sizes.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        let c = &self.counts;
        BTreeMap::from([
            ("reports", c.reports),
            ("inserts_asked", c.inserts),
            ("evicts_asked", c.evicts),
            ("answered_no_room", c.no_room),
            ("answered_bucket_full", c.bucket_full),
            ("answered_refused", c.refused),
            ("commands_not_sent", c.not_sent),
            ("items_dropped_by_switch", c.dropped),
            ("candidates_forgotten", c.candidates_forgotten),
            ("history_discounted", c.history_discounted),
            ("candidates", self.candidates.len() as u64),
            ("items_wanted", self.cached.len() as u64),
        ])
    }

    /// Moves a key from cached to candidates, paused longer each time in a row.
    fn give_up(&mut self, now: Duration, key: &ItemKey, pause: Duration) {
        let Some(mut entry) = self.cached.take(key) else {
            return;
        };
        entry.cached_in = None;
        entry.paused_until = now + (pause * (1 << entry.strikes.min(10))).min(PAUSE_MAX);
        entry.strikes = entry.strikes.saturating_add(1);
        self.candidates.put(entry);
    }

    /// Adds the window's counts to every mass.
    fn account(&mut self, window: u64, items: &[(ItemKey, u64)]) {
        let mut hits = vec![0.0; self.cached.len()];
        for (key, count) in items {
            if let Some(at) = self.cached.position(key) {
                hits[at] = *count as f64;
            }
        }
        let whole = |e: &Entry| e.cached_in.is_some_and(|since| since != window);
        let keep = self.discount(&hits, whole, window);
        self.windows = self.windows * keep + 1.0;
        let mut overstated = Vec::new();
        for (entry, hits) in self.cached.entries_mut().iter_mut().zip(hits) {
            let (past, reported) = entry.split(window);
            let count = reported + hits;
            entry.mass = past * keep + count;
            if !whole(entry) {
                entry.pace = entry.pace.max(lower(count));
                continue;
            }
            if entry
                .cached_in
                .is_some_and(|since| since == window.wrapping_sub(1))
                && entry.pace > 2.0
            {
                overstated.push(entry.pace - count);
            }
            entry.mass = entry.mass.min(self.windows * upper(count));
            entry.pace = lower(count);
            entry.strikes = 0;
        }
        self.learn_noise(overstated);
        let threshold = self.threshold.requests();
        for entry in self.candidates.entries_mut() {
            let (past, reported) = entry.split(window);
            let rate = ((past - 1.0) / self.windows).max(0.0);
            let count = if reported > 0.0 {
                reported
            } else {
                unreported(rate, threshold)
            };
            entry.mass = past * keep + count;
            entry.pace = lower(reported);
        }
    }

    /// How much of the past stays: less when the cached items' requests do not look as expected.
    fn discount(&mut self, hits: &[f64], whole: impl Fn(&Entry) -> bool, window: u64) -> f64 {
        let keep = 0.5f64.powf(1.0 / HALF_LIFE_WINDOWS);
        let (mut seen, mut usual) = (0.0, 0.0);
        for (entry, &hits) in self
            .cached
            .entries()
            .iter()
            .zip(hits)
            .filter(|(e, _)| whole(e))
        {
            let rate = entry.split(window).0 / self.windows.max(1.0);
            seen += hits.min(rate);
            usual += usual_overlap(rate);
        }
        if self.windows < 3.0 || usual < 50.0 || seen >= OVERLAP_MIN * usual {
            return keep;
        }
        self.counts.history_discounted += 1;
        keep * (seen / usual).max(0.05)
    }

    /// Adjusts the noise by how far new items stayed below what their reports had proved.
    fn learn_noise(&mut self, mut overstated: Vec<f64>) {
        if overstated.len() < 16 {
            self.noise *= 0.98;
            return;
        }
        overstated.sort_by(f64::total_cmp);
        let median = overstated[overstated.len() / 2];
        self.noise = (self.noise + if median > 0.0 { 1.0 } else { 0.25 } * median).max(0.0);
    }

    /// At a window's end: the best candidates against the coldest items, a few at most.
    fn improve(&mut self, now: Duration, window: u64, out: &mut Vec<Action>) {
        let windows = self.windows;
        let mut best: Vec<&Entry> = self
            .candidates
            .entries()
            .iter()
            .filter(|e| e.paused_until <= now && !self.asked.contains_key(&e.key))
            .collect();
        best.sort_by(|a, b| b.rate(windows).total_cmp(&a.rate(windows)));
        let mut coldest: Vec<&Entry> = self
            .cached
            .entries()
            .iter()
            .filter(|e| {
                e.cached_in.is_some_and(|since| since != window) && !self.asked.contains_key(&e.key)
            })
            .collect();
        coldest.sort_by(|a, b| a.rate(windows).total_cmp(&b.rate(windows)));
        let most = self.limits.max_items.div_ceil(CHANGE_ONE_IN);
        let pairs: Vec<(ItemKey, ItemKey)> = coldest
            .iter()
            .zip(&best)
            .take(most)
            .take_while(|(old, new)| deserves(new, old, windows))
            .map(|(old, new)| (old.key.clone(), new.key.clone()))
            .collect();
        for (old, new) in pairs {
            if self.is_behind() {
                break;
            }
            self.swap(&old, &new, out);
        }
    }

    /// Forgets the candidates with the least evidence, down to the limit.
    fn forget_candidates(&mut self, now: Duration) {
        let before = self.candidates.len();
        let most = self.max_candidates();
        let worth = |e: &Entry| {
            if e.paused_until > now {
                f64::MAX
            } else {
                e.mass
            }
        };
        let mut least: f64 = 0.5;
        if before > most {
            let mut masses: Vec<f64> = self.candidates.entries().iter().map(worth).collect();
            let (_, at, _) = masses.select_nth_unstable_by(before - most, f64::total_cmp);
            least = least.max(*at);
        }
        let mut kept = 0;
        let asked = &self.asked;
        self.candidates.retain(|e| {
            let keep = asked.contains_key(&e.key) || (worth(e) >= least && kept < most);
            kept += usize::from(keep);
            keep
        });
        self.counts.candidates_forgotten += (before - self.candidates.len()) as u64;
    }

    fn max_candidates(&self) -> usize {
        (CANDIDATES_PER_ITEM * self.limits.max_items).max(CANDIDATES_MIN)
    }

    fn has_room(&self) -> bool {
        self.cached.len() < self.capacity && !self.is_behind()
    }

    /// Whether so many changes are unanswered that no more should be asked for.
    fn is_behind(&self) -> bool {
        self.asked.len() >= 2 * self.limits.max_items
    }

    /// The coldest of some cached items drawn at random, with its rate.
    fn coldest_of_sample(&mut self) -> Option<(ItemKey, f64)> {
        let items = self.cached.entries();
        if items.is_empty() {
            return None;
        }
        let random: &mut dyn Rng = &mut self.random;
        (0..SAMPLE)
            .map(|_| &items[random.random_range(0..items.len())])
            .filter(|e| e.cached_in.is_some() && !self.asked.contains_key(&e.key))
            .map(|e| (e, e.rate(self.windows.max(1.0))))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(e, rate)| (e.key.clone(), rate))
    }

    fn swap(&mut self, old: &ItemKey, new: &ItemKey, out: &mut Vec<Action>) {
        self.evict(old, out);
        if let Some(entry) = self.candidates.take(new) {
            self.insert(entry, out);
        }
    }

    fn evict(&mut self, key: &ItemKey, out: &mut Vec<Action>) {
        if let Some(entry) = self.cached.take(key) {
            self.candidates.put(Entry {
                cached_in: None,
                ..entry
            });
            self.ask(Change::Evict, key.clone(), out);
        }
    }

    fn insert(&mut self, entry: Entry, out: &mut Vec<Action>) {
        let key = entry.key.clone();
        self.cached.put(Entry {
            cached_in: None,
            ..entry
        });
        self.ask(Change::Insert, key, out);
    }

    fn ask(&mut self, change: Change, key: ItemKey, out: &mut Vec<Action>) {
        match change {
            Change::Insert => self.counts.inserts += 1,
            Change::Evict => self.counts.evicts += 1,
        }
        self.asked.insert(key.clone(), change);
        out.push(Action::Change {
            switch: self.switch,
            change,
            key,
        });
    }

    fn tell_threshold(&self) -> Action {
        Action::Threshold {
            switch: self.switch,
            requests: self.threshold.requests(),
        }
    }
}

/// Whether a key's pace proves it hotter than an item of this rate, by far.
fn outpaces(pace: f64, rate: f64) -> bool {
    pace > 1.5 * rate + 1.0
}

/// Whether a candidate has more evidence than an item, beyond what chance would make of equals.
fn deserves(new: &Entry, old: &Entry, windows: f64) -> bool {
    let beyond_chance = new.mass > old.mass + (new.mass + old.mass).sqrt();
    outpaces(new.pace, old.rate(windows))
        || (beyond_chance && new.rate(windows) > 1.1 * old.rate(windows))
}
