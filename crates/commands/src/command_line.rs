//! What the command lines of `shortstop` and `shortstop-lab` have in common: errors of one line,
//! the exit status, the log.

use std::{io::IsTerminal, process::ExitCode};

use anyhow::{anyhow, bail};
use clap::Parser;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::output::is_unread;

/// Status of a command line that is not understood.
const USAGE: u8 = 2;
/// As a shell says of a command that SIGPIPE has ended.
const UNREAD: u8 = 128 + 13;

/// A program's command line.
pub trait CommandLine: Parser {
    /// The program's name, before each of its errors.
    const NAME: &'static str;
    /// What is logged unless the command line says otherwise; on a terminal it is `info`.
    const LOG: &'static str;

    /// The log's filter, if one was given.
    fn log(&self) -> Option<&str>;

    /// The exit status of a failure.
    fn failure(&self) -> ExitCode {
        ExitCode::FAILURE
    }

    /// Does what was asked. Errors are for the user to read; the exit code is the command's own
    /// otherwise.
    ///
    /// # Errors
    /// What went wrong, to be read by the user.
    fn run(self) -> anyhow::Result<ExitCode>;
}

/// Reads the command line from these words, the first of which is the program, and does what it
/// says.
pub fn main<C: CommandLine>(words: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let line = match C::try_parse_from(words) {
        Ok(line) => line,
        // Help and version, on standard output; help for want of a subcommand.
        Err(error) if error.exit_code() == 0 || is_help(&error) => error.exit(),
        Err(error) => {
            eprintln!("{}: {}", C::NAME, one_line(&error.to_string()));
            return ExitCode::from(USAGE);
        }
    };
    let failure = line.failure();
    match log_to_stderr(line.log(), C::LOG).and_then(|()| line.run()) {
        Ok(code) => code,
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            eprintln!("{}: {}", C::NAME, with_causes(&error));
            failure
        }
    }
}

/// From here on, ends quietly when whoever reads the output stops (`| head`). For commands that do
/// nothing more than print: a server or a lab would be killed by any peer that closes its
/// connection.
pub fn end_when_unread() {
    // SAFETY: sets a default action; no handler of ours can run.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From here on, memory of 128 KiB and more goes back to the system when it is freed. Otherwise the
/// allocator keeps ever larger pieces back, between which little else fits: what a server holds is
/// not bounded by what it counts then. Does nothing where the C library has no such setting.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator's own, under its lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10)
    };
}

fn log_to_stderr(filter: Option<&str>, unattended: &str) -> anyhow::Result<()> {
    let on_terminal = std::io::stderr().is_terminal();
    let filter = filter.filter(|filter| !filter.is_empty());
    let targets = targets(filter.unwrap_or(if on_terminal { "info" } else { unattended }))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(on_terminal)
        .with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
    Ok(())
}

/// What a filter lets through. By itself any word would be taken for a target, and nothing else
/// logged.
fn targets(filter: &str) -> anyhow::Result<Targets> {
    const EXPECTED: &str = "expected error, warn, info, debug, trace, off or TARGET=LEVEL";
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let is_one = |part: &str| part.contains('=') || part.contains("::") || is_level(part);
    if !filter.split(',').all(is_one) {
        bail!("--log {filter:?}: {EXPECTED}");
    }
    filter.parse().map_err(|e| anyhow!("--log {filter:?}: {e}; {EXPECTED}"))
}

fn is_help(error: &clap::Error) -> bool {
    error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// An error with its causes, each said once: many errors have their cause in their text.
fn with_causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match line.is_empty() {
            true => line = cause,
            false if line.contains(&cause) => {}
            false => line = format!("{line}: {cause}"),
        }
    }
    line
}

/// What is wrong, and what is possible instead, without usage and advice, which `--help` has.
fn one_line(error: &str) -> String {
    let parts: Vec<&str> = error
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .take_while(|line| !line.starts_with("Usage:"))
        .collect();
    let line = parts.join(" ").replace("invalid digit found in string", "expected a whole number");
    line.strip_prefix("error: ").unwrap_or(&line).to_string() + "; see --help"
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cause_is_said_once() {
        let refused = std::io::Error::other("refused");
        let error = anyhow::Error::from(refused).context("cannot connect: refused; is it up?");
        let error = error.context("--backend x");
        assert_eq!(super::with_causes(&error), "--backend x: cannot connect: refused; is it up?");
        let error = anyhow::Error::msg("refused").context("--backend x");
        assert_eq!(super::with_causes(&error), "--backend x: refused");
    }

    #[test]
    fn a_wrong_option_is_one_line() {
        let error = "error: invalid value 'x' for '--kind <KIND>'\n  [possible values: own, lent]\n\n\
                     For more information, try '--help'.\n";
        assert_eq!(
            super::one_line(error),
            "invalid value 'x' for '--kind <KIND>' [possible values: own, lent]; see --help"
        );
        let error = "error: invalid value 'x' for '<ID>': invalid digit found in string\n";
        assert_eq!(
            super::one_line(error),
            "invalid value 'x' for '<ID>': expected a whole number; see --help"
        );
        let error =
            "error: the following required arguments were not provided:\n  <KEY>\n\nUsage: x\n";
        assert_eq!(
            super::one_line(error),
            "the following required arguments were not provided: <KEY>; see --help"
        );
    }
}
