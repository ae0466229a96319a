//! The fixed header that every packet begins with, as a value: its fields, its 80 bytes, and the
//! small types that stand in it (flags, status, the number of an invalidation).
//!
//! [`crate::Packet`] reads and writes it with key and value behind it; everybody who handles
//! packets looks at its fields. `bpf/wire.h` is the same layout for the data plane.

use crate::{DecodeError, HEADER_LEN, KeyHash, MAGIC_VERSION, Op};

/// Marks in the low half of the flags byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No mark.
    pub const NONE: Flags = Flags(0);
    /// On a request, set by a switch: it has an entry and asks for a grant. On a reply: this
    /// is one.
    pub const GRANT: Flags = Flags(1);
    /// The write happens only if the key's version equals `version`.
    pub const COMPARE: Flags = Flags(2);
    /// A switch answered, not the store.
    pub const CACHED: Flags = Flags(4);
    /// On a read of a whole value: whoever answers may send all its parts, one after another,
    /// without being asked for each.
    pub const ALL: Flags = Flags(8);

    /// Flags from the low four bits of a byte.
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0xf)
    }

    /// The low four bits of the flags byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether every mark of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of marks.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These marks without those of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// How a request ended; the high half of the flags byte of a reply, zero in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done; a read reply carries the value.
    #[default]
    Ok = 0,
    /// There is no such key.
    NotFound = 1,
    /// The compared version was another; `version` is the current one (0: absent). Nothing
    /// was written.
    Mismatch = 2,
    /// The value needs a larger reply than the request allowed; `total` holds its length in bytes.
    /// Ask again with more padding. To a write: the backend refused it, and its words need room.
    NeedPadding = 3,
    /// The store takes no writes yet (it waits out a lease) or is full; ask again later.
    TryAgain = 4,
    /// The key or value exceeds what the backend or the packet can hold.
    TooLarge = 5,
    /// The store does not own this key's partition.
    WrongPartition = 6,
    /// The backend failed, and whether a write took place is unknown; or, with
    /// [`BACKEND_REFUSED`](crate::BACKEND_REFUSED) for a version, it was not done, and the value
    /// says why.
    BackendError = 7,
    /// The tenant is unknown to the store, or the tag is wrong.
    Denied = 8,
    /// A write that names another life of this store; nothing was done by this packet. What an
    /// earlier life did with the same request nobody knows any more.
    OtherLife = 9,
    /// A part of a write was taken, and others are still missing: `part` is the first of them.
    /// Nothing was written yet.
    Taken = 10,
    /// The request named another arrangement of switches than the present one, or went to a switch
    /// that does not answer it; nothing was done by this packet. The value says where to ask, as
    /// the discipline has it.
    Moved = 11,
    /// There is no room for another key; nothing was done.
    NoRoom = 12,
    /// A write so much older than the client's newest that nobody can tell whether it was done.
    Forgotten = 13,
    /// A write of a client that has not opened a session here; nothing was done.
    NoSession = 14,
}

impl Status {
    /// Status from its number.
    ///
    /// # Errors
    /// [`DecodeError::UnknownStatus`] for numbers above 14.
    pub const fn from_bits(bits: u8) -> Result<Status, DecodeError> {
        Ok(match bits {
            0 => Status::Ok,
            1 => Status::NotFound,
            2 => Status::Mismatch,
            3 => Status::NeedPadding,
            4 => Status::TryAgain,
            5 => Status::TooLarge,
            6 => Status::WrongPartition,
            7 => Status::BackendError,
            8 => Status::Denied,
            9 => Status::OtherLife,
            10 => Status::Taken,
            11 => Status::Moved,
            12 => Status::NoRoom,
            13 => Status::Forgotten,
            14 => Status::NoSession,
            _ => return Err(DecodeError::UnknownStatus(bits)),
        })
    }
}

/// An invalidation's number: 16 bits of who made it, a switch or a store that holds copies
/// ([`crate::NodeId`]), 48 bits that never repeat there (rule 1). All zero: nobody has put
/// anything here.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// No switch, no number.
    pub const NONE: Epoch = Epoch(0);
    /// Largest number of an invalidation.
    pub const MAX_NUMBER: u64 = (1 << 48) - 1;

    /// The pair (switch, number). Bits of `number` above 48 are cut off.
    pub const fn new(switch: u16, number: u64) -> Epoch {
        Epoch(((switch as u64) << 48) | (number & Self::MAX_NUMBER))
    }

    /// The switch's id; 0 is no switch.
    pub const fn switch(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The invalidation's number at that switch.
    pub const fn number(self) -> u64 {
        self.0 & Self::MAX_NUMBER
    }
}

impl std::fmt::Debug for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}, {})", self.switch(), self.number())
    }
}

/// The fixed header of 80 bytes; every field in network order on the wire. See `docs/protocol.md`.
///
/// What a reply repeats of its request stands first, so that their tags share the hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Byte 1: length of the key in bytes, at most 250.
    pub key_len: u8,
    /// Bytes 2-3: 16 bits that a store draws when it starts; 0: none is meant, 1: not known.
    pub life: u16,
    /// Bytes 4-7.
    pub tenant: u32,
    /// Bytes 8-15: drawn at random by each client; in a `LeaseReply`, the term.
    pub client: u64,
    /// Bytes 16-23: never comes again from its client; in lease messages, the lease slot.
    pub request: u64,
    /// Bytes 24-39.
    pub key_hash: KeyHash,
    /// Byte 40.
    pub op: Op,
    /// Byte 41, low half.
    pub flags: Flags,
    /// Byte 41, high half.
    pub status: Status,
    /// Bytes 42-43: length of the value in this packet in bytes.
    pub value_len: u16,
    /// Bytes 44-47: what remains of the value's life in milliseconds; 0: it does not expire.
    pub expiry_ms: u32,
    /// Bytes 48-49: a store or switch that the packet was sent to in another's place, or that
    /// answers in it ([`crate::NodeId`]); 0: none.
    pub node: u16,
    /// Bytes 50-51: where the bytes of this packet begin in the value, in steps of [`PART`] bytes.
    pub part: u16,
    /// Bytes 52-55: length of the whole value in bytes, where it is not all in this packet; else 0.
    pub total: u32,
    /// Bytes 56-63: (switch, invalidation number).
    pub epoch: Epoch,
    /// Bytes 64-71: version of the value; in lease messages, the switch's clock in nanoseconds.
    pub version: u64,
    /// Bytes 72-79.
    pub tag: u64,
}

/// What [`Header::part`] counts in, in bytes.
pub const PART: usize = 256;
/// Length of every part of a value but its last, in bytes: what fits one packet beside any key,
/// over IPv6 too.
pub const PART_BYTES: usize = 4 * PART;

impl Header {
    /// A header of this op with every other field zero or empty.
    pub const fn new(op: Op) -> Header {
        Header {
            key_len: 0,
            life: 0,
            tenant: 0,
            client: 0,
            request: 0,
            key_hash: KeyHash([0; 16]),
            op,
            flags: Flags::NONE,
            status: Status::Ok,
            value_len: 0,
            expiry_ms: 0,
            node: 0,
            part: 0,
            total: 0,
            epoch: Epoch::NONE,
            version: 0,
            tag: 0,
        }
    }

    /// Whether the packet has to do with a part of a value only.
    pub const fn is_part(&self) -> bool {
        self.part > 0 || self.total > self.value_len as u32
    }

    /// The header's 80 bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0] = MAGIC_VERSION;
        out[1] = self.key_len;
        out[2..4].copy_from_slice(&self.life.to_be_bytes());
        out[4..8].copy_from_slice(&self.tenant.to_be_bytes());
        out[8..16].copy_from_slice(&self.client.to_be_bytes());
        out[16..24].copy_from_slice(&self.request.to_be_bytes());
        out[24..40].copy_from_slice(&self.key_hash.0);
        out[40] = self.op as u8;
        out[41] = self.flags.bits() | ((self.status as u8) << 4);
        out[42..44].copy_from_slice(&self.value_len.to_be_bytes());
        out[44..48].copy_from_slice(&self.expiry_ms.to_be_bytes());
        out[48..50].copy_from_slice(&self.node.to_be_bytes());
        out[50..52].copy_from_slice(&self.part.to_be_bytes());
        out[52..56].copy_from_slice(&self.total.to_be_bytes());
        out[56..64].copy_from_slice(&self.epoch.0.to_be_bytes());
        out[64..72].copy_from_slice(&self.version.to_be_bytes());
        out[72..80].copy_from_slice(&self.tag.to_be_bytes());
        out
    }

    /// Reads a header from the first 80 bytes.
    ///
    /// # Errors
    /// The first field that is wrong, as a [`DecodeError`]. Lengths are checked against the bytes
    /// by [`crate::Packet::decode`], not here.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Header, DecodeError> {
        fn be<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
            bytes[at..at + N].try_into().expect("inside the header")
        }
        if bytes[0] >> 4 != MAGIC_VERSION >> 4 {
            return Err(DecodeError::BadMagic(bytes[0]));
        }
        if bytes[0] != MAGIC_VERSION {
            return Err(DecodeError::UnknownVersion(bytes[0] & 0xf));
        }
        Ok(Header {
            key_len: bytes[1],
            life: u16::from_be_bytes(be(bytes, 2)),
            tenant: u32::from_be_bytes(be(bytes, 4)),
            client: u64::from_be_bytes(be(bytes, 8)),
            request: u64::from_be_bytes(be(bytes, 16)),
            key_hash: KeyHash(be(bytes, 24)),
            op: Op::from_number(bytes[40]).ok_or(DecodeError::UnknownOp(bytes[40]))?,
            flags: Flags::from_bits(bytes[41]),
            status: Status::from_bits(bytes[41] >> 4)?,
            value_len: u16::from_be_bytes(be(bytes, 42)),
            expiry_ms: u32::from_be_bytes(be(bytes, 44)),
            node: u16::from_be_bytes(be(bytes, 48)),
            part: u16::from_be_bytes(be(bytes, 50)),
            total: u32::from_be_bytes(be(bytes, 52)),
            epoch: Epoch(u64::from_be_bytes(be(bytes, 56))),
            version: u64::from_be_bytes(be(bytes, 64)),
            tag: u64::from_be_bytes(be(bytes, 72)),
        })
    }
}
