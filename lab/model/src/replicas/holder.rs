//! A store that holds a copy: the engine's order of calls.

use store::{
    coherence::{BorrowedLease, Epochs, Nanos, Replica, WriteId, answers},
    mutants::{Mutant, mutant},
};
use wire::{Epoch, NODE_STORE, NodeId};

use super::{Message, Reply, VersionedValue};
use crate::{Return, bounds::LEASE_NS};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    node: NodeId,
    lives: u64,
    epochs: Epochs,
    lease: BorrowedLease,
    replica: Replica<u8>,
    /// The newest question, and the one that is under way; 0: none.
    newest: u64,
    asked: u64,
    /// Reads that wait: whose, and what had been asked when each came.
    reads: Vec<(WriteId, u64)>,
}

impl Holder {
    pub fn new(at: usize) -> Holder {
        Holder::of_life(at, 0)
    }

    fn of_life(at: usize, lives: u64) -> Holder {
        Holder {
            node: NODE_STORE | at as u16,
            lives,
            epochs: Epochs::new(lives << 16, 0),
            lease: BorrowedLease::default(),
            replica: Replica::new(0, 0),
            newest: lives << 16,
            asked: 0,
            reads: vec![],
        }
    }

    /// Only numbers are above those of before.
    pub fn restart(&mut self, at: usize) {
        *self = Holder::of_life(at, self.lives + 1);
    }

    pub fn lacks_value(&self) -> bool {
        !self.replica.is_valid()
    }

    pub fn lent(&mut self, sent_ns: Nanos, term: u64, now: Nanos) {
        let newest = self.epochs.newest();
        self.lease.lent(term, sent_ns, LEASE_NS, now, newest);
    }

    /// Asks for a copy: under this epoch, with this number.
    pub fn pull(&mut self, now: Nanos) -> (Epoch, u64) {
        if self.replica.is_valid() || !self.lease.is_above_floor(self.replica.epoch()) {
            self.replica.raise(self.epochs.take(), now);
        }
        (Epoch::new(self.node, self.replica.epoch()), self.ask())
    }

    fn ask(&mut self) -> u64 {
        self.newest += 1;
        self.asked = self.newest;
        self.asked
    }

    fn at(&self) -> usize {
        usize::from(self.node & !NODE_STORE)
    }

    /// Answered from the copy, or passed on.
    pub fn read(&mut self, id: WriteId, now: Nanos, out: &mut Vec<Message>) -> Option<Reply> {
        if let Some(copy) = self.replica.serve(&self.lease, now) {
            return Some(Reply {
                write: id,
                said: Return::Value(Some(copy.value)),
                version: copy.version,
            });
        }
        self.reads.push((id, self.newest));
        if self.asked == 0 {
            let number = self.ask();
            out.push(Message::Ask(self.at(), number, None));
        }
        None
    }

    pub fn update(&mut self, write: WriteId, value: u8, now: Nanos, out: &mut Vec<Message>) {
        let epoch = if self.replica.was_told(write) {
            if self.replica.is_valid() {
                return;
            }
            self.replica.epoch()
        } else {
            let epoch = self.epochs.take();
            if !mutant(Mutant::UpdateLeavesValid) {
                self.replica.update(epoch, write, Some(value), now);
            }
            if mutant(Mutant::CandidateServed) {
                self.replica.install(epoch, &self.lease, value, 0, 0);
            }
            epoch
        };
        out.push(Message::Ack(Epoch::new(self.node, epoch), 0, Some(write)));
    }

    pub fn invalidated(&mut self, epoch: Epoch, now: Nanos, out: &mut Vec<Message>) {
        let taken = self.epochs.take();
        self.replica.raise(taken, now);
        let write = self.replica.candidate();
        out.push(Message::Ack(Epoch::new(self.node, taken), epoch.number(), write));
    }

    /// Whether a hash was enough.
    pub fn pushed(
        &mut self,
        epoch: Epoch,
        copied: VersionedValue,
        write: Option<WriteId>,
        is_hash: bool,
    ) -> bool {
        if !is_hash {
            self.granted(epoch, copied.value, copied.version);
            return false;
        }
        if self.replica.epoch() != epoch.number() {
            return false;
        }
        let candidate = write.and_then(|write| self.replica.take_candidate(write));
        let same = |value: &u8| *value == copied.value || mutant(Mutant::CandidateOfAnyWrite);
        let candidate = candidate.filter(same);
        if let Some(value) = candidate {
            self.granted(epoch, value, copied.version);
        }
        candidate.is_some()
    }

    fn granted(&mut self, epoch: Epoch, value: u8, version: u64) {
        let number = epoch.number();
        if !self.replica.is_valid() && self.replica.would_take(number, &self.lease) {
            self.replica.install(number, &self.lease, value, version, 0);
        }
    }

    pub fn answered(
        &mut self,
        number: u64,
        copied: VersionedValue,
        grant: Option<Epoch>,
        out: &mut Vec<Message>,
        told: &mut Vec<Reply>,
    ) {
        if number == self.asked {
            self.asked = 0;
        }
        if let Some(epoch) = grant {
            self.granted(epoch, copied.value, copied.version);
        }
        let reads = std::mem::take(&mut self.reads).into_iter();
        let (older, newer): (Vec<_>, _) = reads.partition(|(_, after)| answers(number, *after));
        self.reads = newer;
        told.extend(older.into_iter().map(|(write, _)| Reply {
            write,
            said: Return::Value(Some(copied.value)),
            version: copied.version,
        }));
        if self.asked == 0 && !self.reads.is_empty() {
            let number = self.ask();
            out.push(Message::Ask(self.at(), number, None));
        }
    }
}
