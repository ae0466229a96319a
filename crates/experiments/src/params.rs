use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::Tenancy;
use load::workload::{ChurnKind, Popularity};

/// Parameters of every kind of experiment; each kind uses those that concern it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// Number of keys, 16 bytes each.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Number of servers, each one partition.
    pub servers: u32,
    /// Requests per second that each server takes.
    pub server_rate: f64,
    /// Requests that wait at a server before it drops more.
    pub queue_limit: u32,
    /// Most items in the cache.
    pub items: usize,
    /// Part of the requests that may be lost at saturation.
    pub loss: f64,
    /// Whether uniform popularity is measured.
    pub uniform: bool,
    /// Zipf exponents that are measured.
    pub thetas: Vec<f64>,
    /// Longest time to let the cache learn in seconds.
    pub learn_s: f64,
    /// Longest search for one saturation point in seconds.
    pub search_s: f64,
    /// One step of the search in seconds, measured part.
    pub step_s: f64,
    /// Requests that a step must at least contain; it takes longer (up to three times) if needed.
    pub step_requests: f64,
    /// Load before each measured part in seconds.
    pub warmup_s: f64,
    /// Width of the search's answer, a part of one.
    pub precision: f64,
    /// Most steps of one search.
    pub steps: usize,
    /// Rates above this are not offered: two CPUs carry no more.
    pub max_rate: f64,
    /// Churn: the kinds of change measured, in this order.
    pub churn: Vec<ChurnKind>,
    /// Churn: keys that change at once.
    pub churn_count: usize,
    /// Churn: among how many of the hottest the random ones are chosen.
    pub churn_among: usize,
    /// Churn: seconds between changes.
    pub churn_every_s: f64,
    /// Churn: number of changes per kind.
    pub churn_changes: usize,
    /// Churn: offered rate as a part of the bound.
    pub churn_load: f64,
    /// Churn: part of the requests that write, so that staleness would show.
    pub churn_write_ratio: f64,
    /// Writes: write ratios measured.
    pub write_ratios: Vec<f64>,
    /// Options added to the controller's command line.
    pub control_args: Vec<String>,
    /// Options added to the switch's command line.
    pub switch_args: Vec<String>,
    /// What concerns experiments with tenants.
    pub tenancy: Tenancy,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            keys: 1_000_000,
            value_len: 128,
            servers: 128,
            server_rate: 250.0,
            queue_limit: 32,
            items: 10_000,
            loss: 0.02,
            uniform: true,
            thetas: vec![0.9, 0.95, 0.99],
            learn_s: 30.0,
            search_s: 25.0,
            step_s: 1.0,
            step_requests: 10_000.0,
            warmup_s: 0.3,
            precision: 0.02,
            steps: 12,
            max_rate: 150_000.0,
            churn: vec![ChurnKind::HotIn, ChurnKind::Random, ChurnKind::HotOut],
            churn_count: 200,
            churn_among: 10_000,
            churn_every_s: 5.0,
            churn_changes: 10,
            churn_load: 0.8,
            churn_write_ratio: 0.01,
            write_ratios: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            control_args: vec![],
            switch_args: vec![],
            tenancy: Tenancy::default(),
        }
    }
}

impl Params {
    /// The distributions that are measured, in order.
    pub fn distributions(&self) -> Vec<Popularity> {
        let uniform = self.uniform.then_some(Popularity::Uniform);
        uniform
            .into_iter()
            .chain(self.thetas.iter().map(|t| Popularity::Zipf(*t)))
            .collect()
    }

    /// Checks that the cache is not larger than what there is to be cached.
    pub(super) fn check_items(&self) -> anyhow::Result<()> {
        let (items, keys) = (self.items, self.keys);
        ensure!(
            items <= keys,
            "items = {items}: more than there are keys ({keys})"
        );
        Ok(())
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        let Params { keys, servers, .. } = self;
        ensure!(
            (1..=100_000_000).contains(keys),
            "keys = {keys}: 1 to 100000000 are possible"
        );
        ensure!(
            (1..=4096).contains(servers),
            "servers = {servers}: 1 to 4096 are possible"
        );
        let longest = wire::max_value(load::workload::KEY_LEN);
        let value_len = self.value_len;
        ensure!(
            (1..=longest).contains(&value_len),
            "value_len = {value_len}: 1 to {longest}"
        );
        for (name, value) in [
            ("server_rate", self.server_rate),
            ("step_s", self.step_s),
            ("search_s", self.search_s),
            ("max_rate", self.max_rate),
            ("churn_every_s", self.churn_every_s),
        ] {
            ensure!(
                value > 0.0 && value < 1e9,
                "{name} = {value}: must be positive"
            );
        }
        ensure!(
            self.loss > 0.0 && self.loss < 1.0,
            "loss = {}: between 0 and 1",
            self.loss
        );
        for theta in &self.thetas {
            ensure!(
                (0.0..=10.0).contains(theta),
                "thetas: {theta} is not within 0 to 10"
            );
        }
        self.tenancy.check()?;
        for ratio in self.write_ratios.iter().chain([&self.churn_write_ratio]) {
            ensure!(
                (0.0..=1.0).contains(ratio),
                "write_ratios: {ratio} is not within 0 to 1"
            );
        }
        Ok(())
    }
}
