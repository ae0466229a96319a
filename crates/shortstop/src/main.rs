//! The one binary: every role of shortstop is a subcommand, and each subcommand is one file in `cmd/`.

mod cmd;

use std::process::ExitCode;

use clap::Parser;

/// Status of a command line that is not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match cmd::Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version, on standard output; help for want of a subcommand.
        Err(error) if error.exit_code() == 0 || is_help(&error) => error.exit(),
        Err(error) => {
            eprintln!("shortstop: {}", one_line(&error.to_string()));
            return ExitCode::from(USAGE);
        }
    };
    let failure = cli.failure();
    match cmd::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shortstop: {error:#}");
            failure
        }
    }
}

fn is_help(error: &clap::Error) -> bool {
    error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What is wrong, and what is possible instead, without usage and advice, which `--help` has.
fn one_line(error: &str) -> String {
    let parts: Vec<&str> = error
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .take_while(|line| !line.starts_with("Usage:"))
        .collect();
    let line = parts.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_string() + "; see --help"
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_wrong_option_is_one_line() {
        let error = "error: invalid value 'x' for '--kind <KIND>'\n  [possible values: own, lent]\n\n\
                     For more information, try '--help'.\n";
        assert_eq!(
            super::one_line(error),
            "invalid value 'x' for '--kind <KIND>' [possible values: own, lent]; see --help"
        );
        let error =
            "error: the following required arguments were not provided:\n  <KEY>\n\nUsage: x\n";
        assert_eq!(
            super::one_line(error),
            "the following required arguments were not provided: <KEY>; see --help"
        );
    }
}
