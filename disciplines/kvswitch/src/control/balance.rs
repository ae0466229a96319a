//! The pieces of the control half against drawn load, without packets (paper, figures 7 to 9).

use std::time::Instant;

use decide::Key;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use rand_distr::{Distribution, Poisson};

use super::{
    estimate::Estimates,
    table::{Table, Wants},
    threshold::{Rules, Threshold},
};

const SERVERS: usize = 32;
const KEYS: usize = 10_000_000;
/// Keys that are drawn one by one; the others of a server together.
const DRAWN: usize = 200_000;

pub struct Load {
    chances: Vec<f64>,
    homes: Vec<usize>,
    tail: Vec<f64>,
    keys: Vec<Key>,
}

impl Load {
    pub fn new(theta: f64, seed: u64) -> Load {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut all: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = all.iter().sum();
        all.iter_mut().for_each(|c| *c /= sum);
        let homes: Vec<usize> = (0..KEYS).map(|_| rng.random_range(0..SERVERS)).collect();
        let mut tail = vec![0.0; SERVERS];
        for (c, home) in all.iter().zip(&homes).skip(DRAWN) {
            tail[*home] += c;
        }
        let mut numbers: Vec<u32> = (0..DRAWN as u32).collect();
        numbers.shuffle(&mut rng);
        Load {
            chances: all[..DRAWN].to_vec(),
            homes: homes[..DRAWN].to_vec(),
            tail,
            keys: numbers
                .iter()
                .map(|n| Key::copy_from_slice(&n.to_be_bytes()))
                .collect(),
        }
    }
}

struct Said {
    lambda: f64,
    max: f64,
    used: usize,
    replicas: f64,
    acc1000: f64,
    acc: f64,
    part: f64,
    changes: usize,
}

fn run(
    theta: f64,
    requests: f64,
    k: usize,
    rules: Rules,
    alpha: f64,
    changes: usize,
    windows: usize,
    report: bool,
) -> Said {
    let load = Load::new(theta, 7);
    let mut rank = std::collections::HashMap::new();
    for (i, key) in load.keys.iter().enumerate() {
        rank.insert(key.clone(), i);
    }
    let mut rng = StdRng::seed_from_u64(3);
    let mut table = Table::default();
    let mut estimates = Estimates::new(alpha, k);
    let mut threshold = Threshold::new(rules);
    let mut report_from = 2.0f64;
    let mut said = None;
    let mut sums = vec![0.0; SERVERS];
    let mut total_changes = 0;
    for window in 0..windows {
        let mut loads: Vec<f64> = load
            .tail
            .iter()
            .map(|c| Poisson::new(c * requests + 1e-9).unwrap().sample(&mut rng))
            .collect();
        let mut reports = 0;
        for (i, key) in load.keys.iter().enumerate() {
            let n: f64 = Poisson::new(load.chances[i] * requests)
                .unwrap()
                .sample(&mut rng);
            if let Some(servers) = table.servers(key) {
                estimates.count(key, n as u64);
                for s in servers {
                    loads[*s] += n / servers.len() as f64;
                }
            } else {
                loads[load.homes[i]] += n;
                if n >= report_from {
                    reports += 1;
                    let seen = report_from * ((n / report_from).log2().floor()).exp2();
                    estimates.count(key, seen as u64);
                }
            }
        }
        if reports > 2 * k {
            report_from *= 2.0
        } else if reports < k / 4 {
            report_from = (report_from * 0.75).max(2.0).ceil()
        }
        estimates.window_end();
        let avg = loads.iter().sum::<f64>() / SERVERS as f64;
        let max = loads.iter().copied().fold(0.0, f64::max);
        let lambda = |loads: &[f64]| {
            let avg = loads.iter().sum::<f64>() / SERVERS as f64;
            loads
                .iter()
                .map(|l| (l - avg).abs() / (avg * SERVERS as f64))
                .sum::<f64>()
        };
        let highest = estimates.highest(k);
        let overlap = |n: usize| {
            highest
                .iter()
                .take(n)
                .filter(|(key, _)| rank[key] < n)
                .count() as f64
                / n as f64
        };
        let settled = { total_changes < changes };
        total_changes = 0;
        if let Some((_, most)) = highest.first() {
            threshold.hottest(most / avg);
        }
        if settled {
            threshold.window_end(max / avg - 1.0, 3.0 / avg.sqrt());
        }
        let plan = table.plan(&Wants {
            loads: &loads,
            hottest: &highest,
            load: &|key| estimates.of(key),
            threshold: (threshold.part() * avg).max(2.0),
            home: &|key| load.homes[rank[key]],
            may: &[true; SERVERS],
            most: SERVERS,
            busy: &|_| false,
            room: k,
            changes,
        });
        total_changes = plan.len();
        if window >= windows - 5 {
            for (s, l) in sums.iter_mut().zip(&loads) {
                *s += l;
            }
        }
        let replicas: usize = table.iter().map(|(_, s)| s.len()).sum();
        let s = Said {
            lambda: lambda(&loads),
            max: max / avg,
            used: table.len(),
            replicas: replicas as f64 / SERVERS as f64 / k as f64,
            acc1000: overlap(1000),
            acc: overlap(k),
            part: threshold.part(),
            changes: plan.len(),
        };
        if report {
            println!(
                "{window:3} λ {:.4} max {:.3} used {} share {:.4} acc {:.3} {:.3} T {:.5} ({:.1}) changes {} reports {reports} from {report_from}",
                s.lambda,
                s.max,
                s.used,
                s.replicas,
                s.acc1000,
                s.acc,
                s.part,
                s.part * avg,
                s.changes
            );
        }
        said = Some(s);
        for change in plan {
            table.set(&change.key, change.servers);
        }
    }
    let mut s = said.unwrap();
    let avg = sums.iter().sum::<f64>() / SERVERS as f64;
    s.lambda = sums
        .iter()
        .map(|l| (l - avg).abs() / (avg * SERVERS as f64))
        .sum::<f64>();
    s
}

#[test]
#[ignore]
fn explore() {
    let requests: f64 = std::env::var("N")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(2e6);
    let bound: f64 = std::env::var("BOUND")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.05);
    let alpha: f64 = std::env::var("ALPHA")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.5);
    let show = std::env::var("SHOW").is_ok();
    for theta in [0.9, 0.95, 0.99, 1.2, 1.5] {
        let begun = Instant::now();
        let s = run(
            theta,
            requests,
            10_000,
            Rules {
                first: 0.0625,
                bound,
                gamma: 0.7,
            },
            alpha,
            4000,
            40,
            show,
        );
        println!(
            "theta {theta} λ {:.4} max {:.3} used {} share {:.4} acc1000 {:.3} acc {:.3} T {:.5} changes {} ({:?})",
            s.lambda,
            s.max,
            s.used,
            s.replicas,
            s.acc1000,
            s.acc,
            s.part,
            s.changes,
            begun.elapsed()
        );
    }
}
