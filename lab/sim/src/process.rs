//! What runs on machines: code that is told what arrives and what time it is, and says what
//! it sends.

use std::{
    any::Any,
    collections::BTreeMap,
    hash::Hash,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};

use plan::network::PortId;

use crate::{
    clock::Reading,
    frames::{FrameId, Frames},
    ids::{ProcessId, StreamId},
    network::Network,
    packet,
    streams::{Message, StreamEvent, Streams},
    trace::digest,
};

/// Code that runs as a process. Times are those of its machine's monotonic clock, in nanoseconds.
pub trait Process: Any {
    /// A datagram came to one of its ports.
    fn receive(&mut self, datagram: &packet::Datagram<'_>, io: &mut Io<'_>);

    /// The time that it wanted to be woken at has come, or the process has been started.
    fn wake(&mut self, io: &mut Io<'_>);

    /// When it has something to do if nothing comes before.
    fn next_wake_ns(&self) -> Option<u64>;

    /// Something happened on a stream.
    fn stream(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) {
        let _ = (stream, event, io);
    }

    /// The ports that datagrams for it come to.
    fn ports(&self) -> Vec<u16>;

    /// What is left of it when it is killed, for its next life.
    fn remains(self: Box<Self>) -> Remains {
        None
    }

    /// A copy of its files as they are now, for a life that is to begin with these.
    fn backup(&self) -> Remains {
        None
    }
}

/// What outlives a process: its files, and others that it left its data with.
pub type Remains = Option<Box<dyn Any>>;

/// What a process is born into.
pub struct Birth {
    /// What its machine's clocks show.
    pub clock: Reading,
    /// The world's time in nanoseconds: no machine knows it, but what is left of other machines
    /// goes by it.
    pub world_ns: u64,
    /// Its former life's.
    pub remains: Remains,
    /// Whether the disk that its files are on refuses what is written, now and later.
    pub disk_fails: Arc<AtomicBool>,
    /// Another number for each process and life, from the world's seed.
    pub seed: u64,
    /// A port that is nobody else's on its machine.
    pub port: u16,
    /// Names it.
    pub process: ProcessId,
}

/// Makes a process, each time that it is started.
pub type Maker = Box<dyn FnMut(Birth) -> anyhow::Result<Box<dyn Process>>>;

/// What a process asks of streams. Streams get their numbers in the order in which they are opened.
pub(crate) enum StreamAction {
    Open(ProcessId),
    Say(StreamId, Message),
    Close(StreamId),
}

/// A frame that a process sends, out of this port; none: to the machine itself.
pub(crate) struct SentFrame {
    pub frame: FrameId,
    pub port: PortId,
    pub to_itself: bool,
}

/// What processes did in the callback that runs.
#[derive(Default)]
pub(crate) struct Effects {
    pub sent: Vec<SentFrame>,
    pub asked: Vec<StreamAction>,
    /// Datagrams that had no way to go.
    pub unreachable: u64,
    /// Hash of what the world's trace is to have besides; 0: nothing.
    pub noted: u64,
    /// The machine's routes before those of its routing daemon, by link: the index of the port that
    /// each leads to.
    pub routes: Option<BTreeMap<usize, u16>>,
}

/// What a process can do while it is told something.
pub struct Io<'a> {
    /// What its machine's clocks show.
    pub clock: Reading,
    /// The world's time, which no machine knows: for those who record what happened when.
    pub world_ns: u64,
    pub(crate) process: ProcessId,
    pub(crate) machine: u32,
    pub(crate) streams: &'a Streams,
    pub(crate) network: &'a Network,
    pub(crate) frames: &'a mut Frames,
    pub(crate) done: &'a mut Effects,
}

impl Io<'_> {
    /// The monotonic clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns
    }

    /// Sends a datagram from a port of this process. Its address is that of the interface that it
    /// leaves through, as with a socket that is bound to none.
    pub fn send(&mut self, from_port: u16, to: SocketAddr, payload: &[u8]) {
        let Some(port) = self.network.way(self.machine, to.ip()) else {
            self.done.unreachable += 1;
            return;
        };
        let out = self.network.port(port);
        let from = match to {
            SocketAddr::V4(_) => SocketAddr::new(out.v4.into(), from_port),
            SocketAddr::V6(_) => SocketAddr::new(out.v6.into(), from_port),
        };
        let frame = self.frames.take();
        let to_itself = self.network.has(port, to.ip());
        let far = if to_itself { out } else { self.network.across(port) };
        let macs = [out.mac, far.mac];
        packet::write(self.frames.at(frame), macs, from, to, payload);
        self.done.sent.push(SentFrame { frame, port, to_itself });
    }

    /// Has the world's trace take in what nobody else sees, as what is written to a disk.
    pub fn note(&mut self, what: &impl Hash) {
        self.done.noted = self.done.noted.rotate_left(1) ^ digest(what);
    }

    /// Opens a stream to a process; what becomes of it is said later.
    pub fn open(&mut self, to: ProcessId) -> StreamId {
        let is_open = |asked: &&StreamAction| matches!(asked, StreamAction::Open(_));
        let opened = self.done.asked.iter().filter(is_open).count();
        self.done.asked.push(StreamAction::Open(to));
        self.streams.next(opened)
    }

    /// Says something on a stream. Nothing is lost, and everything comes in order, unless the
    /// stream ends.
    pub fn say(&mut self, stream: StreamId, message: Message) {
        self.done.asked.push(StreamAction::Say(stream, message));
    }

    /// Ends a stream; the other end is told.
    pub fn close(&mut self, stream: StreamId) {
        self.done.asked.push(StreamAction::Close(stream));
    }

    /// Whether a stream of this process takes another message without keeping it waiting.
    pub fn has_room(&self, stream: StreamId) -> bool {
        let on = |asked: &&StreamAction| matches!(asked, StreamAction::Say(at, _) if *at == stream);
        let said = self.done.asked.iter().filter(on).count();
        let under_way = self.streams.under_way(stream, self.process);
        under_way.is_some_and(|count| count + said < ROOM)
    }
}

/// Messages that may be on their way in one direction of a stream before the sender waits.
const ROOM: usize = 64;
