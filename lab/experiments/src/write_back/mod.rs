//! What write-back gains: clients, two switches in a line, servers, and keys some of which are written far more often than others. With it the
//! first switch answers the writes of the hottest, and the second keeps them; without it each of them reaches its server.
//!
//! The servers' partitions are what is slow, as real backends are: the hottest one decides what the rack carries.

mod bench;
mod tell;

use anyhow::ensure;
use load::{
    ChurnSchedule, Phase,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};

use crate::{
    Measure, Report, Run,
    params::{exponent, keys, part, positive, ratio, value_len},
    servers::Search,
};
use bench::{Bench, Measured};

/// Parameters of write-back's gain.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBack {
    /// Number of keys, 16 bytes each.
    keys: usize,
    /// Length of values in bytes.
    value_len: usize,
    /// Zipf's exponent, of reads and writes.
    theta: f64,
    /// Parts of the requests that write.
    write_ratios: Vec<f64>,
    /// The tenant's bound on age.
    write_back_ms: u32,
    /// Writes of a key within a second from which on it is lent; none: as the store has it.
    lend_from: Option<u32>,
    /// Number of servers, each one partition.
    servers: u32,
    /// Requests per second that each server takes.
    server_rate: f64,
    /// Clients, each with numbers of its own for its writes.
    clients: usize,
    /// Guaranteed pages of the tenant, for reads.
    quota: u32,
    /// Pages of each switch.
    pages: u32,
    /// Length of the controller's statistics windows in milliseconds.
    window_ms: u32,
    /// Load before each point, in seconds.
    settle_s: f64,
    /// Length of the measurement of latencies, in seconds.
    seconds: f64,
    /// Load at which latencies are compared, as part of what is carried without write-back.
    load: f64,
    /// Seconds between changes of which keys are hot; 0: they stay.
    churn_s: f64,
    /// So many of the coldest keys become the hottest then.
    churn_keys: usize,
    #[serde(default)]
    search: Search,
}

impl Measure for WriteBack {
    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        value_len(self.value_len)?;
        exponent(self.theta)?;
        self.search.check()?;
        part([("load", self.load)])?;
        positive([
            ("server_rate", self.server_rate),
            ("settle_s", self.settle_s),
            ("seconds", self.seconds),
        ])?;
        ensure!(
            (1..=16).contains(&self.clients),
            "clients = {}: 1 to 16 are possible",
            self.clients
        );
        ensure!(
            (0.0..1e6).contains(&self.churn_s) && self.churn_keys <= self.keys,
            "churn_s = {}, churn_keys = {}: no less than 0, and no more keys than there are",
            self.churn_s,
            self.churn_keys
        );
        ensure!(
            (10..=60_000).contains(&self.write_back_ms),
            "write_back_ms = {}: 10 to 60000 are possible",
            self.write_back_ms
        );
        let mut ratios = self.write_ratios.iter();
        ratios.try_for_each(|part| ratio("write_ratios", *part))
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut without: Vec<Measured> = vec![];
        let mut bench = Bench::new(run, self, 0)?;
        for part in &self.write_ratios {
            without.push(bench.measure(*part, None)?);
        }
        drop(bench);
        let mut with = vec![];
        let mut bench = Bench::new(run, self, self.write_back_ms)?;
        for (part, other) in self.write_ratios.iter().zip(&without) {
            with.push(bench.measure(*part, Some(other.load_rate))?);
        }
        tell::tell(self, run, report, &without, &with);
        Ok(())
    }
}

impl WriteBack {
    fn phase(&self, write_ratio: f64, rate: f64, seconds: f64) -> Phase {
        let churn = (self.churn_s > 0.0).then_some(ChurnSchedule {
            change: Churn {
                kind: ChurnKind::HotIn,
                count: self.churn_keys,
                among: 0,
            },
            every_s: self.churn_s,
        });
        Phase {
            write_ratio,
            churn,
            ..Phase::reads(Popularity::Zipf(self.theta), rate, 0.0, seconds)
        }
    }
}
