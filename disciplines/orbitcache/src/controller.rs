//! The controller of `orbitcache`: every switch decides alone, over all of its tenants.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use decide::{
    Action, Answer, Discipline, Eviction, HotKeys, Inventory, Limits, Room, SwitchId, Tallies,
    WindowEnd,
};
use hot::add;

use crate::{
    cache::Cache,
    report::{Report, ReportRequest},
    settings,
    share::shares,
    size::Size,
    watch::Watch,
};

/// Words that the programs count: reads of items that might be answered, and those of them that
/// found no place to wait.
const READS: usize = 0;
const OVERFLOWS: usize = 1;
/// One in so many of the items that a switch may have may be others after a window.
const CHANGE_ONE_IN: usize = 2;
/// Hot keys that are reported for each item that there may be: so many tell enough.
const REPORTS_PER_ITEM: u32 = 8;
/// In the parameter word: the time of a read that goes round for ever, and where the number of
/// reads that wait begins.
const FOR_EVER: u32 = 0xff_ffff;
const QUEUE_SHIFT: u32 = 24;

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    let set = limits.settings;
    let wanted = ReportRequest {
        keys: set[settings::TOP_K] as u16,
        window: Duration::from_millis(limits.window_ms.into()),
    };
    Box::new(Controller {
        limits,
        switches: BTreeMap::new(),
        watch: Watch::new(wanted.encode()),
        now: Duration::ZERO,
    })
}

struct Controller {
    limits: Limits,
    switches: BTreeMap<SwitchId, Switch>,
    watch: Watch,
    /// The time of the last event: what is wanted is asked for without one.
    now: Duration,
}

struct Switch {
    attached: bool,
    size: Size,
    caches: BTreeMap<u32, Cache>,
    /// Reads and overflows of the window that ended, until it is settled.
    ended: Option<(u64, u64)>,
    reads: u64,
    overflows: u64,
    store_reports: u64,
    /// The overflows in a thousand reads of the last window that had reads.
    overflow_permille: u64,
    /// What caches that are gone had counted.
    gone: BTreeMap<&'static str, u64>,
}

impl Switch {
    fn new(limits: Limits) -> Switch {
        let set = limits.settings;
        Switch {
            attached: false,
            size: Size::new(
                set[settings::ITEMS_MIN],
                set[settings::ITEMS_MAX],
                set[settings::OVERFLOW_PERMILLE],
            ),
            caches: BTreeMap::new(),
            ended: None,
            reads: 0,
            overflows: 0,
            store_reports: 0,
            overflow_permille: 0,
            gone: BTreeMap::new(),
        }
    }

    /// Divides what there may be: to each what it wants, as far as that is fair, and evenly what
    /// nobody wants.
    fn share(&mut self, now: Duration, limits: &Limits) {
        let count = self.caches.len().max(1);
        let wanted: Vec<usize> =
            self.caches.values().map(|cache| cache.has_room_for(now)).collect();
        let total = self.size.items();
        let shares = shares(total, &wanted);
        let spare = (total - shares.iter().sum::<usize>()) / count;
        let reports = REPORTS_PER_ITEM * limits.settings[settings::ITEMS_MAX];
        let reports = reports.min(limits.reports_per_window) / count as u32;
        for (cache, share) in self.caches.values_mut().zip(shares) {
            cache.set_share(share + spare, reports);
        }
    }

    fn window_end(&mut self, tallies: &Tallies) {
        let (reads, overflows) = self.ended.get_or_insert_default();
        *reads += tallies[READS].max(tallies[OVERFLOWS]);
        *overflows += tallies[OVERFLOWS];
    }

    /// A window ended, for all tenants.
    fn settle(&mut self, now: Duration, limits: &Limits, out: &mut Vec<Action>) {
        let Some((reads, overflows)) = self.ended.take_if(|_| self.attached) else { return };
        self.reads += reads;
        self.overflows += overflows;
        let permille = (1000 * overflows).checked_div(reads);
        self.overflow_permille = permille.unwrap_or(self.overflow_permille);
        let wanted: usize = self.caches.values().map(|cache| cache.has_room_for(now)).sum();
        let more = wanted > self.size.items();
        self.size.window_end(reads, overflows, more);
        self.share(now, limits);
        let changes = self.size.items().div_ceil(CHANGE_ONE_IN * self.caches.len().max(1));
        for cache in self.caches.values_mut() {
            cache.settle(now, changes, out);
        }
    }
}

impl Controller {
    /// What the programs find in word 1.
    fn word(&self) -> u32 {
        let set = self.limits.settings;
        let park_us = match set[settings::PARK_US] {
            0 => FOR_EVER,
            park_us => park_us,
        };
        set[settings::QUEUE] << QUEUE_SHIFT | park_us
    }

    fn cache(&mut self, switch: SwitchId, tenant: u32) -> Option<&mut Cache> {
        self.switches.get_mut(&switch)?.caches.get_mut(&tenant)
    }

    fn attach(&mut self, now: Duration, switch: SwitchId, attached: bool) {
        self.now = now;
        let limits = self.limits;
        let at = self.switches.entry(switch);
        let at = at.or_insert_with(|| Switch::new(limits));
        at.attached = attached;
    }
}

impl Discipline for Controller {
    fn attached(&mut self, now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.attach(now, switch, true);
    }

    fn detached(&mut self, now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.attach(now, switch, false);
    }

    /// A tenant's caches come, go, grow and shrink.
    fn room(&mut self, now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        self.now = now;
        let (limits, word) = (self.limits, self.word());
        let items_most = limits.settings[settings::ITEMS_MAX] as usize;
        self.watch.want(tenant, !rooms.is_empty());
        for (id, switch) in &mut self.switches {
            if rooms.iter().all(|room| room.switch != *id)
                && let Some(cache) = switch.caches.remove(&tenant)
            {
                add(&mut switch.gone, cache.counts());
                switch.share(now, &limits);
            }
        }
        for room in rooms {
            let switch = self.switches.entry(room.switch);
            let switch = switch.or_insert_with(|| Switch::new(limits));
            if let Some(cache) = switch.caches.get_mut(&tenant) {
                cache.resize(room.pages);
                continue;
            }
            let cache = Cache::new(tenant, room, limits, items_most, word);
            if switch.attached {
                out.push(cache.configure());
            }
            switch.caches.insert(tenant, cache);
            switch.share(now, &limits);
        }
    }

    fn holds(&mut self, now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        self.now = now;
        if let Some(cache) = self.cache(inventory.switch, inventory.tenant) {
            cache.holds(inventory.held, inventory.lost, out);
        }
        if let Some(switch) = self.switches.get_mut(&inventory.switch) {
            let items = switch.caches.values().map(Cache::items).sum();
            switch.size.at_least(items);
        }
    }

    fn hot(&mut self, now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        self.now = now;
        if let Some(cache) = self.cache(keys.switch, keys.tenant) {
            cache.missed(now, keys.keys, out);
        }
    }

    fn window_end(&mut self, now: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        self.now = now;
        if let Some(cache) = self.cache(end.switch, end.tenant) {
            cache.window_end(now, end.items, out);
        }
        if let Some(switch) = self.switches.get_mut(&end.switch) {
            switch.window_end(end.tallies);
        }
    }

    fn answered(&mut self, now: Duration, answer: Answer<'_>, _out: &mut Vec<Action>) {
        self.now = now;
        if let Some(cache) = self.cache(answer.switch, answer.tenant) {
            cache.answered(now, answer.key, answer.change, answer.outcome);
        }
    }

    fn dropped(&mut self, now: Duration, eviction: Eviction<'_>, _out: &mut Vec<Action>) {
        self.now = now;
        if let Some(cache) = self.cache(eviction.switch, eviction.tenant) {
            cache.dropped(now, eviction.keys, eviction.unfit);
        }
    }

    fn store_attached(&mut self, now: Duration, store: SocketAddr, _out: &mut Vec<Action>) {
        self.now = now;
        self.watch.attached(store);
    }

    fn told(&mut self, now: Duration, store: SocketAddr, tenant: u32, _out: &mut Vec<Action>) {
        self.now = now;
        self.watch.told(store, tenant);
    }

    /// A store was read for these keys. Which switches they passed it does not know.
    fn store_reported(
        &mut self,
        now: Duration,
        _store: SocketAddr,
        tenant: u32,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        self.now = now;
        let Some(report) = Report::decode(report) else { return };
        let window_ms = f64::from(self.limits.window_ms.max(1));
        let windows = (report.counted.as_secs_f64() * 1000.0 / window_ms).max(0.1);
        for switch in self.switches.values_mut().filter(|switch| switch.attached) {
            if let Some(cache) = switch.caches.get_mut(&tenant) {
                switch.store_reports += 1;
                let keys = report.keys.iter();
                let keys = keys.map(|(key, reads)| (key.clone(), f64::from(*reads) / windows));
                cache.read_at_store(now, keys, out);
            }
        }
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.now = now;
        for switch in self.switches.values_mut() {
            switch.settle(now, &self.limits, out);
        }
        self.watch.tick(now, out);
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        let switch = self.switches.get(&switch);
        let cache = switch.and_then(|switch| switch.caches.get(&tenant));
        cache.map_or(0, |cache| cache.wanted(self.now))
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let Some(switch) = self.switches.get(&switch) else { return BTreeMap::new() };
        let mut sum = switch.gone.clone();
        let items: usize = switch.caches.values().map(Cache::items).sum();
        for cache in switch.caches.values() {
            add(&mut sum, cache.counts());
        }
        if !switch.caches.is_empty() {
            let thresholds = switch.caches.values().map(Cache::threshold);
            let highest = thresholds.max().unwrap_or(0);
            add(
                &mut sum,
                [
                    ("items_wanted", items as u64),
                    ("items_may_be", switch.size.items() as u64),
                    ("reads_of_items", switch.reads),
                    ("overflows", switch.overflows),
                    ("overflow_permille", switch.overflow_permille),
                    ("store_reports", switch.store_reports),
                    ("hot_threshold", highest.into()),
                ],
            );
        }
        sum
    }
}
