//! A switch's agent as a simulator drives it: programs in this process, no thread, no socket, a
//! time that is told. Fed the same twice, with the same seed, it says and sends the same, byte for
//! byte, also to stores.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{Courier, Greeting, Introduction, Reservation, TICK, Tables, hello, objects};
use api::{
    convert,
    proto::{
        Commands, FromSwitch, ListHeld, PageTable, Setup, TenantPages, TenantSetup, ToSwitch,
        from_switch::Body, to_switch,
    },
};
use dataplane::{
    Programs, Sizes,
    native::{Clock, Switch},
};
use decide::{Change, ItemKey, NoDiscipline, Program, Record, Registration, Role};
use prost::Message;
use tokio::sync::mpsc::{Receiver, channel};
use wire::Cluster;

const TENANTS: [u32; 2] = [7, 8];

const fn program(name: &'static str, role: Role) -> Program {
    Program { name, role }
}

const PROGRAMS: &[Program] = &[
    program("trial_first", Role::Step),
    program("trial_round", Role::Step),
    program("trial_counter", Role::Step),
    program("trial_egress", Role::Egress),
];

const INTRODUCTION: Introduction<'_> = Introduction {
    id: 1,
    name: "tor",
    pages: 8,
    disciplines: &DISCIPLINES,
    refused: &[],
    life: 1,
    address: None,
    term: 0,
};

static DISCIPLINES: [Registration; 1] = [Registration {
    name: "trial",
    maps_of: "trial",
    about: "for tests",
    number: 3,
    settings: &[],
    control: |_| Box::new(NoDiscipline),
    object: harness::TRIAL,
    native: Some(harness::TRIAL_NATIVE),
    programs: PROGRAMS,
    ..decide::NONE
}];

/// What was sent to stores.
#[derive(Clone, Default)]
struct RecordingCourier(Rc<RefCell<Vec<u8>>>);

impl Courier for RecordingCourier {
    fn send(&mut self, store: SocketAddr, datagram: &[u8]) {
        let mut sent = self.0.borrow_mut();
        sent.extend(store.to_string().into_bytes());
        sent.extend(datagram);
    }

    fn receive(&mut self, _: &mut dyn FnMut(SocketAddr, &[u8])) {}
}

/// An agent on its switch, and all that it said.
struct World {
    switch: Arc<Switch>,
    kept: Arc<AtomicU64>,
    clock: Arc<AtomicU64>,
    base: Instant,
    sent: RecordingCourier,
    tables: Tables,
    out: Receiver<FromSwitch>,
    greeting: Greeting,
    said: Vec<u8>,
}

fn open(
    switch: &Arc<Switch>,
    kept: &Arc<AtomicU64>,
    sent: &RecordingCourier,
    now: Instant,
) -> (Tables, Receiver<FromSwitch>) {
    let (to_controller, out) = channel(256);
    let wall = Duration::from_secs(1_700_000_000);
    let tables = Tables::open(
        Programs::Native(switch.clone()),
        1,
        &DISCIPLINES,
        Reservation::in_memory(kept.clone(), Arc::default(), wall),
        Box::new(sent.clone()),
        to_controller,
        now,
    );
    (tables.unwrap(), out)
}

impl World {
    fn new() -> World {
        let sizes = Sizes { pages: 8 };
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let switch =
            Switch::new("tor", &objects(&DISCIPLINES, sizes), sizes, 1, Clock::Set(clock.clone()));
        let (switch, kept) = (switch.unwrap(), Arc::default());
        let (sent, base) = (RecordingCourier::default(), Instant::now());
        let (tables, out) = open(&switch, &kept, &sent, base);
        World {
            switch,
            kept,
            clock,
            base,
            sent,
            tables,
            out,
            greeting: Greeting::default(),
            said: vec![],
        }
    }

    fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.clock.load(Relaxed))
    }

    /// Another agent takes over.
    fn restart(&mut self) {
        (self.tables, self.out) = open(&self.switch, &self.kept, &self.sent, self.now());
    }

    fn attach(&mut self) {
        self.greeting = Greeting::default();
        self.said.extend(hello(&INTRODUCTION).encode_to_vec());
        while self.out.try_recv().is_ok() {}
        self.tables.attached();
        self.listen();
    }

    fn listen(&mut self) {
        while let Ok(message) = self.out.try_recv() {
            if self.greeting.lets_pass(&message) {
                assert!(!matches!(message.body, None | Some(Body::Hello(_))));
                self.said.extend(message.encode_to_vec());
            }
        }
    }

    fn hear(&mut self, body: to_switch::Body) {
        let now = self.now();
        self.tables.take(ToSwitch { body: Some(body) }, now).unwrap();
        self.listen();
    }

    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_nanos() / TICK.as_nanos() {
            self.clock.fetch_add(TICK.as_nanos() as u64, Relaxed);
            let now = self.now();
            self.tables.tick(now).unwrap();
            self.listen();
        }
    }

    fn set_up(&mut self) {
        let mut cluster = Cluster::single("10.0.2.1:7117".parse().unwrap(), 4);
        let tenant = |id: &u32| wire::Tenant::new(*id, format!("{id:032x}"));
        cluster.tenants = TENANTS.iter().map(tenant).collect();
        let tenant =
            |tenant: u32| TenantSetup { tenant, discipline: "trial".into(), measured: true };
        self.hear(to_switch::Body::Setup(Setup {
            cluster: Some((&cluster).into()),
            tenants: TENANTS.map(tenant).into(),
            window_ms: 500,
            sample_shift: 0,
            term: 1,
            neighbours: vec![],
        }));
    }

    fn give_pages(&mut self, version: u64, each: u32) {
        let mut first = 0;
        let owner = |tenant| {
            let pages = (first..first + each).collect();
            first += each;
            TenantPages { tenant, pages }
        };
        self.hear(to_switch::Body::Pages(PageTable {
            term: 1,
            version,
            owners: TENANTS.map(owner).into(),
        }));
    }
}

/// Everything that was said and sent in a run, and how much of that was sent.
fn run(seed: u64) -> (Vec<u8>, usize) {
    wire::maps::seed_for_simulation(seed);
    let mut world = World::new();
    world.attach();
    world.set_up();
    world.give_pages(1, 4);
    let command = |n: u32| {
        let key = ItemKey {
            tenant: TENANTS[n as usize % 2],
            key: n.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec().into(),
        };
        convert::command(u64::from(n) + 1, &key, &Change::Put(Record::Fetched))
    };
    let commands = (0..600).map(command).collect();
    world.hear(to_switch::Body::Commands(Commands { commands }));
    world.pass(Duration::from_secs(1));
    // Fewer pages: some items go, and that is told.
    world.give_pages(2, 2);
    world.hear(to_switch::Body::ListHeld(ListHeld {}));
    world.pass(Duration::from_secs(1));
    world.restart();
    world.attach();
    world.set_up();
    world.give_pages(3, 4);
    world.pass(Duration::from_secs(1));
    let sent = world.sent.0.take();
    (world.said.into_iter().chain(sent.clone()).collect(), sent.len())
}

#[test]
fn the_same_seed_says_and_sends_the_same_byte_for_byte() {
    let run = |seed| std::thread::spawn(move || run(seed)).join().unwrap();
    let ((first, sent), (second, _)) = (run(5), run(5));
    assert!(sent > 50_000, "{sent} bytes to stores");
    assert!(first.len() > sent + 5_000, "{} bytes said", first.len() - sent);
    assert!(first == second, "two runs of one seed differ");
    assert!(first != run(6).0);
}
