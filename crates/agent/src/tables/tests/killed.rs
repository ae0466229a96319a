//! An agent that is killed between any two of its writes. Before each write that it makes, what it
//! would leave is given to another agent, in another switch of this process. That one finds tables
//! that are in order, serves nothing that is old, and ends where the first one would have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicU64},
};

use api::proto::Configurations;
use dataplane::{
    Counters, Leases, NO_LEASE, Place, Rows, before_each_write,
    native::{self, Clock, Cpu, Frame, Program, Verdict},
};
use decide::{Configuration, Group, Row};
use harness::{Message, message::secret_of, message::store};
use wire::{Op, Packet, Secret};

use super::*;

/// A tenant whose keys get items by themselves.
const TRYING: u32 = 10;
const NOTES: &str = "trial_notes";
const GROUPS: &str = "trial_groups";
const PORT: &str = "port";
/// Of the third tenant; they stay as they are as long as its discipline does.
const WORDS: [u32; dataplane::PARAMETERS] = [8, 9];
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;
/// In an item's header.
const WORD_AT: usize = 8;
const VERSION_AT: usize = 16;
/// In a lease.
const LEASE_LOCK_AT: usize = 40;

/// Keys with what their items begin with; none: a value that is fetched.
type ItemMap = BTreeMap<ItemKey, Option<Vec<u8>>>;

/// All that a controller says to a switch.
#[derive(Clone, PartialEq)]
struct Orders {
    store: String,
    tenants: Vec<(u32, &'static str)>,
    /// Tenants have other secrets than those that packets of tests are signed with.
    other_secrets: bool,
    pages: Vec<(u32, Vec<u32>)>,
    configuration: Option<Configuration>,
    items: ItemMap,
}

/// The programs for tests answer copies of keys that begin with an h.
fn item(tenant: u32, name: &'static str, record: Option<&[u8]>) -> (ItemKey, Option<Vec<u8>>) {
    (key(tenant, name), record.map(<[u8]>::to_vec))
}

/// What stands at the store behind a key.
fn value_of(key: &ItemKey) -> Vec<u8> {
    [&b"value of "[..], &key.key[..]].concat()
}

impl Orders {
    fn first() -> Orders {
        Orders {
            store: store(false).to_string(),
            tenants: vec![
                (CHAIN, "trial"),
                (COPIES, "copies"),
                (OTHERS, "copies"),
                (TRYING, "trying"),
            ],
            other_secrets: false,
            pages: vec![(CHAIN, vec![0]), (COPIES, vec![1]), (OTHERS, vec![2]), (TRYING, vec![3])],
            configuration: None,
            items: [
                item(CHAIN, "a", Some(b"one")),
                item(CHAIN, "t", Some(b"tee")),
                item(COPIES, "hb", None),
                item(COPIES, "hg", Some(b"gee")),
                item(OTHERS, "ho", None),
                item(OTHERS, "hr", Some(b"are")),
            ]
            .into(),
        }
    }

    fn setup(&self) -> to_switch::Body {
        let secret = |id: &u32| match self.other_secrets {
            true => format!("{:02x}", id + 100).repeat(16),
            false => format!("{id:02x}").repeat(16),
        };
        setup(&self.store, &self.tenants, secret)
    }

    fn is_set_up_as(&self, other: &Orders) -> bool {
        self.store == other.store
            && self.tenants == other.tenants
            && self.other_secrets == other.other_secrets
    }
}

/// What becomes of the programs' tables in the end, wherever it lies.
#[derive(Debug, PartialEq)]
struct Outlook {
    items: ItemMap,
    parameters: Vec<(u32, [u32; dataplane::PARAMETERS])>,
    notes: BTreeMap<Vec<u8>, Vec<u8>>,
    group: Vec<u8>,
}

/// A switch with its agent.
struct Site {
    switch: Arc<native::Switch>,
    clock: Arc<AtomicU64>,
    /// The reserved epochs.
    kept: Arc<AtomicU64>,
    start: Instant,
    tables: Option<Tables>,
    out: Receiver<FromSwitch>,
    pages_version: u64,
    version: u64,
}

fn new_switch(clock: &Arc<AtomicU64>) -> Arc<native::Switch> {
    let sizes = Sizes { pages: 4 };
    let objects = registry::objects(&DISCIPLINES, sizes);
    native::Switch::new("killed", &objects, sizes, 1, Clock::Set(clock.clone())).unwrap()
}

impl Site {
    /// As [`Orders::first`] says, and with the values of all that is fetched.
    fn first() -> Site {
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let switch = new_switch(&clock);
        switch.add_port(3, PORT).unwrap();
        let mut site = Site {
            switch,
            clock,
            kept: Arc::default(),
            start: Instant::now(),
            tables: None,
            out: channel(1).1,
            pages_version: 0,
            version: 0,
        };
        site.open(1);
        site.hear_all(&Orders::first());
        let words = convert::configuration_to(OTHERS, 1, &Configuration::of(WORDS));
        site.hear(to_switch::Body::Configurations(Configurations {
            term: 1,
            tenants: vec![words],
        }));
        site.lease();
        for key in
            Orders::first().items.into_iter().filter_map(|(key, of)| of.is_none().then_some(key))
        {
            site.fill(&key);
            assert!(site.hits(&key));
        }
        site
    }

    /// What another agent finds if this one is killed now.
    fn heir(
        switch: &native::Switch,
        clock: &Arc<AtomicU64>,
        kept: &AtomicU64,
        start: Instant,
    ) -> Site {
        let heir = new_switch(clock);
        switch.copy_to(&heir);
        Site {
            switch: heir,
            clock: clock.clone(),
            kept: Arc::new(AtomicU64::new(kept.load(Relaxed))),
            start,
            tables: None,
            out: channel(1).1,
            pages_version: 100,
            version: 100,
        }
    }

    fn open(&mut self, id: u16) {
        self.tables = None;
        let (to_session, out) = channel(256);
        let epochs = Reservation::in_memory(self.kept.clone(), Arc::default(), Duration::ZERO);
        let programs = dataplane::Programs::from(self.switch.clone());
        let courier = Box::<RecordingCourier>::default();
        let tables =
            Tables::open(programs, id, &DISCIPLINES, epochs, courier, to_session, self.start);
        (self.tables, self.out) = (Some(tables.unwrap()), out);
    }

    fn tables(&mut self) -> &mut Tables {
        self.tables.as_mut().unwrap()
    }

    fn hear(&mut self, body: to_switch::Body) {
        let (message, now) = (ToSwitch { body: Some(body) }, self.start);
        self.tables().take(message, now).unwrap();
        while self.out.try_recv().is_ok() {}
    }

    fn hear_pages(&mut self, orders: &Orders) {
        self.pages_version += 1;
        let owners: Vec<_> = orders.pages.iter().map(|(id, pages)| (*id, &pages[..])).collect();
        self.hear(page_table(self.pages_version, &owners));
    }

    fn hear_configuration(&mut self, orders: &Orders) {
        self.version += 1;
        let configuration = orders.configuration.clone().unwrap_or_default();
        let tenants = vec![convert::configuration_to(CHAIN, self.version, &configuration)];
        self.hear(to_switch::Body::Configurations(Configurations { term: 1, tenants }));
    }

    fn change(&mut self, key: &ItemKey, change: &Change) {
        let commands = vec![convert::command(1, key, change)];
        self.hear(to_switch::Body::Commands(Commands { commands }));
    }

    fn put(&mut self, key: &ItemKey, record: Option<&Vec<u8>>) {
        match record {
            Some(record) => self.change(key, &given(record)),
            None => self.change(key, &FETCHED),
        }
    }

    /// What is new of these orders.
    fn hear_changes(&mut self, before: &Orders, orders: &Orders) {
        if !orders.is_set_up_as(before) {
            self.hear(orders.setup());
        }
        if orders.pages != before.pages {
            self.hear_pages(orders);
        }
        if orders.configuration != before.configuration {
            self.hear_configuration(orders);
        }
        for gone in before.items.keys().filter(|key| !orders.items.contains_key(key)) {
            self.change(gone, &Change::Remove);
        }
        for (key, record) in &orders.items {
            if before.items.get(key) != Some(record) {
                self.put(key, record.as_ref());
            }
        }
    }

    /// All of these orders, as a controller gives them to an agent that it knows nothing of.
    fn hear_all(&mut self, orders: &Orders) {
        self.hear(orders.setup());
        self.hear_rest(orders);
    }

    /// What comes after the setup.
    fn hear_rest(&mut self, orders: &Orders) {
        self.hear_pages(orders);
        self.hear_configuration(orders);
        let held: Vec<ItemKey> = self.tables().memory.keys().cloned().collect();
        for gone in held.iter().filter(|key| !orders.items.contains_key(key)) {
            self.change(gone, &Change::Remove);
        }
        for (key, record) in &orders.items {
            self.put(key, record.as_ref());
        }
        let now = self.start;
        self.tables().tick(now).unwrap();
    }

    fn run(&self, message: &Message) -> (Verdict, Vec<u8>) {
        let mut frame = Frame::new(&message.frame().bytes());
        let mut cpu = Cpu::of(&self.switch, 0);
        let verdict = cpu.run(Program::Entry, &mut frame, 1, self.clock.load(Relaxed));
        (verdict, frame.bytes()[HEADERS..].to_vec())
    }

    fn lease(&self) {
        let leases = Leases::open(&self.switch).unwrap();
        let slot = leases.slot_of(store(false)).unwrap();
        let mut reply = Message::lease(Op::LeaseReply, 1, slot).signed_with(Secret::NONE);
        reply.header.version = self.clock.load(Relaxed);
        reply.header.expiry_ms = 600_000;
        reply.header.client = 1;
        self.run(&reply);
        assert!(leases.state(slot).remaining_ms > 0);
    }

    fn read(&self, key: &ItemKey) -> (Verdict, Vec<u8>) {
        self.run(&Message::read(key.tenant, &key.key).padded(600))
    }

    fn fill(&self, key: &ItemKey) {
        let asked = self.read(key).1;
        let epoch = Packet::decode(&asked).expect("ours").header.epoch;
        let value = value_of(key);
        self.run(&Message::grant(Op::ReadReply, key.tenant, &key.key, &value, epoch));
    }

    /// Whether the switch answers a read itself; then with the key's value.
    fn hits(&self, key: &ItemKey) -> bool {
        let (verdict, payload) = self.read(key);
        if verdict == Verdict::Back {
            let packet = Packet::decode(&payload).expect("ours");
            assert_eq!((packet.key, packet.value), (&key.key[..], &value_of(key)[..]));
        }
        verdict == Verdict::Back
    }

    fn table(&self) -> Table {
        Table::open(&self.switch).unwrap()
    }

    fn word<const LEN: usize>(&self, table: &str, index: u32, at: usize) -> [u8; LEN] {
        self.switch.memory(table, index).expect("an element").read(at)
    }

    fn items(&self) -> ItemMap {
        let table = self.table();
        let record = |held: &HeldItem| {
            (held.lease == NO_LEASE).then(|| table.given(held.place).expect("nobody locks it"))
        };
        let all = table.scan().into_iter();
        all.map(|held| (key(held.tenant, held.key.clone()), record(&held))).collect()
    }

    fn outlook(&self) -> Outlook {
        let notes = Rows::open(&self.switch, "trial", NOTES).unwrap();
        Outlook {
            items: self.items(),
            parameters: TenantEntry::parameters(&self.switch).unwrap(),
            notes: notes.list().unwrap().into_iter().collect(),
            group: self.word::<64>(GROUPS, 1, 0).to_vec(),
        }
    }

    /// Nothing is locked, items lie in cells of their own on pages of one tenant each, under leases
    /// of stores, and the agent knows of all of them.
    fn is_in_order(&mut self) {
        let (table, leases) = (self.table(), Leases::open(&self.switch).unwrap());
        for lock in 0..table.slots() / Table::BUCKET_SLOTS as u32 {
            assert_eq!(self.word::<4>("bucket_locks", lock, 0), [0; 4], "a bucket is locked");
        }
        for lease in leases.all() {
            let lock = self.word::<4>("leases", lease.slot.into(), LEASE_LOCK_AT);
            assert_eq!(lock, [0; 4], "a lease is locked");
        }
        let (mut owners, mut taken) = (BTreeMap::new(), BTreeSet::new());
        let held = table.scan();
        for HeldItem { tenant, place, lease, .. } in &held {
            let at = usize::from(place.cell) * 64;
            let seq = u32::from_ne_bytes(self.word("pages", place.page, at));
            let word = u64::from_ne_bytes(self.word("pages", place.page, at + WORD_AT));
            assert_eq!(seq % 2, 0, "an item is locked");
            assert!(word >> 1 <= table.epoch(), "an epoch that was not taken");
            assert_eq!(owners.entry(place.page).or_insert(*tenant), tenant, "a page of two");
            for cell in place.cell..place.cell + u16::from(place.cells) {
                assert!(taken.insert((place.page, cell)), "a cell of two items");
            }
            if *lease == NO_LEASE {
                let version = u64::from_ne_bytes(self.word("pages", place.page, at + VERSION_AT));
                assert_eq!(version, 0, "half a record");
            } else {
                assert!(!leases.state(*lease).store.is_unspecified(), "a lease of nobody");
            }
        }
        let known: BTreeSet<ItemKey> = self.tables().memory.keys().cloned().collect();
        let there = held.into_iter().map(|held| key(held.tenant, held.key));
        let trials: BTreeSet<ItemKey> = self.tables().memory.on_probation().cloned().collect();
        assert_eq!(there.filter(|key| !trials.contains(key)).collect::<BTreeSet<_>>(), known);
        for page in 0..table.pages() {
            let (used, resting) = self.tables().memory.cells_in_use(page);
            let of_items = taken.iter().filter(|(on, _)| *on == page).count();
            assert!(used >= of_items as u32 + resting, "cells of items are free");
        }
    }
}

/// Something that an agent does.
struct Operation {
    name: &'static str,
    /// What the orders are afterwards.
    orders: fn(&mut Orders),
    does: fn(&mut Site, &Orders, &Orders),
    /// Who takes over calls itself so.
    id: u16,
    /// Copies from before are not served any more.
    ends_copies: bool,
    /// What counts a read of tenant 9 in the end, signed as before.
    counts: Option<&'static str>,
}

const HEARS: Operation = Operation {
    name: "",
    orders: |_| {},
    does: Site::hear_changes,
    id: 1,
    ends_copies: false,
    counts: None,
};

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "a record that is given",
        orders: |orders| orders.items.extend([item(CHAIN, "n", Some(b"new"))]),
        ..HEARS
    },
    Operation {
        name: "a copy whose value is fetched",
        orders: |orders| orders.items.extend([item(COPIES, "hf", None)]),
        ..HEARS
    },
    Operation {
        name: "another record in the same cells",
        orders: |orders| orders.items.extend([item(COPIES, "hg", Some(b"other"))]),
        ..HEARS
    },
    Operation {
        name: "a record that needs more cells",
        orders: |orders| orders.items.extend([item(COPIES, "hg", Some(&[7; 90]))]),
        ..HEARS
    },
    Operation {
        name: "a fetched value in the place of a record",
        orders: |orders| orders.items.extend([item(COPIES, "hg", None)]),
        ..HEARS
    },
    Operation {
        name: "removals",
        orders: |orders| {
            let gone = [key(CHAIN, "t"), key(COPIES, "hb"), key(COPIES, "hg")];
            orders.items.retain(|key, _| !gone.contains(key));
        },
        ..HEARS
    },
    Operation {
        name: "a removal of what is as it was",
        orders: |orders| drop(orders.items.remove(&key(CHAIN, "t"))),
        does: |site, _, _| site.change(&key(CHAIN, "t"), &Change::RemoveIf("te".into())),
        ..HEARS
    },
    Operation {
        name: "a removal of what is something else",
        does: |site, _, _| site.change(&key(CHAIN, "t"), &Change::RemoveIf("to".into())),
        ..HEARS
    },
    Operation {
        name: "more cells for a value",
        does: |site, _, _| {
            let too_large = Event::TooLarge { tenant: COPIES, key: b"hb".to_vec(), value_len: 900 };
            site.tables().heed(vec![too_large]).unwrap();
        },
        ..HEARS
    },
    Operation {
        name: "pages that change hands",
        orders: |orders| {
            orders.pages[1..3].clone_from_slice(&[(COPIES, vec![2]), (OTHERS, vec![1])])
        },
        ..HEARS
    },
    Operation {
        name: "another store",
        orders: |orders| orders.store = "10.0.0.77:7117".into(),
        ends_copies: true,
        ..HEARS
    },
    Operation {
        name: "a store with a longer address",
        orders: |orders| orders.store = "[fd00::1:2:3]:7117".into(),
        ends_copies: true,
        ..HEARS
    },
    Operation {
        name: "other secrets",
        orders: |orders| orders.other_secrets = true,
        ends_copies: true,
        counts: Some("bypass_bad_tag"),
        ..HEARS
    },
    Operation {
        name: "a tenant that leaves",
        orders: |orders| {
            orders.tenants.remove(2);
            orders.pages.remove(2);
            orders.items.retain(|key, _| key.tenant != OTHERS);
        },
        counts: Some("bypass_unknown_tenant"),
        ..HEARS
    },
    Operation {
        name: "a tenant that leaves, and one in its place",
        orders: |orders| {
            orders.tenants[2] = (11, "copies");
            orders.pages[2] = (11, vec![2]);
            orders.items.retain(|key, _| key.tenant != OTHERS);
            orders.items.extend([item(11, "ho", None)]);
        },
        counts: Some("bypass_unknown_tenant"),
        ..HEARS
    },
    Operation {
        name: "another discipline",
        orders: |orders| orders.tenants[2].1 = "trying",
        ..HEARS
    },
    Operation {
        name: "a discipline whose items are the data",
        orders: |orders| {
            orders.tenants[2].1 = "trial";
            orders.items.retain(|key, _| key.tenant != OTHERS);
        },
        ..HEARS
    },
    Operation {
        name: "a configuration",
        orders: |orders| orders.configuration = Some(configured()),
        ..HEARS
    },
    Operation {
        name: "rounds at the end of a window",
        does: |site, _, _| {
            for seconds in 1..3 {
                let now = site.start + Duration::from_secs(seconds);
                site.tables().tick(now).unwrap();
            }
        },
        ..HEARS
    },
    Operation { name: "a takeover", does: |site, _, _| site.open(1), ..HEARS },
    Operation {
        name: "a takeover under another id",
        does: |site, _, _| site.open(2),
        id: 2,
        ends_copies: true,
        ..HEARS
    },
];

fn configured() -> Configuration {
    let note = |letter: char, value: u8| Row {
        map: NOTES.into(),
        key: [CHAIN.to_ne_bytes(), u32::from(letter).to_ne_bytes()].concat().into(),
        value: vec![value; 24].into(),
    };
    Configuration {
        parameters: [5, 6],
        rows: vec![note('x', 1), note('y', 2)],
        groups: vec![Group { map: GROUPS.into(), index: 1, ports: vec![PORT.into()] }],
    }
}

/// What must be so of whoever takes over in the midst of it.
struct Heritage {
    id: u16,
    ends_copies: bool,
    counts: Option<&'static str>,
    before: Orders,
    after: Orders,
    /// What the first agent would have come to.
    outlook: Outlook,
}

impl Heritage {
    fn check(&self, mut heir: Site) {
        heir.open(self.id);
        heir.is_in_order();
        self.check_items(&heir);
        heir.hear(self.after.setup());
        self.check_changed(&heir);
        heir.hear_rest(&self.after);
        heir.is_in_order();
        assert_eq!(heir.outlook(), self.outlook);
        for key in self.before.items.keys().filter(|key| self.before.items[*key].is_none()) {
            let hits = heir.hits(key);
            assert!(!hits || !self.ends_copies, "{key:?} is served, as it was before");
        }
        if let Some(counter) = self.counts {
            let counters = Counters::open(&heir.switch, []).unwrap();
            let before = counters.get(counter).unwrap();
            heir.read(&key(OTHERS, "ho"));
            assert_eq!(counters.get(counter).unwrap(), before + 1, "{counter}");
        }
    }

    /// Of what only another discipline's programs understood nothing is there.
    fn check_changed(&self, heir: &Site) {
        let discipline = |orders: &Orders, id| orders.tenants.iter().find(|of| of.0 == id).copied();
        let (parameters, items) = (TenantEntry::parameters(&heir.switch).unwrap(), heir.items());
        for (tenant, words) in parameters {
            let ofs = [&self.before, &self.after].map(|orders| discipline(orders, tenant));
            if let [Some(before), Some(after)] = ofs
                && before != after
            {
                assert_eq!(words, [0; 2], "words for another discipline");
                let mut its = items.iter().filter(|(key, _)| key.tenant == tenant);
                assert!(its.all(|(_, record)| record.is_none()), "a record for another discipline");
            }
        }
    }

    /// What is data is there, and every record is one that was given.
    fn check_items(&self, heir: &Site) {
        let items = heir.items();
        for (key, record) in &self.before.items {
            if key.tenant == CHAIN && self.after.items.get(key) == Some(record) {
                assert_eq!(items.get(key), Some(record), "{key:?} is data");
            }
            if record.is_none() {
                heir.hits(key);
            }
        }
        for (key, record) in items.iter().filter(|(_, record)| record.is_some()) {
            let were = [&self.before, &self.after].map(|orders| orders.items.get(key));
            assert!(were.contains(&Some(record)), "{key:?} has the record {record:?}");
        }
    }
}

/// Returns how many writes there were.
fn kill_at_each_write(operation: &Operation) -> u64 {
    let before = Orders::first();
    let mut after = before.clone();
    (operation.orders)(&mut after);
    let mut other = Site::first();
    (operation.does)(&mut other, &before, &after);
    other.hear_all(&after);
    let heritage = Heritage {
        id: operation.id,
        ends_copies: operation.ends_copies,
        counts: operation.counts,
        before: before.clone(),
        after: after.clone(),
        outlook: other.outlook(),
    };
    let mut site = Site::first();
    let (heritage, writes) = (Rc::new(heritage), Rc::new(std::cell::Cell::new(0)));
    let (switch, clock, start) = (site.switch.clone(), site.clock.clone(), site.start);
    let (kept, count) = (site.kept.clone(), writes.clone());
    let check = heritage.clone();
    before_each_write(Some(Box::new(move || {
        count.set(count.get() + 1);
        println!("killed before write {}", count.get());
        check.check(Site::heir(&switch, &clock, &kept, start));
    })));
    (operation.does)(&mut site, &before, &after);
    before_each_write(None);
    println!("killed after the last");
    heritage.check(Site::heir(&site.switch, &site.clock, &site.kept, site.start));
    writes.get()
}

#[test]
fn who_takes_over_from_an_agent_that_was_killed_at_any_write_ends_where_it_would_have() {
    for operation in OPERATIONS {
        println!("{}", operation.name);
        let writes = kill_at_each_write(operation);
        println!("{}: {writes} writes", operation.name);
        assert!(writes > 0, "{}: it writes nothing", operation.name);
    }
}

/// A page has one owner. What lies there of others goes, and its cells are not used again before
/// programs that may have found it have ended.
#[test]
fn cells_of_what_is_found_on_anothers_page_rest() {
    let mut site = Site::first();
    let place = Place { page: 0, cell: 100, cells: 3 };
    let hash = secret_of(COPIES).key_hash(COPIES, b"foreign");
    site.table().insert(COPIES, hash, b"foreign", 0, place).unwrap();
    site.open(1);
    assert!(!site.items().contains_key(&key(COPIES, "foreign")));
    assert_eq!(site.tables().memory.cells_in_use(0).1, 3);
}
