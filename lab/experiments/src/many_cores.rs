use anyhow::{Context, ensure};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Measure, Options, Report, Run, params, plot,
    rig::Hardware,
    servers::{Rack, Saturation, Search, Servers},
    table::{Table, percent, thousands},
};

/// What a switch of many cores answers, by how many there are and by how much is written, beside what the one cache line allows that all
/// of them write.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManyCores {
    rack: Rack,
    search: Search,
    /// Numbers of cores, the least first.
    cores: Vec<u32>,
    /// Parts of the requests that write.
    write_ratios: Vec<f64>,
}

/// Part of the keys that is cached before anything is measured; the others may be on probation, or not be there.
const PRELOADED: f64 = 0.93;

/// Frames that a switch sees of a read that it answers, and of a write.
const PER_READ: f64 = 1.0;
const PER_WRITE: f64 = 2.0;

impl ManyCores {
    fn hardware(&self) -> anyhow::Result<&Hardware> {
        let hardware = self.rack.hardware.as_ref();
        hardware.context("rack.hardware: what a core takes has to be said")
    }

    /// Requests per second that the cores could answer, and that the line allows.
    fn bound(hardware: &Hardware, cores: u32, writes: f64) -> f64 {
        let frames = (1.0 - writes) * PER_READ + writes * PER_WRITE;
        let of_cores = f64::from(cores) * hardware.switch_rate / frames;
        let others = f64::from(cores - 1) / f64::from(cores);
        of_cores.min(1e9 / (writes * others * hardware.line_ns))
    }

    fn point(
        &self,
        run: &Run<'_>,
        cores: u32,
        found: &mut Vec<(f64, u32, Saturation)>,
    ) -> anyhow::Result<()> {
        let mut rack = self.rack.clone();
        let hardware = Hardware {
            cores: Some(cores),
            ..self.hardware()?.clone()
        };
        rack.hardware = Some(hardware.clone());
        let mut servers = Servers::new(run, &rack, run.options.backend)?;
        servers.cache_on()?;
        // What one core carries is enough to learn from.
        servers.preload(PRELOADED, PRELOADED, hardware.switch_rate / 2.0)?;
        for &ratio in &self.write_ratios {
            let what = format!("{cores} cores, {} writes", percent(ratio));
            let phase = |rate, warmup, seconds| Phase {
                write_ratio: ratio,
                writes: Some(Popularity::Uniform),
                ..Phase::reads(Popularity::Uniform, rate, warmup, seconds)
            };
            let bound = Self::bound(&hardware, cores, ratio);
            let point = servers.saturate(bound, &what, &self.search, phase)?;
            found.push((ratio, cores, point));
        }
        Ok(())
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, found: &[(f64, u32, Saturation)]) {
        let titles = [
            "writes",
            "cores",
            "requests/s",
            "over the fewest",
            "hits",
            "wrong",
        ];
        let mut table = Table::new(&titles);
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = vec![];
        let mut wrong = 0;
        for &ratio in &self.write_ratios {
            let mut line = vec![];
            for (_, cores, point) in found.iter().filter(|(r, ..)| *r == ratio) {
                line.push((f64::from(*cores), point.rate));
                let times = point.rate / line[0].1;
                wrong += point.result.wrong();
                table.row([
                    percent(ratio),
                    cores.to_string(),
                    thousands(point.rate),
                    format!("{times:.1}"),
                    percent(point.result.hit_ratio()),
                    point.result.wrong().to_string(),
                ]);
                report.rows.push(json!({
                    "write_ratio": ratio, "cores": cores, "rate": point.rate, "hit_ratio": point.result.hit_ratio(),
                    "is_confirmed": point.is_confirmed, "wrong_values": point.result.wrong(),
                }));
                let name = format!("speedup_{cores}_over_{}_writes_{ratio}", line[0].0);
                if line.len() > 1 {
                    report.summarize(name, times);
                }
            }
            lines.push((format!("{} writes", percent(ratio)), line));
        }
        report.count("wrong_values", wrong);
        report.text = format!(
            "{}\nA write takes its number in a line that all cores write; a hit writes none that another core does.\n",
            table.render()
        );
        let title = "Requests that a switch answers by its cores";
        report.plot(run.name, plot::lines(title, "cores", "requests/s", &lines));
    }
}

impl Measure for ManyCores {
    const TOO_LARGE: Option<&'static str> = Some("a switch of more cores than most machines have");

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        params::positive([("line_ns", self.hardware()?.line_ns)])?;
        ensure!(
            !self.cores.is_empty() && self.cores.iter().all(|n| (1..=256).contains(n)),
            "cores = {:?}: some numbers, 1 to 256",
            self.cores
        );
        let mut ratios = self.write_ratios.iter();
        ratios.try_for_each(|ratio| params::ratio("write_ratios", *ratio))
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut found = vec![];
        for &cores in &self.cores {
            self.point(run, cores, &mut found)?;
        }
        self.tell(report, run, &found);
        Ok(())
    }
}
