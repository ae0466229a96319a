//! Switches in a line: a request passes them in order until one has its key. Each counts what it
//! misses, exactly.

use std::{collections::HashSet, time::Duration};

use decide::{
    Action, Answer, Discipline, HotKeys, ITEMS_PER_PAGE_USUAL, Inventory, Key, Room, SwitchId,
    WindowEnd,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::{RequestOutcome, Switch, Zipf, key, number};

/// Reports that come together at most.
const TOGETHER: usize = 512;

/// One tenant's traffic along a line of switches, and the controller of them all.
pub struct Line {
    controller: Box<dyn Discipline>,
    tenant: u32,
    /// The switches' ids along the line, in whatever order.
    ids: Vec<SwitchId>,
    /// The switches.
    pub switches: Vec<Switch>,
    /// Pages on each switch, and how many of them are borrowed.
    rooms: Vec<(u32, u32)>,
    traffic: Zipf,
    /// The key of each rank.
    order: Vec<u32>,
    random: SmallRng,
    /// The share of reports that never arrive; none: all do.
    pub lost: Option<f64>,
    /// Changes that a switch applies in a tenth of a window, at most.
    pub changes_most: usize,
    now: Duration,
    window: u64,
    batches: u32,
    /// Keys that a test put on two switches by hand.
    doubled: HashSet<u32>,
    /// Changes that were applied.
    pub changes: usize,
    /// Those of this window, or of the last one.
    pub changes_in_window: usize,
    /// Keys that were reported in it.
    pub reports_in_window: usize,
    /// Requests that no switch answered in it.
    pub store_reads_in_window: usize,
}

impl Line {
    /// A line of these switches, each with so many pages of the tenant.
    pub fn new(
        controller: Box<dyn Discipline>,
        tenant: u32,
        switches: &[(SwitchId, u32)],
        traffic: Zipf,
        seed: u64,
    ) -> Line {
        let mut line = Line {
            controller,
            tenant,
            ids: switches.iter().map(|(id, _)| *id).collect(),
            switches: switches.iter().map(|_| Switch::new(0)).collect(),
            rooms: vec![(0, 0); switches.len()],
            order: (0..traffic.keys() as u32).collect(),
            traffic,
            random: SmallRng::seed_from_u64(seed),
            lost: None,
            changes_most: usize::MAX,
            now: Duration::from_secs(1),
            window: 1,
            batches: 0,
            doubled: HashSet::new(),
            changes: 0,
            changes_in_window: 0,
            reports_in_window: 0,
            store_reads_in_window: 0,
        };
        let pages: Vec<u32> = switches.iter().map(|(_, pages)| *pages).collect();
        line.pages(&pages);
        (0..pages.len()).for_each(|at| line.attach(at, &[]));
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
        let (tenant, rooms) = (self.tenant, self.ids.iter().zip(&self.rooms));
        let rooms: Vec<Room> = rooms
            .filter(|(_, (pages, _))| *pages > 0)
            .map(|(switch, &(pages, lent))| Room { switch: *switch, pages, lent, parameters: None })
            .collect();
        self.event(|to, now, out| to.room(now, tenant, &rooms, out));
    }

    fn attach(&mut self, at: usize, lost: &[Key]) {
        let (tenant, switch) = (self.tenant, self.ids[at]);
        let mut held: Vec<Key> = self.switches[at].cached.iter().map(|n| key(*n)).collect();
        held.sort();
        self.event(|to, now, out| to.attached(now, switch, out));
        let inventory = Inventory { switch, tenant, held: &held, lost };
        self.event(|to, now, out| to.holds(now, inventory, out));
    }

    /// A switch goes and comes back, with or without what it held.
    pub fn restart(&mut self, at: usize, empty: bool) {
        let switch = self.ids[at];
        self.event(|to, now, out| to.detached(now, switch, out));
        self.seconds(2, 10_000);
        let mut lost = Vec::new();
        if empty {
            lost.extend(self.switches[at].cached.drain().map(key));
            lost.sort();
        }
        self.attach(at, &lost);
    }

    /// A new controller knows nothing but what switches tell it.
    pub fn replace_controller(&mut self, controller: Box<dyn Discipline>) {
        self.controller = controller;
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
        (0..self.switches.len()).for_each(|at| self.attach(at, &[]));
    }

    /// The coldest `count` keys become the hottest.
    pub fn hot_in(&mut self, count: usize) {
        self.order.rotate_right(count);
    }

    /// So many windows of a second, with so many requests in each.
    pub fn seconds(&mut self, seconds: usize, requests: usize) {
        (0..10 * seconds).for_each(|_| self.batch(requests / 10));
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

    /// Items that the tenant would have at a switch.
    pub fn wanted(&self, at: usize) -> usize {
        self.controller.wanted(self.ids[at], self.tenant)
    }

    /// The requests that the cached keys take, of what the best choice would.
    pub fn learned(&self) -> f64 {
        let is_cached = |n: &u32| self.switches.iter().any(|s| s.cached.contains(n));
        let cached = self.order.iter().enumerate().filter(|(_, n)| is_cached(n));
        let room: usize = self.switches.iter().map(|s| s.room).sum();
        cached.map(|(rank, _)| self.traffic.share(rank)).sum::<f64>() / self.traffic.best(room)
    }

    /// A tenth of a window.
    pub fn batch(&mut self, requests: usize) {
        if self.batches == 0 {
            (self.changes_in_window, self.reports_in_window) = (0, 0);
            self.store_reads_in_window = 0;
        }
        (0..requests).for_each(|_| self.request());
        self.now += Duration::from_millis(100);
        for at in 0..self.switches.len() {
            let reports = self.switches[at].reports();
            self.reports_in_window += reports.len();
            for keys in reports.chunks(TOGETHER) {
                let (switch, tenant, window) = (self.ids[at], self.tenant, self.window);
                let hot = HotKeys { switch, tenant, window, keys };
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

    fn request(&mut self) {
        let key = self.order[self.traffic.sample(&mut self.random)];
        for switch in &mut self.switches {
            match switch.request(key) {
                RequestOutcome::Hit => return,
                RequestOutcome::Missed => {}
                RequestOutcome::Crossed => {
                    if self.lost.is_none_or(|lost| self.random.random::<f64>() >= lost) {
                        switch.report(key);
                    }
                }
            }
        }
        self.store_reads_in_window += 1;
    }

    fn end_window(&mut self) {
        for at in 0..self.switches.len() {
            let items = self.switches[at].window_end();
            let (switch, tenant, window) = (self.ids[at], self.tenant, self.window);
            let tallies = &[0; decide::TALLIES];
            let end = WindowEnd { switch, tenant, window, items: &items, tallies };
            self.event(|to, now, out| to.window_end(now, end, out));
        }
        self.window += 1;
    }

    /// The switches do what they were told in the last batch, one after the other in no good order.
    fn apply(&mut self) {
        for at in (0..self.switches.len()).rev() {
            for (change, key) in self.switches[at].waiting(self.changes_most) {
                self.changes += 1;
                self.changes_in_window += 1;
                let outcome = self.switches[at].apply(&change, &key);
                let n = number(&key);
                let on = self.switches.iter().filter(|s| s.cached.contains(&n)).count();
                assert!(on <= 1 || self.doubled.contains(&n), "key {n} is on {on} switches");
                let (switch, tenant) = (self.ids[at], self.tenant);
                let answer = Answer { switch, tenant, key: &key, change: &change, outcome };
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
            assert_eq!(*tenant, self.tenant);
            let at = self.ids.iter().position(|id| id == switch).expect("one of the line");
            self.switches[at].take(action);
        }
    }
}
