//! What stands behind a hot key in the switch: which stores have it, and whose turn it is (`redirect.h`).

use bytes::Bytes;

/// Most turns of a key. One store may have several.
pub const TURNS_MAX: usize = 64;
/// Bytes of a record before its turns.
pub const HEADER: usize = 16;

/// The stores that a key's reads go to, by holder id: `0x8000 |` place in the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replicas {
    /// The store that owns the key, then the replicas: each once.
    pub stores: Vec<u16>,
    /// Whose turns come after those: some of `stores` again, which have more of the key's reads than others.
    pub again: Vec<u16>,
}

impl Replicas {
    /// The bytes of [`decide::Record::Given`], in the order of the switch's processor. No replica is taken for valid in them: each
    /// confirms that it is. `None`: no store, one that is there twice among `stores`, another among `again`, or more turns than
    /// [`TURNS_MAX`].
    pub fn encode(&self) -> Option<Bytes> {
        let Replicas { stores, again } = self;
        let twice = |(at, store): (usize, &u16)| stores[..at].contains(store);
        let count = stores.len() + again.len();
        if stores.is_empty()
            || count > TURNS_MAX
            || stores.iter().enumerate().any(twice)
            || !again.iter().all(|store| stores.contains(store))
        {
            return None;
        }
        let mut bytes = Vec::with_capacity(HEADER + 2 * count);
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend((count as u16).to_ne_bytes());
        bytes.extend((stores.len() as u16).to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        bytes.extend(stores.iter().chain(again).flat_map(|s| s.to_ne_bytes()));
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(stores: &[u16], again: &[u16]) -> Option<Bytes> {
        let (stores, again) = (stores.to_vec(), again.to_vec());
        Replicas { stores, again }.encode()
    }

    #[test]
    fn its_bytes_are_what_the_c_reads() {
        let bytes = encoded(&[0x8002, 0x8000], &[0x8000]).expect("a record");
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes.len(), HEADER + 3 * 2);
        assert_eq!([half(4), half(6)], [3, 2], "turns, stores");
        assert_eq!(bytes[8..16], [0; 8], "nobody is valid");
        assert_eq!([16, 18, 20].map(half), [0x8002, 0x8000, 0x8000]);
    }

    #[test]
    fn what_the_switch_could_not_read_is_refused() {
        assert_eq!(encoded(&[], &[]), None);
        assert_eq!(encoded(&[0x8001, 0x8001], &[]), None);
        assert_eq!(encoded(&[0x8001], &[0x8002]), None);
        let many: Vec<u16> = (0..=TURNS_MAX as u16).map(|n| 0x8000 | n).collect();
        assert_eq!(encoded(&many, &[]), None);
        assert!(encoded(&many[1..], &[]).is_some());
    }
}
