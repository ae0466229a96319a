//! The table thread: the one writer of a switch's tables.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use api::{
    Digest,
    proto::{
        self, Ack, Acks, Command, Counters, Dropped, Flow, FromSwitch, HotKey, HotReports, Setup,
        Tuning, command, from_switch::Body, to_switch,
    },
};
use dataplane::{
    Cells, Event, Events, Home, Leases, NO_DISCIPLINE, Place, Sketches, Table, TenantEntry,
    Traffic, cells_needed,
};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};
use wire::{Cluster, KeyHash, OverRate, Secret, Secrets, TENANT_OPEN, TENANT_SYSTEM};

use super::{
    AgentError, TICK,
    epoch::Reservation,
    fetch::Courier,
    hot::Candidates,
    index::{Entry, Index},
    session::ToTables,
};

/// Values are taken to be this long until the first ones were seen.
const FIRST_VALUE_LEN: usize = 128;
/// How often counts of hot keys are looked at again.
const FOLLOW_UP: Duration = Duration::from_millis(100);
/// How often leases are looked at; the data plane renews them itself when stores offer to.
const LEASE_CHECK: Duration = Duration::from_millis(200);
const LEASE_LOW_MS: u64 = 700;
/// After so many a key is taken to have no value, and its entry is given up.
const FETCH_TRIES: u32 = 6;
const FETCH_FIRST_PAUSE: Duration = Duration::from_millis(40);
/// Fetches sent in one tick; the rest wait for the next.
const FETCHES_PER_TICK: usize = 1_000;
/// Keys in one message to the controller.
const KEYS_PER_MESSAGE: usize = 4_000;

/// What a setup says about one tenant.
pub(super) struct TenantHere {
    secrets: Secrets,
    /// Running mean of value lengths, for the room of new items.
    value_len: usize,
}

/// Keys are taken to be this long where it does not matter much.
const USUAL_KEY_LEN: usize = 16;

impl TenantHere {
    /// Cells of an item of the usual size.
    pub(super) fn usual_cells(&self) -> u8 {
        cells_needed(USUAL_KEY_LEN, self.value_len).unwrap_or(u8::MAX)
    }
}

struct Fetch {
    key: ItemKey,
    place: Place,
    due: Instant,
    tries: u32,
}

pub(super) struct Tables {
    home: Home,
    pub(super) table: Table,
    leases: Leases,
    sketches: Sketches,
    events: Events,
    pub(super) cells: Cells,
    pub(super) index: Index,
    traffic: Traffic,
    candidates: Candidates,
    courier: Courier,
    epochs: Reservation,
    numbers: Vec<(String, u32)>,
    cluster: Option<Cluster>,
    pub(super) tenants: HashMap<u32, TenantHere>,
    slots: HashMap<SocketAddr, u16>,
    /// Places of evicted items that programs may still be looking at.
    resting: Vec<Place>,
    /// Of everything in `index`.
    digest: Digest,
    /// Term and version of the page table in force, and the highest term heard of.
    pub(super) page_table: (u64, u64),
    pub(super) term: u64,
    /// A list of what is held is owed to the controller: the last one did not go out whole.
    owes_list: bool,
    /// Tenants whose pages were compacted in this window.
    pub(super) compacted: HashSet<u32>,
    fetches: VecDeque<Fetch>,
    window: Duration,
}

fn body(body: Body) -> FromSwitch {
    FromSwitch { body: Some(body) }
}

fn proto_key(key: &ItemKey) -> proto::Key {
    proto::Key {
        tenant: key.tenant,
        key: key.key.clone(),
    }
}

fn hot_keys(counts: &[(ItemKey, u64)]) -> Vec<HotKey> {
    let hot = |(key, count): &(ItemKey, u64)| HotKey {
        tenant: key.tenant,
        key: key.key.clone(),
        count: *count,
    };
    counts.iter().map(hot).collect()
}

impl Tables {
    pub fn open(
        home: &Home,
        id: u16,
        numbers: Vec<(String, u32)>,
        epochs: Reservation,
    ) -> Result<Tables, AgentError> {
        let table = Table::open(home)?;
        let before = table.switch_id();
        table.set_identity(id, epochs.start());
        let mut cells = Cells::new(table.pages());
        let index = Index::recover(&table, &mut cells);
        let mut digest = Digest::default();
        index.keys().for_each(|key| digest.add(key));
        let mut candidates = Candidates::default();
        candidates.begin(table.next_window());
        let mut tables = Tables {
            home: home.clone(),
            leases: Leases::open(home)?,
            sketches: Sketches::open(home)?,
            events: Events::open(home)?,
            traffic: Traffic::open(home)?,
            cells,
            index,
            candidates,
            courier: Courier::default(),
            epochs,
            numbers,
            cluster: None,
            tenants: HashMap::new(),
            slots: HashMap::new(),
            resting: vec![],
            digest,
            page_table: (0, 0),
            term: 0,
            owes_list: false,
            compacted: HashSet::new(),
            fetches: VecDeque::new(),
            window: Duration::from_secs(1),
            table,
        };
        if before != id {
            // Stores know the copies of an earlier id under that id; they could not call these back.
            let held: Vec<ItemKey> = tables.index.keys().cloned().collect();
            held.iter().for_each(|key| tables.evict(key));
        }
        Ok(tables)
    }

    /// Serves until the session is gone.
    pub fn serve(
        mut self,
        from_session: &Receiver<ToTables>,
        to_session: &Sender<FromSwitch>,
    ) -> Result<(), AgentError> {
        let now = Instant::now();
        let (mut tick, mut follow_up, mut lease_check) = (now, now, now);
        let mut window_end = now + self.window;
        loop {
            let wait = tick.saturating_duration_since(Instant::now());
            match from_session.recv_timeout(wait) {
                Ok(message) => self.take(message, to_session)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if now < tick {
                continue;
            }
            tick = now + TICK;
            self.look_at_events(to_session)?;
            if now >= follow_up {
                follow_up = now + FOLLOW_UP;
                let risen = self.candidates.risen(2.0, &self.sketches);
                self.report(&risen, to_session);
            }
            if now >= window_end {
                window_end = now + self.window;
                self.end_window(to_session);
            }
            if now >= lease_check {
                lease_check = now + LEASE_CHECK;
                self.ask_for_leases();
                self.epochs.keep_ahead(self.table.epoch())?;
            }
            self.send_fetches(now, to_session);
            if self.owes_list {
                self.tell_held(to_session);
            }
            self.courier.drain();
            self.reuse_resting()?;
        }
    }

    fn take(&mut self, message: ToTables, out: &Sender<FromSwitch>) -> Result<(), AgentError> {
        match message {
            ToTables::Attached => self.tell_held(out),
            ToTables::Message(message) => match message.body {
                Some(to_switch::Body::Setup(setup)) => self.set_up(&setup, out)?,
                Some(to_switch::Body::Commands(commands)) => {
                    let acks = self.obey(&commands.commands, out)?;
                    send(out, Body::Acks(Acks { acks }));
                }
                Some(to_switch::Body::Tuning(tuning)) => self.tune(&tuning)?,
                Some(to_switch::Body::Pages(table)) => self.take_page_table(&table, out)?,
                Some(to_switch::Body::ListHeld(_)) => self.tell_held(out),
                // The session's affair.
                Some(to_switch::Body::Routes(_)) => {}
                None => {}
            },
        }
        Ok(())
    }

    /// Lists everything that is held; if the queue has no room for all of it, later.
    fn tell_held(&mut self, out: &Sender<FromSwitch>) {
        let keys: Vec<proto::Key> = self.index.keys().map(proto_key).collect();
        let mut chunks: Vec<&[proto::Key]> = keys.chunks(KEYS_PER_MESSAGE).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        self.owes_list = true;
        let last = chunks.len() - 1;
        for (n, chunk) in chunks.into_iter().enumerate() {
            let part = proto::Held {
                keys: chunk.to_vec(),
                last: n == last,
            };
            if out.try_send(body(Body::Held(part))).is_err() {
                return;
            }
        }
        self.owes_list = false;
    }

    fn tune(&mut self, tuning: &Tuning) -> Result<(), AgentError> {
        let thresholds: Vec<(u32, [u32; 2])> = tuning
            .thresholds
            .iter()
            .map(|t| (t.tenant, [t.hot_threshold.max(1), 0]))
            .collect();
        Ok(TenantEntry::set_parameters(&self.home, &thresholds)?)
    }

    fn set_up(&mut self, setup: &Setup, out: &Sender<FromSwitch>) -> Result<(), AgentError> {
        if setup.term < self.term {
            warn!("a controller that does not lead any longer sent a setup: left out");
            return Ok(());
        }
        let cluster = match Cluster::parse(&setup.cluster) {
            Ok(cluster) => cluster,
            Err(e) => {
                warn!("the controller sent a setup that cannot be used, the old one stays: {e}");
                return Ok(());
            }
        };
        self.window = Duration::from_millis(u64::from(setup.window_ms.clamp(100, 60_000)));
        self.term = setup.term;
        self.table.set_sampling(setup.sample_shift);
        self.slots.clear();
        for store in &cluster.stores {
            match self.leases.slot_of(store.address) {
                Some(slot) => {
                    self.slots.insert(store.address, slot);
                }
                None => warn!(
                    "no lease slot left for store {}: its items are not cached",
                    store.address
                ),
            }
        }
        let entries = self.tenant_entries(setup, &cluster);
        TenantEntry::install(&self.home, &entries)?;
        let known = |setup: &proto::TenantSetup| {
            let secrets = cluster.secrets_of(setup.tenant)?;
            let value_len = self
                .tenants
                .get(&setup.tenant)
                .map_or(FIRST_VALUE_LEN, |t| t.value_len);
            Some((setup.tenant, TenantHere { secrets, value_len }))
        };
        self.tenants = setup.tenants.iter().filter_map(known).collect();
        self.cluster = Some(cluster);
        self.drop_misplaced(out);
        info!(
            "set up: {} tenants, {} stores",
            self.tenants.len(),
            self.slots.len()
        );
        self.ask_for_leases();
        Ok(())
    }

    /// Entries of tenants that have gone, or whose key now hashes elsewhere or belongs to another store,
    /// would never be found, granted or called back again.
    fn drop_misplaced(&mut self, out: &Sender<FromSwitch>) {
        let right = |key: &ItemKey, entry: &Entry| {
            self.hash_of(key).is_some_and(|hash| {
                self.table.leads_to(entry.slot, key.tenant, hash)
                    && self.lease_for(key.tenant, hash) == Some(entry.lease)
            })
        };
        let wrong = self.index.iter().filter(|(key, entry)| !right(key, entry));
        let wrong: Vec<ItemKey> = wrong.map(|(key, _)| key.clone()).collect();
        if !wrong.is_empty() {
            info!(
                "{} items do not fit the new setup and are dropped",
                wrong.len()
            );
        }
        self.give_up(&wrong, out);
    }

    fn tenant_entries(&self, setup: &Setup, cluster: &Cluster) -> Vec<TenantEntry> {
        let number = |name: &str| {
            self.numbers
                .iter()
                .find(|(known, _)| known == name)
                .map_or(NO_DISCIPLINE, |(_, n)| *n)
        };
        let mut entries = vec![];
        for tenant in &setup.tenants {
            let Some(secrets) = cluster.secrets_of(tenant.tenant) else {
                continue;
            };
            let listed = cluster.tenant(tenant.tenant);
            entries.push(TenantEntry {
                id: tenant.tenant,
                secret: secrets.tag,
                also_secret: secrets.also,
                rate: listed.map_or(0, |t| t.rate),
                drop_over_rate: listed.is_some_and(|t| t.over_rate == OverRate::Drop),
                discipline: number(&tenant.discipline),
                parameters: [tenant.hot_threshold.max(1), 0],
                measured: tenant.measured,
            });
        }
        entries.push(TenantEntry {
            id: TENANT_SYSTEM,
            secret: cluster.secret_of(TENANT_SYSTEM).unwrap_or(Secret::NONE),
            also_secret: Secret::NONE,
            rate: 0,
            drop_over_rate: false,
            measured: false,
            parameters: [1, 0],
            discipline: NO_DISCIPLINE,
        });
        debug_assert!(cluster.open_tenant || entries.iter().all(|e| e.id != TENANT_OPEN));
        entries
    }

    /// Evictions first: their cells are then free for the insertions.
    fn obey(
        &mut self,
        commands: &[Command],
        out: &Sender<FromSwitch>,
    ) -> Result<Vec<Ack>, AgentError> {
        let key_of = |key: &proto::Key| ItemKey {
            tenant: key.tenant,
            key: key.key.clone(),
        };
        let mut acks = Vec::with_capacity(commands.len());
        for command in commands {
            if let Some(command::Body::Evict(key)) = &command.body {
                self.evict(&key_of(key));
                acks.push(Ack {
                    seq: command.seq,
                    outcome: proto::Outcome::Done.into(),
                });
            }
        }
        for command in commands {
            if let Some(command::Body::Insert(key)) = &command.body {
                let outcome = self.insert(key_of(key), None, out)?;
                acks.push(Ack {
                    seq: command.seq,
                    outcome: outcome.into(),
                });
            }
        }
        Ok(acks)
    }

    pub(super) fn evict(&mut self, key: &ItemKey) {
        if let Some(entry) = self.index.remove(key) {
            self.digest.remove(key);
            self.table.evict(entry.slot);
            self.resting.push(entry.place);
        }
    }

    /// Evicts items of our own accord, and tells the controller.
    pub(super) fn give_up(&mut self, keys: &[ItemKey], out: &Sender<FromSwitch>) {
        keys.iter().for_each(|key| self.evict(key));
        self.tell_dropped(keys, out);
    }

    pub(super) fn tell_dropped(&self, keys: &[ItemKey], out: &Sender<FromSwitch>) {
        for part in keys.chunks(KEYS_PER_MESSAGE) {
            let keys = part.iter().map(proto_key).collect();
            send(out, Body::Dropped(Dropped { keys }));
        }
    }

    /// After this no program can see what was evicted, and its cells are free.
    pub(super) fn reuse_resting(&mut self) -> Result<(), AgentError> {
        if self.resting.is_empty() {
            return Ok(());
        }
        self.table.quiesce()?;
        for place in self.resting.drain(..) {
            self.cells.give_back(place);
        }
        Ok(())
    }

    fn hash_of(&self, key: &ItemKey) -> Option<KeyHash> {
        let tenant = self.tenants.get(&key.tenant)?;
        Some(tenant.secrets.hash.key_hash(key.tenant, &key.key))
    }

    /// The slot of the lease under which a key's copies live.
    fn lease_for(&self, tenant: u32, hash: KeyHash) -> Option<u16> {
        self.slots
            .get(&self.cluster.as_ref()?.store_of(tenant, hash).address)
            .copied()
    }

    fn insert(
        &mut self,
        key: ItemKey,
        value_len: Option<usize>,
        out: &Sender<FromSwitch>,
    ) -> Result<proto::Outcome, AgentError> {
        if self.index.get(&key).is_some() {
            return Ok(proto::Outcome::Done);
        }
        let (Some(hash), Some(tenant)) = (self.hash_of(&key), self.tenants.get(&key.tenant)) else {
            return Ok(proto::Outcome::Refused);
        };
        let cells = cells_needed(key.key.len(), value_len.unwrap_or(tenant.value_len));
        let (Some(cells), Some(_)) = (cells, self.lease_for(key.tenant, hash)) else {
            return Ok(proto::Outcome::Refused);
        };
        if !(1..=wire::MAX_KEY).contains(&key.key.len()) {
            return Ok(proto::Outcome::Refused);
        }
        let Some(place) = self.place(key.tenant, cells, out)? else {
            return Ok(proto::Outcome::NoRoom);
        };
        if !self.put(key.clone(), place) {
            self.make_way(key.tenant, hash, out);
            if !self.put(key, place) {
                self.cells.give_back(place);
                return Ok(proto::Outcome::BucketFull);
            }
        }
        Ok(proto::Outcome::Done)
    }

    /// Room for an item on its tenant's pages, made if need be.
    fn place(
        &mut self,
        tenant: u32,
        cells: u8,
        out: &Sender<FromSwitch>,
    ) -> Result<Option<Place>, AgentError> {
        let mut place = self.cells.take(tenant, cells);
        if place.is_none() && !self.resting.is_empty() {
            self.reuse_resting()?;
            place = self.cells.take(tenant, cells);
        }
        if place.is_none() && self.compact(tenant, cells, out)? {
            place = self.cells.take(tenant, cells);
        }
        Ok(place)
    }

    /// Makes the entry of an item that has its place, and fetches its value; false if its bucket is full.
    pub(super) fn put(&mut self, key: ItemKey, place: Place) -> bool {
        let Some(hash) = self.hash_of(&key) else {
            return false;
        };
        let Some(lease) = self.lease_for(key.tenant, hash) else {
            return false;
        };
        let Ok(slot) = self.table.insert(key.tenant, hash, &key.key, lease, place) else {
            return false;
        };
        let requests = self.table.requests(slot);
        self.candidates.forget(&key);
        self.fetches.push_back(Fetch {
            key: key.clone(),
            place,
            due: Instant::now(),
            tries: 0,
        });
        self.digest.add(&key);
        let entry = Entry {
            slot,
            place,
            lease,
            requests,
        };
        self.index.add(key, entry);
        true
    }

    /// Evicts the coldest of the entries that share a full bucket: the controller cannot know them.
    fn make_way(&mut self, tenant: u32, hash: KeyHash, out: &Sender<FromSwitch>) {
        let requests = |slot: &u32| {
            let key = self.index.key_in(*slot)?;
            let seen = self.index.get(key)?.requests;
            Some((self.table.requests(*slot).wrapping_sub(seen), key.clone()))
        };
        let coldest = self
            .table
            .neighbours(tenant, hash)
            .filter_map(|slot| requests(&slot))
            .min();
        if let Some((_, key)) = coldest {
            self.give_up(&[key], out);
        }
    }

    fn look_at_events(&mut self, out: &Sender<FromSwitch>) -> Result<(), AgentError> {
        let events: Vec<Event> = self.events.drain()?.collect();
        let mut hot = vec![];
        for event in events {
            match event {
                Event::Hot {
                    tenant,
                    key,
                    window,
                    ..
                } => {
                    let key = ItemKey {
                        tenant,
                        key: key.into(),
                    };
                    // The hash is made anew: what a packet claims could hide an entry from writes.
                    if let Some(hash) = self.hash_of(&key)
                        && self.index.get(&key).is_none()
                        && let Some(count) =
                            self.candidates.report(&key, hash, window, &self.sketches)
                    {
                        hot.push((key, count));
                    }
                }
                Event::TooLarge {
                    tenant,
                    key,
                    value_len,
                } => {
                    let key = ItemKey {
                        tenant,
                        key: key.into(),
                    };
                    self.make_larger(key, usize::from(value_len), out)?;
                }
            }
        }
        self.report(&hot, out);
        Ok(())
    }

    /// Gives an item the room that its value turned out to need.
    fn make_larger(
        &mut self,
        key: ItemKey,
        value_len: usize,
        out: &Sender<FromSwitch>,
    ) -> Result<(), AgentError> {
        let Some(has) = self.index.get(&key).map(|entry| entry.place.cells) else {
            return Ok(());
        };
        self.learn_value_len(key.tenant, value_len);
        let is_enough = |cells| has >= cells;
        if cells_needed(key.key.len(), value_len).is_some_and(is_enough) {
            return Ok(()); // replaced since the event
        }
        self.evict(&key);
        if self.insert(key.clone(), Some(value_len), out)? != proto::Outcome::Done {
            self.give_up(&[key], out);
        }
        Ok(())
    }

    fn learn_value_len(&mut self, tenant: u32, value_len: usize) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.value_len = (tenant.value_len * 7 + value_len).div_ceil(8);
        }
    }

    fn report(&self, counts: &[(ItemKey, u64)], out: &Sender<FromSwitch>) {
        let window = u64::from(self.table.window());
        for chunk in counts.chunks(KEYS_PER_MESSAGE) {
            send(
                out,
                Body::Hot(HotReports {
                    window,
                    keys: hot_keys(chunk),
                }),
            );
        }
    }

    fn end_window(&mut self, out: &Sender<FromSwitch>) {
        let window = self.table.window();
        let risen = self.candidates.risen(1.0, &self.sketches);
        self.report(&risen, out);
        let (table, mut by_page) = (&self.table, BTreeMap::new());
        let in_window = |(key, entry): (&ItemKey, &mut Entry)| {
            let requests = table.requests(entry.slot);
            let new = requests.wrapping_sub(entry.requests);
            entry.requests = requests;
            *by_page.entry(entry.place.page).or_default() += u64::from(new);
            (new > 0).then(|| (key.clone(), u64::from(new)))
        };
        let counts: Vec<(ItemKey, u64)> = self.index.iter_mut().filter_map(in_window).collect();
        self.fetch_missing(&counts);
        self.compacted.clear();
        let counters = Counters {
            window: u64::from(window),
            window_ms: self.window.as_millis() as u32,
            items: hot_keys(&counts),
            pages: self.page_use(&by_page),
            tenants: self.tenant_use(),
            held: Some(proto::Digest {
                count: self.digest.count,
                sum: self.digest.sum,
            }),
        };
        send(out, Body::Counters(counters));
        self.confirm_pages(out);
        self.tell_traffic(out);
        self.candidates.begin(self.table.next_window());
    }

    fn tell_traffic(&mut self, out: &Sender<FromSwitch>) {
        let flows = match self.traffic.drain() {
            Ok(flows) => flows,
            Err(e) => return debug!("traffic by client and store: {e}"),
        };
        let flow = |f: &dataplane::FlowCount| Flow {
            tenant: f.tenant,
            client: f.client.octets().to_vec().into(),
            store: f.store.octets().to_vec().into(),
            requests: f.requests,
        };
        if !flows.is_empty() {
            let flows = flows.iter().map(flow).collect();
            send(out, Body::Traffic(proto::Traffic { flows }));
        }
    }

    /// Entries that are read but hold no value (their key was deleted, say) get another try, then go.
    fn fetch_missing(&mut self, read: &[(ItemKey, u64)]) {
        if !self.fetches.is_empty() {
            return;
        }
        let due = Instant::now();
        for (key, _) in read {
            let Some(Entry { place, lease, .. }) = self.index.get(key) else {
                continue;
            };
            if self
                .table
                .wants_value(*place, self.leases.floor(*lease))
                .is_some()
            {
                let tries = FETCH_TRIES / 2;
                self.fetches.push_back(Fetch {
                    key: key.clone(),
                    place: *place,
                    due,
                    tries,
                });
            }
        }
    }

    fn ask_for_leases(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let secret = cluster.secret_of(TENANT_SYSTEM).unwrap_or(Secret::NONE);
        let switch = self.table.switch_id();
        for (store, slot) in &self.slots {
            if self.leases.state(*slot).remaining_ms < LEASE_LOW_MS {
                let now_ns = self.leases.now_ns();
                self.courier
                    .ask_for_lease(*store, switch, *slot, now_ns, &secret);
            }
        }
    }

    /// Fetches values of new entries until they are there; reads would fetch them too, but later.
    fn send_fetches(&mut self, now: Instant, out: &Sender<FromSwitch>) {
        let Some(cluster) = &self.cluster else { return };
        let (mut again, mut without_value) = (vec![], vec![]);
        for _ in 0..self.fetches.len().min(FETCHES_PER_TICK) {
            let Some(fetch) = self.fetches.pop_front() else {
                break;
            };
            let Some(entry) = self
                .index
                .get(&fetch.key)
                .filter(|e| e.place == fetch.place)
            else {
                continue;
            };
            let floor = self.leases.floor(entry.lease);
            let Some(epoch) = self.table.wants_value(fetch.place, floor) else {
                continue;
            };
            if fetch.due > now {
                again.push(fetch);
                continue;
            }
            if fetch.tries >= FETCH_TRIES {
                without_value.push(fetch.key);
                continue;
            }
            if let Some(tenant) = self.tenants.get(&fetch.key.tenant) {
                let hash = tenant
                    .secrets
                    .hash
                    .key_hash(fetch.key.tenant, &fetch.key.key);
                let store = cluster.store_of(fetch.key.tenant, hash).address;
                self.courier
                    .fetch(store, &fetch.key, hash, epoch, &tenant.secrets.tag);
            }
            let (due, tries) = (
                now + FETCH_FIRST_PAUSE * (1 << fetch.tries),
                fetch.tries + 1,
            );
            again.push(Fetch {
                due,
                tries,
                ..fetch
            });
        }
        self.fetches.extend(again);
        self.give_up(&without_value, out);
    }
}

/// To the session, unless it cannot keep up: every report is made again in the next window, every command
/// without an acknowledgement is repeated.
pub(super) fn send(out: &Sender<FromSwitch>, message: Body) {
    if out.try_send(body(message)).is_err() {
        debug!("a message to the controller was left out: no stream, or a slow one");
    }
}
