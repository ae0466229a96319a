//! One switch and its controller, with the traffic of one tenant.

use std::time::Duration;

use decide::{
    Action, Answer, Discipline, HotKeys, ITEMS_PER_PAGE_USUAL, Inventory, Limits, Room, WindowEnd,
};
pub use hot::testing::Zipf;
use hot::testing::{RequestOutcome, Switch};
use rand::{SeedableRng, rngs::SmallRng};

const SWITCH: u16 = 1;
const TENANT: u32 = 0;
/// Changes that the switch applies per batch: 20,000 per second.
const CHANGES_PER_BATCH: usize = 2_000;

pub struct Model {
    zipf: Zipf,
    /// The key of each rank.
    key_of: Vec<u32>,
    random: SmallRng,
    controller: Box<dyn Discipline>,
    now: Duration,
    window: u64,
    batches: u32,
    switch: Switch,
    pub reports_in_second: usize,
    pub changes_in_second: usize,
    hit_ratio: f64,
}

impl Model {
    pub fn new(zipf: Zipf, items: usize, seed: u64) -> Model {
        let limits = Limits { max_items: items, seed, ..Limits::default() };
        let mut model = Model {
            key_of: (0..zipf.keys() as u32).collect(),
            zipf,
            random: SmallRng::seed_from_u64(seed),
            controller: netcache::controller(limits),
            now: Duration::from_secs(1),
            window: 1,
            batches: 0,
            switch: Switch::new(items),
            reports_in_second: 0,
            changes_in_second: 0,
            hit_ratio: 0.0,
        };
        let room = Room {
            switch: SWITCH,
            pages: items.div_ceil(ITEMS_PER_PAGE_USUAL) as u32,
            lent: 0,
            parameters: None,
        };
        model.event(|to, now, out| to.room(now, TENANT, &[room], out));
        model.event(|to, now, out| to.attached(now, SWITCH, out));
        let inventory = Inventory { switch: SWITCH, tenant: TENANT, held: &[], lost: &[] };
        model.event(|to, now, out| to.holds(now, inventory, out));
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
            .filter(|(_, key)| self.switch.cached.contains(key))
            .map(|(rank, _)| self.zipf.share(rank))
            .sum();
        mass / self.zipf.best(self.switch.room)
    }

    pub fn line(&self) -> String {
        format!(
            "(hits {:.3}, {} items, threshold {}, {} reports, {} changes)",
            self.hit_ratio,
            self.switch.cached.len(),
            self.switch.threshold,
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
        let mut hits = 0;
        for _ in 0..requests {
            let key = self.key_of[self.zipf.sample(&mut self.random)];
            match self.switch.request(key) {
                RequestOutcome::Hit => hits += 1,
                RequestOutcome::Missed => {}
                RequestOutcome::Crossed => self.switch.report(key),
            }
        }
        self.hit_ratio = f64::from(hits) / requests as f64;
        self.now += Duration::from_millis(100);
        let reports = self.switch.reports();
        self.reports_in_second += reports.len();
        for keys in reports.chunks(512) {
            let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: self.window, keys };
            self.event(|to, now, out| to.hot(now, hot, out));
        }
        self.batches += 1;
        if self.batches == 10 {
            self.batches = 0;
            let items = self.switch.window_end();
            let end = WindowEnd {
                switch: SWITCH,
                tenant: TENANT,
                window: self.window,
                items: &items,
                tallies: &[0; decide::TALLIES],
            };
            self.event(|to, now, out| to.window_end(now, end, out));
            self.window += 1;
        }
        self.apply();
    }

    fn apply(&mut self) {
        for (change, key) in self.switch.waiting(CHANGES_PER_BATCH) {
            self.changes_in_second += 1;
            let outcome = self.switch.apply(&change, &key);
            let answer =
                Answer { switch: SWITCH, tenant: TENANT, key: &key, change: &change, outcome };
            self.event(|to, now, out| to.answered(now, answer, out));
        }
        assert!(self.switch.cached.len() <= self.switch.room);
    }

    fn event(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = Vec::new();
        event(&mut *self.controller, self.now, &mut out);
        out.into_iter().for_each(|action| self.switch.take(action));
    }
}
