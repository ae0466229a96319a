//! What a packet asks or answers: every op with its number, and what of a key and a value it takes.
//!
//! One table, from which all else about an op follows. [`crate::Header`] reads and writes the
//! number, [`crate::Packet`] checks key and value by it, and each receiver's `match` begins
//! with it.

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal, key: $key:expr, value: $value:expr;)*) => {
        /// What a packet asks or answers. Numbers are final.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// Every op, in order of number.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// Whether a packet of this op must carry a key of at least one byte (`true`) or none
            /// (`false`).
            pub const fn has_key(self) -> bool { match self { $(Op::$name => $key,)* } }

            /// Whether a packet of this op may carry a value.
            pub const fn may_have_value(self) -> bool { match self { $(Op::$name => $value,)* } }

            /// The op with this number; `None` if it is not assigned.
            pub const fn from_number(number: u8) -> Option<Op> {
                match number { $($number => Some(Op::$name),)* _ => None }
            }
        }
    };
}

ops! {
    /// Client to store: the value of a key. May be padded to the reply size that it allows.
    ReadRequest = 0x01, key: true, value: false;
    /// Store or switch to client; from a store it may be a grant.
    ReadReply = 0x02, key: true, value: true;
    /// Client to store: write a value, with `COMPARE` only if the version matches.
    WriteRequest = 0x03, key: true, value: true;
    /// Store to client: done or refused; with `GRANT` it carries the newest value for the switch,
    /// and where the backend refused it its words.
    WriteReply = 0x04, key: true, value: true;
    /// Client to store: remove a key, with `COMPARE` only if the version matches.
    DeleteRequest = 0x05, key: true, value: false;
    /// Store to client: removed, or there was nothing; or refused by the backend, with its words.
    DeleteReply = 0x06, key: true, value: true;
    /// Client to store: read past every cache, because a reply carried the wrong key.
    CorrectionRequest = 0x07, key: true, value: false;

    /// Switch to store: grant this key's newest value to (switch, epoch).
    FetchRequest = 0x10, key: true, value: false;
    /// Store to switch: the grant that was asked for.
    FetchReply = 0x11, key: true, value: true;
    /// Store to switch: take a new epoch for this key and say which.
    Invalidate = 0x12, key: true, value: false;
    /// Switch to store: the entry, if there was one, is invalid below this epoch; `version` echoes
    /// the number of the `Invalidate`.
    InvalidateAck = 0x13, key: true, value: false;
    /// Switch to store: lend me a lease; `version` is the sender's clock, `request` the lease slot.
    LeaseRequest = 0x14, key: false, value: false;
    /// Store to switch: lent for `expiry_ms` from the echoed `version` on, in term `client`.
    LeaseReply = 0x15, key: false, value: false;
    /// Store to switch: ask me again; the switch's data plane turns it into a `LeaseRequest`.
    LeaseOffer = 0x16, key: false, value: false;
    /// Switch to a neighbour: does the link between us carry anything? `version` is the
    /// probe's number.
    ProbeRequest = 0x17, key: false, value: false;
    /// The neighbour's data plane sends it back as this.
    ProbeReply = 0x18, key: false, value: false;
    /// Owner switch to keeper switch, on the way to the store: keep this write, `version`, of a
    /// lent key.
    KeepRequest = 0x19, key: true, value: true;
    /// Keeper to owner, on the way to the client: kept; of a write that had been kept before, with
    /// the newest version and value.
    KeepReply = 0x1a, key: true, value: true;
    /// Store to switch: the key is lent to you, or yours to keep; first to prepare (epoch 0), then
    /// under the epoch that the switch took.
    LendRequest = 0x1b, key: true, value: true;
    /// Switch to store: prepared or begun, under this epoch, or not.
    LendReply = 0x1c, key: true, value: false;
    /// Store to switch: the newest value of a lent key, and with `GRANT` the end of the loan.
    TakeRequest = 0x1d, key: true, value: false;
    /// Answers it.
    TakeReply = 0x1e, key: true, value: true;
    /// Switch to store: I leave; under your lease of term `client`, and under any that I asked for
    /// before `version` by my clock, I serve for `expiry_ms` more; 0: nothing any more.
    LeaseReturn = 0x1f, key: false, value: false;
    /// Store to switch: heard, `client` and `version` echoed; `expiry_ms` is the number of keys
    /// that are lent to the switch still.
    LeaseReturned = 0x20, key: false, value: false;

    /// KVSwitch confirm: replica to home, past the switches that send it reads: its copy is valid.
    ReplicaConfirm = 0x30, key: true, value: false;
    /// KVSwitch push: home to replica, a grant of the newest value; with `COMPARE` its
    /// digest instead.
    ReplicaPush = 0x31, key: true, value: true;
    /// KVSwitch removal: replica to home, past the switches that send it reads: it holds the key
    /// no longer.
    ReplicaDrop = 0x32, key: true, value: false;
    /// KVSwitch update: switch to replica, a copy of a write that is on its way to the key's home.
    /// Signed as the write is.
    ReplicaUpdate = 0x33, key: true, value: true;
    /// Switch to store: how often keys of the store were read at the switch, and not at the store.
    /// Its value is rows of [`crate::ReadCount`].
    ReadCounts = 0x34, key: false, value: true;

    /// Holder to store, signed by the holder's tenant: lend me a lease; `version` is the sender's
    /// clock, `key_hash` the [`crate::HolderProof`] that the store has given it.
    HolderLeaseRequest = 0x35, key: false, value: false;
    /// Store to holder: lent for `expiry_ms` from the echoed `version` on, as the holder of
    /// `epoch`, under the proof in `key_hash`; with TryAgain: ask again with this proof.
    HolderLeaseReply = 0x36, key: false, value: false;
    /// Holder to store: I serve nothing any more under the lease of the proof in `key_hash`.
    HolderReturn = 0x37, key: false, value: false;
    /// Holder to store: grant this key's newest value, or the part that is named, to (holder,
    /// epoch); `request` is the holder's token.
    HolderFetch = 0x38, key: true, value: false;
    /// Answers it; without `GRANT` there is none, and `expiry_ms` says for how long not to ask.
    HolderGrant = 0x39, key: true, value: true;
    /// Store to holder: take a new epoch for this key and say which.
    HolderInvalidate = 0x3a, key: true, value: false;
    /// Holder to store: it has no copy of this key below this epoch; `version` echoes the number
    /// of the invalidation, `expiry_ms` counts the reads that the copy has answered.
    HolderAck = 0x3b, key: true, value: false;

    /// NetChain and NetCRAQ read, of any member of a chain; may carry the chain's addresses, and
    /// be padded.
    ChainRead = 0x40, key: true, value: true;
    /// NetChain and NetCRAQ read reply.
    ChainReadReply = 0x41, key: true, value: true;
    /// NetChain and NetCRAQ write, to the head of a chain. Its value begins with
    /// whose write it is and under which condition.
    ChainWrite = 0x42, key: true, value: true;
    /// NetChain and NetCRAQ write reply, from the tail; with status Moved its value says where
    /// to ask.
    ChainWriteReply = 0x43, key: true, value: true;
    /// NetCRAQ acknowledgement, from the tail: this version is clean.
    ChainAck = 0x44, key: true, value: true;

    /// Client to switch or store: a request that a discipline defines which none of the papers has.
    DisciplineRequest = 0x50, key: true, value: true;
    /// Answers it.
    DisciplineReply = 0x51, key: true, value: true;
    /// Switch to switch, about a key, as a discipline says that keeps it on several of them.
    PeerMessage = 0x52, key: true, value: true;
    /// Switch to switch, about no key: they tell each other that they are there.
    PeerSignal = 0x53, key: false, value: true;
}

impl Op {
    /// The op that answers this one, where there is one.
    pub const fn reply(self) -> Option<Op> {
        Some(match self {
            Op::ReadRequest | Op::CorrectionRequest => Op::ReadReply,
            Op::WriteRequest => Op::WriteReply,
            Op::DeleteRequest => Op::DeleteReply,
            Op::FetchRequest => Op::FetchReply,
            Op::Invalidate => Op::InvalidateAck,
            Op::LeaseOffer => Op::LeaseRequest,
            Op::LeaseRequest => Op::LeaseReply,
            Op::LeaseReturn => Op::LeaseReturned,
            Op::HolderLeaseRequest => Op::HolderLeaseReply,
            Op::HolderFetch => Op::HolderGrant,
            Op::HolderInvalidate => Op::HolderAck,
            Op::ProbeRequest => Op::ProbeReply,
            Op::KeepRequest => Op::KeepReply,
            Op::LendRequest => Op::LendReply,
            Op::TakeRequest => Op::TakeReply,
            Op::ChainRead => Op::ChainReadReply,
            Op::ChainWrite => Op::ChainWriteReply,
            Op::DisciplineRequest => Op::DisciplineReply,
            _ => return None,
        })
    }

    /// Whether stores and switches say it among themselves: it is signed with the system's secret,
    /// whosever key it is about.
    pub const fn is_system(self) -> bool {
        const FIRST: u8 = Op::FetchRequest as u8;
        const LAST: u8 = Op::LeaseReturned as u8;
        let of_replicas = matches!(self, Op::ReplicaConfirm | Op::ReplicaPush | Op::ReplicaDrop);
        let of_peers = matches!(self, Op::ChainAck | Op::PeerMessage | Op::PeerSignal);
        let in_range = self as u8 >= FIRST && self as u8 <= LAST;
        in_range || of_replicas || of_peers || matches!(self, Op::ReadCounts)
    }

    /// Whether this op changes the value of its key.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::WriteRequest | Op::DeleteRequest)
    }

    /// Whether a packet of this op may carry what a client wrote to where it is kept: the client's
    /// request, or what stores and switches make of it.
    pub const fn carries_write(self) -> bool {
        self.is_write()
            || matches!(self, Op::KeepRequest | Op::ReplicaPush | Op::ReplicaUpdate)
            || matches!(self, Op::ChainWrite | Op::PeerMessage)
    }
}
