//! `figures` as a program of its own, until it is a subcommand.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: figures::Args,
}

fn main() -> anyhow::Result<ExitCode> {
    figures::run(Program::parse().args)
}
