//! The figures in README and docs: measured by the commands that stand beside them, and
//! written there.
//!
//! A document says what it wants in a block, a comment that no reader of the page sees:
//!
//! ```text
//! <!-- figures
//! | throughput over no cache | `shortstop-lab run netcache-skew` | {speedup:1} |
//! -->
//! | throughput over no cache | `shortstop-lab run netcache-skew` | 19.3 |
//! <!-- end of figures -->
//! ```
//!
//! [`document`] finds blocks and fills them in, [`command`] runs what they name, [`result`] is what
//! is kept of a run, [`code`] says what a command runs, [`age`] which of that has changed since it
//! ran, [`choice`], [`queue`] and [`measure`] which are run and when.

#![deny(unsafe_code)]

mod age;
mod choice;
mod code;
mod command;
mod commit;
mod document;
mod measure;
mod picture;
mod queue;
mod result;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::Duration,
};

use anyhow::ensure;

use self::{
    age::Age,
    choice::Choice,
    code::{Code, Versions},
    command::Command,
    document::Document,
    measure::Task,
    queue::{Estimate, Sum},
    result::{Results, RunResult},
};

/// Measures the figures of README and docs, writes them there, and says which are not of the code
/// at hand.
///
/// A figure is stale when something changed that its command runs: a crate, the experiment's file,
/// a package from elsewhere.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shortstop-lab figures check\n  shortstop-lab figures run --minutes 10\n  \
    shortstop-lab figures run --only demo\n  \
    shortstop-lab figures run --seeds 5 --minutes 60"
)]
pub struct Args {
    #[command(subcommand)]
    what: Action,
    /// The project's folder.
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    project: PathBuf,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Lists the commands whose figures the documents show.
    List,
    /// Runs those that are stale, keeps what came out, and writes it into the documents.
    Run(Run),
    /// Writes what was kept into the documents.
    Write,
    /// Lists what is stale, with the time that it takes, and seeds that missed what is claimed.
    /// Fails only if a document shows something else than was kept.
    Check,
}

#[derive(clap::Args)]
struct Run {
    /// Only commands that have this in them, or this one, whole runs too; may be given several
    /// times. By default the quick runs and the bench.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    only: Vec<String>,
    /// Whole runs too, which take hours.
    #[arg(long)]
    full: bool,
    /// Those that are not stale too.
    #[arg(long)]
    again: bool,
    /// Run each quick run in the simulator with so many seeds, from 1 on, and show the median and
    /// the range of each figure. By default as many as the last time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Begin none that would not be done within this time. Called again, it goes on with what
    /// is left.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
}

/// Runs the subcommand.
///
/// # Errors
/// A file that cannot be read or written, a block that is no block, an experiment that is
/// declared wrongly.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let project = &args.project;
    let mut results = Results::at(project.join("docs/figures"));
    match args.what {
        Action::List => {
            for command in commands(&Document::all(project)?) {
                say(command.text())?;
            }
        }
        Action::Run(asked) => return measure(project, asked, results),
        Action::Write => write(project, &mut results)?,
        Action::Check => return check(project, &mut results),
    }
    Ok(ExitCode::SUCCESS)
}

/// One line of the answer. It is no error that whoever reads has seen enough (`| head`).
fn say(line: impl Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Every command that some document names, once.
fn commands(documents: &[Document]) -> BTreeSet<Command> {
    documents.iter().flat_map(Document::commands).collect()
}

/// Fills in the documents as they are now: somebody may have written in them while this ran.
fn write(project: &Path, results: &mut Results) -> anyhow::Result<()> {
    for document in Document::all(project)? {
        let filled = document.filled(results)?;
        if filled != document.text {
            result::write(&project.join(&document.path), &filled)?;
        }
        picture::place(project, &document)?;
    }
    Ok(())
}

/// All commands with what they run now, and those of them that are stale with why.
struct Stock {
    versions: BTreeMap<Command, Versions>,
    stale: BTreeMap<Command, (Age, Estimate)>,
}

impl Stock {
    fn of(
        project: &Path,
        commands: BTreeSet<Command>,
        results: &mut Results,
    ) -> anyhow::Result<Stock> {
        let code = Code::read(project)?;
        let mut stock = Stock { versions: BTreeMap::new(), stale: BTreeMap::new() };
        for command in commands {
            let versions = code.versions(&command)?;
            let kept = results.get(&command)?;
            let (age, expected) = (Age::of(kept, &versions), Estimate::of(&command, kept));
            if age != Age::Current {
                stock.stale.insert(command.clone(), (age, expected));
            }
            stock.versions.insert(command, versions);
        }
        Ok(stock)
    }
}

fn measure(project: &Path, asked: Run, mut results: Results) -> anyhow::Result<ExitCode> {
    let choice = Choice { only: asked.only, full: asked.full };
    let all = commands(&Document::all(project)?);
    let stock = Stock::of(project, all, &mut results)?;
    let chosen = choice.of(stock.versions.keys());
    ensure!(
        !chosen.is_empty(),
        "--only {}: no document names such a command; `figures list` says which they do",
        choice.only.join(" --only ")
    );
    let mut waiting = vec![];
    let mut seeds = BTreeMap::new();
    for command in chosen {
        let kept = results.get(command)?;
        let expected = Estimate::of(command, kept);
        let as_before = kept.map_or(1, RunResult::wanted_seeds);
        let wanted = asked.seeds.filter(|_| command.takes_seeds()).unwrap_or(as_before);
        seeds.insert(command.clone(), wanted);
        let is_stale = asked.again || stock.stale.contains_key(command);
        let is_missing = |seed: &u64| is_stale || kept.is_none_or(|kept| !kept.has_seed(*seed));
        let missing = (1..=wanted).filter(is_missing);
        waiting.extend(missing.map(|seed| (command.with_seed(seed), expected)));
    }
    if waiting.is_empty() {
        say("nothing of this is stale; --again measures it all the same")?;
        return Ok(ExitCode::SUCCESS);
    }
    let task = Task {
        versions: stock.versions,
        seeds,
        waiting,
        limit: asked.minutes.map(|minutes| Duration::from_secs(60 * minutes)),
    };
    let outcome = measure::run(project, task, &Mutex::new(results))?;
    if !outcome.left.is_empty() {
        let left = outcome.left.iter().map(|(_, expected)| *expected);
        say(format_args!("left: {}; call it again", Sum::of(left)))?;
        for (command, expected) in &outcome.left {
            say(format_args!("  {}: {expected}", command.text()))?;
        }
    }
    if outcome.failed > 0 {
        eprintln!("{} commands failed", outcome.failed);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn check(project: &Path, results: &mut Results) -> anyhow::Result<ExitCode> {
    let documents = Document::all(project)?;
    let mut differ = 0;
    for document in &documents {
        if document.filled(results)? != document.text {
            differ += 1;
            let path = document.path.display();
            say(format_args!(
                "{path}: shows other figures than docs/figures; run `figures write`"
            ))?;
        }
    }
    let stock = Stock::of(project, commands(&documents), results)?;
    for (command, (age, expected)) in &stock.stale {
        say(format_args!("{}: {expected}; {age}", command.text()))?;
    }
    for command in commands(&documents) {
        for seed in results.get(&command)?.into_iter().flat_map(|kept| &kept.failed) {
            let text = command.with_seed(*seed).text();
            say(format_args!("{text}: missed what is claimed; its figures count"))?;
        }
    }
    let is_default = |command: &&Command| !Choice::default().of([*command].into_iter()).is_empty();
    let (short, whole): (Vec<_>, Vec<_>) =
        stock.stale.iter().partition(|(command, _)| is_default(command));
    for (what, stale) in [("quick runs and bench", short), ("whole runs", whole)] {
        let sum = Sum::of(stale.iter().map(|(_, (_, expected))| *expected));
        say(format_args!("{what}: {sum}"))?;
    }
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures that somebody typed would be nobody's.
    #[test]
    fn the_documents_show_what_was_kept() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let documents = Document::all(&project).unwrap();
        let mut results = Results::at(project.join("docs/figures"));
        assert!(!commands(&documents).is_empty());
        for document in &documents {
            let filled = document.filled(&mut results).unwrap();
            let path = document.path.display();
            assert!(filled == document.text, "{path}: run `figures write`");
        }
    }
}
