//! The command line: one module per subcommand, each with its `Args` and `run`.

mod api;
mod audit;
mod bench;
mod common;
mod control;
mod coord;
mod delete;
mod gateway;
mod get;
mod lab;
mod page;
mod reach;
mod resources;
mod route;
mod secrets;
mod set;
mod store;
mod switch;
mod table;
mod target;
mod tenant;
mod token;
mod topology;

use std::{io::IsTerminal, process::ExitCode};

use clap::{Parser, Subcommand};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// Key-value requests answered in the network, before they reach a server.
#[derive(Parser)]
#[command(name = "shortstop", version, max_term_width = 100)]
pub struct Cli {
    /// What to log to standard error: error, warn, info, debug, or a filter such as `store=debug`.
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
    Tenant(tenant::Args),
    Page(page::Args),
    Topology(topology::Args),
    Route(route::Args),
    Audit(audit::Args),
    Token(token::Args),
    Get(get::Args),
    Set(set::Args),
    Delete(delete::Args),
    Coord(coord::Args),
    Lab(lab::Args),
    Bench(bench::Args),
    Resources(resources::Args),
}

impl Cli {
    /// The exit status of a failure: 1, but 2 where 1 says that there is no such key.
    pub fn failure(&self) -> ExitCode {
        match self.command {
            Command::Get(_) | Command::Delete(_) | Command::Coord(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs the command. Errors are for the user to read; the exit code is the command's own otherwise.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    log_to_stderr(cli.log.as_deref())?;
    match cli.command {
        Command::Switch(args) => switch::run(args),
        Command::Control(args) => control::run(args),
        Command::Store(args) => store::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Tenant(args) => tenant::run(args),
        Command::Page(args) => page::run(args),
        Command::Topology(args) => topology::run(args),
        Command::Route(args) => route::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Token(args) => token::run(args),
        Command::Get(args) => get::run(args),
        Command::Set(args) => set::run(args),
        Command::Delete(args) => delete::run(args),
        Command::Coord(args) => coord::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Resources(args) => resources::run(args),
    }
}

/// From here on, ends quietly when whoever reads the output stops (`| head`). For commands that do nothing
/// more than print: a server or a lab would be killed by any peer that closes its connection.
fn end_when_unread() {
    // SAFETY: sets a default action; no handler of ours can run.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn log_to_stderr(filter: Option<&str>) -> anyhow::Result<()> {
    let on_terminal = std::io::stderr().is_terminal();
    let filter = filter.unwrap_or(if on_terminal { "info" } else { "warn" });
    let targets: Targets = filter
        .parse()
        .map_err(|e| anyhow::anyhow!("--log {filter:?}: {e}; expected for example `info`"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(on_terminal)
        .with_target(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
    Ok(())
}
