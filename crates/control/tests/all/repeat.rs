//! The controller's core as a simulator drives it: in one thread, with a state in memory and a time
//! that is told. Fed the same twice, with the same seed, it says and writes the same, byte
//! for byte.

use std::{collections::BTreeMap, time::Duration};

use api::{
    proto::{
        Ack, Acks, Counters, Digest, Dropped, FromSwitch, Held, Hello, HotReports, Interface,
        Interfaces, KeyCount, Outcome, PagesApplied, StoreHello, TenantCounts, TenantKeys,
        from_switch::Body, to_switch,
    },
    types::{TenantChange, TenantSpec},
};
use bytes::Bytes;
use control::{
    core::{Core, Disciplines, Plan, RequestOrigin, StreamId, TICK_EVERY},
    state::InMemory,
};
use decide::{
    Action, Change, Discipline, HotKeys, Inventory, Limits, Record, Registration, SwitchId,
    WindowEnd,
};
use prost::Message;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use wire::{Cluster, Secret};

const TENANT: u32 = 7;
const START_MS: u64 = 1_700_000_000_000;

/// Puts what is reported, and what a switch lost; removes what had few requests.
struct Obedient;

impl Discipline for Obedient {
    fn hot(&mut self, _: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        let at = (keys.switch, keys.tenant);
        let hot = keys.keys.iter().map(|(key, _)| key);
        out.extend(hot.map(|key| change(at, key, FETCHED)));
    }

    fn holds(&mut self, _: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let at = (inventory.switch, inventory.tenant);
        let lost = inventory.lost.iter();
        out.extend(lost.map(|key| change(at, key, FETCHED)));
    }

    fn window_end(&mut self, _: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        let at = (end.switch, end.tenant);
        let cold = end.items.iter().filter(|(_, requests)| *requests < 3);
        out.extend(cold.map(|(key, _)| change(at, key, Change::Remove)));
    }

    fn wanted(&self, _: u16, _: u32) -> usize {
        500
    }
}

const FETCHED: Change = Change::Put(Record::Fetched);

fn change((switch, tenant): (SwitchId, u32), key: &Bytes, change: Change) -> Action {
    Action::Change { switch, tenant, key: key.clone(), change }
}

static DISCIPLINES: [Registration; 1] = [Registration {
    name: "obedient",
    settings: &[],
    control: |_| Box::new(Obedient),
    ..decide::NONE
}];

/// A switch that does what it is told.
#[derive(Default)]
struct Switch {
    items: BTreeMap<Bytes, u64>,
    window: u64,
}

impl Switch {
    fn hello(id: u16) -> Hello {
        Hello {
            switch_id: id.into(),
            name: format!("tor {id}"),
            pages: 16,
            disciplines: vec!["obedient".into()],
            ..Hello::default()
        }
    }

    fn held(&self) -> Body {
        let keys = self.items.keys().cloned().collect();
        let keys = vec![TenantKeys { tenant: TENANT, keys }];
        Body::Held(Held { keys, last: true })
    }

    fn answers(&mut self, body: to_switch::Body) -> Option<Body> {
        match body {
            to_switch::Body::Commands(commands) => {
                let mut acks = vec![];
                for command in commands.commands {
                    let seq = command.seq;
                    if let Some((key, change)) = api::convert::change(command) {
                        match change {
                            Change::Put(_) => {
                                self.items.insert(key.key, 0);
                            }
                            Change::Remove | Change::RemoveIf(_) => {
                                self.items.remove(&key.key);
                            }
                        }
                    }
                    let outcome = Outcome::from(decide::Outcome::Done).into();
                    acks.push(Ack { seq, outcome });
                }
                Some(Body::Acks(Acks { acks }))
            }
            to_switch::Body::Pages(table) => {
                Some(Body::Pages(PagesApplied { term: table.term, version: table.version }))
            }
            to_switch::Body::ListHeld(_) => Some(self.held()),
            _ => None,
        }
    }

    /// What a window brings: hot keys, requests of items, at times something that nobody expects.
    fn window(&mut self, random: &mut SmallRng) -> Vec<Body> {
        self.window += 1;
        let counts = |keys: Vec<KeyCount>| vec![TenantCounts { tenant: TENANT, keys }];
        let hot = (0..200).map(|_| KeyCount {
            key: random.random_range(0..2_000_u32).to_be_bytes().to_vec().into(),
            count: 9,
        });
        let hot = HotReports { window: self.window, keys: counts(hot.collect()) };
        let read = self
            .items
            .keys()
            .map(|key| KeyCount { key: key.clone(), count: random.random_range(0..6) });
        let counters = Counters {
            window: self.window,
            window_ms: 1_000,
            items: counts(read.collect()),
            held: random.random_bool(0.3).then(Digest::default),
            ..Counters::default()
        };
        let dropped: Vec<Bytes> = self.items.keys().take(3).cloned().collect();
        self.items.retain(|key, _| !dropped.contains(key));
        let dropped =
            Dropped { keys: vec![TenantKeys { tenant: TENANT, keys: dropped }], unfit: vec![] };
        vec![Body::Hot(hot), Body::Counters(counters), Body::Dropped(dropped)]
    }
}

/// A controller with its switches, and everything that it said and wrote.
struct World {
    state: InMemory,
    term: u64,
    core: Core,
    streams: Vec<StreamId>,
    switches: Vec<Switch>,
    now: Duration,
    record: Vec<u8>,
}

fn lead(state: &mut InMemory, now: Duration) -> (Core, u64) {
    let term = state.next_term();
    let plan = Plan {
        cluster: Cluster::single("10.0.2.1:7117".parse().unwrap(), 4),
        limits: Limits::default(),
        settings: Default::default(),
        updates_per_s: 100_000,
        sample_shift: 0,
        term,
    };
    let disciplines = Disciplines::start(&DISCIPLINES, "obedient", plan.limits, &plan.settings);
    let first = (START_MS + now.as_millis() as u64) * 1_000;
    let core = Core::new(plan, disciplines, state.load(), first).unwrap();
    (core, term)
}

impl World {
    fn new(switches: u16) -> World {
        let mut state = InMemory::default();
        let (core, term) = lead(&mut state, Duration::ZERO);
        let mut world = World {
            state,
            term,
            core,
            streams: vec![],
            switches: (0..switches).map(|_| Switch::default()).collect(),
            now: Duration::ZERO,
            record: vec![],
        };
        world.attach();
        world
    }

    /// Another controller leads, with what the one before has written.
    fn restart(&mut self) {
        (self.core, self.term) = lead(&mut self.state, self.now);
        self.attach();
    }

    fn attach(&mut self) {
        let ids = (1..).take(self.switches.len());
        let attach = |id| self.core.attach(self.now, &Switch::hello(id)).unwrap();
        self.streams = ids.map(attach).collect();
        for at in 0..self.switches.len() {
            let held = self.switches[at].held();
            self.say(at, held);
            let port = |name: String, address: String| Interface {
                name,
                up: true,
                addresses: vec![address],
                neighbours: vec![],
                silent: vec![],
            };
            let interfaces = vec![
                port("up".into(), format!("10.9.0.{}/24", at + 1)),
                port("down".into(), format!("10.0.{at}.254/24")),
            ];
            self.say(at, Body::Interfaces(Interfaces { interfaces }));
        }
    }

    fn say(&mut self, at: usize, body: Body) {
        let message = FromSwitch { body: Some(body) };
        let stream = self.streams[at];
        self.core.message(self.now, stream, message).unwrap();
    }

    /// Carries messages and writes until there is nothing more.
    fn settle(&mut self, with_items: bool) {
        let (batch, position) = self.core.take_batch(with_items);
        self.record.extend(format!("{batch:?}").into_bytes());
        self.state.write(self.term, &batch).unwrap();
        self.core.written(position);
        for at in 0..self.streams.len() {
            while let Some(message) = self.core.next_message(self.now, self.streams[at]) {
                self.record.extend(message.encode_to_vec());
                let answer = self.switches[at].answers(message.body.unwrap());
                if let Some(answer) = answer {
                    self.say(at, answer);
                }
            }
        }
    }

    fn pass(&mut self, windows: u64, random: &mut SmallRng) {
        for _ in 0..windows {
            for at in 0..self.switches.len() {
                for body in self.switches[at].window(random) {
                    self.say(at, body);
                }
            }
            for tick in 0..10 {
                self.now += TICK_EVERY;
                let clock_ms = START_MS + self.now.as_millis() as u64;
                self.core.tick(self.now, clock_ms);
                self.settle(tick % 5 == 0);
            }
        }
    }
}

/// Everything that was said and written in a run.
fn run(seed: u64) -> Vec<u8> {
    wire::maps::seed_for_simulation(seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut world = World::new(3);
    let asked = RequestOrigin { who: "test", at_ms: START_MS };
    let spec =
        TenantSpec { id: Some(TENANT), name: "seven".into(), quota: 12, ..TenantSpec::default() };
    let fresh = |random: &mut SmallRng| Secret(random.random());
    let made = world.core.create_tenant(asked, spec, fresh(&mut random));
    assert_eq!(made.unwrap().id, TENANT);
    world.core.manage_routes(asked, true);
    world.pass(5, &mut random);
    let secret = fresh(&mut random);
    world.core.rotate_secret(asked, TENANT, secret).unwrap();
    world.restart();
    world.pass(5, &mut random);
    let less = TenantChange { quota: Some(3), ..TenantChange::default() };
    world.core.change_tenant(asked, TENANT, less).unwrap();
    world.pass(3, &mut random);
    let store = StoreHello { name: "store".into(), address: "10.0.2.1:7117".into() };
    let store = world.core.store_came(&store);
    let told = std::iter::from_fn(|| world.core.next_for_store(store));
    told.for_each(|message| world.record.extend(message.encode_to_vec()));
    let view = world.core.view();
    assert!(view.switches().iter().all(|switch| switch.items > 100));
    let views =
        (view.status(world.now), view.tenants(None, 9, true), view.topology(), view.routes());
    world.record.extend(format!("{views:?}").into_bytes());
    world.record
}

#[test]
fn the_same_seed_says_and_writes_the_same_byte_for_byte() {
    // Threads that begin anew, so that nothing of one run is there in the other.
    let run = |seed| std::thread::spawn(move || run(seed)).join().unwrap();
    let (first, second) = (run(5), run(5));
    assert!(first.len() > 100_000, "{} bytes", first.len());
    assert!(first == second, "two runs of one seed differ");
    assert!(first != run(6));
}
