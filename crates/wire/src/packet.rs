use crate::{HEADER_LEN, Header, MAX_KEY, Op, PART, Secret};

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

/// A header with its key and value, borrowed from the bytes they came in. Bytes after the value are
/// padding: a request may be padded to the reply size that it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header. Its `key_len` and `value_len` are those of `key` and `value` after decoding, and
    /// are replaced by them when encoding.
    pub header: Header,
    /// 1 to 250 bytes, none for lease and page messages.
    pub key: &'a [u8],
    /// The value, or this part of it.
    pub value: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A packet of a header, key and value; lengths are set when encoding.
    pub const fn new(header: Header, key: &'a [u8], value: &'a [u8]) -> Packet<'a> {
        Packet { header, key, value }
    }

    /// Reads a packet from a UDP payload. The tag is not checked; see [`Packet::tag_is_valid`].
    ///
    /// # Errors
    /// The first thing that is wrong; never panics, whatever the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Packet<'a>, DecodeError> {
        let head: &[u8; HEADER_LEN] = bytes
            .first_chunk()
            .ok_or(DecodeError::ShortHeader(bytes.len()))?;
        let header = Header::from_bytes(head)?;
        let op = header.op;
        let (key_len, value_len) = (usize::from(header.key_len), usize::from(header.value_len));
        if (key_len > 0) != op.has_key() || key_len > MAX_KEY {
            return Err(DecodeError::BadKeyLength {
                op,
                len: header.key_len,
            });
        }
        if value_len > 0 && !op.may_have_value() {
            return Err(DecodeError::UnexpectedValue {
                op,
                len: header.value_len,
            });
        }
        let from = usize::from(header.part) * PART;
        if (header.part > 0 || header.total > 0) && from + value_len > header.total as usize {
            return Err(DecodeError::BadPart {
                from,
                to: from + value_len,
                total: header.total,
            });
        }
        let stated = HEADER_LEN + key_len + value_len;
        if stated > bytes.len() {
            return Err(DecodeError::Truncated {
                stated,
                actual: bytes.len(),
            });
        }
        let (key, rest) = bytes[HEADER_LEN..].split_at(key_len);
        Ok(Packet {
            header,
            key,
            value: &rest[..value_len],
        })
    }

    /// Appends the packet to `out` with lengths set and signed with `secret`.
    ///
    /// # Errors
    /// [`EncodeError`] for a key or value of a length that cannot be stated; `out` is then
    /// unchanged.
    pub fn encode(&self, secret: &Secret, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let op = self.header.op;
        if self.key.is_empty() == op.has_key() || self.key.len() > MAX_KEY {
            return Err(EncodeError::KeyLength(self.key.len()));
        }
        let value_len = u16::try_from(self.value.len())
            .ok()
            .filter(|len| *len == 0 || op.may_have_value())
            .ok_or(EncodeError::ValueLength(self.value.len()))?;
        let header = Header {
            key_len: self.key.len() as u8,
            value_len,
            ..self.header
        };
        let mut bytes = header.to_bytes();
        let tag = secret.tag(&bytes, self.key);
        bytes[HEADER_LEN - 8..].copy_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&bytes);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Ok(())
    }

    /// Whether the tag is the one that `secret` gives. Always true for [`Secret::NONE`].
    pub fn tag_is_valid(&self, secret: &Secret) -> bool {
        if *secret == Secret::NONE {
            return true;
        }
        secret.tag(&self.header.to_bytes(), self.key) == self.header.tag
    }
}
