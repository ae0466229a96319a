//! Streams as they go on: what is said on them arrives, late or never.

use rand::RngExt;

use super::{Event, State, World};
use crate::{
    ids::{ProcessId, StreamId},
    process::StreamAction,
    streams::StreamEvent,
    streams::{OVERHEAD_NS, PATIENCE_NS, RETRY_NS},
    trace::digest,
};

impl World {
    /// Does what a process asked of streams.
    pub(super) fn do_asked(&mut self, process: ProcessId) {
        for asked in std::mem::take(&mut self.done.asked) {
            match asked {
                StreamAction::Open(to) => self.open(process, to),
                StreamAction::Say(stream, message) => {
                    self.say(stream, process, StreamEvent::Message(message));
                }
                StreamAction::Close(stream) => self.end_stream(stream, process),
            }
        }
    }

    fn open(&mut self, from: ProcessId, to: ProcessId) {
        let stream = self.streams.begin([from, to]);
        let listens = self.state(to) != State::Dead;
        let Some(way_ns) = self.way_ns(from, to).filter(|_| listens) else {
            self.streams.end(stream);
            let ended = Event::Ended(stream, from);
            return self.queue.put(self.now_ns + RETRY_NS, ended);
        };
        self.say(stream, from, StreamEvent::Opened(from));
        if let Some(opened) = self.streams.get_mut(stream) {
            opened.ways[1].last_ns = self.now_ns + 2 * way_ns;
        }
        self.say(stream, to, StreamEvent::Opened(to));
    }

    /// Whether a process's machine is suspended.
    fn is_asleep(&self, process: ProcessId) -> bool {
        let machine = self.slots[process.0 as usize].machine;
        self.machines[machine.0 as usize].suspended
    }

    /// Puts something on its way from a process to the other end.
    fn say(&mut self, id: StreamId, from: ProcessId, what: StreamEvent) {
        let Some(stream) = self.streams.get(id) else { return };
        let Some(side) = stream.side(from) else { return };
        let to = stream.ends[1 - side];
        let way_ns = self.way_ns(from, to).unwrap_or(RETRY_NS);
        let Some(stream) = self.streams.get_mut(id) else { return };
        let way = &mut stream.ways[side];
        let at_ns = way.last_ns.max(self.now_ns + way_ns);
        way.last_ns = at_ns;
        way.under_way.push_back((at_ns, what));
        self.queue.put(at_ns, Event::Deliver(id, side == 0));
    }

    /// How long it takes from one process to another; none: there is no way.
    fn way_ns(&mut self, from: ProcessId, to: ProcessId) -> Option<u64> {
        let [from, to] = [from, to].map(|process| self.slots[process.0 as usize].machine.0);
        if from == to {
            return Some(OVERHEAD_NS);
        }
        // Any of its addresses will do: its name stands for all of them.
        let ports = self.network.ports_of(to);
        let paths = ports.iter().filter_map(|port| {
            let address = self.network.port(*port).v4.into();
            let path = self.network.path(from, address)?;
            let is_awake = |port: &u32| {
                let at = self.network.across(*port).machine;
                !self.machines[at as usize].suspended
            };
            path.iter().all(is_awake).then_some(path)
        });
        let path = paths.min_by_key(Vec::len)?;
        let mut way_ns = OVERHEAD_NS;
        for port in path {
            let direction = &self.directions[port as usize];
            way_ns += direction.delay_ns();
            if direction.loss() >= 1.0 {
                return None;
            }
            while direction.loss() > 0.0 && self.stream_rng.random::<f64>() < direction.loss() {
                way_ns += RETRY_NS;
            }
        }
        Some(way_ns)
    }

    /// Something may have arrived at an end of a stream.
    pub(super) fn deliver(&mut self, id: StreamId, to_second: bool) {
        let side = usize::from(!to_second);
        let Some(stream) = self.streams.get(id) else { return };
        let (from, to) = (stream.ends[side], stream.ends[1 - side]);
        let first = stream.ways[side].under_way.front();
        if first.is_none_or(|(at_ns, _)| *at_ns > self.now_ns) {
            return;
        }
        if self.is_asleep(to) || self.way_ns(from, to).is_none() {
            return self.keep_waiting(id, side);
        }
        // Who is stopped finds it when he goes on.
        if self.state(to) != State::Running {
            return;
        }
        let Some(stream) = self.streams.get_mut(id) else { return };
        let way = &mut stream.ways[side];
        way.cut_since_ns = None;
        let Some((_, what)) = way.under_way.pop_front() else { return };
        // What was kept waiting behind it has no event of its own any more.
        if let Some((at_ns, _)) = way.under_way.front() {
            let at_ns = (*at_ns).max(self.now_ns);
            self.queue.put(at_ns, Event::Deliver(id, to_second));
        }
        self.trace.note(self.now_ns, u64::from(id.0) << 8 | side as u64 | 0x10);
        if let StreamEvent::Message(message) = &what {
            self.trace.note(self.now_ns, digest(&message.bytes()));
        }
        self.tell(to, self.now_ns, |body, io| body.stream(id, what, io));
    }

    /// There is no way at the moment.
    fn keep_waiting(&mut self, id: StreamId, side: usize) {
        let now_ns = self.now_ns;
        let Some(stream) = self.streams.get_mut(id) else { return };
        let way = &mut stream.ways[side];
        let since_ns = *way.cut_since_ns.get_or_insert(now_ns);
        if now_ns - since_ns > PATIENCE_NS {
            return self.break_stream(id);
        }
        // What was said later is behind it; an event for each comes sooner or later.
        for (at_ns, _) in &mut way.under_way {
            *at_ns = (*at_ns).max(now_ns + RETRY_NS);
        }
        way.last_ns = way.last_ns.max(now_ns + RETRY_NS);
        self.queue.put(now_ns + RETRY_NS, Event::Deliver(id, side == 0));
    }

    /// Ends a stream that was cut off: both ends have noticed.
    fn break_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.end(id) {
            for end in stream.ends {
                self.queue.put(self.now_ns, Event::Ended(id, end));
            }
        }
    }

    /// A process ends a stream, or is ended itself.
    fn end_stream(&mut self, id: StreamId, process: ProcessId) {
        let Some(stream) = self.streams.end(id) else { return };
        let Some(side) = stream.side(process) else { return };
        let other = stream.ends[1 - side];
        let way_ns = self.way_ns(process, other).unwrap_or(PATIENCE_NS);
        let at_ns = stream.ways[side].last_ns.max(self.now_ns + way_ns);
        self.queue.put(at_ns, Event::Ended(id, other));
    }

    pub(super) fn end_streams_of(&mut self, process: ProcessId) {
        for id in self.streams.of(process) {
            self.end_stream(id, process);
        }
    }

    /// A process learns that a stream has ended.
    pub(super) fn ended(&mut self, id: StreamId, process: ProcessId) {
        if self.state(process) == State::Stopped || self.is_asleep(process) {
            return self.queue.put(self.now_ns + RETRY_NS, Event::Ended(id, process));
        }
        self.trace.note(self.now_ns, u64::from(id.0) << 8 | 0x20);
        let closed = StreamEvent::Closed;
        self.tell(process, self.now_ns, |body, io| body.stream(id, closed, io));
    }
}
