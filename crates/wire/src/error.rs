//! Why bytes are no packet, and why a packet cannot be written as bytes.
//!
//! [`crate::Header`] and [`crate::Packet`] return these; a receiver counts or logs them and drops
//! the datagram, so each says which field is wrong and what was expected there.

use crate::Op;

/// Why bytes are not a packet: the field, what it holds, what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than a header.
    #[error("packet of {0} bytes is shorter than its 80-byte header")]
    ShortHeader(usize),
    /// Not shortstop's magic.
    #[error("first byte {0:#04x}: expected magic 0xA in its high half")]
    BadMagic(u8),
    /// A version that this build does not speak.
    #[error("protocol version {0}: this build speaks version 2")]
    UnknownVersion(u8),
    /// An op that has no meaning.
    #[error("op {0:#04x} is not assigned")]
    UnknownOp(u8),
    /// A status that has no meaning.
    #[error("status {0} is not assigned")]
    UnknownStatus(u8),
    /// A key where there must be none, none where there must be one, or one above 250 bytes.
    #[error("key of {len} bytes: {op:?} takes {expected}", expected = if op.has_key() { "1 to 250" } else { "none" })]
    BadKeyLength {
        /// The op.
        op: Op,
        /// The length that the header states in bytes.
        len: u8,
    },
    /// A value in an op that carries none.
    #[error("value of {len} bytes: {op:?} carries none")]
    UnexpectedValue {
        /// The op.
        op: Op,
        /// The length that the header states in bytes.
        len: u16,
    },
    /// Header, key and value are longer than the bytes at hand.
    #[error("header, key and value take {stated} bytes, but the packet has {actual}")]
    Truncated {
        /// Bytes that the header states.
        stated: usize,
        /// Bytes there are.
        actual: usize,
    },
    /// A part that ends behind the whole.
    #[error("part of a value from byte {from} to {to}: the whole value has {total}")]
    BadPart {
        /// Where the part begins in bytes.
        from: usize,
        /// Where it ends in bytes.
        to: usize,
        /// Length of the value that the header states in bytes.
        total: u32,
    },
}

/// Why a packet cannot be written as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A key of a length that its op does not take.
    #[error("key of {0} bytes: 1 to 250 are possible, none for lease messages")]
    KeyLength(usize),
    /// A value that its length field cannot state, or in an op that has none.
    #[error("value of {0} bytes does not fit this packet")]
    ValueLength(usize),
}
