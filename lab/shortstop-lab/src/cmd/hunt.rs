//! `shortstop-lab hunt`: the crate `hunt` for as long as somebody likes.

use std::process::ExitCode;

use experiments::{Backend, Options, World};

use super::experiment::{find, run_in};

/// Put whole systems in the simulator under every fault, seed after seed, until something is wrong
/// or it is stopped.
///
/// The experiment `coherence` in the simulator, without an end: what fails leaves its plan, the
/// smallest that still fails, and the line that runs it again.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shortstop-lab hunt\n  shortstop-lab hunt --seed 5000 --seeds 1000"
)]
pub struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds; 0: until it is stopped.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seeds: u64,
}

/// Hunts.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = Options {
        idle: false,
        quick: false,
        seed: args.seed,
        seeds: args.seeds,
        backend: Backend::Embedded,
        name: None,
        world: World::Sim,
        disciplines: disciplines::all(),
    };
    let report = run_in(&find("coherence", None)?, &options)?;
    println!("{}", report.text);
    if let Some(failure) = report.failure {
        anyhow::bail!("{failure}");
    }
    Ok(ExitCode::SUCCESS)
}
