//! The control half against switches that do what they are told.

use std::collections::BTreeSet;

use decide::{Change, Configuration, Key, Outcome, Room, Stores};
use wire::Secret;

use super::*;
use crate::{
    record::KeyRecord,
    report::{Filled, State},
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
    /// What it does not answer yet.
    waits: Vec<(Key, Change)>,
}

struct Rig {
    control: Control,
    now: Duration,
    switches: BTreeMap<SwitchId, Switch>,
    remembered: Vec<u8>,
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
        let options = decide::Settings::default()
            .with(0, chains)
            .with(1, length)
            .with(2, 2);
        let mut rig = Rig {
            control: Control::new(Protocol::NetCraq),
            now: Duration::ZERO,
            switches: BTreeMap::new(),
            remembered: vec![],
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
        self.tell(Event::Remembered {
            tenant,
            bytes: &bytes,
        });
        self.tell(Event::Options { tenant, options });
        let stores = stores();
        self.tell(Event::Stores {
            tenant,
            stores: &stores,
        });
    }

    fn add(&mut self, switch: SwitchId) {
        let life = 100 + u64::from(switch);
        let new = Switch {
            life,
            room: 1000,
            ..Switch::default()
        };
        self.switches.insert(switch, new);
        self.attach(switch);
        self.tell_rooms();
    }

    fn attach(&mut self, switch: SwitchId) {
        let at = self.switches.get_mut(&switch).unwrap();
        at.attached = true;
        let (life, held) = (at.life, at.items.keys().cloned().collect::<Vec<_>>());
        self.tell(Event::Life {
            switch,
            life,
            address: Some(address(switch)),
        });
        self.tell(Event::Attached { switch });
        self.tell(Event::Holds {
            switch,
            tenant: TENANT,
            held: &held,
            lost: &[],
        });
    }

    fn tell_rooms(&mut self) {
        let room = |switch: &SwitchId| Room {
            switch: *switch,
            pages: 4,
            lent: 0,
            parameters: None,
        };
        let rooms: Vec<Room> = self.switches.keys().map(room).collect();
        self.tell(Event::Room {
            tenant: TENANT,
            rooms: &rooms,
        });
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

    fn tell(&mut self, event: Event<'_>) {
        let mut out = vec![];
        self.control.on(self.now, event, &mut out);
        let is_not_sent = matches!(
            event,
            Event::Answered {
                outcome: Outcome::NotSent,
                ..
            }
        );
        assert!(out.is_empty() || !is_not_sent);
        for action in out {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Remember { bytes, .. } => self.remembered = bytes.to_vec(),
            Action::Configure {
                switch,
                configuration,
                ..
            } => self.configure(switch, &configuration),
            Action::Change {
                switch,
                key,
                change,
                ..
            } => {
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
            other => panic!("{other:?} is not asked for"),
        }
    }

    fn configure(&mut self, switch: SwitchId, configuration: &Configuration) {
        let row = configuration
            .rows
            .iter()
            .find(|row| row.map == crate::view::MAP);
        let view = View::decode(&row.expect("a view").value).expect("possible");
        let memory = memory::Memory::decode(&self.remembered).unwrap();
        assert_eq!(memory.number, view.number, "remembered before it is told");
        let at = self.switches.get_mut(&switch).unwrap();
        if let Some(before) = &at.view {
            assert!(before.number <= view.number);
        }
        at.view = Some(view);
    }

    /// Every switch that is there does what it was told, and answers.
    fn settle(&mut self) {
        for _ in 0..200 {
            let attached = |(id, s): (&SwitchId, &Switch)| s.attached.then_some(*id);
            let all: Vec<SwitchId> = self.switches.iter().filter_map(attached).collect();
            for switch in all {
                self.tell(Event::Configured {
                    switch,
                    tenant: TENANT,
                });
                let at = self.switches.get_mut(&switch).unwrap();
                let waits = match self.holds_back {
                    true => vec![],
                    false => std::mem::take(&mut at.waits),
                };
                for (key, change) in waits {
                    let outcome = self.switches.get_mut(&switch).unwrap().does(&key, &change);
                    self.tell(Event::Answered {
                        switch,
                        tenant: TENANT,
                        key: &key,
                        change: &change,
                        outcome,
                    });
                }
            }
        }
    }

    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += TICK;
            self.tell(Event::Tick);
            self.settle();
        }
    }

    fn view(&self) -> View {
        memory::Memory::decode(&self.remembered)
            .unwrap()
            .view
            .unwrap()
    }

    /// The members of a chain.
    fn chain(&self, chain: usize) -> Vec<SwitchId> {
        let view = self.view();
        let slots = view.chains[chain].slots.iter();
        slots
            .map(|s| view.members[usize::from(*s)].unwrap().switch)
            .collect()
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
        self.tell(Event::SwitchReported {
            switch: by,
            tenant: TENANT,
            report: &report.encode(),
        });
    }

    /// Predecessors say that what is filling is full.
    fn filled(&mut self) {
        let view = self.view();
        for (at, chain) in (0u16..).zip(&view.chains).filter(|(_, c)| c.filling) {
            let by = self.chain(usize::from(at));
            let filled = Filled {
                chain: at,
                fill_number: chain.fill_number,
            };
            let report = State {
                number: view.number,
                silent: 0,
                filled: vec![filled],
            };
            self.report(by[by.len() - 2], &report);
        }
        self.settle();
    }

    fn wants(&mut self, name: &str) {
        let key = Key::copy_from_slice(name.as_bytes());
        let switch = *self.switches.keys().next().unwrap();
        self.tell(Event::Hot {
            switch,
            tenant: TENANT,
            window: 1,
            keys: &[(key, 1)],
        });
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

#[test]
fn chains_begin_when_all_switches_are_there() {
    let rig = Rig::new(&[1, 2, 3], 4, 3);
    let view = rig.view();
    assert_eq!((view.number, view.chains.len()), (1 << 48 | 1, 4));
    for chain in 0..4 {
        let members: BTreeSet<SwitchId> = rig.chain(chain).into_iter().collect();
        assert_eq!(members, [1, 2, 3].into());
    }
    for (id, switch) in &rig.switches {
        let own = switch.view.as_ref().unwrap();
        assert_eq!(own.life, switch.life);
        assert_eq!(
            own.members[usize::from(own.slot.unwrap())].unwrap().switch,
            *id
        );
    }
}

#[test]
fn a_key_has_its_item_at_the_head_last() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    assert_eq!(rig.story.pop().unwrap(), format!("put key at {}", chain[0]));
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
    let numbers: BTreeSet<(u64, u64)> = rig
        .switches
        .values()
        .map(|s| match &s.items[&b"key"[..]] {
            decide::Record::Given(bytes) => {
                let record = KeyRecord::decode(bytes).unwrap();
                (record.base, record.filled)
            }
            decide::Record::Fetched => panic!("it is given"),
        })
        .collect();
    assert_eq!(numbers, [(0, 1 << 48 | 1)].into());
    rig.story.clear();
    rig.wants("key");
    assert_eq!(rig.story, [""; 0], "it is there");
    rig.wants("\0other");
    assert_eq!(rig.story, [""; 0], "no user has such keys");
}

#[test]
fn a_key_without_room_is_nowhere_and_no_other_is_tried() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let head = rig.chain(0)[0];
    rig.switches.get_mut(&head).unwrap().room = 0;
    rig.wants("key");
    assert_eq!(rig.holders("key"), [].into());
    rig.story.clear();
    rig.wants("other");
    assert_eq!(rig.story, [""; 0]);
}

#[test]
fn who_is_silent_leaves_every_chain_and_comes_back_filled() {
    let mut rig = Rig::new(&[1, 2, 3], 4, 3);
    rig.wants("key");
    rig.switches.get_mut(&3).unwrap().attached = false;
    rig.tell(Event::Detached { switch: 3 });
    assert_eq!(rig.view().number, 1 << 48 | 1, "its programs may go on");
    rig.falls_silent(3);
    let view = rig.view();
    assert_eq!(view.number, 1 << 48 | 2);
    for chain in 0..4 {
        assert!(!rig.chain(chain).contains(&3), "at once");
    }
    rig.attach(3);
    rig.run(5);
    assert_eq!(rig.view().number, 1 << 48 | 2, "it is barred");
    rig.story.clear();
    rig.run(10);
    let view = rig.view();
    assert!(
        view.chains
            .iter()
            .all(|c| c.filling && c.fill_number == view.number)
    );
    assert_eq!(rig.story, ["remove key at 3", "put key at 3"]);
    rig.filled();
    let view = rig.view();
    assert_eq!(view.number, 1 << 48 | 4);
    assert!(view.chains.iter().all(|c| !c.filling && c.slots.len() == 3));
    assert!(
        view.chains
            .iter()
            .all(|c| view.members[usize::from(c.slots[2])].unwrap().switch == 3)
    );
}

#[test]
fn a_switch_with_other_tables_is_gone() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.switches.get_mut(&2).unwrap().life = 999;
    rig.attach(2);
    assert!(!rig.chain(0).contains(&2));
    rig.settle();
    let view = rig.switches[&2].view.as_ref().unwrap();
    let slot = view.slot.unwrap();
    assert!(
        view.chains.iter().all(|c| !c.slots.contains(&slot)),
        "it only says where keys are"
    );
    assert_eq!(view.life, 999);
}

#[test]
fn the_last_that_has_everything_stays() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.falls_silent(2);
    let left = rig.chain(0);
    assert_eq!(left.len(), 1);
    rig.run(15);
    assert_eq!(rig.chain(0).len(), 2, "the other is filling");
    rig.run(30);
    let (alone, before) = (left[0], rig.view().number);
    rig.switches.get_mut(&alone).unwrap().life = 999;
    rig.attach(alone);
    rig.run(5);
    let view = rig.view();
    assert_eq!(
        view.number >> 48,
        (before >> 48) + 1,
        "nobody has it: it begins anew"
    );
    assert_eq!((rig.chain(0).len(), view.chains[0].filling), (2, false));
}

#[test]
fn who_may_have_its_tables_is_waited_for_until_it_is_forgotten() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let before = rig.view().number;
    rig.switches.get_mut(&3).unwrap().attached = false;
    rig.tell(Event::Detached { switch: 3 });
    for switch in [1, 2] {
        rig.switches.get_mut(&switch).unwrap().life = 999;
        rig.attach(switch);
    }
    rig.run(100);
    assert!(rig.chain(0).contains(&3));
    assert_eq!(rig.view().number >> 48, before >> 48);
    rig.switches.remove(&3);
    rig.tell_rooms();
    rig.run(100);
    assert_eq!(rig.view().number >> 48, (before >> 48) + 1);
    assert_eq!(rig.chain(0).len(), 2);
}

#[test]
fn a_chain_meets_those_that_it_superseded_a_moment_ago() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.falls_silent(2);
    rig.run(15);
    rig.filled();
    let (began, chain) = (rig.now, rig.chain(0));
    assert!(!rig.view().chains[0].filling);
    // The old one dies right after the new one is full: within two seconds they answer for one another.
    rig.switches.get_mut(&chain[0]).unwrap().attached = false;
    rig.tell(Event::Detached { switch: chain[0] });
    rig.falls_silent(chain[0]);
    assert_eq!(rig.chain(0), chain);
    // Another controller knows of them too.
    let began = began.max(rig.now);
    rig.restart();
    rig.switches.get_mut(&chain[0]).unwrap().attached = false;
    rig.tell(Event::Detached { switch: chain[0] });
    while rig.chain(0).len() == 2 {
        rig.falls_silent(chain[0]);
        rig.run(1);
    }
    assert_eq!(rig.chain(0), [chain[1]]);
    assert!(rig.now - began >= Duration::from_secs(2));
}

#[test]
fn another_controller_goes_on_where_the_last_one_was() {
    let mut rig = Rig::new(&[1, 2, 3], 2, 3);
    rig.wants("key");
    rig.falls_silent(3);
    rig.run(15);
    let before = rig.view();
    assert!(before.chains[0].filling);
    rig.story.clear();
    rig.restart();
    rig.settle();
    assert_eq!(rig.view(), before);
    assert_eq!(rig.story, [""; 0]);
    rig.filled();
    assert!(!rig.view().chains[0].filling);
    assert_eq!(rig.view().number, before.number + 1);
    rig.falls_silent(2);
    assert_eq!(rig.chain(0).len(), 2, "at once");
}

#[test]
fn a_controller_that_does_not_know_all_makes_nothing() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let head = rig.chain(0)[0];
    rig.story.clear();
    // The head is heard of last.
    rig.control = Control::new(Protocol::NetCraq);
    rig.begin();
    rig.tell_rooms();
    let others: Vec<SwitchId> = [1, 2, 3].into_iter().filter(|s| *s != head).collect();
    rig.switches.get_mut(&head).unwrap().attached = false;
    others.iter().for_each(|other| rig.attach(*other));
    rig.settle();
    rig.wants("key");
    rig.run(1);
    assert_eq!(rig.story, [""; 0]);
    rig.attach(head);
    rig.run(1);
    assert_eq!(rig.story, [""; 0], "it is everywhere");
    assert_eq!(rig.chain(0)[0], head);
}

/// Not as an earlier controller's half-made key would be: the others may have versions of it.
#[test]
fn a_head_without_an_item_that_others_have_leaves() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    rig.switches.get_mut(&chain[0]).unwrap().items.clear();
    rig.restart();
    rig.settle();
    rig.story.clear();
    rig.wants("key");
    assert_eq!(rig.story, [""; 0]);
    rig.run(1);
    assert_eq!(rig.chain(0), chain[1..]);
    rig.run(15);
    rig.filled();
    assert_eq!(rig.chain(0)[2], chain[0]);
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

/// A member's record of a key as a delete left it, all committed.
fn deleted(last: u64) -> decide::Record {
    let version = crate::record::Version {
        seq: last,
        accepted: 1,
        client: 1,
        request: 16,
        session: 1,
        value: None,
    };
    decide::Record::Given(crate::record::restored_key(&version, 1, 2).unwrap())
}

impl Rig {
    /// The tail says that a key was deleted long ago.
    fn removable(&mut self, name: &str, last: u64) {
        let removable = crate::report::Removable {
            number: self.view().number,
            keys: vec![(Key::copy_from_slice(name.as_bytes()), last)],
        };
        let tail = *self.chain(0).last().unwrap();
        self.tell(Event::SwitchReported {
            switch: tail,
            tenant: TENANT,
            report: &removable.encode(),
        });
        self.settle();
    }

    fn delete(&mut self, name: &str, last: u64) {
        for switch in self.switches.values_mut() {
            let key = Key::copy_from_slice(name.as_bytes());
            switch.items.insert(key, deleted(last));
        }
    }
}

#[test]
fn a_deleted_key_goes_at_its_head_first_and_its_numbers_never_come_again() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    rig.delete("key", 7);
    let chain = rig.chain(0);
    rig.story.clear();
    rig.removable("key", 7);
    let expected = chain
        .iter()
        .map(|switch| format!("remove if key at {switch}"));
    assert_eq!(rig.story, expected.collect::<Vec<_>>());
    assert_eq!(rig.holders("key"), [].into());
    rig.wants("key");
    let decide::Record::Given(record) = &rig.switches[&1].items[&b"key"[..]] else {
        panic!("it is given");
    };
    assert_eq!(KeyRecord::decode(record).unwrap().base, 7);
}

#[test]
fn a_key_that_was_written_again_stays() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    rig.delete("key", 8);
    rig.story.clear();
    rig.removable("key", 7);
    let head = rig.chain(0)[0];
    assert_eq!(rig.story, [format!("remove if key at {head}")]);
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

#[test]
fn numbers_outlive_the_tenant() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.tell(Event::Room {
        tenant: TENANT,
        rooms: &[],
    });
    let memory = memory::Memory::decode(&rig.remembered).unwrap();
    assert_eq!((memory.number, memory.view), (1 << 48 | 1, None));
    rig.switches.values_mut().for_each(|s| s.items.clear());
    rig.restart();
    rig.run(10);
    assert_eq!(rig.view().number, 1 << 48 | 2);
}

#[test]
fn sessions_are_at_every_member_and_a_spare_switch_is_none() {
    for chains in [1, 4] {
        let mut rig = Rig::new(&[1, 2, 3, 4], chains, 2);
        let members: BTreeSet<SwitchId> = (0..chains as usize).flat_map(|c| rig.chain(c)).collect();
        let view = rig.view();
        let said = view.members.iter().flatten().map(|m| m.switch);
        assert_eq!(said.collect::<BTreeSet<_>>(), members);
        let key = wire::chain::session_key(5);
        let name = String::from_utf8(key.to_vec()).unwrap();
        rig.wants(&name);
        assert_eq!(rig.holders(&name), members);
    }
}
