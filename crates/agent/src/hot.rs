//! Keys that were reported hot in this window: told once when they cross the threshold, again each
//! time their count has doubled, and with the whole count at the window's end.

use dataplane::Sketches;
use decide::ItemKey;
use wire::{KeyHash, maps::HashMap};

/// Keys remembered in one window; what comes beyond is told once and not followed. Half of them are
/// shared out among the tenants, half are for whoever comes first.
const MOST: usize = 65_536;

/// A key that nobody reported is told of when it is read so many times as often as when it was
/// first followed.
const QUIET: u64 = 4;
/// Or, at the window's end, when its item answered so many reads: what it could use room for counts
/// no less than if they had missed.
const QUIET_HITS: u64 = 3;

/// When keys that have risen are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportMoment {
    /// Within a window: those whose count has doubled.
    Doubled,
    /// At its end: those whose count has changed.
    AtEnd,
}

struct Candidate {
    hash: KeyHash,
    told: u64,
    /// The controller has not heard of it in this window.
    quiet: bool,
}

#[derive(Default)]
pub(super) struct Candidates {
    window: u32,
    by_key: HashMap<ItemKey, Candidate>,
    /// How many were remembered of each tenant.
    of: HashMap<u32, usize>,
}

impl Candidates {
    /// Follows a key, if its tenant, of so many, has room for it.
    fn follow(&mut self, key: &ItemKey, candidate: Candidate, tenants: usize) {
        let of_tenant = self.of.entry(key.tenant).or_default();
        if self.by_key.len() < MOST / 2 || *of_tenant < MOST / 2 / tenants.max(1) {
            *of_tenant += 1;
            self.by_key.insert(key.clone(), candidate);
        }
    }

    /// A program reported a key of one of so many tenants; returns the count to pass on, if it
    /// is news.
    pub fn report(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        window: u32,
        tenants: usize,
        sketches: &Sketches,
    ) -> Option<u64> {
        if window != self.window || self.by_key.get(key).is_some_and(|known| !known.quiet) {
            return None;
        }
        let told = sketches.estimate(key.tenant, hash, window).max(1);
        let candidate = Candidate { hash, told, quiet: false };
        match self.by_key.get_mut(key) {
            Some(known) => *known = candidate,
            None => self.follow(key, candidate, tenants),
        }
        Some(told)
    }

    /// A key that was not reported in this window, of one of so many tenants. It is told of when it
    /// is read [`QUIET`] times as often as until now, or reported: many that begin on probation are
    /// read no more, and a controller that hears of too many hears of fewer for seconds.
    pub fn begin_to_follow(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        tenants: usize,
        sketches: &Sketches,
    ) {
        if !self.by_key.contains_key(key) {
            let reads = sketches.estimate(key.tenant, hash, self.window).max(1);
            let candidate = Candidate { hash, told: QUIET * reads, quiet: true };
            self.follow(key, candidate, tenants);
        }
    }

    /// The keys that were read more often than last told, by reads that missed and by `hits`.
    pub fn risen(
        &mut self,
        when: ReportMoment,
        sketches: &Sketches,
        hits: impl Fn(&ItemKey) -> u64,
    ) -> Vec<(ItemKey, u64)> {
        let window = self.window;
        let news = |(key, candidate): (&ItemKey, &mut Candidate)| {
            let hits = hits(key);
            let now = sketches.estimate(key.tenant, candidate.hash, window) + hits;
            let is_news = match (when, candidate.quiet) {
                (ReportMoment::AtEnd, true) => now > candidate.told || hits >= QUIET_HITS,
                (ReportMoment::Doubled, false) => now >= 2 * candidate.told,
                _ => now > candidate.told,
            };
            is_news.then(|| {
                candidate.told = now;
                candidate.quiet = false;
                (key.clone(), now)
            })
        };
        self.by_key.iter_mut().filter_map(news).collect()
    }

    /// Forgets a key, which is cached now.
    pub fn forget(&mut self, key: &ItemKey) {
        self.by_key.remove(key);
    }

    /// Starts over for the next window.
    pub fn begin(&mut self, window: u32) {
        self.window = window;
        self.by_key.clear();
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_hot_keys_leaves_the_others_their_share() {
        let mut candidates = Candidates::default();
        let mut follow = |tenant: u32, keys: u32| {
            for n in 0..keys {
                let key = n.to_be_bytes().to_vec().into();
                let hash = KeyHash::default();
                candidates.follow(
                    &ItemKey { tenant, key },
                    Candidate { hash, told: 1, quiet: false },
                    4,
                );
            }
            candidates.by_key.len()
        };
        assert_eq!(follow(1, 100_000), MOST / 2);
        for others in 1..=3 {
            let tenant = 1 + others as u32;
            assert_eq!(follow(tenant, 100_000), MOST / 2 + others * MOST / 8);
        }
    }
}
