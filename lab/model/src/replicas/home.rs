//! The key's home: the engine's order of calls.

use store::{
    coherence::{
        Ask, Asks, Invalidate, KeyState, LeaseAnswer, Leases, Nanos, Step, Write, WriteId,
    },
    mutants::{Mutant, mutant},
};
use wire::{Epoch, NODE_STORE};

use super::{FIRST, Message, Reply, VersionedValue};
use crate::{Call, Return, bounds::LEASE_NS};

/// A write that waits: whose it is, what it does, and the version that it may need.
type Body = (WriteId, Call, u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    key: KeyState<Body>,
    leases: Leases<()>,
    asks: Asks,
    item: VersionedValue,
}

impl Home {
    pub fn new() -> Home {
        Home {
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS, 1),
            asks: Asks::default(),
            item: FIRST,
        }
    }

    pub fn read(&self, id: WriteId) -> Reply {
        Reply { write: id, said: Return::Value(Some(self.item.value)), version: self.item.version }
    }

    pub fn write(
        &mut self,
        id: WriteId,
        call: Call,
        version: u64,
        now: Nanos,
        out: &mut Vec<Message>,
        told: &mut Vec<Reply>,
    ) {
        let write = Write { epoch: Epoch::NONE, told_stores: true, body: (id, call, version) };
        self.key.submit(write, 4);
        self.drive(now, out, told);
    }

    pub fn acknowledged(
        &mut self,
        epoch: Epoch,
        echoed: u64,
        write: Option<WriteId>,
        now: Nanos,
        out: &mut Vec<Message>,
        told: &mut Vec<Reply>,
    ) {
        if self.leases.term(epoch.switch(), now).is_some() {
            let since_ns = now;
            self.asks.put(Ask { epoch, write, since_ns });
        }
        self.key.acknowledged(epoch, echoed);
        self.drive(now, out, told);
    }

    /// A store's question: the answer is a grant if it may be one, and is pushed later if a write
    /// is pending.
    pub fn asked(&mut self, at: usize, number: u64, epoch: Option<Epoch>, now: Nanos) -> Message {
        let granted = epoch.filter(|epoch| self.may_grant(*epoch, now));
        Message::Answer(at, number, self.item, granted)
    }

    fn may_grant(&mut self, epoch: Epoch, now: Nanos) -> bool {
        self.key.grant(epoch, &self.leases, true, now).is_ok()
    }

    pub fn lease(&mut self, at: usize, sent_ns: Nanos, now: Nanos) -> Option<Message> {
        match self.leases.request(NODE_STORE | at as u16, (), sent_ns, now) {
            LeaseAnswer::Lent { term, .. } => Some(Message::LeaseReply(at, sent_ns, term)),
            _ => None,
        }
    }

    pub fn drive(&mut self, now: Nanos, out: &mut Vec<Message>, told: &mut Vec<Reply>) {
        let mut invalidations = vec![];
        loop {
            match self.key.poll(&mut self.leases, now, &mut invalidations) {
                Step::Apply => self.apply(told),
                Step::Idle => {
                    self.push(now, out);
                    break;
                }
                _ => break,
            }
        }
        let send = |i: Invalidate| Message::Invalidate(Epoch::new(i.switch, i.granted));
        out.extend(invalidations.into_iter().map(send));
    }

    fn apply(&mut self, told: &mut Vec<Reply>) {
        let Some(&Write { body: (id, call, known), .. }) = self.key.applying() else { return };
        let stores: Vec<u16> = self.asks.told(id).collect();
        stores.into_iter().for_each(|store| self.key.told(store));
        self.key.applied(0);
        let holds = known == self.item.version;
        let mut put = |value| {
            self.item = VersionedValue { value, version: self.item.version + 1 };
            self.asks.applied(id);
            Return::Done
        };
        let said = match call {
            Call::Write(value) => put(value),
            Call::CompareAndSet { to, .. } if holds => put(to),
            _ => Return::Mismatch,
        };
        told.push(Reply { write: id, said, version: self.item.version });
    }

    /// No write waits: who asked is pushed the newest value.
    fn push(&mut self, now: Nanos, out: &mut Vec<Message>) {
        let (due, _) = self.asks.take_due(now);
        let last = self.asks.last();
        for ask in due {
            let is_other = ask.write.is_some() && mutant(Mutant::CandidateOfAnyWrite);
            let has_value = last.is_some() && (ask.write == last || is_other);
            if self.may_grant(ask.epoch, now) {
                out.push(Message::Push(ask.epoch, self.item, last, has_value));
            }
        }
    }
}
