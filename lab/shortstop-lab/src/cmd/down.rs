//! `shortstop-lab down`: the end of what `shortstop-lab up` left running.

use std::process::ExitCode;

use anyhow::bail;
use commands::command_line::end_when_unread;
use lab::state::State;

use super::running::{choose, need_root};

/// Remove a running lab.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  shortstop-lab down\n  shortstop-lab down --all")]
pub struct Args {
    /// Name of the lab; needed only if several run.
    #[arg(long, conflicts_with = "all")]
    name: Option<String>,
    /// Remove every lab that was left running.
    #[arg(long)]
    all: bool,
}

/// Removes what was asked for, and what crashes left behind.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    need_root()?;
    let stale = State::remove_stale();
    let removed = removed_by_name(args, &stale)?;
    end_when_unread();
    for name in stale {
        println!("lab {name}: removed (left behind by a crash)");
    }
    for name in removed {
        println!("lab {name}: removed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes what was asked for, besides the stale labs that are gone already; the names.
fn removed_by_name(args: &Args, stale: &[String]) -> anyhow::Result<Vec<String>> {
    let labs = match &args.name {
        _ if args.all => State::all().into_iter().filter(|l| l.detached).collect(),
        Some(name) if stale.contains(name) => vec![],
        None if !stale.is_empty() && !State::all().iter().any(|lab| lab.detached) => vec![],
        name => vec![choose(name.as_deref())?],
    };
    for lab in &labs {
        if !lab.detached && lab.owner.is_alive() {
            bail!(
                "lab {}: an experiment is running in it (process {}); stop that instead",
                lab.name,
                lab.owner.pid
            );
        }
        lab.remove();
    }
    Ok(labs.into_iter().map(|lab| lab.name).collect())
}
