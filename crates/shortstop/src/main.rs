//! The program that runs on machines: every role of shortstop is a subcommand.

#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::command_line::main::<shortstop::cmd::Cli>(std::env::args_os())
}
