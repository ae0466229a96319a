//! One user of three switches (the multi-tenancy thesis, section 5.4, figures 5.4 and 5.5): which switch answers, and how long that takes.
//! Every link has the same fixed delay, so that hops show as steps.

use anyhow::ensure;
use experiments::{
    Measure, Report, Run,
    params::{Distributions, Tenancy, positive},
    plot,
    rig::{Line, Policy, TenantSpec},
    table::{Table, percent},
    tenants::{Stage, median},
};
use lab::topology::Fault;
use load::{Phase, PhaseResult, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const SWITCHES: u16 = 3;

/// Each distribution from an empty cache.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hops {
    tenancy: Tenancy,
    distributions: Distributions,
    /// Requests per second that the store takes.
    server_rate: f64,
    /// Requests per second offered.
    rate: f64,
    /// Seconds from the empty cache on.
    settle_s: f64,
    /// Delay of each link in milliseconds.
    delay_ms: f64,
}

impl Measure for Hops {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        self.distributions.check()?;
        ensure!(
            (0.0..=1000.0).contains(&self.delay_ms),
            "delay_ms = {}: 0 to 1000",
            self.delay_ms
        );
        positive([
            ("server_rate", self.server_rate),
            ("rate", self.rate),
            ("settle_s", self.settle_s),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
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
        let mut stage = Stage::start(run, &self.tenancy, &line, name)?;
        let mut seen = vec![];
        for (popularity, id) in self.distributions.all().into_iter().zip(1..) {
            run.progress.say(popularity.title());
            let tenants = [TenantSpec {
                policy: Policy::EvenSplit,
                ..stage.tenant(id)
            }];
            let mut load = stage.newcomers(&tenants)?;
            let reads = Phase::reads(popularity, self.rate, 0.0, self.settle_s);
            seen.push((popularity, load.run(&reads)?));
            drop(load);
            stage.rig.remove_tenants(&tenants)?;
        }
        tell(report, run, &seen);
        Ok(())
    }
}

fn tell(report: &mut Report, run: &Run<'_>, seen: &[(Popularity, PhaseResult)]) {
    let mut table = Table::new(&[
        "popularity",
        "switch 1",
        "switch 2",
        "switch 3",
        "store",
        "p50",
        "p99",
        "wrong",
    ]);
    for (popularity, result) in seen {
        let share = |switch| percent(result.share_of(switch));
        table.row([
            popularity.title(),
            share(1),
            share(2),
            share(3),
            share(0),
            format!("{:.2} ms", result.all.p50_us / 1e3),
            format!("{:.2} ms", result.all.p99_us / 1e3),
            result.wrong().to_string(),
        ]);
        for switch in 1..=SWITCHES {
            let name = format!("hop_{switch}_share_{}", popularity.name());
            report.summarize(name, result.share_of(switch));
        }
        let name = format!("store_share_{}", popularity.name());
        report.summarize(name, result.share_of(0));
        report.rows.push(json!({
            "popularity": popularity.name(),
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
    }
    let steps = steps(seen);
    let ratios: serde_json::Map<String, Value> = steps
        .iter()
        .map(|(hops, us)| {
            let ratio = us / steps[0].1;
            (hops.to_string(), ((ratio * 1000.0).round() / 1000.0).into())
        })
        .collect();
    report
        .summary
        .insert("rtt_step_ratio".into(), Value::Object(ratios));
    for (hops, us) in &steps {
        report.summarize(format!("rtt_us_p50_hop_{hops}"), *us);
    }
    let wrong: u64 = seen.iter().map(|(_, result)| result.wrong()).sum();
    report.summarize("wrong_values", wrong as f64);
    if wrong > 0 {
        report.failure = Some(format!("{wrong} wrong values"));
    }
    report.text = table.render();
    draw(report, run, seen);
}

/// For each number of hops whose switch answered anything, the median over the distributions of its median round trip in
/// microseconds.
fn steps(seen: &[(Popularity, PhaseResult)]) -> Vec<(u16, f64)> {
    let of = |switch| -> Vec<f64> {
        let all = seen.iter().flat_map(|(_, result)| &result.served_by);
        all.filter(|by| by.switch == switch && by.reads.count > 0)
            .map(|by| by.reads.p50_us)
            .collect()
    };
    (1..=SWITCHES)
        .map(|switch| (switch, median(&of(switch))))
        .filter(|(_, us)| us.is_finite())
        .collect()
}

fn draw(report: &mut Report, run: &Run<'_>, seen: &[(Popularity, PhaseResult)]) {
    let hops: Vec<String> = (1..=SWITCHES)
        .map(|n| format!("switch {n}"))
        .chain(["store".into()])
        .collect();
    let titles: Vec<String> = seen
        .iter()
        .map(|(popularity, _)| popularity.title())
        .collect();
    let by_hop = |result: &PhaseResult| -> Vec<f64> {
        let order = (1..=SWITCHES).chain([0]);
        order
            .map(|switch| result.share_of(switch) * 100.0)
            .collect()
    };
    let series: Vec<(&str, Vec<f64>)> = titles
        .iter()
        .zip(seen)
        .map(|(title, (_, result))| (title.as_str(), by_hop(result)))
        .collect();
    let bars = plot::GroupedBars {
        title: "Who answers, from an empty cache on",
        y: "percent of the reads",
        groups: &hops,
        series: &series,
        marks: None,
    };
    report.plot(run.name, plot::grouped_bars(&bars));
    let cdfs: Vec<(String, Vec<(f64, f64)>)> = titles
        .iter()
        .zip(seen)
        .map(|(title, (_, result))| {
            // The last percent would squeeze the steps together.
            let points = result.cdf.iter().filter(|(_, share)| *share <= 0.99);
            (
                title.clone(),
                points.map(|(us, share)| (us / 1e3, *share)).collect(),
            )
        })
        .collect();
    let svg = plot::distribution(
        "Round trips of reads",
        "milliseconds",
        "part of the reads",
        &cdfs,
    );
    report.plot(format!("{}-rtt", run.name), svg);
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::{Latency, ServedBy};

    #[test]
    fn steps_are_medians_of_those_that_answered() {
        let by = |switch, p50_us| ServedBy {
            switch,
            reads: Latency {
                count: 10,
                p50_us,
                ..Latency::default()
            },
        };
        let result = |served_by| {
            let result = PhaseResult {
                served_by,
                ..PhaseResult::default()
            };
            (Popularity::Uniform, result)
        };
        let seen = [
            result(vec![by(0, 9.0), by(1, 2.0), by(2, 4.0)]),
            result(vec![by(1, 2.2), by(2, 4.4)]),
            result(vec![by(1, 2.1)]),
        ];
        assert_eq!(steps(&seen), [(1, 2.1), (2, 4.2)]);
        assert!(steps(&[]).is_empty());
    }
}
