//! A switch as the controller sees it, modelled exactly: a count-min sketch of 4 rows of 65,536 counters,
//! reset each window, reports in batches of a tenth of a window, counters of cached items.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use control::{Action, Change, Discipline, Event, ItemKey, Limits, Outcome, Room};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

const ROWS: usize = 4;
const WIDTH: usize = 1 << 16;
const SWITCH: u16 = 1;
/// Changes that the switch applies per batch: 20,000 per second.
const CHANGES_PER_BATCH: usize = 2_000;

/// The cumulative probabilities of ranks.
pub struct Zipf {
    up_to: Vec<f64>,
}

impl Zipf {
    pub fn new(keys: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-theta);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|p| *p /= sum);
        Zipf { up_to }
    }

    fn share(&self, rank: usize) -> f64 {
        self.up_to[rank] - if rank == 0 { 0.0 } else { self.up_to[rank - 1] }
    }

    fn sample(&self, random: &mut SmallRng) -> usize {
        let at: f64 = random.random();
        self.up_to
            .partition_point(|&p| p <= at)
            .min(self.up_to.len() - 1)
    }
}

pub struct Model {
    zipf: Zipf,
    /// The key of each rank.
    key_of: Vec<u32>,
    items: usize,
    random: SmallRng,
    controller: Box<dyn Discipline>,
    now: Duration,
    threshold: u32,
    window: u64,
    batches: u32,
    cached: HashSet<u32>,
    sketch: Vec<[u32; WIDTH]>,
    /// What each key was last reported with in this window.
    told: HashMap<u32, u32>,
    hits: HashMap<u32, u64>,
    waiting: Vec<(Change, ItemKey)>,
    pub reports_in_second: usize,
    pub changes_in_second: usize,
    hit_ratio: f64,
}

fn item(key: u32) -> ItemKey {
    ItemKey {
        tenant: 0,
        key: key.to_be_bytes().to_vec().into(),
    }
}

fn number(item: &ItemKey) -> u32 {
    u32::from_be_bytes(item.key[..].try_into().unwrap())
}

impl Model {
    pub fn new(zipf: Zipf, items: usize, seed: u64) -> Model {
        let limits = Limits {
            max_items: items,
            seed,
            ..Limits::default()
        };
        let mut model = Model {
            key_of: (0..zipf.up_to.len() as u32).collect(),
            zipf,
            items,
            random: SmallRng::seed_from_u64(seed),
            controller: netcache::controller(limits),
            now: Duration::from_secs(1),
            threshold: u32::MAX,
            window: 1,
            batches: 0,
            cached: HashSet::new(),
            sketch: vec![[0; WIDTH]; ROWS],
            told: HashMap::new(),
            hits: HashMap::new(),
            waiting: Vec::new(),
            reports_in_second: 0,
            changes_in_second: 0,
            hit_ratio: 0.0,
        };
        let room = Room {
            switch: SWITCH,
            pages: items.div_ceil(128) as u32,
            lent: 0,
            threshold: None,
        };
        model.event(Event::Room {
            tenant: 0,
            rooms: &[room],
        });
        model.event(Event::Attached {
            switch: SWITCH,
            held: &[],
            lost: &[],
        });
        model
    }

    /// The coldest `count` keys become the hottest.
    pub fn hot_in(&mut self, count: usize) {
        self.key_of.rotate_right(count);
    }

    /// The requests that the cached keys would take, of what the best choice would.
    pub fn learned(&self) -> f64 {
        let mass: f64 = self
            .key_of
            .iter()
            .enumerate()
            .filter(|(_, key)| self.cached.contains(key))
            .map(|(rank, _)| self.zipf.share(rank))
            .sum();
        mass / self.zipf.up_to[self.items - 1]
    }

    pub fn line(&self) -> String {
        format!(
            "(hits {:.3}, {} items, threshold {}, {} reports, {} changes)",
            self.hit_ratio,
            self.cached.len(),
            self.threshold,
            self.reports_in_second,
            self.changes_in_second
        )
    }

    pub fn second(&mut self, requests: usize) {
        for _ in 0..10 {
            self.batch(requests / 10);
        }
    }

    /// A tenth of a window.
    pub fn batch(&mut self, requests: usize) {
        if self.batches == 0 {
            (self.reports_in_second, self.changes_in_second) = (0, 0);
        }
        let mut crossed = Vec::new();
        let mut hits = 0;
        for _ in 0..requests {
            let key = self.key_of[self.zipf.sample(&mut self.random)];
            if self.cached.contains(&key) {
                *self.hits.entry(key).or_default() += 1;
                hits += 1;
                continue;
            }
            let estimate = self.count(key);
            let told = self.told.get(&key).copied().unwrap_or(0);
            if estimate >= self.threshold && estimate >= 2 * told {
                self.told.insert(key, estimate);
                crossed.push(key);
            }
        }
        self.hit_ratio = f64::from(hits) / requests as f64;
        self.now += Duration::from_millis(100);
        crossed.sort_unstable();
        crossed.dedup();
        let reports: Vec<(ItemKey, u64)> = crossed
            .iter()
            .map(|&key| (item(key), u64::from(self.told[&key])))
            .collect();
        self.reports_in_second += reports.len();
        for batch in reports.chunks(512) {
            self.event(Event::Hot {
                switch: SWITCH,
                window: self.window,
                keys: batch,
            });
        }
        self.batches += 1;
        if self.batches == 10 {
            self.batches = 0;
            let mut items: Vec<(ItemKey, u64)> = self
                .hits
                .drain()
                .filter(|(k, _)| self.cached.contains(k))
                .map(|(k, n)| (item(k), n))
                .collect();
            items.sort();
            self.event(Event::WindowEnd {
                switch: SWITCH,
                window: self.window,
                items: &items,
            });
            self.window += 1;
            self.told.clear();
            self.sketch.iter_mut().for_each(|row| row.fill(0));
        }
        self.apply();
    }

    fn count(&mut self, key: u32) -> u32 {
        let mut least = u32::MAX;
        for (row, counters) in self.sketch.iter_mut().enumerate() {
            let mixed =
                (u64::from(key) + 1 + ((row as u64 + 1) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let counter = &mut counters[(mixed >> 40) as usize % WIDTH];
            *counter += 1;
            least = least.min(*counter);
        }
        least
    }

    fn apply(&mut self) {
        let count = self.waiting.len().min(CHANGES_PER_BATCH);
        let rest = self.waiting.split_off(count);
        for (change, key) in std::mem::replace(&mut self.waiting, rest) {
            self.changes_in_second += 1;
            let outcome = match change {
                Change::Insert if self.cached.len() >= self.items => Outcome::NoRoom,
                Change::Insert => {
                    self.cached.insert(number(&key));
                    Outcome::Done
                }
                Change::Evict => {
                    self.cached.remove(&number(&key));
                    self.hits.remove(&number(&key));
                    Outcome::Done
                }
            };
            self.event(Event::Answered {
                switch: SWITCH,
                change,
                key: &key,
                outcome,
            });
        }
        assert!(self.cached.len() <= self.items);
    }

    fn event(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.controller.on(self.now, event, &mut out);
        for action in out {
            match action {
                Action::Change { change, key, .. } => self.waiting.push((change, key)),
                Action::Threshold { requests, .. } => self.threshold = requests,
            }
        }
    }
}
