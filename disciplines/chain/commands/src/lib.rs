//! `shortstop coord`: keys, locks and elections of tenants whose keys chains of switches hold. The
//! registry of disciplines hands [`COORD`] to the program.

#![deny(clippy::print_stdout)]

mod hold;
mod identity;
mod keys;
mod list;
mod reach;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use commands::{CommandArgs, DisciplineCommand};

/// The command.
pub const COORD: DisciplineCommand = DisciplineCommand::of::<Args>();

/// Read, write and watch keys that switches hold, take locks and stand for elections. Exit status:
/// 0 if it was done, 1 if not (no such key, the condition does not hold, others have the lock), 2
/// after any failure.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord put --cluster shop.toml --tenant 7 leader.url http://10.0.0.8\n  \
    shortstop coord lock --cluster shop.toml --tenant 7 nightly \\\n      -- /usr/local/bin/report"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Get(keys::Get),
    Put(keys::Put),
    Cas(keys::Cas),
    Delete(keys::Delete),
    List(list::Args),
    Lock(hold::Lock),
    Elect(hold::Elect),
    Watch(watch::Args),
}

impl CommandArgs for Args {
    const NAME: &'static str = "coord";
    /// 1 says that something was not done.
    const FAILURE: u8 = 2;

    fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Get(args) => keys::get(args),
            Command::Put(args) => keys::put(args),
            Command::Cas(args) => keys::cas(args),
            Command::Delete(args) => keys::delete(args),
            Command::List(args) => list::run(args),
            Command::Lock(args) => hold::lock(args),
            Command::Elect(args) => hold::elect(args),
            Command::Watch(args) => watch::run(args),
        }
    }
}
