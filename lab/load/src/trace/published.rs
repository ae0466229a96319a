//! Workloads that others have published, made anew from what they say of them: how popularity falls
//! off, what part writes, and how long values are.

use anyhow::{Context, ensure};
use rand::RngExt;
use seed::{SeededRng, rng};

use super::{Action, Trace};
use crate::workload::{Permutation, Popularity, Ranks};

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Exponent of Zipf's law.
    alpha: f64,
    /// Part of the operations that write.
    writes: f64,
    /// All values, in bytes.
    value_len: usize,
    order: Order,
}

/// Which keys operations are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Each by popularity, whatever the others are of.
    Independent,
    /// Writes are of one key after the other; the hottest are those that were written last.
    Latest,
    /// Reads are of keys in a row, up to [`SCAN_MOST`] of them; writes of one key after the other.
    Scan,
    /// Writes are of a key that was just read.
    ReadModifyWrite,
}

/// Most keys of one scan, as YCSB has it.
const SCAN_MOST: u32 = 100;

/// YCSB's core workloads: ten fields of 100 bytes, Zipf 0.99.
const YCSB: [(&str, f64, Order); 6] = [
    ("a", 0.5, Order::Independent),
    ("b", 0.05, Order::Independent),
    ("c", 0.0, Order::Independent),
    ("d", 0.05, Order::Latest),
    ("e", 0.05, Order::Scan),
    ("f", 0.5, Order::ReadModifyWrite),
];
const YCSB_ALPHA: f64 = 0.99;
const YCSB_VALUE_LEN: usize = 1000;

/// Twitter's clusters of March 2020, of the table that was published with their traces
/// (`twitter/cache-trace`, `stat/2020Mar.md`): number, exponent of popularity, mean length of
/// values in bytes, and the part of the operations that is neither get nor gets. Clusters 5, 43 and
/// 46 have no exponent there.
const TWITTER: [(u32, f64, usize, f64); 51] = [
    (1, 2.6774, 267, 0.01),
    (2, 1.4908, 68, 0.0),
    (3, 1.6414, 120, 0.01),
    (4, 1.1004, 2439, 0.07),
    (6, 1.882, 252, 0.02),
    (7, 1.0666, 1936, 0.18),
    (8, 1.7366, 9497, 0.5),
    (9, 1.6796, 39, 0.01),
    (10, 0.0, 2333, 0.5),
    (11, 1.4891, 170, 0.03),
    (12, 0.3048, 1030, 0.8),
    (13, 0.4565, 4266, 0.62),
    (14, 1.2959, 414, 0.35),
    (15, 0.0242, 102, 1.0),
    (16, 1.7862, 115, 0.07),
    (17, 2.1106, 212, 0.01),
    (18, 2.0994, 37, 0.03),
    (19, 0.735, 101, 0.25),
    (20, 1.3699, 55, 0.04),
    (21, 0.0521, 1, 1.0),
    (22, 0.7624, 4, 0.28),
    (23, 0.274, 224, 0.64),
    (24, 1.3726, 699, 0.01),
    (25, 0.9929, 28, 0.03),
    (26, 0.6299, 1745, 0.29),
    (27, 1.065, 8, 0.15),
    (28, 1.503, 85, 0.09),
    (29, 1.2323, 799, 0.14),
    (30, 1.4259, 689, 0.01),
    (31, 0.0, 15, 0.94),
    (32, 0.0, 138, 0.98),
    (33, 1.354, 1118, 0.01),
    (34, 1.1401, 322, 0.06),
    (35, 0.0, 1796, 0.04),
    (36, 1.2169, 78, 0.06),
    (37, 0.4251, 20134, 0.37),
    (38, 0.0, 185, 0.94),
    (39, 0.0, 80, 0.94),
    (40, 0.8551, 155, 0.5),
    (41, 0.8542, 171, 0.5),
    (42, 1.5974, 4703, 0.04),
    (44, 1.4084, 22, 0.02),
    (45, 0.6372, 120, 0.15),
    (47, 2.0637, 267, 0.0),
    (48, 0.8191, 70, 0.35),
    (49, 1.5095, 10658, 0.43),
    (50, 1.2816, 67485, 0.48),
    (51, 1.9745, 221, 0.1),
    (52, 1.2117, 273, 0.07),
    (53, 1.2061, 9213, 0.11),
    (54, 1.611, 246, 0.03),
];

/// What is known of the workload of this name, of which there are to be so many keys and requests.
///
/// # Errors
/// There is none of this name, or no key or request is asked for.
pub fn find(name: &str, [keys, requests]: [usize; 2]) -> anyhow::Result<Workload> {
    let workload = of_name(name).with_context(|| {
        let clusters = TWITTER.iter().map(|(number, ..)| number.to_string());
        format!(
            "workload {name:?}: ycsb-a to ycsb-f are known, and twitter-N for the clusters {}",
            clusters.collect::<Vec<_>>().join(", ")
        )
    })?;
    for (what, number) in [("keys", keys), ("requests", requests)] {
        let is_possible = (1..=100_000_000).contains(&number);
        ensure!(is_possible, "workload {name}: {what} = {number}: 1 to 100000000 are possible");
    }
    Ok(workload)
}

fn of_name(name: &str) -> Option<Workload> {
    if let Some(letter) = name.strip_prefix("ycsb-") {
        let (_, writes, order) = *YCSB.iter().find(|(other, ..)| *other == letter)?;
        return Some(Workload { alpha: YCSB_ALPHA, writes, value_len: YCSB_VALUE_LEN, order });
    }
    let number: u32 = name.strip_prefix("twitter-")?.parse().ok()?;
    let (_, alpha, value_len, writes) = *TWITTER.iter().find(|(other, ..)| *other == number)?;
    Some(Workload { alpha, writes, value_len, order: Order::Independent })
}

/// Makes so many requests for so many keys like those of the workload of this name.
///
/// # Errors
/// As [`find`].
pub fn made_like(name: &str, [keys, requests]: [usize; 2], seed: u64) -> anyhow::Result<Trace> {
    let workload = find(name, [keys, requests])?;
    let mut maker = Maker {
        workload,
        ranks: Ranks::new(Popularity::Zipf(workload.alpha), keys)?,
        by_rank: Permutation::new(keys, seed),
        keys: keys as u32,
        inserted: 0,
        rng: rng(seed, "workload"),
        trace: Trace::default(),
    };
    // Of each key there is a value of that length before the first request.
    let len = workload.value_len.clamp(super::VALUE_LEN[0], super::VALUE_LEN[1]) as u16;
    maker.trace.lengths = vec![len; keys];
    while maker.trace.requests.len() < requests {
        maker.operation();
    }
    maker.trace.requests.truncate(requests);
    maker.trace.finished()
}

/// A trace that is made, operation by operation.
struct Maker {
    workload: Workload,
    ranks: Ranks,
    by_rank: Permutation,
    keys: u32,
    /// Keys that were written one after the other.
    inserted: u32,
    rng: SeededRng,
    trace: Trace,
}

impl Maker {
    fn operation(&mut self) {
        let is_write = self.rng.random::<f64>() < self.workload.writes;
        let rank = self.ranks.draw(&mut self.rng);
        let popular = self.by_rank.key(rank);
        match (self.workload.order, is_write) {
            (Order::Latest | Order::Scan, true) => {
                self.inserted = (self.inserted + 1) % self.keys;
                self.add(self.inserted, true);
            }
            (Order::Latest, false) => {
                let latest = u64::from(self.inserted) + u64::from(self.keys - rank);
                self.add((latest % u64::from(self.keys)) as u32, false);
            }
            (Order::Scan, false) => {
                for step in 0..self.rng.random_range(1..=SCAN_MOST) {
                    let key = (u64::from(popular) + u64::from(step)) % u64::from(self.keys);
                    self.add(key as u32, false);
                }
            }
            (Order::ReadModifyWrite, true) => {
                self.add(popular, false);
                self.add(popular, true);
            }
            (Order::Independent | Order::ReadModifyWrite, _) => self.add(popular, is_write),
        }
    }

    fn add(&mut self, key: u32, is_write: bool) {
        let action = if is_write { Action::Write } else { Action::Read };
        self.trace.add(key, action, self.workload.value_len);
    }
}
