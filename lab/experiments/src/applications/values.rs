//! Values that say which write they are from, and names of keys: the same in both worlds.

use std::collections::BTreeMap;

use history::{Operation, stale_reads};

/// The bytes of the value with this number: the number again and again, `len` bytes in all.
pub(crate) fn value_of(number: u64, len: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// The number of a value of this length. None: nobody wrote it so.
pub(crate) fn number_of(bytes: &[u8], len: usize) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    let mut words = bytes.chunks(8);
    let is_whole = words.all(|word| number.to_be_bytes().starts_with(word));
    (is_whole && bytes.len() == len).then_some(number)
}

/// The number of one client's writes, from 1 on, that no other client's has.
pub(crate) fn number_for(client: u32, written: u64) -> u64 {
    u64::from(client + 1) << 40 | written
}

/// The name of a key.
pub(crate) fn key_name(key: u32) -> String {
    format!("key{key:013}")
}

/// The key of this name.
pub(super) fn key_in(name: &[u8]) -> Option<u32> {
    let (_, digits) = name.split_last_chunk::<13>()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Stale reads of all keys.
pub(crate) fn stale_in(operations: &[Operation]) -> usize {
    let mut by_key: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        by_key.entry(operation.key).or_default().push(*operation);
    }
    by_key.values().map(|of_key| stale_reads(of_key)).sum()
}

/// The time below which this part of them lies, in milliseconds; of none no number.
pub(crate) fn percentile_ms(mut times_ns: Vec<u64>, part: f64) -> f64 {
    times_ns.sort_unstable();
    let at = (times_ns.len() as f64 * part) as usize;
    let at = at.min(times_ns.len().saturating_sub(1));
    times_ns.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_its_number_and_a_torn_one_none() {
        for len in [8, 64, 65, 32_768] {
            let value = value_of(number_for(3, 7), len);
            assert_eq!((value.len(), number_of(&value, len)), (len, Some(4 << 40 | 7)));
            assert_eq!(number_of(&value, len + 1), None);
        }
        let mut torn = value_of(9, 64);
        torn[60] ^= 1;
        assert_eq!(number_of(&torn, 64), None);
    }

    #[test]
    fn a_name_says_its_key() {
        assert_eq!(key_in(key_name(4711).as_bytes()), Some(4711));
        assert_eq!(key_in(b"another"), None);
    }

    #[test]
    fn percentiles_are_of_what_there_is() {
        assert!(percentile_ms(vec![], 0.99).is_nan());
        assert_eq!(percentile_ms(vec![3_000_000, 1_000_000, 2_000_000], 0.5), 2.0);
        assert_eq!(percentile_ms((1..=100).map(|n| n * 1_000_000).collect(), 0.99), 100.0);
    }
}
