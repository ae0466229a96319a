//! `shortstop-lab up`: a topology with all of its processes, to try things in by hand.

use std::process::ExitCode;

use anyhow::Context;
use commands::command_line::end_when_unread;
use lab::{interrupt, rack::Lab, state::State};
use plan::topology::Topology;

use super::running::need_root;
use crate::topologies::TOPOLOGIES;

/// Build a topology and leave it running.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop-lab up rack")]
pub struct Args {
    /// A built-in topology (`rack`) or a TOML file.
    topology: String,
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
}

/// Builds it, starts its processes, and says what to try.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let built_in = TOPOLOGIES.iter().find(|(name, ..)| *name == args.topology);
    let text = match built_in {
        Some((_, _, text)) => text.to_string(),
        None => std::fs::read_to_string(&args.topology).with_context(|| {
            format!("topology {}: neither built in (rack) nor a file", args.topology)
        })?,
    };
    let topology = Topology::parse(&text)?;
    need_root()?;
    interrupt::install();
    State::remove_stale();
    let mut lab = Lab::create(&args.name, topology, true)?;
    lab.start_all(true)?;
    // Stores take no writes in their first seconds: the first command that is typed shall work.
    lab.settle()?;
    let nodes: Vec<String> = lab.topology().nodes().map(|node| node.name.clone()).collect();
    let addresses: Vec<String> = nodes
        .iter()
        .map(|node| {
            let address = lab.topology().address_of(node);
            format!("  {node:<12} {}", address.map_or("-".into(), |a| a.to_string()))
        })
        .collect();
    let dir = lab.dir();
    lab.leave()?;
    end_when_unread();
    let name = &args.name;
    let option = if name == "lab" { String::new() } else { format!(" --name {name}") };
    println!("lab {name} is up; logs in {}\n{}\n", dir.display(), addresses.join("\n"));
    let this = called_as();
    if built_in.is_some() {
        println!(
            "Try:\n  \
             {this} exec client1{option} -- shortstop set --cluster {dir}/cluster.toml greeting hello\n  \
             {this} exec client2{option} -- shortstop get --cluster {dir}/cluster.toml greeting\n  \
             {this} exec client1{option} -- ping -c 3 10.0.3.1\n  \
             {this} exec client1{option} -- ping -c 3 fd00:0:0:3::1\n  \
             {this} exec switch{option} -- shortstop switch status --name {name}-switch",
            dir = dir.display(),
        );
    } else {
        println!("Try:\n  {this} exec{option} {} -- ip address", nodes[0]);
    }
    println!("  {this} down{option}");
    Ok(ExitCode::SUCCESS)
}

/// What to type for this program: what was typed for it, which need not be in PATH.
fn called_as() -> String {
    std::env::args().next().unwrap_or_else(|| "shortstop-lab".into())
}
