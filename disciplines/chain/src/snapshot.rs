//! What is kept of the keys outside of the switches, and how it gets there: the control half asks
//! the last member of a chain that has everything, again and again; its agent tells what was
//! committed since it was asked before.

use bytes::Bytes;

/// Told to an agent: tell what is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Save {
    /// The round's number; each is used once.
    pub round: u64,
    /// Tell everything; else what was not told in a round before.
    pub all: bool,
}

const SAVE: u8 = 1;

impl Save {
    /// Encodes it as a message.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![SAVE, self.all.into()];
        bytes.extend(self.round.to_be_bytes());
        bytes.into()
    }

    /// Reads a message. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<Save> {
        let (&[kind, all], rest) = bytes.split_first_chunk()?;
        (kind == SAVE).then_some(())?;
        Some(Save { round: u64::from_be_bytes(*rest.first_chunk()?), all: all != 0 })
    }
}

/// A key's newest committed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedVersion {
    /// The version's number.
    pub seq: u64,
    /// The value; `None`: the key was deleted.
    pub value: Option<Bytes>,
}

const KEPT: u8 = 1;

impl SavedVersion {
    /// Encodes it as the bytes that are kept. `None`: nothing is kept of a deleted key.
    pub fn encode(&self) -> Option<Bytes> {
        let mut bytes = vec![KEPT];
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.value.as_ref()?);
        Some(bytes.into())
    }

    /// Reads what was kept. `None`: nothing that is known.
    pub fn decode(bytes: &[u8]) -> Option<SavedVersion> {
        let (&[kind], rest) = bytes.split_first_chunk()?;
        let (seq, value) = rest.split_first_chunk()?;
        (kind == KEPT).then_some(SavedVersion {
            seq: u64::from_be_bytes(*seq),
            value: Some(Bytes::copy_from_slice(value)),
        })
    }
}

/// A part of what an agent tells in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The round's number.
    pub round: u64,
    /// Parts are counted from 0: one that is missing was lost.
    pub nth: u32,
    /// It is the last.
    pub is_last: bool,
    /// Keys and what is committed of them.
    pub keys: Vec<(Bytes, SavedVersion)>,
}

const PART: u8 = 3;
const DELETED: u16 = u16::MAX;
/// Bytes of an entry beside key and value.
pub const ENTRY: usize = 8 + 1 + 2;

impl Part {
    /// Encodes it as a report.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![PART, self.is_last.into()];
        bytes.extend(self.round.to_be_bytes());
        bytes.extend(self.nth.to_be_bytes());
        for (key, saved) in &self.keys {
            let value = saved.value.as_deref();
            bytes.extend(saved.seq.to_be_bytes());
            bytes.push(key.len() as u8);
            bytes.extend(value.map_or(DELETED, |v| v.len() as u16).to_be_bytes());
            bytes.extend(key);
            bytes.extend(value.unwrap_or_default());
        }
        bytes.into()
    }

    /// Reads a report. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<Part> {
        let (&[kind, last], rest) = bytes.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let (nth, mut rest) = rest.split_first_chunk()?;
        (kind == PART).then_some(())?;
        let mut keys = vec![];
        while !rest.is_empty() {
            let (seq, more) = rest.split_first_chunk()?;
            let (&[key_len, high, low], more) = more.split_first_chunk()?;
            let (key, more) = more.split_at_checked(key_len.into())?;
            let len = u16::from_be_bytes([high, low]);
            let deleted = len == DELETED;
            let (value, more) = more.split_at_checked(if deleted { 0 } else { len.into() })?;
            let saved = SavedVersion {
                seq: u64::from_be_bytes(*seq),
                value: (!deleted).then(|| Bytes::copy_from_slice(value)),
            };
            keys.push((Bytes::copy_from_slice(key), saved));
            rest = more;
        }
        Some(Part {
            round: u64::from_be_bytes(*round),
            nth: u32::from_be_bytes(*nth),
            is_last: last != 0,
            keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_as_it_was_written() {
        let save = Save { round: 7, all: true };
        assert_eq!(Save::decode(&save.encode()), Some(save));
        assert_eq!(Save::decode(&save.encode()[..9]), None);
        let saved =
            |seq, value: Option<&'static str>| SavedVersion { seq, value: value.map(Bytes::from) };
        let part = Part {
            round: 7,
            nth: 2,
            is_last: true,
            keys: vec![
                ("a".into(), saved(5, Some("one"))),
                ("b".into(), saved(1 << 40, None)),
                (vec![1; 250].into(), saved(6, Some(""))),
            ],
        };
        let bytes = part.encode();
        assert_eq!(Part::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Part::decode(&bytes), Some(part));
        assert_eq!(crate::report::State::decode(&bytes), None);
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        let mut saved = SavedVersion { seq: 9, value: Some(Bytes::from_static(b"value")) };
        let bytes = saved.encode().expect("kept");
        assert_eq!(SavedVersion::decode(&bytes), Some(saved.clone()));
        assert_eq!(SavedVersion::decode(&bytes[..8]), None);
        saved.value = None;
        assert_eq!(saved.encode(), None);
    }
}
