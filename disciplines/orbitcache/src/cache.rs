//! What one switch has of one tenant, and what is known of the tenant's keys there.
//!
//! A key's *score* is its reads in a window, smoothed: half of it is the latest window's, unless
//! that says that it cannot be. Items are counted by the switch; of other keys the switch tells
//! what it missed, and stores what reached them, by this switch or another. So where the switch
//! says something, that counts.
//!
//! What becomes hot does not wait for the window's end, where another tenant may take up whatever
//! room is left: a key that is so much hotter than an item takes its place as soon as it is
//! reported.
//!
//! A report is a look-up, and while items may still change a pass over all keys, some thousand at
//! most; so is a window's end.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{Action, Change, Configuration, Key, Limits, Outcome, Record, Room, SwitchId};
use hot::{Capacity, Threshold};

/// Reads in a window from which a key is worth a place that is free.
const WORTH: f64 = 2.0;
/// How much hotter than an item another key must be to take its place, beyond what chance makes of
/// equals.
const HOTTER: f64 = 1.1;
/// Keys that are remembered beside the items, per item that there may be, and at least.
const OTHERS_PER_ITEM: usize = 4;
const OTHERS_LEAST: usize = 1024;
/// What a store said counts for so many windows: windows and reports do not begin together.
const STORES_WINDOWS: f64 = 2.5;
/// What an item that the switch held before we knew it is taken to have been read.
const HELD: f64 = 2.0;
/// For so long a key is left alone that cannot be cached, or found its bucket full, or no room.
const UNFIT: Duration = Duration::from_secs(60);
const BUCKET_FULL: Duration = Duration::from_secs(10);
const NO_ROOM: Duration = Duration::from_secs(1);

/// Whether the switch has an item of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Out,
    /// It was asked for.
    Coming,
    In,
    /// Its removal was asked for.
    Leaving,
}

/// What is known of a key at the switch.
#[derive(Debug, Default)]
struct KeyState {
    place: Place,
    score: f64,
    /// Reads in this window that the switch missed.
    missed: f64,
    /// Reads in a window that reached its store, and when that was said.
    at_store: Option<(f64, Duration)>,
    /// It came in this window: no count is whole.
    is_new: bool,
    /// Its reads reach a store, but not by this switch; until the pause is over.
    passes_by: bool,
    paused_until: Duration,
}

impl KeyState {
    fn is_item(&self) -> bool {
        matches!(self.place, Place::Coming | Place::In)
    }

    /// Reads that a store told of lately, and that may have come by.
    fn at_store(&self, now: Duration, window: Duration) -> f64 {
        let fresh = |at: Duration| now.saturating_sub(at) <= window.mul_f64(STORES_WINDOWS);
        let said = self.at_store.filter(|(_, at)| fresh(*at));
        said.map_or(0.0, |(reads, _)| reads)
    }

    /// Reads of a key that is no item, in this window as far as anybody told.
    fn reads(&self, now: Duration, window: Duration) -> f64 {
        if self.missed > 0.0 || self.passes_by { self.missed } else { self.at_store(now, window) }
    }

    /// Whether it may be asked for.
    fn is_eligible(&self, now: Duration) -> bool {
        self.place == Place::Out && self.paused_until <= now
    }

    /// What speaks for giving it a place that is free.
    fn worth(&self, now: Duration, window: Duration) -> f64 {
        match self.is_eligible(now) {
            true => self.score.max(self.reads(now, window)),
            false => 0.0,
        }
    }
}

/// What was done since the start, by name.
#[derive(Debug, Default)]
pub struct Counts {
    reports: u64,
    inserts: u64,
    evicts: u64,
    no_room: u64,
    bucket_full: u64,
    refused: u64,
    not_sent: u64,
    dropped: u64,
    unfit: u64,
}

/// One tenant's items on one switch.
pub struct Cache {
    switch: SwitchId,
    tenant: u32,
    window: Duration,
    /// What the programs find in parameter word 1.
    word: u32,
    keys: BTreeMap<Key, KeyState>,
    /// How many of them are items.
    items: usize,
    others_most: usize,
    items_most: usize,
    /// Items that it may have.
    share: usize,
    /// Items that may still make way for hotter keys before the next window's end.
    changes: usize,
    capacity: Capacity,
    threshold: Threshold,
    counts: Counts,
}

impl Cache {
    /// Empty; `items_most` and `word` are as its switch has them.
    pub fn new(tenant: u32, room: &Room, limits: Limits, items_most: usize, word: u32) -> Cache {
        let before = room.parameters.map(|[threshold, _]| threshold);
        Cache {
            switch: room.switch,
            tenant,
            window: Duration::from_millis(limits.window_ms.max(1).into()),
            word,
            keys: BTreeMap::new(),
            items: 0,
            items_most: limits.max_items.min(items_most),
            others_most: (OTHERS_PER_ITEM * items_most).max(OTHERS_LEAST),
            share: 0,
            changes: 0,
            capacity: Capacity::new(limits.max_items.min(items_most), room.pages),
            threshold: Threshold::new(before, limits.reports_per_window),
            counts: Counts::default(),
        }
    }

    /// Puts the parameter words in force at the switch.
    pub fn configure(&self) -> Action {
        Action::Configure {
            switch: self.switch,
            tenant: self.tenant,
            configuration: Configuration::of([self.threshold.requests(), self.word]),
        }
    }

    /// It may have so many items from now on, and hot keys reported; what is too much goes with the
    /// next [`Cache::settle`].
    pub fn set_share(&mut self, items: usize, reports: u32) {
        self.share = items;
        self.threshold.set_budget(reports);
    }

    /// Items that it may have.
    pub fn share(&self) -> usize {
        self.share
    }

    /// The tenant has another number of pages there.
    pub fn resize(&mut self, pages: u32) {
        self.capacity.resize(pages, self.items);
    }

    /// The switch came (back) with these items, and without those that it was believed to have.
    pub fn holds(&mut self, held: &[Key], lost: &[Key], out: &mut Vec<Action>) {
        out.push(self.configure());
        let held: BTreeSet<&Key> = held.iter().collect();
        for (key, known) in &mut self.keys {
            if known.place == Place::In && !held.contains(key) {
                known.place = Place::Out;
                self.items -= 1;
            }
        }
        for key in held {
            let known = self.keys.entry(key.clone()).or_default();
            // Of an item that was known the score says more.
            if known.place == Place::Out {
                known.score = known.score.max(HELD);
                known.place = Place::In;
                known.is_new = true;
                self.items += 1;
            }
        }
        for key in lost {
            let known = self.keys.entry(key.clone()).or_default();
            known.score = known.score.max(HELD);
        }
    }

    /// The switch missed these keys so often in this window so far. What is worth it takes a place
    /// that is free, or that of an item that is colder by far.
    pub fn missed(&mut self, now: Duration, keys: &[(Key, u64)], out: &mut Vec<Action>) {
        self.counts.reports += keys.len() as u64;
        if self.threshold.reported(keys.len()) {
            out.push(self.configure());
        }
        for (key, reads) in keys {
            let known = self.keys.entry(key.clone()).or_default();
            known.missed = known.missed.max(*reads as f64);
            if std::mem::take(&mut known.passes_by) {
                known.paused_until = now;
            }
        }
        self.forget(now, 2 * self.others_most);
        self.fill(now, out);
        self.push_out(now, keys, out);
    }

    /// A store was read so often for these keys, in a window each.
    pub fn read_at_store(
        &mut self,
        now: Duration,
        keys: impl Iterator<Item = (Key, f64)>,
        out: &mut Vec<Action>,
    ) {
        for (key, reads) in keys {
            let known = self.keys.entry(key).or_default();
            known.at_store = Some((reads, now));
        }
        self.forget(now, 2 * self.others_most);
        self.fill(now, out);
    }

    /// A window ended in which items had these reads.
    pub fn window_end(&mut self, now: Duration, items: &[(Key, u64)], out: &mut Vec<Action>) {
        let reads: BTreeMap<&Key, u64> = items.iter().map(|(key, reads)| (key, *reads)).collect();
        for (key, known) in &mut self.keys {
            known.passes_by &= now < known.paused_until;
            let told = known.reads(now, self.window);
            let reads = match known.is_item() {
                true => reads.get(key).copied().unwrap_or(0) as f64,
                false => told,
            };
            let is_first = std::mem::take(&mut known.is_new) || known.place == Place::Coming;
            let deviation = reads.sqrt();
            known.score = if is_first {
                known.score.max(reads)
            } else {
                ((known.score + reads) / 2.0).max(reads - 2.0 * deviation)
            };
            // Of items every read is counted: what was hot and is not any longer shows at once.
            if known.is_item() && !is_first {
                known.score = known.score.min(reads + 3.0 * deviation + 3.0);
            }
            // The store is read for it, and nothing came by here in the whole window: it has no
            // business here.
            if known.place == Place::In && !is_first && reads == 0.0 && told >= WORTH {
                known.passes_by = true;
                known.paused_until = now + UNFIT;
                known.score = 0.0;
            }
            known.missed = 0.0;
        }
        self.forget(now, self.others_most);
        if self.threshold.window_end(false) {
            out.push(self.configure());
        }
        self.capacity.window_end();
    }

    /// How many items it would have if there were memory for them. A key that found none counts:
    /// for it there is to be more.
    pub fn wanted(&self, now: Duration) -> usize {
        let wanted = |known: &&KeyState| {
            (known.is_item() && (known.is_new || known.score >= WORTH / 2.0))
                || known.worth(now + NO_ROOM, self.window) >= WORTH
        };
        let wanted = self.keys.values().filter(wanted).count();
        wanted.min(self.items_most)
    }

    /// How many of them there is memory for.
    pub fn has_room_for(&self, now: Duration) -> usize {
        self.wanted(now).min(self.capacity.items())
    }

    /// Items that are there or come.
    pub fn items(&self) -> usize {
        self.items
    }

    /// At a window's end: what is too much goes, the coldest first, what is worth a free place
    /// comes, and where a key is hotter than an item they change places; `changes` of either at
    /// most. What is left of those is for keys that become hot before the next window's end.
    pub fn settle(&mut self, now: Duration, changes: usize, out: &mut Vec<Action>) {
        self.changes = changes;
        let most = self.most();
        let mut coldest = self.sorted(|known| (known.place == Place::In).then_some(known.score));
        let excess = self.items.saturating_sub(most).min(coldest.len());
        for (_, key) in coldest.drain(..excess.min(changes)) {
            self.evict(&key, out);
        }
        self.fill(now, out);
        let hottest = self.sorted(|known| known.is_eligible(now).then_some(known.score));
        self.exchange(&hottest, &coldest, out);
    }

    /// Within a window: of the keys that were reported the hottest take the places of the coldest
    /// items. An item that came in this window stays: its reads were not counted yet.
    fn push_out(&mut self, now: Duration, reported: &[(Key, u64)], out: &mut Vec<Action>) {
        if self.changes == 0 {
            return;
        }
        let missed = |(key, _): &(Key, u64)| {
            let known = self.keys.get(key).filter(|known| known.is_eligible(now))?;
            Some((known.missed, key.clone()))
        };
        let mut hottest: Vec<(f64, Key)> = reported.iter().filter_map(missed).collect();
        hottest.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        hottest.dedup();
        let has_count = |known: &KeyState| known.place == Place::In && !known.is_new;
        let coldest = self.sorted(|known| has_count(known).then_some(known.score));
        self.exchange(&hottest, &coldest, out);
    }

    /// The last of the one change places with the first of the other, as far as they are hotter,
    /// and as many items may change.
    fn exchange(&mut self, hottest: &[(f64, Key)], coldest: &[(f64, Key)], out: &mut Vec<Action>) {
        for ((new, hotter), (old, colder)) in hottest.iter().rev().zip(coldest) {
            let by_chance = 2.0 * (new + old).sqrt();
            if self.changes == 0 || *new <= HOTTER * old + by_chance {
                break;
            }
            self.evict(colder, out);
            self.insert(hotter, out);
            self.changes -= 1;
        }
    }

    /// A change was answered.
    pub fn answered(&mut self, now: Duration, key: &Key, change: &Change, outcome: Outcome) {
        let Some(known) = self.keys.get_mut(key) else { return };
        let pause = match (known.place, change, outcome) {
            (Place::Coming, Change::Put(_), Outcome::Done) => {
                known.place = Place::In;
                known.is_new = true;
                return;
            }
            (Place::Leaving, Change::Remove, Outcome::NotSent) => {
                // It is still there, and the coldest next time too.
                self.counts.not_sent += 1;
                known.place = Place::In;
                self.items += 1;
                return;
            }
            (Place::Leaving, Change::Remove, _) => {
                known.place = Place::Out;
                return;
            }
            (Place::Coming, Change::Put(_), Outcome::NoRoom) => {
                self.counts.no_room += 1;
                self.capacity.no_room(self.items - 1);
                NO_ROOM
            }
            (Place::Coming, Change::Put(_), Outcome::BucketFull) => {
                self.counts.bucket_full += 1;
                BUCKET_FULL
            }
            (Place::Coming, Change::Put(_), Outcome::Refused) => {
                self.counts.refused += 1;
                UNFIT
            }
            (Place::Coming, Change::Put(_), Outcome::NotSent) => {
                self.counts.not_sent += 1;
                NO_ROOM
            }
            _ => return,
        };
        known.place = Place::Out;
        known.paused_until = now + pause;
        self.items -= 1;
    }

    /// The switch gave items up by itself.
    pub fn dropped(&mut self, now: Duration, keys: &[Key], unfit: bool) {
        self.counts.dropped += keys.len() as u64;
        for key in keys {
            let known = self.keys.get_mut(key);
            let Some(known) = known.filter(|known| known.place == Place::In) else { continue };
            self.counts.unfit += u64::from(unfit);
            known.place = Place::Out;
            // Its page may be another tenant's by now, which says nothing of those that are left.
            known.paused_until = now + if unfit { UNFIT } else { self.window };
            self.items -= 1;
        }
    }

    /// Counts by name; the threshold is no sum.
    pub fn counts(&self) -> [(&'static str, u64); 10] {
        let Counts {
            reports,
            inserts,
            evicts,
            no_room,
            bucket_full,
            refused,
            not_sent,
            dropped,
            unfit,
        } = self.counts;
        [
            ("reports", reports),
            ("inserts", inserts),
            ("evicts", evicts),
            ("no_room", no_room),
            ("bucket_full", bucket_full),
            ("refused", refused),
            ("not_sent", not_sent),
            ("dropped", dropped),
            ("unfit", unfit),
            ("contenders", (self.keys.len() - self.items) as u64),
        ]
    }

    /// From how many reads in a window on the switch reports a key.
    pub fn threshold(&self) -> u32 {
        self.threshold.requests()
    }

    fn most(&self) -> usize {
        self.share.min(self.capacity.items())
    }

    /// Keys by what `of` makes of them, the lowest first; equals in the order of their bytes.
    fn sorted(&self, of: impl Fn(&KeyState) -> Option<f64>) -> Vec<(f64, Key)> {
        let of = |(key, known): (&Key, &KeyState)| Some((of(known)?, key.clone()));
        let mut all: Vec<(f64, Key)> = self.keys.iter().filter_map(of).collect();
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        all
    }

    /// The hottest keys take the places that are free.
    fn fill(&mut self, now: Duration, out: &mut Vec<Action>) {
        let free = self.most().saturating_sub(self.items);
        if free == 0 {
            return;
        }
        let best = self.sorted(|known| Some(known.worth(now, self.window)).filter(|w| *w >= WORTH));
        for (_, key) in best.iter().rev().take(free) {
            self.insert(key, out);
        }
    }

    fn insert(&mut self, key: &Key, out: &mut Vec<Action>) {
        self.counts.inserts += 1;
        self.items += 1;
        self.ask(key, Place::Coming, Change::Put(Record::Fetched), out);
    }

    fn evict(&mut self, key: &Key, out: &mut Vec<Action>) {
        self.counts.evicts += 1;
        self.items -= 1;
        self.ask(key, Place::Leaving, Change::Remove, out);
    }

    fn ask(&mut self, key: &Key, place: Place, change: Change, out: &mut Vec<Action>) {
        if let Some(known) = self.keys.get_mut(key) {
            known.place = place;
        }
        out.push(Action::Change {
            switch: self.switch,
            tenant: self.tenant,
            key: key.clone(),
            change,
        });
    }

    /// Keys beside the items, down to so many: the coldest are forgotten. Those that are paused
    /// stay, or they would be tried again.
    fn forget(&mut self, now: Duration, most: usize) {
        let window = self.window;
        let idle = |known: &KeyState| known.place == Place::Out && known.paused_until <= now;
        let weight = |known: &KeyState| match idle(known) {
            true => known.score.max(known.reads(now, window)),
            false => f64::MAX,
        };
        self.keys.retain(|_, known| weight(known) >= 0.5);
        let excess = (self.keys.len() - self.items).saturating_sub(most);
        if excess == 0 {
            return;
        }
        let mut weights: Vec<f64> = self.keys.values().map(weight).collect();
        let (below, at, _) = weights.select_nth_unstable_by(excess, f64::total_cmp);
        let least = *at;
        let mut equals = excess - below.iter().filter(|weight| **weight < least).count();
        self.keys.retain(|_, known| {
            let stays = match weight(known).total_cmp(&least) {
                Ordering::Less => false,
                Ordering::Equal => known.place != Place::Out || equals == 0,
                Ordering::Greater => true,
            };
            equals -= usize::from(!stays && weight(known) == least);
            stays
        });
    }
}
