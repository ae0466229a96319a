//! The whole: one store, two switches, three clients, what is in flight, and what may happen next.

use decide::Registration;
use stateright::{
    Model, Property,
    semantics::{ConsistencyTester, LinearizabilityTester},
};
use wire::{Epoch, Op};

use crate::{
    Bounds, BrokenRule, Call, Path, Register, Return,
    bounds::{LEASE_NS, now_ns},
    message::{FIRST, Message, OrderedCall, Reply, Request},
    real,
    server::Server,
    switch::Switch,
};

/// Steps after which no datagram of an operation is in flight any more: one lease, the bound that
/// rule 7 rests on when a store restarts.
const REQUEST_LIFE: u8 = 2;

/// The model: its bounds, whose programs the switches run, and what is broken, if anything.
#[derive(Clone, Debug)]
pub struct World {
    /// How much of everything.
    pub bounds: Bounds,
    /// The discipline of the switches; its copies follow docs/coherence.md.
    pub discipline: &'static Registration,
    /// What breaks a rule.
    pub broken: Option<BrokenRule>,
}

/// A client between or within its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// Operations begun.
    begun: u64,
    waits: bool,
    /// Step at which the operation that waits began.
    since: u8,
    /// The version that it learnt last.
    version: u64,
    /// The first part of a value that it reads, and its version.
    first: Option<(u64, u8)>,
    /// Questions that the operation has asked.
    questions: u8,
}

/// What is left of each bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct RemainingBounds {
    duplicates: u8,
    retransmissions: u8,
    evictions: u8,
    refills: u8,
    blanks: u8,
    fetches: u8,
    renewals: u8,
    leaves: u8,
    steps: u8,
    restarts: u8,
    lost: u8,
    together: u8,
}

/// One state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorldState {
    step: u8,
    server: Server,
    switches: [Switch; 2],
    clients: [Client; 3],
    /// Sorted: order means nothing.
    flying: Vec<Message>,
    left: RemainingBounds,
    history: LinearizabilityTester<usize, Register>,
    /// Whether a switch has answered a read, for the test that the model is not vacuous.
    served: bool,
    /// Whether one has answered with a value whose life was over.
    served_late: bool,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client begins its next operation.
    Begin(usize),
    /// A client sends its request again.
    Retransmit(usize),
    /// Something in flight arrives.
    Deliver(usize),
    /// Something in flight arrives, and will again.
    DeliverTwice(usize),
    /// A switch's agent removes the entry.
    Evict(usize),
    /// A switch's agent makes an entry.
    Refill(usize),
    /// A switch's agent gives it a blank.
    GiveBlank(usize),
    /// A switch's agent asks for the value.
    Fetch(usize),
    /// The store offers a switch its lease, and it asks for it.
    Renew(usize),
    /// A switch gives its lease back, and serves nothing under it.
    Leave(usize),
    /// 0.6 leases pass.
    Pass,
    /// The store is killed and starts again.
    Restart,
    /// The connection to the backend is lost on which the command in flight at this place is.
    Lose(usize),
}

/// What a reader says who has joined two parts that are not of one value: nobody wrote that.
const TORN: u8 = u8::MAX;
/// Numbers that a switch has given out at the beginning: a mutant that lets them come again does so
/// soon behind it.
const FIRST_EPOCH: u64 = 6;

impl World {
    /// Sends what a client has to say now; in a world of parts a write goes in two packets, the
    /// second by a way of its own.
    fn send(&self, state: &mut WorldState, client: usize, paths: (Path, Path)) {
        let at = &state.clients[client];
        let call = self.bounds.scripts[client][at.begun as usize - 1];
        let mut request = Request {
            client,
            number: at.begun,
            since: at.since,
            call: OrderedCall(call),
            version: at.version,
            parts: [true; 2],
            question: at.questions,
            path: paths.0,
            passed: 0,
            epoch: Epoch::NONE,
            grant: false,
            holds: self.bounds.ports[client],
        };
        if request.holds {
            let (step, mut out) = (state.step, vec![]);
            state.server.command(request, step, &mut out);
            return out.into_iter().for_each(|message| state.fly(message));
        }
        match call {
            Call::Read => {
                if let Some((version, _)) = at.first {
                    request.version = version;
                    request.parts = [false, true];
                }
            }
            Call::Write(_) | Call::CompareAndSet { .. } if self.bounds.parts => {
                request.parts = [false, true];
                request.path = paths.1;
                self.set_out(state, request.clone());
                request.parts = [true, false];
                request.path = paths.0;
            }
            _ => {}
        }
        self.set_out(state, request);
    }

    fn set_out(&self, state: &mut WorldState, request: Request) {
        // The way to the first switch takes no time: whatever it did could as well be done by
        // sending later.
        if request.path.switches().is_empty() {
            state.fly(Message::Request(request));
        } else {
            self.forward(state, request);
        }
    }

    /// The request meets its next switch.
    fn forward(&self, state: &mut WorldState, mut request: Request) {
        let switch = &mut state.switches[request.path.switches()[request.passed]];
        match switch.request(&mut request, state.step) {
            Some(reply) => {
                state.served = true;
                let is_first = reply.said.0 == Return::Value(Some(FIRST.value));
                let is_over = self.bounds.life.is_some_and(|end| state.step >= end);
                state.served_late |= is_first && is_over;
                self.back(state, reply);
            }
            None => {
                request.passed += 1;
                state.fly(Message::Request(request));
            }
        }
    }

    /// A reply with no switch before it reaches its client at once; else it flies on.
    fn back(&self, state: &mut WorldState, reply: Reply) {
        if reply.left > 0 {
            state.fly(Message::Reply(reply));
            return;
        }
        let at = reply.client;
        let client = &mut state.clients[at];
        let asked = (client.begun, client.questions) == (reply.number, reply.question);
        if !client.waits || !asked {
            return;
        }
        let mut said = reply.said.0;
        if self.bounds.parts
            && let Return::Value(Some(byte)) = said
        {
            match client.first {
                Some((version, first)) if reply.second && reply.version == version => {
                    let joined = if first == byte { byte } else { TORN };
                    said = Return::Value(Some(joined));
                }
                _ if reply.second => return,
                // Of another version than the one before, if there was one: its reader
                // begins again.
                _ => {
                    client.first = Some((reply.version, byte));
                    client.questions += 1;
                    return self.send(state, at, self.bounds.paths[at]);
                }
            }
        }
        client.waits = false;
        client.first = None;
        client.questions = 0;
        if reply.version != 0 {
            client.version = reply.version;
        }
        // The client calls and returns in turn, so the tester cannot refuse.
        let _ = state.history.on_return(at, said);
    }

    fn deliver(&self, state: &mut WorldState, message: Message) {
        let step = state.step;
        let mut out = vec![];
        match message {
            Message::Request(request) if request.passed < request.path.switches().len() => {
                self.forward(state, request);
            }
            Message::Request(request) => state.server.request(request, step, &mut out),
            Message::Reply(mut reply) => {
                if reply.left > 0 {
                    reply.left -= 1;
                    let switch = &mut state.switches[reply.path.switches()[reply.left]];
                    if let Some(item) = reply.grant {
                        let op = match reply.said.0 {
                            Return::Value(_) => Op::ReadReply,
                            _ => Op::WriteReply,
                        };
                        switch.reply(op, reply.epoch, item, reply.second, step);
                    }
                }
                self.back(state, reply);
            }
            Message::Fetch(epoch) => state.server.fetch(epoch, step, &mut out),
            Message::FetchReply(epoch, item) => {
                state.switch(epoch.switch()).fetched(epoch, item, step);
            }
            Message::Invalidate(epoch) => {
                let ack = state.switch(epoch.switch()).invalidate(epoch, step);
                out.extend(ack.map(|(epoch, echoed)| Message::Ack(epoch, echoed)));
            }
            Message::Ack(epoch, echoed) => {
                state.server.acknowledged(epoch, echoed, step, &mut out);
            }
            Message::LeaseRequest { switch, sent_ns } => {
                state.server.lease(switch, sent_ns, step, &mut out);
            }
            Message::LeaseReturn { switch, term, before_ns } => {
                state.server.give_back(switch, term, before_ns, step, &mut out);
            }
            Message::LeaseReply { switch, sent_ns, term } => {
                state.switch(switch).take_lease(sent_ns, term, step);
            }
            Message::Command(request, late) => {
                let said = state.server.carry_out(&request);
                if late.is_none() {
                    out.push(Message::Answer(request, said));
                }
            }
            Message::Answer(request, said) => {
                state.server.answered(&request, step, &mut out);
                state.clients[request.client].waits = false;
                let _ = state.history.on_return(request.client, said.0);
            }
        }
        out.into_iter().for_each(|message| state.fly(message));
    }
}

impl WorldState {
    fn switch(&mut self, id: u16) -> &mut Switch {
        &mut self.switches[usize::from(id) - 1]
    }

    fn fly(&mut self, message: Message) {
        let at = self.flying.partition_point(|other| *other <= message);
        self.flying.insert(at, message);
    }

    /// Lets what can have no effect any more be lost, so that states that differ in nothing else
    /// are one.
    fn tidy(&mut self) {
        let (clients, step) = (&self.clients, self.step);
        self.flying.retain(|message| match message {
            Message::Reply(reply) => {
                let client = &clients[reply.client];
                let asked = (client.begun, client.questions) == (reply.number, reply.question);
                reply.grant.is_some() || (client.waits && asked)
            }
            Message::Request(request) => step < request.since + REQUEST_LIFE,
            Message::LeaseReply { sent_ns, .. } => sent_ns + LEASE_NS > now_ns(step),
            Message::Command(_, Some(until_ns)) => *until_ns > now_ns(step),
            _ => true,
        });
    }

    fn is_linearizable(&self) -> bool {
        self.history.is_consistent()
    }
}

impl Model for World {
    type State = WorldState;
    type Action = Action;

    fn init_states(&self) -> Vec<WorldState> {
        let bounds = &self.bounds;
        real::prepare(self.discipline, self.broken);
        let mut server = Server::new(bounds.life);
        let mut switches = [1, 2].map(|id| Switch::new(id, FIRST_EPOCH));
        // Both hold leases that were asked for and lent just now.
        for (switch, has_entry) in switches.iter_mut().zip(bounds.entries) {
            let mut lent = vec![];
            server.lease(switch.id(), now_ns(0), 0, &mut lent);
            if let Some(Message::LeaseReply { sent_ns, term, .. }) = lent.pop() {
                switch.take_lease(sent_ns, term, 0);
            }
            if has_entry {
                switch.insert(0);
            }
        }
        let client = Client { version: FIRST.version, ..Client::default() };
        vec![WorldState {
            step: 0,
            server,
            switches,
            clients: [client.clone(), client.clone(), client],
            flying: vec![],
            left: RemainingBounds {
                duplicates: bounds.duplicates,
                retransmissions: bounds.retransmissions,
                evictions: bounds.evictions,
                refills: bounds.refills,
                blanks: bounds.blanks,
                fetches: bounds.fetches,
                renewals: bounds.renewals,
                leaves: bounds.leaves,
                steps: bounds.steps,
                restarts: bounds.restarts,
                lost: bounds.lost,
                together: bounds.together,
            },
            history: LinearizabilityTester::new(Register(Some(FIRST.value))),
            served: false,
            served_late: false,
        }]
    }

    fn actions(&self, state: &WorldState, actions: &mut Vec<Action>) {
        let mut left = state.left.clone();
        if left.together == 0 {
            left = RemainingBounds {
                refills: left.refills,
                blanks: left.blanks,
                steps: left.steps,
                ..RemainingBounds::default()
            };
        }
        for (i, client) in state.clients.iter().enumerate() {
            if !client.waits && (client.begun as usize) < self.bounds.scripts[i].len() {
                actions.push(Action::Begin(i));
            }
            let may_repeat =
                !self.bounds.ports[i] && client.waits && state.step < client.since + REQUEST_LIFE;
            if may_repeat && left.retransmissions > 0 {
                actions.push(Action::Retransmit(i));
            }
        }
        for (i, message) in state.flying.iter().enumerate() {
            if i > 0 && state.flying[i - 1] == *message {
                continue;
            }
            actions.push(Action::Deliver(i));
            if let Message::Command(_, None) | Message::Answer(..) = message {
                if left.lost > 0 {
                    actions.push(Action::Lose(i));
                }
                continue;
            }
            if left.duplicates > 0 {
                actions.push(Action::DeliverTwice(i));
            }
        }
        for (i, switch) in state.switches.iter().enumerate() {
            if !switch.has_entry() && left.refills > 0 {
                actions.push(Action::Refill(i));
            }
            if switch.may_have_blank() && left.blanks > 0 {
                actions.push(Action::GiveBlank(i));
            }
            if switch.has_entry() && left.evictions > 0 {
                actions.push(Action::Evict(i));
            }
            if switch.lacks_value() && left.fetches > 0 {
                actions.push(Action::Fetch(i));
            }
            if left.renewals > 0 {
                actions.push(Action::Renew(i));
            }
            if switch.may_leave() && left.leaves > 0 {
                actions.push(Action::Leave(i));
            }
        }
        if left.steps > 0 {
            actions.push(Action::Pass);
        }
        if left.restarts > 0 {
            actions.push(Action::Restart);
        }
    }

    fn next_state(&self, last: &WorldState, action: Action) -> Option<WorldState> {
        real::prepare(self.discipline, self.broken);
        let mut state = last.clone();
        let step = state.step;
        match action {
            Action::Begin(i) => {
                let client = &mut state.clients[i];
                let call = self.bounds.scripts[i][client.begun as usize];
                client.begun += 1;
                client.waits = true;
                client.since = step;
                let _ = state.history.on_invoke(i, call);
                self.send(&mut state, i, self.bounds.paths[i]);
            }
            Action::Retransmit(i) => {
                state.left.retransmissions -= 1;
                state.left.together -= 1;
                let other = self.bounds.paths[i].1;
                self.send(&mut state, i, (other, other));
            }
            Action::Deliver(at) => {
                let message = state.flying.remove(at);
                self.deliver(&mut state, message);
            }
            Action::DeliverTwice(at) => {
                state.left.duplicates -= 1;
                state.left.together -= 1;
                let message = state.flying[at].clone();
                self.deliver(&mut state, message);
            }
            Action::Evict(i) => {
                state.left.evictions -= 1;
                state.left.together -= 1;
                state.switches[i].evict();
            }
            Action::Refill(i) => {
                state.left.refills -= 1;
                state.switches[i].insert(step);
            }
            Action::GiveBlank(i) => {
                state.left.blanks -= 1;
                state.switches[i].give_blank();
            }
            Action::Fetch(i) => {
                state.left.fetches -= 1;
                state.left.together -= 1;
                let epoch = state.switches[i].fetch(step)?;
                state.fly(Message::Fetch(epoch));
            }
            Action::Renew(i) => {
                state.left.renewals -= 1;
                state.left.together -= 1;
                let switch = &mut state.switches[i];
                let (id, sent_ns) = (switch.id(), switch.offered(step)?);
                state.fly(Message::LeaseRequest { switch: id, sent_ns });
            }
            Action::Leave(i) => {
                state.left.leaves -= 1;
                state.left.together -= 1;
                let switch = &mut state.switches[i];
                let (id, term, before_ns) = (switch.id(), switch.leave(), now_ns(step));
                state.fly(Message::LeaseReturn { switch: id, term, before_ns });
            }
            Action::Pass => {
                state.left.steps -= 1;
                state.step += 1;
                let mut out = vec![];
                state.server.drive(state.step, &mut out);
                out.into_iter().for_each(|message| state.fly(message));
            }
            Action::Lose(at) => {
                state.left.lost -= 1;
                state.left.together -= 1;
                let (mut out, until_ns) = (vec![], now_ns(step) + LEASE_NS);
                // Its client is never told, and asks nothing more.
                let client = match state.flying.remove(at) {
                    Message::Command(request, _) => {
                        let client = request.client;
                        state.fly(Message::Command(request, Some(until_ns)));
                        client
                    }
                    Message::Answer(request, _) => request.client,
                    _ => return None,
                };
                state.server.lost(client, step, &mut out);
                out.into_iter().for_each(|message| state.fly(message));
            }
            Action::Restart => {
                state.left.restarts -= 1;
                state.left.together -= 1;
                state.server.restart(step);
            }
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("linearizable", |_, state: &WorldState| state.is_linearizable()),
            Property::always("no copy outlives its value", |_, state: &WorldState| {
                !state.served_late
            }),
            Property::sometimes("a switch answers", |_, state: &WorldState| state.served),
            Property::sometimes("a copy is called back", |_, state: &WorldState| {
                let mut flying = state.flying.iter();
                flying.any(|message| matches!(message, Message::Invalidate(_)))
            }),
        ]
    }
}
