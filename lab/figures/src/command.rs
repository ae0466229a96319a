//! Commands that documents name, and running them.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// The worlds that an experiment runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Namespaces and processes of this machine.
    Kernel,
    /// The simulator.
    Sim,
}

impl World {
    /// The other one.
    pub fn other(self) -> World {
        match self {
            World::Kernel => World::Sim,
            World::Sim => World::Kernel,
        }
    }
}

/// The program that measures, as documents and the release build have it.
const PROGRAM: &str = "shortstop-lab";

/// The option that says with which seed, and the seed where nobody says.
const SEED: &str = "--seed";
const FIRST_SEED: u64 = 1;

/// A command as a document has it in a code span, without the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Command {
    words: Vec<String>,
    /// The seed of one run of several; none: as the words have it.
    seed: Option<u64>,
}

impl Command {
    /// Reads a code span. `None`: it is no command that measures.
    pub fn parse(span: &str) -> Option<Command> {
        let span = match span.trim() {
            "make demo" => "shortstop-lab run demo",
            "make bench" => "shortstop-lab bench",
            other => other,
        };
        let words: Vec<String> = span.split_whitespace().map(String::from).collect();
        let words = words.strip_prefix(&[PROGRAM.to_string()])?.to_vec();
        let is_run = matches!(&*words, [run, _, ..] if run == "run");
        let is_bench = words.first().is_some_and(|word| word == "bench");
        (is_run || is_bench).then_some(Command { words, seed: None })
    }

    /// As a user types it.
    pub fn text(&self) -> String {
        let seed = self.seed.map(|seed| format!(" {SEED} {seed}")).unwrap_or_default();
        format!("{PROGRAM} {}{seed}", self.words.join(" "))
    }

    /// The same as documents have it, and the seed that one run of it has.
    pub fn split_seed(&self) -> (Command, u64) {
        (Command { seed: None, ..self.clone() }, self.seed.unwrap_or(FIRST_SEED))
    }

    /// Its run with another seed.
    pub fn with_seed(&self, seed: u64) -> Command {
        Command { seed: (seed != FIRST_SEED).then_some(seed), ..self.clone() }
    }

    /// Whether it can be run with several seeds in the time that there is: it is short, nothing but
    /// the seed decides what comes of it, and it names none itself.
    pub fn takes_seeds(&self) -> bool {
        self.is_quick() && self.world() == World::Sim && self.option(SEED).is_none()
    }

    /// All that a user types after the program, or after `run`.
    pub fn name(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        words.strip_prefix(&["run"]).unwrap_or(&words).join(" ")
    }

    /// The experiment that it runs; none: it is the bench.
    pub fn experiment(&self) -> Option<&str> {
        let name = self.words.get(1).filter(|_| self.words[0] == "run");
        name.map(String::as_str)
    }

    /// The world that it names, and the kernel's if it names none.
    pub fn world(&self) -> World {
        match self.option("--world") {
            Some("sim") => World::Sim,
            _ => World::Kernel,
        }
    }

    /// The discipline that it names in the place of the experiment's.
    pub fn discipline(&self) -> Option<&str> {
        self.option("--discipline")
    }

    fn option(&self, name: &str) -> Option<&str> {
        let mut words = self.words.iter().skip_while(|word| *word != name);
        words.nth(1).map(String::as_str)
    }

    /// A file name of its own.
    pub fn file(&self) -> String {
        let mut name = String::new();
        for word in self.words.iter().filter(|w| *w != "run") {
            let plain = word.chars().map(|c| match c {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' => c,
                _ => '-',
            });
            let plain: String = plain.collect();
            let sep = if name.is_empty() { "" } else { "-" };
            let _ = write!(name, "{sep}{}", plain.trim_matches('-'));
        }
        name + ".json"
    }

    /// Whether it is the short version.
    pub fn is_quick(&self) -> bool {
        self.words.iter().any(|word| word == "--quick")
    }

    /// Where what it measures and draws is left. A folder of its own: its short version draws
    /// pictures of the same names.
    pub fn leavings(&self, project: &Path) -> PathBuf {
        let folder = project.join("target/figures").join(self.file());
        match self.seed {
            None => folder.with_extension(""),
            Some(seed) => folder.with_extension(format!("seed-{seed}")),
        }
    }
}

/// What a run printed.
pub struct Printed {
    /// By name.
    pub figures: Map<String, Value>,
    /// Whether it failed all the same: what was measured is not what is claimed.
    pub has_failed: bool,
}

/// Runs it with the release build that is there, as root where that is needed: the caller is.
///
/// # Errors
/// It cannot be started, or says nothing that can be read.
pub fn run(project: &Path, command: &Command) -> anyhow::Result<Printed> {
    let program = project.join("target/release").join(PROGRAM);
    let out = command.leavings(project);
    std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let json = out.join(command.file());
    // What a run of before has left is not what this one measures.
    match std::fs::remove_file(&json) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| json.display().to_string());
        }
        _ => {}
    }
    let mut process = process::Command::new(&program);
    process.args(&command.words).arg("--json").arg(&json);
    if let Some(seed) = command.seed {
        process.arg(SEED).arg(seed.to_string());
    }
    if command.experiment().is_some() {
        process.arg("--out").arg(&out);
    }
    // What it tells people is seen on the terminal.
    process.stdout(process::Stdio::null());
    let status = process
        .status()
        .with_context(|| format!("{}: run `make build` first", program.display()))?;
    let text = match std::fs::read_to_string(&json) {
        Err(_) if !status.success() => bail!("it failed: {status}"),
        text => text.with_context(|| json.display().to_string())?,
    };
    let figures = figures(&serde_json::from_str(&text)?);
    Ok(Printed { figures, has_failed: !status.success() })
}

/// What is said by name: the summary of an experiment; of the bench each row's ratio, as `ROW.1`
/// and `ROW.2` its two sides, as `ROW.target` where it should be, and as `ROW.verdict` whether it
/// is there and what must be known to read it.
fn figures(said: &Value) -> Map<String, Value> {
    if let Some(summary) = said.get("summary").and_then(Value::as_object) {
        return summary.clone();
    }
    let mut figures = Map::new();
    for row in said["rows"].as_array().into_iter().flatten() {
        let Some(key) = row["key"].as_str() else { continue };
        let mut note = |name: String, spread: &Value| {
            if let Some(median) = spread.get("median") {
                figures.insert(name, median.clone());
            }
        };
        note(key.into(), &row["ratio"]);
        let sides = row["figures"].as_array().into_iter().flatten();
        for (side, n) in sides.zip(1..) {
            note(format!("{key}.{n}"), &side["value"]);
        }
        let (target, verdict) = judged(row);
        figures.insert(format!("{key}.target"), target.into());
        figures.insert(format!("{key}.verdict"), verdict.into());
    }
    figures
}

/// Where a row of the bench should be, and whether it is there.
fn judged(row: &Value) -> (String, String) {
    let target = &row["target"];
    let target = match (target["at_most"].as_f64(), target["at_least"].as_f64()) {
        (Some(limit), _) => format!("<= {}", (limit * 100.0).round() / 100.0),
        (_, Some(limit)) => format!(">= {}", (limit * 100.0).round() / 100.0),
        _ => "told".into(),
    };
    let missed = row["missed_by_percent"].as_f64().unwrap_or(0.0);
    let verdict = match row["met"].as_bool() {
        Some(false) => format!("**missed** by {missed:.0} %"),
        _ if target == "told" => String::new(),
        _ => "met".into(),
    };
    let words = [verdict, row["note"].as_str().unwrap_or_default().into()];
    let words: Vec<String> = words.into_iter().filter(|words| !words.is_empty()).collect();
    (target, words.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_code_span_is_a_command_or_is_none() {
        let run = Command::parse("shortstop-lab run some-skew --world sim").unwrap();
        assert_eq!(run.text(), "shortstop-lab run some-skew --world sim");
        assert_eq!(run.file(), "some-skew-world-sim.json");
        assert_eq!(run.name(), "some-skew --world sim");
        assert_eq!((run.experiment(), run.world()), (Some("some-skew"), World::Sim));
        let other = Command::parse("shortstop-lab run a --quick --discipline b").unwrap();
        assert_eq!((other.discipline(), other.world()), (Some("b"), World::Kernel));
        let demo = Command::parse("make demo").unwrap();
        assert_eq!(demo.text(), "shortstop-lab run demo");
        assert_eq!(Command::parse("make bench").unwrap().file(), "bench.json");
        for other in ["shortstop-lab up rack", "shortstop lab run x", "make test", "a word", ""] {
            assert_eq!(Command::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_run_with_another_seed_is_of_the_same_command() {
        let parse = |text: &str| Command::parse(&format!("shortstop-lab run {text}")).unwrap();
        let command = parse("x --quick --world sim");
        let other = command.with_seed(3);
        assert_eq!(other.text(), "shortstop-lab run x --quick --world sim --seed 3");
        assert_eq!(other.split_seed(), (command.clone(), 3));
        assert_eq!(command.with_seed(1), command);
        assert_eq!(other.file(), command.file());
        let folder = |command: &Command| command.leavings(Path::new("p"));
        assert_eq!(folder(&other), Path::new("p/target/figures/x-quick-world-sim.seed-3"));
        assert!(command.takes_seeds());
        for none in ["x --quick", "x --world sim", "x --quick --world sim --seed 2"] {
            assert!(!parse(none).takes_seeds(), "{none}");
        }
    }

    #[test]
    fn figures_have_the_names_that_runs_give_them() {
        let run = json!({"summary": {"speedup": 3.5}, "rows": [{"key": 1}]});
        assert_eq!(Value::from(figures(&run)), json!({"speedup": 3.5}));
        let side = |median: f64| json!({"what": "ns", "value": {"median": median}});
        let bench = json!({"rows": [
            {"key": "hit", "ratio": {"median": 0.5}, "figures": [side(1.0), side(2.0)],
             "target": {"at_most": 0.42}, "met": false, "missed_by_percent": 19.0},
            {"key": "bytes", "ratio": {"median": 1.8}, "target": "report", "met": true},
            {"key": "rate", "ratio": {"median": 2.4}, "target": {"at_least": 1.9}, "met": true,
             "note": "in doubt"},
        ]});
        let named = json!({
            "hit": 0.5, "hit.1": 1.0, "hit.2": 2.0,
            "hit.target": "<= 0.42", "hit.verdict": "**missed** by 19 %",
            "bytes": 1.8, "bytes.target": "told", "bytes.verdict": "",
            "rate": 2.4, "rate.target": ">= 1.9", "rate.verdict": "met; in doubt",
        });
        assert_eq!(Value::from(figures(&bench)), named);
    }
}
