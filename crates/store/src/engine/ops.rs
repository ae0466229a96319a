//! Which part of a store takes which packets.

use wire::Op;

/// The part that takes an op.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Handler {
    /// Requests that name a key.
    Keyed,
    /// Acknowledgements of invalidations.
    Ack,
    /// Requests for leases.
    Lease,
    /// Leases that are given back.
    LeaseReturn,
    /// Requests of holders for leases.
    HolderLease,
    /// Leases that holders give back.
    HolderReturn,
    /// Acknowledgements of holders.
    HolderAck,
    /// How often keys were read at a switch.
    ReadCounts,
    /// What switches say of keys that are lent to them.
    Loan,
    /// What homes and switches say of copies that this store holds.
    Replica,
    /// A discipline's own.
    Discipline,
}

impl Handler {
    /// Of an op.
    pub fn of(op: Op) -> Handler {
        match op {
            Op::ReadRequest
            | Op::CorrectionRequest
            | Op::WriteRequest
            | Op::DeleteRequest
            | Op::FetchRequest
            | Op::HolderFetch => Handler::Keyed,
            Op::InvalidateAck => Handler::Ack,
            Op::LeaseRequest => Handler::Lease,
            Op::LeaseReturn => Handler::LeaseReturn,
            Op::HolderLeaseRequest => Handler::HolderLease,
            Op::HolderReturn => Handler::HolderReturn,
            Op::HolderAck => Handler::HolderAck,
            Op::ReadCounts => Handler::ReadCounts,
            Op::KeepRequest | Op::LendReply | Op::TakeReply => Handler::Loan,
            Op::Invalidate
            | Op::LeaseOffer
            | Op::LeaseReply
            | Op::LeaseReturned
            | Op::FetchReply
            | Op::ReplicaConfirm
            | Op::ReplicaPush
            | Op::ReplicaDrop
            | Op::ReplicaUpdate => Handler::Replica,
            _ => Handler::Discipline,
        }
    }
}

/// Whether the store itself takes an op.
pub(crate) fn is_own(op: Op) -> bool {
    Handler::of(op) != Handler::Discipline
}

/// Whether a packet of this op may have to do with a part of a value only.
pub(super) fn takes_parts(op: Op) -> bool {
    Handler::of(op) == Handler::Keyed && op != Op::DeleteRequest
}
