//! Experiments in the simulator: what they need, that a seed says everything, and that what they
//! claim comes out.
//!
//! One of the slow tests: the quick runs are minutes of work for two threads, two fifths of it
//! `kv-accuracy`, `kv-scale` and `kv-writes`. What an experiment claims is about whole systems
//! under load for seconds, and millions of packets are what that takes.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use disciplines_experiments::experiments;
use experiments::{Backend, Experiment, Options};

/// What takes longest is begun first, lest one thread ends alone.
const LONGEST: [&str; 11] = [
    "orbit-chance",
    "workloads",
    "latency",
    "orbit-sizing",
    "kv-scale",
    "kv-accuracy",
    "kv-writes",
    "kv-skew",
    "madinc-users",
    "large-values",
    "kv-valuesize",
];

fn options(seed: u64) -> Options {
    Options::simulated(seed, disciplines::all())
}

fn find(name: &str) -> Experiment {
    let mut all = experiments().unwrap().into_iter();
    all.find(|experiment| experiment.name == name).unwrap()
}

/// The report as it is written: JSON, table and plots.
fn written(name: &str, seed: u64) -> String {
    let report = find(name).run(&options(seed)).unwrap();
    let json = serde_json::to_string_pretty(&report).unwrap();
    format!("{json}\n{}\n{:?}", report.text, report.plots)
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    for name in ["demo", "madinc-hops", "near"] {
        let first = written(name, 1);
        assert!(first.contains("\"world\": \"sim\""), "{first}");
        assert_eq!(first, written(name, 1), "{name}");
        assert_ne!(first, written(name, 2), "{name}");
    }
}

#[test]
fn only_what_needs_a_kernel_is_kept_out_of_the_simulator() {
    let all = experiments().unwrap();
    let needs = all.iter().filter_map(|experiment| {
        let needs = experiment.needs(&options(1)).unwrap()?;
        Some((experiment.name.as_str(), needs))
    });
    assert_eq!(
        needs.collect::<Vec<_>>(),
        [
            ("outside-writes", "Redis"),
            ("backends", "Redis"),
            ("eviction", "Redis and memcached"),
            ("cluster-moves", "Redis"),
            ("hot-shard", "Redis"),
            ("placement", "Redis, memcached and twemproxy"),
            ("controller-failover", "etcd"),
            ("restarts", "Redis and etcd"),
            ("coord-vs-etcd", "etcd"),
        ]
    );
    let real = Options { backend: Backend::Memcached, ..options(1) };
    assert_eq!(find("demo").needs(&real).unwrap(), Some("memcached"));
}

/// Runs the quick form of experiments, those first that take longest; gives what failed.
fn failures(mut all: Vec<Experiment>, options: &Options) -> Vec<String> {
    all.sort_by_key(|experiment| {
        let rank = LONGEST.iter().position(|name| *name == experiment.name);
        rank.unwrap_or(LONGEST.len())
    });
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(vec![]);
    let work = || {
        while let Some(experiment) = all.get(next.fetch_add(1, SeqCst)) {
            let failure = match experiment.run(options) {
                Ok(report) => report.failure,
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(failure) = failure {
                let name = &experiment.name;
                failed.lock().unwrap().push(format!("{name}: {failure}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    failed.into_inner().unwrap()
}

/// Those that need no kernel. The hunt goes through seeds, in a test of its own.
fn simulated() -> Vec<Experiment> {
    let needs_nothing = |experiment: &Experiment| {
        experiment.name != "coherence" && experiment.needs(&options(1)).unwrap().is_none()
    };
    experiments().unwrap().into_iter().filter(needs_nothing).collect()
}

/// The quick run of every experiment that needs no kernel: what its file claims comes out, and
/// nothing was counted that must never be. `docs/simulator.md` lists them.
#[test]
fn what_experiments_claim_comes_out() {
    let all = simulated();
    for experiment in &all {
        assert!(experiment.claims_something(), "{}", experiment.name);
    }
    let failed = failures(all, &options(1));
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A claim that comes out although what it is about is off says nothing. Those of the kernel's
/// world and of full runs alone are listed below.
#[test]
fn nothing_of_what_experiments_claim_comes_out_with_the_mechanism_off() {
    let mut all = simulated();
    all.retain(|experiment| experiment.can_be_idle().unwrap().is_ok());
    let failed = failures(all, &Options { idle: true, ..options(1) });
    assert!(failed.is_empty(), "{failed:#?}");
}

/// With its mechanism off a run says nothing unless something is claimed that the mechanism does.
#[test]
fn who_can_be_idle_claims_an_effect() {
    for experiment in experiments().unwrap() {
        let can_be_idle = experiment.can_be_idle().unwrap().is_ok();
        assert!(!can_be_idle || experiment.claims_an_effect(), "{}", experiment.name);
    }
}

/// What no run here shows to hang on a mechanism: it is known by name, and the list stays short.
#[test]
fn what_hangs_on_no_mechanism_is_known_by_name() {
    let all = experiments().unwrap();
    let never = all.iter().filter(|experiment| experiment.can_be_idle().unwrap().is_err());
    let never: Vec<&str> = never.map(|experiment| &*experiment.name).collect();
    assert_eq!(
        never,
        [
            "outside-writes",
            "backends",
            "cluster-moves",
            "placement",
            "coherence",
            "restarts",
            "many-cores",
            "coord-vs-etcd"
        ]
    );
    let in_the_kernel = all.iter().filter(|experiment| {
        let needs = experiment.needs(&options(1)).unwrap();
        needs.is_some() && experiment.can_be_idle().unwrap().is_ok()
    });
    let in_the_kernel: Vec<&str> = in_the_kernel.map(|experiment| &*experiment.name).collect();
    assert_eq!(in_the_kernel, ["eviction", "hot-shard", "controller-failover"]);
    let elsewhere =
        all.iter().filter(|experiment| experiment.needs(&options(1)).unwrap().is_none());
    let elsewhere: Vec<String> = elsewhere
        .flat_map(|experiment| {
            let claims = experiment.claims_elsewhere().into_iter();
            claims.map(|claim| format!("{}: {claim}", experiment.name))
        })
        .collect();
    assert_eq!(
        elsewhere,
        [
            "near: p99_over_direct",
            "near: throughput_gain",
            "near: throughput_gain_uniform_writes",
            "madinc-users: closed_loop_64_over_1",
            "kv-skew: hot_keys_used_of_1000",
            "kv-accuracy: accuracy_top_100",
            "kv-accuracy: accuracy_top_10000",
        ]
    );
}

/// `docs/simulator.md` says of each experiment which test guards it.
#[test]
fn the_document_says_what_guards_each_experiment() {
    let page = include_str!("../../../docs/simulator.md");
    for experiment in experiments().unwrap() {
        let row = format!("| `{}` |", experiment.name);
        assert!(page.contains(&row), "{row}");
    }
}

/// `make figures` runs what `docs/figures.md` names.
#[test]
fn every_experiment_has_its_figures() {
    let page = include_str!("../../../docs/figures.md");
    for experiment in experiments().unwrap() {
        let world = match experiment.needs(&options(1)).unwrap() {
            None => " --world sim",
            Some(_) => "",
        };
        let command = format!("`shortstop-lab run {} --quick{world}`", experiment.name);
        assert!(page.contains(&command), "{command}");
    }
}

/// A file of Twitter's format with a key that half of its reads are of: who caches answers these,
/// and the rack carries more.
#[test]
fn a_recorded_trace_is_played_to_what_stands_before_servers() {
    use std::fmt::Write;
    let mut text = String::new();
    for number in 0..20_000 {
        let (hot, op) = (number % 2 == 0, if number % 20 == 1 { "set" } else { "get" });
        let key = if hot { 0 } else { 1 + number * 7919 % 2000 };
        let value_len = 40 + key % 1000;
        writeln!(text, "{},k,{key},5,{value_len},7,{op},0", number / 1000).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hot.csv");
    std::fs::write(&path, text).unwrap();
    let mut experiment = find("workloads");
    let quoted = serde_json::Value::from(path.to_str().unwrap());
    let workload = format!("[{{ name = \"hot\", trace = {quoted} }}]");
    experiment.set_elsewhere("axes.workload", &workload).unwrap();
    experiment.set("axes.system", "[{ name = \"none\" }, { name = \"netcache\" }]").unwrap();
    let report = experiment.run(&options(1)).unwrap();
    assert_eq!(report.failure, None);
    let [none, cached] = [&report.rows[0], &report.rows[1]];
    assert_eq!(none["keys"], cached["keys"]);
    assert_eq!(none["requests"]["writes"], 1000);
    assert_eq!(none["hit_ratio"], 0.0);
    let hits = cached["hit_ratio"].as_f64().unwrap();
    assert!(hits > 0.5, "{hits}");
    let gain = report.summary["netcache_over_none_hot"].as_f64().unwrap();
    assert!(gain > 1.5, "{gain}");
    assert_eq!(report.summary["use_hot"], "netcache");
}
