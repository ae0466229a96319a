//! The tables with a switch in the kernel, which no interface leads to, or in this process. What
//! the controller would say is handed in, what it would hear comes out; what the programs would
//! find is read from the tables.

mod configurations;
mod halves;
mod items;
mod killed;
mod leaving;
mod probation;
mod thread;

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use api::proto::{
    Commands, FromSwitch, PageTable, PagesApplied, Setup, TenantPages, TenantSetup,
    from_switch::Body, to_switch,
};
use dataplane::{Backing, Dataplane, HeldItem, Home, Programs, Sizes, Table, native};
use decide::{
    Change, ItemKey, Items, Key, NoDiscipline, Outcome, Program, Record, Registration, Role, Runs,
    Totals,
};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use wire::Cluster;

use super::*;
use crate::registry;

/// A tenant whose items are the data themselves.
const CHAIN: u32 = 7;
/// Tenants whose items are copies.
const COPIES: u32 = 8;
const OTHERS: u32 = 9;

const STEPS: [&str; 3] = ["trial_first", "trial_round", "trial_counter"];
const PROGRAMS: &[Program] = &[
    step(STEPS[0]),
    step(STEPS[1]),
    step(STEPS[2]),
    Program { name: "trial_egress", role: Role::Egress },
];
const TRIAL: Registration = Registration {
    name: "trial",
    about: "for tests",
    number: 3,
    items: Items::Truth,
    probation: None,
    runs: Runs::WherePages,
    settings: &[],
    options: &[],
    control: |_| Box::new(NoDiscipline),
    object: harness::TRIAL,
    native: Some(harness::TRIAL_NATIVE),
    programs: PROGRAMS,
    maps_of: "trial",
    maps: &[],
    counters: "",
    totals: Totals::NONE,
    store: None,
    agent: Some(|| Box::new(halves::Teller)),
};
static DISCIPLINES: [Registration; 3] = [
    TRIAL,
    Registration { name: "copies", number: 4, items: Items::Copies, ..TRIAL },
    Registration { name: "trying", number: 5, items: Items::Copies, probation: Some(3), ..TRIAL },
];

const fn step(name: &'static str) -> Program {
    Program { name, role: Role::Step }
}

type Datagram = (SocketAddr, Vec<u8>);

/// What was sent to stores.
#[derive(Clone, Default)]
struct RecordingCourier(Rc<RefCell<Vec<Datagram>>>);

impl Courier for RecordingCourier {
    fn send(&mut self, store: SocketAddr, datagram: &[u8]) {
        self.0.borrow_mut().push((store, datagram.to_vec()));
    }

    fn receive(&mut self, _: &mut dyn FnMut(SocketAddr, &[u8])) {}
}

/// Where programs run.
enum Place {
    Kernel(Home),
    Process(Arc<native::Switch>),
}

impl Place {
    fn backing(&self) -> Backing {
        match self {
            Place::Kernel(home) => home.into(),
            Place::Process(switch) => switch.into(),
        }
    }

    /// As an agent that begins finds them.
    fn programs(&self) -> Programs {
        match self {
            Place::Kernel(home) => {
                let objects = registry::objects(&DISCIPLINES, SIZES);
                Dataplane::load_used(home.clone(), &objects, SIZES).unwrap().into()
            }
            Place::Process(switch) => switch.clone().into(),
        }
    }
}

/// A switch with an agent's tables, stopped between two messages.
struct Switch {
    place: Place,
    sent: RecordingCourier,
    /// By no clock.
    now: Instant,
    tables: Option<Tables>,
    out: Receiver<FromSwitch>,
    state: TempDir,
}

const SIZES: Sizes = Sizes { pages: 4 };
/// Messages that wait until they are heard.
const ROOM: usize = 256;

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn key(tenant: u32, name: impl Into<Key>) -> ItemKey {
    ItemKey { tenant, key: name.into() }
}

fn given(record: &[u8]) -> Change {
    Change::Put(Record::Given(record.to_vec().into()))
}

const FETCHED: Change = Change::Put(Record::Fetched);

fn setup(store: &str, tenants: &[(u32, &str)], secret: impl Fn(&u32) -> String) -> to_switch::Body {
    setup_of(Cluster::single(store.parse().unwrap(), 4), tenants, secret)
}

fn setup_of(
    mut cluster: Cluster,
    tenants: &[(u32, &str)],
    secret: impl Fn(&u32) -> String,
) -> to_switch::Body {
    let tenant = |(id, _): &(u32, &str)| wire::Tenant::new(*id, secret(id));
    cluster.tenants = tenants.iter().map(tenant).collect();
    let setup = |(tenant, discipline): &(u32, &str)| TenantSetup {
        tenant: *tenant,
        discipline: (*discipline).into(),
        measured: false,
    };
    to_switch::Body::Setup(Setup {
        cluster: Some(Box::new((&cluster).into())),
        tenants: tenants.iter().map(setup).collect(),
        window_ms: 1_000,
        sample_shift: 0,
        term: 1,
        neighbours: vec![],
    })
}

fn page_table(version: u64, owners: &[(u32, &[u32])]) -> to_switch::Body {
    let owner =
        |(tenant, pages): &(u32, &[u32])| TenantPages { tenant: *tenant, pages: pages.to_vec() };
    to_switch::Body::Pages(PageTable {
        term: 1,
        version,
        owners: owners.iter().map(owner).collect(),
    })
}

impl Switch {
    /// Set up for all three tenants: the first two have a page, the third has the other two.
    fn start() -> Switch {
        let number = NUMBER.fetch_add(1, Relaxed);
        let home = Home::new(&format!("agent-{}-{number}", std::process::id())).unwrap();
        let mut switch = Switch::at(Place::Kernel(home));
        switch.set_up(&[(CHAIN, "trial"), (COPIES, "copies"), (OTHERS, "copies")]);
        switch.give_pages(1, &[(CHAIN, &[0]), (COPIES, &[1]), (OTHERS, &[2, 3])]);
        switch.heard();
        switch
    }

    /// Of nobody yet.
    fn at(place: Place) -> Switch {
        let mut switch = Switch {
            place,
            sent: RecordingCourier::default(),
            now: Instant::now(),
            tables: None,
            out: channel(1).1,
            state: tempfile::tempdir().unwrap(),
        };
        switch.restart(1);
        switch
    }

    /// Another agent takes over.
    fn restart(&mut self, id: u16) {
        self.tables = None;
        let programs = self.place.programs();
        let (to_session, out) = channel(ROOM);
        let epochs = Reservation::open(self.state.path(), Duration::ZERO).unwrap();
        let (courier, now) = (Box::new(self.sent.clone()), self.now);
        let tables = Tables::open(programs, id, &DISCIPLINES, epochs, courier, to_session, now);
        (self.tables, self.out) = (Some(tables.unwrap()), out);
    }

    fn tables(&mut self) -> &mut Tables {
        self.tables.as_mut().unwrap()
    }

    fn hear(&mut self, body: to_switch::Body) {
        let message = ToSwitch { body: Some(body) };
        let now = self.now;
        self.tables().take(message, now).unwrap();
    }

    /// What was said since the last time.
    fn heard(&mut self) -> Vec<Body> {
        let next = || self.out.try_recv().ok()?.body;
        std::iter::from_fn(next).collect()
    }

    fn set_up(&mut self, tenants: &[(u32, &str)]) {
        let secret = |id: &u32| format!("{id:032x}");
        self.set_up_with(tenants, secret);
    }

    fn set_up_with(&mut self, tenants: &[(u32, &str)], secret: impl Fn(&u32) -> String) {
        self.hear(setup("10.0.2.1:7117", tenants, secret));
    }

    fn give_pages(&mut self, version: u64, owners: &[(u32, &[u32])]) {
        self.hear(page_table(version, owners));
    }

    /// The page tables that it says are in force, in everything that was said.
    fn pages_applied(&mut self) -> Vec<u64> {
        let version = |body| match body {
            Body::Pages(PagesApplied { version, .. }) => Some(version),
            _ => None,
        };
        self.heard().into_iter().filter_map(version).collect()
    }

    /// Has a change made, and returns the answer with the keys that were told as dropped.
    fn change_telling(&mut self, key: &ItemKey, change: &Change) -> (Outcome, Vec<Key>) {
        let commands = vec![convert::command(1, key, change)];
        self.heard();
        self.hear(to_switch::Body::Commands(Commands { commands }));
        let (mut dropped, mut outcome) = (vec![], None);
        for body in self.heard() {
            match body {
                Body::Dropped(d) => dropped.extend(d.keys.into_iter().flat_map(|t| t.keys)),
                Body::Acks(acks) => outcome = Some(acks.acks[0].outcome().into()),
                _ => {}
            }
        }
        (outcome.expect("an answer"), dropped)
    }

    fn change(&mut self, key: &ItemKey, change: &Change) -> Outcome {
        let (outcome, dropped) = self.change_telling(key, change);
        assert_eq!(dropped, [""; 0]);
        outcome
    }

    fn put(&mut self, tenant: u32, name: &'static str, record: &[u8]) {
        let done = self.change(&key(tenant, name), &given(record));
        assert_eq!(done, Outcome::Done);
    }

    /// What programs find, but for what nobody may serve yet.
    fn held(&self) -> Vec<HeldItem> {
        Table::open(self.place.backing()).unwrap().scan()
    }

    /// The record that programs find behind a key.
    fn record(&self, tenant: u32, name: &str) -> Option<Vec<u8>> {
        let table = Table::open(self.place.backing()).unwrap();
        let mut held = table.scan().into_iter();
        let its = held.find(|held| held.tenant == tenant && held.key == name.as_bytes())?;
        let is_given = its.lease == dataplane::NO_LEASE && its.valid;
        is_given.then(|| table.given(its.place).unwrap())
    }

    /// A program has locked an item, and keeps it so.
    fn lock_item(&mut self, key: &ItemKey) {
        let held = self.held();
        let its = held.iter().find(|held| held.tenant == key.tenant && held.key[..] == key.key[..]);
        let place = its.unwrap().place;
        let at = self.tables().configurations.backing();
        let mut page = at.element("pages", place.page).unwrap();
        // The item begins with the count that it is locked by.
        page[usize::from(place.cell) * 64] |= 1;
        at.set_element("pages", place.page, &page).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Place::Kernel(home) = &self.place {
            let _ = dataplane::detach(home);
        }
    }
}
