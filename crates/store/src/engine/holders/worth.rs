//! Whether a key is worth its holders' copies: those that were called back have answered so many
//! reads.
//!
//! A copy costs a fetch, a grant, an invalidation and its acknowledgement, and it delays a write.
//! Where copies answer few reads before they are called back, the key is granted to nobody for a
//! while, which is twice as long each time. What is called back meanwhile was granted before, so it
//! counts no more: a write calls a thousand copies back as one. The table is of a fixed size: two
//! keys of one place are taken for one, and share its pause and when one of them was called back.

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

#[derive(Clone, Copy, Default)]
struct KeyWorth {
    called_back: u32,
    reads: u32,
    pause_ms: u32,
    until_ns: Nanos,
    /// When a copy of it was called back last; 0: never.
    called_back_ns: Nanos,
}

/// What copies of keys are worth.
pub(super) struct Worth {
    places: Box<[KeyWorth]>,
}

impl Worth {
    /// Nothing is known.
    pub fn new() -> Worth {
        Worth { places: vec![KeyWorth::default(); PLACES].into() }
    }

    fn place(id: &KeyId) -> usize {
        mixed(id.1.low() ^ u64::from(id.0)) as usize % PLACES
    }

    /// A copy was called back that had answered so many reads.
    pub fn called_back(&mut self, id: &KeyId, reads: u32, now_ns: Nanos) {
        let key = &mut self.places[Worth::place(id)];
        key.called_back_ns = now_ns;
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
        } else {
            key.pause_ms /= 2;
        }
        (key.called_back, key.reads) = (0, 0);
    }

    /// Whether a copy of a key was called back within so long.
    pub fn was_called_back(&self, id: &KeyId, within_ns: Nanos, now_ns: Nanos) -> bool {
        let at_ns = self.places[Worth::place(id)].called_back_ns;
        at_ns > 0 && now_ns < at_ns + within_ns
    }

    /// For how many milliseconds more a key is granted to no holder.
    pub fn pause_ms(&self, id: &KeyId, now_ns: Nanos) -> u32 {
        let until_ns = self.places[Worth::place(id)].until_ns;
        until_ns.saturating_sub(now_ns).div_ceil(NS_PER_MS) as u32
    }
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;

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
