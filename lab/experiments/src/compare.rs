//! One experiment in both worlds: what they say, side by side.
//!
//! Judged is what does not depend on how fast a machine is: throughput (the servers' rates are
//! given), the part that switches answered, and how unevenly servers are loaded. The rest is
//! printed only: times in microseconds are a machine's own, and which of several switches answers
//! depends on when their windows began, from run to run of one world too.

use serde::Serialize;
use serde_json::Value;
use text::table::{Table, percent};

use crate::Report;

/// What is judged, by what a figure's name has in it. These fields of rows are compared beside
/// the summary.
const JUDGED: &[&str] = &["throughput", "hit_ratio", "imbalance"];

/// One number of an experiment, as each world has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name in the summary, or its row and name.
    pub name: String,
    /// In the kernel's world.
    pub kernel: f64,
    /// In the simulator.
    pub sim: f64,
    /// How far they are apart, as a part of the larger one.
    pub relative_difference: f64,
    /// Whether it counts.
    pub is_judged: bool,
}

/// Both worlds, figure by figure.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The experiment's name.
    pub experiment: String,
    /// The seed of both.
    pub seed: u64,
    /// The parameters of both.
    pub params: Value,
    /// The largest difference of those judged.
    pub worst_relative_difference: f64,
    /// Whose it is.
    pub worst: Option<String>,
    /// All of them: the summary's, then those of rows.
    pub figures: Vec<Figure>,
}

impl Comparison {
    /// Compares what an experiment said in the kernel's world with what it said in the simulator.
    pub fn of(kernel: &Report, sim: &Report) -> Comparison {
        let (ours, theirs) = (numbers(kernel), numbers(sim));
        let theirs = |name: &str| theirs.iter().find(|(other, _)| other == name);
        let figures: Vec<Figure> = ours
            .into_iter()
            .filter_map(|(name, kernel)| {
                let (_, sim) = *theirs(&name)?;
                Some(Figure {
                    is_judged: JUDGED.iter().any(|part| name.contains(part)),
                    relative_difference: relative_difference(kernel, sim),
                    name,
                    kernel,
                    sim,
                })
            })
            .collect();
        let judged = figures.iter().filter(|figure| figure.is_judged);
        let worst = judged.max_by(|a, b| a.relative_difference.total_cmp(&b.relative_difference));
        Comparison {
            experiment: kernel.experiment.clone(),
            seed: kernel.seed,
            params: kernel.params.clone(),
            worst_relative_difference: worst.map_or(0.0, |figure| figure.relative_difference),
            worst: worst.map(|figure| figure.name.clone()),
            figures,
        }
    }

    /// A table for the terminal.
    pub fn render(&self) -> String {
        let mut table = Table::new(&["", "kernel", "sim", "difference", "judged"]);
        for figure in &self.figures {
            table.row([
                figure.name.clone(),
                format!("{:.3}", figure.kernel),
                format!("{:.3}", figure.sim),
                percent(figure.relative_difference),
                if figure.is_judged { "yes" } else { "" }.into(),
            ]);
        }
        table.render()
    }
}

/// Every number of a report's summary, and those of its rows that are compared, by name.
fn numbers(report: &Report) -> Vec<(String, f64)> {
    let mut all = vec![];
    for (name, value) in &report.summary {
        collect(name.clone(), value, &mut all);
    }
    for row in &report.rows {
        let Value::Object(fields) = row else { continue };
        let texts = fields.values().filter_map(Value::as_str);
        let label = texts.collect::<Vec<_>>().join(" ");
        for name in JUDGED {
            if let Some(value) = fields.get(*name) {
                collect(format!("{label} {name}"), value, &mut all);
            }
        }
    }
    all
}

fn collect(name: String, value: &Value, all: &mut Vec<(String, f64)>) {
    if let Value::Object(inner) = value {
        for (key, value) in inner {
            collect(format!("{name}.{key}"), value, all);
        }
    }
    all.extend(value.as_f64().map(|number| (name, number)));
}

/// How far two numbers are apart, as a part of the larger one.
fn relative_difference(a: f64, b: f64) -> f64 {
    let larger = a.abs().max(b.abs());
    if larger == 0.0 {
        return 0.0;
    }
    (a - b).abs() / larger
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Options, World};

    fn report(world: World, summary: Value, rows: Vec<Value>) -> Report {
        let Value::Object(summary) = summary else { panic!("a summary is an object") };
        let options = Options { world, ..Options::simulated(1, &[]) };
        let mut report = Report::new("some", &options, Value::Null);
        (report.rows, report.summary) = (rows, summary);
        report
    }

    #[test]
    fn differences_by_hand() {
        for (a, b, expected) in [
            (0.0, 0.0, 0.0),
            (100.0, 95.0, 0.05),
            (95.0, 100.0, 0.05),
            (0.0, 3.0, 1.0),
            (-1.0, 1.0, 2.0),
        ] {
            assert!((relative_difference(a, b) - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn the_worst_is_among_those_judged() {
        let row = |throughput| json!({"discipline": "x", "throughput": throughput, "p50_us": 3.0});
        let one = report(
            World::Kernel,
            json!({"hit_ratio": 0.5, "rtt_us_p50": 80.0, "steps": {"1": 0.4}, "checker": "text"}),
            vec![row(1000.0)],
        );
        let other = report(
            World::Sim,
            json!({"hit_ratio": 0.49, "rtt_us_p50": 20.0, "steps": {"1": 0.4}, "only_here": 1.0}),
            vec![row(900.0)],
        );
        let compared = Comparison::of(&one, &other);
        let names: Vec<&str> = compared.figures.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["hit_ratio", "rtt_us_p50", "steps.1", "x throughput"]);
        assert_eq!(compared.worst.as_deref(), Some("x throughput"));
        assert!((compared.worst_relative_difference - 0.1).abs() < 1e-12);
        let time = &compared.figures[1];
        assert_eq!((time.is_judged, time.relative_difference), (false, 0.75));
        assert!(compared.render().contains("75.0 %"));
    }
}
