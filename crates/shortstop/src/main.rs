//! The one binary: every role of shortstop is a subcommand, and each subcommand is one file in `cmd/`.

mod cmd;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = cmd::Cli::parse();
    match cmd::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shortstop: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
