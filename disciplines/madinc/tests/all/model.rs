//! Switches in a line: a request passes them in order until one has its key. Each counts what it
//! misses, exactly.

use std::{collections::HashSet, time::Duration};

use decide::{
    Action, Answer, Discipline, HotKeys, ITEMS_PER_PAGE_USUAL, Inventory, Key, Limits, Room,
    WindowEnd,
};
use hot::testing::{RequestOutcome, Switch, Zipf, key, number};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

const TENANT: u32 = 5;

pub struct Line {
    traffic: Zipf,
    controller: Box<dyn Discipline>,
    switches: Vec<Switch>,
    /// Pages on each switch, and how many of them are borrowed.
    rooms: Vec<(u32, u32)>,
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

/// Ids are in no order along the line.
fn id(at: usize) -> u16 {
    40 - 7 * at as u16
}

fn at(id: u16) -> usize {
    usize::from((40 - id) / 7)
}

impl Line {
    pub fn new(pages: &[u32], traffic: Zipf, lost: f64) -> Line {
        let mut line = Line {
            traffic,
            controller: madinc::controller(Limits::default()),
            switches: pages.iter().map(|_| Switch::new(0)).collect(),
            rooms: vec![(0, 0); pages.len()],
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
        for (at, pages) in pages.iter().enumerate() {
            self.rooms[at].0 = *pages;
            self.switches[at].room = *pages as usize * ITEMS_PER_PAGE_USUAL;
            if *pages == 0 {
                self.switches[at].cached.clear();
            }
        }
        self.tell_rooms();
    }

    /// How many of the pages are borrowed.
    pub fn lend(&mut self, lent: &[u32]) {
        for (room, lent) in self.rooms.iter_mut().zip(lent) {
            room.1 = *lent;
        }
        self.tell_rooms();
    }

    fn tell_rooms(&mut self) {
        let rooms = self.rooms.iter().enumerate();
        let rooms: Vec<Room> = rooms
            .filter(|(_, (pages, _))| *pages > 0)
            .map(|(at, &(pages, lent))| Room { switch: id(at), pages, lent, parameters: None })
            .collect();
        self.event(|to, now, out| to.room(now, TENANT, &rooms, out));
    }

    fn attach(&mut self, switch: usize, lost: &[Key]) {
        let cached = self.switches[switch].cached.iter();
        let mut held: Vec<Key> = cached.map(|n| key(*n)).collect();
        held.sort();
        self.event(|to, now, out| to.attached(now, id(switch), out));
        let inventory = Inventory { switch: id(switch), tenant: TENANT, held: &held, lost };
        self.event(|to, now, out| to.holds(now, inventory, out));
    }

    /// A switch goes and comes back, with or without what it held.
    pub fn restart(&mut self, switch: usize, empty: bool) {
        self.event(|to, now, out| to.detached(now, id(switch), out));
        self.seconds(2, 10_000);
        let mut lost = Vec::new();
        if empty {
            lost.extend(self.switches[switch].cached.drain().map(key));
            lost.sort();
        }
        self.attach(switch, &lost);
    }

    /// A new controller knows nothing but what switches tell it.
    pub fn forget_controller(&mut self) {
        self.controller = madinc::controller(Limits::default());
        self.tell_rooms();
        for switch in &mut self.switches {
            switch.waiting(usize::MAX);
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
        let cached = self.switches.iter().flat_map(|s| s.cached.iter().copied());
        let cached: HashSet<u32> = cached.collect();
        let room: usize = self.switches.iter().map(|s| s.room).sum();
        let share = |n: u32| self.traffic.share(n as usize);
        cached.into_iter().map(share).sum::<f64>() / self.traffic.best(room)
    }

    /// A tenth of a window.
    fn batch(&mut self, requests: usize) {
        for _ in 0..requests {
            let key = self.traffic.sample(&mut self.random) as u32;
            let mut hit = false;
            for switch in &mut self.switches {
                match switch.request(key) {
                    RequestOutcome::Hit => hit = true,
                    RequestOutcome::Missed => {}
                    RequestOutcome::Crossed => {
                        if self.random.random::<f64>() >= self.lost {
                            switch.report(key);
                        }
                    }
                }
                if hit {
                    break;
                }
            }
            self.store_reads_in_second += usize::from(!hit);
        }
        self.now += Duration::from_millis(100);
        for at in 0..self.switches.len() {
            for keys in self.switches[at].reports().chunks(512) {
                let hot = HotKeys { switch: id(at), tenant: TENANT, window: self.window, keys };
                self.event(|to, now, out| to.hot(now, hot, out));
            }
        }
        self.batches += 1;
        if self.batches == 10 {
            self.batches = 0;
            self.end_window();
        }
        self.event(|to, now, out| to.tick(now, out));
        self.apply();
    }

    fn end_window(&mut self) {
        for at in 0..self.switches.len() {
            let items = self.switches[at].window_end();
            let end = WindowEnd {
                switch: id(at),
                tenant: TENANT,
                window: self.window,
                items: &items,
                tallies: &[0; decide::TALLIES],
            };
            self.event(|to, now, out| to.window_end(now, end, out));
        }
        self.window += 1;
    }

    /// The switches do what they were told in the last batch, one after the other in no good order.
    fn apply(&mut self) {
        for at in (0..self.switches.len()).rev() {
            for (change, key) in self.switches[at].waiting(usize::MAX) {
                self.changes += 1;
                let outcome = self.switches[at].apply(&change, &key);
                let n = number(&key);
                let on = |s: &&Switch| s.cached.contains(&n);
                let on = self.switches.iter().filter(on).count();
                assert!(on <= 1 || self.doubled.contains(&n), "key {n} is on {on} switches");
                let answer =
                    Answer { switch: id(at), tenant: TENANT, key: &key, change: &change, outcome };
                self.event(|to, now, out| to.answered(now, answer, out));
            }
        }
    }

    fn event(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = Vec::new();
        event(&mut *self.controller, self.now, &mut out);
        for action in out {
            let (Action::Change { switch, tenant, .. } | Action::Configure { switch, tenant, .. }) =
                &action
            else {
                panic!("nothing is told to stores");
            };
            assert_eq!(*tenant, TENANT);
            self.switches[at(*switch)].take(action);
        }
    }
}
