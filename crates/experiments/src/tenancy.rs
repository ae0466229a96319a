use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// Parameters of experiments with tenants; each uses those that concern it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenancy {
    /// Numbers of users that are compared.
    pub users: Vec<usize>,
    /// As many users as shall be compared with one in the end; 0: that is left out.
    pub many: usize,
    /// Guaranteed pages of each user.
    pub quota: u32,
    /// The same, where there are many.
    pub many_quota: u32,
    /// Pages of each switch.
    pub pages: u32,
    /// Requests per second offered in all.
    pub rate: f64,
    /// Deadline in seconds for everything to be cached, from an empty cache on.
    pub settle_s: f64,
    /// Part of the frames that a lossy link loses.
    pub loss: f64,
    /// Requests per second offered over lossy links.
    pub lossy_rate: f64,
    /// Deadline in seconds for everything to be cached over lossy links.
    pub lossy_settle_s: f64,
    /// Repetitions of what is compared, in turn.
    pub rounds: usize,
    /// Length of one repetition in seconds.
    pub round_s: f64,
    /// Offered load of a comparison, as a part of what a closed loop of one user gets.
    pub load: f64,
    /// Delay of each link in milliseconds.
    pub delay_ms: f64,
    /// Length of the controller's statistics windows in milliseconds.
    pub window_ms: u32,
    /// Requests per second that a limited tenant may send; it sends `excess` times as many.
    pub limit: u64,
    /// How many times its limit a tenant sends.
    pub excess: f64,
    /// Requests per second of the other disturbers.
    pub disturb_rate: f64,
    /// Kills, in experiments that kill.
    pub kills: u32,
    /// The discipline of every other tenant; empty: the experiment's.
    pub other_discipline: String,
}

impl Default for Tenancy {
    fn default() -> Tenancy {
        Tenancy {
            users: vec![1, 2, 3],
            many: 64,
            quota: 25,
            many_quota: 8,
            pages: 600,
            rate: 30_000.0,
            settle_s: 30.0,
            loss: 0.05,
            lossy_rate: 6_000.0,
            lossy_settle_s: 45.0,
            rounds: 9,
            round_s: 1.5,
            load: 0.8,
            delay_ms: 1.0,
            window_ms: 500,
            limit: 1_000,
            excess: 10.0,
            disturb_rate: 5_000.0,
            kills: 8,
            other_discipline: String::new(),
        }
    }
}

impl Tenancy {
    /// Checks ranges.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.users.is_empty() && self.users.iter().all(|n| (1..=64).contains(n)),
            "users = {:?}: numbers from 1 to 64 are possible",
            self.users
        );
        ensure!(self.many <= 256, "many = {}: at most 256", self.many);
        ensure!(
            (1..=32_768).contains(&self.pages),
            "pages = {}: 1 to 32768 are possible",
            self.pages
        );
        for (name, value) in [("loss", self.loss), ("load", self.load)] {
            ensure!(
                value > 0.0 && value < 1.0,
                "{name} = {value}: between 0 and 1"
            );
        }
        for (name, value) in [
            ("rate", self.rate),
            ("settle_s", self.settle_s),
            ("lossy_rate", self.lossy_rate),
            ("lossy_settle_s", self.lossy_settle_s),
            ("round_s", self.round_s),
            ("excess", self.excess),
            ("disturb_rate", self.disturb_rate),
        ] {
            ensure!(
                value > 0.0 && value < 1e7,
                "{name} = {value}: must be positive"
            );
        }
        ensure!(self.rounds > 0, "rounds = 0: at least one is needed");
        ensure!(
            (0.0..=1000.0).contains(&self.delay_ms),
            "delay_ms = {}: 0 to 1000",
            self.delay_ms
        );
        ensure!(
            (100..=60_000).contains(&self.window_ms),
            "window_ms = {}: 100 to 60000",
            self.window_ms
        );
        Ok(())
    }
}
