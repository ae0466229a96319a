//! One user of two switches (the multi-tenancy thesis, section 5.3, figures 5.2 and 5.3): where guaranteed pages are placed, and what that
//! does to throughput and to who answers.

use serde_json::json;

use super::measure::{distribution, rates};
use crate::{
    Experiment, Options, Params, Report,
    fabric::{CLIENT_CPU, Fabric, Generating, Plan, Policy, TenantSpec, client, fill},
    plot,
    table::{Table, percent, thousands},
};
use lab::progress::Progress;
use load::{Interval, Phase, PhaseResult, workload::Popularity};

const SWITCHES: usize = 2;
const POLICIES: [Policy; 4] = [
    Policy::NearClient,
    Policy::NearStore,
    Policy::EvenSplit,
    Policy::Measured,
];

/// Runs it: each distribution under each policy, from an empty cache.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::new(&experiment.name, options, params)?;
    let tenancy = &params.tenancy;
    let plan = Plan {
        server_rate: Some(params.server_rate),
        window_ms: tenancy.window_ms,
        control_args: params.control_args.clone(),
        switch_args: params.switch_args.clone(),
        ..Plan::line(SWITCHES, tenancy.pages, &experiment.discipline)
    };
    let mut fabric = Fabric::start(plan, options.name.clone(), progress)?;
    let mut table = Table::new(&[
        "popularity",
        "policy",
        "req/s",
        "steady req/s",
        "switch 1",
        "switch 2",
        "store",
        "p50",
    ]);
    let (mut id, mut wrong) = (0, 0);
    for popularity in params.distributions() {
        let (mut over_time, mut spread, mut served) = (vec![], vec![], vec![]);
        for policy in POLICIES {
            id += 1;
            progress.say(format!("{}, {}", popularity.title(), policy.name()));
            let tenant = TenantSpec {
                policy,
                ..fabric.tenant(id, tenancy.quota)
            };
            let seen = measure(&mut fabric, &tenant, popularity, params, options)?;
            wrong += seen.cold.wrong() + seen.steady.wrong();
            let rates = rates(&seen.intervals(), seen.cold.interval_ms);
            let steady = &seen.steady;
            let mut tell = |what: &str, value| {
                let name = format!("{what}_{}_{}", policy.name(), popularity.name());
                report.summarize(name.replace('-', "_"), value);
            };
            tell("throughput", steady.throughput());
            tell("switch_1_share", steady.share_of(1));
            tell("switch_2_share", steady.share_of(2));
            let share = |switch| percent(steady.share_of(switch));
            table.row([
                popularity.title(),
                policy.name().into(),
                thousands(seen.cold.throughput()),
                thousands(steady.throughput()),
                share(1),
                share(2),
                share(0),
                format!("{:.0} us", steady.all.p50_us),
            ]);
            report.rows.push(json!({
                "popularity": popularity.name(),
                "policy": policy.name(),
                "throughput": seen.cold.throughput(),
                "steady_throughput": steady.throughput(),
                "served_by": steady.served_by,
                "p50_us": steady.all.p50_us,
                "p99_us": steady.all.p99_us,
                "wrong_values": seen.cold.wrong() + steady.wrong(),
                "throughput_over_time": rates,
            }));
            served.push([1, 2, 0].map(|switch| 100.0 * steady.share_of(switch)));
            spread.push((policy.name().to_string(), distribution(&rates)));
            over_time.push((policy.name().to_string(), rates));
        }
        let title = format!("Throughput by policy, {}", popularity.title());
        let svg = plot::lines(&title, "seconds", "answers per second", &over_time);
        let file = |what: &str| format!("{}{what}-{}.svg", experiment.name, popularity.name());
        report.plots.push((file(""), svg));
        report
            .plots
            .push((file("-served"), who_answers(popularity, &served)));
        let svg = plot::distribution(&title, "answers per second", "part of the time", &spread);
        report.plots.push((file("-cdf"), svg));
    }
    report.summarize("wrong_values", wrong as f64);
    if wrong > 0 {
        report.failure = Some(format!("{wrong} wrong values"));
    }
    report.text = table.render();
    Ok(report)
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

/// From the empty cache on, then a while longer.
struct Seen {
    cold: PhaseResult,
    steady: PhaseResult,
}

impl Seen {
    fn intervals(&self) -> Vec<Interval> {
        let both = self.cold.intervals.iter().chain(&self.steady.intervals);
        both.copied().collect()
    }
}

fn measure(
    fabric: &mut Fabric,
    tenant: &TenantSpec,
    popularity: Popularity,
    params: &Params,
    options: &Options,
) -> anyhow::Result<Seen> {
    let tenants = std::slice::from_ref(tenant);
    fabric.create_tenants(tenants)?;
    let mut load = fabric.generator(&Generating {
        host: &client(1),
        name: "load",
        tenants,
        keys: params.keys,
        value_len: params.value_len,
        seed: options.seed,
        cpu: CLIENT_CPU,
        nice: 0,
    })?;
    fill(&mut load)?;
    let tenancy = &params.tenancy;
    let phase = |seconds| Phase::reads(popularity, tenancy.rate, 0.0, seconds);
    let seen = Seen {
        cold: load.run(&phase(tenancy.settle_s))?,
        steady: load.run(&phase(params.step_s))?,
    };
    drop(load);
    fabric.remove_tenants(tenants)?;
    Ok(seen)
}
