//! The figures in README and docs: measured by the commands that stand beside them, and written there.
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
//! [`document`] finds blocks and fills them in, [`command`] runs what they name, [`result`] is what is kept of a run, [`age`] says what
//! has changed since.

mod age;
mod command;
mod document;
mod picture;
mod result;

use std::{
    collections::BTreeSet,
    fmt::Display,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::{Parser, Subcommand};

use self::{command::Command, document::Document, result::Results};

/// Measures the figures of README and docs, writes them there, and says when they are older than the code.
#[derive(Parser)]
#[command(
    about,
    after_help = "Examples:\n  figures run --only bench\n  figures check"
)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// The project's folder.
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    project: PathBuf,
}

#[derive(Subcommand)]
enum What {
    /// Lists the commands whose figures the documents show.
    List,
    /// Runs them, keeps what came out, and writes it into the documents.
    Run {
        /// Only commands that have this in them; may be given several times.
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        only: Vec<String>,
        /// Only those that were never run, or not on the code at hand.
        #[arg(long)]
        stale: bool,
    },
    /// Writes what was kept into the documents.
    Write,
    /// Compares the documents with what was kept, and says what is older than the code. Fails if a document shows something else.
    Check,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let documents = Document::all(&args.project)?;
    let mut results = Results::at(args.project.join("docs/figures"));
    match args.what {
        What::List => {
            for command in commands(&documents) {
                say(command.text())?;
            }
        }
        What::Run { only, stale } => {
            let is_chosen = |c: &Command| {
                let text = c.text();
                only.is_empty() || only.iter().any(|part| text.contains(part))
            };
            let mut failed = 0;
            for command in commands(&documents).into_iter().filter(is_chosen) {
                let kept = results.get(&command)?;
                if stale && kept.is_some_and(|r| age::of(&args.project, &r.commit).is_current()) {
                    continue;
                }
                eprintln!("{}", command.text());
                match command::run(&args.project, &command) {
                    Ok(result) => results.keep(&command, result)?,
                    Err(error) => {
                        failed += 1;
                        eprintln!("  {error:#}; the figures of before stay");
                    }
                }
                // At once: a run that is interrupted has written what it had.
                write(&args.project, &documents, &mut results)?;
            }
            if failed > 0 {
                eprintln!("{failed} commands failed");
                return Ok(ExitCode::FAILURE);
            }
        }
        What::Write => write(&args.project, &documents, &mut results)?,
        What::Check => return check(&args.project, &documents, &mut results),
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

fn write(
    project: &std::path::Path,
    documents: &[Document],
    results: &mut Results,
) -> anyhow::Result<()> {
    for document in documents {
        let filled = document.filled(results)?;
        if filled != document.text {
            let path = project.join(&document.path);
            std::fs::write(&path, filled).with_context(|| path.display().to_string())?;
        }
        picture::place(project, document)?;
    }
    Ok(())
}

fn check(
    project: &std::path::Path,
    documents: &[Document],
    results: &mut Results,
) -> anyhow::Result<ExitCode> {
    let mut differ = 0;
    for document in documents {
        if document.filled(results)? != document.text {
            differ += 1;
            let path = document.path.display();
            say(format_args!(
                "{path}: shows other figures than docs/figures; run `figures write`"
            ))?;
        }
    }
    for command in commands(documents) {
        let text = command.text();
        match results.get(&command)? {
            None => say(format_args!(
                "{text}: never run; run `make figures ONLY='{text}'`"
            ))?,
            Some(result) => {
                let age = age::of(project, &result.commit);
                if !age.is_current() {
                    let commit = &result.commit;
                    say(format_args!("{text}: measured at {commit}, {age}"))?;
                }
            }
        }
    }
    Ok(if differ == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
