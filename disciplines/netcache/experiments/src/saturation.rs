//! What the rack carries without and with the cache (figures 10a and 10d), beside what an ideal
//! cache of the same size would reach for the same map of keys to servers.

use experiments::{
    Run,
    params::{self, by_name},
    servers::{Rack, Saturation as Found, Search, Servers},
    sweep::{Figures, Point, Points},
    table::percent,
};
use load::{Phase, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The rack, without the cache or with it, under one load.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    rack: Rack,
    #[serde(default)]
    search: Search,
    /// What stands before the servers.
    system: System,
    /// How reads spread.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// What is written.
    #[serde(default)]
    writes: Option<Spread>,
    #[serde(default)]
    write_ratio: f64,
}

/// Nothing, or the discipline that is compared with it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum System {
    None,
    Cache,
}

/// How writes spread over keys.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Spread(#[serde(with = "by_name")] Popularity);

/// The rack, and what was found without the cache.
pub struct Bench<'a> {
    servers: Servers<'a>,
    /// What the cache has learnt, once it is there.
    learnt: Option<Popularity>,
    without: Vec<(Option<Spread>, f64, Found)>,
}

impl Saturation {
    /// Reads, and writes if there are any.
    fn phase(&self, rate: f64, warmup_s: f64, seconds: f64) -> Phase {
        Phase {
            write_ratio: self.write_ratio,
            writes: self.writes.map(|writes| writes.0),
            ..Phase::reads(self.popularity, rate, warmup_s, seconds)
        }
    }

    /// What the servers carry if this number of keys is cached and this part of the requests
    /// writes.
    fn bound(&self, servers: &Servers<'_>, items: usize, write_ratio: f64) -> f64 {
        let writes = self.writes.map_or(self.popularity, |writes| writes.0);
        servers.bound(&servers.shares(self.popularity, write_ratio, writes, items))
    }

    /// Has the cache learn how reads spread, if it has not.
    fn learn(&self, bench: &mut Bench<'_>) -> anyhow::Result<()> {
        let bound = self.bound(&bench.servers, self.rack.items, 0.0);
        let before = bench.learnt.replace(self.popularity);
        if before != Some(self.popularity) {
            if before.is_some() {
                bench.servers.cache_off()?;
            }
            bench.servers.cache_on()?;
            bench.servers.learn(self.popularity, bound * 1.1)?;
        }
        Ok(())
    }

    fn figures(&self, discipline: &str, point: &Found, bound: f64) -> Figures {
        let result = &point.result;
        let steps = point.points.iter().map(|p| json!([p.rate, p.loss]));
        let row = json!({
            "discipline": discipline,
            "rate": point.rate,
            "is_confirmed": point.is_confirmed,
            "throughput": result.throughput(),
            "loss": result.loss(),
            "bound": bound,
            "of_bound": point.rate / bound,
            "hit_ratio": result.hit_ratio(),
            "hit": result.hit,
            "miss": result.miss,
            "p50_us": result.all.p50_us,
            "p99_us": result.all.p99_us,
            "imbalance": imbalance(&point.server_load),
            "wrong_values": result.wrong_values,
            "wrong_keys": result.wrong_keys,
            "behind_ms": result.behind_ms,
            "server_load": point.server_load,
            "steps": steps.collect::<Vec<_>>(),
        });
        Figures::new(row).aside("wrong", result.wrong() as f64)
    }

    /// Of writes both are one row.
    fn both(&self, discipline: &str, none: &Found, cached: &Found) -> Figures {
        let wrong = none.result.wrong() + cached.result.wrong();
        let row = json!({
            "rate_none": none.rate,
            "rate_cached": cached.rate,
            "is_confirmed": none.is_confirmed && cached.is_confirmed,
            "throughput_none": none.result.throughput(),
            "throughput_cached": cached.result.throughput(),
            "ratio": cached.rate / none.rate,
            "hit_ratio": cached.result.hit_ratio(),
            "refused": cached.result.refused,
            "write": cached.result.write,
            "wrong_values": wrong,
            "behind_ms": cached.result.behind_ms,
        });
        let spread = match self.writes {
            Some(Spread(Popularity::Zipf(_))) => "zipf",
            _ => "uniform",
        };
        Figures::new(row)
            .aside("spread", spread)
            .aside("percent", self.write_ratio * 100.0)
            .aside("discipline", discipline)
            .aside("wrong", wrong as f64)
    }
}

impl Point for Saturation {
    const HAS_BACKEND: bool = true;
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        params::ratio("write_ratio", self.write_ratio)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        Ok(Bench {
            servers: Servers::new(run, &self.rack, run.options.backend)?,
            learnt: None,
            without: vec![],
        })
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        run: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let (ratio, writes) = (self.write_ratio, self.writes);
        let discipline = match self.system {
            System::None => "none",
            System::Cache => run.discipline,
        };
        let mut expected = match self.system {
            System::None => self.bound(&bench.servers, 0, ratio),
            System::Cache => {
                self.learn(bench)?;
                self.bound(&bench.servers, self.rack.items, ratio)
            }
        };
        let mut all = bench.without.iter();
        let without = all.position(|(of, at, _)| (*of, *at) == (writes, ratio));
        if let (Some(without), Some(Spread(Popularity::Zipf(_)))) = (without, writes)
            && ratio > 0.0
        {
            // With skewed writes the cache helps little.
            expected = bench.without[without].2.rate * 1.05;
        }
        let what = match writes {
            Some(writes) => format!("{} writes {}", writes.0.title(), percent(ratio)),
            None => self.popularity.title(),
        };
        let what = format!("{what}, {discipline}");
        let phase = |rate, warmup, seconds| self.phase(rate, warmup, seconds);
        let point = bench.servers.saturate(expected, &what, &self.search, phase)?;
        if writes.is_none() {
            return Ok(vec![self.figures(discipline, &point, expected)]);
        }
        match without {
            Some(none) => Ok(vec![self.both(discipline, &bench.without[none].2, &point)]),
            None => {
                bench.without.push((writes, ratio, point));
                Ok(vec![])
            }
        }
    }
}
