//! What is remembered of a tenant: the number that was used last, the floor of its keys' versions,
//! and the arrangement, with those just before.

use bytes::Bytes;

use crate::view::{LEN, View};

/// The generation of numbers that a tenant begins with.
const FIRST_NUMBER: u64 = 1 << 48 | 1;

/// What is remembered of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The last number of a view; 0: there was none.
    pub number: u64,
    /// Versions of new items begin above it: a number that one key's version ever had is not
    /// another's.
    pub floor: u64,
    /// The last view, of no switch in particular; none: the tenant is gone, or has not begun.
    pub view: Option<View>,
    /// The views before it that were superseded a moment ago, when this was remembered: their
    /// members may still answer.
    pub past: Vec<View>,
}

impl Memory {
    /// The number of the next view.
    pub fn next_number(&self) -> u64 {
        match self.number {
            0 => FIRST_NUMBER,
            before => before + 1,
        }
    }

    /// Encodes it as the bytes that are remembered.
    pub fn encode(&self) -> Bytes {
        let mut bytes = [self.number.to_be_bytes(), self.floor.to_be_bytes()].concat();
        let view = self.view.as_ref().and_then(View::encode);
        bytes.extend(view.unwrap_or_default());
        bytes.extend(self.past.iter().filter_map(View::encode).flatten());
        bytes.into()
    }

    /// Reads what was remembered. `None`: nothing was, or nothing that can be read.
    pub fn decode(bytes: &[u8]) -> Option<Memory> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (floor, rest) = rest.split_first_chunk()?;
        let views: Option<Vec<View>> = rest.chunks(LEN).map(View::decode).collect();
        let mut views = views?.into_iter();
        Some(Memory {
            number: u64::from_be_bytes(*number),
            floor: u64::from_be_bytes(*floor),
            view: views.next(),
            past: views.collect(),
        })
    }
}
