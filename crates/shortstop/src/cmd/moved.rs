//! Commands that are those of `shortstop-lab` now, under their names of before: `lab`, `bench` and
//! `resources`. Help does not show them; scripts that have them go on working.

use std::{ffi::OsString, os::unix::process::CommandExt, process::ExitCode};

use anyhow::anyhow;

/// Commands that have become those of `shortstop-lab`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Args {
    /// Becomes `shortstop-lab`, which lies beside this program where there is one: what people
    /// typed before goes on working.
    pub fn run(self, before: &[&str]) -> anyhow::Result<ExitCode> {
        let beside = std::env::current_exe()?.with_file_name("shortstop-lab");
        let mut command = std::process::Command::new(beside);
        command.args(before).args(self.words);
        let error = command.exec();
        Err(anyhow!(
            "labs, measurements and experiments are a program of their own, `shortstop-lab`, and it is not beside this one \
             ({error}); `make build` builds both"
        ))
    }
}
