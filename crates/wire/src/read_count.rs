//! Rows of [`Op::ReadCounts`](crate::Op::ReadCounts): how often a key was read elsewhere than at
//! its store.

use crate::KeyHash;

/// Bytes of a row: tenant (4), reads (4), key hash (16), in network order.
const ROW: usize = 24;

/// How often a key was read at a switch since the switch last told its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCount {
    /// Whose key it is.
    pub tenant: u32,
    /// Its hash.
    pub hash: KeyHash,
    /// Reads; never more than it says, and as many as it can say if there were more.
    pub reads: u32,
}

impl ReadCount {
    /// Rows in one packet, which then crosses any path that IPv6 allows (1280 bytes).
    pub const MOST: usize = (1280 - 48 - crate::HEADER_LEN) / ROW;

    /// Appends the row to a packet's value.
    pub fn encode(&self, value: &mut Vec<u8>) {
        value.extend_from_slice(&self.tenant.to_be_bytes());
        value.extend_from_slice(&self.reads.to_be_bytes());
        value.extend_from_slice(&self.hash.0);
    }

    /// The rows of a packet's value. What is no whole row at its end is left out.
    pub fn decode(value: &[u8]) -> impl Iterator<Item = ReadCount> {
        let word = |row: &[u8; ROW], at: usize| {
            u32::from_be_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
        };
        value.as_chunks::<ROW>().0.iter().map(move |row| ReadCount {
            tenant: word(row, 0),
            reads: word(row, 4),
            hash: KeyHash(std::array::from_fn(|at| row[8 + at])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_went_and_half_a_row_is_none() {
        let row = |n: u8| ReadCount {
            tenant: u32::from(n) << 24 | 5,
            hash: KeyHash([n; 16]),
            reads: 1000 + u32::from(n),
        };
        let rows: Vec<ReadCount> = (0..ReadCount::MOST as u8).map(row).collect();
        let mut value = vec![];
        rows.iter().for_each(|row| row.encode(&mut value));
        assert!(crate::HEADER_LEN + value.len() <= 1280 - 48);
        assert_eq!(ReadCount::decode(&value).collect::<Vec<_>>(), rows);
        value.pop();
        assert_eq!(ReadCount::decode(&value).collect::<Vec<_>>(), rows[..rows.len() - 1]);
        assert_eq!(ReadCount::decode(&value[..23]).count(), 0);
    }
}
