//! A switch as the controller sees it, modelled exactly and without a kernel: a count-min sketch of
//! 4 rows of 65,536 counters, reset each window; reports in batches; counters of items. For the
//! tests of disciplines.

mod line;

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use decide::{Action, Change, Configuration, Key, Outcome};
use rand::{RngExt, rngs::SmallRng};

pub use line::Line;

const ROWS: usize = 4;
const WIDTH: usize = 1 << 16;

/// How often keys are asked for: by their ranks, with cumulative probabilities.
///
/// A sample costs two lines of memory: one of the index, and mostly one of the probabilities.
pub struct Zipf {
    up_to: Vec<f64>,
    /// Of as many equal parts of all requests as there are ranks: the rank of each part's first
    /// request, and the number of ranks at the end.
    first: Vec<u32>,
}

impl Zipf {
    /// `keys` ranks, the rank r (from 1 on) in proportion to r^-theta; 0 is uniform.
    pub fn new(keys: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-theta);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|p| *p /= sum);
        let mut rank = 0;
        let first = (0..=keys).map(|part| {
            let begins = part as f64 / keys as f64;
            rank += up_to[rank..].iter().take_while(|&&p| p <= begins).count();
            rank as u32
        });
        let first = first.collect();
        Zipf { up_to, first }
    }

    /// The number of ranks.
    pub fn keys(&self) -> usize {
        self.up_to.len()
    }

    /// The share of the requests that the rank (from 0 on) takes.
    pub fn share(&self, rank: usize) -> f64 {
        self.up_to[rank] - if rank == 0 { 0.0 } else { self.up_to[rank - 1] }
    }

    /// The share that the first `keys` ranks take, at least one.
    pub fn best(&self, keys: usize) -> f64 {
        self.up_to[keys.min(self.up_to.len()) - 1]
    }

    /// The rank of the next request.
    pub fn sample(&self, random: &mut SmallRng) -> usize {
        self.rank(random.random())
    }

    /// The first rank up to which there is more than this share of the requests.
    fn rank(&self, at: f64) -> usize {
        let part = (at * self.keys() as f64) as usize;
        // The part before counts as well, for a product that was rounded up.
        let from = self.first[part.saturating_sub(1)] as usize;
        let to = self.first.get(part + 1).map_or(self.keys(), |first| *first as usize);
        let rank = from + self.up_to[from..to].partition_point(|&p| p <= at);
        rank.min(self.keys() - 1)
    }
}

/// The key with this number.
pub fn key(number: u32) -> Key {
    Key::from(number.to_be_bytes().to_vec())
}

/// The number of a key that [`key`] made.
pub fn number(key: &Key) -> u32 {
    u32::from_be_bytes(key[..].try_into().expect("a key of four bytes"))
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The switch answered.
    Hit,
    /// It did not; nothing to tell.
    Missed,
    /// It did not, and has the key to report: [`Switch::report`].
    Crossed,
}

/// One tenant on one switch.
pub struct Switch {
    /// Items that there is room for. Without any, the tenant's requests are not seen.
    pub room: usize,
    /// The keys whose items it has.
    pub cached: HashSet<u32>,
    /// From this number of requests in a window on it reports a key.
    pub threshold: u32,
    sketch: Vec<[u32; WIDTH]>,
    /// What each key was last reported with in this window.
    told: HashMap<u32, u32>,
    crossed: Vec<u32>,
    hits: HashMap<u32, u64>,
    waiting: Vec<(Change, Key)>,
}

impl Switch {
    /// A switch without items, and without a threshold until it is told one.
    pub fn new(room: usize) -> Switch {
        Switch {
            room,
            cached: HashSet::new(),
            threshold: u32::MAX,
            sketch: vec![[0; WIDTH]; ROWS],
            told: HashMap::new(),
            crossed: Vec::new(),
            hits: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// A request comes by.
    pub fn request(&mut self, key: u32) -> RequestOutcome {
        if self.cached.contains(&key) {
            *self.hits.entry(key).or_default() += 1;
            return RequestOutcome::Hit;
        }
        if self.room == 0 {
            return RequestOutcome::Missed;
        }
        let estimate = self.count(key);
        let told = self.told.get(&key).copied().unwrap_or(0);
        if estimate < self.threshold || estimate < 2 * told {
            return RequestOutcome::Missed;
        }
        self.told.insert(key, estimate);
        RequestOutcome::Crossed
    }

    /// A key that crossed the threshold will be in the next batch of reports.
    pub fn report(&mut self, key: u32) {
        self.crossed.push(key);
    }

    /// The next batch of reports, in the order of the keys.
    pub fn reports(&mut self) -> Vec<(Key, u64)> {
        let mut crossed = mem::take(&mut self.crossed);
        crossed.sort_unstable();
        crossed.dedup();
        let report = |n: u32| (key(n), u64::from(self.told[&n]));
        crossed.into_iter().map(report).collect()
    }

    /// The window ends. Returns the items with their requests, in the order of the keys.
    pub fn window_end(&mut self) -> Vec<(Key, u64)> {
        self.told.clear();
        self.sketch.iter_mut().for_each(|row| row.fill(0));
        let hits = self.hits.drain().filter(|(n, _)| self.cached.contains(n));
        let mut items: Vec<_> = hits.map(|(n, hits)| (key(n), hits)).collect();
        items.sort();
        items
    }

    /// What the controller decided for this switch.
    pub fn take(&mut self, action: Action) {
        match action {
            Action::Change { key, change, .. } => self.waiting.push((change, key)),
            Action::Configure { configuration, .. } => {
                let [threshold, rest] = configuration.parameters;
                assert_eq!(configuration, Configuration::of([threshold, rest]));
                self.threshold = threshold;
            }
            other => panic!("{other:?} is not asked for"),
        }
    }

    /// The first changes that wait, `most` of them, to be applied in order.
    pub fn waiting(&mut self, most: usize) -> Vec<(Change, Key)> {
        let rest = self.waiting.split_off(self.waiting.len().min(most));
        mem::replace(&mut self.waiting, rest)
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change, key: &Key) -> Outcome {
        match change {
            Change::Put(_) if self.cached.len() >= self.room => return Outcome::NoRoom,
            Change::Put(_) => {
                self.cached.insert(number(key));
            }
            Change::Remove | Change::RemoveIf(_) => {
                self.cached.remove(&number(key));
                self.hits.remove(&number(key));
            }
        }
        Outcome::Done
    }

    fn count(&mut self, key: u32) -> u32 {
        let mut least = u32::MAX;
        for (row, counters) in self.sketch.iter_mut().enumerate() {
            let mixed =
                (u64::from(key) + 1 + ((row as u64 + 1) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let counter = &mut counters[(mixed >> 40) as usize % WIDTH];
            *counter += 1;
            least = least.min(*counter);
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also at the ends of the index's parts, and beside them.
    #[test]
    fn the_rank_of_a_request_is_that_of_its_place_among_all() {
        for (keys, theta) in [(1, 0.99), (2, 0.0), (7, 1.1), (1000, 0.0), (1000, 0.99)] {
            let zipf = Zipf::new(keys, theta);
            let parts = (0..keys).map(|part| part as f64 / keys as f64);
            let ends = zipf.up_to.iter().copied().chain(parts);
            let places = ends.flat_map(|at| [at.next_down(), at, at.next_up()]);
            for at in places.filter(|at| (0.0..1.0).contains(at)) {
                let searched = zipf.up_to.partition_point(|&p| p <= at).min(keys - 1);
                assert_eq!(zipf.rank(at), searched, "{keys} keys, {theta}, {at}");
            }
        }
    }
}
