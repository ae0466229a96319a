//! Whether a key is worth its holders' copies: those that were called back have answered so many
//! reads.
//!
//! A copy costs a fetch, a grant, an invalidation and its acknowledgement, and it delays a write.
//! Where copies answer few reads before they are called back, the key is granted to nobody for a
//! while, which is twice as long each time. What is called back meanwhile was granted before, so it
//! counts no more: a write calls a thousand copies back as one. The table is of a fixed size: of
//! two keys of one place it knows one, until that has not been called back for a while.

use wire::mixed;

use crate::{coherence::Nanos, directory::KeyId};

/// Places in the table.
const PLACES: usize = 1 << 13;
/// Copies called back after which it is looked at what they were worth.
const LOOKED_AT: u32 = 8;
/// Reads that a copy is to answer, on average.
const READS: u32 = 2;
/// The first pause, and the longest.
const PAUSE_MS: u32 = 20;
const PAUSE_MOST_MS: u32 = 5_120;
const NS_PER_MS: Nanos = 1_000_000;
const PAUSE_MOST_NS: Nanos = PAUSE_MOST_MS as Nanos * NS_PER_MS;

#[derive(Clone, Copy, Default)]
struct KeyWorth {
    /// Whose this is, as a number that no other key has but by chance; 0: nobody's.
    of: u64,
    called_back: u32,
    reads: u32,
    pause_ms: u32,
    until_ns: Nanos,
    /// When a copy of it was called back last.
    called_back_ns: Nanos,
}

impl KeyWorth {
    /// Whether the place may be another key's.
    fn is_free(&self, now_ns: Nanos) -> bool {
        let known_until_ns = self.until_ns.max(self.called_back_ns) + PAUSE_MOST_NS;
        self.of == 0 || known_until_ns <= now_ns
    }
}

/// What copies of keys are worth.
pub(super) struct Worth {
    places: Box<[KeyWorth]>,
    /// When a copy of any key was called back last, and until when one is granted to nobody: most
    /// stores have no such keys, and their table need not be looked at with each read.
    called_back_ns: Nanos,
    until_ns: Nanos,
}

impl Worth {
    /// Nothing is known.
    pub fn new() -> Worth {
        let places = vec![KeyWorth::default(); PLACES].into();
        Worth { places, called_back_ns: 0, until_ns: 0 }
    }

    /// A key's number.
    fn number(id: &KeyId) -> u64 {
        mixed(id.1.low() ^ u64::from(id.0)).max(1)
    }

    fn place(number: u64) -> usize {
        number as usize % PLACES
    }

    /// What is known of a key, if something is.
    fn of(&self, id: &KeyId) -> Option<&KeyWorth> {
        let number = Worth::number(id);
        Some(&self.places[Worth::place(number)]).filter(|key| key.of == number)
    }

    /// A copy was called back that had answered so many reads.
    pub fn called_back(&mut self, id: &KeyId, reads: u32, now_ns: Nanos) {
        let number = Worth::number(id);
        let key = &mut self.places[Worth::place(number)];
        if key.of != number {
            // What others make of their keys is no reason not to grant this one.
            if !key.is_free(now_ns) {
                return;
            }
            *key = KeyWorth { of: number, ..KeyWorth::default() };
        }
        key.called_back_ns = now_ns;
        self.called_back_ns = now_ns;
        if now_ns < key.until_ns {
            return;
        }
        key.called_back += 1;
        key.reads = key.reads.saturating_add(reads);
        if key.called_back < LOOKED_AT {
            return;
        }
        if key.reads < READS * key.called_back {
            key.pause_ms = (2 * key.pause_ms).clamp(PAUSE_MS, PAUSE_MOST_MS);
            key.until_ns = now_ns + Nanos::from(key.pause_ms) * NS_PER_MS;
            self.until_ns = self.until_ns.max(key.until_ns);
        } else {
            key.pause_ms /= 2;
        }
        (key.called_back, key.reads) = (0, 0);
    }

    /// Whether a copy of a key was called back within so long.
    pub fn was_called_back(&self, id: &KeyId, within_ns: Nanos, now_ns: Nanos) -> bool {
        now_ns < self.called_back_ns + within_ns
            && self.of(id).is_some_and(|key| now_ns < key.called_back_ns + within_ns)
    }

    /// For how many milliseconds more a key is granted to no holder.
    pub fn pause_ms(&self, id: &KeyId, now_ns: Nanos) -> u32 {
        if now_ns >= self.until_ns {
            return 0;
        }
        let until_ns = self.of(id).map_or(0, |key| key.until_ns);
        until_ns.saturating_sub(now_ns).div_ceil(NS_PER_MS) as u32
    }
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;

    /// Whoever writes thousands of keys that it holds would see to it that nobody holds any.
    #[test]
    fn what_is_known_of_a_key_says_nothing_of_another() {
        let key = |at: u64| (7, KeyHash(u128::from(at).to_be_bytes()));
        let place = |id: &KeyId| Worth::place(Worth::number(id));
        let of_one_place = |id: &KeyId| place(id) == place(&key(0));
        let other = (1..).map(key).find(of_one_place).expect("there are more keys than places");
        let mut worth = Worth::new();
        let mut now_ns = 1;
        let called_back = |worth: &mut Worth, id: &KeyId, now_ns| {
            (0..LOOKED_AT).for_each(|_| worth.called_back(id, 0, now_ns));
            worth.pause_ms(id, now_ns)
        };
        assert_eq!(called_back(&mut worth, &key(0), now_ns), PAUSE_MS);
        assert_eq!(called_back(&mut worth, &other, now_ns), 0, "the place is taken");
        assert!(!worth.was_called_back(&other, PAUSE_MOST_NS, now_ns));
        assert_eq!(worth.pause_ms(&key(0), now_ns), PAUSE_MS);
        // Another has it when nothing is known of the first any more.
        now_ns += 2 * PAUSE_MOST_NS;
        assert_eq!(called_back(&mut worth, &other, now_ns), PAUSE_MS);
        assert!(worth.was_called_back(&other, PAUSE_MOST_NS, now_ns));
        assert_eq!(worth.pause_ms(&key(0), now_ns), 0);
        assert!(!worth.was_called_back(&key(0), PAUSE_MOST_NS, now_ns));
    }

    #[test]
    fn a_key_whose_copies_answer_few_reads_is_not_granted_for_longer_and_longer() {
        let mut worth = Worth::new();
        let (id, other) = ((7, KeyHash([1; 16])), (7, KeyHash([2; 16])));
        let mut now_ns = 0;
        // Each time when what was before is over; a thousand holders as well as eight.
        let mut called_back = |reads, copies| {
            (0..copies).for_each(|_| worth.called_back(&id, reads, now_ns));
            let pauses = (worth.pause_ms(&id, now_ns), worth.pause_ms(&other, now_ns));
            now_ns += Nanos::from(pauses.0) * NS_PER_MS;
            pauses
        };
        assert_eq!(called_back(READS, LOOKED_AT), (0, 0));
        assert_eq!(called_back(READS - 1, LOOKED_AT), (PAUSE_MS, 0));
        assert_eq!(called_back(0, 1000), (2 * PAUSE_MS, 0));
        assert_eq!(called_back(100, LOOKED_AT), (0, 0), "it is over");
        assert_eq!(called_back(0, 1000), (2 * PAUSE_MS, 0), "half of what it was, and doubled");
        (0..20).for_each(|_| _ = called_back(0, 1000));
        assert_eq!(called_back(0, 1000), (PAUSE_MOST_MS, 0));
    }
}
