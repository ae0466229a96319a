//! A whole packet: header, key and value, read from a datagram and written as one.
//!
//! Whoever receives or sends goes through here: stores, clients, controllers, the agent's probes,
//! simulators and fuzzers. Lengths are checked against the bytes once, so that everybody behind can
//! slice without a check; the tag is checked apart, since only its reader knows whose
//! secret counts.

use crate::{DecodeError, EncodeError, HEADER_LEN, Header, MAX_KEY, PART, Secret};

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
        let head: &[u8; HEADER_LEN] =
            bytes.first_chunk().ok_or(DecodeError::ShortHeader(bytes.len()))?;
        let header = Header::from_bytes(head)?;
        let op = header.op;
        let (key_len, value_len) = (usize::from(header.key_len), usize::from(header.value_len));
        if (key_len > 0) != op.has_key() || key_len > MAX_KEY {
            return Err(DecodeError::BadKeyLength { op, len: header.key_len });
        }
        if value_len > 0 && !op.may_have_value() {
            return Err(DecodeError::UnexpectedValue { op, len: header.value_len });
        }
        let from = usize::from(header.part) * PART;
        if (header.part > 0 || header.total > 0) && from + value_len > header.total as usize {
            return Err(DecodeError::BadPart { from, to: from + value_len, total: header.total });
        }
        let stated = HEADER_LEN + key_len + value_len;
        if stated > bytes.len() {
            return Err(DecodeError::Truncated { stated, actual: bytes.len() });
        }
        let (key, rest) = bytes[HEADER_LEN..].split_at(key_len);
        Ok(Packet { header, key, value: &rest[..value_len] })
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
        let header = Header { key_len: self.key.len() as u8, value_len, ..self.header };
        let mut bytes = header.to_bytes();
        let tag = secret.tag(&bytes, self.key);
        bytes[HEADER_LEN - 8..].copy_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&bytes);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Ok(())
    }

    /// The packet's bytes, as [`Packet::encode`] makes them.
    ///
    /// # Errors
    /// Those of [`Packet::encode`].
    pub fn to_bytes(&self, secret: &Secret) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = vec![];
        self.encode(secret, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether the tag is the one that `secret` gives. Always true for [`Secret::NONE`].
    pub fn tag_is_valid(&self, secret: &Secret) -> bool {
        if *secret == Secret::NONE {
            return true;
        }
        secret.tag(&self.header.to_bytes(), self.key) == self.header.tag
    }
}
