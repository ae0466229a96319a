//! One user of two switches (the multi-tenancy thesis, section 5.3, figures 5.2 and 5.3): where guaranteed pages are placed, and what that
//! does to who answers, how far away that is, and so to throughput: of a client that waits for its answers (a closed loop), since at one
//! offered rate everybody who is not overloaded answers as much.

use experiments::{
    Measure, Report, Run,
    params::{Distributions, Tenancy, positive},
    plot,
    rig::{Line, Policy, TenantSpec},
    table::{Table, percent, thousands},
    tenants::{Stage, distribution, rates},
};
use load::{Arrivals, Interval, Phase, PhaseResult, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

const SWITCHES: usize = 2;
/// Requests under way in a closed loop: as many as one who waits, so that distance tells and no queue does.
const OUTSTANDING: usize = 4;
const POLICIES: [Policy; 4] = [
    Policy::NearClient,
    Policy::NearStore,
    Policy::EvenSplit,
    Policy::Measured,
];

/// Each distribution under each policy, from an empty cache.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    tenancy: Tenancy,
    distributions: Distributions,
    /// Requests per second that the store takes.
    server_rate: f64,
    /// Requests per second offered.
    rate: f64,
    /// Seconds from the empty cache on.
    settle_s: f64,
    /// Seconds of the steady state.
    step_s: f64,
}

impl Measure for Policies {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        self.distributions.check()?;
        positive([
            ("server_rate", self.server_rate),
            ("rate", self.rate),
            ("settle_s", self.settle_s),
            ("step_s", self.step_s),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let line = Line {
            server_rate: Some(self.server_rate),
            ..Stage::line(run, &self.tenancy, SWITCHES)
        };
        let name = run.options.name.clone();
        let mut stage = Stage::start(run, &self.tenancy, &line, name)?;
        let mut table = Table::new(&[
            "popularity",
            "policy",
            "req/s",
            "closed loop",
            "switch 1",
            "switch 2",
            "store",
            "p50",
        ]);
        let (mut id, mut wrong) = (0, 0);
        for popularity in self.distributions.all() {
            let (mut over_time, mut spread, mut served) = (vec![], vec![], vec![]);
            let mut closed = vec![];
            for policy in POLICIES {
                id += 1;
                run.progress
                    .say(format!("{}, {}", popularity.title(), policy.name()));
                let tenant = TenantSpec {
                    policy,
                    ..stage.tenant(id)
                };
                let seen = self.measure(&mut stage, tenant, popularity)?;
                wrong += seen.cold.wrong() + seen.steady.wrong() + seen.closed.wrong();
                let rates = rates(&seen.intervals(), seen.cold.interval_ms);
                let steady = &seen.steady;
                let mut tell = |what: &str, value| {
                    let name = format!("{what}_{}_{}", policy.name(), popularity.name());
                    report.summarize(name.replace('-', "_"), value);
                };
                tell("closed_loop", seen.closed.throughput());
                tell("p50_us", seen.closed.all.p50_us);
                tell("switch_1_share", steady.share_of(1));
                tell("switch_2_share", steady.share_of(2));
                let share = |switch| percent(steady.share_of(switch));
                table.row([
                    popularity.title(),
                    policy.name().into(),
                    thousands(seen.cold.throughput()),
                    thousands(seen.closed.throughput()),
                    share(1),
                    share(2),
                    share(0),
                    format!("{:.0} us", seen.closed.all.p50_us),
                ]);
                report.rows.push(json!({
                    "popularity": popularity.name(),
                    "policy": policy.name(),
                    "throughput": seen.cold.throughput(),
                    "steady_throughput": steady.throughput(),
                    "closed_loop": seen.closed.throughput(),
                    "closed_loop_p50_us": seen.closed.all.p50_us,
                    "served_by": steady.served_by,
                    "p50_us": steady.all.p50_us,
                    "p99_us": steady.all.p99_us,
                    "wrong_values": seen.cold.wrong() + steady.wrong(),
                    "throughput_over_time": rates,
                }));
                let of_policy = (policy.name(), seen.closed.throughput());
                closed.push(of_policy);
                served.push([1, 2, 0].map(|switch| 100.0 * steady.share_of(switch)));
                spread.push((policy.name().to_string(), distribution(&rates)));
                over_time.push((policy.name().to_string(), rates));
            }
            let of = |policy: Policy| {
                let found = closed.iter().find(|(name, _)| *name == policy.name());
                found.map_or(f64::NAN, |(_, rate)| *rate)
            };
            let gain = of(Policy::NearClient) / of(Policy::NearStore);
            let name = format!("near_client_over_near_store_{}", popularity.name());
            report.summarize(name, gain);
            let title = format!("Throughput by policy, {}", popularity.title());
            let svg = plot::lines(&title, "seconds", "answers per second", &over_time);
            let file = |what: &str| format!("{}{what}-{}", run.name, popularity.name());
            report.plot(file(""), svg);
            report.plot(file("-served"), who_answers(popularity, &served));
            let svg = plot::distribution(&title, "answers per second", "part of the time", &spread);
            report.plot(file("-cdf"), svg);
        }
        report.summarize("wrong_values", wrong as f64);
        if wrong > 0 {
            report.failure = Some(format!("{wrong} wrong values"));
        }
        report.text = table.render();
        Ok(())
    }
}

impl Policies {
    fn measure(
        &self,
        stage: &mut Stage,
        tenant: TenantSpec,
        popularity: Popularity,
    ) -> anyhow::Result<Seen> {
        let tenants = [tenant];
        let mut load = stage.newcomers(&tenants)?;
        let phase = |seconds| Phase::reads(popularity, self.rate, 0.0, seconds);
        let seen = Seen {
            cold: load.run(&phase(self.settle_s))?,
            steady: load.run(&phase(self.step_s))?,
            closed: load.run(&Phase {
                arrivals: Arrivals::Closed(OUTSTANDING),
                ..phase(self.step_s)
            })?,
        };
        drop(load);
        stage.rig.remove_tenants(&tenants)?;
        Ok(seen)
    }
}

/// Draws for each policy what part of the reads switch 1, switch 2 and the store answered, in percent.
fn who_answers(popularity: Popularity, served: &[[f64; 3]]) -> String {
    let groups = POLICIES.map(|policy| policy.name().to_string());
    let by = |i: usize| served.iter().map(|shares| shares[i]).collect();
    plot::grouped_bars(&plot::GroupedBars {
        title: &format!("Who answers by policy, {}", popularity.title()),
        y: "percent of the reads",
        groups: &groups,
        series: &[("switch 1", by(0)), ("switch 2", by(1)), ("store", by(2))],
        marks: None,
    })
}

/// From the empty cache on, then a while longer, then in a closed loop.
struct Seen {
    cold: PhaseResult,
    steady: PhaseResult,
    closed: PhaseResult,
}

impl Seen {
    fn intervals(&self) -> Vec<Interval> {
        let both = self.cold.intervals.iter().chain(&self.steady.intervals);
        both.copied().collect()
    }
}
