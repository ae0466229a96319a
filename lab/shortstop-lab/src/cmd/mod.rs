//! The command line: one module per subcommand, each with its `Args` and `run`.

mod bench;
mod compare;
mod down;
mod exec;
mod experiment;
mod hunt;
mod list;
mod of_discipline;
mod resources;
mod roles;
mod run;
mod running;
mod store;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::command_line::CommandLine;

/// Racks of network namespaces on this machine: try shortstop out, measure it, reproduce
/// the papers.
///
/// Labs need root and iproute2; most experiments also run in the simulator, without privilege.
/// Everything a lab makes is removed when it ends, also after a crash.
#[derive(Parser)]
#[command(
    name = "shortstop-lab",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
    shortstop-lab list\n  \
    shortstop-lab run demo\n  \
    shortstop-lab up rack\n  \
    shortstop-lab exec client1 -- ping -c 3 10.0.3.1\n  \
    shortstop-lab down"
)]
pub struct Cli {
    /// What to log to standard error: error, warn, info, debug, or a filter such as `store=debug`.
    #[arg(long, global = true, env = "SHORTSTOP_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::Args),
    Run(run::Args),
    Compare(compare::Args),
    Hunt(hunt::Args),
    Bench(bench::Args),
    Figures(figures::Args),
    Resources(resources::Args),
    Up(up::Args),
    Exec(exec::Args),
    Down(down::Args),
    Store(Box<store::Args>),
    /// Offer load as a configuration says (used by experiments).
    #[command(hide = true)]
    Load(roles::Load),
    #[command(flatten)]
    OfDiscipline(of_discipline::Command),
    /// Be clients that record what they see, until standard input ends (used by experiments).
    #[command(hide = true)]
    Clients(roles::Clients),
    /// Be clients that send commands of Redis and record what they see, until standard input ends
    /// (used by experiments).
    #[command(hide = true)]
    Commands(roles::Clients),
    /// Be a faulty link between two interfaces (used by topologies).
    #[command(hide = true)]
    Link(roles::FaultyLink),
}

impl CommandLine for Cli {
    const NAME: &'static str = "shortstop-lab";
    /// Whole racks run in its process.
    const LOG: &'static str = "warn";

    fn log(&self) -> Option<&str> {
        let of_what_is_simulated = match &self.command {
            Command::Run(args) => args.is_simulated(),
            Command::Hunt(_) => true,
            _ => false,
        };
        // The simulated systems meet faults all the time: what they warn of is no news.
        self.log.as_deref().or(of_what_is_simulated.then_some("error"))
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List(args) => list::run(&args),
            Command::Run(args) => run::run(args),
            Command::Compare(args) => compare::run(args),
            Command::Hunt(args) => hunt::run(&args),
            Command::Bench(args) => bench::run(args),
            Command::Figures(args) => figures::run(args),
            Command::Resources(args) => resources::run(args),
            Command::Up(args) => up::run(&args),
            Command::Exec(args) => exec::run(args),
            Command::Down(args) => down::run(&args),
            Command::Store(args) => store::run(*args),
            Command::Load(args) => roles::offer_load(&args),
            Command::OfDiscipline(command) => command.run(),
            Command::Clients(args) => roles::be_clients(&args),
            Command::Commands(args) => roles::be_command_clients(&args),
            Command::Link(args) => roles::be_faulty_link(&args),
        }
    }
}
