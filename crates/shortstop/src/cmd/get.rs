use std::process::ExitCode;

/// To come.
#[derive(clap::Args)]
pub struct Args {}

/// To come.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
