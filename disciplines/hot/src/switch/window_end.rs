//! What a window's end changes: evidence is weighed, a few items may be exchanged, the rest is
//! forgotten and counted.

use std::time::Duration;

use decide::{Action, Change, Key};

use super::{LATELY_WINDOWS, SwitchCache, USABLE_WINDOWS, outpaces};
use crate::{
    estimate::{lower, unreported, upper, usual_overlap},
    permit::Permit,
    table::Entry,
};

/// Windows after which an observation counts half.
const HALF_LIFE_WINDOWS: f64 = 15.0;
/// One in so many items may change at a window's end.
const CHANGE_ONE_IN: usize = 16;
/// Contenders remembered per item that may be cached, and at least.
const CONTENDERS_PER_ITEM: usize = 4;
const CONTENDERS_MIN: usize = 4096;
/// Less of the expected requests than this on the cached items, and history is discounted.
const OVERLAP_MIN: f64 = 0.5;
/// Requests per window from which a key is worth room that nobody else uses: about two, as they are
/// estimated.
const WORTH_ROOM: f64 = 1.5;

impl SwitchCache {
    /// A window ended; `items` are the cached items that had requests in it. Only keys with a
    /// `permit` are cached now.
    pub(crate) fn window_end(
        &mut self,
        now: Duration,
        window: u64,
        items: &[(Key, u64)],
        permit: impl Fn(&Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        let idle = items.is_empty() && self.reports_in_window == 0;
        if !idle {
            self.account(window, items);
            if self.windows >= 3.0 {
                self.improve(now, window, &permit, out);
            }
            self.forget_contenders(now);
        }
        for key in std::mem::take(&mut self.owed) {
            if !self.cached.contains(&key) && !self.asked.contains_key(&key) {
                self.ask(Change::Remove, key, out);
            }
        }
        if self.threshold.window_end(self.has_ample_room()) {
            out.push(self.configure());
        }
        self.take_stock(permit);
        self.capacity.window_end();
        self.swaps_left = self.capacity.most();
        self.upheaval.window_end();
        self.reports_last_window = std::mem::take(&mut self.reports_in_window);
        self.window = window.wrapping_add(1);
        self.began = now;
    }

    /// Adds the window's counts to every mass.
    fn account(&mut self, window: u64, items: &[(Key, u64)]) {
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
        let (mut useful, mut useless) = (0, 0);
        for (entry, hits) in self.cached.entries_mut().iter_mut().zip(hits) {
            if hits > 0.0 {
                entry.seen = self.ended;
                entry.bypassed_windows = 0;
                useful += usize::from(entry.on_trial.take().is_some());
            } else if entry.on_trial.is_some_and(|since| self.ended - since > LATELY_WINDOWS) {
                entry.on_trial = None;
                useless += 1;
            }
            let (past, reported) = entry.split(window);
            let count = reported + hits;
            entry.mass = past * keep + count;
            if !whole(entry) {
                entry.pace = entry.pace.max(lower(count));
                continue;
            }
            if entry.cached_in.is_some_and(|since| since == window.wrapping_sub(1))
                && entry.pace > 2.0
            {
                overstated.push(entry.pace - count);
            }
            entry.mass = entry.mass.min(self.windows * upper(count));
            entry.pace = lower(count);
            if entry.cached_in.is_some_and(|since| window.wrapping_sub(since) > LATELY_WINDOWS) {
                entry.strikes = 0;
            }
        }
        self.shortage.proved(useful, useless);
        self.learn_noise(overstated);
        let threshold = self.threshold.requests();
        for entry in self.contenders.entries_mut() {
            let (past, reported) = entry.split(window);
            let rate = ((past - 1.0) / self.windows).max(0.0);
            let count = if reported > 0.0 { reported } else { unreported(rate, threshold) };
            entry.mass = past * keep + count;
            entry.pace = lower(reported);
        }
    }

    /// How much of the past stays: less when the cached items' requests do not look as expected.
    fn discount(&mut self, hits: &[f64], whole: impl Fn(&Entry) -> bool, window: u64) -> f64 {
        let keep = 0.5f64.powf(1.0 / HALF_LIFE_WINDOWS);
        let (mut seen, mut usual) = (0.0, 0.0);
        for (entry, &hits) in self.cached.entries().iter().zip(hits).filter(|(e, _)| whole(e)) {
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

    /// At a window's end: the best contenders against the coldest items, a few at most.
    fn improve(
        &mut self,
        now: Duration,
        window: u64,
        permit: impl Fn(&Key) -> Permit,
        out: &mut Vec<Action>,
    ) {
        let windows = self.windows;
        let mut best: Vec<&Entry> = self
            .contenders
            .entries()
            .iter()
            .filter(|e| e.paused_until <= now && !self.asked.contains_key(&e.key))
            .filter(|e| permit(&e.key) == Permit::Yes)
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
        let most = self.capacity.most().div_ceil(CHANGE_ONE_IN);
        let pairs: Vec<(Key, Key)> = coldest
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

    /// Forgets the contenders with the least evidence, down to the limit.
    pub(super) fn forget_contenders(&mut self, now: Duration) {
        let before = self.contenders.len();
        let most = self.max_contenders();
        let worth = |e: &Entry| {
            if e.paused_until > now { f64::MAX } else { e.mass }
        };
        let mut least: f64 = 0.5;
        if before > most {
            let mut masses: Vec<f64> = self.contenders.entries().iter().map(worth).collect();
            let (_, at, _) = masses.select_nth_unstable_by(before - most, f64::total_cmp);
            least = least.max(*at);
        }
        let mut kept = 0;
        let asked = &self.asked;
        self.contenders.retain(|e| {
            let keep = asked.contains_key(&e.key) || (worth(e) >= least && kept < most);
            kept += usize::from(keep);
            keep
        });
        self.counts.contenders_forgotten += (before - self.contenders.len()) as u64;
    }

    pub(super) fn max_contenders(&self) -> usize {
        (CONTENDERS_PER_ITEM * self.capacity.most()).max(CONTENDERS_MIN)
    }

    /// Counts cold items, and keys that are worth room.
    fn take_stock(&mut self, permit: impl Fn(&Key) -> Permit) {
        let (ended, windows) = (self.ended, self.windows.max(1.0));
        let is_usable = |entry: &Entry| ended - entry.seen < USABLE_WINDOWS;
        let cached = self.cached.entries().iter();
        let mut usable = cached.filter(|entry| is_usable(entry)).count();
        let mut evident = 0;
        for entry in self.contenders.entries_mut() {
            let asked_for =
                entry.pace >= 2.0 || entry.slow_rate(windows) >= WORTH_ROOM || entry.displaced;
            if !is_usable(entry) || self.asked.contains_key(&entry.key) {
                entry.counted = entry.unmet == Some(ended);
                continue;
            }
            let is_permitted = permit(&entry.key) != Permit::No;
            usable += usize::from(is_permitted);
            let worth = asked_for && is_permitted && ended - entry.seen < LATELY_WINDOWS;
            evident += usize::from(worth);
            entry.counted = worth || entry.unmet == Some(ended);
        }
        self.shortage.window_end(evident);
        (self.usable, self.fresh) = (usable, 0);
        self.ended += 1;
        self.cold = self.count_cold();
    }
}

/// Whether a contender has more evidence than an item, beyond what chance would make of equals.
fn deserves(new: &Entry, old: &Entry, windows: f64) -> bool {
    let beyond_chance = new.mass > old.mass + (new.mass + old.mass).sqrt();
    outpaces(new.pace, old.rate(windows))
        || (beyond_chance && new.rate(windows) > 1.1 * old.rate(windows))
}
