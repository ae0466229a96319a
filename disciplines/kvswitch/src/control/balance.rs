//! The pieces of the control half together, against drawn load and without packets: the paper's
//! figures 7a, 8a and 9.

use decide::Key;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use rand_distr::{Distribution, Poisson};
use wire::maps::HashMap;

use super::{
    estimate::Estimates,
    situation::Situation,
    table::Table,
    threshold::{Rules, Threshold},
};

const SERVERS: usize = 32;
const KEYS: usize = 10_000_000;
/// Keys that are drawn one by one; of the others each server's together.
const DRAWN: usize = 100_000;
const HOT_MOST: usize = 10_000;
const REQUESTS: f64 = 2e6;
const WINDOWS: usize = 16;
/// Requests in a window from which the switch reports a cold key, and again at each doubling.
const REPORTED_FROM: f64 = 4.0;
const RULES: Rules = Rules { first: 0.032, bound: 0.02, gamma: 0.7 };

/// Zipf's load on servers of 10 million keys.
struct Load {
    chances: Vec<f64>,
    homes: Vec<usize>,
    /// What all other keys of each server have together.
    others: Vec<f64>,
    keys: Vec<Key>,
    ranks: HashMap<Key, usize>,
    rng: StdRng,
}

impl Load {
    fn new(theta: f64) -> Load {
        let mut rng = StdRng::seed_from_u64(7);
        let weights = (1..=KEYS).map(|rank| (rank as f64).powf(-theta));
        let sum: f64 = weights.clone().sum();
        let mut others = vec![0.0; SERVERS];
        for weight in weights.clone().skip(DRAWN) {
            others[rng.random_range(0..SERVERS)] += weight / sum;
        }
        let mut numbers: Vec<u32> = (0..DRAWN as u32).collect();
        numbers.shuffle(&mut rng);
        let key = |number: &u32| Key::copy_from_slice(&number.to_be_bytes());
        let keys: Vec<Key> = numbers.iter().map(key).collect();
        Load {
            chances: weights.take(DRAWN).map(|weight| weight / sum).collect(),
            homes: (0..DRAWN).map(|_| rng.random_range(0..SERVERS)).collect(),
            others,
            ranks: keys.iter().cloned().zip(0..).collect(),
            keys,
            rng,
        }
    }

    fn draw(&mut self, chance: f64) -> f64 {
        let count = Poisson::new(chance * REQUESTS).expect("a chance");
        count.sample(&mut self.rng)
    }

    /// A window: the load of each server, and what the switch tells of the keys.
    fn window(&mut self, table: &Table, estimates: &mut Estimates) -> Vec<f64> {
        let mut loads: Vec<f64> = (0..SERVERS).map(|at| self.draw(self.others[at])).collect();
        for rank in 0..DRAWN {
            let requests = self.draw(self.chances[rank]);
            let key = &self.keys[rank];
            if let Some(servers) = table.servers(key) {
                estimates.count(key, requests as u64);
                let each = requests / servers.len() as f64;
                servers.iter().for_each(|at| loads[*at] += each);
                continue;
            }
            loads[self.homes[rank]] += requests;
            if requests >= REPORTED_FROM {
                let doublings = (requests / REPORTED_FROM).log2().floor();
                estimates.count(key, (REPORTED_FROM * doublings.exp2()) as u64);
            }
        }
        loads
    }
}

/// What came of the last windows together.
struct Summary {
    imbalance: f64,
    replicas_share: f64,
    hot_keys: usize,
    right_of_1000: f64,
    right_of_all: f64,
}

fn run(theta: f64) -> Summary {
    let (mut load, mut table) = (Load::new(theta), Table::default());
    let mut estimates = Estimates::new(0.5, HOT_MOST);
    let mut threshold = Threshold::new(RULES);
    let mut sums = vec![0.0; SERVERS];
    let mut hottest = vec![];
    for window in 0..WINDOWS {
        let loads = load.window(&table, &mut estimates);
        let average = loads.iter().sum::<f64>() / SERVERS as f64;
        estimates.window_end(average);
        let highest = loads.iter().copied().fold(0.0, f64::max);
        hottest = estimates.highest(HOT_MOST);
        threshold.hottest(hottest[0].1 / average);
        threshold.window_end(highest / average - 1.0, 3.0 / average.sqrt());
        let planned = table.plan(&Situation {
            hottest: &hottest,
            load: &|key| estimates.of(key),
            threshold: threshold.part() * average,
            is_lapsed: &|_| true,
            home: &|key| Some(load.homes[load.ranks[key]]),
            entry: &|_, at| Some(at),
            server_of: &|at| at,
            loads: &loads,
            full: average * (1.0 + RULES.bound) + 3.0 * average.sqrt(),
            average,
            weight: &|_| 1.0,
            may: &[true; SERVERS],
            most: &|_| SERVERS,
            busy: &|_| false,
            room: HOT_MOST,
            changes: 2000,
        });
        planned.into_iter().for_each(|change| table.set(&change.key, change.servers));
        if window >= WINDOWS - 4 {
            sums.iter_mut().zip(&loads).for_each(|(sum, load)| *sum += load);
        }
    }
    let right = |first: usize| {
        let expected = hottest.iter().take(first);
        expected.filter(|(key, _)| load.ranks[key] < first).count() as f64 / first as f64
    };
    Summary {
        imbalance: imbalance(&sums),
        replicas_share: table.replicas() as f64 / (SERVERS * HOT_MOST) as f64,
        hot_keys: table.len(),
        right_of_1000: right(1000),
        right_of_all: right(HOT_MOST),
    }
}

/// Equation 2.
fn imbalance(loads: &[f64]) -> f64 {
    let average = loads.iter().sum::<f64>() / loads.len() as f64;
    let off = loads.iter().map(|load| (load - average).abs());
    off.sum::<f64>() / (average * loads.len() as f64)
}

#[test]
fn the_paper_s_balance_comes_of_few_replicas() {
    for theta in [0.9, 0.99, 1.5] {
        let came = run(theta);
        let Summary { imbalance, replicas_share, hot_keys, .. } = came;
        assert!(imbalance <= 0.017, "Zipf {theta}: {imbalance}");
        assert!(replicas_share <= 0.0988, "Zipf {theta}: {replicas_share}");
        assert!(hot_keys <= 7000, "Zipf {theta}: {hot_keys}");
        if theta == 0.99 {
            assert!(came.right_of_1000 >= 0.951, "{}", came.right_of_1000);
            assert!(came.right_of_all >= 0.517, "{}", came.right_of_all);
        }
    }
}
