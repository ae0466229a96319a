//! Keys that were reported hot in this window: told once when they cross the threshold, again each time their
//! count has doubled, and with the whole count at the window's end.

use dataplane::Sketches;
use decide::ItemKey;
use wire::{KeyHash, maps::HashMap};

/// Keys remembered in one window; what comes beyond is told once and not followed.
const MOST: usize = 65_536;

struct Candidate {
    hash: KeyHash,
    told: u64,
}

#[derive(Default)]
pub(super) struct Candidates {
    window: u32,
    by_key: HashMap<ItemKey, Candidate>,
}

impl Candidates {
    /// A program reported a key; returns the count to pass on, if it is news.
    pub fn report(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        window: u32,
        sketches: &Sketches,
    ) -> Option<u64> {
        if window != self.window || self.by_key.contains_key(key) {
            return None;
        }
        let told = sketches.estimate(key.tenant, hash, window).max(1);
        if self.by_key.len() < MOST {
            self.by_key.insert(key.clone(), Candidate { hash, told });
        }
        Some(told)
    }

    /// The keys that were read at least `factor` times as often as last told.
    pub fn risen(&mut self, factor: f64, sketches: &Sketches) -> Vec<(ItemKey, u64)> {
        let window = self.window;
        let news = |(key, candidate): (&ItemKey, &mut Candidate)| {
            let now = sketches.estimate(key.tenant, candidate.hash, window);
            let is_news = now > candidate.told && now as f64 >= candidate.told as f64 * factor;
            is_news.then(|| {
                candidate.told = now;
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
    }
}
