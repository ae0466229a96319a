//! The half of a discipline in a store.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use wire::{Header, KeyHash, Op};

/// An op of the network that a store half takes.
pub type OperationId = Op;

/// Names a request until it is answered; of one store, since its start.
pub type Request = u64;

/// Longest message between a control half and a store half, either way, in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;

/// The half of a discipline in a store: what it does with its own operations. As decisions are
/// elsewhere: what happened goes in, what is to be done comes out, and the store does it.
///
/// Each method takes in what happened at `now` (since the store's start) and appends what is to be
/// done to `out`. A method that a half does not write does nothing.
///
/// Reads and writes of values keep going the store's own way, by the rules of `docs/coherence.md`;
/// what a store half keeps beside them must not be served where a rule forbids it.
pub trait StoreHalf: Send {
    /// A packet came with one of the registered operations.
    fn operation(
        &mut self,
        _now: Duration,
        _operation: Operation<'_>,
        _out: &mut Vec<StoreAction>,
    ) {
    }

    /// The backend's answer to [`StoreAction::Read`]: the value that was read for a request with
    /// its version, or none if there is no value.
    fn value(
        &mut self,
        _now: Duration,
        _request: Request,
        _value: Option<(&[u8], u64)>,
        _out: &mut Vec<StoreAction>,
    ) {
    }

    /// A read of a watched tenant ([`StoreAction::Watch`]) reached this store, which owns the key:
    /// no switch answered it.
    fn read(
        &mut self,
        _now: Duration,
        _tenant: u32,
        _key: &[u8],
        _hash: KeyHash,
        _out: &mut Vec<StoreAction>,
    ) {
    }

    /// The control half sent a message about a tenant. It may come twice.
    fn told(&mut self, _now: Duration, _tenant: u32, _message: &[u8], _out: &mut Vec<StoreAction>) {
    }

    /// A tenant is gone, and its open requests and held keys with it; nobody watches it. Its number
    /// may be another's from now on: nothing of it may be kept.
    fn left(&mut self, _now: Duration, _tenant: u32, _out: &mut Vec<StoreAction>) {}

    /// Time passed; comes some ten times a second.
    fn tick(&mut self, _now: Duration, _out: &mut Vec<StoreAction>) {}
}

/// A packet with an operation of a discipline. Its tenant is known, its tag and the hash of its key
/// are right.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Names it for the answer; forgotten with it. One that is never answered is dropped after a
    /// second.
    pub request: Request,
    /// The sender.
    pub from: SocketAddr,
    /// Its header.
    pub header: &'a Header,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whether this store owns the key's partition.
    pub owned: bool,
}

/// What the store should do.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreAction {
    /// Answer a request: with this header (tenant, client, request and hash are taken from the
    /// request, the tag is made anew), the request's key, and this value.
    Reply {
        /// The request.
        request: Request,
        /// Op, status, flags, version and expiry of the answer.
        header: Header,
        /// Its value. A tenant that has no secret gets none that makes the answer longer than the
        /// request: the status is [`wire::Status::NeedPadding`] then, and `total` the value's
        /// length.
        value: Bytes,
    },
    /// Read the value of a request's key from the backend, as it is at the moment:
    /// [`StoreHalf::value`] brings it. If the backend fails, or the value is longer than any packet
    /// carries, the store answers that, and the request is over.
    Read {
        /// The request.
        request: Request,
    },
    /// Send a packet of a tenant to another store or a switch; lost packets are the discipline's to
    /// repeat.
    Send {
        /// The receiver.
        to: SocketAddr,
        /// The header; its hash and tag are made by the store.
        header: Header,
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Tell this half of the tenant's reads from now on, or no longer. Of one tenant one half is
    /// told.
    Watch {
        /// The tenant.
        tenant: u32,
        /// Whether it is to be told.
        on: bool,
    },
    /// Hold a copy of a tenant's key, whose home is another store, and answer reads of it that a
    /// switch sends here (docs/coherence.md, "Replicas"). The copy is asked of its home, and each
    /// time that it becomes valid the switches on the way there are told
    /// ([`wire::Op::ReplicaConfirm`]). Of a key that is held already, or whose home this store is,
    /// nothing comes. Whether there is room for it is in the store's status; a key without room is
    /// held without a value.
    Hold {
        /// The tenant.
        tenant: u32,
        /// The key.
        key: Bytes,
    },
    /// Hold it no longer. The switches on the way to its home are told ([`wire::Op::ReplicaDrop`],
    /// once).
    Release {
        /// The tenant.
        tenant: u32,
        /// The key.
        key: Bytes,
    },
    /// Tell switches again of each copy of this tenant that is valid, at a bounded rate.
    Confirm {
        /// The tenant.
        tenant: u32,
    },
    /// Tell the control half something about a tenant. A newer report about the same tenant
    /// replaces one that could not be sent yet.
    Report {
        /// The tenant.
        tenant: u32,
        /// What [`crate::Discipline::store_reported`] brings; at most [`MESSAGE_MAX`] bytes.
        report: Bytes,
    },
}
