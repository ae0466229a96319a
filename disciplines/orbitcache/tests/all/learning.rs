//! What the control half makes of traffic, with the store half beside it and a switch that is
//! modelled exactly.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use decide::{
    Action, Answer, Change, Discipline, Eviction, HotKeys, Inventory, Limits, Outcome, Room,
    StoreAction, StoreHalf, TALLIES, WindowEnd,
};
// The registration names the programs as native code, which this crate runs.
use dataplane as _;
use hot::testing::{RequestOutcome, Switch, Zipf, key};
use orbitcache::REGISTRATION;
use proptest::prelude::*;
use rand::{SeedableRng, rngs::SmallRng};
use wire::{KeyHash, Secret};

const SWITCH: u16 = 1;
const WINDOW: Duration = Duration::from_secs(1);
const BATCHES: u32 = 10;
const KEYS: usize = 10_000;
const REQUESTS: usize = 20_000;

struct Tenant {
    switch: Switch,
    zipf: Zipf,
    /// Key of each rank.
    order: Vec<u32>,
    requests: usize,
    /// In this window.
    reads: u64,
    /// Asks in bursts: of so many reads one finds a place to wait, however many items there are.
    burst: u64,
    hashes: Vec<KeyHash>,
}

struct Rig {
    now: Duration,
    window: u64,
    control: Box<dyn Discipline>,
    store: Box<dyn StoreHalf>,
    tenants: BTreeMap<u32, Tenant>,
    /// Items that the switch carries without overflows.
    carries: f64,
    /// Whether the switch reports what it misses.
    reports: bool,
    random: SmallRng,
}

fn limits(set: &[(&str, u32)]) -> Limits {
    let set = set.iter().map(|(n, v)| (format!("orbitcache.{n}"), *v));
    Limits { settings: REGISTRATION.settings(&set.collect()), ..Limits::default() }
}

fn store() -> std::net::SocketAddr {
    "10.0.0.1:7117".parse().unwrap()
}

impl Rig {
    fn new(set: &[(&str, u32)], tenants: &[(u32, usize, usize)]) -> Rig {
        let tenant = |&(id, keys, requests): &(u32, usize, usize)| {
            let hash = |n: u32| Secret([3; 16]).key_hash(id, &key(n));
            let tenant = Tenant {
                switch: Switch::new(1 << 20),
                zipf: Zipf::new(keys, 0.99),
                order: (0..keys as u32).collect(),
                requests,
                reads: 0,
                burst: 1,
                hashes: (0..keys as u32).map(hash).collect(),
            };
            (id, tenant)
        };
        let mut rig = Rig {
            now: Duration::ZERO,
            window: 1,
            control: (REGISTRATION.control)(limits(set)),
            store: (REGISTRATION.store.unwrap().make)(),
            tenants: tenants.iter().map(tenant).collect(),
            carries: f64::MAX,
            reports: true,
            random: SmallRng::seed_from_u64(1),
        };
        rig.introduce();
        rig
    }

    /// Tells a control half what there is.
    fn introduce(&mut self) {
        let rig = self;
        for tenant in rig.tenants.keys().copied().collect::<Vec<_>>() {
            let rooms = [Room { switch: SWITCH, pages: 1000, lent: 0, parameters: None }];
            rig.tell(|to, now, out| to.room(now, tenant, &rooms, out));
        }
        rig.tell(|to, now, out| to.attached(now, SWITCH, out));
        rig.list();
        rig.tell(|to, now, out| to.store_attached(now, store(), out));
    }

    /// The switch tells all that it holds.
    fn list(&mut self) {
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            let held = self.of(tenant).switch.cached.iter().map(|n| key(*n));
            let held: Vec<_> = held.collect();
            let inventory = Inventory { switch: SWITCH, tenant, held: &held, lost: &[] };
            self.tell(|to, now, out| to.holds(now, inventory, out));
        }
    }

    fn tell(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = vec![];
        event(&mut *self.control, self.now, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, out: Vec<Action>) {
        for action in out {
            match action {
                Action::Tell { tenant, message, .. } => {
                    self.say(|to, now, out| to.told(now, tenant, &message, out));
                    let store = store();
                    self.tell(|to, now, out| to.told(now, store, tenant, out));
                }
                Action::Change { tenant, .. } | Action::Configure { tenant, .. } => {
                    let of = self.tenants.get_mut(&tenant).unwrap();
                    of.switch.take(action);
                }
                other => panic!("{other:?} is not asked for"),
            }
        }
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            for (change, key) in self.of(tenant).switch.waiting(usize::MAX) {
                let outcome = self.of(tenant).switch.apply(&change, &key);
                let answer = Answer { switch: SWITCH, tenant, key: &key, change: &change, outcome };
                self.tell(|to, now, out| to.answered(now, answer, out));
            }
        }
    }

    /// Something happens at the store.
    fn say(&mut self, event: impl FnOnce(&mut dyn StoreHalf, Duration, &mut Vec<StoreAction>)) {
        let mut out = vec![];
        event(&mut *self.store, self.now, &mut out);
        for action in out {
            if let StoreAction::Report { tenant, report } = action {
                self.tell(|to, now, out| to.store_reported(now, store(), tenant, &report, out));
            }
        }
    }

    fn of(&mut self, tenant: u32) -> &mut Tenant {
        self.tenants.get_mut(&tenant).unwrap()
    }

    fn batch(&mut self) {
        for id in self.tenants.keys().copied().collect::<Vec<_>>() {
            let mut missed = vec![];
            let tenant = self.tenants.get_mut(&id).unwrap();
            for _ in 0..tenant.requests / BATCHES as usize {
                let n = tenant.order[tenant.zipf.sample(&mut self.random)];
                match tenant.switch.request(n) {
                    RequestOutcome::Hit => tenant.reads += 1,
                    RequestOutcome::Missed => missed.push(n),
                    RequestOutcome::Crossed => {
                        tenant.switch.report(n);
                        missed.push(n);
                    }
                }
            }
            let keys = tenant.switch.reports();
            let hashes = tenant.hashes.clone();
            for n in missed {
                let hash = hashes[n as usize];
                self.say(|to, now, out| to.read(now, id, &key(n), hash, out));
            }
            if self.reports && !keys.is_empty() {
                let hot = HotKeys { switch: SWITCH, tenant: id, window: self.window, keys: &keys };
                self.tell(|to, now, out| to.hot(now, hot, out));
            }
        }
        self.now += WINDOW / BATCHES;
        self.say(|to, now, out| to.tick(now, out));
        self.tell(|to, now, out| to.tick(now, out));
    }

    fn items(&self) -> usize {
        let cached = |tenant: &Tenant| tenant.switch.cached.len();
        self.tenants.values().map(cached).sum()
    }

    fn windows(&mut self, count: usize) {
        for _ in 0..count {
            (0..BATCHES).for_each(|_| self.batch());
            let over = ((self.items() as f64 / self.carries - 1.0) * 0.2).clamp(0.0, 1.0);
            for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
                let items = self.of(tenant).switch.window_end();
                let mut tallies = [0; TALLIES];
                tallies[0] = std::mem::take(&mut self.of(tenant).reads);
                let in_burst = tallies[0] - tallies[0] / self.of(tenant).burst;
                tallies[1] = in_burst.max((tallies[0] as f64 * over) as u64);
                let end = WindowEnd {
                    switch: SWITCH,
                    tenant,
                    window: self.window,
                    items: &items,
                    tallies: &tallies,
                };
                self.tell(|to, now, out| to.window_end(now, end, out));
            }
            self.window += 1;
            self.tell(|to, now, out| to.tick(now, out));
        }
    }

    /// The share of a tenant's requests that its items take, of what as many could at best.
    fn quality(&mut self, tenant: u32) -> f64 {
        let of = self.of(tenant);
        let cached = of.switch.cached.len().max(1);
        let ranks = 0..of.zipf.keys();
        let shares = ranks.filter(|rank| of.switch.cached.contains(&of.order[*rank]));
        shares.map(|rank| of.zipf.share(rank)).sum::<f64>() / of.zipf.best(cached)
    }
}

fn fixed(items: u32) -> Vec<(&'static str, u32)> {
    vec![("items_min", items), ("items_max", items)]
}

#[test]
fn the_hottest_keys_are_learnt_from_the_switch_or_from_stores_alone() {
    for reports in [true, false] {
        let mut rig = Rig::new(&fixed(128), &[(7, KEYS, REQUESTS)]);
        rig.reports = reports;
        rig.windows(6);
        assert_eq!(rig.items(), 128);
        let quality = rig.quality(7);
        assert!(quality > 0.97, "{quality}, reports {reports}");
    }
}

#[test]
fn when_the_hottest_and_the_coldest_keys_change_places_all_items_are_replaced_within_three_windows()
{
    for reports in [true, false] {
        let mut rig = Rig::new(&fixed(128), &[(7, KEYS, REQUESTS)]);
        rig.reports = reports;
        rig.windows(8);
        for change in 0..4 {
            let order = &mut rig.of(7).order;
            let (hottest, coldest) = order.split_at_mut(128);
            let last = coldest.len() - 128;
            hottest.swap_with_slice(&mut coldest[last..]);
            let quality = rig.quality(7);
            assert!(quality < 0.2, "{quality} at change {change}, reports {reports}");
            rig.windows(4);
            let quality = rig.quality(7);
            assert!(quality > 0.9, "{quality} after change {change}, reports {reports}");
            rig.windows(4);
        }
    }
}

/// A tenant that reads every key about twice in a window leaves nobody a place free.
#[test]
fn what_becomes_hot_has_an_item_before_the_window_ends_though_no_place_is_free() {
    let alone = (128, vec![(7, KEYS, REQUESTS)]);
    let beside_greed = (400, vec![(7, KEYS, REQUESTS / 10), (8, KEYS, REQUESTS)]);
    for (most, tenants) in [alone, beside_greed] {
        let mut rig = Rig::new(&fixed(most), &tenants);
        if let Some(greedy) = rig.tenants.get_mut(&8) {
            greedy.zipf = Zipf::new(KEYS, 0.0);
        }
        rig.windows(8);
        rig.of(7).order.rotate_right(20);
        let hottest: HashSet<u32> = rig.of(7).order[..4].iter().copied().collect();
        let places = most as usize - 2..=most as usize;
        assert!(places.contains(&rig.items()), "{} of {most} are taken", rig.items());
        assert!(rig.of(7).switch.cached.is_disjoint(&hottest));
        (0..BATCHES / 2).for_each(|_| rig.batch());
        assert!(rig.of(7).switch.cached.is_superset(&hottest), "{} tenants", tenants.len());
        assert!(places.contains(&rig.items()), "{} of {most} after half a window", rig.items());
    }
}

#[test]
fn an_item_whose_page_became_another_tenants_may_come_back_a_window_later() {
    let mut rig = Rig::new(&fixed(128), &[(7, KEYS, REQUESTS)]);
    let window_ms = WINDOW.as_millis() as u32 / 4;
    rig.control = (REGISTRATION.control)(Limits { window_ms, ..limits(&fixed(128)) });
    rig.introduce();
    rig.windows(8);
    let gone: Vec<u32> = rig.of(7).order[..20].to_vec();
    gone.iter().for_each(|n| assert!(rig.of(7).switch.cached.remove(n)));
    let keys: Vec<_> = gone.iter().map(|n| key(*n)).collect();
    let eviction = Eviction { switch: SWITCH, tenant: 7, keys: &keys, unfit: false };
    rig.tell(|to, now, out| to.dropped(now, eviction, out));
    (0..BATCHES - 2).for_each(|_| rig.batch());
    assert!(gone.iter().all(|n| rig.of(7).switch.cached.contains(n)));
}

#[test]
fn a_new_control_half_takes_over_what_the_switch_has() {
    let mut rig = Rig::new(&[], &[(7, KEYS, REQUESTS)]);
    rig.windows(40);
    let before = rig.items();
    assert!(before > 400, "{before}");
    rig.control = (REGISTRATION.control)(limits(&[]));
    rig.introduce();
    for _ in 0..5 {
        rig.windows(1);
        assert!(rig.items() > before * 3 / 4, "{} of {before}", rig.items());
    }
}

/// A controller that believes something else asks for a list, if need be in every window.
#[test]
fn a_list_of_what_is_known_changes_nothing() {
    let cached = |lists: bool| {
        // Of an item there are few reads in a window, of many none.
        let mut rig = Rig::new(&fixed(128), &[(7, KEYS, REQUESTS / 20)]);
        rig.windows(8);
        for _ in 0..8 {
            rig.of(7).order.rotate_right(10);
            rig.windows(1);
            if lists {
                rig.list();
            }
        }
        rig.of(7).switch.cached.clone()
    };
    assert_eq!(cached(true), cached(false));
}

#[test]
fn keys_whose_reads_pass_elsewhere_are_forgotten_in_time() {
    let mut rig = Rig::new(&fixed(64), &[(7, 100, 0)]);
    for window in 0..300 {
        // Hot at the store for four windows, and not by this switch.
        let first = window / 4 * 64;
        for n in (first..first + 64).flat_map(|n| [n; 50]) {
            let (key, hash) = (&key(n), Secret([3; 16]).key_hash(7, &key(n)));
            let tenant = 7;
            rig.say(|to, now, out| to.read(now, tenant, key, hash, out));
        }
        rig.windows(1);
    }
    let counters = rig.control.counters(SWITCH);
    assert!(counters["inserts"] > 2_000, "they are tried: {counters:?}");
    assert!(counters["contenders"] <= 1_100, "{counters:?}");
}

#[test]
fn few_items_change_where_the_traffic_does_not() {
    let mut rig = Rig::new(&fixed(128), &[(7, KEYS, REQUESTS)]);
    rig.windows(10);
    let before = rig.of(7).switch.cached.clone();
    let evicted = rig.control.counters(SWITCH)["evicts"];
    rig.windows(20);
    let stayed = rig.of(7).switch.cached.intersection(&before).count();
    let evicted = rig.control.counters(SWITCH)["evicts"] - evicted;
    assert!(stayed > 90 && evicted < 20 * 8, "{stayed} stayed, {evicted} went");
}

#[test]
fn there_are_as_many_items_as_the_switch_carries() {
    for carries in [40.0, 100.0, 200.0] {
        let mut rig = Rig::new(&[], &[(7, KEYS, REQUESTS)]);
        rig.carries = carries;
        rig.windows(40);
        for _ in 0..10 {
            rig.windows(1);
            let items = rig.items() as f64;
            assert!((0.75 * carries..1.25 * carries).contains(&items), "{items} of {carries}");
        }
    }
}

#[test]
fn tenants_together_have_as_many_items_as_the_switch_carries() {
    let mut rig = Rig::new(&[], &[(7, KEYS, REQUESTS), (8, KEYS, REQUESTS)]);
    rig.carries = 100.0;
    rig.windows(40);
    for _ in 0..10 {
        rig.windows(1);
        let items = rig.items();
        assert!((75..125).contains(&items), "{items} of 100");
    }
}

/// A queue that is full of one key's reads says nothing of how many values go round.
#[test]
fn a_tenant_that_reads_in_bursts_takes_items_from_nobody_else() {
    let mut rig = Rig::new(&[], &[(7, KEYS, REQUESTS), (8, KEYS, REQUESTS)]);
    rig.windows(40);
    let before = rig.of(7).switch.cached.len();
    assert!(before > 200, "{before}");
    rig.of(8).burst = 8;
    rig.windows(40);
    assert!(rig.of(8).switch.cached.len() <= 16, "{}", rig.of(8).switch.cached.len());
    let after = rig.of(7).switch.cached.len();
    assert!(after >= before, "{after} of {before}");
}

#[test]
fn no_tenant_takes_the_items_of_another() {
    // One has ten times the requests, and hotter keys than any of the other's.
    let mut rig = Rig::new(&fixed(100), &[(7, KEYS, 10 * REQUESTS), (8, 40, 400)]);
    rig.windows(8);
    let small: HashSet<u32> = rig.of(8).switch.cached.clone();
    assert!(small.len() >= 35, "{} of 40", small.len());
    assert!(rig.of(7).switch.cached.len() >= 100 - 42);
    assert!(rig.items() <= 100);
    assert!(rig.quality(7) > 0.95);
}

#[test]
fn what_cannot_be_cached_is_left_alone_for_a_minute() {
    let mut rig = Rig::new(&fixed(16), &[(7, KEYS, REQUESTS)]);
    rig.windows(3);
    let hottest = key(rig.of(7).order[0]);
    let first = rig.of(7).order[0];
    rig.of(7).switch.cached.remove(&first);
    let eviction =
        Eviction { switch: SWITCH, tenant: 7, keys: std::slice::from_ref(&hottest), unfit: true };
    rig.tell(|to, now, out| to.dropped(now, eviction, out));
    for _ in 0..59 {
        rig.windows(1);
        let first = rig.of(7).order[0];
        assert!(!rig.of(7).switch.cached.contains(&first));
        assert_eq!(rig.items(), 16, "its place is another's");
    }
    rig.windows(3);
    let first = rig.of(7).order[0];
    assert!(rig.of(7).switch.cached.contains(&first), "its value may be another by now");
}

#[test]
fn a_key_whose_reads_pass_elsewhere_takes_no_place_from_others() {
    const ELSEWHERE: u32 = 1000;
    let mut rig = Rig::new(&fixed(16), &[(7, 100, 0)]);
    for window in 0..30 {
        // At the store, and not by this switch.
        for _ in 0..500 {
            let hash = KeyHash([5; 16]);
            rig.say(|to, now, out| to.read(now, 7, &key(ELSEWHERE), hash, out));
        }
        if window == 5 {
            assert!(rig.of(7).switch.cached.contains(&ELSEWHERE), "it might pass here");
            rig.of(7).requests = 1000;
        }
        rig.windows(1);
    }
    assert!(!rig.of(7).switch.cached.contains(&ELSEWHERE));
    assert!(rig.items() == 16 && rig.quality(7) > 0.9);
}

#[test]
fn keys_that_find_no_room_are_wanted_still_or_there_would_never_be_more() {
    let mut out = vec![];
    let mut control = (REGISTRATION.control)(limits(&[]));
    let (tenant, switch) = (7, SWITCH);
    let rooms = &[Room { switch, pages: 1, lent: 0, parameters: None }];
    let (held, lost) = (&[], &[]);
    let inventory = Inventory { switch, tenant, held, lost };
    control.room(WINDOW, tenant, rooms, &mut out);
    control.attached(WINDOW, switch, &mut out);
    control.holds(WINDOW, inventory, &mut out);
    out.clear();
    let keys: Vec<_> = (0..100).map(|number| (key(number), 9)).collect();
    let hot = HotKeys { switch, tenant, window: 1, keys: &keys };
    control.hot(WINDOW, hot, &mut out);
    assert_eq!(out.len(), 100);
    for (number, action) in out.into_iter().enumerate() {
        let Action::Change { key, change, .. } = action else {
            panic!("an item");
        };
        let outcome = match number {
            0..20 => Outcome::Done,
            _ => Outcome::NoRoom,
        };
        let answer = Answer { switch, tenant, key: &key, change: &change, outcome };
        control.answered(WINDOW, answer, &mut vec![]);
    }
    assert_eq!(control.wanted(switch, tenant), 100);
}

#[test]
fn an_outcome_other_than_done_leaves_the_place_to_others() {
    for outcome in [Outcome::NoRoom, Outcome::BucketFull, Outcome::Refused, Outcome::NotSent] {
        let mut out = vec![];
        let mut control = (REGISTRATION.control)(limits(&fixed(1)));
        let room = Room { switch: SWITCH, pages: 10, lent: 0, parameters: None };
        let (tenant, switch) = (7, SWITCH);
        let rooms = &[room];
        let (held, lost) = (&[], &[]);
        control.room(WINDOW, tenant, rooms, &mut out);
        control.attached(WINDOW, switch, &mut out);
        let inventory = Inventory { switch, tenant, held, lost };
        control.holds(WINDOW, inventory, &mut out);
        let puts = |control: &mut Box<dyn Discipline>| {
            let mut out = vec![];
            let keys = &[(key(1), 9), (key(2), 5)];
            let window = 1;
            let hot = HotKeys { switch, tenant, window, keys };
            control.hot(WINDOW, hot, &mut out);
            let key = |action: Action| match action {
                Action::Change { key, change, .. } => Some((key, change)),
                _ => None,
            };
            out.into_iter().filter_map(key).collect::<Vec<(_, Change)>>()
        };
        let [(first, change)] = &puts(&mut control)[..] else {
            panic!("one place");
        };
        assert_eq!(*first, key(1));
        assert_eq!(puts(&mut control), [], "it is under way");
        out.clear();
        let answer = Answer { switch, tenant, key: first, change, outcome };
        control.answered(WINDOW, answer, &mut out);
        assert_eq!(out, [], "nothing in answer");
        assert_eq!(puts(&mut control)[0].0, key(2));
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_key_changes_once_at_a_time_and_items_are_no_more_than_may_be(
        steps in prop::collection::vec((0u8..12, 0u32..40, 0u64..200), 0..300)
    ) {
        const MOST: usize = 8;
        let mut control = (REGISTRATION.control)(limits(&fixed(MOST as u32)));
        let (switch, mut now) = (SWITCH, Duration::ZERO);
        let mut asked: Vec<(u32, decide::Key, Change)> = vec![];
        let mut there: HashSet<(u32, decide::Key)> = HashSet::new();
        control.attached(now, switch, &mut vec![]);
        for (what, n, count) in steps {
            now += Duration::from_millis(100);
            let tenant = 7 + n % 2;
            let room = Room { switch, pages: count as u32 % 4, lent: 0, parameters: None };
            let keys = [(key(n), count)];
            let held: Vec<_> = there.iter().filter(|(of, _)| *of == tenant).map(|(_, key)| key.clone()).collect();
            let report = [&1000u32.to_be_bytes()[..], &[4], &key(n), &(count as u32).to_be_bytes()].concat();
            let answer = (!asked.is_empty()).then(|| asked.remove(count as usize % asked.len().max(1)));
            let mut tallies = [0; TALLIES];
            tallies[..2].copy_from_slice(&[count, n.into()]);
            let mut out = vec![];
            let mut quiet = false;
            match (what, &answer) {
                (0, _) => control.room(now, tenant, std::slice::from_ref(&room), &mut out),
                (1, _) => {
                    let hot = HotKeys { switch, tenant, window: 1, keys: &keys };
                    control.hot(now, hot, &mut out);
                }
                (2, _) => {
                    let end = WindowEnd { switch, tenant, window: 1, items: &keys, tallies: &tallies };
                    control.window_end(now, end, &mut out);
                }
                (3, _) => control.store_reported(now, store(), tenant, &report, &mut out),
                (4, _) if held.is_empty() => control.tick(now, &mut out),
                (4, _) => {
                    held.iter().for_each(|key| { there.remove(&(tenant, key.clone())); });
                    let eviction = Eviction { switch, tenant, keys: &held, unfit: count % 2 == 0 };
                    control.dropped(now, eviction, &mut out);
                }
                (5, _) => {
                    let inventory = Inventory { switch, tenant, held: &held, lost: &[] };
                    control.holds(now, inventory, &mut out);
                }
                (6, _) => {
                    there.retain(|(of, _)| *of != tenant);
                    asked.retain(|(of, ..)| *of != tenant);
                    control.room(now, tenant, &[], &mut out);
                }
                (7.., Some((tenant, key, change))) => {
                    let outcome = [Outcome::Done, Outcome::NoRoom, Outcome::Done, Outcome::NotSent][n as usize % 4];
                    let done = match change {
                        Change::Put(_) if outcome == Outcome::Done => there.insert((*tenant, key.clone())),
                        Change::Remove if outcome != Outcome::NotSent => there.remove(&(*tenant, key.clone())),
                        _ => false,
                    };
                    let _ = done;
                    quiet = outcome == Outcome::NotSent;
                    let answer = Answer { switch, tenant: *tenant, key, change, outcome };
                    control.answered(now, answer, &mut out);
                }
                _ => control.tick(now, &mut out),
            }
            if what < 6 {
                asked.extend(answer);
            }
            prop_assert!(!quiet || out.is_empty());
            for action in out {
                if let Action::Change { tenant, key, change, .. } = action {
                    let double = asked.iter().any(|(of, other, _)| (*of, other) == (tenant, &key));
                    prop_assert!(!double, "{key:?} twice");
                    asked.push((tenant, key, change));
                }
            }
            let items = control.counters(switch).get("items_wanted").copied().unwrap_or(0);
            prop_assert!(items as usize <= 2 * MOST, "{items}");
        }
    }
}
