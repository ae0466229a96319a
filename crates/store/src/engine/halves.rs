//! The halves of disciplines in the store: their operations and messages go in, what they want done is done.
//!
//! Cost: what the half does, and a place in the table of open requests with a copy of the key.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{MESSAGE_MAX, Request, StoreAction, StoreEvent, StoreHalf};
use wire::{Header, Op, Packet, Status, TENANT_SYSTEM};

use super::{Engine, reply::Origin, waiting::Asked};
use crate::{
    backend::{Answer, Found, Key},
    coherence::{Nanos, Proceeds},
    config::Half,
    net::{Outbox, Peer},
    reports::Reports,
    shares::Shares,
};

/// Requests that halves may have open at once; what comes on top is dropped.
pub(super) const MAX_OPEN: usize = 16_384;
/// A request that is not answered for so long is forgotten.
const PATIENCE_NS: Nanos = 1_000_000_000;
/// From one tick to the next.
const TICK_NS: Nanos = 100_000_000;

/// Why a half cannot be told something.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TellError {
    /// This store runs no half of that discipline.
    #[error("no half of discipline {0:?} runs in this store: is it of the controller's build?")]
    Half(String),
    /// The store does not know the tenant.
    #[error("tenant {0} is not known to this store, or not yet")]
    Tenant(u32),
    /// Nobody is there to take it.
    #[error("the store has ended")]
    Ended,
}

/// A request that its half has not answered yet.
struct Open {
    half: usize,
    origin: Origin,
    key: Box<[u8]>,
    since_ns: Nanos,
}

/// Every half that runs here, and what they have under way.
pub(super) struct Halves {
    registered: Vec<Half>,
    /// Of each registered one.
    made: Vec<Box<dyn StoreHalf>>,
    /// In the order in which they came.
    open: BTreeMap<Request, Open>,
    /// Of the room for them, by tenants: one whose requests are answered late leaves the others theirs.
    shares: Shares,
    /// The newest request.
    newest: Request,
    next_tick_ns: Nanos,
    reports: Reports,
    /// Tenants whose reads a half is told of.
    watched: BTreeMap<u32, usize>,
}

impl Halves {
    pub fn new(registered: &[Half], tenants: usize) -> Halves {
        Halves {
            registered: registered.into(),
            made: registered.iter().map(|half| (half.maker.make)()).collect(),
            open: BTreeMap::new(),
            shares: Shares::new(MAX_OPEN, tenants),
            newest: 0,
            next_tick_ns: 0,
            reports: Reports::default(),
            watched: BTreeMap::new(),
        }
    }

    /// The half that takes an op.
    fn taking(&self, op: Op) -> Option<usize> {
        let takes = |half: &Half| half.maker.operations.contains(&op);
        self.registered.iter().position(takes)
    }

    /// Ends a request of a half; `None` if it is not open, or another's.
    fn close(&mut self, half: usize, request: Request) -> Option<Open> {
        self.open.get(&request).filter(|open| open.half == half)?;
        self.remove(request)
    }

    fn remove(&mut self, request: Request) -> Option<Open> {
        let open = self.open.remove(&request)?;
        self.shares.give_back(open.origin.tenant, 1);
        Some(open)
    }

    /// From now on so many tenants share the room for open requests.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    pub fn next_ns(&self) -> Option<Nanos> {
        (!self.made.is_empty()).then_some(self.next_tick_ns)
    }
}

impl Engine {
    /// A packet with an op that is not the store's own.
    pub(super) fn operation(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        peer: Peer,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let Some(half) = self.halves.taking(packet.header.op) else {
            self.counters.dropped_op += 1;
            return;
        };
        let foreign = self.halves.registered[half].maker.foreign_partitions;
        let Some((origin, owned)) = self.admit(packet, room, peer, foreign, now_ns, out) else {
            return;
        };
        if !self.halves.shares.has_room(origin.tenant) {
            self.counters.dropped_discipline_busy += 1;
            return;
        }
        self.counters.discipline_requests += 1;
        self.halves.shares.take(origin.tenant, 1);
        self.halves.newest += 1;
        let request = self.halves.newest;
        let open = Open {
            half,
            origin,
            key: packet.key.into(),
            since_ns: now_ns,
        };
        self.halves.open.insert(request, open);
        let event = StoreEvent::Request {
            request,
            from: peer.address,
            header: &packet.header,
            key: packet.key,
            value: packet.value,
            owned,
        };
        self.happened(half, event, now_ns, out);
    }

    /// A read of a key that is ours; a half may want to know. One look-up among the watched tenants, usually none.
    pub(super) fn watch_read(&mut self, key: Key<'_>, now_ns: u64, out: &mut Outbox) {
        if let Some(&half) = self.halves.watched.get(&key.tenant) {
            let event = StoreEvent::Read {
                tenant: key.tenant,
                key: key.bytes,
                hash: key.hash,
            };
            self.happened(half, event, now_ns, out);
        }
    }

    /// The controller sends a half a message.
    ///
    /// # Errors
    /// [`TellError`]; the half is not told then.
    pub fn tell(
        &mut self,
        name: &str,
        tenant: u32,
        message: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> Result<(), TellError> {
        let named = |half: &Half| half.name == name;
        let half = self.halves.registered.iter().position(named);
        let half = half.ok_or_else(|| TellError::Half(name.into()))?;
        self.tenants.get(tenant).ok_or(TellError::Tenant(tenant))?;
        self.counters.discipline_told += 1;
        self.happened(half, StoreEvent::Told { tenant, message }, now_ns, out);
        Ok(())
    }

    /// Takes what halves have reported since the last time.
    pub fn take_reports(&self) -> Vec<crate::Report> {
        self.halves.reports.take_now()
    }

    /// What was taken may be lost: the newest about each tenant is to be taken again.
    pub fn report_again(&self) {
        self.halves.reports.again();
    }

    /// Where reports of halves can be had.
    pub(crate) fn reports(&self) -> Reports {
        self.halves.reports.clone()
    }

    /// Forgets requests that were not answered, and lets the halves know that time passes.
    pub(super) fn tick_halves(&mut self, now_ns: u64, out: &mut Outbox) {
        if self.halves.next_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        self.halves.next_tick_ns = now_ns + TICK_NS;
        while let Some((&oldest, open)) = self.halves.open.first_key_value()
            && open.since_ns + PATIENCE_NS <= now_ns
        {
            self.halves.remove(oldest);
            self.counters.discipline_unanswered += 1;
        }
        for half in 0..self.halves.made.len() {
            self.happened(half, StoreEvent::Tick, now_ns, out);
        }
    }

    /// Tenants are gone, and with them what halves have and do for them.
    pub(super) fn tenants_left(&mut self, gone: &BTreeSet<u32>, now_ns: u64, out: &mut Outbox) {
        let Halves { open, shares, .. } = &mut self.halves;
        open.retain(|_, open| {
            let stays = !gone.contains(&open.origin.tenant);
            shares.give_back(open.origin.tenant, usize::from(!stays));
            stays
        });
        self.halves
            .watched
            .retain(|tenant, _| !gone.contains(tenant));
        for half in 0..self.halves.made.len() {
            for &tenant in gone {
                self.happened(half, StoreEvent::Left { tenant }, now_ns, out);
            }
        }
        self.halves.reports.forget(gone);
    }

    /// The backend has answered what was read for a half, later. If it failed the request ends here.
    pub(super) fn read_for_half(
        &mut self,
        request: Request,
        found: Found,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let Some(half) = self.halves.open.get(&request).map(|open| open.half) else {
            return;
        };
        let value = match &found {
            // Halves are told of values that go in one packet only.
            Found::Item(item) if item.value.len() > wire::max_value(0) => Err(Status::TooLarge),
            Found::Item(item) => Ok(Some((&item.value[..], item.version))),
            Found::TooLarge(_) => Err(Status::TooLarge),
            Found::Absent => Ok(None),
            Found::Failed => Err(Status::BackendError),
        };
        let status = match value {
            Ok(value) => {
                return self.happened(half, StoreEvent::Value { request, value }, now_ns, out);
            }
            Err(status) => status,
        };
        self.refuse_half(half, request, status, now_ns, out);
    }

    /// What a half wanted to read cannot be had: its request ends here.
    fn refuse_half(
        &mut self,
        half: usize,
        request: Request,
        status: Status,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        match status {
            Status::TooLarge => self.counters.refused_too_large += 1,
            _ => self.counters.backend_errors += 1,
        }
        if let Some(Open { origin, key, .. }) = self.halves.close(half, request) {
            self.replies.refuse(&origin, &key, status, now_ns, out);
        }
    }

    /// Lets a half decide, and does what it wants.
    fn happened(&mut self, half: usize, event: StoreEvent<'_>, now_ns: u64, out: &mut Outbox) {
        let mut actions = Vec::new();
        let now = self.since_start(now_ns);
        self.halves.made[half].on(now, event, &mut actions);
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                let done = match action {
                    StoreAction::Reply {
                        request,
                        header,
                        value,
                    } => self.reply_for(half, request, header, &value, now_ns, out),
                    StoreAction::Read { request } => {
                        self.start_read(half, request, now_ns, &mut actions, out)
                    }
                    StoreAction::Send {
                        to,
                        header,
                        key,
                        value,
                    } => {
                        let peer = Peer {
                            address: to,
                            local: None,
                        };
                        self.send_for(peer, header, &key, &value, out)
                    }
                    StoreAction::Watch { tenant, on } => self.watch(half, tenant, on),
                    StoreAction::Hold { tenant, key } => {
                        let may = self.halves.registered[half].maker.holds_copies;
                        may && self.hold_replica(tenant, &key, now_ns, out)
                    }
                    StoreAction::Release { tenant, key } => {
                        self.release_replica(tenant, &key, now_ns, out)
                    }
                    StoreAction::Confirm { tenant } => self.confirm_replicas(tenant, now_ns),
                    StoreAction::Report { tenant, report } => {
                        let done =
                            report.len() <= MESSAGE_MAX && self.tenants.get(tenant).is_some();
                        if done {
                            self.counters.discipline_reports += 1;
                            let name = self.halves.registered[half].name;
                            self.halves.reports.put(name, tenant, report);
                        }
                        done
                    }
                };
                self.counters.discipline_refused += u64::from(!done);
            }
        }
    }

    /// A half wants to be told of a tenant's reads, or no longer. False if another is told of them, or there is no such tenant.
    fn watch(&mut self, half: usize, tenant: u32, on: bool) -> bool {
        let watched = &mut self.halves.watched;
        if watched.get(&tenant).is_some_and(|other| *other != half) {
            return false;
        }
        if !on {
            watched.remove(&tenant);
            return true;
        }
        let known = self.tenants.get(tenant).is_some();
        if known {
            watched.insert(tenant, half);
        }
        known
    }

    /// Answers a request for a half. False if there is none such, or the answer is no packet.
    fn reply_for(
        &mut self,
        half: usize,
        request: Request,
        mut header: Header,
        mut value: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some(Open { origin, key, .. }) = self.halves.close(half, request) else {
            return false;
        };
        if value.len() > wire::max_value(key.len()) {
            return false;
        }
        if !origin.allows(&key, value.len()) {
            self.counters.need_padding += 1;
            header.status = Status::NeedPadding;
            header.total = value.len() as u32;
            value = &[];
        }
        let sent = self
            .replies
            .send_as(header, &origin, &key, value, now_ns, out);
        self.counters.discipline_replies += u64::from(sent);
        sent
    }

    /// Reads a request's key for its half; what is there at once is told at once. False if there is no such request.
    fn start_read(
        &mut self,
        half: usize,
        request: Request,
        now_ns: u64,
        actions: &mut Vec<StoreAction>,
        out: &mut Outbox,
    ) -> bool {
        let now = self.since_start(now_ns);
        let open = self.halves.open.get(&request);
        let Some(open) = open.filter(|open| open.half == half) else {
            return false;
        };
        if !self.waiting.has_room(open.origin.tenant) {
            self.counters.dropped_backend_busy += 1;
            self.halves.remove(request);
            return true;
        }
        let id = (open.origin.tenant, open.origin.key_hash);
        if self.loans.proceeds(&id) == Proceeds::Away {
            self.recall_loan(id, now_ns, out);
            self.refuse_half(half, request, Status::TryAgain, now_ns, out);
            return true;
        }
        self.counters.discipline_reads += 1;
        self.ticket += 1;
        let key = Key {
            tenant: open.origin.tenant,
            hash: open.origin.key_hash,
            bytes: &open.key,
        };
        match self.backend.get(key, now_ns, self.ticket) {
            Answer::Now(Some(item)) if item.value.len() > wire::max_value(0) => {
                self.refuse_half(half, request, Status::TooLarge, now_ns, out);
            }
            Answer::Now(found) => {
                let value = found.map(|item| (item.value, item.version));
                self.halves.made[half].on(now, StoreEvent::Value { request, value }, actions);
            }
            Answer::Later => {
                let asked = Asked::Half(request, key.tenant);
                self.waiting.insert(self.ticket, asked);
            }
        }
        true
    }

    /// Sends a packet in a tenant's name. False if it is none.
    fn send_for(
        &mut self,
        peer: Peer,
        mut header: Header,
        key: &[u8],
        value: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let known = self.tenants.get(header.tenant);
        let Some(known) = known.filter(|_| header.tenant != TENANT_SYSTEM) else {
            return false;
        };
        if value.len() > wire::max_value(key.len()) {
            return false;
        }
        header.key_hash = known.secrets.hash.key_hash(header.tenant, key);
        let packet = Packet::new(header, key, value);
        let sent = out.push(&packet, &known.secrets.tag, peer).is_ok();
        self.counters.discipline_sent += u64::from(sent);
        sent
    }

    fn since_start(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns - self.started_ns)
    }
}
