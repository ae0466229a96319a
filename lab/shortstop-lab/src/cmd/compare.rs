//! `shortstop-lab compare`: whether the simulator gives what the kernel gives, for one experiment.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use commands::command_line::end_when_unread;
use experiments::{Backend, Choice, Comparison, Options, World};
use lab::privilege;

use super::experiment::{find, run_in};

/// Run an experiment in the kernel and in the simulator; print both side by side.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop-lab compare demo --quick")]
pub struct Args {
    /// The experiment; see `shortstop-lab list`.
    name: String,
    /// The short version, in both worlds.
    #[arg(long)]
    quick: bool,
    /// Decides everything random, in both worlds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the comparison as JSON to this file (`-`: to standard output, and no table).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it in both.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut experiment = find(&args.name, None)?;
    // The simulator's full run may be another one; what is compared has to be the same.
    experiment.same_in_both();
    let options = |world| Options {
        idle: false,
        quick: args.quick,
        seed: args.seed,
        seeds: 1,
        backend: Backend::Embedded,
        name: None,
        world,
        disciplines: disciplines::all(),
    };
    for (asked, missing) in [(World::Kernel, privilege::missing()), (World::Sim, None)] {
        let choice = Choice {
            experiment: &experiment.name,
            asked: Some(asked),
            needs: experiment.needs(&options(asked))?,
            too_large: experiment.too_large(),
            missing,
        };
        choice.make()?;
    }
    let kernel = run_in(&experiment, &options(World::Kernel))?;
    let sim = run_in(&experiment, &options(World::Sim))?;
    let comparison = Comparison::of(&kernel, &sim);
    end_when_unread();
    let text = serde_json::to_string_pretty(&comparison)?;
    match &args.json {
        Some(path) if path == Path::new("-") => {
            println!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => {}
    }
    println!("{}", comparison.render());
    let worst = comparison.worst.as_deref().unwrap_or("nothing judged");
    println!(
        "{:<32} {:.3} ({worst})",
        "worst_relative_difference", comparison.worst_relative_difference
    );
    Ok(ExitCode::SUCCESS)
}
