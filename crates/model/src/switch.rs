//! The switch's half: the transitions of `bpf/coherence.h` and of the data plane that includes it.

use wire::Epoch;

use crate::{
    Call, Return, Rule,
    message::{Item, OrderedReturn, Reply, Request},
    world::{LEASE_NS, now_ns},
};

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    pub id: u16,
    /// Rule 1: numbers given out so far.
    pub epoch: u64,
    /// What it holds for the key, if it holds an entry.
    pub entry: Option<Entry>,
    pub term: u32,
    /// Its lease holds before this, in nanoseconds.
    pub until: u64,
    /// Epochs up to this were taken in an earlier term.
    pub floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub epoch: u64,
    /// Valid if there is one.
    pub item: Option<Item>,
}

impl Switch {
    fn take_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    fn raise(&mut self, epoch: u64) {
        if let Some(entry) = &mut self.entry
            && entry.epoch < epoch
        {
            *entry = Entry { epoch, item: None };
        }
    }

    pub fn lease_holds(&self, step: u8) -> bool {
        now_ns(step) < self.until
    }

    /// A request on its way to the store. A reply: the switch answers itself.
    pub fn request(
        &mut self,
        request: &mut Request,
        step: u8,
        without: Option<Rule>,
    ) -> Option<Reply> {
        if request.call.0 == Call::Read {
            self.read(request, step, without)
        } else {
            self.write(request, without);
            None
        }
    }

    fn names_me(&self, epoch: Epoch) -> bool {
        epoch.switch() == self.id
    }

    fn read(&mut self, request: &mut Request, step: u8, without: Option<Rule>) -> Option<Reply> {
        let floor = self.floor;
        let holds = self.lease_holds(step);
        let entry = self.entry.as_ref()?;
        if !holds && without != Some(Rule::R6NoLeaseNeeded) {
            return None;
        }
        let current = entry.epoch > floor || without == Some(Rule::R6TermIgnored);
        if let Some(item) = entry.item.filter(|_| current) {
            return Some(Reply {
                client: request.client,
                number: request.number,
                said: OrderedReturn(Return::Value(Some(item.value))),
                version: item.version,
                path: request.path,
                left: request.passed,
                epoch: Epoch::NONE,
                grant: None,
            });
        }
        if request.epoch != Epoch::NONE && !self.names_me(request.epoch) {
            return None;
        }
        let mut epoch = entry.epoch;
        if epoch <= floor {
            epoch = self.take_epoch();
            self.raise(epoch);
        }
        request.epoch = Epoch::new(self.id, epoch);
        request.grant = true;
        None
    }

    /// Rule 2.
    fn write(&mut self, request: &mut Request, without: Option<Rule>) {
        let epoch = self.take_epoch();
        let have = self.entry.is_some();
        if without != Some(Rule::R2WriteDoesNotInvalidate) {
            self.raise(epoch);
        }
        if request.epoch == Epoch::NONE || self.names_me(request.epoch) || (have && !request.grant)
        {
            request.epoch = Epoch::new(self.id, epoch);
            request.grant = have;
        }
    }

    /// Rule 5: a grant that names this switch.
    pub fn install(&mut self, epoch: Epoch, item: Item, without: Option<Rule>) {
        if !self.names_me(epoch) || epoch.number() <= self.floor {
            return;
        }
        let Some(entry) = &mut self.entry else { return };
        let fits = entry.epoch == epoch.number() && entry.item.is_none();
        if fits || without == Some(Rule::R5InstallOfAnyEpoch) {
            entry.item = Some(item);
        }
    }

    /// An INVALIDATE; returns the epoch for the acknowledgement.
    pub fn invalidate(&mut self) -> Epoch {
        let epoch = self.take_epoch();
        self.raise(epoch);
        Epoch::new(self.id, epoch)
    }

    /// A lease, counted from when it was asked for; a new term raises the floor.
    pub fn take_lease(&mut self, sent: u8, term: u32, step: u8) {
        let until = now_ns(sent) + LEASE_NS;
        if until <= now_ns(step) {
            return;
        }
        if self.term != term {
            self.until = 0;
            self.floor = self.epoch;
            self.term = term;
        }
        self.until = self.until.max(until);
    }

    /// The agent makes an entry without a value.
    pub fn insert(&mut self) {
        let epoch = self.take_epoch();
        self.entry = Some(Entry { epoch, item: None });
    }

    /// The agent removes the entry. Rule 1 off: the counter goes with it.
    pub fn evict(&mut self, without: Option<Rule>) {
        self.entry = None;
        if without == Some(Rule::R1EpochsRepeat) {
            self.epoch = 0;
        }
    }
}
