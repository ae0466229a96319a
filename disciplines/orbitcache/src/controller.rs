//! The controller of `orbitcache`: every switch decides alone, over all of its tenants.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use decide::{
    Action, Answer, Discipline, Eviction, HotKeys, Inventory, Limits, Room, SwitchId, WindowEnd,
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
    tenants: BTreeMap<u32, Tenant>,
    reads: u64,
    overflows: u64,
    store_reports: u64,
    /// The overflows in a thousand reads of the last window that had reads.
    overflow_permille: u64,
    /// What caches that are gone had counted.
    gone: BTreeMap<&'static str, u64>,
}

/// What a switch has of a tenant, and how many items that may be, by the tenant's own reads.
struct Tenant {
    cache: Cache,
    size: Size,
    /// Reads and overflows of the window that ended, until it is settled.
    ended: Option<(u64, u64)>,
}

impl Tenant {
    fn new(cache: Cache, limits: &Limits) -> Tenant {
        let set = limits.settings;
        let size = Size::new(
            set[settings::ITEMS_MIN],
            set[settings::ITEMS_MAX],
            set[settings::OVERFLOW_PERMILLE],
        );
        Tenant { cache, size, ended: None }
    }
}

impl Switch {
    fn new() -> Switch {
        Switch {
            attached: false,
            tenants: BTreeMap::new(),
            reads: 0,
            overflows: 0,
            store_reports: 0,
            overflow_permille: 0,
            gone: BTreeMap::new(),
        }
    }

    /// Items that there may be of all tenants.
    fn items_may_be(&self, limits: &Limits) -> usize {
        let sizes = self.tenants.values().map(|tenant| tenant.size.items());
        sizes.sum::<usize>().min(limits.settings[settings::ITEMS_MAX] as usize)
    }

    /// Divides what there may be: to each what it wants and may have, as far as that is fair, and
    /// evenly what nobody wants.
    fn share(&mut self, now: Duration, limits: &Limits) {
        let count = self.tenants.len().max(1);
        let wanted = |tenant: &Tenant| tenant.cache.has_room_for(now).min(tenant.size.items());
        let wanted: Vec<usize> = self.tenants.values().map(wanted).collect();
        let total = self.items_may_be(limits);
        let shares = shares(total, &wanted);
        let spare = (total - shares.iter().sum::<usize>()) / count;
        let reports = REPORTS_PER_ITEM * limits.settings[settings::ITEMS_MAX];
        let reports = reports.min(limits.reports_per_window) / count as u32;
        for (tenant, share) in self.tenants.values_mut().zip(shares) {
            tenant.cache.set_share((share + spare).min(tenant.size.items()), reports);
        }
    }

    /// A window ended, for all tenants that count in it.
    fn settle(&mut self, now: Duration, limits: &Limits, out: &mut Vec<Action>) {
        if !self.attached || self.tenants.values().all(|tenant| tenant.ended.is_none()) {
            return;
        }
        let (mut all_reads, mut all_overflows) = (0, 0);
        for Tenant { cache, size, ended } in self.tenants.values_mut() {
            let Some((reads, overflows)) = ended.take() else { continue };
            all_reads += reads;
            all_overflows += overflows;
            let more = cache.has_room_for(now) > size.items();
            size.window_end(reads, overflows, cache.share(), more);
        }
        self.reads += all_reads;
        self.overflows += all_overflows;
        let permille = (1000 * all_overflows).checked_div(all_reads);
        self.overflow_permille = permille.unwrap_or(self.overflow_permille);
        self.share(now, limits);
        let count = self.tenants.len().max(1);
        let changes = self.items_may_be(limits).div_ceil(CHANGE_ONE_IN * count);
        for tenant in self.tenants.values_mut() {
            tenant.cache.settle(now, changes, out);
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

    fn tenant(&mut self, switch: SwitchId, tenant: u32) -> Option<&mut Tenant> {
        self.switches.get_mut(&switch)?.tenants.get_mut(&tenant)
    }

    fn cache(&mut self, switch: SwitchId, tenant: u32) -> Option<&mut Cache> {
        Some(&mut self.tenant(switch, tenant)?.cache)
    }

    fn attach(&mut self, now: Duration, switch: SwitchId, attached: bool) {
        self.now = now;
        let at = self.switches.entry(switch).or_insert_with(Switch::new);
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
                && let Some(gone) = switch.tenants.remove(&tenant)
            {
                add(&mut switch.gone, gone.cache.counts());
                switch.share(now, &limits);
            }
        }
        for room in rooms {
            let switch = self.switches.entry(room.switch).or_insert_with(Switch::new);
            if let Some(known) = switch.tenants.get_mut(&tenant) {
                known.cache.resize(room.pages);
                continue;
            }
            let cache = Cache::new(tenant, room, limits, items_most, word);
            if switch.attached {
                out.push(cache.configure());
            }
            switch.tenants.insert(tenant, Tenant::new(cache, &limits));
            switch.share(now, &limits);
        }
    }

    fn holds(&mut self, now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        self.now = now;
        if let Some(known) = self.tenant(inventory.switch, inventory.tenant) {
            known.cache.holds(inventory.held, inventory.lost, out);
            known.size.at_least(known.cache.items());
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
        if let Some(Tenant { cache, ended, .. }) = self.tenant(end.switch, end.tenant) {
            cache.window_end(now, end.items, out);
            let (reads, overflows) = ended.get_or_insert_default();
            *reads += end.tallies[READS].max(end.tallies[OVERFLOWS]);
            *overflows += end.tallies[OVERFLOWS];
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

    fn not_told(&mut self, now: Duration, store: SocketAddr, tenant: u32, _: &mut Vec<Action>) {
        self.now = now;
        self.watch.not_told(store, tenant);
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
            if let Some(Tenant { cache, .. }) = switch.tenants.get_mut(&tenant) {
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
        let tenant = switch.and_then(|switch| switch.tenants.get(&tenant));
        tenant.map_or(0, |tenant| tenant.cache.wanted(self.now))
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let Some(switch) = self.switches.get(&switch) else { return BTreeMap::new() };
        let mut sum = switch.gone.clone();
        let caches = || switch.tenants.values().map(|tenant| &tenant.cache);
        let items: usize = caches().map(Cache::items).sum();
        for cache in caches() {
            add(&mut sum, cache.counts());
        }
        if !switch.tenants.is_empty() {
            let thresholds = caches().map(Cache::threshold);
            let highest = thresholds.max().unwrap_or(0);
            add(
                &mut sum,
                [
                    ("items_wanted", items as u64),
                    ("items_may_be", switch.items_may_be(&self.limits) as u64),
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
