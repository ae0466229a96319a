//! What stands behind a hot key in the switch: which stores have it, and whose turn it is (`redirect.h`).

use bytes::Bytes;

/// Most turns of a key. One store may have several.
pub const TURNS_MAX: usize = 64;
/// Bytes of a record before its turns.
pub const HEADER: usize = 18;

/// The stores that a key's reads go to, by holder id: `0x8000 |` place in the cluster file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replicas {
    /// The store that owns the key. Reads that no replica takes go there, whether or not it has turns.
    pub home: u16,
    /// It does not own the key, but is where another switch sends what it has for this one's rack: turns are taken by reads that name it.
    pub is_entry: bool,
    /// The others that have it, each once. Each has a turn, in this order.
    pub replicas: Vec<u16>,
    /// Whose turns come after those: the home, and replicas that have more of the reads than others.
    pub again: Vec<u16>,
    /// Replicas whose copies may be read as far as is known; the others are read once they confirm it. A hint: a replica that is named
    /// here by mistake costs its readers a round trip.
    pub valid: Vec<u16>,
}

impl Replicas {
    /// The bytes of [`decide::Record::Given`], in the order of the switch's processor. `None`: no turn or more than [`TURNS_MAX`], a
    /// replica that is there twice or is the home, or a turn of one that is neither.
    pub fn encode(&self) -> Option<Bytes> {
        let Replicas {
            home,
            is_entry,
            replicas,
            again,
            valid,
        } = self;
        let turns = replicas.iter().chain(again);
        let count = turns.clone().count();
        let twice = |(at, store): (usize, &u16)| store == home || replicas[..at].contains(store);
        let has_it = |store: &u16| store == home || replicas.contains(store);
        if !(1..=TURNS_MAX).contains(&count)
            || replicas.iter().enumerate().any(twice)
            || !again.iter().all(has_it)
        {
            return None;
        }
        let bits = turns.clone().enumerate();
        let bits = bits.filter(|(_, store)| valid.contains(store));
        let bits = bits.fold(0u64, |bits, (turn, _)| bits | 1 << turn);
        let mut bytes = Vec::with_capacity(HEADER + 2 * count);
        let scale = (1u64 << 32).div_ceil(count as u64) as u32; // of one turn it is 0, which leads to that turn
        bytes.extend(scale.to_ne_bytes());
        bytes.extend([count as u8, replicas.len() as u8]);
        bytes.extend(home.to_ne_bytes());
        bytes.extend(bits.to_ne_bytes());
        let named = if *is_entry { *home } else { 0 };
        bytes.extend(named.to_be_bytes());
        bytes.extend(turns.flat_map(|store| store.to_ne_bytes()));
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: u16 = 0x8002;

    fn encoded(replicas: &[u16], again: &[u16]) -> Option<Bytes> {
        let record = Replicas {
            home: HOME,
            is_entry: false,
            replicas: replicas.to_vec(),
            again: again.to_vec(),
            valid: vec![0x8001],
        };
        record.encode()
    }

    #[test]
    fn its_bytes_are_what_the_c_reads() {
        let bytes = encoded(&[0x8000, 0x8001], &[HOME, 0x8001]).expect("a record");
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes.len(), HEADER + 4 * 2);
        assert_eq!(
            bytes[..4],
            (1u32 << 30).to_ne_bytes(),
            "2^32 over the turns"
        );
        assert_eq!(bytes[4..6], [4, 2], "turns, replicas");
        assert_eq!(half(6), HOME);
        assert_eq!(bytes[8..16], 0b1010u64.to_ne_bytes(), "valid");
        assert_eq!(half(16), 0, "who takes turns");
        assert_eq!([18, 20, 22, 24].map(half), [0x8000, 0x8001, HOME, 0x8001]);
    }

    /// As `turn_of` in the C.
    #[test]
    fn every_number_of_turns_comes_round() {
        let all: Vec<u16> = (16..16 + TURNS_MAX as u16).map(|n| 0x8000 | n).collect();
        for turns in 1..=TURNS_MAX as u32 {
            let bytes = encoded(&all[..turns as usize], &[]).expect("a record");
            let scale = u32::from_ne_bytes(*bytes.first_chunk().expect("four bytes"));
            for counted in 0..=0xffff {
                let part = u64::from(scale.wrapping_mul(counted));
                assert_eq!((part * u64::from(turns)) >> 32, u64::from(counted % turns));
            }
        }
    }

    #[test]
    fn what_the_switch_could_not_read_is_refused() {
        assert_eq!(encoded(&[], &[]), None, "no turns");
        assert_eq!(encoded(&[0x8001, 0x8001], &[]), None);
        assert_eq!(encoded(&[0x8001, HOME], &[]), None);
        assert_eq!(encoded(&[0x8001], &[0x8003]), None);
        let many: Vec<u16> = (16..=16 + TURNS_MAX as u16).map(|n| 0x8000 | n).collect();
        assert_eq!(encoded(&many, &[]), None);
        assert!(encoded(&many[1..], &[]).is_some());
    }
}
