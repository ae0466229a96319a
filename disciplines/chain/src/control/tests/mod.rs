//! The control half against switches that do what they are told.

mod keys;
mod members;
mod snapshots;

use std::collections::BTreeSet;

use decide::{Change, Configuration, Key, Outcome, Room, Stores};
use wire::Secret;

use super::*;
use crate::{
    record::KeyRecord,
    report::{DepartureRequest, FilledChain, State},
    snapshot::Save,
    view::View,
};

const TENANT: u32 = 7;
const TICK: Duration = Duration::from_millis(100);

/// A switch as its agent shows it.
#[derive(Default)]
struct Switch {
    life: u64,
    attached: bool,
    items: BTreeMap<Key, decide::Record>,
    view: Option<View>,
    room: usize,
    /// Whose buckets are full.
    crowded: BTreeSet<Key>,
    /// Rows that say what there is no room for.
    no_room: Vec<decide::Row>,
    /// What it does not answer yet.
    waits: Vec<(Key, Change)>,
    /// What an earlier controller wrote that it has.
    believed: BTreeSet<Key>,
    /// Its stream is there, and nothing passes by it.
    is_cut_off: bool,
}

struct Rig {
    control: Control,
    now: Duration,
    switches: BTreeMap<SwitchId, Switch>,
    remembered: Vec<u8>,
    kept: BTreeMap<Key, Bytes>,
    /// Of so many keys at most something is kept.
    kept_most: usize,
    /// What each switch was last asked to tell of its keys.
    saves: BTreeMap<SwitchId, Save>,
    /// Changes and views, in the order in which they were asked for.
    story: Vec<String>,
    /// Answers are held back.
    holds_back: bool,
    options: decide::Settings,
}

fn stores() -> Stores {
    let address = ([10, 0, 0, 1], 7117).into();
    Stores::new(vec![address], TENANT, Secret([7; 16]), vec![0])
}

fn address(switch: SwitchId) -> IpAddr {
    IpAddr::from([10, 0, 1, switch as u8])
}

impl Rig {
    fn new(switches: &[SwitchId], chains: u32, length: u32) -> Rig {
        let options = decide::Settings::default().with(0, chains).with(1, length).with(2, 2);
        let mut rig = Rig {
            control: Control::new(Protocol::NetCraq),
            now: Duration::ZERO,
            switches: BTreeMap::new(),
            remembered: vec![],
            kept: BTreeMap::new(),
            kept_most: usize::MAX,
            saves: BTreeMap::new(),
            story: vec![],
            holds_back: false,
            options,
        };
        rig.begin();
        for switch in switches {
            rig.add(*switch);
        }
        rig.run(10);
        rig
    }

    fn begin(&mut self) {
        let (tenant, options) = (TENANT, self.options);
        let bytes = self.remembered.clone();
        self.tell(|to, now, out| to.remembered(now, tenant, &bytes, out));
        let kept: Vec<(Key, Bytes)> = self.kept.clone().into_iter().collect();
        if !kept.is_empty() {
            self.tell(|to, now, out| to.kept(now, tenant, &kept, out));
        }
        self.tell(|to, now, out| to.options(now, tenant, options, out));
        let stores = stores();
        self.tell(|to, now, out| to.stores(now, tenant, &stores, out));
    }

    fn add(&mut self, switch: SwitchId) {
        let life = 100 + u64::from(switch);
        let new = Switch { life, room: 1000, ..Switch::default() };
        self.switches.insert(switch, new);
        self.attach(switch);
        self.tell_rooms();
    }

    fn attach(&mut self, switch: SwitchId) {
        let at = self.switches.get_mut(&switch).unwrap();
        at.attached = true;
        let (life, held) = (at.life, at.items.keys().cloned().collect::<Vec<_>>());
        let lost: Vec<Key> = std::mem::take(&mut at.believed)
            .into_iter()
            .filter(|key| !held.contains(key))
            .collect();
        let life = Life { switch, number: life, address: Some(address(switch)) };
        self.tell(|to, now, out| to.life(now, life, out));
        self.tell(|to, now, out| to.attached(now, switch, out));
        let inventory = Inventory { switch, tenant: TENANT, held: &held, lost: &lost };
        self.tell(|to, now, out| to.holds(now, inventory, out));
    }

    fn detach(&mut self, switch: SwitchId) {
        self.switches.get_mut(&switch).unwrap().attached = false;
        self.tell(|to, now, out| to.detached(now, switch, out));
    }

    fn tell_rooms(&mut self) {
        let room =
            |switch: &SwitchId| Room { switch: *switch, pages: 4, lent: 0, parameters: None };
        let rooms: Vec<Room> = self.switches.keys().map(room).collect();
        self.tell(|to, now, out| to.room(now, TENANT, &rooms, out));
    }

    /// The tenant's chains are to have so many members from now on.
    fn set_length(&mut self, length: u32) {
        let (tenant, options) = (TENANT, self.options.with(1, length));
        self.options = options;
        self.tell(|to, now, out| to.options(now, tenant, options, out));
    }

    /// Another controller leads.
    fn restart(&mut self) {
        self.control = Control::new(Protocol::NetCraq);
        self.begin();
        self.tell_rooms();
        for switch in self.switches.keys().copied().collect::<Vec<_>>() {
            self.attach(switch);
        }
    }

    fn tell(&mut self, event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>)) {
        let mut out = vec![];
        event(&mut self.control, self.now, &mut out);
        out.into_iter().for_each(|action| self.carry_out(action));
    }

    fn answer(&mut self, switch: SwitchId, key: &Key, change: &Change, outcome: Outcome) {
        let answer = Answer { switch, tenant: TENANT, key, change, outcome };
        let mut out = vec![];
        self.control.answered(self.now, answer, &mut out);
        assert!(out.is_empty() || outcome != Outcome::NotSent);
        out.into_iter().for_each(|action| self.carry_out(action));
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Remember { bytes, .. } => self.remembered = bytes.to_vec(),
            Action::Keep { key, bytes: Some(bytes), .. } => self.keep(key, bytes),
            Action::Keep { key, bytes: None, .. } => drop(self.kept.remove(&key)),
            Action::Configure { switch, configuration, .. } => {
                self.configure(switch, &configuration)
            }
            Action::Change { switch, key, change, .. } => {
                let name = String::from_utf8_lossy(&key).into_owned();
                let what = match &change {
                    Change::Put(_) => "put",
                    Change::Remove => "remove",
                    Change::RemoveIf(_) => "remove if",
                };
                self.story.push(format!("{what} {name} at {switch}"));
                let at = self.switches.get_mut(&switch).unwrap();
                at.waits.push((key, change));
            }
            Action::TellSwitch { switch, message, .. } => {
                self.saves.insert(switch, Save::decode(&message).expect("nothing else is told"));
            }
            other => panic!("{other:?} is not asked for"),
        }
    }

    fn keep(&mut self, key: Key, bytes: Bytes) {
        match self.kept.len() < self.kept_most || self.kept.contains_key(&key) {
            true => drop(self.kept.insert(key, bytes)),
            false => self.control.not_kept(self.now, TENANT, &key),
        }
    }

    /// One that is forgotten is told nothing.
    fn configure(&mut self, switch: SwitchId, configuration: &Configuration) {
        let row = configuration.rows.iter().find(|row| row.map == crate::view::MAP);
        let view = View::decode(&row.expect("a view").value).expect("possible");
        let memory = memory::Memory::decode(&self.remembered).unwrap();
        assert_eq!(memory.number, view.number, "remembered before it is told");
        let Some(at) = self.switches.get_mut(&switch) else { return };
        if let Some(before) = &at.view {
            assert!(before.number <= view.number);
        }
        at.view = Some(view);
        let rows = configuration.rows.iter();
        at.no_room = rows.filter(|row| row.map == crate::view::FULL).cloned().collect();
    }

    fn answering(&self) -> Vec<SwitchId> {
        let answers = |(id, s): (&SwitchId, &Switch)| (s.attached && !s.is_cut_off).then_some(*id);
        self.switches.iter().filter_map(answers).collect()
    }

    /// Every switch that is there has the view.
    fn confirm(&mut self) {
        for switch in self.answering() {
            self.tell(|to, now, out| to.configured(now, switch, TENANT, out));
        }
    }

    /// Every switch that is there does what it was told, and answers.
    fn settle(&mut self) {
        for _ in 0..200 {
            for switch in self.answering() {
                self.tell(|to, now, out| to.configured(now, switch, TENANT, out));
                let at = self.switches.get_mut(&switch).unwrap();
                let waits = match self.holds_back {
                    true => vec![],
                    false => std::mem::take(&mut at.waits),
                };
                for (key, change) in waits {
                    let outcome = self.switches.get_mut(&switch).unwrap().does(&key, &change);
                    self.answer(switch, &key, &change, outcome);
                }
            }
        }
    }

    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += TICK;
            self.tell(|to, now, out| to.tick(now, out));
            self.settle();
        }
    }

    fn view(&self) -> View {
        memory::Memory::decode(&self.remembered).unwrap().view.unwrap()
    }

    /// The members of a chain.
    fn chain(&self, chain: usize) -> Vec<SwitchId> {
        let view = self.view();
        let slots = view.chains[chain].slots.iter();
        slots.map(|s| view.members[usize::from(*s)].unwrap().switch).collect()
    }

    /// The chains whose last members have not all yet.
    fn filling(&self) -> Vec<usize> {
        let chains = self.view().chains;
        (0..chains.len()).filter(|at| chains[*at].filling).collect()
    }

    /// A member says that it does not hear these switches.
    fn silent(&mut self, by: SwitchId, silent: &[SwitchId]) {
        let view = self.view();
        let slot = |of: &SwitchId| {
            let is_it = |m: &Option<crate::view::Member>| m.is_some_and(|m| m.switch == *of);
            view.members.iter().position(is_it).unwrap()
        };
        let report = State {
            number: view.number,
            silent: silent.iter().map(|of| 1 << slot(of)).sum(),
            unheard: 0,
            filled: vec![],
        };
        self.report(by, &report);
    }

    /// A member is silent: all others say so.
    fn falls_silent(&mut self, silent: SwitchId) {
        let view = self.view();
        let others = view.members.iter().flatten().map(|m| m.switch);
        let others: Vec<SwitchId> = others.filter(|m| *m != silent).collect();
        self.now += Duration::from_millis(200);
        for by in others {
            // The first that is heard may have it taken out already.
            if self.view().number == view.number {
                self.silent(by, &[silent]);
            }
        }
    }

    fn report(&mut self, by: SwitchId, report: &State) {
        self.tell(|to, now, out| to.switch_reported(now, by, TENANT, &report.encode(), out));
    }

    /// A member says that it is to leave.
    fn leaves(&mut self, switch: SwitchId) {
        let report = DepartureRequest.encode();
        self.tell(|to, now, out| to.switch_reported(now, switch, TENANT, &report, out));
        self.settle();
    }

    /// The switches that have slots.
    fn slots(&self) -> BTreeSet<SwitchId> {
        self.view().members.iter().flatten().map(|m| m.switch).collect()
    }

    /// Predecessors say that what is filling is full.
    fn filled(&mut self) {
        let view = self.view();
        for (at, chain) in (0u16..).zip(&view.chains).filter(|(_, c)| c.filling) {
            let by = self.chain(usize::from(at));
            let filled = FilledChain { chain: at, fill_number: chain.fill_number };
            let report = State { number: view.number, silent: 0, unheard: 0, filled: vec![filled] };
            self.report(by[by.len() - 2], &report);
        }
        self.settle();
    }

    fn wants(&mut self, name: &str) {
        let key = Key::copy_from_slice(name.as_bytes());
        let switch = *self.switches.keys().next().unwrap();
        let hot = HotKeys { switch, tenant: TENANT, window: 1, keys: &[(key, 1)] };
        self.tell(|to, now, out| to.hot(now, hot, out));
        self.settle();
    }

    fn holders(&self, name: &str) -> BTreeSet<SwitchId> {
        let has = |(id, s): (&SwitchId, &Switch)| {
            let has = s.items.contains_key(name.as_bytes());
            has.then_some(*id)
        };
        self.switches.iter().filter_map(has).collect()
    }
}

impl Switch {
    fn does(&mut self, key: &Key, change: &Change) -> Outcome {
        match change {
            Change::Put(_) if self.items.len() >= self.room => return Outcome::NoRoom,
            Change::Put(_) if self.crowded.contains(key) => return Outcome::BucketFull,
            Change::Put(record) => {
                self.items.entry(key.clone()).or_insert(record.clone());
            }
            Change::Remove => drop(self.items.remove(key)),
            Change::RemoveIf(begins) => match self.items.get(key) {
                Some(decide::Record::Given(record)) if record.starts_with(begins) => {
                    self.items.remove(key);
                }
                Some(_) => return Outcome::Changed,
                None => {}
            },
        }
        Outcome::Done
    }
}
