//! What write-back gains: clients, two switches in a line, servers, and keys some of which are
//! written far more often than others. With it the first switch answers the writes of the hottest,
//! and the second keeps them; without it each of them reaches its server.
//!
//! The servers' partitions are what is slow, as real backends are: the hottest one decides what the
//! rack carries.

mod bench;

use anyhow::ensure;
use load::{
    ChurnSchedule, Phase,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Run,
    params::{exponent, keys, part, positive, ratio, value_len},
    servers::Search,
    sweep::{Figures, Point, Points},
};
use bench::{Bench, Measurement, Step};

/// The rack, with write-back or without, under one load.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBack {
    /// Number of keys, 16 bytes each.
    keys: usize,
    /// Length of values in bytes.
    value_len: usize,
    /// Zipf's exponent, of reads and writes.
    theta: f64,
    /// Part of the requests that write.
    write_ratio: f64,
    /// Whether switches answer writes.
    write_back: Answer,
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

/// Whether something is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    No,
    Yes,
}

impl Point for WriteBack {
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        value_len(self.value_len)?;
        exponent(self.theta)?;
        self.search.check()?;
        part([("load", self.load)])?;
        positive!(self, server_rate, settle_s, seconds)?;
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
        ratio("write_ratio", self.write_ratio)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        Bench::new(run, self)
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        _: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        // Latencies are compared at the load that was carried without.
        let mut before = before.all().iter();
        let same = before.find(|point| point.number("write_ratio") == Some(self.write_ratio));
        let load_rate = same.and_then(|point| point.number("load_rate"));
        let one = bench.measure(self.write_ratio, load_rate)?;
        let counted = &one.saturated.counted;
        let wrong = one.saturated.result.wrong() + one.loaded.result.wrong();
        let figures = one
            .figures()
            .aside("loans_returned", counted.of_store("loans_returned"))
            .aside("loans_lost", counted.of_store("loans_lost"))
            .aside("load", self.load)
            .aside("wrong", wrong);
        Ok(vec![figures])
    }
}

impl Measurement {
    fn figures(&self) -> Figures {
        Figures::new(json!({
            "rate": self.rate,
            "load_rate": self.load_rate,
            "saturated": self.saturated.row(),
            "loaded": self.loaded.row(),
        }))
    }
}

impl Step {
    fn row(&self) -> Value {
        let Step { result, counted } = self;
        json!({
            "throughput": result.throughput(),
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            "refused": result.refused,
            "write": result.write,
            "read": result.read,
            // A write that was never answered took longer than any that was.
            "write_p99_us": result.write_waits.p99_us,
            "writes_to_store": self.reached(),
            "writes_to_backend": self.backed(),
            "asked_of_switches": self.asked(),
            "lent": counted.lent,
            "store": some(&counted.store),
            "switches": some(&counted.switches),
        })
    }
}

/// What was counted at all.
fn some(counted: &Map<String, Value>) -> Map<String, Value> {
    let mut counted = counted.clone();
    counted.retain(|_, count| count.as_u64() != Some(0));
    counted
}

impl WriteBack {
    fn phase(&self, write_ratio: f64, rate: f64, seconds: f64) -> Phase {
        let churn = (self.churn_s > 0.0).then_some(ChurnSchedule {
            change: Churn { kind: ChurnKind::HotIn, count: self.churn_keys, among: 0 },
            every_s: self.churn_s,
        });
        Phase {
            write_ratio,
            churn,
            ..Phase::reads(Popularity::Zipf(self.theta), rate, 0.0, seconds)
        }
    }
}
