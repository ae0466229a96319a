//! Values: how long they are, what stands in them, and whether one that was read is what was
//! written to its key. Sources write and check with it, experiments fill servers with it.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Lengths of values in bytes, each with its weight. Empty: every value has the length that its key
/// was populated with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueMix {
    /// (length in bytes, weight).
    pub lengths: Vec<(usize, f64)>,
}

impl ValueMix {
    /// One length.
    pub fn draw(&self, default: usize, rng: &mut impl Rng) -> usize {
        let [.., last] = self.lengths.as_slice() else { return default };
        let sum: f64 = self.lengths.iter().map(|(_, weight)| weight).sum();
        let mut point = rng.random::<f64>() * sum;
        for (len, weight) in &self.lengths {
            point -= weight;
            if point < 0.0 {
                return *len;
            }
        }
        last.0
    }

    /// The longest length, at least `default`.
    pub fn longest(&self, default: usize) -> usize {
        self.lengths.iter().map(|(len, _)| *len).max().unwrap_or(0).max(default)
    }
}

/// Eight bytes that no populated value holds behind its first key.
const MARK: &[u8; 8] = b"\xffstamp\xff\0";

/// What a write leaves in its value beside the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u64);

/// What a value turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The populated value of this key.
    Populated,
    /// A value that a write of the lab left, whole.
    Written(Stamp),
    /// Neither: another key's, torn, or of bytes nobody wrote.
    Wrong,
}

/// The value that `store --populate` gives a key: its bytes, repeated to `len` bytes.
pub fn populated_value(key: &[u8], len: usize) -> Vec<u8> {
    key.iter().copied().cycle().take(len).collect()
}

/// Fills `value` as a write does: the key, a mark, then the stamp again and again up to the end, so
/// that a torn copy shows. Values too short for key, mark and one stamp are filled as
/// populated ones.
pub fn write_value(key: &[u8], stamp: Stamp, value: &mut [u8]) {
    if value.len() < key.len() + 16 {
        value.iter_mut().zip(key.iter().cycle()).for_each(|(to, from)| *to = *from);
        return;
    }
    let (head, rest) = value.split_at_mut(key.len());
    head.copy_from_slice(key);
    let (mark, words) = rest.split_at_mut(8);
    mark.copy_from_slice(MARK);
    let stamp = stamp.0.to_be_bytes();
    for word in words.chunks_mut(8) {
        word.copy_from_slice(&stamp[..word.len()]);
    }
}

/// Tells whose value this is and whether it is whole.
pub fn check_value(key: &[u8], value: &[u8]) -> Check {
    let n = key.len();
    if n > 0 && value.len() >= n + 16 && value[..n] == *key && value[n..n + 8] == *MARK {
        let words = &value[n + 8..];
        let stamp = &words[..8];
        let whole = words.chunks(8).all(|word| *word == stamp[..word.len()]);
        let number = u64::from_be_bytes(stamp.try_into().expect("eight bytes"));
        return if whole { Check::Written(Stamp(number)) } else { Check::Wrong };
    }
    let repeated = n > 0 && value.chunks(n).all(|chunk| *chunk == key[..chunk.len()]);
    if repeated { Check::Populated } else { Check::Wrong }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use seed::rng;

    const KEY: &[u8] = b"key0000000000042";

    #[test]
    fn populated_and_written_values_are_told_apart() {
        for len in [1, 16, 31, 32, 33, 128, 1000] {
            assert_eq!(check_value(KEY, &populated_value(KEY, len)), Check::Populated, "{len}");
        }
        for len in [32, 33, 40, 128, 1001] {
            let mut value = vec![0; len];
            write_value(KEY, Stamp(7), &mut value);
            assert_eq!(check_value(KEY, &value), Check::Written(Stamp(7)), "{len}");
        }
    }

    #[test]
    fn torn_and_foreign_values_are_wrong() {
        let (mut old, mut new) = ([0; 128], [0; 128]);
        write_value(KEY, Stamp(1), &mut old);
        write_value(KEY, Stamp(2), &mut new);
        old[64..].copy_from_slice(&new[64..]);
        assert_eq!(check_value(KEY, &old), Check::Wrong);
        assert_eq!(check_value(b"key0000000000043", &new), Check::Wrong);
        assert_eq!(check_value(KEY, &populated_value(b"key0000000000043", 128)), Check::Wrong);
        assert_eq!(check_value(b"", &new), Check::Wrong);
    }

    #[test]
    fn lengths_follow_their_weights() {
        let mix = ValueMix { lengths: vec![(64, 3.0), (1024, 1.0)] };
        let mut rng = rng(5, "mix");
        let large = (0..40_000).filter(|_| mix.draw(128, &mut rng) == 1024).count();
        assert!((9_600..10_400).contains(&large), "{large} of 40000 instead of about 10000");
        assert_eq!(ValueMix::default().draw(128, &mut rng), 128);
        assert_eq!((mix.longest(128), ValueMix::default().longest(128)), (1024, 128));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(key in proptest::collection::vec(any::<u8>(), 0..40),
                                  value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_value(&key, &value);
        }
    }
}
