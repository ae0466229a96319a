//! The table thread: the one writer of a switch's tables.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use dataplane::{
    Cells, Event, Events, Home, InsertError, Leases, Place, Sketches, Table, TenantEntry,
    cells_needed,
};
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};
use wire::{Cluster, KeyHash, Secret, TENANT_OPEN, TENANT_SYSTEM};

use super::{
    AgentError, TICK,
    epoch::Reservation,
    fetch::Courier,
    hot::Candidates,
    index::{Entry, Index},
    session::ToTables,
};
use crate::{
    ItemKey,
    proto::{
        self, Ack, Acks, Command, Counters, Dropped, FromSwitch, HotKey, HotReports, Setup,
        command, from_switch::Body, to_switch,
    },
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
/// A discipline's number for tenants that only get forwarded.
const NO_DISCIPLINE: u32 = 15;

/// What a setup says about one tenant.
struct TenantHere {
    secret: Secret,
    pages: u32,
    /// Running mean of value lengths, for the room of new items.
    value_len: usize,
}

struct Fetch {
    key: ItemKey,
    place: Place,
    due: Instant,
    tries: u32,
}

pub(super) struct Tables {
    home: Home,
    table: Table,
    leases: Leases,
    sketches: Sketches,
    events: Events,
    cells: Cells,
    index: Index,
    candidates: Candidates,
    courier: Courier,
    epochs: Reservation,
    numbers: Vec<(String, u32)>,
    cluster: Option<Cluster>,
    tenants: HashMap<u32, TenantHere>,
    slots: HashMap<SocketAddr, u16>,
    /// Places of evicted items that programs may still be looking at.
    resting: Vec<Place>,
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
        if table.hot_threshold() == 0 {
            table.set_sampling(2, 0);
        }
        let mut cells = Cells::new(table.pages());
        let index = Index::recover(&table, &mut cells);
        let mut candidates = Candidates::default();
        candidates.begin(table.next_window());
        let mut tables = Tables {
            home: home.clone(),
            leases: Leases::open(home)?,
            sketches: Sketches::open(home)?,
            events: Events::open(home)?,
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
                Some(to_switch::Body::Tuning(tuning)) => {
                    let least = tuning.thresholds.iter().map(|t| t.hot_threshold).min();
                    self.table.set_sampling(least.unwrap_or(2), 0)
                }
                Some(_) => {}
                None => {}
            },
        }
        Ok(())
    }

    fn tell_held(&self, out: &Sender<FromSwitch>) {
        let keys: Vec<proto::Key> = self.index.keys().map(proto_key).collect();
        let mut chunks = keys.chunks(KEYS_PER_MESSAGE).peekable();
        if chunks.peek().is_none() {
            send(
                out,
                Body::Held(proto::Held {
                    keys: vec![],
                    last: true,
                }),
            );
        }
        while let Some(chunk) = chunks.next() {
            let last = chunks.peek().is_none();
            send(
                out,
                Body::Held(proto::Held {
                    keys: chunk.to_vec(),
                    last,
                }),
            );
        }
    }

    fn set_up(&mut self, setup: &Setup, out: &Sender<FromSwitch>) -> Result<(), AgentError> {
        let cluster = match Cluster::parse(&setup.cluster) {
            Ok(cluster) => cluster,
            Err(e) => {
                warn!("the controller sent a setup that cannot be used, the old one stays: {e}");
                return Ok(());
            }
        };
        self.window = Duration::from_millis(u64::from(setup.window_ms.clamp(100, 60_000)));
        self.table.set_sampling(
            setup
                .tenants
                .iter()
                .map(|t| t.hot_threshold)
                .min()
                .unwrap_or(2),
            setup.sample_shift,
        );
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
            let secret = cluster.secret_of(setup.tenant)?;
            let value_len = self
                .tenants
                .get(&setup.tenant)
                .map_or(FIRST_VALUE_LEN, |t| t.value_len);
            Some((
                setup.tenant,
                TenantHere {
                    secret,
                    pages: self.table.pages(),
                    value_len,
                },
            ))
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
            let Some(secret) = cluster.secret_of(tenant.tenant) else {
                continue;
            };
            let rate = cluster
                .tenants
                .iter()
                .find(|t| t.id == tenant.tenant)
                .map_or(0, |t| t.rate);
            let (id, discipline) = (tenant.tenant, number(&tenant.discipline));
            entries.push(TenantEntry {
                id,
                secret,
                rate,
                drop_over_rate: false,
                discipline,
            });
        }
        let secret = cluster.secret_of(TENANT_SYSTEM).unwrap_or(Secret::NONE);
        entries.push(TenantEntry {
            id: TENANT_SYSTEM,
            secret,
            rate: 0,
            drop_over_rate: false,
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

    fn evict(&mut self, key: &ItemKey) {
        if let Some(entry) = self.index.remove(key) {
            self.table.evict(entry.slot);
            self.resting.push(entry.place);
        }
    }

    /// Evicts items of our own accord, and tells the controller.
    fn give_up(&mut self, keys: &[ItemKey], out: &Sender<FromSwitch>) {
        if keys.is_empty() {
            return;
        }
        keys.iter().for_each(|key| self.evict(key));
        let keys = keys.iter().map(proto_key).collect();
        send(out, Body::Dropped(Dropped { keys }));
    }

    /// After this no program can see what was evicted, and its cells are free.
    fn reuse_resting(&mut self) -> Result<(), AgentError> {
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
        Some(tenant.secret.key_hash(key.tenant, &key.key))
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
        let (Some(cells), Some(lease)) = (cells, self.lease_for(key.tenant, hash)) else {
            return Ok(proto::Outcome::Refused);
        };
        if !(1..=wire::MAX_KEY).contains(&key.key.len()) {
            return Ok(proto::Outcome::Refused);
        }
        let quota = tenant.pages;
        let mut place = self.cells.take(key.tenant, quota, cells);
        if place.is_none() && !self.resting.is_empty() {
            self.reuse_resting()?;
            place = self.cells.take(key.tenant, quota, cells);
        }
        let Some(place) = place else {
            return Ok(proto::Outcome::NoRoom);
        };
        let mut slot = self.table.insert(key.tenant, hash, &key.key, lease, place);
        if slot == Err(InsertError::BucketFull) {
            self.make_way(key.tenant, hash, out);
            slot = self.table.insert(key.tenant, hash, &key.key, lease, place);
        }
        match slot {
            Ok(slot) => {
                let requests = self.table.requests(slot);
                self.candidates.forget(&key);
                let due = Instant::now();
                self.fetches.push_back(Fetch {
                    key: key.clone(),
                    place,
                    due,
                    tries: 0,
                });
                self.index.add(
                    key,
                    Entry {
                        slot,
                        place,
                        lease,
                        requests,
                    },
                );
                Ok(proto::Outcome::Done)
            }
            Err(_) => {
                self.cells.give_back(place);
                Ok(proto::Outcome::BucketFull)
            }
        }
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
        let table = &self.table;
        let in_window = |(key, entry): (&ItemKey, &mut Entry)| {
            let requests = table.requests(entry.slot);
            let new = requests.wrapping_sub(entry.requests);
            entry.requests = requests;
            (new > 0).then(|| (key.clone(), u64::from(new)))
        };
        let counts: Vec<(ItemKey, u64)> = self.index.iter_mut().filter_map(in_window).collect();
        self.fetch_missing(&counts);
        let window_ms = self.window.as_millis() as u32;
        send(
            out,
            Body::Counters(Counters {
                window: u64::from(window),
                window_ms,
                items: hot_keys(&counts),
                pages: vec![],
            }),
        );
        self.candidates.begin(self.table.next_window());
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
                let hash = tenant.secret.key_hash(fetch.key.tenant, &fetch.key.key);
                let store = cluster.store_of(fetch.key.tenant, hash).address;
                self.courier
                    .fetch(store, &fetch.key, hash, epoch, &tenant.secret);
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
fn send(out: &Sender<FromSwitch>, message: Body) {
    if out.try_send(body(message)).is_err() {
        debug!("a message to the controller was left out: no stream, or a slow one");
    }
}
