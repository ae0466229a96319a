//! The store's half: the engine's order of calls around `store::coherence`, on one key.

use store::{
    coherence::{
        Invalidate, KeyState, LeaseAnswer, Leases, Parts, Step, Submission, Verdict, Window, Write,
        version_of_part,
    },
    mutants::{Mutant, mutant},
};
use wire::Epoch;

use crate::{
    Call, Return,
    bounds::{LEASE_NS, now_ns},
    message::{FIRST, Item, Message, OrderedReturn, Reply, Request},
};

/// Writes remembered per client, and writes queued per key.
const LIMIT: usize = 4;
/// Terms that a life of the store has to itself.
const TERMS: u64 = 1 << 8;

type Outcome = (OrderedReturn, u64);

/// The store and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub key: KeyState<Request>,
    pub leases: Leases<()>,
    windows: [Window<Outcome>; 3],
    /// Of each client a write of which a part is missing, and what has come.
    joins: [Option<(Request, Parts)>; 3],
    /// What the backend holds; survives a restart.
    pub item: Option<Item>,
    version: u64,
    incarnation: u64,
    started: u8,
    /// The step at which the first value's life ends; copies of it end then.
    life: Option<u8>,
    /// Until when the key is held for a command whose connection was lost.
    lingers_until_ns: Option<u64>,
}

impl Server {
    pub fn new(life: Option<u8>) -> Server {
        Server {
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS, TERMS),
            windows: Default::default(),
            joins: Default::default(),
            version: FIRST.version,
            item: Some(FIRST),
            incarnation: 0,
            started: 0,
            life,
            lingers_until_ns: None,
        }
    }

    /// kill -9 and a new start: only the backend's value is left, at the new incarnation's
    /// base version.
    pub fn restart(&mut self, step: u8) {
        let incarnation = self.incarnation + 1;
        let version = incarnation << 32;
        let item = self.item.map(|item| Item { version, ..item });
        *self = Server {
            item,
            version,
            incarnation,
            started: step,
            life: self.life,
            lingers_until_ns: None,
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS, (incarnation + 1) * TERMS),
            windows: Default::default(),
            joins: Default::default(),
        };
    }

    fn takes_writes(&self, step: u8) -> bool {
        // The first incarnation has been up for long.
        self.incarnation == 0 || now_ns(step) >= now_ns(self.started) + self.leases.length_ns()
    }

    pub fn request(&mut self, request: Request, step: u8, out: &mut Vec<Message>) {
        if request.call.0 == Call::Read {
            return out.extend(self.read(&request, step));
        }
        if !self.takes_writes(step) && !mutant(Mutant::NoWaitAfterRestart) {
            return; // TryAgain: the client sends it again.
        }
        let Some(request) = self.joined(request, step, out) else {
            return; // Taken: the rest is on its way.
        };
        match self.windows[request.client].begin(request.number, LIMIT) {
            Verdict::New => {}
            Verdict::Answered((said, version)) => {
                let grant = self.grants_again(&request, version, step);
                return out.push(reply(&request, said, version, false, grant));
            }
            _ => return,
        }
        let (client, number, epoch) = (request.client, request.number, request.epoch);
        let write = Write { epoch, told_stores: false, body: request };
        if let Submission::Refused(_) = self.key.submit(write, LIMIT) {
            self.windows[client].forget(number);
        }
        self.drive(step, out);
    }

    /// The answer to a read, of the first part or the second: of this one if the key has the
    /// version that its reader knows.
    fn read(&mut self, request: &Request, step: u8) -> Option<Message> {
        let Some(item) = self.item else {
            let said = OrderedReturn(Return::Value(None));
            return Some(reply(request, said, 0, false, None));
        };
        let wants_second = !request.parts[0];
        let named = wants_second.then(|| version_of_part(request.version, item.version)).flatten();
        let asked = request.grant.then_some(request.epoch);
        let grant = asked.and_then(|epoch| self.granted(epoch, step));
        let second = named.is_some();
        let byte = if second { item.rest } else { item.value };
        let said = OrderedReturn(Return::Value(Some(byte)));
        let version = named.unwrap_or(item.version);
        Some(reply(request, said, version, second, grant))
    }

    /// The write that a request is, if it is whole, or makes one whole. Its own switch has taken an
    /// epoch in any case.
    fn joined(&mut self, request: Request, step: u8, out: &mut Vec<Message>) -> Option<Request> {
        let index = request.parts.iter().position(|is_here| !is_here);
        let Some(index) = index.map(|missing| 1 - missing) else { return Some(request) };
        let known = self.windows[request.client].known(request.number);
        if let Some(verdict) = known {
            if let Verdict::Answered((said, version)) = verdict {
                out.push(reply(&request, said, version, false, None));
            }
            return None;
        }
        if self.key.part_passed(request.epoch) {
            self.drive(step, out);
        }
        let join = &mut self.joins[request.client];
        let new = join.take().filter(|(begun, _)| begun.number == request.number);
        let (begun, mut parts) = new.unwrap_or_else(|| (request.clone(), Parts::new(2)));
        let mut whole = Request { parts: begun.parts, grant: false, ..request };
        whole.parts[index] = true;
        match parts.take(index) {
            None => Some(whole),
            Some(_) => {
                // Of an earlier part nothing counts any more but that it has come.
                let kept = Request {
                    epoch: Epoch::NONE,
                    path: crate::Path::Neither,
                    passed: 0,
                    since: 0,
                    ..whole
                };
                *join = Some((kept, parts));
                None
            }
        }
    }

    /// Rule 5: whether the answer may be a grant.
    fn grant(&mut self, epoch: Epoch, step: u8) -> bool {
        let now_ns = now_ns(step);
        self.key.grant(epoch, &self.leases, true, now_ns).is_ok()
    }

    /// What is there, as a grant: with what remains of its life.
    fn granted(&mut self, epoch: Epoch, step: u8) -> Option<Item> {
        let item = self.item?;
        let is_first = item.value == FIRST.value;
        let life_ms = match self.life {
            Some(end) if is_first && step >= end => return None,
            Some(end) if is_first => ((now_ns(end) - now_ns(step)) / 1_000_000) as u32,
            _ => 0,
        };
        let granted = self.grant(epoch, step);
        granted.then_some(Item { life_ms, ..item })
    }

    /// Rule 5, broken: the answer to a retransmission is a grant of what it wrote.
    fn grants_again(&mut self, request: &Request, version: u64, step: u8) -> Option<Item> {
        let Call::Write(value) = request.call.0 else { return None };
        let again = mutant(Mutant::RepeatedAnswerGrants) && request.grant;
        (again && self.grant(request.epoch, step)).then_some(Item {
            value,
            rest: value,
            version,
            life_ms: 0,
        })
    }

    pub fn fetch(&mut self, epoch: Epoch, step: u8, out: &mut Vec<Message>) {
        if let Some(item) = self.granted(epoch, step) {
            out.push(Message::FetchReply(epoch, item));
        }
    }

    pub fn acknowledged(&mut self, epoch: Epoch, echoed: u64, step: u8, out: &mut Vec<Message>) {
        self.key.acknowledged(epoch, echoed);
        self.drive(step, out);
    }

    pub fn lease(&mut self, switch: u16, sent_ns: u64, step: u8, out: &mut Vec<Message>) {
        let now = now_ns(step);
        if let LeaseAnswer::Lent { term, .. } = self.leases.request(switch, (), sent_ns, now) {
            out.push(Message::LeaseReply { switch, sent_ns, term });
        }
    }

    /// A switch has left, and says so.
    pub fn give_back(
        &mut self,
        switch: u16,
        term: u64,
        before_ns: u64,
        step: u8,
        out: &mut Vec<Message>,
    ) {
        self.leases.give_back(switch, term, before_ns, now_ns(step));
        self.drive(step, out);
    }

    /// A command by the RESP port: the key is held for it, then the backend gets it.
    pub fn command(&mut self, request: Request, step: u8, out: &mut Vec<Message>) {
        if mutant(Mutant::NotHeld) {
            return out.push(Message::Command(request, None));
        }
        let write = Write { epoch: Epoch::NONE, told_stores: false, body: request };
        // However many wait: holds are as many as there are connections.
        self.key.submit(write, usize::MAX);
        self.drive(step, out);
    }

    /// The backend carries a command out. It knows of no versions: what was there keeps its own.
    pub fn carry_out(&mut self, request: &Request) -> OrderedReturn {
        let version = self.item.map_or(self.version, |item| item.version);
        let put = |value| Some(Item { value, rest: value, version, life_ms: 0 });
        OrderedReturn(match (request.call.0, self.item) {
            (Call::Write(value), _) => {
                self.item = put(value);
                Return::Done
            }
            (Call::Delete, Some(_)) => {
                self.item = None;
                Return::Done
            }
            (Call::Delete, None) => Return::NotFound,
            (Call::Read, item) => Return::Value(item.map(|item| item.value)),
            (Call::CompareAndSet { .. }, _) => Return::Mismatch,
        })
    }

    /// The backend has answered a command.
    pub fn answered(&mut self, request: &Request, step: u8, out: &mut Vec<Message>) {
        self.let_go(|held| held.holds && held.client == request.client);
        self.drive(step, out);
    }

    /// The connection of a command that was sent is lost: it may take place for a lease yet.
    pub fn lost(&mut self, client: usize, step: u8, out: &mut Vec<Message>) {
        match mutant(Mutant::HoldForgotten) {
            true => self.let_go(|held| held.holds && held.client == client),
            false => self.lingers_until_ns = Some(now_ns(step) + self.leases.length_ns()),
        }
        self.drive(step, out);
    }

    /// The key is held no longer: what is there has a new version.
    fn let_go(&mut self, is_its: impl Fn(&Request) -> bool) {
        if self.key.applying().is_some_and(|write| is_its(&write.body)) {
            self.key.applied(0);
            self.version += 1;
            self.item = self.item.map(|item| Item { version: self.version, ..item });
        }
    }

    /// Moves the key on as far as it goes, as the engine does after every event and when time
    /// has passed.
    pub fn drive(&mut self, step: u8, out: &mut Vec<Message>) {
        let mut invalidations = vec![];
        if self.lingers_until_ns.is_some_and(|until_ns| until_ns <= now_ns(step)) {
            self.lingers_until_ns = None;
            self.let_go(|held| held.holds);
        }
        while self.key.poll(&mut self.leases, now_ns(step), &mut invalidations) == Step::Apply {
            let held = self.key.applying().map(|write| &write.body).filter(|body| body.holds);
            if let Some(request) = held.cloned() {
                out.push(Message::Command(request, None));
                if mutant(Mutant::HoldLetGoEarly) {
                    self.let_go(|held| held.holds);
                }
                continue;
            }
            let Some(write) = self.key.applied(0) else { break };
            self.apply(write, step, out);
        }
        let send =
            |Invalidate { switch, granted }| Message::Invalidate(Epoch::new(switch, granted));
        out.extend(invalidations.into_iter().map(send));
    }

    fn apply(&mut self, write: Write<Request>, step: u8, out: &mut Vec<Message>) {
        let request = write.body;
        self.version += u64::from(!mutant(Mutant::VersionNotRaised));
        // What has not come is as it was before anything was written.
        let part = |value, index: usize| {
            if request.parts[index] { value } else { FIRST.value }
        };
        let put = |value| {
            Some(Item {
                value: part(value, 0),
                rest: part(value, 1),
                version: self.version,
                life_ms: 0,
            })
        };
        let said = match (request.call.0, self.item) {
            (Call::Write(value), _) => {
                self.item = put(value);
                Return::Done
            }
            (Call::CompareAndSet { to, .. }, Some(item)) if item.version == request.version => {
                self.item = put(to);
                Return::Done
            }
            (Call::Delete, Some(_)) => {
                self.item = None;
                Return::Done
            }
            (Call::Delete, None) => Return::NotFound,
            _ => Return::Mismatch,
        };
        let outcome = (OrderedReturn(said), self.version);
        self.windows[request.client].finish(request.number, outcome);
        let written = said == Return::Done && request.call.0 != Call::Delete;
        let granted = written && request.grant && self.grant(request.epoch, step);
        let grant = self.item.filter(|_| granted);
        out.push(reply(&request, outcome.0, outcome.1, false, grant));
    }
}

fn reply(
    request: &Request,
    said: OrderedReturn,
    version: u64,
    second: bool,
    grant: Option<Item>,
) -> Message {
    Message::Reply(Reply {
        client: request.client,
        number: request.number,
        said,
        version,
        second,
        question: request.question,
        path: request.path,
        left: request.path.switches().len(),
        epoch: request.epoch,
        grant,
    })
}
