//! A sweep of a made-up system: what is measured where, and what is told of it.

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::{Definition, Experiment, Kind};

/// Some system at some load.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    system: String,
    load: f64,
    size: Size,
    #[serde(default)]
    keys: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    name: String,
    factor: f64,
}

impl Point for Example {
    /// What it was built for, and how often it was measured.
    type Bench<'a> = (String, u32);

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.load > 0.0, "load = {}: must be positive", self.load);
        Ok(())
    }

    fn build<'a>(&self, _: &Run<'a>) -> anyhow::Result<(String, u32)> {
        Ok((self.system.clone(), 0))
    }

    fn measure(
        &self,
        (built_for, times): &mut (String, u32),
        _: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        *times += 1;
        let rate = self.load * self.size.factor * if self.system == "none" { 1.0 } else { 2.0 };
        let figures = Figures::new(json!({ "rate": rate, "times": times, "built_for": built_for }));
        let figures = figures.aside("before", before.all().len()).aside("wrong", 1);
        // Over itself it is no number.
        let figures = figures.aside("zero", self.load - 1.0);
        let of_others = (self.system != "none").then_some(self.load);
        let figures = figures.aside("of_others", of_others);
        Ok((self.load < 100.0).then_some(figures).into_iter().collect())
    }
}

const PARAMS: &str = r#"
[params.axes]
system = ["none", "other"]
load = [1.0, 2.0]
size = [{ name = "S", factor = 10.0 }, { name = "L", factor = 30.0 }]
"#;

const SHAPE: &str = r#"
[sweep]
over = ["system", "size", "load"]
built_for = ["system"]
told_by = ["load", "size", "system"]
table = [["load", "load", ".1"], ["system", "system"], ["rate", "rate", "whole"], ["", "nothing"]]
note = "Below."
[sweep.rows]
size = false
percent = ["load", "hundredths"]
[sweep.summary]
"gain_{load:hundredths}_{size}" = { of = "rate", at = { system = "other" }, over = { system = "none" } }
"up_{load}_from_{over.load}" = { of = "rate", at = { system = "none", size = "S" }, over = { load = "@first" } }
"best_{size}" = { of = "rate", at = { load = 1 }, not_at = { system = "none" }, over_best = "system" }
twice = { of = "rate", at = { system = "other" }, over = { system = "none", load = "@same", size = "@last" }, fold = "least" }
least = { of = "rate", fold = "least" }
spread = { of = "rate", fold = "least-over-most" }
most_at = { of = "rate", fold = { of-most = "load" } }
near_5 = { of = "rate", at = { load = 2 }, fold = { first-near-most = { of = "system", within = 0.05 } } }
near_50 = { of = "rate", at = { load = 2, size = "L" }, fold = { first-near-most = { of = "system", within = 0.5 } } }
wrong = { of = "wrong", fold = "sum" }
rates = { of = "rate", fold = "sum" }
none = { of = "nothing", fold = "sum" }
"said_{system}" = { of = "of_others", at = { load = 1, size = "S" }, none = "never" }
"said_over_{system}" = { of = "of_others", at = { load = 1, size = "S" }, not_at = { system = "none" }, over = { system = "none" }, none = "never" }
"left_out_{system}" = { of = "of_others", at = { load = 1, size = "S" } }
[[sweep.plots]]
file = "-{size}"
title = "Rates, {size}"
y = "a second"
shape = "bars"
over = "load"
each = "size"
series = [{ of = "rate", by = "system" }]
"#;

fn experiment(params: &str, shape: &str) -> anyhow::Result<Experiment> {
    const KIND: Kind = Kind::sweep::<Example>();
    let head = "name = \"x\"\nkind = \"sweep\"\ntitle = \"t\"\n";
    let toml = format!("{head}{params}{shape}").leak();
    Experiment::of(&Definition { toml, kind: &KIND }, "d")
}

fn report(params: &str, shape: &str) -> Report {
    let options = Options { quick: false, ..Options::simulated(7, &[]) };
    experiment(params, shape).unwrap().run(&options).unwrap()
}

#[test]
fn each_place_is_measured_once_and_benches_are_shared() {
    let shape = SHAPE.replace("told_by", "# told_by");
    let report = report(PARAMS, &shape);
    let seen: Vec<_> = report
        .rows
        .iter()
        .map(|row| (&row["system"], &row["load"], &row["times"], &row["built_for"]))
        .map(|(system, load, times, of)| {
            (system.clone(), load.as_f64(), times.as_u64(), of.clone())
        })
        .collect();
    let expected = [("none", 1.0), ("none", 2.0)].repeat(2);
    let expected = expected.iter().chain(&[("other", 1.0), ("other", 2.0)]);
    for ((system, load), seen) in expected.zip(&seen) {
        assert_eq!((&seen.0, seen.1, &seen.3), (&json!(system), Some(*load), &json!(system)));
    }
    assert_eq!(seen.len(), 8);
    assert_eq!((seen[3].2, seen[4].2), (Some(4), Some(1)));
}

#[test]
fn it_is_told_as_the_file_says() {
    let report = report(PARAMS, SHAPE);
    assert_eq!(report.params["axes"]["load"], json!([1.0, 2.0]));
    assert_eq!(report.params["keys"], 0);
    let first = json!({ "system": "none", "load": 1.0, "percent": 100.0, "rate": 10.0, "times": 1, "built_for": "none" });
    assert_eq!(report.rows[0], first);
    assert_eq!(report.rows[1]["system"], "other");
    assert_eq!(report.rows[2]["rate"], 30.0);
    let expected = json!({
        "gain_100_S": 2.0, "gain_100_L": 2.0, "gain_200_S": 2.0, "gain_200_L": 2.0,
        "up_2_from_1": 2.0,
        "best_S": 2.0, "best_L": 2.0,
        "twice": 0.667, "least": 10.0, "spread": 0.083, "most_at": 2.0, "near_5": "other", "near_50": "none", "wrong": 8, "rates": 360.0,
        "said_none": "never", "said_other": 1.0, "said_over_other": "never", "left_out_other": 1.0,
    });
    assert_eq!(serde_json::Value::Object(report.summary), expected);
    assert!(report.text.contains("load  system  rate"), "{}", report.text);
    assert!(report.text.ends_with("\nBelow.\n"), "{}", report.text);
    let names: Vec<&str> = report.plots.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-S.svg", "x-L.svg"]);
    assert!(report.plots[1].1.contains("Rates, L"));
}

#[test]
fn of_an_axis_the_best_may_be_told_only() {
    let best = "best = { along = \"size\", by = \"rate\" }\ntable =";
    let report = report(PARAMS, &SHAPE.replace("table =", best));
    let rates: Vec<f64> = report.rows.iter().filter_map(|row| row["rate"].as_f64()).collect();
    assert_eq!(rates, [30.0, 60.0, 60.0, 120.0]);
}

#[test]
fn a_point_of_which_there_is_nothing_to_tell_is_left_out() {
    let report = report(&PARAMS.replace("2.0]", "200.0]"), SHAPE);
    assert_eq!(report.rows.len(), 4);
}

#[test]
fn a_fold_leaves_no_measured_point_out() {
    let of = |sum: &str| {
        let (head, rest) = SHAPE.split_once("[sweep.summary]").unwrap();
        let plots = &rest[rest.find("[[sweep.plots]]").unwrap()..];
        let shape = format!("{head}[sweep.summary]\nsum = {{ {sum} }}\n{plots}");
        let report = report(PARAMS, &shape);
        (report.summary.get("sum").cloned(), report.failure)
    };
    // (the sum, what is told, whether the run fails)
    for (sum, told, fails) in [
        (r#"of = "of_others", fold = "most""#, None, true),
        (r#"of = "of_others", fold = "most", none = "never""#, Some(json!("never")), false),
        (
            r#"of = "of_others", fold = "most", not_at = { system = "none" }"#,
            Some(json!(2.0)),
            false,
        ),
        (
            r#"of = "of_others", at = { system = "other" }, over = { system = "none" }, fold = "most""#,
            None,
            false,
        ),
        (r#"of = "of_others", at = { size = "S", load = 1 }, over_best = "system""#, None, false),
        (r#"of = "rate", over = { load = "@first" }, fold = "most""#, Some(json!(2.0)), false),
        (
            r#"of = "zero", at = { size = "L" }, over = { size = "S" }, fold = "least""#,
            Some(json!(null)),
            false,
        ),
        (r#"of = "rate""#, Some(json!(120.0)), true),
        (
            r#"of = "rate", at = { system = "other", size = "L", load = 2 }"#,
            Some(json!(120.0)),
            false,
        ),
    ] {
        let (found, failure) = of(sum);
        assert_eq!((found, failure.is_some()), (told, fails), "{sum}: {failure:?}");
    }
}

#[test]
fn errors_name_the_parameter() {
    for (from, to, expected) in [
        ("[params.axes]", "[params]\nkees = 5\n[params.axes]", "kees"),
        ("load = [", "loads = [", "axes.loads: no axis"),
        ("load = [1.0, 2.0]", "", "axes.load: a list of values is expected"),
        ("load = [1.0, 2.0]", "load = []", "axes.load: a list"),
        ("[1.0, 2.0]", "[1.0, 0.0]", "load = 0"),
        ("[1.0, 2.0]", "[1.0, \"a\"]", "load = \"a\""),
        ("[params.axes]", "[params]\nload = 1.0\n[params.axes]", "axes.load"),
        ("factor = 30.0", "factor = 30.0, size = 1", "size"),
    ] {
        assert!(PARAMS.contains(from), "{from}");
        let wrong = experiment(&PARAMS.replace(from, to), SHAPE);
        let error = format!("{:#}", wrong.map(|_| ()).unwrap_err());
        assert!(error.contains(expected), "{error:?} should name {expected:?}");
    }
    for (from, to, expected) in [
        ("built_for = [\"system\"]", "built_for = [\"load\"]", "sweep.built_for"),
        ("told_by = [\"load\"", "told_by = [\"loud\"", "loud"),
    ] {
        let wrong = experiment(PARAMS, &SHAPE.replace(from, to));
        let error = format!("{:#}", wrong.map(|_| ()).unwrap_err());
        assert!(error.contains(expected), "{error:?} should name {expected:?}");
    }
    let mut experiment = experiment(PARAMS, SHAPE).unwrap();
    experiment.set("axes.load", "[3.0]").unwrap();
    let error = experiment.set("axes.kees", "[3.0]").unwrap_err();
    assert!(format!("{error:#}").contains("axes.kees"), "{error:#}");
}
