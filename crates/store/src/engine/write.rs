//! Writes and deletes.

use wire::{Flags, Op, Packet, Status};

use super::{
    Engine,
    reply::{Answer, Origin},
};
use crate::{
    backend::{Answer as Reply, Change, Condition, Key, Put},
    net::Outbox,
};

impl Engine {
    pub(super) fn write(
        &mut self,
        origin: Origin,
        key: Key<'_>,
        packet: &Packet<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        self.counters.writes += 1;
        let header = &packet.header;
        let condition = match header.version {
            _ if !header.flags.has(Flags::COMPARE) => Condition::Always,
            wire::VERSION_ABSENT => Condition::Absent,
            wire::VERSION_PRESENT => Condition::Present,
            version => Condition::Version(version),
        };
        self.version += 1;
        let change = if header.op == Op::DeleteRequest {
            self.backend.delete(key, condition, self.version, now_ns, 0)
        } else {
            let put = Put {
                value: packet.value,
                ttl_ms: header.expiry_ms,
                condition,
                version: self.version,
            };
            self.backend.put(key, put, now_ns, 0)
        };
        let Reply::Now(change) = change else { return };
        let (status, version) = match change {
            Change::Done(version) => (Status::Ok, version),
            Change::NotFound => (Status::NotFound, 0),
            Change::Mismatch(version) => (Status::Mismatch, version),
            Change::TooLarge => (Status::TooLarge, 0),
            Change::Full => (Status::TryAgain, 0),
            Change::Failed => (Status::BackendError, 0),
        };
        let answer = Answer {
            version,
            ..Answer::status(status)
        };
        self.replies.send(&origin, key.bytes, &answer, now_ns, out);
    }
}
