//! What disciplines have remembered, and what waits for it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    proto::{HalfAck, HalfReport, Held as HeldKeys, from_switch, to_switch},
    types::{TenantChange, TenantSpec},
};
use bytes::Bytes;
use decide::{
    Action, Change as ItemChange, Discipline, Items, KEPT_MOST, Life, Limits, Registration, Room,
    Setting, Settings,
};
use wire::Secret;

use super::*;
use crate::server::changes;

const ASKED: RequestOrigin<'static> = RequestOrigin { who: "test", at_ms: 1_000 };
const DEPTH: Setting = Setting::new("depth", "for tests", 3, 1, 9);
const TEST: Registration =
    Registration { name: "test", items: Items::Truth, options: &[DEPTH], ..decide::NONE };

static NONE: Registration = decide::NONE;
/// A report for which it keeps something of as many keys as possible, beside what it has kept.
const FILL: &[u8] = b"fill";
/// A report for which it changes an item, and keeps nothing more of what it keeps.
const REMOVE: &[u8] = b"remove";

/// Notes what it is told; once it has room it remembers, tells the switch and changes an item, in
/// this order.
#[derive(Clone, Default)]
struct NotingDiscipline(Arc<Mutex<Vec<String>>>);

impl NotingDiscipline {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Discipline for NotingDiscipline {
    fn remembered(&mut self, _: Duration, _: u32, bytes: &[u8], _: &mut Vec<Action>) {
        self.note(format!("remembered {bytes:?}"));
    }

    fn kept(&mut self, _: Duration, _: u32, kept: &[(Bytes, Bytes)], _: &mut Vec<Action>) {
        self.note(format!("kept {kept:?}"));
    }

    fn options(&mut self, _: Duration, _: u32, options: Settings, _: &mut Vec<Action>) {
        self.note(format!("depth {}", options[0]));
    }

    fn life(&mut self, _: Duration, life: Life, _: &mut Vec<Action>) {
        let Life { number, address, .. } = life;
        self.note(format!("life {number} {address:?}"));
    }

    fn switch_reported(
        &mut self,
        _: Duration,
        switch: SwitchId,
        tenant: u32,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        self.note(format!("reported {report:?}"));
        if report == REMOVE {
            let [key, kept] = ["x", "k"].map(Bytes::from);
            out.push(Action::Change { switch, tenant, key, change: ItemChange::Remove });
            out.push(Action::Keep { tenant, key: kept, bytes: None });
        }
        let more = if report == FILL { KEPT_MOST } else { 0 };
        out.extend((0..more).map(|n| Action::Keep {
            tenant,
            key: n.to_string().into(),
            bytes: Some(Bytes::new()),
        }));
    }

    fn room(&mut self, _: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        let Some(Room { switch, .. }) = rooms.first() else { return self.note("no room".into()) };
        self.note("room".into());
        let bytes = Bytes::from_static(b"\x07");
        let (switch, message) = (*switch, Bytes::from_static(b"m"));
        out.push(Action::Remember { tenant, bytes });
        for (key, bytes) in [("k", Some("v")), ("gone", Some("v")), ("gone", None)] {
            out.push(Action::Keep { tenant, key: key.into(), bytes: bytes.map(Bytes::from) });
        }
        out.push(Action::TellSwitch { switch, tenant, message });
        out.push(Action::Change {
            switch,
            tenant,
            key: Bytes::from_static(b"k"),
            change: ItemChange::Remove,
        });
    }

    fn gone(&mut self, _: Duration, _: u32, _: &mut Vec<Action>) {
        self.note("gone".into());
    }

    fn not_kept(&mut self, _: Duration, _: u32, key: &Bytes) {
        self.note(format!("not kept {key:?}"));
    }

    /// It waits for one report.
    fn ending(&mut self, _: Duration, out: &mut Vec<Action>) {
        let notes = self.0.lock().unwrap();
        if !notes.iter().any(|note| note.starts_with("reported")) {
            out.push(Action::NotYet);
        }
    }
}

struct Stage {
    core: Core,
    noting: NotingDiscipline,
    loaded: LoadedState,
}

impl Stage {
    fn new(loaded: LoadedState) -> Stage {
        let mut config = config(1);
        config.cluster.switches =
            vec![wire::SwitchPlace { name: "tor".into(), address: [10, 0, 0, 9].into() }];
        let noting = NotingDiscipline::default();
        let discipline: Box<dyn Discipline> = Box::new(noting.clone());
        let none = (NONE.control)(Limits::default());
        let disciplines = Disciplines::new(vec![(&TEST, discipline), (&NONE, none)], "test");
        let rows = loaded.rows.clone();
        Stage {
            core: Core::new(config, disciplines, loaded, 1).unwrap(),
            noting,
            loaded: LoadedState { rows, ..LoadedState::default() },
        }
    }

    fn create(&mut self) {
        self.create_with(2);
    }

    fn create_with(&mut self, quota: u32) {
        let spec = TenantSpec {
            id: Some(7),
            reuse: true,
            quota,
            options: [("depth".into(), 5)].into(),
            ..TenantSpec::default()
        };
        let create = |view: &View<'_>| changes::create(view, spec, Secret([7; 16]));
        self.core.change(ASKED, create).unwrap();
    }

    fn attach(&mut self) -> StreamId {
        self.attach_as(1, "tor")
    }

    fn attach_as(&mut self, switch_id: u32, name: &str) -> StreamId {
        let hello = Hello { switch_id, name: name.into(), pages: 4, life: 11, ..Hello::default() };
        let stream = self.core.attach(Duration::ZERO, &hello).unwrap();
        let (keys, last) = (vec![], true);
        self.say(stream, from_switch::Body::Held(HeldKeys { keys, last }));
        stream
    }

    fn say(&mut self, stream: StreamId, body: from_switch::Body) {
        let message = FromSwitch { body: Some(body) };
        self.core.message(Duration::ZERO, stream, message).unwrap();
    }

    fn report(&mut self, stream: StreamId, report: &'static [u8]) {
        let report =
            HalfReport { discipline: "test".into(), tenant: 7, report: Bytes::from_static(report) };
        self.say(stream, from_switch::Body::Report(report));
    }

    fn write(&mut self) {
        let (batch, position) = self.core.journal.take();
        self.loaded.apply(&batch);
        self.core.journal.written(position);
    }

    /// The messages and commands that are sent now.
    fn sent(&mut self, stream: StreamId) -> Vec<&'static str> {
        let next = || self.core.next_message(Duration::from_secs(1), stream);
        let sent = std::iter::from_fn(next).filter_map(|message| match message.body? {
            to_switch::Body::Message(_) => Some("message"),
            to_switch::Body::Commands(_) => Some("commands"),
            _ => None,
        });
        sent.collect()
    }

    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut self.noting.0.lock().unwrap())
    }
}

#[test]
fn nothing_that_follows_is_sent_before_it_is_remembered() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    let life = "life 11 Some(10.0.0.9)";
    assert_eq!(stage.noted(), [life, "remembered []", "depth 5", "room"]);
    assert_eq!(stage.sent(stream), [""; 0]);
    stage.write();
    assert_eq!(stage.sent(stream), ["message", "commands"]);
    // A message is sent again to a new stream until it is acknowledged.
    let stream = stage.attach();
    assert_eq!(stage.sent(stream), ["message", "commands"]);
    stage.say(stream, from_switch::Body::Ack(HalfAck { seq: u64::MAX }));
    stage.report(stream, b"r");
    assert_eq!(stage.noted().pop().unwrap(), "reported [114]");
    let stream = stage.attach();
    assert_eq!(stage.sent(stream), ["commands"]);
}

/// The disk may take nothing for a while.
#[test]
fn no_item_goes_before_nothing_is_kept_of_its_key() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    stage.write();
    stage.sent(stream);
    stage.report(stream, REMOVE);
    assert_eq!(stage.sent(stream), [""; 0]);
    stage.write();
    assert_eq!(stage.sent(stream), ["commands"]);
}

#[test]
fn a_controller_that_is_to_stop_waits_for_what_is_to_be_kept() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    assert!(!stage.core.ending(Duration::from_secs(1)));
    stage.report(stream, b"r");
    assert!(stage.core.ending(Duration::from_secs(1)));
}

#[test]
fn what_is_remembered_outlives_the_controller_and_the_tenant() {
    let mut stage = Stage::new(LoadedState::default());
    stage.attach();
    stage.create();
    stage.write();
    let mut stage = Stage::new(std::mem::take(&mut stage.loaded));
    let known = ["remembered [7]", "kept [(b\"k\", b\"v\")]", "depth 5"];
    assert_eq!(stage.noted(), known);
    let remove = |view: &View<'_>| changes::remove(view, 7);
    stage.core.change(ASKED, remove).unwrap();
    // Nobody asks a switch that is gone for good whether it is clear.
    stage.core.forget_switch(ASKED, 1).unwrap();
    stage.attach_as(2, "spine");
    stage.write();
    let mut stage = Stage::new(std::mem::take(&mut stage.loaded));
    stage.create();
    assert_eq!(stage.noted()[..3], known);
}

/// Its switches may all be forgotten before there are others.
#[test]
fn a_tenant_without_memory_is_gone_once_it_is_removed_and_not_before() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    stage.core.detach(Duration::ZERO, stream);
    stage.noted();
    stage.core.forget_switch(ASKED, 1).unwrap();
    assert_eq!(stage.noted(), ["no room"]);
    stage.attach();
    assert!(stage.noted().contains(&"room".into()));
    let remove = |view: &View<'_>| changes::remove(view, 7);
    stage.core.change(ASKED, remove).unwrap();
    let noted = stage.noted();
    assert_eq!(noted[..2], ["no room", "gone"]);
    assert!(noted[2..].iter().all(|note| note == "gone"), "{noted:?}");
}

#[test]
fn a_discipline_learns_that_a_tenant_has_another_also_where_it_had_no_memory() {
    let mut stage = Stage::new(LoadedState::default());
    stage.create_with(0);
    stage.noted();
    let other = TenantChange { discipline: Some("none".into()), ..TenantChange::default() };
    stage.core.change(ASKED, |view| changes::change(view, 7, other)).unwrap();
    assert_eq!(stage.noted(), ["gone"]);
}

#[test]
fn what_a_forgotten_switch_had_is_placed_elsewhere_at_once() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    stage.attach_as(2, "spine");
    stage.core.detach(Duration::ZERO, stream);
    stage.noted();
    stage.core.forget_switch(ASKED, 1).unwrap();
    assert_eq!(stage.noted(), ["room"]);
}

#[test]
fn a_discipline_learns_which_key_there_is_no_room_to_keep() {
    let mut stage = Stage::new(LoadedState::default());
    let stream = stage.attach();
    stage.create();
    stage.noted();
    stage.report(stream, FILL);
    let last = KEPT_MOST - 1;
    assert_eq!(stage.noted()[1..], [format!("not kept b\"{last}\"")]);
}

#[test]
fn credentials_name_the_switches_that_say_their_addresses() {
    let mut stage = Stage::new(LoadedState::default());
    stage.attach();
    stage.create();
    let switches = |stage: &Stage| {
        let text = stage.core.view().credentials(7).unwrap();
        let cluster = wire::Cluster::parse(&text).unwrap();
        let named = cluster.switches.into_iter();
        let named = named.map(|s| (s.name, s.address.to_string()));
        named.collect::<Vec<_>>()
    };
    let named = |name: &str, address: &str| (name.to_string(), address.to_string());
    assert_eq!(switches(&stage), [named("tor", "10.0.0.9")], "the file's");
    // A switch's name is its machine's own.
    let all = [(1, "tor", "10.0.0.8"), (2, "spine", "10.0.0.7"), (3, "spine", "10.0.0.6")];
    for (switch_id, name, address) in all {
        let hello = Hello {
            switch_id,
            name: name.into(),
            pages: 4,
            life: 11,
            address: address.into(),
            ..Hello::default()
        };
        stage.core.attach(Duration::ZERO, &hello).unwrap();
    }
    let all = [named("tor", "10.0.0.8"), named("spine", "10.0.0.7"), named("spine-3", "10.0.0.6")];
    assert_eq!(switches(&stage), all);
}
