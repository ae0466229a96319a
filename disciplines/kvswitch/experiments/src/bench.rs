//! What is compared: servers alone, and servers with KVSwitch before them.

use std::collections::BTreeMap;

use anyhow::ensure;
use experiments::{
    Run,
    params::positive,
    servers::{Counts, Mix, Rack, Saturation, Search, Servers},
};
use load::{PhaseResult, model::imbalance};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Nothing.
    #[serde(rename = "none")]
    None,
    /// NetCache, which holds values up to the length of its paper.
    #[serde(rename = "netcache")]
    Cache,
    /// KVSwitch.
    #[serde(rename = "kvswitch")]
    Replicas,
    /// NetCache, which holds what this switch's items hold.
    #[serde(rename = "netcache-full")]
    FullCache,
    /// KVSwitch in each rack's own switch, and nothing above these.
    #[serde(rename = "kvswitch-in-racks")]
    InRacks,
    /// KVSwitch with copies in the switch beside replicas.
    #[serde(rename = "hybrid")]
    Hybrid,
}

/// Windows at most that a control half has to begin in: a tenant that changes its discipline has to
/// be told to everybody first.
const UNTIL_IT_BEGINS: u32 = 12;

/// Longest key and value that NetCache holds in its paper, in bytes.
const CACHED: [(&str, u32); 2] = [("netcache.longest_key", 16), ("netcache.longest_value", 128)];

impl System {
    /// As rows and plots have it.
    pub fn name(self) -> &'static str {
        match self {
            System::None => "none",
            System::Cache => "netcache",
            System::Replicas => "kvswitch",
            System::FullCache => "netcache-full",
            System::InRacks => "kvswitch-in-racks",
            System::Hybrid => "hybrid",
        }
    }
}

/// How balance is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Balance {
    /// The load, a part of what all servers take together.
    pub load: f64,
    /// Windows before anything is measured, from when the control half began.
    pub windows: u32,
    /// Requests of a measurement.
    pub requests: f64,
    /// The longest measurement in seconds: with fewer requests chance shows more.
    pub longest_s: f64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { load: 0.6, windows: 24, requests: 2e6, longest_s: 1000.0 }
    }
}

impl Balance {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self, rack: &Rack) -> anyhow::Result<()> {
        positive!(self, load, requests, longest_s)?;
        ensure!(rack.apart, "apart = false: replicas need servers with addresses of their own");
        ensure!(rack.servers >= 2, "servers = {}: at least 2 can share a key", rack.servers);
        Ok(())
    }
}

/// What was measured of one system under one load.
pub struct Measurement {
    /// Of what.
    pub system: System,
    /// As the load saw it.
    pub result: PhaseResult,
    /// What servers and switch counted.
    pub counted: Counts,
    /// What the control half said at the end.
    pub figures: BTreeMap<String, f64>,
}

impl Measurement {
    /// How far the servers' loads are from each other: the mean deviation over the mean (equation
    /// 2).
    pub fn imbalance(&self) -> f64 {
        imbalance(&self.counted.served)
    }

    /// A figure of the control half's; 0: it has none of that name.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(0.0)
    }

    /// Everything, for a report's row.
    pub fn row(&self) -> Map<String, Value> {
        let switch = self.counted.switch.iter().filter(|(_, n)| **n > 0.0);
        let row = json!({
            "system": self.system.name(),
            "imbalance": self.imbalance(),
            "throughput": self.result.throughput(),
            "loss": self.result.loss(),
            "all": self.result.all,
            "server_load": self.counted.served,
            "control": self.figures,
            "switch": switch.collect::<BTreeMap<_, _>>(),
            "wrong_values": self.result.wrong(),
        });
        match row {
            Value::Object(row) => row,
            _ => Map::new(),
        }
    }
}

/// A rack with one of the systems.
pub struct Bench<'a> {
    /// The rack.
    pub servers: Servers<'a>,
    system: System,
    balance: Balance,
    /// Requests per second that all servers take together.
    capacity: f64,
    racks: u32,
    window_s: f64,
    is_on: bool,
}

impl<'a> Bench<'a> {
    /// Builds it.
    ///
    /// # Errors
    /// As [`Servers::new`].
    pub fn new(
        run: &Run<'a>,
        rack: &Rack,
        balance: &Balance,
        system: System,
    ) -> anyhow::Result<Bench<'a>> {
        let mut rack = rack.clone();
        if system == System::Cache {
            rack.discipline = Some("netcache".into());
            for (name, number) in CACHED {
                rack.settings.entry(name.into()).or_insert(number);
            }
        }
        if system == System::FullCache {
            rack.discipline = Some("netcache".into());
        }
        if system == System::InRacks {
            rack.spine = false;
        }
        if system == System::Hybrid {
            rack.settings.extend([("kvswitch.copies".into(), 1)]);
        }
        Ok(Bench {
            servers: Servers::new(run, &rack, run.options.backend)?,
            system,
            balance: balance.clone(),
            capacity: f64::from(rack.servers) * rack.server_rate / rack.factor,
            racks: rack.racks,
            window_s: f64::from(rack.window_ms.unwrap_or(1000)) / 1000.0,
            is_on: false,
        })
    }

    /// The rate at which balance is measured: what the first server without anything before it
    /// still takes, if nothing is.
    pub fn rate(&self, mix: Mix) -> f64 {
        let load = self.balance.load;
        match self.system {
            System::None => 0.9 * self.bound_without(mix),
            System::InRacks => self.capacity * load.min(0.9 * self.bound_in_racks(mix)),
            // Beyond what they carry nobody would see what replicas do.
            _ => load * self.expected(mix),
        }
    }

    /// Shares of the servers without anything before them.
    fn shares(&self, Mix { popularity, write_ratio }: Mix) -> Vec<f64> {
        self.servers.shares(popularity, write_ratio, popularity, 0)
    }

    /// What the servers carry, as a part of all, if those of a rack share what it is asked, and
    /// racks nothing.
    fn bound_in_racks(&self, mix: Mix) -> f64 {
        let shares = self.shares(mix);
        let racks = shares.chunks(shares.len().div_ceil(self.racks as usize).max(1));
        let highest = racks.map(|rack| rack.iter().sum()).fold(0.0, f64::max);
        1.0 / (highest * f64::from(self.racks)).max(1.0)
    }

    /// What the servers carry without anything before them.
    pub fn bound_without(&self, mix: Mix) -> f64 {
        self.servers.bound(&self.shares(mix)).min(self.capacity)
    }

    /// What the servers are expected to carry.
    fn expected(&self, mix: Mix) -> f64 {
        match self.system {
            System::None => self.servers.bound(&self.shares(mix)),
            // Reads are spread; writes go home, and to each replica.
            _ => (self.capacity * (1.0 - mix.write_ratio)).max(self.bound_without(mix)),
        }
    }

    /// Lets the control half learn this load from nothing.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn learn(&mut self, mix: Mix) -> anyhow::Result<()> {
        if self.system == System::None {
            return Ok(());
        }
        if std::mem::replace(&mut self.is_on, true) {
            self.servers.cache_off()?;
        }
        self.servers.cache_on()?;
        if self.servers.is_bare() {
            return Ok(());
        }
        // As much as the servers take at first; more when the keys have replicas.
        let rate = self.rate(mix);
        for _ in 0..UNTIL_IT_BEGINS {
            if !self.has_replicas() || self.figures().get("threshold_millionths") > Some(&0.0) {
                break;
            }
            self.go_on(mix, rate, 1)?;
        }
        self.go_on(mix, rate, self.balance.windows)
    }

    /// Whether there is a control half that chooses servers.
    fn has_replicas(&self) -> bool {
        matches!(self.system, System::Replicas | System::InRacks | System::Hybrid)
    }

    /// What the control half says of itself, as far as there is one.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        self.servers.control_counters().unwrap_or_default()
    }

    /// Goes on for so many windows with this load at this rate.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn go_on(&mut self, mix: Mix, rate: f64, windows: u32) -> anyhow::Result<()> {
        for window in 0..windows {
            let (result, counted) = self.servers.counting(&mix.phase(rate, 0.0, self.window_s))?;
            let figures = self.figures();
            let figure = |name: &str| figures.get(name).copied().unwrap_or(0.0);
            tracing::info!(
                "window {window}: imbalance {:.4}, lost {:.2} %, {} hot keys, {} replicas, threshold {:.6}",
                imbalance(&counted.served),
                result.loss() * 100.0,
                figure("hot_keys"),
                figure("replicas_told"),
                figure("threshold_millionths") / 1e6,
            );
            let totals = self.servers.store_totals()?;
            let is_there = |(_, n): &(&String, &f64)| **n > 0.0;
            tracing::debug!(
                "{:?} {:?} {:?}",
                figures.iter().filter(is_there).collect::<Vec<_>>(),
                counted.switch.iter().filter(is_there).collect::<Vec<_>>(),
                totals.iter().filter(is_there).collect::<Vec<_>>()
            );
        }
        Ok(())
    }

    /// Finds the point of saturation, from what is expected on.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate(
        &mut self,
        what: &str,
        search: &Search,
        mix: Mix,
    ) -> anyhow::Result<Saturation> {
        self.saturate_from(self.expected(mix), what, search, mix)
    }

    /// The same, from this rate on.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate_from(
        &mut self,
        expected: f64,
        what: &str,
        search: &Search,
        mix: Mix,
    ) -> anyhow::Result<Saturation> {
        let phase = |rate, warmup, seconds| mix.phase(rate, warmup, seconds);
        self.servers.saturate(expected, what, search, phase)
    }

    /// Measures balance at the usual rate, or at this one.
    ///
    /// # Errors
    /// As [`Servers::counting`].
    pub fn measure(&mut self, mix: Mix, rate: Option<f64>) -> anyhow::Result<Measurement> {
        let rate = rate.unwrap_or_else(|| self.rate(mix));
        let requests = match self.system {
            // It is so far from balance that fewer show it.
            System::None => self.balance.requests / 4.0,
            _ => self.balance.requests,
        };
        let seconds = (requests / rate).min(self.balance.longest_s);
        let (result, counted) = self.servers.counting(&mix.phase(rate, 0.0, seconds))?;
        Ok(Measurement {
            system: self.system,
            result,
            counted,
            figures: match self.system {
                System::None => BTreeMap::new(),
                _ => self.servers.control_counters()?,
            },
        })
    }
}
