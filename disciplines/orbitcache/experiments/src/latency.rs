//! Latency over throughput, of all answers and by who gave them (figures 11 and 15).

use anyhow::ensure;
use experiments::{
    Run,
    params::by_name,
    servers::{Mix, Rack, Search},
    sweep::{Figures, Point, Points},
    table::thousands,
};
use load::{PhaseResult, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::system::{Bench, Caches, System};

/// Each system at one load after the other. Times are given as the rack would have them that is not
/// slowed by `rack.factor`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyOverLoad {
    rack: Rack,
    /// Of the experiments on the same rack; nothing is searched for here.
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// How requests spread.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// Loads, as parts of what the servers carry behind OrbitCache. A system that loses more than
    /// the rack allows is measured no further.
    loads: Vec<f64>,
    /// The load at which OrbitCache and NetCache are compared, as a part of what the servers carry
    /// behind NetCache.
    equal_load: f64,
    /// Requests measured per load.
    requests: f64,
    /// Load before each measured part in seconds.
    warmup_s: f64,
}

impl Point for LatencyOverLoad {
    const HAS_BACKEND: bool = true;

    /// Each system, preloaded.
    type Bench<'a> = Vec<(System, Bench<'a>)>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.caches.check(&self.rack)?;
        for part in self.loads.iter().chain([&self.equal_load]) {
            ensure!(*part > 0.0 && *part < 2.0, "loads, equal_load: {part} is not within 0 to 2");
        }
        Ok(())
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Vec<(System, Bench<'a>)>> {
        let mix = Mix::reads(self.popularity);
        let bench = |system| {
            let mut bench = Bench::new(run, &self.rack, &self.caches, system)?;
            bench.preload(bench.bound(mix))?;
            Ok((system, bench))
        };
        System::ALL.into_iter().map(bench).collect()
    }

    fn measure(
        &self,
        benches: &mut Vec<(System, Bench<'_>)>,
        run: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let mix = Mix::reads(self.popularity);
        let bound_of = |wanted: System| {
            let bench = benches.iter().find(|(system, _)| *system == wanted);
            bench.map_or(0.0, |(_, bench)| bench.bound(mix))
        };
        let most = bound_of(System::Orbit);
        let equal = bound_of(System::Limited) * self.equal_load;
        let mut all = vec![];
        for (system, bench) in benches {
            let mut loads: Vec<(f64, bool)> =
                self.loads.iter().map(|l| (l * most, false)).collect();
            if *system != System::None {
                loads.push((equal, true));
            }
            loads.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (rate, is_equal_load) in loads {
                let at = thousands(rate);
                run.progress.say(format!("{}: {at}/s", system.name()));
                let phase = mix.phase(rate, self.warmup_s, self.requests / rate);
                let result = bench.servers.phase(&phase)?;
                all.push(self.figures(*system, is_equal_load, &result));
                if result.loss() > self.rack.loss && rate > equal {
                    break;
                }
            }
        }
        Ok(all)
    }
}

impl LatencyOverLoad {
    fn figures(&self, system: System, is_equal_load: bool, result: &PhaseResult) -> Figures {
        let factor = self.rack.factor;
        let figures = Figures::new(json!({
            "system": system.name(),
            "is_equal_load": is_equal_load,
            "offered": result.sent_rate(),
            "throughput": result.throughput(),
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            "times_divided_by": factor,
            "all": result.all,
            // Of all requests, the lost ones too.
            "waits": result.waits,
            "hit": result.hit,
            "miss": result.miss,
            "wrong_values": result.wrong(),
        }));
        let figures = [
            ("p50_us", result.waits.p50_us),
            ("p99_us", result.waits.p99_us),
            // Whoever answers knows of answers only.
            ("switch_p50_us", Some(result.hit.p50_us)),
            ("switch_p99_us", Some(result.hit.p99_us)),
            ("servers_p50_us", Some(result.miss.p50_us)),
            ("servers_p99_us", Some(result.miss.p99_us)),
        ]
        .into_iter()
        .fold(figures, |figures, (name, us)| figures.aside(name, us.map(|us| us / factor)));
        // Where nobody is answered there is no place in a plot.
        let millions = result.throughput() * factor / 1e6;
        figures.aside("millions", (result.answered > 0).then_some(millions))
    }
}
