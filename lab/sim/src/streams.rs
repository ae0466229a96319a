//! Streams between processes: what TCP makes of the same network, without its packets.
//!
//! Messages arrive whole and in order, as late as the links on the shortest way make them, and
//! later where a link loses them. While there is no way they wait; a stream that is cut off for
//! long ends at both ends.

use std::collections::{BTreeMap, VecDeque};

use api::proto::{FromStore, FromSwitch, ToStore, ToSwitch};
use prost::Message as _;

use crate::ids::{ProcessId, StreamId};

/// Beside what links take: two kernels and two processes that wake up.
pub const OVERHEAD_NS: u64 = 60_000;
/// How long a segment that was lost is missed before it is sent again.
pub const RETRY_NS: u64 = 200_000_000;
/// A stream without a way for so long has ended: two intervals of the keep-alive.
pub const PATIENCE_NS: u64 = 20_000_000_000;

/// What goes over a stream.
#[derive(Clone, Debug)]
pub enum Message {
    /// From a controller to a switch's agent.
    ToSwitch(ToSwitch),
    /// From a switch's agent to a controller.
    FromSwitch(FromSwitch),
    /// From a controller to a store.
    ToStore(ToStore),
    /// From a store to a controller.
    FromStore(FromStore),
    /// Bytes of Redis's protocol, between a client and a store.
    Resp(Vec<u8>),
}

impl Message {
    /// As it goes over the network.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Message::ToSwitch(message) => message.encode_to_vec(),
            Message::FromSwitch(message) => message.encode_to_vec(),
            Message::ToStore(message) => message.encode_to_vec(),
            Message::FromStore(message) => message.encode_to_vec(),
            Message::Resp(bytes) => bytes.clone(),
        }
    }
}

/// What happens on a stream.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// It is there, between this process and that one.
    Opened(ProcessId),
    /// Something came.
    Message(Message),
    /// It is there no longer, or could not be opened.
    Closed,
}

/// One direction of a stream.
#[derive(Default)]
pub struct Way {
    /// What happens at its end, with the times of that, if nothing keeps it.
    pub under_way: VecDeque<(u64, StreamEvent)>,
    /// When the newest of it does.
    pub last_ns: u64,
    /// Since when there has been no way.
    pub cut_since_ns: Option<u64>,
}

/// A stream.
pub struct Stream {
    /// Who opened it, and who took it.
    pub ends: [ProcessId; 2],
    /// From the first to the second, and back.
    pub ways: [Way; 2],
}

impl Stream {
    /// Which end a process is.
    pub fn side(&self, process: ProcessId) -> Option<usize> {
        self.ends.iter().position(|end| *end == process)
    }
}

/// All streams that are there.
#[derive(Default)]
pub struct Streams {
    /// In the order in which they were opened.
    all: BTreeMap<StreamId, Stream>,
    newest: u32,
}

impl Streams {
    /// A stream that begins now.
    pub fn begin(&mut self, ends: [ProcessId; 2]) -> StreamId {
        self.newest += 1;
        let id = StreamId(self.newest);
        let ways = Default::default();
        self.all.insert(id, Stream { ends, ways });
        id
    }

    /// The stream that is opened after so many others.
    pub fn next(&self, others: usize) -> StreamId {
        StreamId(self.newest + 1 + others as u32)
    }

    /// A stream, if it is still there.
    pub fn get(&self, id: StreamId) -> Option<&Stream> {
        self.all.get(&id)
    }

    /// As [`Streams::get`].
    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.all.get_mut(&id)
    }

    /// Ends a stream.
    pub fn end(&mut self, id: StreamId) -> Option<Stream> {
        self.all.remove(&id)
    }

    /// The streams of a process.
    pub fn of(&self, process: ProcessId) -> Vec<StreamId> {
        let all = self.all.iter();
        let of = all.filter(|(_, stream)| stream.side(process).is_some());
        of.map(|(id, _)| *id).collect()
    }

    /// Messages of a process that are on their way; `None` if the stream has ended.
    pub fn under_way(&self, id: StreamId, from: ProcessId) -> Option<usize> {
        let stream = self.get(id)?;
        Some(stream.ways[stream.side(from)?].under_way.len())
    }
}
