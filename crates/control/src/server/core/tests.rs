//! The core with pretended switches: who gets which pages when, and what must be durable before.

mod beginning;
mod pages;
mod remembered;
mod terms;
mod told;
mod truth;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    proto::{
        Counters, Digest, PageTable, PageUse, Setup, StoreHello, TenantKeys, from_switch, to_store,
        to_switch,
    },
    types::{PageRequest, ReturnPages, TenantChange, TenantSpec},
};
use decide::{
    Action, Discipline, Items, Limits, Registration, Room, Runs, Setting, Stores, WindowEnd,
};
use wire::Secret;

use super::*;
use crate::{admin::RefusalKind, server::changes};

const ASKED: RequestOrigin<'static> = RequestOrigin { who: "test", at_ms: 1_000 };
const SECRET: Secret = Secret([7; 16]);
const TICK: Duration = Duration::from_millis(100);

/// Wants what it is told to want.
#[derive(Clone, Default)]
struct WantingDiscipline {
    items: Arc<Mutex<BTreeMap<u32, usize>>>,
    rooms: Arc<Mutex<BTreeMap<u32, u32>>>,
    /// How often which tenant's discipline was told of its stores, and whether it knew them when
    /// its rooms came.
    homes: Arc<Mutex<BTreeMap<u32, usize>>>,
    /// Switches and tenants whose windows ended, in order.
    windows: Arc<Mutex<Vec<(SwitchId, u32)>>>,
    /// Messages about tenant 1 that the store is told at the next opportunity.
    messages: Arc<Mutex<usize>>,
    /// How often it was heard that the store was not told them all.
    not_told: Arc<Mutex<usize>>,
}

impl Discipline for WantingDiscipline {
    fn tick(&mut self, _: Duration, out: &mut Vec<Action>) {
        let store = "10.0.0.1:7117".parse().unwrap();
        let message = Action::Tell { store, tenant: 1, message: "m".into() };
        let count = std::mem::take(&mut *self.messages.lock().unwrap());
        out.extend(std::iter::repeat_n(message, count));
    }

    fn not_told(&mut self, _: Duration, _: SocketAddr, tenant: u32, _: &mut Vec<Action>) {
        assert_eq!(tenant, 1);
        *self.not_told.lock().unwrap() += 1;
    }

    fn stores(&mut self, _: Duration, tenant: u32, stores: &Stores, _: &mut Vec<Action>) {
        assert_eq!(stores.home_of(b"key"), 0, "there is one");
        *self.homes.lock().unwrap().entry(tenant).or_default() += 1;
    }

    fn room(&mut self, _: Duration, tenant: u32, rooms: &[Room], _: &mut Vec<Action>) {
        let known = self.homes.lock().unwrap().contains_key(&tenant);
        assert!(known || rooms.is_empty(), "stores come first");
        let pages = rooms.iter().map(|room| room.pages).sum();
        self.rooms.lock().unwrap().insert(tenant, pages);
    }

    fn window_end(&mut self, _: Duration, end: WindowEnd<'_>, _: &mut Vec<Action>) {
        self.windows.lock().unwrap().push((end.switch, end.tenant));
    }

    fn wanted(&self, _: SwitchId, tenant: u32) -> usize {
        self.items.lock().unwrap().get(&tenant).copied().unwrap_or(0)
    }
}

const TEST: Registration = Registration { name: "test", ..decide::NONE };
const TRUTH: Registration = Registration {
    name: "truth",
    items: Items::Truth,
    options: &[
        Setting::new("depth", "of its items", 2, 0, 4).fixed(),
        Setting::new("width", "of what it does", 1, 1, 9),
    ],
    ..decide::NONE
};
const EVERYWHERE: Registration =
    Registration { name: "everywhere", runs: Runs::Everywhere, ..decide::NONE };

/// A controller with one switch of so many pages.
struct Stage {
    core: Core,
    stream: StreamId,
    now: Duration,
    wanting: WantingDiscipline,
    /// What the switch was told last.
    table: PageTable,
    setup: Setup,
    /// The state store, as rows.
    loaded: LoadedState,
}

/// One store, no open tenant.
fn config(term: u64) -> CoreConfig {
    let mut cluster = wire::Cluster::single("10.0.0.1:7117".parse().unwrap(), 4);
    cluster.open_tenant = false;
    CoreConfig {
        cluster,
        limits: Limits::default(),
        settings: Default::default(),
        updates_per_s: 1000,
        sample_shift: 0,
        term,
    }
}

/// What a switch says first.
fn hello(id: u32, pages: u32) -> Hello {
    Hello { switch_id: id, name: format!("tor {id}"), pages, ..Hello::default() }
}

impl Stage {
    fn new(pages: u32) -> Stage {
        Stage::from(pages, LoadedState::default(), WantingDiscipline::default(), 1)
    }

    fn from(pages: u32, loaded: LoadedState, wanting: WantingDiscipline, term: u64) -> Stage {
        Stage::with(config(term), pages, loaded, wanting)
    }

    fn with(
        config: CoreConfig,
        pages: u32,
        loaded: LoadedState,
        wanting: WantingDiscipline,
    ) -> Stage {
        let all = [&TEST, &TRUTH, &EVERYWHERE].map(|registration| {
            let discipline: Box<dyn Discipline> = Box::new(wanting.clone());
            (registration, discipline)
        });
        let disciplines = Disciplines::new(all.into(), "test");
        let rows = loaded.rows.clone();
        let core = Core::new(config, disciplines, loaded, 1).unwrap();
        let stream = StreamId { switch: 1, generation: 0 };
        let mut stage = Stage {
            core,
            stream,
            now: Duration::ZERO,
            wanting,
            table: PageTable::default(),
            setup: Setup::default(),
            loaded: LoadedState { rows, ..LoadedState::default() },
        };
        stage.stream = stage.attach(1, pages);
        stage
    }

    /// A switch attaches that holds nothing.
    fn attach(&mut self, id: u32, pages: u32) -> StreamId {
        self.greet(hello(id, pages))
    }

    /// Attaches a switch of ten pages whose kernel refuses some disciplines.
    fn attach_without(&mut self, id: u32, refused: &[&str]) -> StreamId {
        let refused = refused.iter().map(|name| api::proto::Refused {
            name: name.to_string(),
            reason: "R4 unbounded memory access".into(),
        });
        self.greet(Hello { refused: refused.collect(), ..hello(id, 10) })
    }

    fn greet(&mut self, hello: Hello) -> StreamId {
        let stream = self.core.attach(self.now, &hello).unwrap();
        self.holds(stream, vec![]);
        stream
    }

    fn holds(&mut self, stream: StreamId, keys: Vec<TenantKeys>) {
        let held = api::proto::Held { keys, last: true };
        self.say(stream, from_switch::Body::Held(held));
    }

    fn say(&mut self, stream: StreamId, body: from_switch::Body) {
        let message = FromSwitch { body: Some(body) };
        self.core.message(self.now, stream, message).unwrap();
    }

    /// A window of switch 1 ends in which these pages hold an item each, all of a tenant.
    fn window_ends(&mut self, tenant: u32, pages: &[PageId]) {
        let count = pages.len() as u64;
        let sum = count; // Any but that of nothing: the switch is asked for a list.
        let mut counters = Counters { held: Some(Digest { count, sum }), ..Counters::default() };
        self.say(self.stream, from_switch::Body::Counters(counters.clone()));
        self.receive();
        let keys = (0..count).map(|n| n.to_be_bytes().to_vec().into());
        let keys = keys.collect();
        self.holds(self.stream, vec![TenantKeys { tenant, keys }]);
        let page = |id: &PageId| PageUse { page: id.page, items: 1, cells: 3, requests: 0 };
        counters.held = None;
        counters.pages = pages.iter().map(page).collect();
        self.say(self.stream, from_switch::Body::Counters(counters));
    }

    /// The setups and tables that wait for a switch; all its tables come into force.
    fn sent_to(&mut self, stream: StreamId) -> (Vec<Setup>, Vec<PageTable>) {
        let (mut setups, mut tables) = (vec![], vec![]);
        while let Some(message) = self.core.next_message(self.now, stream) {
            match message.body.unwrap() {
                to_switch::Body::Setup(setup) => setups.push(setup),
                to_switch::Body::Pages(table) => tables.push(table),
                _ => {}
            }
        }
        for PageTable { term, version, .. } in &tables {
            let (term, version) = (*term, *version);
            let applied = api::proto::PagesApplied { term, version };
            self.say(stream, from_switch::Body::Pages(applied));
        }
        (setups, tables)
    }

    fn wants(&self, tenant: u32, items: usize) {
        self.wanting.items.lock().unwrap().insert(tenant, items);
    }

    fn create(&mut self, id: u32, quota: u32) -> Result<u32, Refusal> {
        let spec =
            TenantSpec { id: Some(id), name: format!("t{id}"), quota, ..TenantSpec::default() };
        self.create_as(spec)
    }

    fn create_as(&mut self, spec: TenantSpec) -> Result<u32, Refusal> {
        let created = self.core.change(ASKED, |view| changes::create(view, spec, SECRET));
        created.map(|made| made.id)
    }

    fn change(&mut self, id: u32, change: TenantChange) -> Result<ChangeOutcome, Refusal> {
        self.core.change(ASKED, |view| changes::change(view, id, change))
    }

    fn ask(&mut self, id: u32, request: PageRequest) -> Result<Vec<PageId>, Refusal> {
        let clock_s = ASKED.at_ms / 1000;
        let plan = |view: &View<'_>| changes::ask(view, id, request, false, clock_s);
        self.core.change(ASKED, plan).map(|made| made.given)
    }

    fn give_back(&mut self, id: u32, pages: &ReturnPages) -> Result<Vec<PageId>, Refusal> {
        let plan = |view: &View<'_>| changes::give_back(view, id, pages, false);
        self.core.change(ASKED, plan).map(|made| made.left)
    }

    /// Everything noted becomes durable.
    fn write(&mut self) {
        let (batch, position) = self.core.journal.take();
        self.loaded.apply(&batch);
        self.core.journal.written(position);
    }

    /// Takes what there is for the switch; tells whether there was a page table.
    fn receive(&mut self) -> bool {
        let mut table = false;
        while let Some(message) = self.core.next_message(self.now, self.stream) {
            match message.body.unwrap() {
                to_switch::Body::Pages(pages) => {
                    self.table = pages;
                    table = true;
                }
                to_switch::Body::Setup(setup) => self.setup = setup,
                _ => {}
            }
        }
        table
    }

    /// What a store that follows is told when everything is written.
    fn cluster_of_stores(&mut self) -> wire::Cluster {
        self.write();
        let store = self.core.store_came(&StoreHello::default());
        let message = self.core.next_for_store(store).unwrap();
        match message.body.unwrap() {
            to_store::Body::Cluster(cluster) => api::convert::cluster(&cluster).unwrap(),
            other => panic!("expected the cluster: {other:?}"),
        }
    }

    /// What a store that follows is told of placements; none: nothing new.
    fn placed(&mut self, store: StoreStreamId) -> Option<Vec<(u32, u16)>> {
        let messages = std::iter::from_fn(|| self.core.next_for_store(store)?.body);
        let placements = messages.filter_map(|body| match body {
            to_store::Body::Placements(placements) => Some(placements),
            _ => None,
        });
        placements.last().map(|all| api::convert::placements(&all))
    }

    fn confirm(&mut self) {
        let PageTable { term, version, .. } = self.table;
        let applied = api::proto::PagesApplied { term, version };
        self.say(self.stream, from_switch::Body::Pages(applied));
    }

    /// Time passes until nothing changes any longer, with a switch and a store that do their part.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.now += TICK;
            self.core.tick(self.now, 1_000);
            self.write();
            if self.receive() {
                self.confirm();
            }
        }
    }

    fn pages(&self) -> BTreeMap<u32, usize> {
        let owners = self.table.owners.iter();
        owners.map(|o| (o.tenant, o.pages.len())).collect()
    }
}

/// A tenant of this discipline with so many guaranteed pages, whose traffic is not measured.
fn of(id: u32, discipline: &str, quota: u32) -> TenantSpec {
    TenantSpec {
        id: Some(id),
        discipline: discipline.into(),
        quota,
        clients: vec!["10.9.0.1/32".parse().unwrap()],
        ..TenantSpec::default()
    }
}

fn quota(quota: u32) -> TenantChange {
    TenantChange { quota: Some(quota), ..TenantChange::default() }
}
