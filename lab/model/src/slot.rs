//! A store before a Redis Cluster, exhausted: one key whose slot moves to another server and back
//! at any moment, a copy of it, clients of the store, and somebody who reads and writes at the
//! other server, past the store, once copies of before have had the time to go.
//!
//! [`store::coherence`]'s `KeyState`, `Leases` and `OutsideWatch` are called, and what a holder of
//! copies calls; the order of the engine's calls around them is the model's own. The store has one
//! connection to the server that tells it of changes: what it asks there is carried out in order,
//! and told in order, at any later time. What the slot's server of then does not have any more is
//! carried out at the other one, before what was asked later.

mod home;

use stateright::{
    Model, Property,
    semantics::{ConsistencyTester, LinearizabilityTester},
};
use store::coherence::WriteId;

use crate::{
    Call, Register, Return,
    bounds::now_ns,
    replicas::{FIRST, Holder, Message, Reply},
};
use home::{Home, Reader};

/// Clients of the store.
const CLIENTS: usize = 2;
/// The number of whoever asks past it.
const OUTSIDER: usize = CLIENTS;
/// Steps of time after which no copy is served of before a move: each is 0.6 leases.
const COPIES_GONE: u8 = 2;

/// How much of everything happens at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Each client's operations, in order.
    pub scripts: [Vec<Call>; CLIENTS],
    /// What somebody reads and writes past the store.
    pub past: Vec<Call>,
    /// Moves of the slot, to and fro.
    pub moves: u8,
    /// Questions for a copy.
    pub pulls: u8,
    /// Lease requests.
    pub renewals: u8,
    /// Questions to the server that only show what it has told.
    pub questions: u8,
    /// Steps of time of 0.6 leases.
    pub steps: u8,
    /// What is broken, if anything.
    pub broken: Option<store::mutants::Mutant>,
}

/// What is left of each bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemainingBounds {
    moves: u8,
    pulls: u8,
    renewals: u8,
    questions: u8,
    steps: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    begun: u64,
    waits: bool,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotState {
    step: u8,
    home: Home,
    holder: Holder,
    clients: [Client; CLIENTS],
    /// Operations of whoever asks past the store.
    passed: usize,
    /// Sorted: order means nothing.
    flying: Vec<Message>,
    left: RemainingBounds,
    history: LinearizabilityTester<usize, Register>,
    /// Whether a copy was read.
    served: bool,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotEvent {
    /// A client begins its next operation; true: a read, at the holder.
    Begin(usize, bool),
    /// Something arrives.
    Deliver(usize),
    /// The server that has the key carries out what was asked first, or sends it on.
    CarryOut,
    /// The store hears what it was told first.
    Hear,
    /// The slot moves.
    Move,
    /// Somebody asks past the store.
    Pass,
    /// The holder asks for a copy.
    Pull,
    /// The holder asks for a lease.
    Renew,
    /// The store asks the server a question.
    Ask,
    /// 0.6 leases go by.
    Wait,
}

impl SlotState {
    fn fly(&mut self, message: Message) {
        if let Err(at) = self.flying.binary_search(&message) {
            self.flying.insert(at, message);
        }
    }

    fn back(&mut self, write: WriteId, said: Return) {
        let at = write.0 as usize;
        let client = &mut self.clients[at];
        if client.waits && client.begun == write.1 {
            client.waits = false;
            // The client calls and returns in turn, so the tester cannot refuse.
            let _ = self.history.on_return(at, said);
        }
    }

    /// Passes on what the store or the holder has said.
    fn pass_on(&mut self, out: Vec<Message>, told: Vec<Reply>) {
        out.into_iter().for_each(|message| self.fly(message));
        told.into_iter().for_each(|reply| self.back(reply.write, reply.said));
    }

    fn begin(&mut self, i: usize, call: Call, at_holder: bool) {
        let client = &mut self.clients[i];
        client.begun += 1;
        client.waits = true;
        let id = (i as u64, client.begun);
        let _ = self.history.on_invoke(i, call);
        let (now, step) = (now_ns(self.step), self.step);
        let (mut out, mut told) = (vec![], vec![]);
        match call {
            Call::Read if at_holder => {
                let served = self.holder.read(id, now, &mut out);
                self.served |= served.is_some();
                told.extend(served);
            }
            Call::Read => self.home.read(Reader::Client(id), step),
            _ => self.home.write(id, call, step, &mut out),
        }
        self.pass_on(out, told);
    }

    fn deliver(&mut self, message: Message) {
        let (now, step) = (now_ns(self.step), self.step);
        let (mut out, mut told) = (vec![], vec![]);
        match message {
            Message::Ask(_, number, epoch) => self.home.read(Reader::Holder(number, epoch), step),
            Message::Answer(_, number, copied, grant) => {
                self.holder.answered(number, copied, grant, &mut out, &mut told);
            }
            Message::Invalidate(epoch) => self.holder.invalidated(epoch, now, &mut out),
            Message::Ack(epoch, echoed, _) => {
                self.home.acknowledged(epoch, echoed, step, &mut out);
            }
            Message::LeaseRequest(_, sent_ns) => out.extend(self.home.lease(sent_ns, step)),
            Message::LeaseReply(_, sent_ns, term) => self.holder.lent(sent_ns, term, now),
            // Of copies in stores only.
            Message::Write(..) | Message::Update(..) | Message::Push(..) => {}
        }
        self.pass_on(out, told);
    }
}

impl Model for Slot {
    type State = SlotState;
    type Action = SlotEvent;

    fn init_states(&self) -> Vec<SlotState> {
        store::mutants::choose(self.broken);
        let mut home = Home::new();
        let mut holder = Holder::new(0);
        if let Some(Message::LeaseReply(_, sent_ns, term)) = home.lease(0, 0) {
            holder.lent(sent_ns, term, 0);
        }
        // It has a copy.
        let (epoch, number) = holder.pull(0);
        home.read(Reader::Holder(number, Some(epoch)), 0);
        home.carry_out();
        let (mut out, mut told) = (vec![], vec![]);
        while home.has_news() {
            home.hear(0, &mut out, &mut told);
        }
        for message in out {
            if let Message::Answer(_, number, copied, grant) = message {
                holder.answered(number, copied, grant, &mut vec![], &mut vec![]);
            }
        }
        vec![SlotState {
            step: 0,
            home,
            holder,
            clients: Default::default(),
            passed: 0,
            flying: vec![],
            left: RemainingBounds {
                moves: self.moves,
                pulls: self.pulls,
                renewals: self.renewals,
                questions: self.questions,
                steps: self.steps,
            },
            history: LinearizabilityTester::new(Register(Some(FIRST.value))),
            served: false,
        }]
    }

    fn actions(&self, state: &SlotState, actions: &mut Vec<SlotEvent>) {
        let left = &state.left;
        for (i, client) in state.clients.iter().enumerate() {
            let Some(call) = self.scripts[i].get(client.begun as usize) else { continue };
            if !client.waits {
                actions.push(SlotEvent::Begin(i, false));
                if *call == Call::Read {
                    actions.push(SlotEvent::Begin(i, true));
                }
            }
        }
        actions.extend((0..state.flying.len()).map(SlotEvent::Deliver));
        if state.home.asks() {
            actions.push(SlotEvent::CarryOut);
        }
        if state.home.has_news() {
            actions.push(SlotEvent::Hear);
        }
        if left.moves > 0 {
            actions.push(SlotEvent::Move);
        }
        let is_late = state.home.away_since().is_some_and(|at| state.step >= at + COPIES_GONE);
        if is_late && state.passed < self.past.len() {
            actions.push(SlotEvent::Pass);
        }
        if left.pulls > 0 && state.holder.lacks_value() {
            actions.push(SlotEvent::Pull);
        }
        if left.renewals > 0 {
            actions.push(SlotEvent::Renew);
        }
        if left.questions > 0 {
            actions.push(SlotEvent::Ask);
        }
        if left.steps > 0 {
            actions.push(SlotEvent::Wait);
        }
    }

    fn next_state(&self, last: &SlotState, event: SlotEvent) -> Option<SlotState> {
        store::mutants::choose(self.broken);
        let mut state = last.clone();
        let (step, now) = (state.step, now_ns(state.step));
        let (mut out, mut told) = (vec![], vec![]);
        match event {
            SlotEvent::Begin(i, at_holder) => {
                let call = self.scripts[i][state.clients[i].begun as usize];
                state.begin(i, call, at_holder);
            }
            SlotEvent::Deliver(at) => {
                let message = state.flying.remove(at);
                state.deliver(message);
            }
            SlotEvent::CarryOut => state.home.carry_out(),
            SlotEvent::Hear => state.home.hear(step, &mut out, &mut told),
            SlotEvent::Move => {
                state.left.moves -= 1;
                state.home.moves(step);
            }
            SlotEvent::Pass => {
                let call = self.past[state.passed];
                state.passed += 1;
                let _ = state.history.on_invoke(OUTSIDER, call);
                let said = state.home.asked_past(call);
                let _ = state.history.on_return(OUTSIDER, said);
            }
            SlotEvent::Pull => {
                state.left.pulls -= 1;
                let (epoch, number) = state.holder.pull(now);
                out.push(Message::Ask(0, number, Some(epoch)));
            }
            SlotEvent::Renew => {
                state.left.renewals -= 1;
                out.push(Message::LeaseRequest(0, now));
            }
            SlotEvent::Ask => {
                state.left.questions -= 1;
                state.home.ask(step);
            }
            SlotEvent::Wait => {
                state.left.steps -= 1;
                state.step += 1;
                state.home.drive(state.step, &mut out);
            }
        }
        state.pass_on(out, told);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Slot>> {
        vec![
            Property::always("linearizable", |_, state: &SlotState| state.history.is_consistent()),
            Property::sometimes("a copy is read", |_, state: &SlotState| state.served),
            Property::sometimes("somebody asks past the store", |_, state: &SlotState| {
                state.passed > 0
            }),
        ]
    }
}
