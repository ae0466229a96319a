//! Commands that disciplines bring: `shortstop NAME ...` of what is a discipline's own.

use std::process::ExitCode;

use clap::ArgMatches;

/// The command line of a discipline's command, and what it does.
pub trait CommandArgs: clap::Args + 'static {
    /// The command's name; no other command has it.
    const NAME: &'static str;
    /// The exit status of a failure.
    const FAILURE: u8;

    /// Does what was asked. Errors are for the user to read; the exit code is the command's own
    /// otherwise.
    ///
    /// # Errors
    /// What went wrong, to be read by the user.
    fn run(self) -> anyhow::Result<ExitCode>;
}

/// A command as its discipline registers it.
pub struct DisciplineCommand {
    /// Its name.
    pub name: &'static str,
    /// The exit status of a failure.
    pub failure: u8,
    define: fn(clap::Command) -> clap::Command,
    read: fn(&ArgMatches) -> Result<Run, clap::Error>,
}

/// What a command line asks for, once it is read.
pub type Run = Box<dyn FnOnce() -> anyhow::Result<ExitCode>>;

impl DisciplineCommand {
    /// The command with this command line.
    pub const fn of<A: CommandArgs>() -> DisciplineCommand {
        DisciplineCommand {
            name: A::NAME,
            failure: A::FAILURE,
            define: A::augment_args,
            read: |matches| {
                let args = A::from_arg_matches(matches)?;
                Ok(Box::new(|| args.run()))
            },
        }
    }

    /// Its options and its help.
    pub fn define(&self) -> clap::Command {
        (self.define)(clap::Command::new(self.name))
    }

    /// What the words behind its name ask for.
    ///
    /// # Errors
    /// They are of another command.
    pub fn read(&self, matches: &ArgMatches) -> Result<Run, clap::Error> {
        (self.read)(matches)
    }
}
