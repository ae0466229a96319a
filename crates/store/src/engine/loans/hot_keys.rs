//! Which keys are written so often that it is worth lending them, or leaving them lent.

use wire::maps::HashMap;

use crate::{coherence::Nanos, directory::KeyId, shares::Shares};

/// A key is hot with so many writes within this time at least.
const WRITES: u64 = 8;
const WITHIN_NS: Nanos = 1_000_000_000;
/// While a key is lent its keeper is asked for the newest so often within the bound, and that is
/// written to the backend: a loan has to spare the store as many writes at least.
const ASKED: u64 = 2;
/// A key that is lent is cold with fewer writes than this part of what makes one hot.
const COLD: u64 = 2;
/// Keys that are counted at once.
const KEYS: usize = 4096;
/// A key that was called back is not lent again within this time; each loan that lives shorter than
/// it doubles it, up to the longest.
const REST_NS: Nanos = 1_000_000_000;
const REST_MOST_NS: Nanos = 60_000_000_000;

/// Writes within a second by which a key is hot whose tenant has this bound.
pub(super) fn hot_from(bound_ns: Nanos) -> u64 {
    (ASKED * WITHIN_NS / bound_ns.max(1)).max(WRITES)
}

/// How often a key is written while it is lent.
#[derive(Clone, Copy, Default)]
pub(super) struct WritePace {
    since_ns: Nanos,
    version: u64,
}

impl WritePace {
    /// From the beginning of a loan with this base.
    pub fn new(base: u64, now_ns: Nanos) -> WritePace {
        WritePace { since_ns: now_ns, version: base }
    }

    /// The keeper's newest has this version: whether there were too few writes of late to leave the
    /// key lent.
    pub fn is_cold(&mut self, version: u64, hot_from: u64, now_ns: Nanos) -> bool {
        let time_ns = now_ns.saturating_sub(self.since_ns);
        if time_ns < WITHIN_NS {
            return false;
        }
        let writes = version.saturating_sub(self.version);
        *self = WritePace::new(version.max(self.version), now_ns);
        writes.saturating_mul(COLD * WITHIN_NS) < hot_from.saturating_mul(time_ns)
    }
}

struct Count {
    since_ns: Nanos,
    writes: u64,
    rests_until_ns: Nanos,
    rest_ns: Nanos,
}

/// The counts. A key that finds no room in its tenant's share is not counted.
pub(super) struct HotKeys {
    keys: HashMap<KeyId, Count>,
    shares: Shares,
    next_look_ns: Nanos,
}

impl HotKeys {
    /// Shared by so many tenants.
    pub fn new(tenants: usize) -> HotKeys {
        HotKeys { keys: HashMap::default(), shares: Shares::new(KEYS, tenants), next_look_ns: 0 }
    }

    /// From now on by so many.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// A write of a key that is hot with so many; whether it is to be lent.
    pub fn write(&mut self, id: KeyId, hot_from: u64, now_ns: Nanos) -> bool {
        if !self.has_room(&id, now_ns) {
            return false;
        }
        let count = self.enter(id, now_ns);
        if now_ns >= count.since_ns + WITHIN_NS {
            count.since_ns = now_ns;
            count.writes = 0;
        }
        count.writes += 1;
        if count.writes < hot_from || now_ns < count.rests_until_ns {
            return false;
        }
        count.writes = 0;
        true
    }

    /// A loan of it is over, after so long.
    pub fn ended(&mut self, id: KeyId, lived_ns: Nanos, now_ns: Nanos) {
        if !self.has_room(&id, now_ns) {
            return;
        }
        let count = self.enter(id, now_ns);
        count.rest_ns = if lived_ns < REST_NS {
            (2 * count.rest_ns).clamp(REST_NS, REST_MOST_NS)
        } else {
            REST_NS
        };
        count.rests_until_ns = now_ns + count.rest_ns;
        count.writes = 0;
    }

    fn enter(&mut self, id: KeyId, now_ns: Nanos) -> &mut Count {
        self.keys.entry(id).or_insert_with(|| {
            self.shares.take(id.0, 1);
            Count { since_ns: now_ns, writes: 0, rests_until_ns: 0, rest_ns: 0 }
        })
    }

    fn has_room(&mut self, id: &KeyId, now_ns: Nanos) -> bool {
        if self.keys.contains_key(id) || self.shares.has_room(id.0) {
            return true;
        }
        // Not at each write.
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + WITHIN_NS;
            let shares = &mut self.shares;
            self.keys.retain(|id, count| {
                let counts = now_ns < count.since_ns + WITHIN_NS;
                let stays = counts || now_ns < count.rests_until_ns + count.rest_ns;
                shares.give_back(id.0, usize::from(!stays));
                stays
            });
        }
        self.shares.has_room(id.0)
    }
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;

    const MS: Nanos = 1_000_000;
    const KEY: KeyId = (7, KeyHash([1; 16]));

    fn writes_until_hot(hot: &mut HotKeys, from_ns: Nanos, every_ns: Nanos) -> Option<u64> {
        (0..100).find(|n| hot.write(KEY, WRITES, from_ns + n * every_ns))
    }

    #[test]
    fn eight_writes_within_a_second_are_hot() {
        assert_eq!(writes_until_hot(&mut HotKeys::new(1), 0, MS), Some(7));
        assert_eq!(writes_until_hot(&mut HotKeys::new(1), 0, 140 * MS), Some(7));
        assert_eq!(writes_until_hot(&mut HotKeys::new(1), 0, 150 * MS), None);
    }

    #[test]
    fn a_key_that_was_called_back_rests_and_longer_each_time() {
        let mut hot = HotKeys::new(1);
        let mut now_ns = 0;
        for rest_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            hot.ended(KEY, 10 * MS, now_ns);
            let rest_ns = rest_s * 1000 * MS;
            assert!((0..20).all(|n| !hot.write(KEY, WRITES, now_ns + rest_ns - 20 + n)));
            now_ns += rest_ns;
            assert!((0..8).any(|n| hot.write(KEY, WRITES, now_ns + n)));
        }
        hot.ended(KEY, 5000 * MS, now_ns);
        now_ns += 1000 * MS;
        assert!((0..8).any(|n| hot.write(KEY, WRITES, now_ns + n)), "that loan was worth it");
    }

    #[test]
    fn a_loan_has_to_spare_as_many_writes_as_it_costs_questions() {
        // (bound in milliseconds, writes per second that make a key hot)
        for (bound_ms, expected) in [(10, 200), (100, 20), (1000, 8), (60_000, 8)] {
            assert_eq!(hot_from(bound_ms * MS), expected, "{bound_ms} ms");
        }
    }

    #[test]
    fn a_key_that_is_written_half_as_often_as_makes_it_hot_is_left_lent() {
        // (writes between two looks, time between them, whether it is cold at the second)
        let rows = [
            (20, 1000, false),
            (19, 1000, true),
            (0, 999, false),
            (600, 30_000, false),
            (599, 30_000, true),
        ];
        for (writes, after_ms, expected) in rows {
            let mut pace = WritePace::new(1000, 5 * MS);
            let now_ns = (5 + after_ms) * MS;
            let is_cold = pace.is_cold(1000 + writes, 40, now_ns);
            assert_eq!(is_cold, expected, "{writes} in {after_ms} ms");
        }
        let mut pace = WritePace::new(1000, 0);
        assert!(!pace.is_cold(1100, 40, 1000 * MS));
        assert!(pace.is_cold(1100, 40, 2000 * MS), "none since");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut hot = HotKeys::new(1);
        for n in 0..10_000u32 {
            let mut hash = [0; 16];
            hash[..4].copy_from_slice(&n.to_be_bytes());
            hot.write((7, KeyHash(hash)), WRITES, 0);
        }
        assert_eq!(hot.keys.len(), KEYS);
        assert_eq!(writes_until_hot(&mut hot, 0, 1), None, "no room");
        assert_eq!(writes_until_hot(&mut hot, 2000 * MS, 1), Some(7));
    }
}
