//! A client of one key, which writes when it is told to and otherwise reads without a pause, and
//! notes what it is told.

use std::net::SocketAddr;

use sim::{Birth, Io, Process, packet::Datagram};
use wire::{Flags, Header, Op, Packet, Secret, Status};

const KEY: &[u8] = b"the only key";
/// From one read to the next, and from a write that stays unanswered to its repetition.
const READ_NS: u64 = 2_000_000;
const AGAIN_NS: u64 = 20_000_000;

/// A read that was answered. Times are the world's.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// When it was sent.
    pub asked_ns: u64,
    /// When the answer came.
    pub told_ns: u64,
    /// The number that was read.
    pub number: u64,
    /// Whether a switch answered.
    pub cached: bool,
}

/// The client.
pub struct Asker {
    port: u16,
    store: SocketAddr,
    client: u64,
    request: u64,
    /// Reads under way: their requests, and when they were sent.
    asked: Vec<(u64, u64)>,
    /// What is to be written, and the request's number.
    writing: Option<(u64, u64)>,
    next_ns: u64,
    /// Whether it reads.
    pub reads: bool,
    /// The reads that were answered.
    pub seen: Vec<Read>,
}

impl Asker {
    /// One that does nothing yet.
    pub fn new(birth: &Birth, store: SocketAddr) -> Asker {
        Asker {
            port: birth.port,
            store,
            client: birth.seed,
            request: 0,
            asked: vec![],
            writing: None,
            next_ns: 0,
            reads: false,
            seen: vec![],
        }
    }

    /// Begins to write this number.
    pub fn write(&mut self, number: u64, io: &mut Io<'_>) {
        self.request += 1;
        self.writing = Some((number, self.request));
        self.next_ns = io.now_ns();
        self.wake(io);
    }

    /// Whether the write was answered.
    pub fn has_written(&self) -> bool {
        self.writing.is_none()
    }

    fn send(&self, op: Op, request: u64, value: &[u8], io: &mut Io<'_>) {
        let header = Header {
            client: self.client,
            request,
            key_hash: Secret::NONE.key_hash(0, KEY),
            ..Header::new(op)
        };
        let mut bytes = vec![];
        let packet = Packet::new(header, KEY, value);
        packet.encode(&Secret::NONE, &mut bytes).unwrap();
        // Room for the answer.
        bytes.resize(bytes.len() + 64, 0);
        io.send(self.port, self.store, &bytes);
    }
}

impl Process for Asker {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let Header { op, status, request, flags, .. } =
            Packet::decode(datagram.payload).unwrap().header;
        let value = Packet::decode(datagram.payload).unwrap().value;
        if status != Status::Ok {
            return;
        }
        if op == Op::WriteReply && self.writing.is_some_and(|(_, of)| of == request) {
            self.writing = None;
        }
        let of = self.asked.iter().position(|(of, _)| *of == request);
        if let (Op::ReadReply, Some(of)) = (op, of) {
            self.seen.push(Read {
                asked_ns: self.asked.swap_remove(of).1,
                told_ns: io.world_ns,
                number: u64::from_be_bytes(value.try_into().unwrap()),
                cached: flags.has(Flags::CACHED),
            });
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if io.now_ns() < self.next_ns {
            return;
        }
        if let Some((number, request)) = self.writing {
            self.send(Op::WriteRequest, request, &number.to_be_bytes(), io);
            self.next_ns = io.now_ns() + AGAIN_NS;
        } else if self.reads {
            self.request += 1;
            self.asked.push((self.request, io.world_ns));
            self.send(Op::ReadRequest, self.request, b"", io);
            self.next_ns = io.now_ns() + READ_NS;
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        (self.reads || self.writing.is_some()).then_some(self.next_ns)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}
