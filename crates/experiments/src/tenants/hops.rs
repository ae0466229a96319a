//! One user of three switches (the multi-tenancy thesis, section 5.4, figures 5.4 and 5.5): which switch answers, and how long that takes.
//! Every link has the same fixed delay, so that hops show as steps.

use serde_json::{Value, json};

use super::measure::median;
use crate::{
    Experiment, Options, Params, Report,
    fabric::{CLIENT_CPU, Fabric, Generating, Plan, Policy, TenantSpec, client, fill},
    plot,
    table::{Table, percent},
};
use lab::{progress::Progress, topology::Fault};
use load::{Phase, PhaseResult, workload::Popularity};

const SWITCHES: u16 = 3;

/// Runs it: each distribution from an empty cache.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::new(&experiment.name, options, params)?;
    let tenancy = &params.tenancy;
    let plan = Plan {
        fault: Some(Fault {
            delay_ms: tenancy.delay_ms,
            seed: options.seed,
            ..Fault::default()
        }),
        server_rate: Some(params.server_rate),
        window_ms: tenancy.window_ms,
        control_args: params.control_args.clone(),
        switch_args: params.switch_args.clone(),
        ..Plan::line(usize::from(SWITCHES), tenancy.pages, &experiment.discipline)
    };
    let mut fabric = Fabric::start(plan, options.name.clone(), progress)?;
    let mut seen = vec![];
    for (popularity, id) in params.distributions().into_iter().zip(1..) {
        progress.say(popularity.title());
        let tenant = TenantSpec {
            policy: Policy::EvenSplit,
            ..fabric.tenant(id, tenancy.quota)
        };
        let result = measure(&mut fabric, tenant, popularity, params, options)?;
        seen.push((popularity, result));
    }
    tell(&mut report, experiment, &seen);
    Ok(report)
}

fn measure(
    fabric: &mut Fabric,
    tenant: TenantSpec,
    popularity: Popularity,
    params: &Params,
    options: &Options,
) -> anyhow::Result<PhaseResult> {
    let tenants = [tenant];
    fabric.create_tenants(&tenants)?;
    let mut load = fabric.generator(&Generating {
        host: &client(1),
        name: "load",
        tenants: &tenants,
        keys: params.keys,
        value_len: params.value_len,
        seed: options.seed,
        cpu: CLIENT_CPU,
        nice: 0,
    })?;
    fill(&mut load)?;
    let tenancy = &params.tenancy;
    let result = load.run(&Phase::reads(
        popularity,
        tenancy.rate,
        0.0,
        tenancy.settle_s,
    ))?;
    drop(load);
    fabric.remove_tenants(&tenants)?;
    Ok(result)
}

fn tell(report: &mut Report, experiment: &Experiment, seen: &[(Popularity, PhaseResult)]) {
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
    draw(report, experiment, seen);
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

fn draw(report: &mut Report, experiment: &Experiment, seen: &[(Popularity, PhaseResult)]) {
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
    let name = &experiment.name;
    report
        .plots
        .push((format!("{name}.svg"), plot::grouped_bars(&bars)));
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
    report.plots.push((format!("{name}-rtt.svg"), svg));
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
