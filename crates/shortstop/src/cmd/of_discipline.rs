//! The commands that disciplines bring, as the registry has them.

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches, Subcommand, error::ErrorKind};
use commands::{DisciplineCommand, Run};

/// One of them, with what was asked of it.
pub struct Command {
    registered: &'static DisciplineCommand,
    run: Run,
}

impl Command {
    /// The exit status of a failure.
    pub fn failure(&self) -> ExitCode {
        ExitCode::from(self.registered.failure)
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// What went wrong, to be read by the user.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        (self.run)()
    }
}

fn find(name: &str) -> Option<&'static DisciplineCommand> {
    disciplines::COMMANDS.iter().find(|one| one.name == name)
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        let unknown = || clap::Error::new(ErrorKind::InvalidSubcommand);
        let (name, of_command) = matches.subcommand().ok_or_else(unknown)?;
        let registered = find(name).ok_or_else(unknown)?;
        Ok(Command { registered, run: registered.read(of_command)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Command::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(program: clap::Command) -> clap::Command {
        let all = disciplines::COMMANDS.iter().map(DisciplineCommand::define);
        program.subcommands(all)
    }

    fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
        Command::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}
