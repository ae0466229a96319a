//! Several tenants on one switch, with pages that come and go, and what each would have.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{
    Action, Answer, Change, Discipline, Eviction, HotKeys, ItemKey, Key, Limits, Outcome, Room,
    WindowEnd,
};
use hot::testing::number;

const SWITCH: u16 = 3;

fn key(tenant: u32, n: u32) -> ItemKey {
    ItemKey { tenant, key: hot::testing::key(n) }
}

/// A switch that does at once what it is told.
struct Rig {
    controller: Box<dyn Discipline>,
    now: Duration,
    window: u64,
    cached: BTreeSet<ItemKey>,
    thresholds: Vec<(u32, u32)>,
    /// The tenants that had pages.
    tenants: BTreeSet<u32>,
}

impl Rig {
    fn new() -> Rig {
        let mut rig = Rig {
            controller: netcache::controller(Limits::default()),
            now: Duration::from_secs(1),
            window: 1,
            cached: BTreeSet::new(),
            thresholds: Vec::new(),
            tenants: BTreeSet::new(),
        };
        rig.tell(|to, now, out| to.attached(now, SWITCH, out));
        rig
    }

    fn tell(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = Vec::new();
        event(&mut *self.controller, self.now, &mut out);
        out.into_iter().for_each(|action| self.carry_out(action));
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Configure { tenant, configuration, .. } => {
                self.thresholds.push((tenant, configuration.parameters[0]))
            }
            Action::Change { tenant, key, change, .. } => {
                let item = ItemKey { tenant, key: key.clone() };
                match change {
                    Change::Put(_) => self.cached.insert(item),
                    Change::Remove | Change::RemoveIf(_) => self.cached.remove(&item),
                };
                let answer = Answer {
                    switch: SWITCH,
                    tenant,
                    key: &key,
                    change: &change,
                    outcome: Outcome::Done,
                };
                self.tell(|to, now, out| to.answered(now, answer, out));
            }
            other => panic!("{other:?} is not asked for"),
        }
    }

    fn room(&mut self, tenant: u32, pages: u32) {
        let rooms = [Room { switch: SWITCH, pages, lent: 0, parameters: None }];
        self.tenants.insert(tenant);
        let rooms = if pages == 0 { &rooms[..0] } else { &rooms[..] };
        self.tell(|to, now, out| to.room(now, tenant, rooms, out));
    }

    fn report(&mut self, keys: &[(ItemKey, u64)]) {
        for (tenant, keys) in by_tenant(keys) {
            let hot = HotKeys { switch: SWITCH, tenant, window: self.window, keys: &keys };
            self.tell(|to, now, out| to.hot(now, hot, out));
        }
    }

    fn end(&mut self, items: &[(ItemKey, u64)]) {
        self.now += Duration::from_secs(1);
        let mut items = by_tenant(items);
        for tenant in self.tenants.clone() {
            let end = WindowEnd {
                switch: SWITCH,
                tenant,
                window: self.window,
                items: &items.remove(&tenant).unwrap_or_default(),
                tallies: &[0; decide::TALLIES],
            };
            self.tell(|to, now, out| to.window_end(now, end, out));
        }
        self.window += 1;
    }

    fn of(&self, tenant: u32) -> Vec<u32> {
        let own = |k: &&ItemKey| k.tenant == tenant;
        self.cached.iter().filter(own).map(|k| number(&k.key)).collect()
    }

    fn wanted(&self, tenant: u32) -> usize {
        self.controller.wanted(SWITCH, tenant)
    }
}

fn by_tenant(keys: &[(ItemKey, u64)]) -> BTreeMap<u32, Vec<(Key, u64)>> {
    let mut split: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, count) in keys {
        let of = split.entry(key.tenant).or_default();
        of.push((key.key.clone(), *count));
    }
    split
}

fn keys(tenant: u32, numbers: std::ops::Range<u32>, count: u64) -> Vec<(ItemKey, u64)> {
    numbers.map(|n| (key(tenant, n), count)).collect()
}

#[test]
fn tenants_with_equal_keys_have_caches_of_their_own() {
    let mut rig = Rig::new();
    rig.room(1, 4);
    rig.room(2, 4);
    let both = [keys(1, 0..5, 4), keys(2, 3..9, 4), keys(3, 0..5, 9)].concat();
    rig.report(&both);
    assert_eq!(rig.of(1), [0, 1, 2, 3, 4]);
    assert_eq!(rig.of(2), [3, 4, 5, 6, 7, 8]);
    assert!(rig.of(3).is_empty(), "a tenant without pages");
    assert_eq!(rig.controller.counters(SWITCH)["inserts_asked"], 11);
    assert_eq!(rig.thresholds, [(1, 2), (2, 2)]);
}

#[test]
fn when_pages_fall_the_coldest_go_and_without_any_all_is_forgotten() {
    let mut rig = Rig::new();
    rig.room(1, 4);
    rig.report(&keys(1, 0..500, 4));
    for _ in 0..3 {
        let hot = [keys(1, 0..200, 9), keys(1, 200..500, 3)].concat();
        rig.end(&hot);
    }
    rig.room(1, 2);
    let left = rig.of(1);
    assert_eq!(left.len(), 256);
    assert_eq!(&left[..200], (0..200).collect::<Vec<_>>());
    rig.room(1, 0);
    assert_eq!(rig.wanted(1), 0);
    let counters = rig.controller.counters(SWITCH);
    assert_eq!(counters["inserts_asked"], 500, "counters only rise");
    assert_eq!(counters.get("items_wanted").copied().unwrap_or(0), 0);
    rig.cached.clear(); // as the switch does when the pages go
    rig.room(1, 1);
    rig.report(&keys(1, 0..3, 4));
    assert_eq!(rig.of(1), [0, 1, 2]);
}

#[test]
fn a_tenant_that_wakes_up_wants_room_at_once_and_no_more_when_it_sleeps() {
    let mut rig = Rig::new();
    rig.room(1, 1);
    rig.end(&[]);
    assert_eq!(rig.wanted(1), 0);
    rig.now += Duration::from_millis(100);
    rig.report(&keys(1, 0..1000, 3));
    assert_eq!(rig.wanted(1), 1000);
    for _ in 0..5 {
        let items: Vec<_> = rig.cached.iter().map(|k| (k.clone(), 10)).collect();
        rig.end(&items);
        assert!((950..=1050).contains(&rig.wanted(1)), "{}", rig.wanted(1));
        rig.report(&keys(1, 0..1000, 9));
    }
    rig.room(1, 8);
    rig.report(&keys(1, 0..1000, 10));
    assert!((950..=1050).contains(&rig.wanted(1)), "{}", rig.wanted(1));
    for window in 0..12 {
        rig.end(&[]);
        assert!(window < 10 || rig.wanted(1) == 0, "{}", rig.wanted(1));
    }
    assert_eq!(rig.of(1).len(), 1000, "cold items stay while nobody needs the room");
}

#[test]
fn what_is_in_use_is_wanted_also_when_its_pages_are_gone() {
    let mut rig = Rig::new();
    rig.room(1, 8);
    rig.report(&keys(1, 0..1000, 2));
    // A request per window: too few to be worth more room, if it were not in use.
    for _ in 0..10 {
        rig.end(&keys(1, 0..400, 1));
    }
    assert_eq!(rig.wanted(1), 400);
    rig.room(1, 1);
    assert_eq!(rig.wanted(1), 400);
    // And what the switch dropped with a page.
    let gone: Vec<Key> = rig.cached.iter().take(50).map(|k| k.key.clone()).collect();
    let eviction = Eviction { switch: SWITCH, tenant: 1, keys: &gone, unfit: false };
    rig.tell(|to, now, out| to.dropped(now, eviction, out));
    assert_eq!(rig.wanted(1), 400);
    let left = rig.cached.iter().skip(50).map(|k| (k.clone(), 1));
    let left: Vec<(ItemKey, u64)> = left.collect();
    rig.end(&left);
    assert_eq!(rig.wanted(1), 400);
    for _ in 0..10 {
        rig.end(&[]);
    }
    assert_eq!(rig.wanted(1), 0);
}

#[test]
fn the_budget_of_reports_is_shared() {
    let mut rig = Rig::new();
    rig.room(1, 1);
    rig.room(2, 1);
    rig.end(&[]);
    rig.thresholds.clear();
    rig.report(&keys(1, 0..4900, 2));
    assert_eq!(rig.thresholds, [], "all of it is there for the only busy one");
    rig.end(&[]);
    rig.report(&keys(2, 0..4900, 2));
    rig.end(&[]);
    rig.thresholds.clear();
    rig.report(&keys(1, 0..2400, 2));
    assert_eq!(rig.thresholds, []);
}

#[test]
fn a_burst_beyond_the_room_leaves_the_room_full() {
    let mut rig = Rig::new();
    rig.room(1, 1);
    // 384 insertions are under way when it turns out that 128 fit.
    let mut out = Vec::new();
    let keys = by_tenant(&keys(1, 0..500, 3));
    let hot = HotKeys { switch: SWITCH, tenant: 1, window: 1, keys: &keys[&1] };
    rig.controller.hot(rig.now, hot, &mut out);
    let mut evicted = 0;
    for (n, action) in out.into_iter().enumerate() {
        let Action::Change { key, change, .. } = action else { continue };
        let outcome = if n < 128 { Outcome::Done } else { Outcome::NoRoom };
        let mut more = Vec::new();
        let answer = Answer { switch: SWITCH, tenant: 1, key: &key, change: &change, outcome };
        rig.controller.answered(rig.now, answer, &mut more);
        evicted += more.len();
    }
    assert_eq!(evicted, 1, "for the next key that is worth it");
    assert_eq!(rig.controller.counters(SWITCH)["items_wanted"], 127);
}
