//! The command line from outside: help with examples, and one clear line for every kind of
//! bad input.

use std::process::{Output, Stdio};

use crate::programs::lab;

fn typed(words: &[&str]) -> Output {
    let mut command = lab(words);
    command.stdin(Stdio::null()).output().expect("it runs")
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "list",
        "run",
        "compare",
        "hunt",
        "bench",
        "figures",
        "resources",
        "up",
        "exec",
        "down",
        "store",
    ] {
        let output = typed(&[command, "--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {}", output.status);
        assert!(help.contains("Example"), "{command}: no example in\n{help}");
        assert!(
            help.contains(&format!("  shortstop-lab {command}")),
            "{command}: not its own\n{help}"
        );
    }
}

/// What a line of a trace is to be is said before anything runs.
#[test]
fn a_trace_with_a_line_that_is_none_is_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.csv");
    std::fs::write(&path, "0,a,1,40,1,get,0\n0,b,1,40,1,fetch,0\n").unwrap();
    let path = path.to_str().unwrap();
    let output = typed(&["run", "workloads", "--quick", "--world", "sim", "--trace", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "taken");
    assert!(said.contains(&format!("trace {path}: line 2: operation \"fetch\"")), "{said}");
    assert!(said.contains("get, gets, set"), "{said}");
}

/// `shortstop-lab lab list` is what `shortstop lab list` was.
#[test]
fn the_word_lab_may_stand_before_a_command() {
    let version = typed(&["lab", "--version"]);
    let expected = format!("shortstop-lab {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(version.stdout).unwrap(), expected);
}

/// What is typed, and what the line of the answer must name.
const BAD: &[(&str, &[&str])] = &[
    ("frobnicate", &["frobnicate"]),
    ("run absent", &["experiment absent", "demo"]),
    ("run demo --backend mysql", &["--backend", "mysql"]),
    (
        "run workloads --workload memcached",
        &["workload \"memcached\"", "ycsb-a to ycsb-f", "twitter-N"],
    ),
    ("run workloads --trace absent.csv", &["trace absent.csv", "No such file"]),
    ("run demo --workload ycsb-a", &["--workload", "workloads"]),
    ("up absent.toml", &["topology absent.toml"]),
    ("down --name absent", &["absent"]),
    ("store --populate 5", &["--populate", "1000:128"]),
    (
        "store --listen 127.0.0.1:0 --populate 5:5000000",
        &["--populate", "5000000 bytes", "max_value", "1048576"],
    ),
    ("store --listen 127.0.0.1:0 --rate-limit 0.5", &["--rate-limit 0.5", "1 to 1000000000"]),
    (
        "store --listen 127.0.0.1:0 --rate-limit 5 --rate-later 3",
        &["--rate-later", "SECONDS:REQ_PER_S"],
    ),
    ("store --queue-limit 5", &["--rate-limit"]),
];

#[test]
fn bad_input_is_answered_with_a_line_that_names_it() {
    for (line, expected) in BAD {
        let words: Vec<&str> = line.split(' ').collect();
        let output = typed(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{line}: taken");
        assert_eq!(said.lines().count(), 1, "{line}: one line, not\n{said}");
        assert!(said.starts_with("shortstop-lab: "), "{line}: {said}");
        for part in *expected {
            assert!(said.contains(part), "{line}: no {part:?} in {said}");
        }
    }
}

/// `| head`: whoever reads has enough after a while, or at once.
#[test]
fn output_that_nobody_reads_ends_quietly() {
    for words in [&["resources"][..], &["list"], &["run", "demo", "--world", "sim", "--quick"]] {
        let mut command = lab(words);
        command
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{words:?}: {said}");
        assert_ne!(output.status.code(), Some(1), "{words:?}: {said}");
    }
}
