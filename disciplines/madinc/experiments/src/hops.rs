//! One user of three switches (the multi-tenancy thesis, section 5.4, figures 5.4 and 5.5): which
//! switch answers, and how long that takes. Every link has the same fixed delay, so that hops show
//! as steps.

use anyhow::ensure;
use experiments::{
    Report, Run,
    params::{Tenancy, by_name, positive},
    rig::{Policy, TenantSpec},
    sweep::{Figures, Point, Points},
    tenants::{Stage, median},
};
use load::{Phase, workload::Popularity};
use plan::{Line, topology::Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const SWITCHES: u16 = 3;
/// Of round trips; the last percent would squeeze the steps together.
const DRAWN: f64 = 0.99;

/// One distribution from an empty cache.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hops {
    tenancy: Tenancy,
    /// How requests spread.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// Requests per second that the store takes.
    server_rate: f64,
    /// Requests per second offered.
    rate: f64,
    /// Seconds from the empty cache on.
    settle_s: f64,
    /// Delay of each link in milliseconds.
    delay_ms: f64,
}

impl Point for Hops {
    /// The switches, and how many users they have had.
    type Bench<'a> = (Stage<'a>, u32);

    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        ensure!((0.0..=1000.0).contains(&self.delay_ms), "delay_ms = {}: 0 to 1000", self.delay_ms);
        positive!(self, server_rate, rate, settle_s)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<(Stage<'a>, u32)> {
        let line = Line {
            fault: Some(Fault {
                delay_ms: self.delay_ms,
                seed: run.options.seed,
                ..Fault::default()
            }),
            server_rate: Some(self.server_rate),
            ..Stage::line(run, &self.tenancy, usize::from(SWITCHES))
        };
        let name = run.options.name.clone();
        Ok((Stage::start(run, &self.tenancy, &line, name)?, 0))
    }

    fn measure(
        &self,
        (stage, id): &mut (Stage<'_>, u32),
        run: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        *id += 1;
        run.progress.say(self.popularity.title());
        let tenants = [TenantSpec { policy: Policy::EvenSplit, ..stage.tenant(*id) }];
        let mut load = stage.newcomers(&tenants)?;
        let reads = Phase::reads(self.popularity, self.rate, 0.0, self.settle_s);
        let result = load.run(&reads)?;
        drop(load);
        stage.rig.remove_tenants(&tenants)?;
        let order = (1..=SWITCHES).chain([0]);
        let shares: Vec<f64> = order.map(|switch| result.share_of(switch)).collect();
        let cdf = result.cdf.iter().filter(|(_, share)| *share <= DRAWN);
        let cdf: Vec<_> = cdf.map(|(us, share)| json!([us / 1e3, share])).collect();
        let figures = Figures::new(json!({
            "answered": result.answered,
            "throughput": result.throughput(),
            "hit_ratio": result.hit_ratio(),
            "lost": result.lost,
            "served_by": result.served_by,
            "p50_us": result.all.p50_us,
            "p99_us": result.all.p99_us,
            "wrong_values": result.wrong(),
            "round_trip_cdf_us": result.cdf,
        }));
        let figures = figures
            .aside("hop_1", shares[0])
            .aside("hop_2", shares[1])
            .aside("hop_3", shares[2])
            .aside("store", shares[3])
            .aside("shares", shares)
            .aside("round_trip_cdf_ms", cdf)
            .aside("wrong", result.wrong() as f64);
        Ok(vec![figures])
    }

    fn finish(&self, _: &Run<'_>, points: &Points, report: &mut Report) -> anyhow::Result<()> {
        let served_by = points.all().iter().filter_map(|point| point.get("served_by"));
        let steps = steps(&served_by.collect::<Vec<_>>());
        let ratio = |us: f64| (us / steps[0].1 * 1000.0).round() / 1000.0;
        let ratios = steps.iter().map(|(hops, us)| (hops.to_string(), ratio(*us).into()));
        let ratios: Map<String, Value> = ratios.collect();
        report.summary.insert("rtt_step_ratio".into(), ratios.into());
        for (hops, us) in &steps {
            report.summarize(format!("rtt_us_p50_hop_{hops}"), *us);
        }
        Ok(())
    }
}

/// For each number of hops whose switch answered anything, the median over the distributions of its
/// median round trip in microseconds.
fn steps(served_by: &[&Value]) -> Vec<(u16, f64)> {
    let of = |switch: u16| -> Vec<f64> {
        let all = served_by.iter().filter_map(|by| by.as_array()).flatten();
        let own = all.filter(|by| by["switch"] == switch && by["reads"]["count"] != 0);
        own.filter_map(|by| by["reads"]["p50_us"].as_f64()).collect()
    };
    (1..=SWITCHES)
        .map(|switch| (switch, median(&of(switch))))
        .filter(|(_, us)| us.is_finite())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_medians_of_those_that_answered() {
        let by = |switch: u16, count: u64, p50_us: f64| json!({ "switch": switch, "reads": { "count": count, "p50_us": p50_us } });
        let seen = [
            json!([by(0, 10, 9.0), by(1, 10, 2.0), by(2, 10, 4.0)]),
            json!([by(1, 10, 2.2), by(2, 10, 4.4), by(3, 0, 9.0)]),
            json!([by(1, 10, 2.1)]),
        ];
        let seen: Vec<&Value> = seen.iter().collect();
        assert_eq!(steps(&seen), [(1, 2.1), (2, 4.2)]);
        assert!(steps(&[]).is_empty());
    }
}
