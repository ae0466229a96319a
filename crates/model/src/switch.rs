//! The switch's half: what becomes of a message that passes a switch, by the data plane's C itself.

use wire::{Epoch, Flags, Header, Op};

use crate::{
    Call, Return,
    message::{Item, OrderedReturn, Reply, Request},
    real::{self, Out, State},
    world::{LEASE_MS, now_ns},
};

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch(State);

impl Switch {
    /// A switch that has given out so many numbers, with no lease and no entry.
    pub fn new(id: u16, epoch: u64) -> Switch {
        Switch(State::new(id, epoch))
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
            Out::Forward(header) => {
                request.epoch = header.epoch;
                request.grant = header.flags.has(Flags::GRANT);
                None
            }
            Out::Back(header, value) => Some(Reply {
                client: request.client,
                number: request.number,
                said: OrderedReturn(Return::Value(value)),
                version: header.version,
                path: request.path,
                left: request.passed,
                epoch: Epoch::NONE,
                grant: None,
            }),
            Out::Ends => panic!("a request ends in a switch"),
        }
    }

    /// Rule 5: the answer to a client passes, and is a grant.
    pub fn reply(&mut self, call: Op, epoch: Epoch, item: Item, step: u8) {
        let out = self.grant(call, epoch, item, step);
        assert!(matches!(out, Out::Forward(_)), "an answer goes on: {out:?}");
    }

    /// Rule 5: the answer to the agent.
    pub fn fetched(&mut self, epoch: Epoch, item: Item, step: u8) {
        let out = self.grant(Op::FetchReply, epoch, item, step);
        assert!(matches!(out, Out::Ends), "it is for this switch: {out:?}");
    }

    fn grant(&mut self, op: Op, epoch: Epoch, item: Item, step: u8) -> Out {
        let mut header = Header::new(op);
        header.flags = Flags::GRANT;
        header.epoch = epoch;
        header.version = item.version;
        header.expiry_ms = item.life_ms;
        real::run(&mut self.0, header, &[item.value], true, now_ns(step))
    }

    /// An INVALIDATE; the acknowledgement: its epoch, and the number that it echoes.
    pub fn invalidate(&mut self, epoch: Epoch, step: u8) -> Option<(Epoch, u64)> {
        let mut header = Header::new(Op::Invalidate);
        header.epoch = epoch;
        match real::run(&mut self.0, header, &[], true, now_ns(step)) {
            Out::Back(header, _) => Some((header.epoch, header.version)),
            _ => None,
        }
    }

    /// The store's offer, which becomes the request: the time with which it is dated.
    pub fn offered(&mut self, step: u8) -> Option<u64> {
        let header = real::lease_header(Op::LeaseOffer, self.id());
        match real::run(&mut self.0, header, &[], true, now_ns(step)) {
            Out::Back(header, _) => Some(header.version),
            _ => None,
        }
    }

    /// A lease, asked for at `sent_ns`.
    pub fn take_lease(&mut self, sent_ns: u64, term: u64, step: u8) {
        let mut header = real::lease_header(Op::LeaseReply, self.id());
        header.version = sent_ns;
        header.client = term;
        header.expiry_ms = LEASE_MS;
        real::run(&mut self.0, header, &[], true, now_ns(step));
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
    }
}
