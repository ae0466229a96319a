//! What the commands that run experiments share.

use anyhow::{Context, bail};
use disciplines_experiments::experiments;
use experiments::{Experiment, Options, Report, World};
use lab::{interrupt, state::State};

/// The experiment of this name, about another discipline if one is given.
///
/// # Errors
/// There is no such experiment, or discipline.
pub fn find(name: &str, discipline: Option<&str>) -> anyhow::Result<Experiment> {
    let mut all = experiments()?;
    let Some(at) = all.iter().position(|experiment| experiment.name == name) else {
        let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        bail!("experiment {name}: there is none; known are {}", names.join(", "));
    };
    let mut experiment = all.swap_remove(at);
    if let Some(name) = discipline {
        let known = disciplines::find(name);
        experiment.discipline = known
            .with_context(|| format!("discipline {name}: this build has none of that name"))?
            .name
            .into();
    }
    Ok(experiment)
}

/// Runs an experiment; what a lab leaves is removed, also after an interruption.
///
/// # Errors
/// Those of the experiment.
pub fn run_in(experiment: &Experiment, options: &Options) -> anyhow::Result<Report> {
    interrupt::install();
    if options.world == World::Kernel {
        State::remove_stale();
    }
    experiment.run(options)
}
