//! What experiments of disciplines start as processes of a lab, as the registry has them.

use std::process::ExitCode;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand, error::ErrorKind};
use disciplines_experiments::PAPERS;
use lab::steered::Program;

use super::roles::Clients;

/// One of them, with its configuration.
pub struct Command {
    program: &'static Program,
    args: Clients,
}

impl Command {
    /// Is that process.
    ///
    /// # Errors
    /// The configuration cannot be read, or the process fails.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.args.be(self.program)
    }
}

fn all() -> impl Iterator<Item = &'static Program> {
    PAPERS.iter().flat_map(|paper| paper.programs)
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        let unknown = || clap::Error::new(ErrorKind::InvalidSubcommand);
        let (name, of_command) = matches.subcommand().ok_or_else(unknown)?;
        let found = all().find(|program| program.command == name);
        Ok(Command {
            program: found.ok_or_else(unknown)?,
            args: Clients::from_arg_matches(of_command)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Command::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(program: clap::Command) -> clap::Command {
        let define = |of: &'static Program| {
            let command = Clients::augment_args(clap::Command::new(of.command));
            command.about(of.about).hide(true)
        };
        program.subcommands(all().map(define))
    }

    fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
        Command::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        all().any(|program| program.command == name)
    }
}
