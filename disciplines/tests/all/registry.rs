//! The registry's other half: experiments, and tables on a switch chip.

use disciplines_experiments::{OF_NO_PAPER, experiments};

#[test]
fn experiments_have_names_of_their_own_and_disciplines_that_exist() {
    let all = experiments().unwrap();
    let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "demo",
            "outside-writes",
            "backends",
            "eviction",
            "cluster-moves",
            "hot-shard",
            "placement",
            "large-values",
            "near",
            "coherence",
            "tenant-isolation",
            "work-conserving",
            "controller-failover",
            "silent-link",
            "restarts",
            "hostile",
            "write-back",
            "many-cores",
            "latency",
            "workloads",
            "netcache-churn",
            "netcache-skew",
            "netcache-writes",
            "madinc-hops",
            "madinc-policies",
            "madinc-users",
            "orbit-skew",
            "orbit-chance",
            "orbit-latency",
            "orbit-writes",
            "orbit-servers",
            "orbit-production",
            "orbit-cachesize",
            "orbit-sizes",
            "orbit-sizing",
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
    let ours: toml::Table = toml::from_str(include_str!("../../experiments/Cargo.toml")).unwrap();
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
