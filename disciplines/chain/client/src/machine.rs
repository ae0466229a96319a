//! A client without sockets, clocks or tasks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use bytes::Bytes;
use chain_wire::{READ_BIT, Route, WRITES_MOST};
use client::{Answer, Error, Operation, kit::Envelope};
use hashbrown::HashMap;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use wire::{Cluster, Header, Packet, Secret, Status, TENANT_SYSTEM};

use crate::{
    Counts, Identity, KeyState, Options, Reads,
    call::{Call, CallKind},
    names::Names,
    near::RoundTrips,
    paths::Paths,
    slots::Slots,
    view::{Novelty, View},
};

/// Between two looks of a watch at its key, in nanoseconds, beside which the switches tell it at
/// once; and where they do not: they tell nobody who cannot prove who he is.
const LOOK_NS: u64 = 1_000_000_000;
const LOOK_UNTOLD_NS: u64 = 100_000_000;

mod send;

/// A client of one tenant whose keys chains of switches hold, in virtual time. It is driven as
/// [`client::Machine`] is; watches come beside that.
///
/// Its driver looks at the clock after it has received what it hands over, never before: the time
/// that a datagram goes by must be later than the number that it carries was learnt (see [the
/// crate](crate)).
pub struct Machine {
    names: Names,
    options: Options,
    view: View,
    near: RoundTrips,
    paths: Paths,
    rng: Xoshiro256PlusPlus,
    slots: Slots,
    next_read: u64,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    by_request: HashMap<u64, u64>,
    /// Writes that wait for a slot.
    queue: VecDeque<u64>,
    /// (when, call).
    timers: BTreeSet<(u64, u64)>,
    /// Which of all switches is asked next for the chains.
    around: usize,
    /// Length in bytes of the largest value seen, as it travels.
    largest: usize,
    datagrams: VecDeque<(SocketAddr, Bytes)>,
    finished: VecDeque<(u64, Result<Answer, Error>)>,
    watched: VecDeque<(u64, KeyState)>,
    counts: Counts,
}

impl Machine {
    /// A client in the name of one tenant. The seed gives all that is random but the nonces of a
    /// seal, and its id, unless the options have one: nobody else may ever have had it.
    ///
    /// # Errors
    /// [`Error::Options`] or [`Error::UnknownTenant`].
    pub fn new(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
        seed: u64,
    ) -> Result<Machine, Error> {
        options.check()?;
        let secrets = (tenant != TENANT_SYSTEM)
            .then(|| cluster.secrets_of(tenant))
            .flatten()
            .ok_or(Error::UnknownTenant(tenant))?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fresh = Identity { client: rng.random(), first: 1 };
        let identity = options.identity.unwrap_or(fresh);
        let envelope = Envelope::new(options.seal.as_ref(), tenant);
        Ok(Machine {
            largest: options.expected_value + envelope.overhead(),
            names: Names::new(tenant, secrets, envelope, identity.client),
            options,
            view: View::default(),
            near: RoundTrips::default(),
            paths: Paths::default(),
            rng,
            slots: Slots::from(identity.first),
            // Nothing is taken for the answer to a read of whoever had the id before.
            next_read: READ_BIT | (identity.first * WRITES_MOST),
            calls: BTreeMap::new(),
            next_call: 0,
            by_request: HashMap::new(),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            around: 0,
            datagrams: VecDeque::new(),
            finished: VecDeque::new(),
            watched: VecDeque::new(),
            counts: Counts::default(),
        })
    }

    /// Begins an operation; its number is that of [`Machine::next_finished`] when it ends.
    pub fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        let call = Call::new(&self.names, &self.options, operation, now_ns);
        self.enter(call, now_ns)
    }

    /// Begins to read whatever is newest where it is asked, committed or not
    /// ([`Client::get_relaxed`](crate::Client::get_relaxed)); as [`Machine::begin`].
    pub fn begin_relaxed(&mut self, key: &[u8], now_ns: u64) -> u64 {
        let call = Call::relaxed(&self.names, &self.options, key, now_ns);
        self.enter(call, now_ns)
    }

    /// Begins to watch a key: [`Machine::next_watched`] has its number with the key's state now,
    /// and with each that it has from then on, as far as it can be told before the next. It ends
    /// with [`Machine::end`]; an error is that of [`Machine::next_finished`].
    pub fn watch(&mut self, key: &[u8], now_ns: u64) -> u64 {
        let call = Call::watch(&self.names, &self.options, key, now_ns);
        self.enter(call, now_ns)
    }

    /// Forgets a call or a watch. A write may still take place.
    pub fn end(&mut self, number: u64, now_ns: u64) {
        self.remove(number);
        self.admit(now_ns);
    }

    /// A datagram has arrived.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let Some((number, header, value)) = self.judge(datagram, from) else {
            self.counts.ignored += 1;
            return;
        };
        self.counts.answered += 1;
        let shows = self.calls.get(&number).and_then(|call| call.shows_long(from, datagram.len()));
        if let Some(long) = shows {
            self.paths.heard(from, long, now_ns);
        }
        match header.status {
            Status::Moved => self.moved(number, value, from, now_ns),
            _ => self.answered(number, header, value, from, now_ns),
        }
        self.admit(now_ns);
    }

    /// When [`Machine::timer`] is to be called next; none: nothing is under way.
    pub fn next_ns(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The time has come, or gone by.
    pub fn timer(&mut self, now_ns: u64) {
        let due = self.timers.range(..=(now_ns, u64::MAX));
        for number in due.map(|(_, number)| *number).collect::<Vec<_>>() {
            let Some(call) = self.calls.get_mut(&number) else {
                continue; // the generation ended meanwhile
            };
            if !call.requests.is_empty() && !call.paused && !call.is_resting() {
                call.is_silent();
                self.counts.retransmitted += 1;
                self.near.silent(call.to);
            }
            self.send(number, now_ns);
        }
        self.admit(now_ns);
    }

    /// The next datagram to send, and where to.
    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.datagrams.pop_front()
    }

    /// The next operation that has ended, and how.
    pub fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        self.finished.pop_front()
    }

    /// The next thing that a watch tells.
    pub fn next_watched(&mut self) -> Option<(u64, KeyState)> {
        self.watched.pop_front()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The client's id; another one when the chains have begun anew.
    pub fn id(&self) -> u64 {
        self.names.client
    }

    /// Whom reads are sent to, from now on.
    pub fn set_reads(&mut self, reads: Reads) {
        self.options.reads = reads;
    }

    /// The number of the chains, as far as it has heard; 0: nothing yet.
    pub fn number(&self) -> u64 {
        self.view.number
    }

    /// A number that nobody else draws.
    pub(super) fn random(&mut self) -> u64 {
        self.rng.random()
    }

    /// The members of a key's chain from head to tail, as far as they are known.
    pub fn members(&self, key: &[u8]) -> Vec<SocketAddr> {
        let name = self.names.name(key).ok();
        let hash = name.map(|name| self.names.hash(name.as_ref()));
        let chain = hash.and_then(|hash| self.view.chain_of(hash));
        chain.map_or(vec![], |chain| chain.members.clone())
    }

    fn enter(&mut self, call: Result<Call, Error>, now_ns: u64) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        let call = call.and_then(|call| match self.calls.len() < self.options.max_in_flight {
            true => Ok(call),
            false => Err(call.timed_out(&self.names, &self.options, &self.paths)),
        });
        match call {
            Err(error) => self.finished.push_back((number, Err(error))),
            Ok(mut call) => {
                let waits = call.is_write();
                if waits {
                    call.timer_ns = call.deadline_ns;
                }
                self.timers.insert((call.timer_ns, number));
                self.calls.insert(number, call);
                match waits {
                    true => self.queue.push_back(number),
                    false => self.send(number, now_ns),
                }
                self.admit(now_ns);
            }
        }
        number
    }

    /// Starts the writes that now have a slot.
    fn admit(&mut self, now_ns: u64) {
        while let Some(number) = self.queue.front().copied() {
            if let Some(call) = self.calls.get_mut(&number) {
                let Some(request) = self.slots.take() else { return };
                call.requests.push(request);
                self.by_request.insert(request, number);
                self.send(number, now_ns);
            }
            self.queue.pop_front();
        }
    }

    /// Whose answer a datagram is, and what it says.
    fn judge(&mut self, datagram: &[u8], from: SocketAddr) -> Option<(u64, Header, Bytes)> {
        let packet = Packet::decode(datagram).ok()?;
        let header = packet.header;
        let number = *self.by_request.get(&header.request)?;
        let call = self.calls.get_mut(&number)?;
        let is_answer = header.op == call.reply_op()
            && (header.tenant, header.client) == (self.names.tenant, self.names.client)
            && packet.key == call.key
            && header.key_hash == call.hash;
        let knows = self.options.switches.contains(&from) || self.view.has(from) || call.to == from;
        if !is_answer || !knows {
            return None;
        }
        if !packet.tag_is_valid(&self.names.secrets.tag) {
            // It ends nothing: it only explains, should nothing better come.
            call.denied |= header.status == Status::Denied;
            return None;
        }
        Some((number, header, Bytes::copy_from_slice(packet.value)))
    }

    /// A switch says which chain the key has.
    fn moved(&mut self, number: u64, value: Bytes, from: SocketAddr, now_ns: u64) {
        self.counts.moved += 1;
        let Some(route) = Route::decode(&value) else { return };
        match self.view.learn(&route) {
            // Whoever said so lags behind, another answer was faster, or it was asked for the chain
            // alone, which is short: the timer goes on.
            Novelty::Nothing => {
                self.paths.heard(from, false, now_ns);
                self.calls.get_mut(&number).into_iter().for_each(|call| call.heard_of(from));
                return;
            }
            Novelty::News => {}
            Novelty::Generation => self.begin_anew(),
        }
        if let Some(call) = self.calls.get_mut(&number) {
            call.begin_waits(&self.options);
            self.send(number, now_ns);
        }
    }

    /// What the switches remembered of this client's writes is of another time: they are given up,
    /// and the client is another one.
    fn begin_anew(&mut self) {
        let writes: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.is_write() && !call.requests.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for number in writes {
            let error = self.calls[&number].timed_out(&self.names, &self.options, &self.paths);
            self.finish(number, Err(error));
        }
        self.names.become_another(self.rng.random());
        self.slots = Slots::from(1);
    }

    fn answered(
        &mut self,
        number: u64,
        header: Header,
        value: Bytes,
        from: SocketAddr,
        now_ns: u64,
    ) {
        let random = self.rng.random();
        let Some(call) = self.calls.get_mut(&number) else { return };
        if let Some(sent_ns) = call.once_ns.filter(|_| call.to == from) {
            self.near.measured(from, now_ns.saturating_sub(sent_ns));
        }
        match header.status {
            Status::TryAgain | Status::NoSession | Status::NoRoom => {
                self.counts.put_off += 1;
                let is_full = header.status == Status::NoRoom;
                if let Some(error) = is_full.then(|| call.no_room(now_ns)).flatten() {
                    return self.finish(number, Err(error));
                }
                call.skip += 1;
                call.pause(now_ns, random);
                self.reset_timer(number);
            }
            Status::NeedPadding if !call.is_write() => {
                // No answer is longer than a packet, whatever it says.
                let total = (header.total as usize).min(wire::MAX_PAYLOAD);
                let was_short = call.needs_more();
                if was_short {
                    self.paths.heard(from, false, now_ns);
                }
                if total <= self.largest && !was_short {
                    return; // an earlier copy's answer: it was asked again since
                }
                self.largest = self.largest.max(total);
                self.send(number, now_ns);
            }
            Status::Forgotten => {
                let error = call.timed_out(&self.names, &self.options, &self.paths);
                self.finish(number, Err(error));
            }
            Status::Ok | Status::NotFound if call.is_watch() => {
                self.tell(number, header, value, from, now_ns);
            }
            _ => {
                self.largest = self.largest.max(value.len());
                let answer = call.answer(&self.names, header, value, from);
                self.finish(number, answer);
            }
        }
    }

    /// A watch has heard of its key.
    fn tell(&mut self, number: u64, header: Header, value: Bytes, from: SocketAddr, now_ns: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let newest = call.requests.last().copied().unwrap_or_default();
        let answer = call.answer(&self.names, header, value, from);
        let found = match answer.and_then(Answer::found) {
            Ok(found) => found,
            Err(error) => return self.finish(number, Err(error)),
        };
        if header.request == newest {
            let every_ns = match self.names.secrets.tag == Secret::NONE {
                true => LOOK_UNTOLD_NS,
                false => LOOK_NS,
            };
            call.rest(now_ns + every_ns, &self.options);
        }
        if let CallKind::Watch(seen) = &mut call.what
            && seen.is_news(&header, newest)
        {
            let watched =
                KeyState { version: header.version, value: found.map(|value| value.bytes) };
            self.watched.push_back((number, watched));
        }
        self.reset_timer(number);
    }

    /// Sets a call's timer to when it has something to do.
    fn reset_timer(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        self.timers.remove(&(call.timer_ns, number));
        call.timer_ns = call.until_ns.min(call.deadline_ns);
        self.timers.insert((call.timer_ns, number));
    }

    fn finish(&mut self, number: u64, result: Result<Answer, Error>) {
        self.remove(number);
        self.finished.push_back((number, result));
    }

    /// Gives back all that a call has.
    fn remove(&mut self, number: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        self.timers.remove(&(call.timer_ns, number));
        for request in &call.requests {
            self.by_request.remove(request);
            if call.is_write() {
                self.slots.give_back(*request);
            }
        }
    }
}
