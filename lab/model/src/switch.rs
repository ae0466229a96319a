//! The switch's half: what becomes of a message that passes a switch, by the data plane's C itself.

use wire::{Epoch, Flags, Header, Op};

use crate::{
    Call, Return,
    bounds::{LEASE_MS, now_ns},
    message::{Item, OrderedReturn, Reply, Request},
    real::{self, Entry, PacketOutcome, State},
};

/// One switch. In a world of parts its programs hold the first part of the value, as they would
/// hold all of it; the second part goes with it, as a discipline that holds parts has to treat it:
/// it was granted under the epoch under which the first is valid, and has its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch(State, Option<Second>);

/// A second part that a switch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Second {
    epoch: u64,
    version: u64,
    byte: u8,
}

impl Switch {
    /// A switch that has given out so many numbers, with no lease and no entry.
    pub fn new(id: u16, epoch: u64) -> Switch {
        Switch(State::new(id, epoch), None)
    }

    pub fn id(&self) -> u16 {
        self.0.id
    }

    pub fn has_entry(&self) -> bool {
        self.0.entry.is_some()
    }

    /// Whether its agent would ask for a value.
    pub fn lacks_value(&self) -> bool {
        self.0.entry.is_some_and(|entry| !entry.is_valid())
    }

    /// A request on its way to the store. A reply: the switch answers itself.
    pub fn request(&mut self, request: &mut Request, step: u8) -> Option<Reply> {
        if request.call.0 == Call::Read && !request.parts[0] {
            return self.second(request, step);
        }
        let reply = self.first(request, step);
        self.forget_stale();
        reply
    }

    /// A read of the second part. If it is missing although the first may be served, the switch
    /// asks for it under the epoch of that.
    fn second(&mut self, request: &mut Request, step: u8) -> Option<Reply> {
        let mut first =
            Request { parts: [true; 2], grant: false, epoch: Epoch::NONE, ..request.clone() };
        // It changes nothing: the second part has no entry of its own.
        let served = Switch(self.0, None).first(&mut first, step)?;
        let epoch = self.0.entry?.epoch();
        match self.1 {
            Some(second) if (second.epoch, second.version) == (epoch, served.version) => {
                (served.version == request.version).then_some(Reply {
                    said: OrderedReturn(Return::Value(Some(second.byte))),
                    second: true,
                    ..served
                })
            }
            _ => {
                if !request.grant {
                    request.epoch = Epoch::new(self.id(), epoch);
                    request.grant = true;
                }
                None
            }
        }
    }

    /// A second part is of no use without the first.
    fn forget_stale(&mut self) {
        let valid = self.0.entry.filter(Entry::is_valid).map(|entry| entry.epoch());
        self.1 = self.1.filter(|second| valid == Some(second.epoch));
    }

    /// All but a read of the second part.
    fn first(&mut self, request: &mut Request, step: u8) -> Option<Reply> {
        let (op, value) = match request.call.0 {
            Call::Read => (Op::ReadRequest, None),
            Call::Write(value) | Call::CompareAndSet { to: value, .. } => {
                (Op::WriteRequest, Some(value))
            }
            Call::Delete => (Op::DeleteRequest, None),
        };
        let mut header = Header::new(op);
        header.epoch = request.epoch;
        if request.grant {
            header.flags = Flags::GRANT;
        }
        match real::run(&mut self.0, header, value.as_slice(), false, now_ns(step)) {
            PacketOutcome::Forward(header) => {
                request.epoch = header.epoch;
                request.grant = header.flags.has(Flags::GRANT);
                None
            }
            PacketOutcome::Back(header, value) => Some(Reply {
                client: request.client,
                number: request.number,
                said: OrderedReturn(Return::Value(value)),
                version: header.version,
                second: false,
                question: request.question,
                path: request.path,
                left: request.passed,
                epoch: Epoch::NONE,
                grant: None,
            }),
            PacketOutcome::Ends => panic!("a request ends in a switch"),
        }
    }

    /// Rule 5: the answer to a client passes, and is a grant.
    pub fn reply(&mut self, call: Op, epoch: Epoch, item: Item, second: bool, step: u8) {
        if second {
            return self.take_second(epoch, item);
        }
        let out = self.grant(call, epoch, item, step);
        assert!(matches!(out, PacketOutcome::Forward(_)), "an answer goes on: {out:?}");
    }

    /// Rule 5: the second part is granted. It is held only beside the first, if that is valid under
    /// the same epoch and of its version.
    fn take_second(&mut self, epoch: Epoch, item: Item) {
        let entry = self.0.entry.filter(Entry::is_valid);
        let fits =
            |entry: &Entry| entry.epoch() == epoch.number() && entry.version() == item.version;
        if epoch.switch() == self.id() && entry.is_some_and(|entry| fits(&entry)) {
            self.1 = Some(Second { epoch: epoch.number(), version: item.version, byte: item.rest });
        }
    }

    /// Rule 5: the answer to the agent.
    pub fn fetched(&mut self, epoch: Epoch, item: Item, step: u8) {
        let out = self.grant(Op::FetchReply, epoch, item, step);
        assert!(matches!(out, PacketOutcome::Ends), "it is for this switch: {out:?}");
    }

    fn grant(&mut self, op: Op, epoch: Epoch, item: Item, step: u8) -> PacketOutcome {
        let mut header = Header::new(op);
        header.flags = Flags::GRANT;
        header.epoch = epoch;
        header.version = item.version;
        header.expiry_ms = item.life_ms;
        let out = real::run(&mut self.0, header, &[item.value], true, now_ns(step));
        self.forget_stale();
        out
    }

    /// An INVALIDATE; the acknowledgement: its epoch, and the number that it echoes.
    pub fn invalidate(&mut self, epoch: Epoch, step: u8) -> Option<(Epoch, u64)> {
        let mut header = Header::new(Op::Invalidate);
        header.epoch = epoch;
        let out = real::run(&mut self.0, header, &[], true, now_ns(step));
        self.forget_stale();
        match out {
            PacketOutcome::Back(header, _) => Some((header.epoch, header.version)),
            _ => None,
        }
    }

    /// Whether it has a lease to give back.
    pub fn may_leave(&self) -> bool {
        !self.0.is_gone()
    }

    /// It leaves: serves nothing any more. The term of the lease that it gives back.
    pub fn leave(&mut self) -> u64 {
        self.0.give_up()
    }

    /// The store's offer, which becomes the request: the time with which it is dated. One that had
    /// left has come back, and its agent asks.
    pub fn offered(&mut self, step: u8) -> Option<u64> {
        self.0.come_back();
        let header = real::lease_header(Op::LeaseOffer, self.id());
        match real::run(&mut self.0, header, &[], true, now_ns(step)) {
            PacketOutcome::Back(header, _) => Some(header.version),
            _ => None,
        }
    }

    /// A lease, asked for at `sent_ns`.
    pub fn take_lease(&mut self, sent_ns: u64, term: u64, step: u8) {
        if self.0.is_gone() {
            return;
        }
        let mut header = real::lease_header(Op::LeaseReply, self.id());
        header.version = sent_ns;
        header.client = term;
        header.expiry_ms = LEASE_MS;
        real::run(&mut self.0, header, &[], true, now_ns(step));
    }

    /// Whether its agent may give it a blank.
    pub fn may_have_blank(&self) -> bool {
        !self.0.blank && !self.has_entry()
    }

    /// The agent gives it a blank: the next read that misses makes an entry.
    pub fn give_blank(&mut self) {
        self.0.blank = true;
    }

    /// The agent makes an entry without a value.
    pub fn insert(&mut self, step: u8) {
        real::insert(&mut self.0, now_ns(step));
    }

    /// The agent asks for the value under this epoch.
    pub fn fetch(&mut self, step: u8) -> Option<Epoch> {
        real::fetch(&mut self.0, now_ns(step))
    }

    /// The agent removes the entry.
    pub fn evict(&mut self) {
        self.0.entry = None;
        self.0.blank = false;
        self.1 = None;
    }
}
