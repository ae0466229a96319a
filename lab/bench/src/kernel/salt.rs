//! The salt of the hashes of a bench's keys, chosen so that each key finds a slot and each read is
//! the hit that is to be measured.

use anyhow::Context;

use crate::drive;

const BUCKET_SLOTS: usize = 8;
/// Salts that are tried: of 65,536 keys one salt in some two thousand has room for all.
const TRIES: u64 = 50_000;

/// A salt under which each of these keys finds room in its bucket: about one key in two thousand
/// does not, and a hit that is a miss now and then would be a little too cheap or too dear. The
/// same for the same numbers, each time.
pub fn that_fits(first: u32, keys: u32, buckets: u32) -> anyhow::Result<u64> {
    let mut used = vec![[0u32; BUCKET_SLOTS]; buckets as usize];
    let mut lens = vec![0u8; buckets as usize];
    let mut fits = |salt: &u64| {
        lens.fill(0);
        (first..first + keys).all(|number| {
            let low = drive::hash(number, *salt).low();
            let (bucket, print) = (low as usize & (buckets as usize - 1), (low >> 32) as u32);
            let len = usize::from(lens[bucket]);
            if len == BUCKET_SLOTS || used[bucket][..len].contains(&print) {
                return false;
            }
            used[bucket][len] = print;
            lens[bucket] += 1;
            true
        })
    };
    (0..TRIES)
        .find(|salt| fits(salt))
        .with_context(|| format!("no salt under which {keys} keys find room in {buckets} buckets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_no_more_than_it_has_slots() {
        let salt = that_fits(5, 900, 256).unwrap();
        let mut in_bucket = vec![0; 256];
        for number in 5..905 {
            in_bucket[drive::hash(number, salt).low() as usize & 255] += 1;
        }
        assert!(in_bucket.iter().all(|items| *items <= BUCKET_SLOTS));
        assert!(that_fits(0, 17, 2).is_err());
    }
}
