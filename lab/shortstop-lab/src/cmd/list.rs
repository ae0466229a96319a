//! `shortstop-lab list`: what there is to run, and what runs.

use std::process::ExitCode;

use commands::command_line::end_when_unread;
use disciplines_experiments::experiments;
use lab::state::State;
use serde_json::json;

use crate::topologies::TOPOLOGIES;

/// List experiments, topologies and running labs.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop-lab list --json")]
pub struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    end_when_unread();
    let experiments = experiments()?;
    let labs = State::all();
    let state = |lab: &State| match (lab.is_stale(), lab.detached) {
        (true, _) => "left behind",
        (false, true) => "up",
        (false, false) => "running",
    };
    if args.json {
        let named = |name: &str, title: &str| json!({ "name": name, "title": title });
        let document = json!({
            "experiments": experiments.iter().map(|e| named(&e.name, &e.title)).collect::<Vec<_>>(),
            "topologies": TOPOLOGIES.iter().map(|(name, title, _)| named(name, title)).collect::<Vec<_>>(),
            "labs": labs.iter().map(|l| json!({ "name": l.name, "state": state(l) })).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("experiments (shortstop-lab run NAME [--quick])");
    for experiment in experiments {
        println!("  {:<18} {}", experiment.name, experiment.title);
    }
    println!("topologies (shortstop-lab up NAME)");
    for (name, title, _) in TOPOLOGIES {
        println!("  {name:<18} {title}");
    }
    if !labs.is_empty() {
        println!("labs");
    }
    for lab in labs {
        let what = match state(&lab) {
            "left behind" => "; the next lab removes it",
            "up" => "; `shortstop-lab down` removes it",
            _ => " an experiment",
        };
        println!("  {:<18} {}{what}", lab.name, state(&lab));
    }
    Ok(ExitCode::SUCCESS)
}
