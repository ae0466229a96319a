//! `shortstop-lab exec`: a command inside a running lab, in the network namespace of one of
//! its hosts.

use std::{os::unix::process::CommandExt, process::ExitCode};

use anyhow::{Context, bail};
use lab::{process, state::State};

use super::running::{choose, need_root};

/// Run a command on a host of a running lab.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop-lab exec client1 -- ping -c 3 10.0.3.1")]
pub struct Args {
    /// The host or switch.
    host: String,
    /// Name of the lab; needed only if several run.
    #[arg(long)]
    name: Option<String>,
    /// Command and arguments; `shortstop` is the one beside this program.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Becomes the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    need_root()?;
    let lab = choose(args.name.as_deref())?;
    if !lab.topology.nodes().any(|node| node.name == args.host) {
        let names: Vec<&str> = lab.topology.nodes().map(|node| node.name.as_str()).collect();
        bail!("lab {}: there is no {}; it has {}", lab.name, args.host, names.join(", "));
    }
    let mut command =
        process::command_in(&State::namespace_of(&lab.name, &args.host), &args.command)?;
    // On success this process becomes the command, with its exit code.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", args.command[0]))
}
