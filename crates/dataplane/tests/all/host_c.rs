//! The data plane's C as an ordinary program under the address and undefined-behaviour sanitizers:
//! the kept scripts of packets, then noise, judged by the oracle in `fuzz/data_plane/oracle.h`.
//! `make fuzz` searches for longer.
//!
//! Among the slowest tests: it compiles the C twice with sanitizers, some ten seconds each, and
//! then runs some hundred thousand inputs in it; both are what finds faults of memory that no other
//! test sees. It is compiled again only when the C has changed.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{LazyLock, Mutex},
};

use dataplane::native::Mutant;

/// Noisy inputs, each some dozen packets.
const NOISE: &str = "60000";
/// Inputs of the search with libFuzzer, which begins with the same ones each time.
const SEARCHED: u32 = 30_000;
/// Mutants that run side by side.
const SIDE_BY_SIDE: usize = 2;

/// Ends that the kept scripts do not reach: `*_contended` needs four swaps in a row to fail; the
/// others are of what the discipline that is built in does not do: `contract.rs` reaches them, and
/// the data-plane tests of the discipline that sends packets round.
const NOT_REACHED: [&str; 28] = [
    "pass_other_mac",
    "write_contended",
    "invalidate_contended",
    "drop_rounds",
    "drop_refused",
    "bypass_no_recirculation",
    "bypass_no_group",
    "bypass_no_step",
    "recirculate",
    "fan_out",
    "answer",
    "consume",
    "round_gone",
    // Nothing is lent here: `lent` does.
    "lent_read",
    "lent_padding",
    "lent_write",
    "lent_answer",
    "lent_other_life",
    "lent_pass",
    "keep",
    "keep_again",
    "keep_pass",
    "drop_keep_old",
    "drop_lent_busy",
    "drop_lent_over",
    "lend",
    "lend_refused",
    "take",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> Output {
    command.current_dir(root()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn must(what: &str, output: Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn scripts() -> Vec<PathBuf> {
    let folder = root().join("fuzz/corpus/data_plane");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|file| file.expect("readable").path())
        .collect();
    files.sort();
    files
}

static BUILT: LazyLock<()> = LazyLock::new(|| {
    let built = run(Command::new("fuzz/build").arg("replay"));
    must("fuzz/build replay", built);
});

/// Runs the kept scripts, then noise, with these options.
fn replay(options: &[&str]) -> Output {
    LazyLock::force(&BUILT);
    run(Command::new("target/fuzz/replay").args(options).args(["--noise", NOISE]).args(scripts()))
}

/// Every harmful mutant of `bpf/mutants.h`, with the input at which the oracle objects; printed
/// also when all is well.
#[test]
fn every_mutant_is_caught() {
    let mutants = Mutex::new(Mutant::harmful());
    let next = || mutants.lock().expect("no panic in between").next();
    std::thread::scope(|scope| {
        let threads = [(); SIDE_BY_SIDE]
            .map(|()| scope.spawn(|| std::iter::from_fn(&next).for_each(is_caught)));
        for thread in threads {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// The oracle ends the replay at the first violation.
fn is_caught(mutant: &Mutant) {
    let Mutant { name, rule, breaks, .. } = mutant;
    let output = replay(&["--mutant", name]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{name}: not caught");
    let line = |wanted: &str| said.lines().find(|line| line.contains(wanted));
    let (violated, input) = (line("violated"), line("in input"));
    let (Some(_), Some(input)) = (violated, input) else {
        panic!("{name}: expected a violation of a rule, not\n{said}");
    };
    let line = format!("rule {rule}: {name} ({breaks}) ... caught {input}");
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

#[test]
fn kept_scripts_and_noise_violate_nothing_and_reach_every_end() {
    let report = must("replay", replay(&[]));
    let reached: BTreeMap<&str, u64> = report
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .collect();
    for dataplane::Counter { name, .. } in dataplane::Counters::list([]) {
        let count = reached.get(name).unwrap_or_else(|| panic!("{name}: not reported"));
        assert!(*count > 0 || NOT_REACHED.contains(&name), "no input reaches {name}");
    }
}

#[test]
fn a_short_search_violates_nothing() {
    let built = run(Command::new("fuzz/build").arg("fuzzer"));
    must("fuzz/build fuzzer (clang with libFuzzer is needed)", built);
    // Nothing is kept of what is found: the next one begins as this one did.
    let found = root().join(format!("target/fuzz/found-{}", std::process::id()));
    std::fs::create_dir_all(&found).expect("target is writable");
    let limits = [
        "-seed=1",
        "-max_len=400",
        "-timeout=90",
        "-artifact_prefix=target/fuzz/failed-data_plane-",
    ];
    let search = Command::new("target/fuzz/data_plane")
        .arg(format!("-runs={SEARCHED}"))
        .args(limits)
        .args([&found, &root().join("fuzz/corpus/data_plane")])
        .current_dir(root())
        .output()
        .expect("just built");
    std::fs::remove_dir_all(&found).expect("it is ours");
    must("search", search);
}
