//! Frames that are for a machine itself: its kernel reads them, and its processes are told.

use dataplane::native::Frame;
use plan::network::PortId;

use super::{Event, INBOX, State, World};
use crate::{
    frames::FrameId,
    ids::{MachineId, ProcessId},
    packet,
};

impl World {
    /// A frame at a port of a machine that does not forward, or that the machine's kernel found to
    /// be its own.
    #[inline]
    pub(super) fn take_in(&mut self, machine: MachineId, port: PortId, frame: FrameId) {
        // Out of the pool while it is read: who reads it may write others.
        let mut spare = self.spare.take().unwrap_or_default();
        self.frames.swap(frame, &mut spare);
        let waits = self.read(machine, port, frame, spare.bytes());
        self.frames.swap(frame, &mut spare);
        self.spare = Some(spare);
        if !waits {
            self.frames.give(frame);
        }
    }

    /// Hands a frame's datagram to whom it is for. True: it waits, and the frame must stay.
    #[inline]
    fn read(&mut self, machine: MachineId, port: PortId, frame: FrameId, bytes: &[u8]) -> bool {
        let at = &mut self.machines[machine.0 as usize];
        if bytes.get(..6) != Some(&self.network.port(port).mac) {
            at.refused.not_mine += 1;
            return false;
        }
        let datagram = match packet::read(bytes) {
            Ok(datagram) => datagram,
            Err(packet::RefusalReason::Broken) => {
                at.refused.broken += 1;
                return false;
            }
            Err(packet::RefusalReason::Other) => {
                at.refused.not_mine += 1;
                return false;
            }
        };
        let to = datagram.to;
        if !self.network.has(port, to.ip()) && !self.network.is_own(machine.0, to.ip()) {
            at.refused.not_mine += 1;
            return false;
        }
        let mut listeners = at.listeners.iter();
        let Some((_, process)) = listeners.find(|(port, _)| *port == to.port()) else {
            at.refused.no_process += 1;
            return false;
        };
        let process = *process;
        let slot = &mut self.slots[process.0 as usize];
        if slot.state == State::Stopped {
            let has_room = slot.inbox.len() < INBOX as usize;
            if has_room {
                slot.inbox.push(frame);
            } else {
                at.refused.queue_full += 1;
            }
            return has_room;
        }
        let Some(done_ns) = slot.service.take(self.now_ns) else {
            at.refused.queue_full += 1;
            return false;
        };
        self.tell(process, done_ns, |body, io| body.receive(&datagram, io));
        false
    }

    /// Hands a process what waited while it was stopped.
    pub(super) fn catch_up(&mut self, process: ProcessId) {
        let slot = &mut self.slots[process.0 as usize];
        for frame in std::mem::take(&mut slot.inbox) {
            let mut lent = Frame::default();
            self.frames.swap(frame, &mut lent);
            if let Ok(datagram) = packet::read(lent.bytes()) {
                let slot = &mut self.slots[process.0 as usize];
                // It had a place in the queue already.
                let done_ns = slot.service.take(self.now_ns).unwrap_or(self.now_ns);
                self.tell(process, done_ns, |body, io| body.receive(&datagram, io));
            }
            self.frames.swap(frame, &mut lent);
            self.frames.give(frame);
        }
        self.wake_at(process, self.now_ns);
        for stream in self.streams.of(process) {
            for to_second in [false, true] {
                self.queue.put(self.now_ns, Event::Deliver(stream, to_second));
            }
        }
    }
}
