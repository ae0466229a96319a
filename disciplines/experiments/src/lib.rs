//! The registry's other half, for whoever measures: what each discipline's folder has of
//! experiments, and of tables on a switch chip. What runs on machines does without.

#![deny(unsafe_code)]

use experiments::{
    Definition, Experiment, Kind, Paper, Restarts,
    systems::{LatencyPoint, WorkloadPoint},
    tenants::{Failover, Hostile, Neighbour, Neighbours},
};

/// One line each; a discipline of which nothing is measured has none.
pub const PAPERS: &[Paper] = &[
    netcache_experiments::PAPER,
    madinc_experiments::PAPER,
    orbitcache_experiments::PAPER,
    kvswitch_experiments::PAPER,
    chain_experiments::PAPER,
];

/// Those of no paper, each with the discipline that it is run with unless told otherwise.
pub const OF_NO_PAPER: &[(Definition, &str)] = &[
    (experiments::DEMO, "netcache"),
    (experiments::OUTSIDE_WRITES, "netcache"),
    (experiments::BACKENDS, "netcache"),
    (experiments::EVICTION, "netcache"),
    (experiments::CLUSTER_MOVES, "netcache"),
    (experiments::HOT_SHARD, "netcache"),
    (experiments::PLACEMENT, "netcache"),
    (experiments::LARGE_VALUES, "netcache"),
    (experiments::NEAR, "netcache"),
    (experiments::COHERENCE, "netcache"),
    (experiments::TENANT_ISOLATION, "madinc"),
    (experiments::WORK_CONSERVING, "madinc"),
    (CONTROLLER_FAILOVER, "madinc"),
    (experiments::SILENT_LINK, "netcache"),
    (RESTARTS, "netcache"),
    (HOSTILE, "netcache"),
    (experiments::WRITE_BACK, "netcache"),
    (experiments::MANY_CORES, "netcache"),
    (LATENCY, "netcache"),
    (WORKLOADS, "netcache"),
];

/// Every experiment that this build knows, in the order in which they are listed.
///
/// # Errors
/// One whose file is wrong.
pub fn experiments() -> anyhow::Result<Vec<Experiment>> {
    let of_no_paper = OF_NO_PAPER.iter().map(|(one, about)| (one, *about));
    let of_papers = PAPERS.iter().flat_map(|paper| {
        paper.experiments.iter().map(|experiment| (experiment, paper.discipline))
    });
    let mut all = vec![];
    for (definition, about) in of_no_paper.chain(of_papers) {
        all.push(Experiment::of(definition, about)?);
    }
    Ok(all)
}

/// Whatever else than load at stores the disciplines of this build can put beside tenants.
pub struct OfThisBuild;

impl Neighbours for OfThisBuild {
    fn all() -> Vec<&'static Neighbour> {
        PAPERS.iter().filter_map(|paper| paper.neighbour.as_ref()).collect()
    }
}

/// Well-behaved tenants beside others that attack what tenants share.
const HOSTILE: Definition =
    Definition { toml: experiments::HOSTILE, kind: &Kind::of::<Hostile<OfThisBuild>>("hostile") };

/// Every role that leaves in order and comes back, beside keys that are at no store.
const RESTARTS: Definition = Definition {
    toml: experiments::RESTARTS,
    kind: &Kind::of::<Restarts<OfThisBuild>>("restarts"),
};

/// Leaders of several controllers that are killed again and again.
const CONTROLLER_FAILOVER: Definition =
    Definition { toml: include_str!("../failover.toml"), kind: &Kind::of::<Failover>("failover") };

/// Latency over throughput of servers alone and behind each discipline, on one rack.
const LATENCY: Definition =
    Definition { toml: include_str!("../latency.toml"), kind: &Kind::sweep::<LatencyPoint>() };

/// Saturation throughput of servers alone and behind each discipline, under published workloads and
/// traces.
const WORKLOADS: Definition =
    Definition { toml: include_str!("../workloads.toml"), kind: &Kind::sweep::<WorkloadPoint>() };
