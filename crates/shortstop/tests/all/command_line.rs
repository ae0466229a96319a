//! The command line from outside: help with examples, and one clear line for every kind of
//! bad input.

use std::{
    fs::Permissions,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Runs the binary in a directory with the cluster files of [`files`].
fn shortstop(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(words)
        .current_dir(directory)
        .env_remove("SHORTSTOP_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Cluster files, good and bad, in a directory of this test's own.
fn files(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&directory).unwrap();
    let store =
        |last: u32| format!("[[store]]\naddress = \"127.0.0.1:7117\"\nfirst = 0\nlast = {last}\n");
    let files = [
        ("good.toml", format!("partitions = 4\n{}", store(3))),
        ("gap.toml", format!("partitions = 4\n{}", store(2))),
        ("small.toml", format!("partitions = 4\nmax_value = 1024\n{}", store(3))),
        ("syntax.toml", "partitions = x\n".into()),
        ("unknown.toml", format!("partitions = 4\nshards = 4\n{}", store(3))),
        ("leases.toml", format!("partitions = 4\nlease_ms = 10\n{}", store(3))),
    ];
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let tenant = "[[tenant]]\nid = 7\nsecret = \"07070707070707070707070707070707\"\n";
    let secret = format!("partitions = 4\n{}{tenant}", store(3));
    for (name, text, mode) in [
        ("secret.toml", &secret[..], 0o644),
        ("system.toml", &good_with_system(store(3)), 0o604),
        ("mine.toml", &secret, 0o640),
        ("others.toml", "", 0o644),
        ("two.word", "two words\n", 0o600),
        ("tokens.toml", "[[token]]\nname = 3\n", 0o600),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    directory
}

fn good_with_system(store: String) -> String {
    format!("partitions = 4\nsystem_secret = \"09090909090909090909090909090909\"\n{store}")
}

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
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let output = shortstop(here, &words);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {}", output.status);
        assert!(help.contains("Example"), "{command}: no example in\n{help}");
        assert!(help.contains(&format!("  shortstop {command}")), "{command}: not its own\n{help}");
    }
}

#[test]
fn the_version_is_printed() {
    let output = shortstop(Path::new("."), &["--version"]);
    let expected = format!("shortstop {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// What is typed, and what the first line of the answer must name.
const BAD: &[(&str, &[&str])] = &[
    ("frobnicate", &["frobnicate"]),
    ("--log a=b=c get --server 127.0.0.1:1 k", &["--log", "a=b=c"]),
    // switch
    ("switch --state-dir state", &["--interface", "at least one"]),
    ("switch --interface lo --id 0", &["--id", "0", "1..=32767"]),
    ("switch --interface lo --name a/b --state-dir state", &["switch name", "a/b"]),
    ("switch --interface lo --control foo --state-dir state", &["--control", "foo", "http://"]),
    ("switch --interface lo --mode fast", &["--mode", "fast"]),
    ("switch --interface lo --pages 0", &["--pages", "0"]),
    ("switch status --name absent", &["no switch absent"]),
    ("switch detach --name absent", &["no switch absent"]),
    // control
    ("control", &["--cluster FILE"]),
    ("control --cluster absent.toml", &["absent.toml", "No such file"]),
    ("control --cluster gap.toml --state state", &["gap.toml", "partition 3 has no owner"]),
    ("control --cluster syntax.toml --state state", &["syntax.toml", "line 1"]),
    (
        "control --cluster good.toml --state state --discipline magic",
        &["--discipline magic", "none"],
    ),
    (
        "control --cluster good.toml --state state --listen 0.0.0.0:7999",
        &["0.0.0.0:7999", "--insecure"],
    ),
    ("control --cluster good.toml --max-items 0", &["--max-items", "0"]),
    (
        "control status --control http://127.0.0.1:1",
        &["http://127.0.0.1:1", "no controller answers"],
    ),
    ("control --cluster good.toml --state etcd://bad", &["etcd://bad", "HOST:PORT"]),
    (
        "control --cluster good.toml --state etcd://127.0.0.1:1 --listen 0.0.0.0:7999 --insecure",
        &["0.0.0.0:7999", "--url"],
    ),
    (
        "control --cluster good.toml --state state --tokens absent.toml",
        &["absent.toml", "No such file"],
    ),
    (
        "control --cluster good.toml --state state --tokens others.toml",
        &["others.toml", "0644", "chmod 600"],
    ),
    (
        "control --cluster good.toml --state state --tokens tokens.toml",
        &["tokens.toml", "line 2, column 8"],
    ),
    ("control --cluster good.toml --tls-cert a.pem", &["--tls-key"]),
    // tenants, pages, topology, routes
    ("tenant list --control http://127.0.0.1:1", &["http://127.0.0.1:1", "shortstop control"]),
    ("tenant list --control foo", &["--control", "foo", "http://"]),
    ("tenant list --token-file absent", &["absent", "No such file"]),
    ("tenant list --token-file others.toml", &["others.toml", "0644", "chmod 600"]),
    ("tenant create --id 4294967296", &["--id", "4294967296"]),
    ("tenant create --policy best", &["best", "near-client"]),
    ("tenant create --over-rate x", &["--over-rate", "drop"]),
    ("tenant create --stores here", &["--stores", "here"]),
    ("tenant create --clients tent", &["tent", "10.0.1.0/24"]),
    ("tenant show seven", &["seven", "<ID>"]),
    ("page return 7 3-17", &["3-17", "3/17"]),
    ("page return 7", &["<PAGES>"]),
    ("page ask 7 0", &["<PAGES>", "0"]),
    ("page list --kind bad", &["bad", "leaving"]),
    ("topology declare absent.toml", &["absent.toml"]),
    ("audit --after x", &["--after", "x"]),
    ("token shop tenant", &["--tenant ID"]),
    ("token ops admin --tenant 7", &["admin", "--tenant"]),
    // store
    ("store --listen somewhere", &["--listen", "somewhere"]),
    ("store --listen 192.0.2.1:7117", &["192.0.2.1:7117", "cannot listen"]),
    ("store --cluster absent.toml", &["absent.toml", "No such file"]),
    ("store --cluster unknown.toml", &["unknown.toml", "line 2"]),
    ("store --cluster good.toml --listen 127.0.0.1:7997", &["127.0.0.1:7997", "--as"]),
    ("store --backend mysql://x", &["--backend", "mysql://x", "redis://HOST:PORT"]),
    ("store --backend memcached://127.0.0.1:1 --listen 127.0.0.1:0", &["127.0.0.1:1", "refused"]),
    ("store --memory-limit 3parsec", &["--memory-limit", "parsec", "MiB"]),
    ("store --cluster leases.toml", &["leases.toml", "lease_ms = 10", "1000 to 60000"]),
    ("store --lease-ms 10", &["--lease-ms"]),
    ("store --partitions 0 --listen 127.0.0.1:0", &["0 partitions"]),
    ("store status --socket absent.sock", &["absent.sock", "--status-socket"]),
    // get, set, delete
    ("get k", &["--server", "--cluster"]),
    ("get --server 127.0.0.1:1 --timeout 100ms k", &["127.0.0.1:1", "no answer", "100 ms"]),
    ("get --server 127.0.0.1:99999 k", &["--server", "127.0.0.1:99999"]),
    ("get --server 127.0.0.1:1 --timeout 5 k", &["--timeout", "500ms"]),
    ("get --server 127.0.0.1:1 --timeout 0s k", &["--timeout", "more than 0"]),
    ("get --server 127.0.0.1 --tenant 7 k", &["--tenant 7", "--cluster"]),
    ("get --cluster good.toml --tenant 7 k", &["tenant 7"]),
    ("get --cluster gap.toml k", &["gap.toml", "partition 3"]),
    ("get --cluster secret.toml --tenant 7 k", &["secret.toml holds secrets", "0644", "chmod 600"]),
    ("store --cluster secret.toml", &["secret.toml holds secrets", "0644", "chmod 600"]),
    (
        "control --cluster system.toml --state state",
        &["system.toml holds secrets", "0604", "chmod 600"],
    ),
    ("gateway --cluster system.toml", &["system.toml holds secrets", "0604", "chmod 600"]),
    ("get --cluster mine.toml --tenant 7 --timeout 100ms k", &["no answer", "100 ms"]),
    (
        "store --backend redis://127.0.0.1:1 --backend-password-file others.toml",
        &["password file others.toml", "0644", "chmod 600"],
    ),
    (
        "gateway --server 127.0.0.1:1 --backend redis://127.0.0.1:1 --backend-password-file two.word",
        &["--backend-password-file", "one word"],
    ),
    ("get --server 127.0.0.1:1 --seal-key absent.key k", &["--seal-key absent.key", "cannot read"]),
    ("set --server 127.0.0.1:1 --seal-key good.toml k v", &["--seal-key good.toml", "expected"]),
    (
        "gateway --server 127.0.0.1:1 --seal-key absent.key",
        &["--seal-key absent.key", "cannot read"],
    ),
    ("get --server 127.0.0.1:1 {251}", &["key of 251 bytes", "250"]),
    ("set --server 127.0.0.1:1 k", &["required arguments", "<VALUE>"]),
    ("set --server 127.0.0.1:1 --timeout 100ms k v", &["outcome unknown", "127.0.0.1:1"]),
    ("set --server 127.0.0.1:1 k v --ttl soon", &["--ttl", "soon", "30s"]),
    ("set --server 127.0.0.1:1 k v --ttl 100d", &["time to live", "49 days"]),
    ("set --cluster small.toml k {1025}", &["value of 1025 bytes", "1024", "max_value"]),
    ("set --server 127.0.0.1:1 k v --if-absent --if-present", &["--if-absent", "--if-present"]),
    ("delete --server 127.0.0.1:1 --timeout 100ms k", &["127.0.0.1:1", "outcome unknown"]),
];

#[test]
fn bad_input_is_answered_with_a_line_that_names_it() {
    let directory = files("bad");
    let mut wrong = String::new();
    for (line, expected) in BAD {
        // {N}: N letters.
        let letters = |word: &str| -> Option<String> {
            Some("x".repeat(word.strip_prefix('{')?.strip_suffix('}')?.parse().ok()?))
        };
        let words: Vec<String> =
            line.split(' ').map(|word| letters(word).unwrap_or_else(|| word.into())).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = shortstop(&directory, &words);
        let error = String::from_utf8_lossy(&output.stderr);
        let names_all =
            expected.iter().all(|text| error.contains(text)) && error.lines().count() == 1;
        let panicked = error.contains("panicked");
        if output.status.success() || !names_all || panicked || !output.stdout.is_empty() {
            wrong += &format!(
                "shortstop {line}\n  {}, expected {expected:?} in: {error}\n",
                output.status
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
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
