//! What the half in a switch's agent says to the control half.

use bytes::Bytes;

/// A chain that its filling member has all of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilledChain {
    /// The chain's number.
    pub chain: u16,
    /// The fill number under which it was filled.
    pub fill_number: u64,
}

/// How a member finds the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The number of the view that the member goes by.
    pub number: u64,
    /// The slots of those that it does not hear, as a mask.
    pub silent: u16,
    /// The slots of those that it did not hear under this view yet, though there was time, as a
    /// mask: they may not have been told of it.
    pub unheard: u16,
    /// Chains whose filling member it has filled.
    pub filled: Vec<FilledChain>,
}

const STATE: u8 = 1;

impl State {
    /// Encodes it as a report.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![STATE];
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.silent.to_be_bytes());
        bytes.extend(self.unheard.to_be_bytes());
        for filled in &self.filled {
            bytes.extend(filled.chain.to_be_bytes());
            bytes.extend(filled.fill_number.to_be_bytes());
        }
        bytes
    }

    /// Reads a report. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let (&[kind], rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (silent, rest) = rest.split_first_chunk()?;
        let (unheard, rest) = rest.split_first_chunk()?;
        let filled = rest.chunks(10).map(|bytes| {
            Some(FilledChain {
                chain: u16::from_be_bytes(*bytes.first_chunk()?),
                fill_number: u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?),
            })
        });
        (kind == STATE).then_some(())?;
        Some(State {
            number: u64::from_be_bytes(*number),
            silent: u16::from_be_bytes(*silent),
            unheard: u16::from_be_bytes(*unheard),
            filled: filled.collect::<Option<_>>()?,
        })
    }
}

/// A member is to leave: it goes on until the chains that can be without it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartureRequest;

const DEPARTURE: u8 = 5;

impl DepartureRequest {
    /// Encodes it as a report.
    pub fn encode(self) -> Vec<u8> {
        vec![DEPARTURE]
    }

    /// Reads a report. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<DepartureRequest> {
        (bytes == [DEPARTURE]).then_some(DepartureRequest)
    }
}

/// Keys that were deleted long ago, as their tail has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovableKeys {
    /// The number of the view that the member goes by.
    pub number: u64,
    /// Each with its last version, which is committed and a delete.
    pub keys: Vec<(Bytes, u64)>,
}

const REMOVABLE: u8 = 2;

impl RemovableKeys {
    /// Encodes it as a report.
    pub fn encode(&self) -> Vec<u8> {
        encode_keys(REMOVABLE, self.number, &self.keys)
    }

    /// Reads a report. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<RemovableKeys> {
        let (number, keys) = decode_keys(REMOVABLE, bytes)?;
        Some(RemovableKeys { number, keys })
    }
}

/// Sessions that nobody used for long, as one member has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSessions {
    /// The number of the view that the member goes by.
    pub number: u64,
    /// Each with the number under which it was last used.
    pub sessions: Vec<(Bytes, u64)>,
}

const IDLE: u8 = 4;

impl IdleSessions {
    /// Encodes it as a report.
    pub fn encode(&self) -> Vec<u8> {
        encode_keys(IDLE, self.number, &self.sessions)
    }

    /// Reads a report. `None`: it is another.
    pub fn decode(bytes: &[u8]) -> Option<IdleSessions> {
        let (number, sessions) = decode_keys(IDLE, bytes)?;
        Some(IdleSessions { number, sessions })
    }
}

fn encode_keys(kind: u8, number: u64, keys: &[(Bytes, u64)]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(number.to_be_bytes());
    for (key, word) in keys {
        bytes.extend(word.to_be_bytes());
        bytes.push(key.len() as u8);
        bytes.extend(key);
    }
    bytes
}

type Keys = Vec<(Bytes, u64)>;

fn decode_keys(kind: u8, bytes: &[u8]) -> Option<(u64, Keys)> {
    let (&[its], rest) = bytes.split_first_chunk()?;
    let (number, mut rest) = rest.split_first_chunk()?;
    (its == kind).then_some(())?;
    let mut keys = vec![];
    while !rest.is_empty() {
        let (word, more) = rest.split_first_chunk()?;
        let (&[len], more) = more.split_first_chunk()?;
        let (key, more) = more.split_at_checked(usize::from(len))?;
        keys.push((Bytes::copy_from_slice(key), u64::from_be_bytes(*word)));
        rest = more;
    }
    Some((u64::from_be_bytes(*number), keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let state = State {
            number: 1 << 48 | 3,
            silent: 0b101,
            unheard: 0b10,
            filled: vec![FilledChain { chain: 63, fill_number: 7 }],
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Some(state));
        assert_eq!(State::decode(&bytes[..20]), None);
        assert_eq!(State::decode(&[2; 11]), None);
    }

    #[test]
    fn who_is_to_leave_says_nothing_else() {
        let bytes = DepartureRequest.encode();
        assert_eq!(DepartureRequest::decode(&bytes), Some(DepartureRequest));
        assert_eq!((State::decode(&bytes), IdleSessions::decode(&bytes)), (None, None));
        assert_eq!(DepartureRequest::decode(&[DEPARTURE, 0]), None);
    }

    #[test]
    fn idle_sessions_are_read_as_they_were_written() {
        let idle = IdleSessions { number: 3, sessions: vec![(Bytes::from_static(b"s"), 1 << 48)] };
        let bytes = idle.encode();
        assert_eq!(RemovableKeys::decode(&bytes), None);
        assert_eq!(IdleSessions::decode(&bytes), Some(idle));
    }

    #[test]
    fn removable_keys_are_read_as_they_were_written() {
        let removable = RemovableKeys {
            number: 3,
            keys: vec![(Bytes::from_static(b"k"), 7), (Bytes::from(vec![1; 250]), 8)],
        };
        let bytes = removable.encode();
        assert_eq!(RemovableKeys::decode(&bytes), Some(removable));
        assert_eq!(RemovableKeys::decode(&bytes[..15]), None);
        assert_eq!(State::decode(&bytes), None);
    }
}
