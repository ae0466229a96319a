//! The two programs under test.

use std::{path::PathBuf, process::Command};

/// That of labs.
pub fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shortstop-lab"));
    command.args(words).env_remove("SHORTSTOP_LOG");
    command
}

/// Where that of users is: beside the other, as labs look for it. Cargo builds it for this crate only when told to.
pub fn shortstop() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_shortstop-lab")).with_file_name("shortstop");
    assert!(
        path.exists(),
        "{}: these tests run it: build it first, with `cargo build`",
        path.display()
    );
    path
}
