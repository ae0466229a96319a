//! `shortstop topology`: switches, links and networks as the controller knows them, by its
//! `/v1/topology`; declaring them from a file, and forgetting a switch.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use api::types::{SwitchView, TopologyView};
use clap::Subcommand;
use commands::api::Api;

use super::table::{table, yes};

/// Longest topology file in bytes.
const FILE_MAX: u64 = 64 << 10;

/// Shows the topology, declares it, or forgets a switch.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop topology show\n  shortstop topology declare topology.toml"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows switches, links and networks: what was declared and what switches report.
    #[command(after_help = "Example:\n  shortstop topology show --json")]
    Show {
        #[command(flatten)]
        api: Api,
    },
    /// Replaces what was declared with a file's content.
    #[command(
        after_help = "Example:\n  shortstop topology declare topology.toml\n\n  [[switch]]\n  id = 1\n  [[switch]]\n  id = 2\n  [[link]]\n  a = 1\n  b = 2\n  [[network]]\n  prefix = \"10.0.1.0/24\"\n  switch = 1"
    )]
    Declare {
        /// The topology (TOML; or JSON, if its name ends with .json).
        file: PathBuf,
        #[command(flatten)]
        api: Api,
    },
    /// Forgets a switch that is gone for good: its pages, its links, and what was declared of it.
    #[command(
        after_help = "Example:\n  shortstop topology forget 3\n  shortstop topology forget tor3"
    )]
    Forget {
        /// Its number, or its name as `topology show` has it.
        switch: String,
        #[command(flatten)]
        api: Api,
    },
}

/// Asks the controller and prints its answer.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Show { api } => {
            let topology: TopologyView = api.get("/v1/topology")?;
            api.print(&topology, show)
        }
        Command::Declare { file, api } => {
            let name = file.display();
            let size = std::fs::metadata(&file).map_or(0, |m| m.len());
            anyhow::ensure!(size <= FILE_MAX, "{name}: {size} bytes, at most {FILE_MAX} are taken");
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
            let json = file.extension().is_some_and(|e| e == "json");
            let kind = if json { "application/json" } else { "application/toml" };
            let answer = api
                .send("PUT", "/v1/topology", Some((kind, text)))
                .with_context(|| name.to_string())?;
            let topology: TopologyView = serde_json::from_str(&answer)?;
            api.print(&topology, show)
        }
        Command::Forget { switch, api } => {
            let id = number(&api.get("/v1/topology")?, &switch)?;
            let path = format!("/v1/topology/switches/{id}");
            let topology: TopologyView = api.change("DELETE", &path, None::<&()>)?;
            api.print(&topology, show)
        }
    }
}

/// The number of the switch that is called so, or has it.
fn number(topology: &TopologyView, switch: &str) -> anyhow::Result<u16> {
    if let Ok(id) = switch.parse() {
        return Ok(id);
    }
    let mut named = topology.switches.iter().filter(|s| s.name == switch);
    match (named.next(), named.next()) {
        (Some(one), None) => Ok(one.id),
        (None, _) => anyhow::bail!("no switch is called {switch:?}: see `shortstop topology show`"),
        (Some(_), Some(_)) => {
            anyhow::bail!("several switches are called {switch:?}: give the number")
        }
    }
}

fn show(topology: &TopologyView) -> String {
    let switch = |s: &SwitchView| {
        vec![
            s.id.to_string(),
            s.name.clone(),
            yes(s.attached),
            s.pages.to_string(),
            s.free_pages.to_string(),
            s.lent_pages.to_string(),
        ]
    };
    let switches: Vec<_> = topology.switches.iter().map(switch).collect();
    let links: Vec<_> = topology
        .links
        .iter()
        .map(|l| {
            vec![
                l.a.to_string(),
                l.b.to_string(),
                l.cost.to_string(),
                if l.up { "up" } else { "down" }.into(),
                known_by(l.declared),
            ]
        })
        .collect();
    let networks: Vec<_> = topology
        .networks
        .iter()
        .map(|n| vec![n.prefix.to_string(), n.switch.to_string(), known_by(n.declared)])
        .collect();
    let refusals: String = topology
        .switches
        .iter()
        .flat_map(|s| {
            s.refused.iter().map(move |(what, why)| {
                format!("switch {}: {what} does not run there: {why}\n", s.id)
            })
        })
        .collect();
    let mut parts = vec![
        table(&["switch", "name", "attached", "pages", "free", "lent"], &switches),
        table(&["link from", "to", "cost", "state", "known by"], &links),
        table(&["network", "switch", "known by"], &networks),
    ];
    if !refusals.is_empty() {
        parts.push(refusals);
    }
    parts.join("\n")
}

fn known_by(declared: bool) -> String {
    if declared { "declared" } else { "learned" }.into()
}
