use serde_json::json;

use super::{
    WriteBack,
    bench::{Measured, Step},
};
use crate::{
    Report, Run, plot,
    table::{Table, micros, percent, thousands},
};

/// Rows, the table, the summary and the plots.
pub(super) fn tell(
    params: &WriteBack,
    run: &Run<'_>,
    report: &mut Report,
    without: &[Measured],
    with: &[Measured],
) {
    let mut table = Table::new(&[
        "writes",
        "write-back",
        "req/s",
        "to the store",
        "to the backend",
        "asked for",
        "lent",
        "called back",
        "at equal load: write p50",
        "p99",
        "read p50",
        "p99",
    ]);
    let mut wrong = 0;
    for (without, with) in without.iter().zip(with) {
        let part = percent(without.write_ratio);
        for (name, one) in [("no", without), ("yes", with)] {
            let Step { result, counted } = &one.saturated;
            let latency = &one.loaded.result;
            let of_writes = |share: f64| match one.write_ratio {
                0.0 => String::new(),
                _ => percent(share),
            };
            table.row([
                part.clone(),
                name.into(),
                thousands(one.rate),
                of_writes(one.saturated.reached()),
                of_writes(one.saturated.backed()),
                of_writes(one.saturated.asked()),
                counted.lent.to_string(),
                counted.of_store("loans_returned").to_string(),
                micros(latency.write.p50_us),
                micros(latency.write.p99_us),
                micros(latency.read.p50_us),
                micros(latency.read.p99_us),
            ]);
            wrong += result.wrong() + latency.wrong();
            report.rows.push(row(name, one));
        }
        let percent = without.write_ratio * 100.0;
        report.summarize(
            format!("write_{percent:.0}_over_without"),
            with.rate / without.rate,
        );
        if without.write_ratio > 0.0 {
            let p99 = |one: &Measured| one.loaded.result.write.p99_us;
            report.summarize(
                format!("write_{percent:.0}_p99_over_without"),
                p99(with) / p99(without),
            );
            report.summarize(
                format!("write_{percent:.0}_backend_writes"),
                with.saturated.backed(),
            );
        }
    }
    report.count("wrong_values", wrong);
    let lost = |one: &Measured| one.saturated.counted.of_store("loans_lost");
    report.count("loans_lost", with.iter().map(lost).sum());
    report.text = table.render();
    let groups: Vec<String> = with.iter().map(|one| percent(one.write_ratio)).collect();
    let of = |all: &[Measured], number: fn(&Measured) -> f64| all.iter().map(number).collect();
    let bars = |title: &str, y: &str, number: fn(&Measured) -> f64| {
        plot::grouped_bars(&plot::GroupedBars {
            title,
            y,
            groups: &groups,
            series: &[
                ("without write-back", of(without, number)),
                ("with", of(with, number)),
            ],
            marks: None,
        })
    };
    let title = "Saturation throughput over the part that writes";
    report.plot(run.name, bars(title, "requests per second", |m| m.rate));
    let title = format!(
        "99th percentile of writes at {} of the load that is carried without write-back",
        percent(params.load)
    );
    report.plot(
        format!("{}-latency", run.name),
        bars(&title, "microseconds", |m| m.loaded.result.write.p99_us),
    );
}

fn row(name: &str, one: &Measured) -> serde_json::Value {
    let step = |step: &Step| {
        let Step { result, counted } = step;
        json!({
            "throughput": result.throughput(),
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            "refused": result.refused,
            "write": result.write,
            "read": result.read,
            "writes_to_store": step.reached(),
            "writes_to_backend": step.backed(),
            "asked_of_switches": step.asked(),
            "lent": counted.lent,
            "store": some(&counted.store),
            "switches": some(&counted.switches),
        })
    };
    json!({
        "write_back": name,
        "write_ratio": one.write_ratio,
        "rate": one.rate,
        "load_rate": one.load_rate,
        "saturated": step(&one.saturated),
        "loaded": step(&one.loaded),
    })
}

/// What was counted at all.
fn some(counted: &serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
    let counted = counted
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0));
    counted
        .map(|(name, count)| (name.clone(), count.clone()))
        .collect()
}
