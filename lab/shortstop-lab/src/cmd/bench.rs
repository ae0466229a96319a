//! `shortstop-lab bench`: what the data plane costs, as the crate `bench` measures it.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use bench::Options;

/// Measures what hits and misses cost, as ratios over floors taken in the same run.
///
/// Needs root and memcached. Prints a table; docs/benchmarks.md says how to read it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shortstop-lab bench --json bench.json\n  \
    shortstop-lab bench --only profile")]
pub struct Args {
    /// Also write everything that was measured to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Batches per row; each gives one ratio, of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = clap::value_parser!(u16).range(1..))]
    batches: u16,
    /// Only the groups of rows in which a key contains this; `profile`: where a hit's time goes.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The discipline whose data plane is measured.
    #[arg(long, value_name = "NAME", default_value = disciplines::default().name)]
    discipline: String,
}

/// Measures and prints. A missed target is told, and is no failure: it depends on the machine.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let known = disciplines::find(&args.discipline)
        .with_context(|| format!("discipline {:?}: there is none", args.discipline))?;
    let options = Options { discipline: known, batches: args.batches.into(), only: args.only };
    let progress = lab::progress::Progress::new();
    let report = bench::run(&options, |what| progress.say(what))?;
    drop(progress);
    if let Some(path) = args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    commands::command_line::end_when_unread();
    println!("{}", report.render());
    Ok(ExitCode::SUCCESS)
}
