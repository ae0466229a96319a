//! The store's half: the engine's order of calls around `store::coherence`, on one key.

use store::coherence::{
    Invalidate, KeyState, LeaseAnswer, Leases, NoGrant, Step, Submitted, Verdict, Window, Write,
};
use wire::Epoch;

use crate::{
    Call, Return, Rule,
    message::{Item, Message, OrderedReturn, Reply, Request},
    world::{LEASE_NS, now_ns},
};

/// Writes remembered per client, and writes queued per key.
const LIMIT: usize = 4;
/// Wall clock in seconds when the world begins.
const WALL_S: u64 = 1000;

type Outcome = (OrderedReturn, u64);

/// The store and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub key: KeyState<Request>,
    pub leases: Leases<()>,
    windows: [Window<Outcome>; 3],
    /// What the backend holds; survives a restart.
    pub item: Option<Item>,
    version: u64,
    incarnation: u64,
    started: u8,
}

impl Server {
    pub fn new(item: Item) -> Server {
        Server {
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS),
            windows: Default::default(),
            version: item.version,
            item: Some(item),
            incarnation: 0,
            started: 0,
        }
    }

    /// kill -9 and a new start: only the backend's value is left, at the new incarnation's base version.
    pub fn restart(&mut self, step: u8) {
        let incarnation = self.incarnation + 1;
        let version = incarnation << 32;
        let item = self.item.map(|item| Item { version, ..item });
        *self = Server {
            item,
            version,
            incarnation,
            started: step,
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS),
            windows: Default::default(),
        };
    }

    fn takes_writes(&self, step: u8) -> bool {
        // The first incarnation has been up for long.
        self.incarnation == 0 || now_ns(step) >= now_ns(self.started) + self.leases.length_ns()
    }

    pub fn request(
        &mut self,
        request: Request,
        step: u8,
        without: Option<Rule>,
        out: &mut Vec<Message>,
    ) {
        if request.call.0 == Call::Read {
            let granted = request.grant && self.grant(request.epoch, step, without);
            let said = Return::Value(self.item.map(|item| item.value));
            let version = self.item.map_or(0, |item| item.version);
            let grant = self.item.filter(|_| granted);
            out.push(reply(&request, OrderedReturn(said), version, grant));
            return;
        }
        if !self.takes_writes(step) && without != Some(Rule::R6NoWaitAfterRestart) {
            return; // TryAgain: the client sends it again.
        }
        match self.windows[request.client].begin(request.number, LIMIT) {
            Verdict::New => {}
            _ if without == Some(Rule::R7AppliedAgain) => {}
            Verdict::Answered((said, version)) => {
                return out.push(reply(&request, said, version, None));
            }
            _ => return,
        }
        let (client, number, epoch) = (request.client, request.number, request.epoch);
        if without == Some(Rule::R4EpochNotCompared) {
            self.trust(epoch.switch());
        }
        let write = Write {
            epoch,
            body: request,
        };
        if let Submitted::Refused(_) = self.key.submit(write, LIMIT) {
            self.windows[client].forget(number);
        }
        if without == Some(Rule::R4OffPathNotInvalidated) {
            let off_path = [1, 2]
                .into_iter()
                .filter(|switch| *switch != epoch.switch());
            off_path.for_each(|switch| self.trust(switch));
        }
        self.drive(step, without, out);
    }

    /// Takes every copy of a switch for invalid: what some mutants do.
    fn trust(&mut self, switch: u16) {
        self.key
            .prove_invalid(Epoch::new(switch, Epoch::MAX_NUMBER));
    }

    /// Rule 5, and two ways to break what surrounds it.
    fn grant(&mut self, epoch: Epoch, step: u8, without: Option<Rule>) -> bool {
        let mut forgotten;
        let key = if without == Some(Rule::R5GrantedNotRaised) {
            forgotten = self.key.clone();
            &mut forgotten
        } else {
            &mut self.key
        };
        match key.grant(epoch, &self.leases, true, now_ns(step)) {
            Ok(()) => true,
            Err(NoGrant::WritePending) => without == Some(Rule::R3GrantDuringWrite),
            Err(_) => false,
        }
    }

    pub fn fetch(&mut self, epoch: Epoch, step: u8, without: Option<Rule>, out: &mut Vec<Message>) {
        if self.grant(epoch, step, without)
            && let Some(item) = self.item
        {
            out.push(Message::FetchReply(epoch, item));
        }
    }

    pub fn acknowledged(
        &mut self,
        epoch: Epoch,
        echoed: u64,
        step: u8,
        without: Option<Rule>,
        out: &mut Vec<Message>,
    ) {
        self.key.acknowledged(epoch, echoed);
        self.drive(step, without, out);
    }

    pub fn lease(&mut self, switch: u16, sent: u8, step: u8, out: &mut Vec<Message>) {
        let now = now_ns(step);
        let wall_s = (WALL_S + now / 1_000_000_000) as u32;
        if let LeaseAnswer::Lent { term, .. } = self.leases.request(switch, (), wall_s, now) {
            out.push(Message::LeaseReply { switch, sent, term });
        }
    }

    /// Moves the key on as far as it goes, as the engine does after every event and when time has passed.
    pub fn drive(&mut self, step: u8, without: Option<Rule>, out: &mut Vec<Message>) {
        let mut invalidations = vec![];
        while self
            .key
            .poll(&mut self.leases, now_ns(step), &mut invalidations)
            == Step::Apply
        {
            let Some(write) = self.key.applied(0) else {
                break;
            };
            self.apply(write, step, without, out);
        }
        let send =
            |Invalidate { switch, granted }| Message::Invalidate(Epoch::new(switch, granted));
        out.extend(invalidations.into_iter().map(send));
    }

    fn apply(
        &mut self,
        write: Write<Request>,
        step: u8,
        without: Option<Rule>,
        out: &mut Vec<Message>,
    ) {
        let request = write.body;
        self.version += 1;
        let put = |value| {
            Some(Item {
                value,
                version: self.version,
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
        let granted = written && request.grant && self.grant(request.epoch, step, without);
        let grant = self.item.filter(|_| granted);
        out.push(reply(&request, outcome.0, outcome.1, grant));
    }
}

fn reply(request: &Request, said: OrderedReturn, version: u64, grant: Option<Item>) -> Message {
    Message::Reply(Reply {
        client: request.client,
        number: request.number,
        said,
        version,
        path: request.path,
        left: request.path.switches().len(),
        epoch: request.epoch,
        grant,
    })
}
