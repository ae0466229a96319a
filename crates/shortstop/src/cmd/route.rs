//! `shortstop route`: the routes that the controller keeps on the switches, or leaves to a routing
//! daemon, by its `/v1/routes`.

use std::process::ExitCode;

use api::types::{RouteSettings, RouteTable, RouteView};
use clap::Subcommand;
use commands::api::Api;

use super::table::table;

/// Lists the routes of the switches, and says whether the controller keeps them.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop route list\n  shortstop route off")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the routes.
    #[command(after_help = "Example:\n  shortstop route list --json")]
    List {
        #[command(flatten)]
        api: Api,
    },
    /// Lets the controller install the shortest paths' routes.
    #[command(after_help = "Example:\n  shortstop route on")]
    On {
        #[command(flatten)]
        api: Api,
    },
    /// Leaves routes to a routing daemon: those of the controller are removed.
    #[command(after_help = "Example:\n  shortstop route off")]
    Off {
        #[command(flatten)]
        api: Api,
    },
}

/// Asks the controller and prints its answer.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (api, managed) = match args.command {
        Command::List { api } => {
            let routes: RouteTable = api.get("/v1/routes")?;
            return api.print(&routes, show);
        }
        Command::On { api } => (api, true),
        Command::Off { api } => (api, false),
    };
    let routes: RouteTable = api.change("PUT", "/v1/routes", Some(&RouteSettings { managed }))?;
    api.print(&routes, show)
}

fn show(routes: &RouteTable) -> String {
    let whose = match (routes.managed, routes.routes.is_empty()) {
        (true, false) => "the controller keeps these routes",
        (false, false) => "routes are left alone; the controller would install these",
        (true, true) => return "the controller keeps routes; none is needed\n".into(),
        (false, true) => return "routes are left alone; none is needed\n".into(),
    };
    let state = |r: &RouteView| match (&r.failure, r.installed) {
        (Some(failure), _) => failure.clone(),
        (None, true) => "installed".into(),
        (None, false) => "-".into(),
    };
    let rows: Vec<_> = routes
        .routes
        .iter()
        .map(|r| {
            vec![
                r.switch.to_string(),
                r.prefix.clone(),
                r.via.clone(),
                r.interface.clone(),
                state(r),
            ]
        })
        .collect();
    let head = ["switch", "prefix", "via", "interface", "state"];
    format!("{whose}\n\n{}", table(&head, &rows))
}
