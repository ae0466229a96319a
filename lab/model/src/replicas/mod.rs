//! Copies in other stores, exhausted: one key, its home, two stores that hold copies of it, and
//! clients whose reads go to any of the three and whose writes a switch copies to both. The switch
//! knows nothing: which store it sends a read to is one of the choices that are all looked at, so
//! no hint of it can be wrong enough. Whatever is never delivered is lost.
//!
//! [`store::coherence`]'s `KeyState`, `Leases`, `Asks`, `Replica`, `BorrowedLease` and `Epochs` are
//! called; the order of the engine's calls around them is the model's own.

mod holder;
mod home;

use stateright::{
    Model, Property,
    semantics::{ConsistencyTester, LinearizabilityTester},
};
use store::coherence::WriteId;
use wire::Epoch;

use crate::{Call, Register, Return, bounds::now_ns, message::OrderedCall};
pub(crate) use holder::Holder;
use home::Home;

/// Stores that hold copies.
pub(crate) const HOLDERS: usize = 2;
/// The version and the value that the key begins with.
pub(crate) const FIRST: VersionedValue = VersionedValue { value: 0, version: 1 };

/// A value with its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionedValue {
    pub(crate) value: u8,
    pub(crate) version: u64,
}

/// What is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A client's write, on its way home: what it knows the key to have, for a conditional one.
    Write(WriteId, OrderedCall, u64),
    /// A copy of it that the switch has made, for the store of this index.
    Update(usize, WriteId, u8),
    /// A copy is gone, and would be taken: its new epoch, the number of what it answers, and the
    /// write whose value is there.
    Ack(Epoch, u64, Option<WriteId>),
    /// A copy is called back.
    Invalidate(Epoch),
    /// The newest value, or only a hash of it, and the write that was applied last.
    Push(Epoch, VersionedValue, Option<WriteId>, bool),
    /// A question of the store of this index, and the epoch for which it would take a grant.
    Ask(usize, u64, Option<Epoch>),
    /// The answer to it, and whether it is a grant.
    Answer(usize, u64, VersionedValue, Option<Epoch>),
    /// A lease is asked for at this time.
    LeaseRequest(usize, u64),
    /// It is lent in this term.
    LeaseReply(usize, u64, u64),
}

/// How much of everything happens at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf {
    /// Each client's operations, in order.
    pub scripts: [Vec<Call>; 3],
    /// Messages between stores, and copies of writes, that come twice.
    pub duplicates: u8,
    /// Questions for a copy, of the first store.
    pub pulls: u8,
    /// Its lease requests.
    pub renewals: u8,
    /// Steps of time of 0.6 leases.
    pub steps: u8,
    /// Its restarts.
    pub restarts: u8,
    /// What is broken, if anything.
    pub broken: Option<store::mutants::Mutant>,
}

/// What is left of each bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemainingBounds {
    duplicates: u8,
    pulls: u8,
    renewals: u8,
    steps: u8,
    restarts: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    begun: u64,
    waits: bool,
    version: u64,
}

/// What a client is told, and the version that it learns.
pub(crate) struct Reply {
    pub write: WriteId,
    pub said: Return,
    pub version: u64,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShelfState {
    step: u8,
    home: Home,
    holders: [Holder; HOLDERS],
    clients: [Client; 3],
    /// Sorted: order means nothing.
    flying: Vec<Message>,
    left: RemainingBounds,
    history: LinearizabilityTester<usize, Register>,
    /// Whether a store has answered from its copy, and from one that was pushed as a hash.
    served: bool,
    hashed: bool,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A client begins its next operation; a read goes to the store of this index, or home.
    Begin(usize, Option<usize>),
    /// Something arrives.
    Deliver(usize),
    /// Something arrives, and will again.
    DeliverTwice(usize),
    /// A store asks for a copy.
    Pull(usize),
    /// A store asks for a lease.
    Renew(usize),
    /// 0.6 leases pass.
    Pass,
    /// A store that holds copies is killed and starts again.
    Restart(usize),
}

impl ShelfState {
    /// What is in flight already comes once: of two copies one may be lost, and what comes twice is
    /// a choice of its own.
    fn fly(&mut self, message: Message) {
        if let Err(at) = self.flying.binary_search(&message) {
            self.flying.insert(at, message);
        }
    }

    /// Its client hears of it at once: whoever hears later may only have been told more.
    fn back(&mut self, reply: &Reply) {
        let at = reply.write.0 as usize;
        let client = &mut self.clients[at];
        if client.waits && client.begun == reply.write.1 {
            client.waits = false;
            client.version = reply.version;
            // The client calls and returns in turn, so the tester cannot refuse.
            let _ = self.history.on_return(at, reply.said);
        }
    }

    fn begin(&mut self, i: usize, call: Call, to: Option<usize>) {
        let client = &mut self.clients[i];
        client.begun += 1;
        client.waits = true;
        let (id, version) = ((i as u64, client.begun), client.version);
        let _ = self.history.on_invoke(i, call);
        let (mut out, mut told) = (vec![], vec![]);
        match (call, to) {
            (Call::Read, Some(at)) => {
                let served = self.holders[at].read(id, now_ns(self.step), &mut out);
                self.served |= served.is_some();
                told.extend(served);
            }
            (Call::Read, None) => told.push(self.home.read(id)),
            (Call::Write(value) | Call::CompareAndSet { to: value, .. }, _) => {
                out.push(Message::Write(id, OrderedCall(call), version));
                out.extend((0..HOLDERS).map(|at| Message::Update(at, id, value)));
            }
            (Call::Delete, _) => {}
        }
        out.into_iter().for_each(|message| self.fly(message));
        told.iter().for_each(|reply| self.back(reply));
    }

    fn deliver(&mut self, message: Message) {
        let now = now_ns(self.step);
        let (mut out, mut told) = (vec![], vec![]);
        match message {
            Message::Write(id, call, version) => {
                self.home.write(id, call.0, version, now, &mut out, &mut told);
            }
            Message::Update(at, write, value) => {
                self.holders[at].update(write, value, now, &mut out);
            }
            Message::Ack(epoch, echoed, write) => {
                self.home.acknowledged(epoch, echoed, write, now, &mut out, &mut told);
            }
            Message::Invalidate(epoch) => {
                self.holder(epoch).invalidated(epoch, now, &mut out);
            }
            Message::Push(epoch, copied, write, is_hash) => {
                let hashed = self.holder(epoch).pushed(epoch, copied, write, is_hash);
                self.hashed |= hashed;
            }
            Message::Ask(at, number, epoch) => out.push(self.home.asked(at, number, epoch, now)),
            Message::Answer(at, number, copied, grant) => {
                self.holders[at].answered(number, copied, grant, &mut out, &mut told);
            }
            Message::LeaseRequest(at, sent_ns) => out.extend(self.home.lease(at, sent_ns, now)),
            Message::LeaseReply(at, sent_ns, term) => self.holders[at].lent(sent_ns, term, now),
        }
        out.into_iter().for_each(|message| self.fly(message));
        told.iter().for_each(|reply| self.back(reply));
    }

    fn holder(&mut self, epoch: Epoch) -> &mut Holder {
        &mut self.holders[usize::from(epoch.switch() & !wire::NODE_STORE)]
    }
}

impl Model for Shelf {
    type State = ShelfState;
    type Action = Deed;

    fn init_states(&self) -> Vec<ShelfState> {
        store::mutants::choose(self.broken);
        let mut home = Home::new();
        let holders = std::array::from_fn(|at| {
            let mut holder = Holder::new(at);
            if let Some(Message::LeaseReply(_, sent_ns, term)) = home.lease(at, 0, 0) {
                holder.lent(sent_ns, term, 0);
            }
            // Both have copies.
            let epoch = holder.pull(0);
            if let Message::Answer(_, number, copied, grant) =
                home.asked(at, epoch.1, Some(epoch.0), 0)
            {
                holder.answered(number, copied, grant, &mut vec![], &mut vec![]);
            }
            holder
        });
        let client = Client { version: FIRST.version, ..Client::default() };
        vec![ShelfState {
            step: 0,
            home,
            holders,
            clients: std::array::from_fn(|_| client.clone()),
            flying: vec![],
            left: RemainingBounds {
                duplicates: self.duplicates,
                pulls: self.pulls,
                renewals: self.renewals,
                steps: self.steps,
                restarts: self.restarts,
            },
            history: LinearizabilityTester::new(Register(Some(FIRST.value))),
            served: false,
            hashed: false,
        }]
    }

    fn actions(&self, state: &ShelfState, actions: &mut Vec<Deed>) {
        let left = &state.left;
        for (i, client) in state.clients.iter().enumerate() {
            let Some(call) = self.scripts[i].get(client.begun as usize) else { continue };
            if !client.waits {
                actions.push(Deed::Begin(i, None));
                let holders = (0..HOLDERS).filter(|_| *call == Call::Read);
                actions.extend(holders.map(|at| Deed::Begin(i, Some(at))));
            }
        }
        for (i, message) in state.flying.iter().enumerate() {
            actions.push(Deed::Deliver(i));
            // Rule 7 is another model's.
            if left.duplicates > 0 && !matches!(message, Message::Write(..)) {
                actions.push(Deed::DeliverTwice(i));
            }
        }
        // The stores are alike: what happens to one of them happens to the first.
        if left.pulls > 0 && state.holders[0].lacks_value() {
            actions.push(Deed::Pull(0));
        }
        if left.renewals > 0 {
            actions.push(Deed::Renew(0));
        }
        if left.restarts > 0 {
            actions.push(Deed::Restart(0));
        }
        if left.steps > 0 {
            actions.push(Deed::Pass);
        }
    }

    fn next_state(&self, last: &ShelfState, deed: Deed) -> Option<ShelfState> {
        store::mutants::choose(self.broken);
        let mut state = last.clone();
        let now = now_ns(state.step);
        match deed {
            Deed::Begin(i, to) => {
                let call = self.scripts[i][state.clients[i].begun as usize];
                state.begin(i, call, to);
            }
            Deed::Deliver(at) => {
                let message = state.flying.remove(at);
                state.deliver(message);
            }
            Deed::DeliverTwice(at) => {
                state.left.duplicates -= 1;
                let message = state.flying[at].clone();
                state.deliver(message);
            }
            Deed::Pull(at) => {
                state.left.pulls -= 1;
                let (epoch, number) = state.holders[at].pull(now);
                state.fly(Message::Ask(at, number, Some(epoch)));
            }
            Deed::Renew(at) => {
                state.left.renewals -= 1;
                state.fly(Message::LeaseRequest(at, now));
            }
            Deed::Pass => {
                state.left.steps -= 1;
                state.step += 1;
                let (mut out, mut told) = (vec![], vec![]);
                state.home.drive(now_ns(state.step), &mut out, &mut told);
                out.into_iter().for_each(|message| state.fly(message));
                told.iter().for_each(|reply| state.back(reply));
            }
            Deed::Restart(at) => {
                state.left.restarts -= 1;
                state.holders[at].restart(at);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Shelf>> {
        vec![
            Property::always("linearizable", |_, state: &ShelfState| state.history.is_consistent()),
            Property::sometimes("a copy is read", |_, state: &ShelfState| state.served),
            Property::sometimes("a hash is pushed", |_, state: &ShelfState| state.hashed),
        ]
    }
}
