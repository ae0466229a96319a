//! Documents with blocks of figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    command::Command,
    result::{Results, RunResult},
};

const BEGIN: &str = "<!-- figures";
const TEMPLATE_ENDS: &str = "-->";
const END: &str = "<!-- end of figures -->";
/// In the place of a figure that was never measured.
const MISSING: &str = "not measured";

/// A document that has at least one block.
pub struct Document {
    /// From the project's folder.
    pub path: PathBuf,
    /// As it stands.
    pub text: String,
}

impl Document {
    /// All Markdown files of the project that have blocks.
    ///
    /// # Errors
    /// A folder or file cannot be read.
    pub fn all(project: &Path) -> anyhow::Result<Vec<Document>> {
        let mut found = vec![];
        for top in ["README.md", "docs", "disciplines"] {
            look(project, Path::new(top), &mut found)?;
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The commands that its blocks name.
    pub fn commands(&self) -> BTreeSet<Command> {
        let blocks = self.text.split(BEGIN).skip(1);
        let templates = blocks.filter_map(|block| block.split(TEMPLATE_ENDS).next());
        let mut commands = BTreeSet::new();
        for line in templates.flat_map(str::lines) {
            commands.extend(command_in(line));
        }
        commands
    }

    /// Its text with every block filled in.
    ///
    /// # Errors
    /// A block does not end, or asks for a figure that its command does not give.
    pub fn filled(&self, results: &mut Results) -> anyhow::Result<String> {
        let at = || self.path.display().to_string();
        let mut filled = String::new();
        let mut rest = &self.text[..];
        while let Some((before, block)) = rest.split_once(BEGIN) {
            let Some((template, after)) = block.split_once(TEMPLATE_ENDS) else {
                bail!("{}: a block of figures has no `{TEMPLATE_ENDS}`", at());
            };
            let Some((_, after)) = after.split_once(END) else {
                bail!("{}: a block of figures has no `{END}`", at());
            };
            let shown = shown(template, results).with_context(at)?;
            let _ = write!(filled, "{before}{BEGIN}{template}{TEMPLATE_ENDS}{shown}{END}");
            rest = after;
        }
        Ok(filled + rest)
    }
}

fn look(project: &Path, at: &Path, found: &mut Vec<Document>) -> anyhow::Result<()> {
    let path = project.join(at);
    let context = || path.display().to_string();
    if path.is_dir() {
        for entry in fs::read_dir(&path).with_context(context)? {
            let name = entry.with_context(context)?.file_name();
            look(project, &at.join(name), found)?;
        }
    } else if at.extension().is_some_and(|e| e == "md") {
        let text = fs::read_to_string(&path).with_context(context)?;
        if text.contains(BEGIN) {
            found.push(Document { path: at.into(), text });
        }
    }
    Ok(())
}

/// The first command among a line's code spans.
fn command_in(line: &str) -> Option<Command> {
    let mut spans = line.split('`').skip(1).step_by(2);
    spans.find_map(Command::parse)
}

/// What a template comes to: its lines, each with the figures of the command in it or in the
/// nearest line above, and what they were measured on.
fn shown(template: &str, results: &mut Results) -> anyhow::Result<String> {
    let mut shown = String::new();
    let mut command = None;
    let mut commits_on: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut most_seeds = 1;
    for line in template.lines() {
        command = command_in(line).or(command);
        let kept = match &command {
            Some(command) => results.get(command)?,
            None => None,
        };
        if line.contains("{*") {
            if kept.is_none() {
                let _ = writeln!(shown, "| {MISSING} | |");
            }
            for (name, value) in kept.into_iter().flat_map(|k| &k.figures) {
                let line = line.replace("{*name}", name);
                let figure = with_range(name, value, "", kept);
                let _ = writeln!(shown, "{}", line.replace("{*figure}", &figure));
            }
        } else {
            let _ = writeln!(shown, "{}", fill(line, command.as_ref(), kept)?);
        }
        if let Some(kept) = kept.filter(|_| line.contains('{')) {
            let commits = commits_on.entry(kept.machine.clone()).or_default();
            commits.insert(kept.commit.clone());
            most_seeds = most_seeds.max(kept.seed_count());
        }
    }
    for (machine, commits) in commits_on {
        let commits: Vec<String> = commits.into_iter().collect();
        let seeds = match most_seeds {
            1 => String::new(),
            seeds => format!("; of {seeds} seeds the median (lowest to highest)"),
        };
        let _ = writeln!(shown, "\n*{machine}, commit {}{seeds}*", commits.join(", "));
    }
    Ok(shown)
}

/// A line with `{NAME}` and `{NAME:FORMAT}` replaced.
fn fill(line: &str, command: Option<&Command>, kept: Option<&RunResult>) -> anyhow::Result<String> {
    let mut filled = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((asked, after)) = after.split_once('}') else {
            bail!("no `}}` in: {line}");
        };
        let Some(command) = command else {
            bail!("{{{asked}}}: no command stands in this line or above");
        };
        let (name, format) = asked.split_once(':').unwrap_or((asked, ""));
        let figure = match kept {
            None => MISSING.into(),
            Some(kept) => match kept.figures.get(name) {
                Some(value) => with_range(name, value, format, Some(kept)),
                None => bail!("`{}` gives no figure {name:?}", command.text()),
            },
        };
        filled += before;
        filled += &figure;
        rest = after;
    }
    Ok(filled + rest)
}

/// A figure, and of several seeds its range behind it.
fn with_range(name: &str, value: &Value, format: &str, kept: Option<&RunResult>) -> String {
    let figure = formatted(value, format);
    let Some(range) = kept.and_then(|kept| kept.range(name)) else { return figure };
    let [low, high] = range.map(|end| formatted(&end.into(), format));
    if low == high {
        return figure;
    }
    format!("{figure} ({low} to {high})")
}

/// `N`: so many decimals; `%`: as a percentage; `,`: whole, in groups of three digits. Without a
/// format: from a thousand on as with `,`, else with three decimals at most.
fn formatted(value: &Value, format: &str) -> String {
    let Some(number) = value.as_f64() else {
        return value.as_str().map_or(value.to_string(), String::from);
    };
    match format {
        "" if number.abs() < 1000.0 => {
            let text = format!("{number:.3}");
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
        "%" => format!("{:.0} %", number * 100.0),
        "" | "," => grouped(number),
        decimals => format!("{number:.*}", decimals.parse().unwrap_or(3)),
    }
}

/// A number without its decimals, in groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let count = digits.len();
    let group = |(at, digit)| {
        let separated = at > 0 && (count - at) % 3 == 0;
        [separated.then_some(','), Some(digit)]
    };
    let grouped = digits.chars().enumerate().flat_map(group);
    grouped.flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "Before\n<!-- figures\n| what | here |\n| --- | --- |\n| a, `shortstop-lab run x` | {a:1} of {n:,} |\n| same | {a:%} |\n-->\nold\n<!-- end of figures -->\nafter\n";

    fn results(dir: &Path) -> Results {
        let mut results = Results::at(dir.into());
        let figures = json!({"a": 0.349, "n": 1234567});
        let kept = RunResult {
            command: "shortstop-lab run x".into(),
            commit: "abc".into(),
            machine: "a machine".into(),
            seconds: 1,
            code: Default::default(),
            figures: figures.as_object().unwrap().clone(),
            failed: Default::default(),
            seeds: None,
        };
        let command = Command::parse("shortstop-lab run x").unwrap();
        results.keep(&command, kept).unwrap();
        results
    }

    fn document(text: &str) -> Document {
        Document { path: "x.md".into(), text: text.into() }
    }

    #[test]
    fn a_block_shows_what_its_commands_gave() {
        let dir = tempfile::tempdir().unwrap();
        let filled = document(TEXT).filled(&mut results(dir.path())).unwrap();
        let shown = "-->\n| what | here |\n| --- | --- |\n| a, `shortstop-lab run x` | 0.3 of 1,234,567 |\n| same | 35 % |\n\n*a machine, commit abc*\n<!-- end";
        assert!(filled.contains(shown), "{filled}");
        // Once filled it stays as it is, also when it is read by another.
        let again = document(&filled).filled(&mut Results::at(dir.path().into()));
        assert_eq!(again.unwrap(), filled);
    }

    #[test]
    fn figures_of_several_seeds_have_their_range_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = results(dir.path());
        let command = Command::parse("shortstop-lab run x").unwrap();
        let mut kept = results.get(&command).unwrap().unwrap().clone();
        for (seed, a) in [(2, 0.3), (3, 0.5)] {
            let other = json!({"a": a, "n": 1234567});
            let figures = other.as_object().unwrap().clone();
            kept = RunResult { figures, ..kept.clone() }.with_seed(seed, 3, Some(&kept));
        }
        results.keep(&command, kept).unwrap();
        let filled = document(TEXT).filled(&mut results).unwrap();
        for expected in [
            "| 0.3 (0.3 to 0.5) of 1,234,567 |",
            "| same | 35 % (30 % to 50 %) |",
            "*a machine, commit abc; of 3 seeds the median (lowest to highest)*",
        ] {
            assert!(filled.contains(expected), "{filled}");
        }
    }

    #[test]
    fn every_figure_can_be_listed() {
        let text = TEXT.replace("| same | {a:%} |", "| {*name} | {*figure} |");
        let dir = tempfile::tempdir().unwrap();
        let filled = document(&text).filled(&mut results(dir.path())).unwrap();
        assert!(filled.contains("\n| a | 0.349 |\n| n | 1,234,567 |\n"), "{filled}");
    }

    #[test]
    fn a_figure_without_a_format_is_as_long_as_it_is_read() {
        let plain = |value: Value| formatted(&value, "");
        assert_eq!(plain(json!(0.4304)), "0.43");
        assert_eq!(plain(json!(300.0)), "300");
        assert_eq!(plain(json!(216.8577)), "216.858");
        assert_eq!(plain(json!(24_431_587.81)), "24,431,588");
        assert_eq!(plain(json!("a checker")), "a checker");
    }

    #[test]
    fn what_was_never_run_is_said_and_what_is_not_given_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut none = Results::at(dir.path().into());
        let filled = document(TEXT).filled(&mut none).unwrap();
        assert!(filled.contains("| same | not measured |"), "{filled}");
        let wrong = TEXT.replace("{a:1}", "{b}");
        let error = document(&wrong).filled(&mut results(dir.path()));
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("x.md") && error.contains("\"b\""), "{error}");
        for cut in [TEMPLATE_ENDS, END] {
            let error = document(TEXT.split(cut).next().unwrap()).filled(&mut none);
            assert!(error.is_err(), "{cut}");
        }
    }
}
