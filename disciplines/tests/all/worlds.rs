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
const LONGEST: [&str; 7] = [
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
    for name in ["demo", "madinc-hops"] {
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
            ("controller-failover", "etcd"),
            ("restarts", "Redis and etcd"),
            ("coord-vs-etcd", "etcd"),
        ]
    );
    let real = Options { backend: Backend::Memcached, ..options(1) };
    assert_eq!(find("demo").needs(&real).unwrap(), Some("memcached"));
}

/// The quick run of every experiment that needs no kernel: what its file claims comes out, and
/// nothing was counted that must never be. `docs/simulator.md` lists them.
#[test]
fn what_experiments_claim_comes_out() {
    let all = experiments().unwrap();
    let simulated = |experiment: &&Experiment| experiment.needs(&options(1)).unwrap().is_none();
    // The hunt goes through seeds, in a test of its own.
    let mut all: Vec<&Experiment> =
        all.iter().filter(|experiment| experiment.name != "coherence").filter(simulated).collect();
    all.sort_by_key(|experiment| {
        let rank = LONGEST.iter().position(|name| *name == experiment.name);
        rank.unwrap_or(LONGEST.len())
    });
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(vec![]);
    let work = || {
        while let Some(experiment) = all.get(next.fetch_add(1, SeqCst)) {
            assert!(experiment.claims_something(), "{}", experiment.name);
            let report = experiment.run(&options(1)).unwrap();
            if let Some(failure) = report.failure {
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
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
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
