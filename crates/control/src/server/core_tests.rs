//! The core with pretended switches: who gets which pages when, and what must be durable before.

use std::{
    collections::BTreeMap,
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
}

impl Discipline for WantingDiscipline {
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
pub(super) fn plan(term: u64) -> Plan {
    let mut cluster = wire::Cluster::single("10.0.0.1:7117".parse().unwrap(), 4);
    cluster.open_tenant = false;
    Plan {
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
        let plan = plan(term);
        let all = [&TEST, &TRUTH, &EVERYWHERE].map(|registration| {
            let discipline: Box<dyn Discipline> = Box::new(wanting.clone());
            (registration, discipline)
        });
        let disciplines = Disciplines::new(all.into(), "test");
        let rows = loaded.rows.clone();
        let core = Core::new(plan, disciplines, loaded, 1).unwrap();
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

#[test]
fn a_quota_above_what_there_is_is_refused_and_what_is_free_is_said() {
    let mut stage = Stage::new(10);
    stage.create(1, 7).unwrap();
    let refused = stage.create(2, 4).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NoRoom);
    assert!(refused.message.contains("3 on switch 1"), "{refused}");
    assert!(stage.core.tenants.get(2).is_none());
    let request = |pages, switch| PageRequest { pages, switch, lease_s: None };
    let refused = stage.ask(1, request(4, None)).unwrap_err();
    assert!(refused.message.contains("3 on switch 1"), "{refused}");
    let refused = stage.ask(1, request(1, Some(9))).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
    stage.settle();
    let granted = stage.ask(1, request(3, Some(1))).unwrap();
    assert_eq!(granted.len(), 3);
    stage.settle();
    assert_eq!(stage.pages()[&1], 10);
}

#[test]
fn a_discipline_that_kernels_refuse_is_refused_with_their_reason() {
    let mut stage = Stage::new(10);
    let wants = |id: u32, discipline: &str, write_back_ms: u32| TenantSpec {
        id: Some(id),
        discipline: discipline.into(),
        quota: 1,
        write_back_ms,
        ..TenantSpec::default()
    };
    // Copies need one switch that has the programs, what is nowhere else needs them all.
    stage.attach_without(2, &["test", "truth"]);
    stage.create_as(wants(1, "test", 0)).unwrap();
    let refused = stage.create_as(wants(2, "truth", 0)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    let all = ["discipline truth", "switch 2 (tor 2)", "unbounded"];
    assert!(all.iter().all(|part| refused.message.contains(part)), "{refused}");
    stage.attach_without(1, &["test", "write-back"]);
    let refused = stage.create_as(wants(2, "test", 0)).unwrap_err();
    assert!(refused.message.contains("switch 1 (tor 1)"), "{refused}");
    stage.create_as(wants(2, "everywhere", 1000)).unwrap();
    stage.attach_without(2, &["write-back"]);
    let refused = stage.create_as(wants(3, "everywhere", 1000)).unwrap_err();
    assert!(refused.message.contains("Leave --write-back out"), "{refused}");
}

#[test]
fn a_tenant_asks_for_no_more_than_it_was_given() {
    let mut stage = Stage::new(20);
    stage.create(1, 6).unwrap();
    let mut own = |pages: i32| {
        let count = Some(pages.unsigned_abs());
        let back = ReturnPages { count, ..ReturnPages::default() };
        let request = PageRequest { pages: pages.unsigned_abs(), switch: None, lease_s: None };
        match pages > 0 {
            true => stage.core.ask_pages(ASKED, 1, request, true),
            false => stage.core.return_pages(ASKED, 1, &back, true),
        }
    };
    assert_eq!(own(1).unwrap_err().kind, RefusalKind::Forbidden);
    assert_eq!(own(-4).unwrap().quota, 2);
    assert_eq!(own(3).unwrap().quota, 5);
    let refused = own(2).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains("1 may be: its operator gave it 6"));
    assert_eq!(own(1).unwrap().quota, 6);
    // An operator's word is the new ceiling, whichever way it was said.
    let lower = TenantChange { quota: Some(3), ..TenantChange::default() };
    stage.change(1, lower).unwrap();
    let request = |pages| PageRequest { pages, switch: None, lease_s: None };
    assert!(stage.core.ask_pages(ASKED, 1, request(1), true).is_err());
    stage.ask(1, request(2)).unwrap();
    assert!(stage.core.ask_pages(ASKED, 1, request(1), true).is_err());
}

#[test]
fn a_switch_that_is_gone_for_good_is_forgotten() {
    let mut stage = Stage::new(4);
    let store = stage.core.store_came(&StoreHello::default());
    stage.create(1, 4).unwrap();
    stage.settle();
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
    let forget = |stage: &mut Stage, id| stage.core.forget_switch(ASKED, id).map(drop);
    let refused = forget(&mut stage, 1).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("is attached"), "{refused}");
    assert_eq!(forget(&mut stage, 2).unwrap_err().kind, RefusalKind::NotFound);
    stage.core.detach(stage.now, stage.stream);
    forget(&mut stage, 1).unwrap();
    assert_eq!(stage.core.memory.ledger().rows().count(), 0);
    assert_eq!(stage.core.view().topology().switches.len(), 0);
    assert_eq!(stage.placed(store), Some(vec![]));
    stage.write();
    let left = |stage: &Stage, prefix| stage.loaded.rows.keys().any(|k| k.starts_with(prefix));
    assert!(!left(&stage, "switch/") && !left(&stage, "page/"));
    assert_eq!(forget(&mut stage, 1).unwrap_err().kind, RefusalKind::NotFound);

    // It comes back all the same: as a new one, whose table has a version above that which it has
    // in force.
    let before = stage.table.version;
    stage.stream = stage.attach(1, 4);
    stage.settle();
    assert!(stage.table.version > before);
    assert_eq!(stage.pages(), [(1, 4)].into());
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
}

#[test]
fn stores_learn_where_tenants_are_before_the_switch_there_does() {
    let mut stage = Stage::new(4);
    let store = stage.core.store_came(&StoreHello::default());
    stage.settle();
    assert_eq!(stage.placed(store), Some(vec![]));
    stage.create(1, 2).unwrap();
    assert!(!stage.receive(), "not durable yet");
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
    stage.settle();
    stage.create(2, 1).unwrap();
    assert_eq!(stage.placed(store), Some(vec![(1, 1), (2, 1)]));
    stage.settle();
    assert_eq!(stage.placed(store), None, "nothing changed");
    let again = stage.core.store_came(&StoreHello::default());
    assert_eq!(stage.placed(again), Some(vec![(1, 1), (2, 1)]));
    let remove = |view: &View<'_>| changes::remove(view, 1);
    stage.core.change(ASKED, remove).unwrap();
    assert_eq!(stage.placed(store), Some(vec![(2, 1)]));
}

#[test]
fn a_page_table_is_sent_when_it_is_durable_and_not_before() {
    let mut stage = Stage::new(4);
    stage.create(1, 2).unwrap();
    assert!(!stage.receive(), "a crash now would forget whose the pages are");
    assert!(stage.setup.tenants.is_empty());
    stage.write();
    assert!(stage.receive());
    assert_eq!(stage.pages(), [(1, 2)].into());
    assert_eq!(stage.setup.tenants[0].tenant, 1);
}

#[test]
fn a_page_goes_on_when_its_switch_says_that_it_is_clear() {
    let mut stage = Stage::new(4);
    stage.create(1, 4).unwrap();
    stage.settle();
    let change = TenantChange { quota: Some(0), borrow: Some(false), ..TenantChange::default() };
    stage.change(1, change).unwrap();
    stage.create(2, 4).unwrap();
    for _ in 0..5 {
        stage.now += TICK;
        stage.core.tick(stage.now, 1_000);
        stage.write();
        stage.receive();
        assert_eq!(stage.pages(), BTreeMap::new(), "nobody's until it is clear");
    }
    stage.confirm();
    stage.settle();
    assert_eq!(stage.pages(), [(2, 4)].into());
}

#[test]
fn idle_pages_are_lent_and_come_back_when_the_owner_wants_them() {
    let mut stage = Stage::new(20);
    stage.create(1, 16).unwrap();
    stage.create(2, 2).unwrap();
    stage.wants(1, 128);
    stage.wants(2, 100 * 128);
    stage.settle();
    let (owner, borrower) = (stage.pages()[&1], stage.pages()[&2]);
    assert!(owner <= 4 && borrower >= 16, "{owner} and {borrower}");
    assert_eq!(stage.wanting.rooms.lock().unwrap()[&2] as usize, borrower);

    stage.wants(1, 16 * 128);
    stage.settle();
    assert_eq!(stage.pages(), [(1, 16), (2, 4)].into());
    // Nothing moves to and fro when nothing changes.
    let version = stage.table.version;
    stage.settle();
    assert_eq!(stage.table.version, version);
}

#[test]
fn a_new_controller_goes_on_with_the_same_owners_and_a_higher_term() {
    let mut stage = Stage::new(8);
    stage.create(1, 3).unwrap();
    stage.create(2, 5).unwrap();
    stage.settle();
    let owners = |stage: &Stage| {
        let pages = stage.table.owners.iter();
        pages.map(|o| (o.tenant, o.pages.clone())).collect::<BTreeMap<_, _>>()
    };
    let (before, version) = (owners(&stage), stage.table.version);
    let loaded = std::mem::take(&mut stage.loaded);
    let mut next = Stage::from(8, loaded, stage.wanting.clone(), 2);
    next.settle();
    assert_eq!(owners(&next), before);
    assert_eq!(next.table.term, 2);
    assert!(next.table.version >= version);
    let log: Vec<String> = next.core.audit.after(0).map(|(_, e)| e.what.clone()).collect();
    assert_eq!(log, ["tenant.create", "tenant.create"]);
}

/// A state that is new, or was put back, begins terms anew that switches have heard of: what this
/// controller says in them they would leave out for good.
#[test]
fn a_switch_that_has_heard_of_another_lead_of_this_term_or_a_later_one_outruns_it() {
    let stage = Stage::new(8);
    let (now, mut core) = (stage.now, stage.core);
    let mut attach = |id, term, life| {
        let hello = Hello { term, life, ..hello(id, 8) };
        core.attach(now, &hello)
    };
    for heard in [1, 2, 7] {
        let expected = CloseReason::Outrun { id: 2, heard, term: 1 };
        assert_eq!(attach(2, heard, 5), Err(expected));
    }
    let end = 1 << 62;
    assert!(matches!(attach(2, end - 1, 5), Err(CloseReason::Outrun { .. })));
    for heard in [end, u64::MAX] {
        let wrong = attach(2, heard, 5).unwrap_err();
        assert!(matches!(wrong, CloseReason::Invalid(_)), "{wrong}");
    }
    // Once it attached in this lead it has its term from it; other tables have it from elsewhere.
    attach(2, 0, 5).unwrap();
    attach(2, 1, 5).unwrap();
    assert!(matches!(attach(2, 1, 6), Err(CloseReason::Outrun { heard: 1, .. })));
}

/// However high a switch once had this controller's terms begin, what switches hear from it is
/// nothing that it refuses later.
#[test]
fn a_controller_takes_switches_that_have_heard_of_its_own_term_however_high() {
    let term = (1 << 62) + 1;
    let attach = |core: &mut Core, heard| {
        let hello = Hello { term: heard, life: 5, ..hello(2, 8) };
        core.attach(Duration::ZERO, &hello).map(|_| ())
    };
    let mut core = Stage::from(8, LoadedState::default(), WantingDiscipline::default(), term).core;
    for heard in [0, term, term - 1] {
        assert_eq!(attach(&mut core, heard), Ok(()), "{heard}");
    }
}

#[test]
fn a_page_returned_twice_is_refused() {
    let mut stage = Stage::new(8);
    stage.create(1, 4).unwrap();
    stage.settle();
    let page = stage.core.memory.ledger().held(1).next().unwrap().0;
    let this = ReturnPages { pages: vec![page], count: None };
    stage.give_back(1, &this).unwrap();
    let again = stage.give_back(1, &this).unwrap_err();
    assert!(again.message.contains("returned twice"), "{again}");
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 3);
    let two = ReturnPages { pages: vec![], count: Some(2) };
    let gone = stage.give_back(1, &two).unwrap();
    assert_eq!(gone.len(), 2);
    let too_many = stage.give_back(1, &two).unwrap_err();
    assert!(too_many.message.contains("its quota is 1"), "{too_many}");
}

#[test]
fn a_rotation_keeps_the_seed_of_hashes() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let first = stage.core.tenants.get(1).unwrap().clone();
    let rotate = |view: &View<'_>| changes::rotate_secret(view, 1, Secret([8; 16]));
    let finish = |view: &View<'_>| changes::finish_rotation(view, 1);
    let rotated = stage.core.change(ASKED, rotate).unwrap().tenant.unwrap();
    assert_eq!(rotated.also_secret.as_deref(), Some(first.secret.as_str()));
    let again = stage.core.change(ASKED, rotate);
    assert!(again.is_err(), "one at a time");
    let cluster = stage.cluster_of_stores();
    let secrets = cluster.secrets_of(1).unwrap();
    assert_eq!(secrets.hash, wire::Secret(hex_of(&first.secret)));
    assert_eq!(secrets.also, secrets.hash);
    stage.core.change(ASKED, finish).unwrap();
    assert!(stage.core.change(ASKED, finish).is_err());
    let cluster = stage.cluster_of_stores();
    let after = cluster.secrets_of(1).unwrap();
    assert_eq!((after.hash, after.also), (secrets.hash, wire::Secret::NONE));
}

fn hex_of(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    hex::decode_to_slice(text, &mut bytes).unwrap();
    bytes
}

#[test]
fn pages_asked_for_with_a_lease_go_back_unless_they_are_used() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let request = PageRequest { pages: 3, switch: None, lease_s: Some(60) };
    stage.ask(1, request).unwrap();
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 4);
    stage.core.lapse(60);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 4, "not over yet");
    stage.core.lapse(61);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 1);
}

#[test]
fn a_tenant_does_not_keep_what_it_was_given_for_a_time_by_giving_it_back() {
    let mut stage = Stage::new(12);
    stage.create(1, 2).unwrap();
    let request = |pages, lease_s| PageRequest { pages, switch: None, lease_s };
    stage.ask(1, request(8, Some(60))).unwrap();
    for count in [1, 7] {
        let back = ReturnPages { count: Some(count), ..ReturnPages::default() };
        stage.core.return_pages(ASKED, 1, &back, true).unwrap();
        let refused = stage.core.ask_pages(ASKED, 1, request(count, None), true);
        assert_eq!(refused.unwrap_err().kind, RefusalKind::Forbidden);
    }
    stage.core.lapse(61);
    let quota = stage.core.tenants.get(1).unwrap().terms.quota;
    // What was there for good is to be had again.
    let mut ask = |pages| stage.core.ask_pages(ASKED, 1, request(pages, None), true);
    assert!(ask(3 - quota).is_err());
    assert_eq!(ask(2 - quota).unwrap().quota, 2);
}

#[test]
fn the_number_of_a_removed_tenant_is_not_given_away_by_accident() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let removed = stage.core.change(ASKED, |view| changes::remove(view, 1));
    removed.unwrap();
    stage.settle();
    assert!(stage.setup.tenants.is_empty());
    let refused = stage.create(1, 1).unwrap_err();
    assert!(refused.message.contains("was removed"), "{refused}");
    let any = stage.create_as(TenantSpec::default());
    assert_eq!(any, Ok(2));
    stage.settle();
    let loaded = std::mem::take(&mut stage.loaded);
    let mut next = Stage::from(8, loaded, stage.wanting.clone(), 2);
    assert!(next.create(1, 1).is_err(), "also after a restart");
    let again = TenantSpec { id: Some(1), reuse: true, ..TenantSpec::default() };
    assert_eq!(next.create_as(again), Ok(1));
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

#[test]
fn pages_of_items_that_are_nowhere_else_are_neither_lent_nor_borrowed() {
    let mut stage = Stage::new(20);
    stage.create_as(of(1, "truth", 8)).unwrap();
    stage.create(2, 4).unwrap();
    stage.wants(2, 100 * 128);
    stage.settle();
    assert_eq!(stage.pages(), [(1, 8), (2, 12)].into());
    stage.wants(1, 100 * 128);
    stage.wants(2, 0);
    stage.settle();
    assert_eq!(stage.pages()[&1], 8);
}

#[test]
fn pages_with_items_that_are_nowhere_else_are_not_taken() {
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 4)).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    let refused = |result: Result<Vec<PageId>, Refusal>, says: &str| {
        let refused = result.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Conflict);
        assert!(refused.message.contains(says), "{refused}");
    };
    let some = |pages: &[PageId]| ReturnPages { pages: pages.to_vec(), count: None };
    let count = |count| ReturnPages { pages: vec![], count: Some(count) };
    // The switch did not say yet what is on which page.
    refused(stage.give_back(1, &some(&all[..1])), "may hold items");
    refused(stage.give_back(1, &count(1)), "4 may hold items");

    stage.window_ends(1, &[all[1], all[3]]);
    refused(stage.give_back(1, &some(&all[1..2])), "may hold items");
    refused(stage.give_back(1, &count(3)), "2 may hold items");
    refused(stage.change(1, quota(1)).map(|made| made.left), "2 may hold items");
    let other = TenantChange { discipline: Some("test".into()), ..TenantChange::default() };
    refused(stage.change(1, other).map(|made| made.left), "would lose them");

    // Those without items go: one by its name, one by the number.
    assert_eq!(stage.give_back(1, &some(&all[..1])).unwrap(), [all[0]]);
    assert_eq!(stage.give_back(1, &count(1)).unwrap(), [all[2]]);
    stage.create(2, 6).unwrap();
    stage.wants(2, 100 * 128);
    stage.settle();
    let kept = stage.core.own_pages(1);
    assert_eq!(kept, [all[1], all[3]].into());
    let removed = stage.core.change(ASKED, |view| changes::remove(view, 1));
    removed.unwrap();
    stage.settle();
    assert_eq!(stage.pages(), [(2, 8)].into());
}

#[test]
fn options_that_a_change_does_not_name_stay_and_those_of_items_with_their_items() {
    let mut stage = Stage::new(8);
    let spec = TenantSpec {
        options: [("depth".into(), 3), ("width".into(), 5)].into(),
        ..of(1, "truth", 4)
    };
    stage.create_as(spec).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all[..1]);
    let option = |name: &str, number| TenantChange {
        options: Some([(name.into(), number)].into()),
        ..TenantChange::default()
    };
    let options = |stage: &Stage| stage.core.tenants.get(1).unwrap().terms.options.clone();
    let are = |depth, width| BTreeMap::from([("depth".into(), depth), ("width".into(), width)]);
    stage.change(1, option("width", 7)).unwrap();
    assert_eq!(options(&stage), are(3, 7));
    // Items were made with three; a member that joins would make four of them.
    for other in [2, 4] {
        let refused = stage.change(1, option("depth", other)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Conflict);
        let says = "option depth stays as it is while there are items";
        assert!(refused.message.contains(says), "{refused}");
    }
    stage.change(1, option("depth", 3)).unwrap();
    stage.window_ends(1, &[]);
    stage.change(1, option("depth", 4)).unwrap();
    assert_eq!(options(&stage), are(4, 7));
}

#[test]
fn a_timed_part_of_a_quota_goes_back_only_as_far_as_its_pages_are_empty() {
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 0)).unwrap();
    let request = PageRequest { pages: 4, switch: None, lease_s: Some(60) };
    stage.ask(1, request).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all[2..]);
    stage.core.lapse(61);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 2);
    stage.settle();
    assert_eq!(stage.core.own_pages(1), all[2..].iter().copied().collect());
}

#[test]
fn what_is_nowhere_else_stays_on_its_switch_whatever_the_policy_says() {
    let mut stage = Stage::new(8);
    let second = stage.attach(2, 8);
    stage.create_as(of(1, "truth", 4)).unwrap();
    stage.create_as(of(2, "test", 4)).unwrap();
    stage.settle();
    stage.sent_to(second);
    let placed = |stage: &Stage, tenant| stage.core.memory.placements().of(tenant).to_vec();
    assert_eq!(placed(&stage, 1), [(1, 2), (2, 2)]);
    assert_eq!(placed(&stage, 2), [(1, 2), (2, 2)]);
    stage.attach(3, 8);
    stage.settle();
    assert_eq!(placed(&stage, 1), [(1, 2), (2, 2)]);
    assert_eq!(placed(&stage, 2), [(1, 1), (2, 1), (3, 2)]);
}

#[test]
fn a_discipline_that_runs_everywhere_is_in_every_setup() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 0);
    let spec = TenantSpec { borrow: false, ..of(1, "everywhere", 0) };
    stage.create_as(spec).unwrap();
    stage.create_as(TenantSpec { borrow: false, ..of(2, "test", 1) }).unwrap();
    stage.settle();
    let (setups, _) = stage.sent_to(second);
    let setup = setups.last().unwrap();
    let disciplines = |setup: &Setup| {
        let tenants = setup.tenants.iter();
        let told = tenants.map(|t| (t.tenant, t.discipline.clone()));
        told.collect::<Vec<_>>()
    };
    assert_eq!(disciplines(setup), [(1, "everywhere".into())]);
    let both = [(1, "everywhere".into()), (2, "test".into())];
    assert_eq!(disciplines(&stage.setup), both);
    // Windows end for all that may use a switch, in their order.
    for stream in [second, stage.stream] {
        stage.say(stream, from_switch::Body::Counters(Counters::default()));
    }
    let windows = stage.wanting.windows.lock().unwrap().clone();
    assert_eq!(windows, [(2, 1), (1, 1), (1, 2)]);
}

#[test]
fn a_tenant_with_write_back_is_in_every_setup() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 0);
    stage.create_as(TenantSpec { borrow: false, ..of(1, "test", 1) }).unwrap();
    stage.settle();
    stage.sent_to(second);
    // What a write passes second keeps it, with pages there or without.
    for (write_back_ms, expected) in [(100, vec![(1, "test".to_owned())]), (0, vec![])] {
        let change = TenantChange { write_back_ms: Some(write_back_ms), ..TenantChange::default() };
        stage.change(1, change).unwrap();
        stage.write();
        let (setups, _) = stage.sent_to(second);
        let told = setups.last().unwrap().tenants.iter();
        let told: Vec<_> = told.map(|t| (t.tenant, t.discipline.clone())).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_change_of_a_tenant_is_told_to_the_switches_where_it_is() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 4);
    stage.create_as(TenantSpec { borrow: false, ..of(1, "test", 0) }).unwrap();
    let on_first = PageRequest { pages: 1, switch: Some(1), lease_s: None };
    stage.ask(1, on_first).unwrap();
    stage.settle();
    stage.sent_to(second);
    let faster = TenantChange { rate: Some(9), ..TenantChange::default() };
    stage.change(1, faster).unwrap();
    stage.write();
    assert_eq!(stage.sent_to(second).0, []);
    let (setups, _) = stage.sent_to(stage.stream);
    assert_eq!(setups[0].cluster.as_ref().unwrap().tenants[0].rate, 9);
}

#[test]
fn a_discipline_learns_which_stores_keys_are_on_once_and_again_after_a_change() {
    let mut stage = Stage::new(10);
    let told = |stage: &Stage| stage.wanting.homes.lock().unwrap().get(&1).copied();
    stage.create(1, 2).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(1));
    stage.change(1, quota(3)).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(1), "its stores are the same");
    let another = TenantChange { discipline: Some("truth".into()), ..TenantChange::default() };
    stage.change(1, another).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(2), "another discipline knows nothing");
}

#[test]
fn a_discipline_learns_again_which_stores_keys_are_on_when_rooms_come_back() {
    let mut stage = Stage::new(10);
    let told = |stage: &Stage| stage.wanting.homes.lock().unwrap().get(&1).copied();
    let pages = |stage: &Stage| stage.wanting.rooms.lock().unwrap().get(&1).copied();
    stage.create(1, 4).unwrap();
    let alone = TenantChange { borrow: Some(false), ..TenantChange::default() };
    stage.change(1, alone).unwrap();
    stage.settle();
    stage.change(1, quota(0)).unwrap();
    stage.settle();
    assert_eq!(pages(&stage), Some(0));
    let before = told(&stage);
    stage.change(1, quota(4)).unwrap();
    stage.settle();
    assert_eq!(pages(&stage), Some(4));
    assert_eq!(told(&stage), before.map(|times| times + 1));
}
