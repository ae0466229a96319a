//! The C as an ordinary program under sanitizers: kept scripts of packets, then noise, with records
//! of replicas, judged by the oracle of the data plane and by `tests/fuzz.h`. `make fuzz` searches
//! for longer.
//!
//! Slow by the standards of this crate: the C is compiled with sanitizers, and some hundred
//! thousand packets go through it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// Noisy inputs, each some dozen packets.
const NOISE: &str = "30000";
/// Ends of what is about replicas.
const REACHED: [&str; 6] = [
    "redirect",
    "redirect_invalid",
    "replica_update",
    "replica_round",
    "replica_confirm",
    "replica_drop",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn must(command: &mut Command) -> String {
    let output = command.current_dir(root()).output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}\n{err}");
    out.into_owned()
}

#[test]
fn kept_scripts_and_noise_violate_nothing_and_reach_what_is_about_replicas() {
    let build = ["replay", "disciplines/kvswitch/kvswitch.bpf.c"];
    must(Command::new("fuzz/build").args(build));
    let kept = std::fs::read_dir(root().join("fuzz/corpus/data_plane")).expect("the kept scripts");
    let mut kept: Vec<_> = kept.map(|file| file.expect("readable").path()).collect();
    kept.sort();
    let mut replay = Command::new("target/fuzz/replay-kvswitch");
    let report = must(replay.args(["--noise", NOISE]).args(kept));
    let lines = report.lines().filter_map(|line| line.split_once(' '));
    let counts: BTreeMap<&str, &str> = lines.collect();
    for name in REACHED {
        let count = counts.get(name).and_then(|count| count.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 0), "{name}: {count:?}");
    }
}
