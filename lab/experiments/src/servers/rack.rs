//! What a rack consists of, and how it is looked at: the parameters.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use load::{PhaseResult, search::Limits};
use plan::Hardware;
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::{
    params::{keys, part, positive, value_len},
    rig::TIMEOUT_MS,
};

/// The servers and the cache in front of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rack {
    /// Number of keys, 16 bytes each.
    pub keys: usize,
    /// Lengths of values: one, or a table `{ mix = [[64, 82], [1024, 18]] }` of lengths with their
    /// weights, of which each key has one.
    pub value_len: Lengths,
    /// Number of servers, each one partition.
    pub servers: u32,
    /// Racks, in which the servers stand in equal numbers, each with a switch at its top, below one
    /// to which clients and controller are linked. One: all stand below that one.
    pub racks: u32,
    /// Whether that one does anything but forward, where there are racks.
    pub spine: bool,
    /// Whether each server is a host of its own, with an address of its own, and hears the
    /// controller; otherwise one host has the partitions of all of them.
    pub apart: bool,
    /// Requests per second that each server takes.
    pub server_rate: f64,
    /// What switch and links are in the simulator; none: one core, and links of 10 us.
    pub hardware: Option<Hardware>,
    /// By this the rates of servers and hardware are divided, and the hardware's times multiplied:
    /// the same rack with fewer requests in each second, so that one of fast machines can be
    /// simulated. What is measured is so much slower, too; ratios are the same.
    pub factor: f64,
    /// Requests that wait at a server before it drops more.
    pub queue_limit: u32,
    /// Most items in the cache.
    pub items: usize,
    /// Part of the requests that may be lost at saturation.
    pub loss: f64,
    /// A request unanswered for so long is lost, in milliseconds.
    pub timeout_ms: u64,
    /// One unanswered for so long is sent again, in milliseconds; none: nothing is.
    pub again_ms: Option<u64>,
    /// What the switch does, when it caches; none: what the experiment is about.
    pub discipline: Option<String>,
    /// Longest time to let the cache learn in seconds.
    pub learn_s: f64,
    /// Length of the controller's statistics windows in milliseconds; none: the usual one.
    pub window_ms: Option<u32>,
    /// Rates above this are not offered: two CPUs carry no more.
    pub max_rate: f64,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// Options added to the controller's command line.
    pub control_args: Vec<String>,
    /// Options added to the switch's command line.
    pub switch_args: Vec<String>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            keys: 1_000_000,
            value_len: 128.into(),
            servers: 128,
            racks: 1,
            spine: true,
            apart: false,
            server_rate: 250.0,
            hardware: None,
            factor: 1.0,
            queue_limit: 32,
            items: 10_000,
            loss: 0.02,
            timeout_ms: TIMEOUT_MS,
            again_ms: None,
            discipline: None,
            learn_s: 30.0,
            window_ms: None,
            max_rate: 150_000.0,
            settings: BTreeMap::new(),
            control_args: vec![],
            switch_args: vec![],
        }
    }
}

impl Rack {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        value_len(self.value_len.longest())?;
        let Rack { keys, servers, racks, items, .. } = self;
        ensure!((1..=4096).contains(servers), "servers = {servers}: 1 to 4096 are possible");
        ensure!(
            *racks == 1 || (*racks > 1 && self.apart && servers % racks == 0),
            "racks = {racks}: 1, or a part of the {servers} servers, which have to be apart"
        );
        ensure!(items <= keys, "items = {items}: more than there are keys ({keys})");
        positive!(self, server_rate, learn_s, max_rate, factor)?;
        if let Some(hardware) = &self.hardware {
            let rate = hardware.switch_rate / self.factor;
            positive([("switch_rate", rate)])?;
        }
        part([("loss", self.loss)])
    }
}

/// How a point of saturation is searched for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Longest search for one point in seconds.
    pub search_s: f64,
    /// One step in seconds, measured part.
    pub step_s: f64,
    /// Requests that a step must at least contain; it takes longer (up to three times) if needed.
    pub step_requests: f64,
    /// Load before each measured part in seconds.
    pub warmup_s: f64,
    /// Width of the answer, a part of one.
    pub precision: f64,
    /// Most steps.
    pub steps: usize,
    /// Seconds for which the servers' loads are measured, at nine tenths of the rate that is
    /// expected: the same rate in every run, and long enough that chance does not decide. 0: as the
    /// best step had them.
    pub loads_s: f64,
}

impl Default for Search {
    fn default() -> Search {
        Search {
            search_s: 25.0,
            step_s: 1.0,
            step_requests: 10_000.0,
            warmup_s: 0.3,
            precision: 0.02,
            steps: 12,
            loads_s: 0.0,
        }
    }
}

impl Search {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        positive!(self, step_s, search_s)
    }

    /// When it stops, with this part lost at most, and no rate above this one.
    pub(crate) fn limits(&self, loss: f64, max_rate: f64) -> Limits {
        Limits {
            loss,
            precision: self.precision,
            steps: self.steps,
            time: Duration::from_secs_f64(self.search_s),
            max_rate,
        }
    }

    /// How long a step at this rate takes in seconds.
    pub(crate) fn step_seconds(&self, rate: f64) -> f64 {
        (self.step_requests / rate).clamp(self.step_s, 3.0 * self.step_s)
    }
}

/// The part that counts as lost of a step at this rate. A generator that falls behind offers less
/// than it should: that is no pass.
pub(crate) fn step_loss(result: &PhaseResult, rate: f64) -> f64 {
    let offered = result.sent_rate() / rate;
    if offered < 0.95 { 1.0 } else { result.lasting_loss() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_generator_did_not_offer_is_no_pass() {
        let seen = PhaseResult { seconds: 2.0, sent: 1800, returned: 1800, ..Default::default() };
        assert_eq!([900.0, 1000.0].map(|rate| step_loss(&seen, rate)), [0.0, 1.0]);
    }

    #[test]
    fn errors_name_the_parameter() {
        let rack = |text: &str| -> anyhow::Result<()> {
            let rack: Rack = toml::from_str(text)?;
            rack.check()
        };
        for (line, expected) in [
            ("kees = 5", "kees"),
            ("keys = 0", "keys = 0"),
            ("keys = 10\nitems = 20", "items = 20"),
            ("loss = 1.0", "loss = 1"),
        ] {
            let error = format!("{:#}", rack(line).unwrap_err());
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
        }
    }
}
