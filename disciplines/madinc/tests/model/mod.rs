//! Switches in a line: a request passes them in order until one has its key. Each counts what it misses, exactly.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use control::{Action, Change, Discipline, Event, ItemKey, Limits, Outcome, Room};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

const TENANT: u32 = 5;
const ITEMS_PER_PAGE: usize = 128;

/// Which keys are asked for how often.
pub struct Traffic {
    up_to: Vec<f64>,
}

impl Traffic {
    pub fn uniform(keys: u32) -> Traffic {
        Traffic::zipf(keys, 0.0)
    }

    pub fn zipf(keys: u32, theta: f64) -> Traffic {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += f64::from(rank).powf(-theta);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|p| *p /= sum);
        Traffic { up_to }
    }

    fn sample(&self, random: &mut SmallRng) -> u32 {
        let at: f64 = random.random();
        self.up_to.partition_point(|&p| p <= at) as u32
    }

    /// The share of the requests that the first `keys` take.
    fn best(&self, keys: usize) -> f64 {
        self.up_to[keys.min(self.up_to.len()) - 1]
    }
}

#[derive(Default)]
struct Switch {
    pages: u32,
    lent: u32,
    threshold: u32,
    cached: HashSet<u32>,
    misses: HashMap<u32, u32>,
    told: HashMap<u32, u32>,
    hits: HashMap<u32, u64>,
    waiting: Vec<(Change, u32)>,
}

pub struct Line {
    traffic: Traffic,
    controller: Box<dyn Discipline>,
    switches: Vec<Switch>,
    random: SmallRng,
    /// The share of reports that never arrive.
    lost: f64,
    now: Duration,
    window: u64,
    batches: u32,
    /// Keys that a test put on two switches by hand.
    doubled: HashSet<u32>,
    pub changes: usize,
    pub store_reads_in_second: usize,
}

fn item(key: u32) -> ItemKey {
    ItemKey {
        tenant: TENANT,
        key: key.to_be_bytes().to_vec().into(),
    }
}

fn number(item: &ItemKey) -> u32 {
    u32::from_be_bytes(item.key[..].try_into().unwrap())
}

/// Ids are in no order along the line.
fn id(at: usize) -> u16 {
    40 - 7 * at as u16
}

fn at(id: u16) -> usize {
    usize::from((40 - id) / 7)
}

impl Line {
    pub fn new(pages: &[u32], traffic: Traffic, lost: f64) -> Line {
        let mut line = Line {
            traffic,
            controller: madinc::controller(Limits::default()),
            switches: pages.iter().map(|_| Switch::default()).collect(),
            random: SmallRng::seed_from_u64(11),
            lost,
            now: Duration::from_secs(1),
            window: 1,
            batches: 0,
            doubled: HashSet::new(),
            changes: 0,
            store_reads_in_second: 0,
        };
        line.pages(pages);
        for switch in 0..pages.len() {
            line.attach(switch, &[]);
        }
        line
    }

    /// The tenant's pages change; a switch whose pages all go is cleared.
    pub fn pages(&mut self, pages: &[u32]) {
        for (switch, pages) in self.switches.iter_mut().zip(pages) {
            switch.pages = *pages;
            if *pages == 0 {
                switch.cached.clear();
            }
        }
        self.tell_rooms();
    }

    /// How many of the pages are borrowed.
    pub fn lend(&mut self, lent: &[u32]) {
        for (switch, lent) in self.switches.iter_mut().zip(lent) {
            switch.lent = *lent;
        }
        self.tell_rooms();
    }

    fn tell_rooms(&mut self) {
        let rooms: Vec<Room> = self
            .switches
            .iter()
            .enumerate()
            .filter(|(_, switch)| switch.pages > 0)
            .map(|(at, switch)| Room {
                switch: id(at),
                pages: switch.pages,
                lent: switch.lent,
                threshold: None,
            })
            .collect();
        self.event(Event::Room {
            tenant: TENANT,
            rooms: &rooms,
        });
    }

    fn attach(&mut self, switch: usize, lost: &[ItemKey]) {
        let mut held: Vec<ItemKey> = self.switches[switch]
            .cached
            .iter()
            .map(|k| item(*k))
            .collect();
        held.sort();
        self.event(Event::Attached {
            switch: id(switch),
            held: &held,
            lost,
        });
    }

    /// A switch goes and comes back, with or without what it held.
    pub fn restart(&mut self, switch: usize, empty: bool) {
        self.event(Event::Detached { switch: id(switch) });
        self.seconds(2, 10_000);
        let mut lost = Vec::new();
        if empty {
            lost = self.switches[switch]
                .cached
                .drain()
                .map(item)
                .collect::<Vec<_>>();
            lost.sort();
        }
        self.attach(switch, &lost);
    }

    /// A new controller knows nothing but what switches tell it.
    pub fn forget_controller(&mut self) {
        self.controller = madinc::controller(Limits::default());
        self.tell_rooms();
        for switch in &mut self.switches {
            switch.waiting.clear();
        }
    }

    /// Puts a key on all switches by hand, and attaches them all.
    pub fn double(&mut self, key: u32) {
        self.doubled.insert(key);
        for switch in &mut self.switches {
            switch.cached.insert(key);
        }
        for switch in 0..self.switches.len() {
            self.attach(switch, &[]);
        }
    }

    pub fn seconds(&mut self, seconds: usize, requests: usize) {
        for _ in 0..seconds {
            self.store_reads_in_second = 0;
            (0..10).for_each(|_| self.batch(requests / 10));
        }
    }

    /// How many keys are cached, each counted once.
    pub fn cached(&self) -> usize {
        let keys = self.switches.iter().flat_map(|s| &s.cached);
        keys.collect::<HashSet<_>>().len()
    }

    /// Items on each switch.
    pub fn held(&self) -> Vec<usize> {
        self.switches.iter().map(|s| s.cached.len()).collect()
    }

    /// Whether no key is on two switches.
    pub fn is_single(&self) -> bool {
        self.held().iter().sum::<usize>() == self.cached()
    }

    pub fn wanted(&self, switch: usize) -> usize {
        self.controller.wanted(id(switch), TENANT)
    }

    /// The requests that the cached keys take, of what the best choice would.
    pub fn learned(&self) -> f64 {
        let share = |key: u32| {
            let before = key.checked_sub(1);
            self.traffic.up_to[key as usize]
                - before.map_or(0.0, |key| self.traffic.up_to[key as usize])
        };
        let keys: HashSet<u32> = self
            .switches
            .iter()
            .flat_map(|s| s.cached.iter().copied())
            .collect();
        let room: usize = self
            .switches
            .iter()
            .map(|s| s.pages as usize * ITEMS_PER_PAGE)
            .sum();
        keys.into_iter().map(share).sum::<f64>() / self.traffic.best(room)
    }

    /// A tenth of a window.
    fn batch(&mut self, requests: usize) {
        let mut crossed: Vec<Vec<u32>> = self.switches.iter().map(|_| Vec::new()).collect();
        for _ in 0..requests {
            let key = self.traffic.sample(&mut self.random);
            let hit = self.switches.iter().position(|s| s.cached.contains(&key));
            if let Some(hit) = hit {
                *self.switches[hit].hits.entry(key).or_default() += 1;
            } else {
                self.store_reads_in_second += 1;
            }
            let missed = hit.unwrap_or(self.switches.len());
            for (switch, crossed) in self.switches[..missed].iter_mut().zip(&mut crossed) {
                if switch.pages == 0 {
                    continue;
                }
                let count = switch.misses.entry(key).or_default();
                *count += 1;
                let told = switch.told.get(&key).copied().unwrap_or(0);
                if *count >= switch.threshold && *count >= 2 * told {
                    switch.told.insert(key, *count);
                    if self.random.random::<f64>() >= self.lost {
                        crossed.push(key);
                    }
                }
            }
        }
        self.now += Duration::from_millis(100);
        for (switch, mut keys) in crossed.into_iter().enumerate() {
            keys.sort_unstable();
            keys.dedup();
            let told = &self.switches[switch].told;
            let keys: Vec<(ItemKey, u64)> = keys
                .into_iter()
                .map(|k| (item(k), u64::from(told[&k])))
                .collect();
            for keys in keys.chunks(512) {
                self.event(Event::Hot {
                    switch: id(switch),
                    window: self.window,
                    keys,
                });
            }
        }
        self.batches += 1;
        if self.batches == 10 {
            self.batches = 0;
            self.end_window();
        }
        self.event(Event::Tick);
        self.apply();
    }

    fn end_window(&mut self) {
        for at in 0..self.switches.len() {
            let switch = &mut self.switches[at];
            switch.misses.clear();
            switch.told.clear();
            let mut items: Vec<_> = switch.hits.drain().map(|(k, n)| (item(k), n)).collect();
            items.sort();
            self.event(Event::WindowEnd {
                switch: id(at),
                window: self.window,
                items: &items,
            });
        }
        self.window += 1;
    }

    /// The switches do what they were told in the last batch, one after the other in no good order.
    fn apply(&mut self) {
        for at in (0..self.switches.len()).rev() {
            for (change, key) in std::mem::take(&mut self.switches[at].waiting) {
                let switch = &mut self.switches[at];
                self.changes += 1;
                let full = switch.cached.len() >= switch.pages as usize * ITEMS_PER_PAGE;
                let outcome = match change {
                    Change::Insert if full => Outcome::NoRoom,
                    Change::Insert => {
                        switch.cached.insert(key);
                        Outcome::Done
                    }
                    Change::Evict => {
                        switch.cached.remove(&key);
                        switch.hits.remove(&key);
                        Outcome::Done
                    }
                };
                let on = |s: &&Switch| s.cached.contains(&key);
                let on = self.switches.iter().filter(on).count();
                assert!(
                    on <= 1 || self.doubled.contains(&key),
                    "key {key} is on {on} switches"
                );
                self.event(Event::Answered {
                    switch: id(at),
                    change,
                    key: &item(key),
                    outcome,
                });
            }
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let mut out = Vec::new();
        self.controller.on(self.now, event, &mut out);
        for action in out {
            match action {
                Action::Change {
                    switch,
                    change,
                    key,
                } => {
                    let switch = &mut self.switches[at(switch)];
                    switch.waiting.push((change, number(&key)));
                }
                Action::Threshold {
                    switch,
                    tenant,
                    requests,
                } => {
                    assert_eq!(tenant, TENANT);
                    self.switches[at(switch)].threshold = requests;
                }
            }
        }
    }
}
