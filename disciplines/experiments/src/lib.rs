//! The registry's other half, for whoever measures: which experiments are about which discipline, and what disciplines would need on a
//! switch chip. What runs on machines does without.

mod resources;

use experiments::{Experiment, Registered};

pub use self::resources::{pipeline, published};

/// Those of papers, each with the discipline that they are about; a discipline without experiments has no line.
const OF_PAPERS: &[(&[Registered], &str)] = &[
    (netcache_experiments::EXPERIMENTS, "netcache"),
    (madinc_experiments::EXPERIMENTS, "madinc"),
    (orbitcache_experiments::EXPERIMENTS, "orbitcache"),
    (kvswitch_experiments::EXPERIMENTS, "kvswitch"),
    (chain_experiments::EXPERIMENTS, "netcraq"),
];

/// Those of no paper, each with the discipline that it is run with unless told otherwise.
const OF_NO_PAPER: &[(Registered, &str)] = &[
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

/// Every experiment that this build knows, in the order in which they are listed.
///
/// # Errors
/// One whose file is wrong.
pub fn experiments() -> anyhow::Result<Vec<Experiment>> {
    let of_no_paper = OF_NO_PAPER.iter().map(|(one, about)| (one, *about));
    let of_papers = OF_PAPERS
        .iter()
        .flat_map(|(own, about)| own.iter().map(|one| (one, *about)));
    let mut all = vec![];
    for (registered, about) in of_no_paper.chain(of_papers) {
        all.push(Experiment::of(registered, about)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_have_names_of_their_own_and_disciplines_that_exist() {
        let all = experiments().unwrap();
        let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "demo",
                "outside-writes",
                "large-values",
                "coherence",
                "tenant-isolation",
                "work-conserving",
                "controller-failover",
                "silent-link",
                "hostile",
                "write-back",
                "many-cores",
                "netcache-churn",
                "netcache-skew",
                "netcache-writes",
                "madinc-hops",
                "madinc-policies",
                "madinc-users",
                "orbit-skew",
                "orbit-latency",
                "orbit-writes",
                "orbit-servers",
                "orbit-production",
                "orbit-cachesize",
                "orbit-sizes",
                "orbit-churn",
                "kv-skew",
                "kv-accuracy",
                "kv-threshold",
                "kv-valuesize",
                "kv-writes",
                "kv-scale",
                "kv-failures",
                "hybrid",
                "craq-distance",
                "craq-latency",
                "craq-mixed",
                "craq-scale",
                "craq-faults",
                "craq-locks",
                "coord-vs-etcd",
            ]
        );
        let known = |name: &str| disciplines::find(name).is_some();
        assert!(all.iter().all(|e| known(&e.discipline)));
        // Figures go by what files say.
        let ours: toml::Table = toml::from_str(include_str!("../Cargo.toml")).unwrap();
        let mut about = ours["package"]["metadata"]["figures"]["about"].clone();
        let about = about.as_table_mut().unwrap();
        let of_bench = about.remove("bench");
        assert_eq!(of_bench.unwrap().as_str(), Some(disciplines::default().name));
        for experiment in &all {
            let of_file = about.remove(&experiment.name);
            let of_file = of_file.as_ref().and_then(|name| name.as_str());
            let runs = &experiment.runs;
            let says = runs.contains(&experiment.discipline);
            let is_said = of_file.map_or(says, |name| name == experiment.discipline);
            assert!(is_said, "{}: {of_file:?} {runs:?}", experiment.name);
            assert!(
                runs.iter().all(|name| name == "*" || known(name)),
                "{}: {runs:?}",
                experiment.name
            );
        }
        assert!(OF_NO_PAPER.iter().all(|(_, name)| known(name)));
    }
}
