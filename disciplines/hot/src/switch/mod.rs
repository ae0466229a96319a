//! What one switch should cache of one tenant.
//!
//! Every key that was reported or is cached has a *mass*: its requests, each window's discounted by
//! the age of the window (half after 15 s), so that keys of less than a request per second gather
//! evidence, and a *pace*: what its latest window alone proves, so that a key that became hot wins
//! at once. A reported key is compared with the coldest of some cached items drawn at random; at
//! each window's end the best contenders are compared with the coldest items of all, and only few
//! may change. When popularity changes altogether, masses say little and proof takes time in which
//! servers drown: then a key's requests so far count as they are, and what came in the same window
//! stays.
//!
//! Cost: a report is one look-up and, if the key is fast, [`SAMPLE`] reads; a window's end is a
//! pass over items and contenders and a sort of them, some milliseconds for 10,000 items.

mod window_end;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use decide::{Action, Change, Configuration, Key, Limits, Outcome, Record, Room, SwitchId};
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};

use crate::{
    capacity::Capacity,
    permit::Permit,
    shortage::Shortage,
    table::{Entry, Table},
    threshold::Threshold,
    upheaval::Upheaval,
};

/// Cached items that a hot key is compared with.
const SAMPLE: usize = 32;
/// What an item that the switch held before we knew it is taken to have been requested.
const HELD_MASS: f64 = 3.0;
/// An item without a request for so many windows is cold; a key that was not reported in them is
/// not wanted any longer.
const LATELY_WINDOWS: u64 = 8;
/// A key that was asked for in so many windows could use room that costs nobody anything.
const USABLE_WINDOWS: u64 = 2 * LATELY_WINDOWS;
/// An item whose requests passed by another switch in so many windows since it was last hit is not
/// reached by them.
const BYPASSED_WINDOWS: u8 = 3;
/// How an item comes.
const INSERT: Change = Change::Put(Record::Fetched);
/// Evidence from which a key is worth room that nobody else uses: two requests, of which the first
/// may be a half-life old.
const TWICE: f64 = 1.5;
/// Room is ample while this share of it, one in so many, is free.
const AMPLE_ONE_IN: usize = 8;
/// Windows after which an item's mass tells its rate.
const PROVEN_WINDOWS: u64 = 3;
/// The longest pause after an insertion failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The first one of a key that got no value: there may be none, or its store had too much to do to
/// answer.
const PAUSE_UNFIT: Duration = Duration::from_secs(2);

/// A change that was not answered yet.
#[derive(Debug)]
struct PendingChange {
    change: Change,
    /// How often pages had come before it was asked for.
    growths: u64,
}

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
    contenders_forgotten: u64,
    history_discounted: u64,
}

/// The cache of one tenant on one switch as the controller wants it, with what it knows of the
/// keys.
pub struct SwitchCache {
    switch: SwitchId,
    tenant: u32,
    /// What the programs find in parameter word 1.
    word: u32,
    window_ms: u32,
    max_items: usize,
    /// Cached, or being inserted.
    cached: Table,
    /// Seen, but not cached.
    contenders: Table,
    /// Changes that were not answered yet; no other change of the key is asked for meanwhile.
    asked: HashMap<Key, PendingChange>,
    /// How many of them are insertions.
    arriving: usize,
    /// Evictions that could not be sent, to be asked for again at the window's end.
    owed: BTreeSet<Key>,
    threshold: Threshold,
    capacity: Capacity,
    /// How often pages came.
    growths: u64,
    shortage: Shortage,
    /// Cached items without a request lately, as of the latest window's end.
    cold: usize,
    /// Keys that were asked for in the last [`USABLE_WINDOWS`] windows, cached or not, as of the
    /// latest window's end.
    usable: usize,
    /// Others that were reported since.
    fresh: usize,
    /// Windows that ended since the cache began; numbers of windows are the switch's and may jump.
    ended: u64,
    /// The discounted number of windows that masses were gathered in.
    windows: f64,
    /// The window that is under way, and when it began.
    window: u64,
    began: Duration,
    /// Requests per window by which the sketch overstates a key; learnt from what items that were
    /// inserted got.
    noise: f64,
    reports_in_window: usize,
    reports_last_window: usize,
    /// Replacements that reports may still cause in this window.
    swaps_left: usize,
    upheaval: Upheaval,
    random: SmallRng,
    counts: Counts,
}

impl SwitchCache {
    /// Knows nothing yet but its pages and the last threshold, if any.
    pub(crate) fn new(
        tenant: u32,
        room: &Room,
        limits: Limits,
        word: u32,
        now: Duration,
    ) -> SwitchCache {
        let capacity = Capacity::new(limits.max_items, room.pages);
        let seed = limits.seed ^ u64::from(room.switch) ^ (u64::from(tenant) << 16);
        SwitchCache {
            switch: room.switch,
            tenant,
            word,
            window_ms: limits.window_ms,
            max_items: limits.max_items,
            cached: Table::default(),
            contenders: Table::default(),
            asked: HashMap::new(),
            arriving: 0,
            owed: BTreeSet::new(),
            threshold: Threshold::new(
                room.parameters.map(|[threshold, _]| threshold),
                limits.reports_per_window,
            ),
            swaps_left: capacity.most(),
            upheaval: Upheaval::default(),
            capacity,
            growths: 0,
            shortage: Shortage::default(),
            cold: 0,
            usable: 0,
            fresh: 0,
            ended: 0,
            windows: 0.0,
            window: 0,
            began: now,
            noise: 0.0,
            reports_in_window: 0,
            reports_last_window: 0,
            random: SmallRng::seed_from_u64(seed),
            counts: Counts::default(),
        }
    }

    /// The tenant has another number of pages there: the coldest items that do not fit any longer
    /// go.
    pub(crate) fn resize(&mut self, pages: u32, out: &mut Vec<Action>) {
        let grows = pages as usize > self.capacity.pages();
        let stay = self.capacity.resize(pages, self.cached.len());
        self.swaps_left = self.swaps_left.min(self.capacity.most());
        if grows {
            self.growths += 1;
            let displaced = self.contenders.entries_mut().iter_mut();
            displaced.filter(|e| e.displaced).for_each(|e| e.paused_until = Duration::ZERO);
        }
        let excess = self.cached.len().saturating_sub(stay);
        if excess == 0 {
            return;
        }
        let windows = self.windows.max(1.0);
        let settled = |e: &&Entry| !self.asked.contains_key(&e.key);
        let mut coldest: Vec<&Entry> = self.cached.entries().iter().filter(settled).collect();
        coldest.sort_by(|a, b| a.rate(windows).total_cmp(&b.rate(windows)));
        let go: Vec<Key> = coldest.iter().take(excess).map(|e| e.key.clone()).collect();
        for key in go {
            self.evict(&key, out);
            self.displaced(&key);
        }
        self.cold = self.count_cold();
    }

    /// The switch came (back): what it holds is cached, what it lost is inserted again where
    /// `permit` allows it.
    pub(crate) fn holds(
        &mut self,
        now: Duration,
        held: &[Key],
        lost: &[Key],
        permit: impl Fn(&Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        out.push(self.configure());
        self.began = now;
        let holds: HashSet<&Key> = held.iter().collect();
        for key in held {
            if let Some(entry) = self.cached.get_mut(key) {
                entry.cached_in.get_or_insert(self.window);
            } else if self.asked.contains_key(key) {
                // Its eviction is under way.
            } else if self.cached.len() < self.capacity.most() {
                let mut entry =
                    self.contenders.take(key).unwrap_or_else(|| Entry::new(key.clone()));
                entry.mass = entry.mass.max(HELD_MASS);
                entry.seen = self.ended;
                entry.cached_in = Some(self.window);
                self.cached.put(entry);
            } else {
                self.ask(Change::Remove, key.clone(), out);
            }
        }
        let gone = |e: &&Entry| e.cached_in.is_some() && !holds.contains(&e.key);
        let gone: Vec<Key> =
            self.cached.entries().iter().filter(gone).map(|e| e.key.clone()).collect();
        for key in &gone {
            let entry = self.cached.take(key).expect("just listed");
            self.contenders.put(Entry { cached_in: None, ..entry });
        }
        for key in lost.iter().chain(&gone) {
            let is_there = self.cached.contains(key) || self.asked.contains_key(key);
            if is_there || !self.has_room() || permit(key) != Permit::Yes {
                continue;
            }
            let mut entry = self.contenders.take(key).unwrap_or_else(|| Entry::new(key.clone()));
            entry.mass = entry.mass.max(HELD_MASS);
            self.insert(entry, out);
        }
    }

    /// Missed keys with their requests in the window so far: what is worth it and has a `permit` is
    /// cached.
    pub(crate) fn hot(
        &mut self,
        now: Duration,
        window: u64,
        keys: &[(Key, u64)],
        permit: impl Fn(&Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        self.count_reports(window, keys.len(), out);
        for (key, count) in keys {
            if self.learn(now, key, *count) && permit(key) == Permit::Yes {
                self.offer(now, key, out);
            }
        }
        if self.contenders.len() > 2 * self.max_contenders() {
            self.forget_contenders(now);
        }
    }

    fn count_reports(&mut self, window: u64, count: usize, out: &mut Vec<Action>) {
        self.window = window;
        self.counts.reports += count as u64;
        self.reports_in_window += count;
        if self.threshold.reported(count) {
            out.push(self.configure());
        }
    }

    /// The part of the window that is over.
    fn elapsed(&self, now: Duration) -> f64 {
        let length = f64::from(self.window_ms.max(1)) / 1000.0;
        (now.saturating_sub(self.began).as_secs_f64() / length).clamp(0.1, 1.0)
    }

    /// Takes in a report; true if the key is not cached.
    fn learn(&mut self, now: Duration, key: &Key, count: u64) -> bool {
        let elapsed = self.elapsed(now);
        let count = (count as f64 - self.noise).max(1.0);
        let cached = self.cached.get_mut(key);
        // A cached key was missed before it was cached, or while a write had it invalid.
        let contends = cached.is_none();
        if contends && !self.contenders.contains(key) {
            self.contenders.put(Entry::new(key.clone()));
        }
        let entry = cached.or_else(|| self.contenders.get_mut(key));
        if let Some(entry) = entry {
            let is_first = entry.mass == 0.0 || self.ended - entry.seen > USABLE_WINDOWS;
            self.fresh += usize::from(contends && is_first);
            entry.reported(self.window, count, elapsed);
            entry.seen = self.ended;
        }
        contends
    }

    /// Caches a key that was reported, if it was requested twice and there is room, or it is hotter
    /// than some item; true if so.
    pub fn offer(&mut self, now: Duration, key: &Key, out: &mut Vec<Action>) -> bool {
        let (room, elapsed) = (self.has_room(), self.elapsed(now));
        let is_upheaval = self.is_upheaval();
        let Some(entry) = self.contenders.get_mut(key) else { return false };
        let proved = entry.pace;
        let pace = match is_upheaval {
            true => entry.count / elapsed,
            false => proved,
        };
        if entry.paused_until > now || self.asked.contains_key(key) {
            return false;
        }
        if room {
            if entry.mass < TWICE {
                return false;
            }
            if let Some(entry) = self.contenders.take(key) {
                self.insert(entry, out);
            }
            return true;
        }
        if entry.count >= 2.0 {
            self.unmet(key);
        }
        if pace <= 1.0 || self.swaps_left == 0 || self.is_behind() {
            return false;
        }
        match self.coldest_of_sample() {
            Some((coldest, rate)) if outpaces(pace, rate) => {
                self.swaps_left -= 1;
                if outpaces(proved, rate) && self.is_proven(&coldest) {
                    self.upheaval.outdone();
                }
                self.swap(&coldest, key, out);
                true
            }
            _ => false,
        }
    }

    /// A change was answered.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        change: &Change,
        key: &Key,
        outcome: Outcome,
        out: &mut Vec<Action>,
    ) {
        let Some(asked) = self.asked.get(key).filter(|asked| asked.change == *change) else {
            return;
        };
        let had_fewer_pages = asked.growths < self.growths;
        self.asked.remove(key);
        if *change == INSERT {
            self.arriving = self.arriving.saturating_sub(1);
        }
        let (pause, counter) = match outcome {
            Outcome::Done => {
                if *change == INSERT
                    && let Some(entry) = self.cached.get_mut(key)
                {
                    entry.cached_in = Some(self.window);
                }
                return;
            }
            // There is more by now, and nothing learnt of it.
            Outcome::NoRoom if had_fewer_pages => (Duration::ZERO, &mut self.counts.no_room),
            Outcome::NoRoom => (Duration::from_secs(1), &mut self.counts.no_room),
            Outcome::BucketFull => (Duration::from_secs(10), &mut self.counts.bucket_full),
            Outcome::Refused | Outcome::Changed => (PAUSE_MAX, &mut self.counts.refused),
            Outcome::NotSent => (Duration::from_secs(1), &mut self.counts.not_sent),
        };
        *counter += 1;
        if *change == Change::Remove {
            if outcome == Outcome::NotSent {
                self.owed.insert(key.clone());
            }
            return;
        }
        self.give_up(now, key, pause);
        if outcome == Outcome::NoRoom {
            self.displaced(key);
            if had_fewer_pages {
                return;
            }
            let leaving = self.asked.len().saturating_sub(self.arriving);
            let there = self.cached.len().saturating_sub(self.arriving) + leaving;
            self.capacity.no_room(there);
            // Makes room for the next one that is worth it: this key, after its pause, or another.
            // One at a time: many insertions may have been under way when the room ended.
            if leaving == 0
                && let Some((coldest, _)) = self.coldest_of_sample()
            {
                self.evict(&coldest, out);
            }
        }
    }

    /// The switch gave items up by itself.
    pub(crate) fn dropped(&mut self, now: Duration, keys: &[Key], unfit: bool) {
        let pause = if unfit { PAUSE_UNFIT } else { Duration::from_millis(500) };
        for key in keys {
            self.counts.dropped += 1;
            if !self.asked.contains_key(key) {
                self.give_up(now, key, pause);
                if !unfit {
                    self.displaced(key);
                }
            }
        }
    }

    /// A key that is not cached found no room.
    fn unmet(&mut self, key: &Key) {
        if let Some(entry) = self.contenders.get_mut(key)
            && entry.unmet != Some(self.ended)
        {
            entry.unmet = Some(self.ended);
            entry.counted = true;
            self.shortage.unmet();
        }
    }

    /// A key had to go for lack of room: if it was requested lately, it is wanted as before.
    fn displaced(&mut self, key: &Key) {
        let ended = self.ended;
        let warm = |e: &&mut Entry| ended - e.seen <= LATELY_WINDOWS;
        if let Some(entry) = self.contenders.get_mut(key).filter(warm) {
            entry.displaced = true;
            self.unmet(key);
        }
    }

    /// How many items it would have if there were room: those that were requested within the last
    /// [`LATELY_WINDOWS`] windows and are cached or had to go for lack of room, and other keys that
    /// are asked for about twice per window or more.
    ///
    /// Costs nothing: both are counted at each window's end. Between, it rises with each key that
    /// is reported and finds no room.
    pub fn wanted(&self) -> usize {
        let warm = self.cached.len().saturating_sub(self.cold);
        (warm + self.shortage.keys()).min(self.max_items)
    }

    /// How many items it would have if memory cost nobody anything: all that were asked for in the
    /// last [`USABLE_WINDOWS`] windows. Once is enough: a tail of rare keys that comes back is
    /// worth idle memory, and one that does not costs nothing there. Rises with each report of
    /// another key, so that an owner that wakes up is noticed at once.
    pub fn could_use(&self) -> usize {
        let asked_for = self.usable + self.fresh;
        asked_for.min(self.max_items).max(self.wanted())
    }

    /// Whether an item is there, comes or goes: it must not be put anywhere else meanwhile.
    pub fn involves(&self, key: &Key) -> bool {
        self.cached.contains(key) || self.asked.contains_key(key) || self.owed.contains(key)
    }

    /// Whether an item is there or comes.
    pub fn has(&self, key: &Key) -> bool {
        self.cached.contains(key)
    }

    /// Whether a key that is not cached here was requested here within this window or the one
    /// before.
    pub fn sees(&self, key: &Key) -> bool {
        let entry = self.contenders.get(key);
        entry.is_some_and(|e| e.seen + 1 >= self.ended && e.mass > 0.0)
    }

    /// The requests of an item of this cache were seen where they had missed it. True if the item
    /// is settled and they do not come by here any longer: it had none lately, while they were seen
    /// in window after window.
    pub fn bypassed(&mut self, key: &Key) -> bool {
        let ended = self.ended;
        let Some(entry) = self.cached.get_mut(key) else { return false };
        if entry.bypassed != ended {
            entry.bypassed = ended;
            entry.bypassed_windows = entry.bypassed_windows.saturating_add(1);
        }
        entry.bypassed_windows >= BYPASSED_WINDOWS
            && ended - entry.seen > LATELY_WINDOWS
            && !self.asked.contains_key(key)
    }

    /// Gives an item up, if no change of it is under way; true if it was there.
    pub fn release(&mut self, key: &Key, out: &mut Vec<Action>) -> bool {
        let settled = self.cached.contains(key) && !self.asked.contains_key(key);
        if settled {
            self.evict(key, out);
        }
        settled
    }

    /// Items that a page is believed to hold.
    pub fn items_per_page(&self) -> usize {
        self.capacity.per_page()
    }

    /// Reports in the latest window that ended.
    pub(crate) fn reports_last_window(&self) -> u32 {
        u32::try_from(self.reports_last_window).unwrap_or(u32::MAX)
    }

    /// How many reports are to be had per window from now on.
    pub(crate) fn set_report_budget(&mut self, reports: u32) {
        self.threshold.set_budget(reports);
    }

    /// Named counters: they only rise.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 10] {
        let c = &self.counts;
        [
            ("reports", c.reports),
            ("inserts_asked", c.inserts),
            ("evicts_asked", c.evicts),
            ("answered_no_room", c.no_room),
            ("answered_bucket_full", c.bucket_full),
            ("answered_refused", c.refused),
            ("commands_not_sent", c.not_sent),
            ("items_dropped_by_switch", c.dropped),
            ("contenders_forgotten", c.contenders_forgotten),
            ("history_discounted", c.history_discounted),
        ]
    }

    /// Requests per window from which a key is reported.
    pub(crate) fn threshold(&self) -> u64 {
        u64::from(self.threshold.requests())
    }

    /// Named sizes: they rise and fall.
    pub(crate) fn sizes(&self) -> [(&'static str, u64); 2] {
        [("contenders", self.contenders.len() as u64), ("items_wanted", self.cached.len() as u64)]
    }

    fn count_cold(&self) -> usize {
        let cold = |e: &&Entry| self.cold_entry(e);
        self.cached.entries().iter().filter(cold).count()
    }

    fn cold_entry(&self, entry: &Entry) -> bool {
        self.ended - entry.seen > LATELY_WINDOWS
    }

    /// Moves a key from cached to contenders, paused longer each time in a row; not if it is not to
    /// pause.
    fn give_up(&mut self, now: Duration, key: &Key, pause: Duration) {
        let Some(mut entry) = self.cached.take(key) else { return };
        entry.cached_in = None;
        entry.paused_until = now + (pause * (1 << entry.strikes.min(10))).min(PAUSE_MAX);
        entry.strikes = entry.strikes.saturating_add(u8::from(!pause.is_zero()));
        self.contenders.put(entry);
    }

    /// Whether one more item is believed to fit.
    pub fn has_room(&self) -> bool {
        self.cached.len() < self.capacity.items() && !self.is_behind()
    }

    /// Whether there is room for many more.
    fn has_ample_room(&self) -> bool {
        let items = self.capacity.items();
        self.cached.len() + items.div_ceil(AMPLE_ONE_IN) < items
    }

    fn is_upheaval(&self) -> bool {
        self.upheaval.is_on(self.capacity.most())
    }

    /// Whether an item is there for so long that its mass tells its rate.
    fn is_proven(&self, key: &Key) -> bool {
        let since = self.cached.get(key).and_then(|entry| entry.cached_in);
        since.is_some_and(|since| self.window.saturating_sub(since) >= PROVEN_WINDOWS)
    }

    /// Whether so many changes are unanswered that no more should be asked for.
    fn is_behind(&self) -> bool {
        self.asked.len() >= 2 * self.capacity.most()
    }

    /// The coldest of some cached items drawn at random, with its rate.
    fn coldest_of_sample(&mut self) -> Option<(Key, f64)> {
        let items = self.cached.entries();
        if items.is_empty() {
            return None;
        }
        // What has just come for what is likely has little evidence, and more of it than what was
        // hot before.
        let spared = self.is_upheaval().then_some(self.window);
        let random: &mut dyn Rng = &mut self.random;
        (0..SAMPLE)
            .map(|_| &items[random.random_range(0..items.len())])
            .filter(|e| e.cached_in.is_some() && e.cached_in != spared)
            .filter(|e| !self.asked.contains_key(&e.key))
            .map(|e| (e, e.rate(self.windows.max(1.0))))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(e, rate)| (e.key.clone(), rate))
    }

    fn swap(&mut self, old: &Key, new: &Key, out: &mut Vec<Action>) {
        self.evict(old, out);
        if let Some(entry) = self.contenders.take(new) {
            self.insert(entry, out);
        }
    }

    fn evict(&mut self, key: &Key, out: &mut Vec<Action>) {
        if let Some(entry) = self.cached.take(key) {
            self.contenders.put(Entry { cached_in: None, ..entry });
            self.ask(Change::Remove, key.clone(), out);
        }
    }

    fn insert(&mut self, entry: Entry, out: &mut Vec<Action>) {
        let key = entry.key.clone();
        if entry.counted {
            self.shortage.filled();
        }
        self.cached.put(Entry {
            cached_in: None,
            on_trial: entry.counted.then_some(self.ended),
            counted: false,
            displaced: false,
            bypassed_windows: 0,
            seen: entry.seen.max(self.ended.saturating_sub(1)),
            ..entry
        });
        self.ask(INSERT, key, out);
    }

    fn ask(&mut self, change: Change, key: Key, out: &mut Vec<Action>) {
        if change == INSERT {
            self.counts.inserts += 1;
            self.arriving += 1;
        } else {
            self.counts.evicts += 1;
        }
        let asked = PendingChange { change: change.clone(), growths: self.growths };
        self.asked.insert(key.clone(), asked);
        out.push(Action::Change { switch: self.switch, tenant: self.tenant, key, change });
    }

    /// Puts the threshold in force at the switch.
    pub(crate) fn configure(&self) -> Action {
        Action::Configure {
            switch: self.switch,
            tenant: self.tenant,
            configuration: Configuration::of([self.threshold.requests(), self.word]),
        }
    }
}

/// Whether a key's pace proves it hotter than an item of this rate, by far.
fn outpaces(pace: f64, rate: f64) -> bool {
    pace > 1.5 * rate + 1.0
}
