//! The registry's other half, for whoever measures: which experiments are about which discipline,
//! and what disciplines would need on a switch chip. What runs on machines does without.

mod resources;

use experiments::{Definition, Experiment};
use lab::steered::Program;

pub use self::resources::{PIPELINES, pipeline, published};

/// Those of papers, each with the discipline that they are about; a discipline without experiments
/// has no line.
const OF_PAPERS: &[(&[Definition], &str)] = &[
    (netcache_experiments::EXPERIMENTS, "netcache"),
    (madinc_experiments::EXPERIMENTS, "madinc"),
    (orbitcache_experiments::EXPERIMENTS, "orbitcache"),
    (kvswitch_experiments::EXPERIMENTS, "kvswitch"),
    (chain_experiments::EXPERIMENTS, "netcraq"),
];

/// Those of no paper, each with the discipline that it is run with unless told otherwise.
pub const OF_NO_PAPER: &[(Definition, &str)] = &[
    (experiments::DEMO, "netcache"),
    (experiments::OUTSIDE_WRITES, "netcache"),
    (experiments::LARGE_VALUES, "netcache"),
    (experiments::COHERENCE, "netcache"),
    (experiments::TENANT_ISOLATION, "madinc"),
    (experiments::WORK_CONSERVING, "madinc"),
    (experiments::CONTROLLER_FAILOVER, "madinc"),
    (experiments::SILENT_LINK, "netcache"),
    (experiments::HOSTILE, "netcache"),
    (experiments::WRITE_BACK, "netcache"),
    (experiments::MANY_CORES, "netcache"),
];

/// The processes that experiments of disciplines start beside those of the lab.
pub const PROGRAMS: &[&[Program]] = &[chain_loads::PROGRAMS];

/// Every experiment that this build knows, in the order in which they are listed.
///
/// # Errors
/// One whose file is wrong.
pub fn experiments() -> anyhow::Result<Vec<Experiment>> {
    let of_no_paper = OF_NO_PAPER.iter().map(|(one, about)| (one, *about));
    let of_papers = OF_PAPERS.iter().flat_map(|(own, about)| own.iter().map(|one| (one, *about)));
    let mut all = vec![];
    for (definition, about) in of_no_paper.chain(of_papers) {
        all.push(Experiment::of(definition, about)?);
    }
    Ok(all)
}
