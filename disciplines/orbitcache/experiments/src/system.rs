//! What is compared: servers alone, NetCache with the paper's limits, OrbitCache.

use std::collections::BTreeMap;

use anyhow::ensure;
use experiments::{
    Run, World,
    servers::{Counts, Mix, Rack, Saturation, Search, Servers},
};
use load::{
    PhaseResult,
    workload::{KeySpace, Permutation},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use wire::{Lengths, Secret};

/// What stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Nothing.
    #[serde(rename = "none")]
    None,
    /// NetCache, which holds what fits it.
    #[serde(rename = "netcache-limited")]
    Limited,
    /// OrbitCache.
    #[serde(rename = "orbitcache")]
    Orbit,
    /// OrbitCache as its paper has it: as many values as fill the loop, which go round for ever.
    #[serde(rename = "orbitcache-paper")]
    Paper,
}

/// Values that the paper's loop has room for.
const PAPER_ITEMS: usize = 128;

impl System {
    /// Those that most experiments compare, in order.
    pub const ALL: [System; 3] = [System::None, System::Limited, System::Orbit];

    /// As rows and plots have it.
    pub fn name(self) -> &'static str {
        match self {
            System::None => "none",
            System::Limited => "netcache-limited",
            System::Orbit => "orbitcache",
            System::Paper => "orbitcache-paper",
        }
    }

    /// What it holds.
    fn caches(self, caches: &Caches) -> Caches {
        match self {
            System::Paper => caches.circulating(PAPER_ITEMS.min(caches.orbit_items)),
            System::None | System::Limited | System::Orbit => caches.clone(),
        }
    }
}

/// What the caches hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caches {
    /// Most items of OrbitCache. Of those few go round at a time, if values park.
    pub orbit_items: usize,
    /// Whether values go round for ever, as in the paper: in the simulator only, since a core of
    /// this machine would have nothing else to do.
    pub for_ever: bool,
    /// The hottest keys of which NetCache holds those that fit.
    pub limited_items: usize,
    /// Longest value that fits it, in bytes.
    pub limited_value_len: usize,
    /// Which of the hottest keys, counted from 1, is the first whose value does not fit it: the
    /// other system's throughput hangs on it. 0: as the seed has it.
    pub first_unfit: usize,
}

impl Default for Caches {
    fn default() -> Caches {
        Caches {
            orbit_items: 512,
            for_ever: false,
            limited_items: 10_000,
            limited_value_len: 64,
            first_unfit: 2,
        }
    }
}

/// Longest key that fits NetCache as its paper has it, in bytes.
const LIMITED_KEY_LEN: u32 = 16;
/// Most other choices of lengths that are looked at.
const SALTS: u64 = 100_000;

impl Caches {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self, rack: &Rack) -> anyhow::Result<()> {
        for (name, items) in
            [("orbit_items", self.orbit_items), ("limited_items", self.limited_items)]
        {
            ensure!(
                (1..=rack.keys).contains(&items),
                "{name} = {items}: 1 to as many as there are keys ({})",
                rack.keys
            );
        }
        Ok(())
    }

    /// So many items of OrbitCache, which go round for ever.
    pub fn circulating(&self, orbit_items: usize) -> Caches {
        Caches { orbit_items, for_ever: true, ..self.clone() }
    }

    fn fits(&self, len: usize) -> bool {
        len <= self.limited_value_len
    }

    /// The lengths, in a choice for each key where the hottest that does not fit is the one that
    /// was asked for.
    fn chosen(&self, rack: &Rack, seed: u64) -> anyhow::Result<Lengths> {
        let lengths = &rack.value_len;
        let Lengths::Mix { mix, .. } = lengths else { return Ok(lengths.clone()) };
        let fit = mix.iter().filter(|(len, _)| self.fits(*len)).count();
        if self.first_unfit == 0 || fit == 0 || fit == mix.len() {
            return Ok(lengths.clone());
        }
        let hot = Hot::new(rack, seed, self.first_unfit);
        let is_right = |salt: &u64| {
            let lengths = lengths.salted(*salt);
            let mut lens = hot.hashes.iter().map(|hash| lengths.of(*hash));
            lens.position(|len| !self.fits(len)) == Some(self.first_unfit - 1)
        };
        let salt = (0..SALTS).find(is_right);
        ensure!(
            salt.is_some(),
            "first_unfit = {}: of {SALTS} choices of lengths none has it",
            self.first_unfit
        );
        Ok(lengths.salted(salt.unwrap_or(0)))
    }
}

/// The hottest keys' hashes, the hottest first.
struct Hot {
    hashes: Vec<wire::KeyHash>,
}

impl Hot {
    fn new(rack: &Rack, seed: u64, count: usize) -> Hot {
        let keys = KeySpace::new(rack.keys, wire::TENANT_OPEN, &Secret::NONE.into());
        let by_rank = Permutation::new(rack.keys, seed);
        let hash = |rank: u32| keys.get(by_rank.key(rank)).hash;
        Hot { hashes: (0..count.min(rack.keys) as u32).map(hash).collect() }
    }
}

/// Reads of a key in a window by which it is hot: a few more than the discipline asks for.
const NOTICED: f64 = 6.0;

/// A rack with one of the systems before its servers.
pub struct Bench<'a> {
    /// The rack.
    pub servers: Servers<'a>,
    system: System,
    /// Whether the key of each of the hottest ranks is one that the system may hold.
    held: Vec<bool>,
    /// Reads per second by which every key that is to be held is noticed, as far as the servers
    /// carry them without a cache.
    noticed_rate: f64,
    is_on: bool,
}

impl<'a> Bench<'a> {
    /// Builds it; nothing is cached yet.
    ///
    /// # Errors
    /// As [`Servers::new`].
    pub fn new(
        run: &Run<'a>,
        rack: &Rack,
        caches: &Caches,
        system: System,
    ) -> anyhow::Result<Bench<'a>> {
        let seed = run.options.seed;
        let (mut rack, caches) = (rack.clone(), system.caches(caches));
        rack.value_len = caches.chosen(&rack, seed)?;
        let held = match system {
            System::None => vec![],
            System::Orbit | System::Paper => vec![true; caches.orbit_items],
            System::Limited => {
                let hot = Hot::new(&rack, seed, caches.limited_items);
                let fits = |hash| caches.fits(rack.value_len.of(hash));
                hot.hashes.into_iter().map(fits).collect()
            }
        };
        rack.items = held.len().max(1);
        let mut settings = match system {
            System::None => vec![],
            System::Limited => vec![
                ("netcache.longest_key", LIMITED_KEY_LEN),
                ("netcache.longest_value", caches.limited_value_len as u32),
            ],
            System::Orbit | System::Paper => ["orbitcache.items_min", "orbitcache.items_max"]
                .map(|name| (name, caches.orbit_items as u32))
                .into(),
        };
        let circulates = matches!(system, System::Orbit | System::Paper) && caches.for_ever;
        if circulates && run.options.world == World::Sim {
            settings.push(("orbitcache.park_us", 0));
        }
        let settings = settings.into_iter();
        rack.settings.extend(settings.map(|(name, number)| (name.into(), number)));
        if system == System::Limited {
            rack.discipline = Some("netcache".into());
        }
        let window_s = f64::from(rack.window_ms.unwrap_or(1000)) / 1000.0;
        let half = f64::from(rack.servers) * rack.server_rate / rack.factor / 2.0;
        Ok(Bench {
            noticed_rate: (NOTICED * held.len() as f64 / window_s).min(half),
            servers: Servers::new(run, &rack, run.options.backend)?,
            system,
            held,
            is_on: false,
        })
    }

    /// What the servers carry if nothing else is in the way.
    pub fn bound(&self, mix: Mix) -> f64 {
        let Mix { popularity, write_ratio } = mix;
        let is_held = |rank: usize| self.held.get(rank).copied().unwrap_or(false);
        let shares = self.servers.shares_unless(popularity, write_ratio, popularity, is_held);
        self.servers.bound(&shares)
    }

    /// Has the system hold the hottest keys, and no others. `bound` is what the servers carry
    /// behind it.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn preload(&mut self, bound: f64) -> anyhow::Result<()> {
        if self.system == System::None {
            return Ok(());
        }
        if std::mem::replace(&mut self.is_on, true) {
            self.servers.cache_off()?;
        }
        self.servers.cache_on()?;
        let held = self.held.iter().filter(|held| **held).count();
        let part = held as f64 / self.held.len() as f64;
        // Few keys are on few servers, which must not drop what fetches them.
        // Some share a bucket that is full; and the other is measured with what it has learnt in
        // its time.
        let (load, enough) = match self.system {
            System::Orbit | System::Paper => (0.1, 0.9),
            _ => (0.3, 0.0),
        };
        let rate = (bound * load).max(self.noticed_rate);
        self.servers.preload(part, enough, rate)?;
        Ok(())
    }

    /// Preloads, and finds the point of saturation.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate(
        &mut self,
        what: &str,
        search: &Search,
        mix: Mix,
    ) -> anyhow::Result<Measurement> {
        let bound = self.bound(mix);
        self.preload(bound)?;
        let what = format!("{what}, {}", self.system.name());
        let phase = |rate, warmup, seconds| mix.phase(rate, warmup, seconds);
        let point = self.servers.saturate(bound, &what, search, phase)?;
        Ok(Measurement { system: self.system, bound, point })
    }
}

/// What was measured at the point of saturation.
pub struct Measurement {
    /// Of what.
    pub system: System,
    /// What the servers would carry.
    pub bound: f64,
    /// The point.
    pub point: Saturation,
}

impl Measurement {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.point.rate
    }

    /// The load of the least loaded server over that of the most loaded one.
    pub fn balancing_efficiency(&self) -> f64 {
        balancing_efficiency(&self.point.server_load)
    }

    /// Part of the requests for cached items that went to servers all the same.
    pub fn overflow_ratio(&self) -> f64 {
        overflow_ratio(&self.point.counted)
    }

    /// Answers of the switch per second.
    pub fn by_switch(&self) -> f64 {
        self.result().cached as f64 / self.result().seconds
    }

    /// Everything, for a report's row; times are those of the rack as it was simulated.
    pub fn row(&self) -> Map<String, Value> {
        let (result, counted) = (self.result(), &self.point.counted);
        let points = self.point.points.iter();
        let rounds = counted.rounds.map(|rounds| {
            json!({
                "packets_per_s": rounds.packets as f64 / counted.seconds,
                "busy": rounds.busy_ns / 1e9 / counted.seconds,
                // Since the switch began, not in the measured time as the others.
                "most_waiting_ever": rounds.most_waiting,
                "overflowed": rounds.overflowed,
            })
        });
        let row = json!({
            "system": self.system.name(),
            "rate": self.rate(),
            "is_confirmed": self.point.is_confirmed,
            "throughput": result.throughput(),
            "by_switch": self.by_switch(),
            "bound": self.bound,
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            "overflow_ratio": self.overflow_ratio(),
            "all": result.all,
            "hit": result.hit,
            "miss": result.miss,
            "balancing_efficiency": self.balancing_efficiency(),
            "server_load": self.point.server_load,
            "rounds": rounds,
            "switch": counted.switch.iter().filter(|(_, n)| **n > 0.0).collect::<BTreeMap<_, _>>(),
            "steps": points.map(|p| json!([p.rate, p.loss])).collect::<Vec<_>>(),
            "wrong_values": result.wrong(),
        });
        match row {
            Value::Object(row) => row,
            _ => Map::new(),
        }
    }

    /// The load's view of it.
    pub fn result(&self) -> &PhaseResult {
        &self.point.result
    }
}

/// The load of the least loaded server over that of the most loaded one.
fn balancing_efficiency(loads: &[f64]) -> f64 {
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(0.0, f64::max);
    if most > 0.0 { least / most } else { 1.0 }
}

/// Part of the requests for cached items that went to servers all the same.
pub fn overflow_ratio(counted: &Counts) -> f64 {
    let here = ["hit", "hit_round", "wake", "wake_parts"].map(|name| counted.switch(name));
    let overflows = counted.switch("wait_full");
    overflows / (overflows + here.iter().sum::<f64>()).max(1.0)
}
