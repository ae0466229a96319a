//! Latency over throughput: each system at parts of what it carries itself, and at one load that
//! all of them carry.

use anyhow::ensure;
use load::{PhaseResult, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Climb, System};
use crate::{
    Run,
    params::{self, by_name, positive},
    servers::{Mix, Rack, Saturation, Search, Servers},
    sweep::{Figures, Point, Points},
    table::{percent, thousands},
};

/// One system at one load, in an open loop. Times are given as the rack would have them that is not
/// slowed by `rack.factor`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPoint {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    climb: Climb,
    /// How requests spread, reads and writes alike.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// Part of the requests that write.
    write_ratio: f64,
    /// What stands before the servers. The first is what the others are held against.
    system: System,
    /// The load, a part of what the system carries itself.
    load: f64,
    /// The load at which systems are compared, a part of what the first of them carries.
    equal_load: f64,
    /// Requests measured per load.
    requests: f64,
    /// Load before each measured part in seconds.
    warmup_s: f64,
}

/// A rack with one of the systems, and what it carries.
pub struct Bench<'a> {
    servers: Servers<'a>,
    saturation: Option<Saturation>,
}

/// The figure of the rate that a system carries.
const SATURATION: &str = "saturation";

impl Point for LatencyPoint {
    const HAS_BACKEND: bool = true;
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.climb.check()?;
        params::ratio("write_ratio", self.write_ratio)?;
        positive!(self, requests)?;
        for (name, load) in [("load", self.load), ("equal_load", self.equal_load)] {
            ensure!(load > 0.0 && load <= 2.0, "{name} = {load}: more than 0, to 2");
        }
        Ok(())
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        let servers = Servers::new(run, &self.system.rack(&self.rack), run.options.backend)?;
        Ok(Bench { servers, saturation: None })
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        run: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let Bench { servers, saturation } = bench;
        let mix = Mix { popularity: self.popularity, write_ratio: self.write_ratio };
        let mut loads = vec![];
        let found = match saturation {
            Some(found) => found,
            None => {
                let phase = |rate, warmup, seconds| mix.phase(rate, warmup, seconds);
                let name = &self.system.name;
                let found =
                    self.climb.saturate(servers, (run, &self.rack), name, &self.search, phase)?;
                let first = before.all().first().and_then(|first| first.number(SATURATION));
                loads.push((first.unwrap_or(found.rate) * self.equal_load, true));
                saturation.insert(found)
            }
        };
        loads.push((found.rate * self.load, false));
        let mut measure = |(rate, is_equal_load): (f64, bool)| {
            let name = &self.system.name;
            run.progress.say(format!("{name}: {} of what it carries", percent(self.load)));
            // A lower one would be told as the load that was asked for.
            ensure!(
                rate <= self.rack.max_rate,
                "{name}: a load of {}/s: at most max_rate = {}/s is offered",
                thousands(rate),
                thousands(self.rack.max_rate)
            );
            let result = servers.phase(&mix.phase(rate, self.warmup_s, self.requests / rate))?;
            tracing::info!("{name}: {}/s, {} lost", thousands(rate), percent(result.loss()));
            Ok(self.figures(found, is_equal_load, &result))
        };
        loads.into_iter().map(&mut measure).collect()
    }
}

impl LatencyPoint {
    fn figures(&self, found: &Saturation, is_equal_load: bool, result: &PhaseResult) -> Figures {
        let factor = self.rack.factor;
        let times = [
            ("p50_us", result.waits.p50_us),
            ("p99_us", result.waits.p99_us),
            ("p999_us", result.waits.p999_us),
            ("read_p99_us", result.read_waits.p99_us),
            ("write_p99_us", result.write_waits.p99_us),
        ];
        let figures = Figures::new(json!({
            "is_equal_load": is_equal_load,
            SATURATION: found.rate,
            "is_confirmed": found.is_confirmed,
            "offered": result.sent_rate(),
            "throughput": result.throughput(),
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            "behind_ms": result.behind_ms,
            "wrong_values": result.wrong(),
        }));
        let figures = times
            .into_iter()
            .fold(figures, |figures, (name, us)| figures.with(name, us.map(|us| us / factor)));
        // Where nobody is answered there is no place in a plot.
        let millions = |rate: f64| rate * factor / 1e6;
        let answered = (result.answered > 0).then_some(millions(result.throughput()));
        figures.aside("millions", answered).aside("saturation_millions", millions(found.rate))
    }
}
