//! Events in, actions out: the order of records and holds, stores and switches that go and come, a
//! new leader.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use decide::{Change, Key, Outcome, Record, Settings};
use wire::Secret;

use super::*;
use crate::{
    message::{Instruction, StoreMessage},
    record::{HEADER, IPV4_TURN},
    servers::LOADS,
};

pub(super) const SWITCH: SwitchId = 3;
pub(super) const TENANT: u32 = 7;
pub(super) const STORES: usize = 4;

/// The controller's surroundings, which do what they are asked at once.
pub(super) struct Rig {
    control: Box<dyn Discipline>,
    pub(super) now: Duration,
    /// Keys at the switch with their records.
    pub(super) items: BTreeMap<Key, Record>,
    /// Those whose values the switch cannot have: it drops copies of them.
    pub(super) unfit: BTreeSet<Key>,
    /// Changes of items that were asked for.
    pub(super) changes: usize,
    /// Changes that the switch has not answered yet, if it takes its time.
    waiting: Option<Vec<(Key, Change)>>,
    /// The store that hears nothing.
    deaf: Option<SocketAddr>,
    /// Keys at stores.
    held: BTreeMap<SocketAddr, BTreeMap<Key, bool>>,
    /// What is done to changes.
    pub(super) outcome: Outcome,
    /// What the switch had when the controller began to lead: stores are told of it together.
    inherited: BTreeSet<Key>,
    pub(super) settings: Settings,
    /// The store that answers half of what it is asked.
    slow: Option<usize>,
    /// Where the tenant has room; the first is there.
    switches: std::ops::RangeInclusive<SwitchId>,
    /// What happened, in order.
    pub(super) story: Vec<String>,
}

fn store(at: usize) -> SocketAddr {
    ([10, 0, 0, at as u8 + 1], 7117).into()
}

fn stores() -> Stores {
    let addresses = (0..STORES).map(store).collect();
    Stores::new(addresses, TENANT, Secret([7; 16]), (0..STORES as u16).collect())
}

/// A key that is at home there.
fn key_of(home: usize, number: usize) -> Key {
    let keys = (0..).map(|n| Key::from(format!("key {n}")));
    let mut at_home = keys.filter(|key| stores().home_of(key) == home);
    at_home.nth(number).expect("there are enough")
}

impl Rig {
    fn new() -> Rig {
        Rig::with(limits().settings)
    }

    pub(super) fn with(settings: Settings) -> Rig {
        let mut rig = Rig {
            control: controller(limits()),
            now: Duration::ZERO,
            items: BTreeMap::new(),
            unfit: BTreeSet::new(),
            changes: 0,
            waiting: None,
            deaf: None,
            held: BTreeMap::new(),
            outcome: Outcome::Done,
            inherited: BTreeSet::new(),
            settings,
            slow: None,
            switches: SWITCH..=SWITCH,
            story: vec![],
        };
        rig.lead();
        rig
    }

    /// A controller begins to lead.
    pub(super) fn lead(&mut self) {
        self.inherited = self.items.keys().cloned().collect();
        self.control = controller(Limits { settings: self.settings, ..limits() });
        let stores = stores();
        self.tell(|to, now, out| to.stores(now, TENANT, &stores, out));
        self.room();
        self.attach(&[]);
        (0..STORES).for_each(|at| self.tell(|to, now, out| to.store_attached(now, store(at), out)));
    }

    /// These are the stores from now on.
    fn move_to(&mut self, stores: &Stores) {
        self.tell(|to, now, out| to.stores(now, TENANT, stores, out));
        let addresses = stores.addresses().to_vec().into_iter();
        addresses.for_each(|store| self.tell(|to, now, out| to.store_attached(now, store, out)));
    }

    pub(super) fn wanted(&self) -> usize {
        self.control.wanted(SWITCH, TENANT)
    }

    fn room(&mut self) {
        let rooms = self.switches.clone().map(|switch| Room {
            switch,
            pages: 8,
            lent: 0,
            parameters: None,
        });
        let rooms: Vec<Room> = rooms.collect();
        self.tell(|to, now, out| to.room(now, TENANT, &rooms, out));
    }

    fn attach(&mut self, lost: &[Key]) {
        self.tell(|to, now, out| to.attached(now, SWITCH, out));
        let held: Vec<Key> = self.items.keys().cloned().collect();
        let inventory = Inventory { switch: SWITCH, tenant: TENANT, held: &held, lost };
        self.tell(|to, now, out| to.holds(now, inventory, out));
    }

    pub(super) fn tell(
        &mut self,
        event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) {
        let mut out = vec![];
        event(&mut *self.control, self.now, &mut out);
        out.into_iter().for_each(|action| self.act(action));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Change { key, change, .. } => self.change(&key, &change),
            Action::Tell { store, .. } if self.deaf == Some(store) => {}
            Action::Tell { store, message, .. } => {
                let told = StoreMessage::decode(&message).expect("a message");
                self.story.push(format!("{:?}", told.instruction).to_lowercase());
                let held = self.held.entry(store).or_default();
                match told.instruction {
                    Instruction::Hold => held.extend(told.keys.into_iter().map(|key| (key, true))),
                    Instruction::Release => told.keys.iter().for_each(|key| {
                        held.remove(key);
                    }),
                    Instruction::Begin => held.values_mut().for_each(|named| *named = false),
                    Instruction::End => held.retain(|_, named| *named),
                    Instruction::Confirm => {}
                }
            }
            Action::Configure { .. } => {}
            other => panic!("{other:?} is not asked for"),
        }
    }

    fn change(&mut self, key: &Key, change: &Change) {
        self.changes += 1;
        match &mut self.waiting {
            Some(waiting) => waiting.push((key.clone(), change.clone())),
            None => self.carry_out(key, change),
        }
    }

    fn answer(&mut self, key: &Key, change: &Change, outcome: Outcome) {
        let answer = Answer { switch: SWITCH, tenant: TENANT, key, change, outcome };
        self.tell(|to, now, out| to.answered(now, answer, out));
    }

    fn carry_out(&mut self, key: &Key, change: &Change) {
        let outcome = self.outcome;
        let is_copy = *change == Change::Put(Record::Fetched);
        if outcome == Outcome::Done {
            let before = self.items.remove(key);
            let is_copied = is_copy && matches!(before, Some(Record::Given(_)));
            let is_inherited = self.inherited.remove(key);
            assert!(!is_copied || is_inherited, "its stores would not know");
            let what = match change {
                Change::Put(record) => {
                    self.items.insert(key.clone(), record.clone());
                    "put"
                }
                Change::Remove | Change::RemoveIf(_) => "remove",
            };
            self.story.push(what.into());
        }
        self.answer(key, change, outcome);
        if is_copy && self.unfit.contains(key) {
            self.items.remove(key);
            let keys = std::slice::from_ref(key);
            let eviction = Eviction { switch: SWITCH, tenant: TENANT, keys, unfit: true };
            self.tell(|to, now, out| to.dropped(now, eviction, out));
        }
    }

    /// A window in which keys had these requests; those that are at the switch are spread as their
    /// records say.
    fn window(&mut self, keys: &[(Key, u64)]) {
        self.now += Duration::from_secs(1);
        let (here, missed): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|(key, _)| self.items.contains_key(key));
        let hot = HotKeys { switch: SWITCH, tenant: TENANT, window: 1, keys: &missed };
        self.tell(|to, now, out| to.hot(now, hot, out));
        let mut tallies = [0; decide::TALLIES];
        for (key, requests) in keys {
            let places = self.places(key);
            for at in &places {
                let each = requests / places.len() as u64;
                let answers = if self.slow == Some(*at) { each / 2 } else { each };
                tallies[LOADS + at] += each | (answers << 32);
            }
        }
        let end = WindowEnd {
            switch: SWITCH,
            tenant: TENANT,
            window: 1,
            items: &here,
            tallies: &tallies,
        };
        self.tell(|to, now, out| to.window_end(now, end, out));
        self.tell(|to, now, out| to.tick(now, out));
    }

    /// The stores that the switch sends a key's reads to.
    fn places(&self, key: &Key) -> Vec<usize> {
        let Some(Record::Given(record)) = self.items.get(key) else {
            return vec![stores().home_of(key)];
        };
        let turns = record[HEADER..].chunks(IPV4_TURN);
        let node = |turn: &[u8]| u16::from_ne_bytes([turn[0], turn[1]]);
        turns.map(|turn| usize::from(node(turn) & 0x7fff)).collect()
    }

    /// Whether a store holds anything.
    fn has(&self, at: usize) -> bool {
        let held = self.held.get(&store(at));
        held.is_some_and(|held| !held.is_empty())
    }

    /// Whether each store that the switch sends a key's reads to holds it, and no other.
    fn is_right(&self, key: &Key) -> bool {
        let home = stores().home_of(key);
        let places = self.places(key);
        (0..STORES).filter(|at| *at != home).all(|at| {
            let held = self.held.get(&store(at));
            held.is_some_and(|held| held.contains_key(key)) == places.contains(&at)
        })
    }
}

pub(super) fn limits() -> Limits {
    let all = crate::settings::ALL.iter().enumerate();
    let usual =
        |settings: Settings, (at, of): (usize, &decide::Setting)| settings.with(at, of.usual);
    Limits { settings: all.fold(Settings::default(), usual), ..Limits::default() }
}

/// One key that is far hotter than the others, of which each store has one.
fn load() -> Vec<(Key, u64)> {
    let others = (0..STORES).map(|home| (key_of(home, 1), 1000));
    others.chain([(key_of(1, 0), 8000)]).collect()
}

#[test]
fn the_record_comes_first_and_then_its_stores_are_told() {
    let mut rig = Rig::new();
    rig.window(&load());
    let hot = key_of(1, 0);
    assert_eq!(rig.places(&hot).len(), STORES);
    assert!(rig.is_right(&hot));
    let position = |what: &str| rig.story.iter().position(|said| said == what);
    assert!(position("put") < position("hold"), "{:?}", rig.story);
    // What cools down goes the other way.
    rig.story.clear();
    let cold = &load()[..STORES];
    (0..4).for_each(|_| rig.window(cold));
    assert!(!rig.items.contains_key(&hot) && rig.is_right(&hot));
    let position = |what: &str| rig.story.iter().position(|said| said == what);
    assert!(position("remove") < position("release"), "{:?}", rig.story);
}

#[test]
fn a_store_that_is_gone_has_no_reads_after_a_window_and_replicas_again_when_it_is_back() {
    let mut rig = Rig::new();
    let hot = key_of(1, 0);
    (0..3).for_each(|_| rig.window(&load()));
    rig.tell(|to, now, out| to.store_detached(now, store(2), out));
    rig.held.remove(&store(2));
    rig.window(&load());
    assert!(!rig.places(&hot).contains(&2));
    rig.tell(|to, now, out| to.store_attached(now, store(2), out));
    (0..3).for_each(|_| rig.window(&load()));
    assert!(rig.places(&hot).contains(&2) && rig.is_right(&hot));
}

#[test]
fn while_its_home_is_away_a_key_s_replicas_have_its_reads_for_a_lease() {
    let mut rig = Rig::new();
    let hot = key_of(1, 0);
    (0..3).for_each(|_| rig.window(&load()));
    rig.tell(|to, now, out| to.store_detached(now, store(1), out));
    let mut at_others = 0;
    while at_others < 10 && rig.items.contains_key(&hot) {
        rig.window(&load());
        at_others += usize::from(!rig.places(&hot).contains(&1));
    }
    assert_eq!(at_others, limits().lease.as_secs() as usize);
    assert!(!rig.items.contains_key(&hot), "who answered may do so no longer");
    assert!((0..STORES).all(|at| !rig.held[&store(at)].contains_key(&hot)), "nobody holds it");
    rig.tell(|to, now, out| to.store_attached(now, store(1), out));
    (0..3).for_each(|_| rig.window(&load()));
    assert!(rig.is_right(&hot) && rig.places(&hot).len() > 1);
}

#[test]
fn a_switch_that_lost_its_items_has_them_again() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    let lost: Vec<Key> = std::mem::take(&mut rig.items).into_keys().collect();
    assert!(!lost.is_empty());
    rig.tell(|to, now, out| to.detached(now, SWITCH, out));
    rig.attach(&lost);
    rig.story.clear();
    rig.window(&load());
    assert!(lost.iter().all(|key| rig.items.contains_key(key)));
    assert!(rig.story.contains(&"hold".into()), "stores confirm again: {:?}", rig.story);
}

#[test]
fn a_new_leader_ends_what_it_does_not_want() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    let before = key_of(1, 0);
    assert!(rig.items.contains_key(&before));
    rig.lead();
    // Something else is hot by now.
    let others = (0..STORES).map(|home| (key_of(home, 1), 1000));
    let now: Vec<_> = others.chain([(key_of(3, 0), 8000)]).collect();
    (0..4).for_each(|_| rig.window(&now));
    assert!(!rig.items.contains_key(&before) && rig.is_right(&before));
    assert!(rig.items.contains_key(&key_of(3, 0)) && rig.is_right(&key_of(3, 0)));
    assert!(rig.story.contains(&"end".into()));
}

#[test]
fn a_store_for_which_too_many_messages_waited_hears_of_everything_later() {
    let mut rig = Rig::new();
    rig.deaf = Some(store(2));
    (0..3).for_each(|_| rig.window(&load()));
    assert!(!rig.has(2));
    rig.deaf = None;
    (0..3).for_each(|_| rig.window(&load()));
    assert!(!rig.has(2), "nothing is told twice of itself");
    rig.tell(|to, now, out| to.not_told(now, store(2), TENANT, out));
    rig.window(&load());
    assert!(rig.has(2) && rig.is_right(&key_of(1, 0)));
}

/// A tenant at two switches, of which the first is about to remove a key that it does not want.
#[test]
fn a_switch_that_leaves_while_it_removes_a_key_has_nobody_hold_it() {
    let mut rig = Rig::new();
    rig.switches = SWITCH..=SWITCH + 1;
    rig.room();
    (0..3).for_each(|_| rig.window(&load()));
    let hot = key_of(1, 0);
    assert!((0..STORES).any(|at| rig.held[&store(at)].contains_key(&hot)));
    rig.waiting = Some(vec![]);
    (0..4).for_each(|_| rig.window(&load()[..STORES]));
    assert!(rig.waiting.as_ref().unwrap().contains(&(hot.clone(), Change::Remove)));
    rig.switches = SWITCH + 1..=SWITCH + 1;
    rig.room();
    rig.tell(|to, now, out| to.tick(now, out));
    assert!((0..STORES).all(|at| !rig.held[&store(at)].contains_key(&hot)));
}

#[test]
fn an_answer_to_another_change_of_a_key_is_not_taken_for_its_own() {
    let mut rig = Rig::new();
    let hot = key_of(1, 0);
    rig.waiting = Some(vec![]);
    rig.window(&load());
    let waiting = rig.waiting.take().unwrap();
    assert!(waiting.iter().any(|(key, change)| *key == hot && matches!(change, Change::Put(_))));
    for other in [Change::Remove, Change::Put(Record::Fetched)] {
        rig.answer(&hot, &other, Outcome::Done);
        rig.tell(|to, now, out| to.tick(now, out));
        assert!((0..STORES).all(|at| !rig.has(at)), "the switch leads to nobody yet");
    }
    waiting.iter().for_each(|(key, change)| rig.carry_out(key, change));
    rig.tell(|to, now, out| to.tick(now, out));
    assert!(rig.is_right(&hot) && rig.places(&hot).len() == STORES);
}

/// In each window another key is hot, so that there is always something to change.
#[test]
fn a_new_leader_ends_what_it_does_not_want_also_where_load_moves_in_each_window() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    let before = key_of(1, 0);
    // The switch has lost it; its stores hold it still.
    rig.items.clear();
    rig.lead();
    rig.story.clear();
    for number in 2..10 {
        let changes = rig.changes;
        let others = (0..STORES).map(|home| (key_of(home, 1), 1000));
        let now: Vec<_> = others.chain([(key_of(3, number), 8000)]).collect();
        rig.window(&now);
        assert!(rig.changes > changes, "nothing moved");
    }
    assert!(rig.story.contains(&"end".into()), "{:?}", rig.story);
    assert!(rig.is_right(&before));
}

#[test]
fn what_finds_no_room_is_held_nowhere_and_tried_again() {
    let mut rig = Rig::new();
    let hot = key_of(1, 0);
    rig.outcome = Outcome::NoRoom;
    (0..3).for_each(|_| rig.window(&load()));
    assert!(rig.items.is_empty() && rig.is_right(&hot));
    rig.outcome = Outcome::Done;
    (0..4).for_each(|_| rig.window(&load()));
    assert!(rig.items.contains_key(&hot) && rig.is_right(&hot));
}

#[test]
fn while_nobody_asks_everything_stays() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    let items = rig.items.clone();
    (0..10).for_each(|_| rig.window(&[]));
    assert_eq!(rig.items, items);
    assert_eq!(rig.wanted(), 0, "others may have room");
    rig.window(&load());
    assert_eq!(rig.items, items, "it goes on as it was");
    assert!(rig.wanted() > 0);
}

#[test]
fn a_tenant_that_is_gone_leaves_nothing() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    assert!(rig.held.values().any(|held| !held.is_empty()));
    rig.tell(|to, now, out| to.room(now, TENANT, &[], out));
    assert!(rig.held.values().all(BTreeMap::is_empty), "{:?}", rig.held);
    assert_eq!(rig.wanted(), 0);
    assert!(rig.control.counters(SWITCH).is_empty());
    // And it begins anew when it is back.
    rig.items.clear();
    let stores = stores();
    rig.tell(|to, now, out| to.stores(now, TENANT, &stores, out));
    rig.room();
    rig.attach(&[]);
    (0..3).for_each(|_| rig.window(&load()));
    assert!(rig.places(&key_of(1, 0)).len() > 1 && rig.is_right(&key_of(1, 0)));
}

#[test]
fn a_store_with_several_ranges_has_one_place() {
    let mut rig = Rig::new();
    let addresses = [0, 1, 1, 3].map(store).to_vec();
    let stores = Stores::new(addresses, TENANT, Secret([7; 16]), vec![0, 1, 1, 3]);
    rig.move_to(&stores);
    let hot = key_of(1, 0);
    (0..3).for_each(|_| rig.window(&load()));
    let mut places = rig.places(&hot);
    places.sort_unstable();
    assert_eq!(places, [0, 1, 3]);
}

#[test]
fn a_tenant_of_some_stores_has_nothing_at_others() {
    let mut rig = Rig::new();
    let addresses = (0..STORES).map(store).collect();
    let stores = Stores::new(addresses, TENANT, Secret([7; 16]), vec![0, 1, 0, 1]);
    rig.move_to(&stores.only(&[store(0), store(1)]));
    (0..3).for_each(|_| rig.window(&load()));
    let mut places = rig.places(&key_of(1, 0));
    places.sort_unstable();
    assert_eq!(places, [0, 1]);
    assert!([2, 3].iter().all(|at| !rig.has(*at)));
}

#[test]
fn no_record_leads_to_where_a_store_was() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    assert!(!rig.items.is_empty());
    let elsewhere = (10..10 + STORES).map(store).collect();
    let homes = (0..STORES as u16).collect();
    rig.move_to(&Stores::new(elsewhere, TENANT, Secret([7; 16]), homes));
    assert!(rig.items.is_empty(), "before the next window");
}

#[test]
fn only_stores_that_are_counted_have_replicas() {
    let mut rig = Rig::new();
    let addresses: Vec<_> = (0..100).map(store).collect();
    let homes = (0..STORES as u16).collect();
    rig.move_to(&Stores::new(addresses, TENANT, Secret([7; 16]), homes));
    (0..3).for_each(|_| rig.window(&load()));
    let places = rig.places(&key_of(1, 0));
    assert!(places.len() > STORES, "{places:?}");
    assert!((64..100).all(|at| !places.contains(&at) && !rig.has(at)));
}

/// A leader that may make few changes after a window.
fn slow_leader(rig: &mut Rig, changes: u32) {
    rig.settings = rig.settings.with(crate::settings::CHANGES, changes);
    rig.lead();
    rig.story.clear();
}

#[test]
fn a_new_leader_replaces_and_removes_no_more_than_it_may() {
    let mut rig = Rig::new();
    let hot = (0..20).map(|n| (key_of(1, n), 2000));
    let load: Vec<_> = load().into_iter().take(4).chain(hot).collect();
    (0..6).for_each(|_| rig.window(&load));
    let before = rig.items.len();
    assert!(before >= 20, "{before}");
    slow_leader(&mut rig, 8);
    // Half of them are still hot.
    let now = &load[..14];
    for _ in 0..3 {
        rig.story.clear();
        rig.window(now);
        let changes = ["put", "remove"];
        let changes = rig.story.iter().filter(|s| changes.contains(&&s[..]));
        assert!(changes.count() <= 8);
        assert!(now[4..].iter().all(|(key, _)| rig.items.contains_key(key)));
    }
    (0..10).for_each(|_| rig.window(now));
    assert!(now.iter().all(|(key, _)| rig.is_right(key)));
    assert!(load[14..].iter().all(|(key, _)| !rig.items.contains_key(key)));
    assert!(rig.story.contains(&"end".into()));
}

#[test]
fn what_could_not_be_sent_is_removed_later() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    let before = key_of(1, 0);
    rig.lead();
    rig.outcome = Outcome::NotSent;
    let now = &load()[..STORES];
    (0..3).for_each(|_| rig.window(now));
    assert!(rig.items.contains_key(&before));
    rig.outcome = Outcome::Done;
    (0..3).for_each(|_| rig.window(now));
    assert!(!rig.items.contains_key(&before));
}

#[test]
fn a_tenant_that_is_quiet_keeps_nothing_of_a_leader_before() {
    let mut rig = Rig::new();
    (0..3).for_each(|_| rig.window(&load()));
    assert!(!rig.items.is_empty());
    rig.lead();
    rig.story.clear();
    (0..12).for_each(|_| rig.window(&[]));
    assert!(rig.items.is_empty() && (0..STORES).all(|at| !rig.has(at)));
    assert!(rig.story.contains(&"end".into()));
}

#[test]
fn a_switch_that_never_comes_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.switches = SWITCH..=SWITCH + 1;
    rig.lead();
    (0..5).for_each(|_| rig.window(&load()));
    assert!(!rig.story.contains(&"end".into()), "it may have items");
    (0..10).for_each(|_| rig.window(&load()));
    assert!(rig.story.contains(&"end".into()));
}

#[test]
fn a_store_that_turns_slow_has_fewer_turns_after_a_window() {
    let mut rig = Rig::new();
    let hot = key_of(1, 0);
    (0..3).for_each(|_| rig.window(&load()));
    let turns = |rig: &Rig, at| rig.places(&hot).into_iter().filter(|p| *p == at).count();
    assert_eq!([1, 2, 3].map(|at| turns(&rig, at)), [1; 3]);
    rig.slow = Some(2);
    rig.window(&load());
    // It is behind: what it leaves is asked again.
    assert_eq!([1, 2, 3].map(|at| turns(&rig, at)), [1, 0, 1]);
    assert!(rig.is_right(&hot));
    rig.slow = None;
    (0..2).for_each(|_| rig.window(&load()));
    // Half as fast: less than half, for what waits there has to be answered, too.
    assert_eq!([1, 2, 3].map(|at| turns(&rig, at)), [4, 2, 4]);
    assert!(rig.is_right(&hot));
}
