//! A client without sockets, clocks or tasks: the very same calls as [`crate::Client`]'s, driven
//! from outside.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    net::SocketAddr,
};

use bytes::Bytes;
use hashbrown::HashMap;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use smallvec::SmallVec;
use wire::Cluster;

use crate::{
    Answer, Counts, Error, Operation, Options,
    call::{Call, Outgoing, Step},
    rules::Rules,
    waiting::{Incoming, Recipient, RequestTable},
    window::Writes,
};

/// The time of a call that has no timer.
const NEVER: u64 = u64::MAX;

/// A client of one tenant in virtual time. Times are nanoseconds of one clock that never goes back,
/// whatever it counts from.
///
/// Its driver begins operations, hands over each datagram that arrives, and calls
/// [`Machine::timer`] when [`Machine::next_ns`] has come; a call that comes late is what a machine
/// that stood still would see. After each of the three it takes what is to be sent from
/// [`Machine::next_datagram`] and what has ended from [`Machine::next_finished`].
///
/// The same seed and the same calls give the same datagrams; but for [`Options::seal`], whose
/// nonces come from the system.
pub struct Machine {
    rules: Rules,
    rng: Xoshiro256PlusPlus,
    waiting: RequestTable<Asker>,
    calls: HashMap<u64, Box<RunningCall>>,
    next_call: u64,
    /// (when, call): the earliest first. Most calls are answered long before their time: what is
    /// here of them stays until it comes first.
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    /// Places among the calls in flight that are free, and the calls that wait for one; of writes
    /// only those that have a place in their store's window: a store that does not answer has no
    /// more of the places than that.
    free: usize,
    queue: VecDeque<u64>,
    /// One per store.
    windows: Vec<Window>,
    /// Windows where there may be room for a write that waits.
    freed: Vec<usize>,
    /// With the calls that they belong to.
    datagrams: VecDeque<(u64, SocketAddr, Bytes)>,
    finished: VecDeque<(u64, Result<Answer, Error>)>,
}

/// The writes to one store, and the calls that wait for a place among them.
#[derive(Default)]
struct Window {
    writes: Writes,
    queue: VecDeque<u64>,
}

struct RunningCall {
    call: Call,
    stage: Stage,
    /// Ids of its requests.
    requests: SmallVec<[u64; 1]>,
    /// When it is to be looked at; its entry among the timers, others of it do not count.
    until_ns: u64,
}

/// The call that a request belongs to.
#[derive(Clone, Copy)]
struct Asker {
    call: u64,
    /// Whether the request may have several answers.
    many: bool,
}

impl Recipient for Asker {
    fn again(&self) -> Option<Asker> {
        self.many.then_some(*self)
    }
}

/// What a call has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is a write, and waits for a place among its store's.
    Nothing,
    /// For a write, the number of its place in the window. It waits for one among the calls in
    /// flight.
    Queued(Option<u64>),
    /// All that it needs.
    Started(Option<u64>),
}

impl Machine {
    /// A client of a cluster in the name of one tenant. The seed gives its id, if the options do
    /// not, and all that is random.
    ///
    /// # Errors
    /// [`Error::Options`] or [`Error::UnknownTenant`].
    pub fn new(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
        seed: u64,
    ) -> Result<Machine, Error> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let rules = Rules::new(cluster, tenant, options, rng.random())?;
        Ok(Machine {
            rng,
            waiting: RequestTable::new(rules.routes.stores.clone()),
            calls: HashMap::new(),
            next_call: 0,
            timers: BinaryHeap::new(),
            free: rules.options.max_in_flight,
            queue: VecDeque::new(),
            windows: (0..rules.routes.windows).map(|_| Window::default()).collect(),
            freed: vec![],
            datagrams: VecDeque::new(),
            finished: VecDeque::new(),
            rules,
        })
    }

    /// Begins an operation; its number is that of [`Machine::next_finished`] when it ends.
    pub fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        match Call::new(&self.rules, operation, now_ns) {
            Err(error) => self.finished.push_back((number, Err(error))),
            Ok(call) => {
                let stage = match call.window() {
                    Some(window) => {
                        self.windows[window].queue.push_back(number);
                        self.freed.push(window);
                        Stage::Nothing
                    }
                    None => {
                        self.queue.push_back(number);
                        Stage::Queued(None)
                    }
                };
                let requests = SmallVec::new();
                let running = RunningCall { call, stage, requests, until_ns: NEVER };
                self.calls.insert(number, Box::new(running));
                self.admit(now_ns);
                if let Some(running) = self.calls.get_mut(&number)
                    && running.until_ns == NEVER
                {
                    running.until_ns = running.call.deadline_ns();
                    self.timers.push(Reverse((running.until_ns, number)));
                }
                self.settle_timers();
            }
        }
        number
    }

    /// A datagram has arrived.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let incoming = Incoming::read(datagram, &self.rules.secrets.tag);
        let Some((asker, reply)) = incoming.and_then(|i| self.waiting.take(&i, from)) else {
            self.rules.counters.ignored.add_one();
            return;
        };
        let number = asker.call;
        self.rules.counters.answered.add_one();
        let random = self.rng.random();
        let call = &mut self.calls.get_mut(&number).expect("it waits").call;
        let step = call.reply(&self.rules, reply, now_ns, random);
        self.carry_out(number, step, now_ns);
        self.admit(now_ns);
        self.settle_timers();
    }

    /// When [`Machine::timer`] is to be called next; none: nothing is under way.
    pub fn next_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out what comes first of the timers and does not count any more.
    fn settle_timers(&mut self) {
        while let Some(Reverse((at, number))) = self.timers.peek() {
            if self.calls.get(number).is_some_and(|running| running.until_ns == *at) {
                return;
            }
            self.timers.pop();
        }
    }

    /// The time has come, or gone by.
    pub fn timer(&mut self, now_ns: u64) {
        let mut due = vec![];
        while let Some(Reverse((at, number))) = self.timers.peek().copied()
            && at <= now_ns
        {
            self.timers.pop();
            if let Some(running) = self.calls.get_mut(&number)
                && running.until_ns == at
            {
                running.until_ns = NEVER;
                due.push(number);
            }
        }
        for number in due {
            let running = self.calls.get_mut(&number).expect("it has a timer");
            let step = match running.stage {
                Stage::Started(_) => {
                    let mut requests = running.requests.iter();
                    let denied = requests.any(|request| self.waiting.was_denied(*request));
                    running.call.timer(&self.rules, denied, now_ns)
                }
                Stage::Nothing | Stage::Queued(_) => Step::Done(Err(self.rules.full())),
            };
            self.carry_out(number, step, now_ns);
            let next_ns = self.calls.get(&number).map(|running| running.until_ns);
            debug_assert!(next_ns.is_none_or(|at| at > now_ns), "its time would come for ever");
        }
        self.admit(now_ns);
        self.settle_timers();
    }

    /// The next datagram to send, and where to.
    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.datagrams.pop_front().map(|(_, to, datagram)| (to, datagram))
    }

    /// Drops what waits to be sent for calls whose deadline has come: a driver that sends later
    /// than it called may have stood still meanwhile.
    pub fn drop_late(&mut self, now_ns: u64) {
        let calls = &self.calls;
        let is_in_time =
            |call: &u64| calls.get(call).is_some_and(|running| now_ns < running.call.deadline_ns());
        self.datagrams.retain(|(call, ..)| is_in_time(call));
    }

    /// The next operation that has ended, and how.
    pub fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        self.finished.pop_front()
    }

    /// Whether an operation has ended that was not taken.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.rules.counters.read()
    }

    fn carry_out(&mut self, number: u64, step: Step, now_ns: u64) {
        let running = self.calls.get_mut(&number).expect("it made a step");
        if let Step::Done(result) = step {
            self.end(number);
            self.finished.push_back((number, result));
            return;
        }
        let call = &mut running.call;
        let store = call.store();
        while let Some(outgoing) = call.next(&self.rules, now_ns, self.rng.random()) {
            let Outgoing { request, datagram, many } = outgoing;
            if running.requests.last() != Some(&request) {
                running.requests.push(request);
            }
            let asker = Asker { call: number, many };
            self.waiting.insert(request, datagram.clone(), store, asker);
            self.rules.counters.sent.add_one();
            self.datagrams.push_back((number, store, datagram));
        }
        let until_ns = call.until_ns();
        if running.until_ns != until_ns {
            running.until_ns = until_ns;
            self.timers.push(Reverse((until_ns, number)));
        }
    }

    /// Gives back all that a call has.
    fn end(&mut self, number: u64) {
        let Some(running) = self.calls.remove(&number) else { return };
        let RunningCall { call, stage, requests, .. } = *running;
        self.free += usize::from(matches!(stage, Stage::Started(_)));
        for request in requests {
            self.waiting.remove(request);
        }
        if let (Stage::Queued(Some(place)) | Stage::Started(Some(place)), Some(window)) =
            (stage, call.window())
        {
            self.windows[window].writes.leave(place);
            self.freed.push(window);
        }
    }

    /// Starts what now has a place.
    fn admit(&mut self, now_ns: u64) {
        loop {
            if let Some(window) = self.freed.pop() {
                self.enter(window);
            } else if self.free > 0
                && let Some(number) = self.queue.pop_front()
            {
                // Otherwise its deadline came first.
                if self.calls.contains_key(&number) {
                    self.free -= 1;
                    self.start(number, now_ns);
                }
            } else {
                return;
            }
        }
    }

    /// Puts the writes that find a place in a window among those that wait to be started: so their
    /// ids are in the order of their places.
    fn enter(&mut self, window: usize) {
        let Window { writes, queue } = &mut self.windows[window];
        while let Some(number) = queue.front().copied() {
            if let Some(running) = self.calls.get_mut(&number) {
                let Some(place) = writes.enter() else { return };
                running.stage = Stage::Queued(Some(place));
                self.queue.push_back(number);
            }
            queue.pop_front();
        }
    }

    fn start(&mut self, number: u64, now_ns: u64) {
        let running = self.calls.get_mut(&number).expect("it was waiting");
        let Stage::Queued(place) = running.stage else { unreachable!("it is in the queue") };
        let id = self.rules.new_id(running.call.window());
        running.stage = Stage::Started(place);
        let step = running.call.start(&self.rules, id, now_ns);
        self.carry_out(number, step, now_ns);
    }
}

#[cfg(test)]
mod tests;
