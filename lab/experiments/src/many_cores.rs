//! What a switch of many cores answers, by how many there are and by how much is written, beside
//! what the one cache line allows that all of them write.

use anyhow::{Context, ensure};
use load::{Phase, workload::Popularity};
use plan::Hardware;
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::percent;

use crate::{
    Run, params,
    servers::{Rack, Search, Servers},
    sweep::{Figures, Point, Points},
};

/// One switch under one load.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManyCores {
    rack: Rack,
    search: Search,
    cores: u32,
    /// Part of the requests that write.
    write_ratio: f64,
}

/// Part of the keys that is cached before anything is measured; the others may be on probation, or
/// not be there.
const PRELOADED: f64 = 0.93;

/// Frames that a switch sees of a read that it answers, and of a write.
const PER_READ: f64 = 1.0;
const PER_WRITE: f64 = 2.0;

impl ManyCores {
    fn hardware(&self) -> anyhow::Result<Hardware> {
        let hardware = self.rack.hardware.clone();
        Ok(Hardware {
            cores: Some(self.cores),
            ..hardware.context("rack.hardware: what a core takes has to be said")?
        })
    }

    /// Requests per second that the cores could answer, and that the line allows.
    fn bound(&self, hardware: &Hardware) -> f64 {
        let (cores, writes) = (f64::from(self.cores), self.write_ratio);
        let frames = (1.0 - writes) * PER_READ + writes * PER_WRITE;
        let of_cores = cores * hardware.switch_rate / frames;
        let others = f64::from(self.cores - 1) / cores;
        of_cores.min(1e9 / (writes * others * hardware.line_ns))
    }
}

impl Point for ManyCores {
    const HAS_BACKEND: bool = true;
    const TOO_LARGE: Option<&'static str> = Some("a switch of more cores than most machines have");

    type Bench<'a> = Servers<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        params::positive([("line_ns", self.hardware()?.line_ns)])?;
        ensure!((1..=256).contains(&self.cores), "cores = {}: 1 to 256", self.cores);
        params::ratio("write_ratio", self.write_ratio)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Servers<'a>> {
        let hardware = self.hardware()?;
        // What one core carries is enough to learn from.
        let rate = hardware.switch_rate / 2.0;
        let rack = Rack { hardware: Some(hardware), ..self.rack.clone() };
        let mut servers = Servers::new(run, &rack, run.options.backend)?;
        servers.cache_on()?;
        servers.preload(PRELOADED, PRELOADED, rate)?;
        Ok(servers)
    }

    fn measure(
        &self,
        servers: &mut Servers<'_>,
        _: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let what = format!("{} cores, {} writes", self.cores, percent(self.write_ratio));
        let phase = |rate, warmup, seconds| Phase {
            write_ratio: self.write_ratio,
            writes: Some(Popularity::Uniform),
            ..Phase::reads(Popularity::Uniform, rate, warmup, seconds)
        };
        let bound = self.bound(&self.hardware()?);
        let point = servers.saturate(bound, &what, &self.search, phase)?;
        Ok(vec![Figures::new(json!({
            "rate": point.rate,
            "hit_ratio": point.result.hit_ratio(),
            "is_confirmed": point.is_confirmed,
            "wrong_values": point.result.wrong(),
        }))])
    }
}
