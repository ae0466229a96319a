//! The program under test.

use std::process::Command;

/// That of labs.
pub fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shortstop-lab"));
    command.args(words).env_remove("SHORTSTOP_LOG");
    command
}
