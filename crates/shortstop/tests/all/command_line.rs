//! The command line from outside: help with examples, what is printed and with which status.

use std::{
    fs::Permissions,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use super::support::{files, shortstop, shortstop_with};

#[test]
fn every_command_has_help_with_an_example() {
    let here = Path::new(".");
    for command in [
        "switch",
        "switch status",
        "switch detach",
        "control",
        "control status",
        "store",
        "store status",
        "get",
        "set",
        "delete",
        "tenant",
        "tenant list",
        "tenant show",
        "tenant create",
        "tenant change",
        "tenant remove",
        "tenant rotate",
        "tenant credentials",
        "page",
        "page list",
        "page ask",
        "page return",
        "topology",
        "topology show",
        "topology declare",
        "route",
        "route list",
        "route on",
        "route off",
        "audit",
        "token",
        "gateway",
        "cluster",
        "cluster import",
        "cluster pool",
        "topology forget",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let within = |columns| shortstop_with(here, &words, &[("COLUMNS", columns)]);
        let output = within("100");
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {}", output.status);
        assert!(help.contains("Example"), "{command}: no example in\n{help}");
        assert!(help.contains(&format!("  shortstop {command}")), "{command}: not its own\n{help}");
        // Where it is wrapped, no shell takes it.
        let narrow = String::from_utf8(within("80").stdout).unwrap();
        let examples = |help: &str| {
            let lines = help[help.find("Example").unwrap()..].lines();
            lines.filter(|line| line.starts_with("  ")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(examples(&narrow), examples(&help), "{command}: wrapped at 80 columns");
    }
}

#[test]
fn the_version_is_printed() {
    let output = shortstop(Path::new("."), &["--version"]);
    let expected = format!("shortstop {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_missing_interface_is_named() {
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    assert_eq!(user, 0, "loading programs needs root");
    let directory = files("interface");
    let words = ["switch", "--interface", "absent0", "--name", "cli-test", "--state-dir", "state"];
    let output = shortstop(&directory, &words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("interface absent0") && error.contains("ip link"), "{error}");
    let status = shortstop(&directory, &["switch", "status", "--name", "cli-test"]);
    assert!(!status.status.success(), "the switch that did not start left its tables behind");
}

#[test]
fn a_reader_that_stops_ends_the_command_quietly() {
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread.sock");
    let _ = std::fs::remove_file(&socket);
    let mut store = Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(["store", "--listen", "127.0.0.1:0", "--status-socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !socket.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut status = Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(["store", "status", "--json", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(status.stdout.take());
    let mut error = String::new();
    status.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    status.wait().unwrap();
    store.kill().unwrap();
    store.wait().unwrap();
    assert_eq!(error, "");
}

/// Whether there is such a key, and whether that is known, are told apart by the status alone.
#[test]
fn a_missing_key_is_no_failure() {
    let server = format!("127.0.0.1:{}", lab::port::free());
    let mut store = Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(["store", "--listen", &server])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let here = Path::new(".");
    let status = |words: &[&str]| {
        let words = [words, &["--server", &server, "--timeout", "20s"]].concat();
        shortstop(here, &words).status.code()
    };
    // It takes no writes for its first two seconds.
    while status(&["set", "there", "value"]) != Some(0) {
        assert!(store.try_wait().unwrap().is_none(), "the store has ended");
    }
    let found = status(&["get", "there"]);
    let missing = status(&["get", "nosuch"]);
    let mut delete = status(&["delete", "nosuch"]);
    while delete == Some(2) {
        delete = status(&["delete", "nosuch"]);
    }
    store.kill().unwrap();
    store.wait().unwrap();
    let nobody = ["--server", &server, "--timeout", "50ms"];
    let failed = |command| shortstop(here, &[&[command, "k"], &nobody[..]].concat());
    assert_eq!([found, missing, delete], [Some(0), Some(1), Some(1)]);
    assert_eq!(failed("get").status.code(), Some(2));
    assert_eq!(failed("delete").status.code(), Some(2));
    assert_eq!(shortstop(here, &["get", "--frob"]).status.code(), Some(2));
}

/// `| head`: whoever reads has enough after a while, or at once.
#[test]
fn output_that_nobody_reads_ends_quietly() {
    let directory = files("unread");
    let mut child = Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(["token", "ops", "admin"])
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert_ne!(output.status.code(), Some(1), "{said}");
}

/// As on a disk that is full.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let directory = files("full");
    let path = directory.join("full.toml");
    let run = |line: &str, out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shortstop"));
        let command = command.args(line.split(' ')).current_dir(&directory).stdin(Stdio::null());
        command.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refuses = |line: &str| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = run(line, full.into()).wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let (first, last) = said.trim_end().rsplit_once('\n').unwrap_or(("", &said));
        assert!(last.starts_with("shortstop: cannot write to standard output: No space"), "{said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
        first.to_string()
    };
    let _ = std::fs::remove_file(&path);
    assert_eq!(refuses("token ops admin --add full.toml"), "");
    assert!(!path.exists());
    assert!(run("token ops admin --add full.toml", Stdio::null()).wait().unwrap().success());
    let before = std::fs::read_to_string(&path).unwrap();
    assert_eq!(refuses("token other viewer --add full.toml --json"), "");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unread = run("token other viewer --add full.toml", writer.into());
    let said = String::from_utf8(unread.wait_with_output().unwrap().stderr).unwrap();
    assert_eq!((said.as_str(), std::fs::read_to_string(&path).unwrap()), ("", before));
    assert!(refuses("token other viewer").contains("[[token]]"));
    for line in [
        "cluster pool --scheme ketama 127.0.0.1:11211",
        "cluster pool --scheme ketama 127.0.0.1:11211 --json",
    ] {
        assert_eq!(refuses(line), "", "{line}");
    }
}

/// Two stores at one address; on the loopback no switch is passed.
#[test]
fn a_store_that_switches_pass_by_is_said() {
    let run = |servers: &[&str], more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_shortstop"));
        program.args(["cluster", "pool", "--scheme", "ketama"]).args(servers).args(more);
        let ran = program.output().unwrap();
        assert!(ran.status.success());
        [ran.stdout, ran.stderr].map(|said| String::from_utf8(said).unwrap())
    };
    let servers = ["10.0.1.1:11211", "10.0.1.2:11211", "10.0.1.1:11212"];
    let [file, said] = run(&servers, &[]);
    assert!(said.contains("10.0.1.1:7118") && said.contains("switches cache nothing"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(file.starts_with("# Written by") && !file.contains("nothing"), "{file}");
    let [told, said_too] = run(&servers, &["--json"]);
    assert_eq!(said_too, said);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let warnings = [0, 1, 2].map(|n| told["stores"][n]["warning"].as_str());
    assert_eq!(warnings[..2], [None, None]);
    assert!(said.contains(warnings[2].unwrap()), "{told}");
    assert_eq!(run(&["127.0.0.1:1", "127.0.0.1:2"], &[])[1], "");
}

/// As on a disk that is full: files are to be no longer than the system says.
#[test]
fn a_token_that_there_is_no_room_for_leaves_the_file_as_it_was() {
    let directory = files("no-room");
    let path = directory.join("room.toml");
    let _ = std::fs::remove_file(&path);
    let add = |name: &str, limit: &str| {
        let program = env!("CARGO_BIN_EXE_shortstop");
        let line = format!("{limit} exec {program} token {name} admin --add room.toml");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&directory).output().unwrap()
    };
    let mut before = String::new();
    let refused = (0..100).find_map(|n| {
        before = std::fs::read_to_string(&path).unwrap_or_default();
        let added = add(&format!("ops{n}"), "trap '' XFSZ; ulimit -f 1;");
        (!added.status.success()).then_some(added)
    });
    let said = String::from_utf8(refused.expect("a limit").stderr).unwrap();
    assert!(said.contains("room.toml") && said.contains("cannot be written"), "{said}");
    assert!(!before.is_empty());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    assert!(add("last", "").status.success());
}

/// What people typed before labs were a program of their own goes on working where that lies beside
/// this one, and is named where not.
#[test]
fn commands_of_labs_lead_to_their_own_program() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moved");
    std::fs::create_dir_all(&directory).unwrap();
    let alone = directory.join("shortstop");
    let _ = std::fs::remove_file(&alone);
    std::fs::hard_link(env!("CARGO_BIN_EXE_shortstop"), &alone).unwrap();
    let beside = directory.join("shortstop-lab");
    let typed = |words: &[&str]| Command::new(&alone).args(words).output().unwrap();
    let _ = std::fs::remove_file(&beside);
    let error = String::from_utf8(typed(&["lab", "list"]).stderr).unwrap();
    assert!(error.contains("`shortstop-lab`") && error.lines().count() == 1, "{error}");
    std::fs::write(&beside, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&beside, Permissions::from_mode(0o755)).unwrap();
    for (words, said) in [
        (&["lab", "run", "demo", "--quick"][..], "run demo --quick\n"),
        (&["bench", "--help"], "bench --help\n"),
        (&["resources"], "resources\n"),
    ] {
        assert_eq!(String::from_utf8(typed(words).stdout).unwrap(), said);
    }
}
