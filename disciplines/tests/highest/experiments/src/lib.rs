//! What is measured of the discipline: that stores carry reads and writes of values as before, for
//! its programs pass them on.

use experiments::{
    Definition, Kind, Paper, Run, params,
    servers::{Rack, Search, Servers},
    sweep::{Figures, Point, Points},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What stands before the servers.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum System {
    None,
    Highest,
}

/// The parameters at one point: those of `[params]`, and of each axis the value there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Writes {
    rack: Rack,
    #[serde(default)]
    search: Search,
    system: System,
    write_ratio: f64,
}

impl Point for Writes {
    type Bench<'a> = Servers<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        params::ratio("write_ratio", self.write_ratio)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Servers<'a>> {
        let mut servers = Servers::new(run, &self.rack, run.options.backend)?;
        if self.system == System::Highest {
            servers.cache_on()?;
        }
        Ok(servers)
    }

    fn measure(
        &self,
        servers: &mut Servers<'_>,
        _: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let phase = |rate, warmup, seconds| Phase {
            write_ratio: self.write_ratio,
            ..Phase::reads(Popularity::Uniform, rate, warmup, seconds)
        };
        let point = servers.saturate(f64::INFINITY, "writes", &self.search, phase)?;
        Ok(vec![Figures::new(json!({
            "rate": point.rate,
            "wrong_values": point.result.wrong(),
        }))])
    }
}

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "highest",
    experiments: &[Definition {
        toml: include_str!("../highest-writes.toml"),
        kind: &Kind::sweep::<Writes>(),
    }],
    programs: &[],
    pipeline: None,
    published: &[],
    neighbour: None,
};

#[cfg(test)]
mod tests {
    use experiments::Experiment;

    use super::PAPER;

    #[test]
    fn the_experiment_has_parameters_that_exist() {
        for definition in PAPER.experiments {
            Experiment::of(definition, PAPER.discipline).expect("a fine file");
        }
    }
}
