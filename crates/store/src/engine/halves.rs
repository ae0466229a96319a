//! The halves of disciplines in the store: their operations and messages go in, what they want done
//! is done.
//!
//! Cost: what the half does, and a place in the table of open requests with a copy of the key.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{MESSAGE_MAX, Operation, Request, StoreAction, StoreHalf};
use wire::{Header, Op, Packet, Status, TENANT_SYSTEM};

use super::{
    admission::Admitted,
    backend_requests::BackendRequest,
    context::{Context, Effect, named},
    replies::Origin,
};
use crate::{
    backend::{Answer, Key, ReadOutcome},
    coherence::Nanos,
    config::Half,
    counters::HalfCounters,
    directory::KeyId,
    net::Peer,
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
struct OpenRequest {
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
    open: BTreeMap<Request, OpenRequest>,
    /// Of the room for them, by tenants: one whose requests are answered late leaves the
    /// others theirs.
    shares: Shares,
    /// The newest request.
    newest: Request,
    next_tick_ns: Nanos,
    /// What they report to the controller.
    pub reports: Reports,
    /// Tenants whose reads a half is told of.
    watched: BTreeMap<u32, usize>,
    /// Tenants that a half was told or asked something about: without any it has nothing to do.
    known: BTreeSet<u32>,
    pub counters: HalfCounters,
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
            known: BTreeSet::new(),
            counters: HalfCounters::default(),
        }
    }

    /// The half that takes an op.
    fn taking(&self, op: Op) -> Option<usize> {
        let takes = |half: &Half| half.maker.operations.contains(&op);
        self.registered.iter().position(takes)
    }

    /// Ends a request of a half; `None` if it is not open, or another's.
    fn close(&mut self, half: usize, request: Request) -> Option<OpenRequest> {
        self.open.get(&request).filter(|open| open.half == half)?;
        self.remove(request)
    }

    fn remove(&mut self, request: Request) -> Option<OpenRequest> {
        let open = self.open.remove(&request)?;
        self.shares.give_back(open.origin.tenant, 1);
        Some(open)
    }

    /// From now on so many tenants share the room for open requests.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    pub fn next_ns(&self) -> Option<Nanos> {
        (!self.known.is_empty()).then_some(self.next_tick_ns)
    }
}

impl Halves {
    /// A packet with an op that is not the store's own.
    pub fn operation(&mut self, cx: &mut Context, packet: &Packet<'_>, room: usize, peer: Peer) {
        let Some(half) = self.taking(packet.header.op) else {
            self.counters.dropped_op += 1;
            return;
        };
        let foreign = self.registered[half].maker.foreign_partitions;
        let Some(admitted) = cx.admit(packet, room, peer, foreign) else { return };
        let Admitted { origin, is_owned } = admitted;
        if !self.shares.has_room(origin.tenant) {
            self.counters.dropped_discipline_busy += 1;
            return;
        }
        self.counters.discipline_requests += 1;
        self.shares.take(origin.tenant, 1);
        self.known.insert(origin.tenant);
        self.newest += 1;
        let request = self.newest;
        let open = OpenRequest { half, origin, key: packet.key.into(), since_ns: cx.now_ns };
        self.open.insert(request, open);
        let operation = Operation {
            request,
            from: peer.address,
            header: &packet.header,
            key: packet.key,
            value: packet.value,
            owned: is_owned,
        };
        self.happened(cx, half, |to, now, out| to.operation(now, operation, out));
    }

    /// A read of a key that is ours; a half may want to know. One look-up among the watched
    /// tenants, usually none.
    pub fn watch_read(&mut self, cx: &mut Context, key: Key<'_>) {
        if let Some(&half) = self.watched.get(&key.tenant) {
            self.happened(cx, half, |to, now, out| {
                to.read(now, key.tenant, key.bytes, key.hash, out);
            });
        }
    }

    /// The controller sends a half a message.
    ///
    /// # Errors
    /// [`TellError`]; the half is not told then.
    pub fn tell(
        &mut self,
        cx: &mut Context,
        name: &str,
        tenant: u32,
        message: &[u8],
    ) -> Result<(), TellError> {
        let named = |half: &Half| half.name == name;
        let half = self.registered.iter().position(named);
        let half = half.ok_or_else(|| TellError::Half(name.into()))?;
        cx.tenants.get(tenant).ok_or(TellError::Tenant(tenant))?;
        self.counters.discipline_told += 1;
        self.known.insert(tenant);
        self.happened(cx, half, |to, now, out| to.told(now, tenant, message, out));
        Ok(())
    }

    /// Forgets requests that were not answered, and lets the halves know that time passes.
    pub fn tick(&mut self, cx: &mut Context) {
        if self.next_ns().is_none_or(|due_ns| cx.now_ns < due_ns) {
            return;
        }
        self.next_tick_ns = cx.now_ns + TICK_NS;
        while let Some((&oldest, open)) = self.open.first_key_value()
            && open.since_ns + PATIENCE_NS <= cx.now_ns
        {
            self.remove(oldest);
            self.counters.discipline_unanswered += 1;
        }
        for half in 0..self.made.len() {
            self.happened(cx, half, |to, now, out| to.tick(now, out));
        }
    }

    /// Tenants are gone, and with them what halves have and do for them.
    pub fn tenants_left(&mut self, cx: &mut Context, gone: &BTreeSet<u32>) {
        let Halves { open, shares, .. } = self;
        open.retain(|_, open| {
            let stays = !gone.contains(&open.origin.tenant);
            shares.give_back(open.origin.tenant, usize::from(!stays));
            stays
        });
        self.watched.retain(|tenant, _| !gone.contains(tenant));
        self.known.retain(|tenant| !gone.contains(tenant));
        for half in 0..self.made.len() {
            for &tenant in gone {
                self.happened(cx, half, |to, now, out| to.left(now, tenant, out));
            }
        }
        self.reports.forget(gone);
    }

    /// The backend has answered what was read for a half, later. If it failed the request
    /// ends here.
    pub fn found(&mut self, cx: &mut Context, request: Request, found: ReadOutcome) {
        let Some(half) = self.open.get(&request).map(|open| open.half) else { return };
        let value = match &found {
            // Halves are told of values that go in one packet only.
            ReadOutcome::Item(item) | ReadOutcome::Untold(Some(item))
                if item.value.len() > wire::max_value(0) =>
            {
                Err(Status::TooLarge)
            }
            ReadOutcome::Item(item) | ReadOutcome::Untold(Some(item)) => {
                Ok(Some((&item.value[..], item.version)))
            }
            ReadOutcome::TooLarge(_) => Err(Status::TooLarge),
            ReadOutcome::Absent | ReadOutcome::Untold(None) => Ok(None),
            ReadOutcome::Refused(_) | ReadOutcome::Failed => Err(Status::BackendError),
        };
        let status = match value {
            Ok(value) => {
                return self.happened(cx, half, |to, now, out| to.value(now, request, value, out));
            }
            Err(status) => status,
        };
        self.refuse(cx, half, request, status);
    }

    /// What a half wanted to read cannot be had: its request ends here.
    fn refuse(&mut self, cx: &mut Context, half: usize, request: Request, status: Status) {
        match status {
            Status::TooLarge => cx.counters.refused_too_large += 1,
            _ => cx.counters.backend_errors += 1,
        }
        if let Some(OpenRequest { origin, key, .. }) = self.close(half, request) {
            cx.refuse(&origin, &key, status);
        }
    }

    /// Lets a half decide what happened, and does what it wants.
    fn happened(
        &mut self,
        cx: &mut Context,
        half: usize,
        event: impl FnOnce(&mut dyn StoreHalf, Duration, &mut Vec<StoreAction>),
    ) {
        let mut actions = Vec::new();
        let now = cx.since_start();
        event(&mut *self.made[half], now, &mut actions);
        self.carry_out(cx, half, actions);
    }

    fn carry_out(&mut self, cx: &mut Context, half: usize, actions: Vec<StoreAction>) {
        for action in actions {
            let done = match action {
                StoreAction::Reply { request, header, value } => {
                    self.reply_for(cx, half, request, header, &value)
                }
                StoreAction::Read { request } => {
                    let is_open = self.is_open(half, request);
                    if is_open {
                        cx.leave(Effect::ReadForHalf(half, request));
                    }
                    is_open
                }
                StoreAction::Send { to, header, key, value } => {
                    let peer = Peer { address: to, local: None };
                    self.send_for(cx, peer, header, &key, &value)
                }
                StoreAction::Watch { tenant, on } => self.watch(cx, half, tenant, on),
                StoreAction::Hold { tenant, key } => {
                    let may = self.registered[half].maker.holds_copies;
                    if may {
                        cx.leave(Effect::HoldCopy(tenant, key));
                    }
                    may
                }
                StoreAction::Release { tenant, key } => {
                    cx.leave(Effect::ReleaseCopy(tenant, key));
                    true
                }
                StoreAction::Confirm { tenant } => {
                    cx.leave(Effect::ConfirmCopies(tenant));
                    true
                }
                StoreAction::Report { tenant, report } => {
                    let done = report.len() <= MESSAGE_MAX && cx.tenants.get(tenant).is_some();
                    if done {
                        self.counters.discipline_reports += 1;
                        let name = self.registered[half].name;
                        self.reports.put(name, tenant, report);
                    }
                    done
                }
            };
            self.counters.discipline_refused += u64::from(!done);
        }
    }

    /// A half wants to be told of a tenant's reads, or no longer. False if another is told of them,
    /// or there is no such tenant.
    fn watch(&mut self, cx: &Context, half: usize, tenant: u32, on: bool) -> bool {
        let watched = &mut self.watched;
        if watched.get(&tenant).is_some_and(|other| *other != half) {
            return false;
        }
        if !on {
            watched.remove(&tenant);
            return true;
        }
        let known = cx.tenants.get(tenant).is_some();
        if known {
            watched.insert(tenant, half);
        }
        known
    }

    /// Answers a request for a half. False if there is none such, or the answer is no packet.
    fn reply_for(
        &mut self,
        cx: &mut Context,
        half: usize,
        request: Request,
        mut header: Header,
        mut value: &[u8],
    ) -> bool {
        let Some(OpenRequest { origin, key, .. }) = self.close(half, request) else { return false };
        if value.len() > wire::max_value(key.len()) {
            return false;
        }
        if !origin.allows(&key, value.len()) {
            cx.counters.need_padding += 1;
            header.status = Status::NeedPadding;
            header.total = value.len() as u32;
            value = &[];
        }
        let sent = cx.replies.send_as(header, &origin, &key, value, cx.now_ns, &mut cx.out);
        self.counters.discipline_replies += u64::from(sent);
        sent
    }

    fn is_open(&self, half: usize, request: Request) -> bool {
        let open = self.open.get(&request);
        open.is_some_and(|open| open.half == half)
    }

    /// The key that a half wants read for a request, if the request is still open and may wait for
    /// the backend.
    pub fn key_to_read(&mut self, cx: &mut Context, request: Request) -> Option<KeyId> {
        let origin = self.open.get(&request)?.origin;
        if !cx.waiting.has_room(origin.tenant) {
            cx.counters.dropped_backend_busy += 1;
            self.remove(request);
            return None;
        }
        Some((origin.tenant, origin.key_hash))
    }

    /// A key that a half wants read is lent: its client is to ask again.
    pub fn key_is_lent(&mut self, cx: &mut Context, half: usize, request: Request) {
        self.refuse(cx, half, request, Status::TryAgain);
    }

    /// Reads a request's key for its half; what is there at once is told at once.
    pub fn read(&mut self, cx: &mut Context, half: usize, request: Request) {
        let Some(open) = self.open.get(&request) else { return };
        self.counters.discipline_reads += 1;
        let now = cx.since_start();
        let key = named((open.origin.tenant, open.origin.key_hash), &open.key);
        let ticket = cx.waiting.ticket();
        match cx.backend.get(key, cx.now_ns, ticket) {
            Answer::Now(Some(item)) if item.value.len() > wire::max_value(0) => {
                self.refuse(cx, half, request, Status::TooLarge);
            }
            Answer::Now(found) => {
                let value = found.map(|item| (item.value, item.version));
                let mut actions = Vec::new();
                self.made[half].value(now, request, value, &mut actions);
                self.carry_out(cx, half, actions);
            }
            Answer::Later => cx.waiting.insert(ticket, BackendRequest::Half(request, key.tenant)),
        }
    }

    /// Sends a packet in a tenant's name. False if it is none.
    fn send_for(
        &mut self,
        cx: &mut Context,
        peer: Peer,
        mut header: Header,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        let known = cx.tenants.get(header.tenant);
        let Some(known) = known.filter(|_| header.tenant != TENANT_SYSTEM) else { return false };
        if value.len() > wire::max_value(key.len()) {
            return false;
        }
        header.key_hash = known.secrets.hash.key_hash(header.tenant, key);
        let packet = Packet::new(header, key, value);
        let sent = cx.out.push(&packet, &known.secrets.tag, peer).is_ok();
        self.counters.discipline_sent += u64::from(sent);
        sent
    }
}
