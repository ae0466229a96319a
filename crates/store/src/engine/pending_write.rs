//! Writes and holds as they wait for a key, and what writes were answered.

use bytes::Bytes;
use wire::{Flags, Header, Op, Status};

use super::{
    hold::HoldId,
    refusals::Refusals,
    replies::{Answer, Origin},
};
use crate::{
    backend::{Change, Condition},
    clients::RequestId,
};

/// What has a key for itself when its turn has come.
pub(super) enum Exclusive {
    /// The backend carries it out.
    Write(Box<PendingWrite>),
    /// A command that somebody else carries out, and then lets the key go.
    Hold(HoldId),
}

impl Exclusive {
    /// The write, if it is one.
    pub fn write(&self) -> Option<&PendingWrite> {
        match self {
            Exclusive::Write(job) => Some(job),
            Exclusive::Hold(_) => None,
        }
    }
}

/// A write that waits: everything of its packet that is still needed.
pub(super) struct PendingWrite {
    pub origin: Origin,
    pub condition: Condition,
    pub ttl_ms: u32,
    pub value: Bytes,
    /// Bytes of the room for values in parts that it takes until it is over.
    pub room: usize,
    /// An owner may carry it out in this store's place.
    pub may_move: bool,
    /// A switch has sent it to the stores that hold copies, too.
    pub told_stores: bool,
}

impl PendingWrite {
    /// Of a packet with this header, whose whole value takes so much of the room for values
    /// in parts.
    pub fn new(origin: Origin, header: &Header, value: Bytes, room: usize) -> PendingWrite {
        let condition = match header.version {
            _ if !header.flags.has(Flags::COMPARE) => Condition::Always,
            wire::VERSION_ABSENT => Condition::Absent,
            wire::VERSION_PRESENT => Condition::Present,
            version => Condition::Version(version),
        };
        PendingWrite {
            origin,
            condition,
            ttl_ms: header.expiry_ms,
            value,
            room,
            may_move: absorbable(header) && !header.flags.has(Flags::ALL),
            told_stores: header.node == wire::NODE_ALL,
        }
    }

    /// Which write it is.
    pub fn id(&self) -> RequestId {
        self.origin.request_id()
    }
}

/// Whether an owner could absorb a write: a whole value, whatever was there, for ever.
pub(super) fn absorbable(header: &Header) -> bool {
    header.op == Op::WriteRequest
        && !header.flags.has(Flags::COMPARE)
        && header.expiry_ms == 0
        && !header.is_part()
}

/// What a write was answered, to be answered again (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteOutcome {
    pub status: Status,
    /// Of one that the backend refused the number of what it said, and 0 of one in doubt.
    pub version: u64,
}

impl WriteOutcome {
    /// Of what the backend did; what it said is among `refusals` from now on.
    pub fn of(change: &Change, refusals: &mut Refusals) -> WriteOutcome {
        let (status, version) = match change {
            Change::Done(version) => (Status::Ok, *version),
            Change::NotFound => (Status::NotFound, 0),
            Change::Mismatch(version) => (Status::Mismatch, *version),
            Change::TooLarge => (Status::TooLarge, 0),
            Change::KeyTooLong(most) => (Status::TooLarge, (*most).into()),
            Change::Full => (Status::TryAgain, 0),
            Change::Failed => (Status::BackendError, 0),
            Change::Refused(refusal) => (Status::BackendError, refusals.number(refusal)),
        };
        WriteOutcome { status, version }
    }

    /// Done under this version.
    pub fn done(version: u64) -> WriteOutcome {
        WriteOutcome { status: Status::Ok, version }
    }

    /// It is for the owner of a loan, whose life this is, and never to be applied here
    /// under another.
    pub fn moved(life: u16) -> WriteOutcome {
        WriteOutcome { status: Status::OtherLife, version: life.into() }
    }

    /// The life that it was moved to.
    pub fn moved_to(&self) -> Option<u16> {
        (self.status == Status::OtherLife).then_some(self.version as u16)
    }

    /// The number of what the backend said, if it refused the write.
    pub fn refusal(&self) -> Option<u64> {
        (self.status == Status::BackendError && self.version > 0).then_some(self.version)
    }

    /// What its client is told, if the backend did not refuse it.
    pub fn answer(&self) -> Answer<'static> {
        let Some(life) = self.moved_to() else {
            return Answer { version: self.version, ..Answer::status(self.status) };
        };
        Answer {
            // Older than whatever its client has sent: it may name it.
            expiry_ms: wire::LIFE_MOVED,
            key_life: Some(life),
            ..Answer::status(Status::OtherLife)
        }
    }
}
