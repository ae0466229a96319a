//! Experiments in the simulator: what they need, and that a seed says everything.

use disciplines::experiments;
use experiments::{Backend, Experiment, Options, World};

fn options(seed: u64) -> Options {
    Options {
        quick: true,
        seed,
        seeds: 1,
        backend: Backend::Embedded,
        name: None,
        world: World::Sim,
        disciplines: disciplines::all(),
    }
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
            ("tenant-isolation", "CPUs that tenants share"),
            ("controller-failover", "etcd"),
        ]
    );
    let real = Options {
        backend: Backend::Memcached,
        ..options(1)
    };
    assert_eq!(find("demo").needs(&real).unwrap(), Some("memcached"));
}
