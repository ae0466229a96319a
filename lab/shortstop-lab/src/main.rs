//! The program of experiments: labs, measurements, the simulator and its hunt. What runs on
//! machines is `shortstop`.

#![deny(unsafe_code)]

mod cmd;
mod topologies;

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // As people typed it when labs were a subcommand.
    if words.get(1).is_some_and(|word| word == "lab") {
        words.remove(1);
    }
    commands::command_line::main::<cmd::Cli>(words)
}
