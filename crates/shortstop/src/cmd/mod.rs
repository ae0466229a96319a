//! The command line: one module per subcommand, each with its `Args` and `run`.

mod audit;
mod certificates;
mod cluster;
mod control;
mod delete;
mod gateway;
mod get;
mod moved;
mod of_discipline;
mod open_files;
mod page;
mod route;
mod set;
pub mod store;
mod switch;
pub mod table;
mod tenant;
mod token;
mod topology;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::command_line::CommandLine;

/// Key-value requests answered in the network, before they reach a server.
#[derive(Parser)]
#[command(name = "shortstop", version, max_term_width = 100)]
pub struct Cli {
    /// What to log to standard error: error, warn, info, debug, or a filter such as `store=debug`
    /// [default: info].
    #[arg(long, global = true, env = "SHORTSTOP_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Switch(switch::Args),
    Control(control::Args),
    Store(store::Args),
    Gateway(gateway::Args),
    Cluster(cluster::Args),
    Tenant(tenant::Args),
    Page(page::Args),
    Topology(topology::Args),
    Route(route::Args),
    Audit(audit::Args),
    Token(token::Args),
    Get(get::Args),
    Set(set::Args),
    Delete(delete::Args),
    #[command(flatten)]
    OfDiscipline(of_discipline::Command),
    #[command(hide = true)]
    Lab(moved::Args),
    #[command(hide = true)]
    Bench(moved::Args),
    #[command(hide = true)]
    Resources(moved::Args),
}

impl CommandLine for Cli {
    const NAME: &'static str = "shortstop";
    /// Journals keep when a role lost its controller or backend, and when it had it again.
    const LOG: &'static str = "info";

    fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// 1, but 2 where 1 says that there is no such key.
    fn failure(&self) -> ExitCode {
        match self.command {
            Command::Get(_) | Command::Delete(_) => ExitCode::from(2),
            Command::OfDiscipline(ref command) => command.failure(),
            _ => ExitCode::FAILURE,
        }
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Switch(args) => switch::run(args),
            Command::Control(args) => control::run(args),
            Command::Store(args) => store::run(args),
            Command::Gateway(args) => gateway::run(args),
            Command::Cluster(args) => cluster::run(args),
            Command::Tenant(args) => tenant::run(args),
            Command::Page(args) => page::run(args),
            Command::Topology(args) => topology::run(args),
            Command::Route(args) => route::run(args),
            Command::Audit(args) => audit::run(args),
            Command::Token(args) => token::run(args),
            Command::Get(args) => get::run(args),
            Command::Set(args) => set::run(args),
            Command::Delete(args) => delete::run(args),
            Command::OfDiscipline(command) => command.run(),
            Command::Lab(args) => args.run(&[]),
            Command::Bench(args) => args.run(&["bench"]),
            Command::Resources(args) => args.run(&["resources"]),
        }
    }
}
