//! Bad input of every kind (arguments, files, the environment), a row each: what is said of it, and
//! the exit status.

use super::support::{files, shortstop_with};

/// What is typed, with variables before it as a shell takes them; the exit status; and what the
/// line that answers must name. A warning may come before it.
const BAD: &[(&str, u8, &[&str])] = &[
    ("frobnicate", 2, &["frobnicate"]),
    ("--log a=b=c get --server 127.0.0.1:1 k", 2, &["--log", "a=b=c"]),
    (
        "--log warning audit",
        1,
        &["--log \"warning\": expected error, warn, info, debug, trace, off"],
    ),
    ("--log inof audit", 1, &["--log \"inof\": expected", "TARGET=LEVEL"]),
    ("--log 9 audit", 1, &["--log \"9\": expected"]),
    ("--log debug, audit", 1, &["--log \"debug,\": expected"]),
    ("SHORTSTOP_LOG=warning audit", 1, &["--log \"warning\": expected"]),
    // switch
    ("switch --state-dir state", 1, &["--interface", "at least one"]),
    ("switch --interface lo --id 0", 2, &["--id", "0", "1..=32767"]),
    ("switch --interface lo --name a/b --state-dir state", 1, &["switch name", "a/b"]),
    ("switch --interface lo --control foo --state-dir state", 1, &["--control", "foo", "http://"]),
    ("switch --interface lo --mode fast", 2, &["--mode", "fast"]),
    ("switch --interface lo --pages 0", 2, &["--pages", "0"]),
    ("switch status --name absent", 1, &["no switch absent"]),
    ("switch detach --name absent", 1, &["no switch absent"]),
    ("switch status --name a/b", 1, &["switch name", "a/b"]),
    // control
    ("control", 1, &["--cluster FILE"]),
    ("control --cluster absent.toml", 1, &["absent.toml", "No such file"]),
    ("control --cluster gap.toml --state state", 1, &["gap.toml", "partition 3 has no owner"]),
    ("control --cluster syntax.toml --state state", 1, &["syntax.toml", "line 1"]),
    (
        "control --cluster good.toml --state state --discipline magic",
        1,
        &["--discipline magic", "none"],
    ),
    (
        "control --cluster good.toml --state state --listen 0.0.0.0:7999",
        1,
        &["0.0.0.0:7999", "--insecure"],
    ),
    ("control --cluster good.toml --max-items 0", 2, &["--max-items", "0"]),
    (
        "control status --control http://127.0.0.1:1",
        1,
        &["http://127.0.0.1:1", "no controller answers"],
    ),
    ("control --cluster good.toml --state etcd://bad", 2, &["etcd://bad", "HOST:PORT"]),
    (
        "control --cluster good.toml --state etcd://127.0.0.1:1 --listen 0.0.0.0:7999 --insecure",
        1,
        &["0.0.0.0:7999", "--url"],
    ),
    (
        "control --cluster good.toml --state state --tokens absent.toml",
        1,
        &["absent.toml", "No such file"],
    ),
    (
        "control --cluster good.toml --state state --tokens others.toml",
        1,
        &["others.toml", "0644", "chmod 600"],
    ),
    (
        "control --cluster good.toml --state state --tokens tokens.toml",
        1,
        &["tokens.toml", "line 2, column 8"],
    ),
    ("control --cluster good.toml --tls-cert a.pem", 2, &["--tls-key"]),
    (
        "control --cluster system.toml --state state",
        1,
        &["system.toml holds secrets", "0604", "chmod 600"],
    ),
    (
        "control --listen localhost:7118 --cluster good.toml",
        2,
        &["--listen", "localhost:7118", "IP:PORT"],
    ),
    (
        "control --cluster names.toml --state state",
        1,
        &["names.toml", "line 3", "redis1:7117", "IP:PORT", "not looked up"],
    ),
    ("control --cluster good.toml --state good.toml", 1, &["good.toml", "File exists", "--state"]),
    ("control --cluster good.toml --state state --set x", 2, &["--set", "DISCIPLINE.NAME=N"]),
    (
        "control --cluster good.toml --state state --set magic.x=1",
        1,
        &["--set magic.x", "expected one of"],
    ),
    (
        "control --cluster good.toml --state state --tls-cert good.toml --tls-key others.toml",
        1,
        &["WARN", "--tls-key others.toml", "0644", "chmod 600", "private key in PEM form"],
    ),
    (
        "control --cluster good.toml --state state --listen 192.0.2.1:7999 --insecure",
        1,
        &["WARN", "--insecure", "192.0.2.1:7999", "other machines", "cannot listen"],
    ),
    (
        "--log  control --cluster good.toml --state state --listen 192.0.2.1:7999 --insecure",
        1,
        &["WARN", "--insecure", "cannot listen"],
    ),
    (
        "SHORTSTOP_LOG= control --cluster good.toml --state state --listen 192.0.2.1:7999 --insecure",
        1,
        &["WARN", "--insecure", "cannot listen"],
    ),
    (
        "--log control::serve,warn control --cluster good.toml --state state --listen 192.0.2.1:7999 --insecure",
        1,
        &["WARN", "--insecure", "cannot listen"],
    ),
    // what asks a controller, and tokens
    ("tenant list --control http://127.0.0.1:1", 1, &["http://127.0.0.1:1", "shortstop control"]),
    ("tenant list --control foo", 1, &["--control", "foo", "http://"]),
    ("tenant list --token-file absent", 1, &["absent", "No such file"]),
    ("tenant list --token-file others.toml", 1, &["others.toml", "0644", "chmod 600"]),
    ("tenant create --id 4294967296", 2, &["--id", "4294967296"]),
    ("tenant create --policy best", 2, &["best", "near-client"]),
    ("tenant create --over-rate x", 2, &["--over-rate", "drop"]),
    ("tenant create --stores here", 2, &["--stores", "here"]),
    ("tenant create --clients tent", 1, &["tent", "10.0.1.0/24"]),
    ("tenant show seven", 2, &["seven", "<ID>"]),
    ("page return 7 3-17", 2, &["3-17", "3/17"]),
    ("page return 7", 2, &["<PAGES>"]),
    ("page ask 7 0", 2, &["<PAGES>", "0"]),
    ("page list --kind bad", 2, &["bad", "leaving"]),
    ("topology declare absent.toml", 1, &["absent.toml"]),
    ("audit --after x", 2, &["--after", "x"]),
    ("token shop tenant", 1, &["--tenant ID"]),
    ("token ops admin --tenant 7", 1, &["admin", "--tenant"]),
    ("SHORTSTOP_TOKEN= tenant list", 1, &["--token-file", "SHORTSTOP_TOKEN", "one word"]),
    (
        "audit --control https://127.0.0.1:1 --ca good.toml",
        1,
        &["good.toml", "certificates in PEM form"],
    ),
    ("audit --cert a.pem", 2, &["--key"]),
    ("page ask x 1", 2, &["<TENANT>", "whole number"]),
    ("token ops admin --add tokens.toml", 1, &["tokens.toml", "line 2, column 8"]),
    ("token ops admin --add absent/tokens.toml", 1, &["absent/tokens.toml", "cannot be written"]),
    ("token rack switch --switch 0", 2, &["--switch", "0", "1..=32767"]),
    ("token rack switch --switch 40000", 2, &["--switch", "40000", "1..=32767"]),
    ("token ops king", 2, &["<ROLE>", "king", "admin"]),
    // store
    ("store --listen somewhere", 2, &["--listen", "somewhere"]),
    ("store --listen 192.0.2.1:7117", 1, &["192.0.2.1:7117", "cannot listen"]),
    ("store --cluster absent.toml", 1, &["absent.toml", "No such file"]),
    ("store --cluster unknown.toml", 1, &["unknown.toml", "line 2"]),
    ("store --cluster good.toml --listen 127.0.0.1:7997", 1, &["127.0.0.1:7997", "--as"]),
    ("store --backend mysql://x", 2, &["--backend", "mysql://x", "redis[s]://HOST:PORT"]),
    ("store --memory-limit 3parsec", 2, &["--memory-limit", "parsec", "MiB"]),
    ("store --memory-limit 0", 2, &["--memory-limit", "at least 1MiB"]),
    ("store --parts-limit 0", 2, &["--parts-limit", "at least 1MiB"]),
    ("store --lend-from 0", 2, &["--lend-from", "0"]),
    ("store --cluster leases.toml", 1, &["leases.toml", "lease_ms = 10", "1000 to 60000"]),
    ("store --lease-ms 10", 2, &["--lease-ms"]),
    ("store --partitions 0 --listen 127.0.0.1:0", 1, &["0 partitions"]),
    ("store status --socket absent.sock", 1, &["absent.sock", "--status-socket"]),
    ("store --cluster secret.toml", 1, &["secret.toml holds secrets", "0644", "chmod 600"]),
    (
        "store --backend redis://127.0.0.1:1 --backend-password-file others.toml",
        1,
        &["password file others.toml", "0644", "chmod 600"],
    ),
    (
        "store --listen 127.0.0.1:0 --status-socket good.toml",
        1,
        &["good.toml", "no socket", "another path"],
    ),
    ("store --cluster names.toml", 1, &["names.toml", "line 3", "redis1:7117", "IP:PORT"]),
    (
        "SHORTSTOP_BACKEND_PASSWORD= store --backend redis://127.0.0.1:1",
        1,
        &["--backend-password-file", "SHORTSTOP_BACKEND_PASSWORD", "one word"],
    ),
    (
        "store --listen 127.0.0.1:0 --backend redis://u:hunter2@127.0.0.1:99999",
        1,
        &["--backend redis://127.0.0.1:99999: expected redis[s]://HOST:PORT[/DB]"],
    ),
    (
        "store --listen 127.0.0.1:0 --backend rediss://127.0.0.1:1/-3",
        1,
        &["--backend rediss://127.0.0.1:1/-3: database -3: expected", "0 to 2147483647"],
    ),
    (
        "store --listen 127.0.0.1:0 --backend redis://127.0.0.1:1/99999999999999",
        1,
        &["--backend", "database 99999999999999: expected", "0 to 2147483647"],
    ),
    (
        "cluster import redis://u:hunter2@127.0.0.1:x",
        1,
        &["the URL redis://127.0.0.1:x: expected redis[s]://HOST:PORT"],
    ),
    (
        "cluster import redis://u:hunter2@127.0.0.1:1",
        1,
        &["WARN", "the password in the URL can be read", "127.0.0.1:1"],
    ),
    // get, set, delete
    ("get k", 2, &["--server", "--cluster"]),
    ("get --server 127.0.0.1:1 --timeout 100ms k", 2, &["127.0.0.1:1", "no answer", "100 ms"]),
    ("get --server 127.0.0.1:99999 k", 2, &["--server", "127.0.0.1:99999"]),
    ("get --server 127.0.0.1:1 --timeout 5 k", 2, &["--timeout", "500ms"]),
    ("get --server 127.0.0.1:1 --timeout 0s k", 2, &["--timeout", "more than 0"]),
    ("get --server 127.0.0.1 --tenant 7 k", 2, &["--tenant 7", "--cluster"]),
    ("get --cluster good.toml --tenant 7 k", 2, &["tenant 7"]),
    ("get --cluster gap.toml k", 2, &["gap.toml", "partition 3"]),
    (
        "get --cluster secret.toml --tenant 7 k",
        2,
        &["secret.toml holds secrets", "0644", "chmod 600"],
    ),
    ("get --cluster mine.toml --tenant 7 --timeout 100ms k", 2, &["no answer", "100 ms"]),
    (
        "get --server 127.0.0.1:1 --seal-key absent.key k",
        2,
        &["--seal-key absent.key", "cannot read"],
    ),
    ("set --server 127.0.0.1:1 --seal-key good.toml k v", 1, &["--seal-key good.toml", "expected"]),
    ("get --server 127.0.0.1:1 {251}", 2, &["key of 251 bytes", "250"]),
    ("set --server 127.0.0.1:1 k", 2, &["required arguments", "<VALUE>"]),
    ("set --server 127.0.0.1:1 --timeout 100ms k v", 1, &["outcome unknown", "127.0.0.1:1"]),
    ("set --server 127.0.0.1:1 k v --ttl soon", 2, &["--ttl", "soon", "30s"]),
    ("set --server 127.0.0.1:1 k v --ttl 100d", 1, &["time to live", "49 days"]),
    ("set --cluster small.toml k {1025}", 1, &["value of 1025 bytes", "1024", "max_value"]),
    ("set --server 127.0.0.1:1 k v --if-absent --if-present", 2, &["--if-absent", "--if-present"]),
    ("delete --server 127.0.0.1:1 --timeout 100ms k", 2, &["127.0.0.1:1", "outcome unknown"]),
    ("SHORTSTOP_LOG=a=b=c get --server 127.0.0.1:1 k", 2, &["--log", "a=b=c"]),
    // gateway
    ("gateway --cluster system.toml", 1, &["system.toml holds secrets", "0604", "chmod 600"]),
    (
        "gateway --server 127.0.0.1:1 --backend redis://127.0.0.1:1 --backend-password-file two.word",
        1,
        &["--backend-password-file", "one word"],
    ),
    (
        "gateway --server 127.0.0.1:1 --seal-key absent.key",
        1,
        &["--seal-key absent.key", "cannot read"],
    ),
    ("gateway --server 127.0.0.1:1 --max-connections 0", 2, &["--max-connections", "0"]),
    ("gateway --server 127.0.0.1:1 --threads 0", 2, &["--threads", "0", "1..=1024"]),
    ("gateway --server 127.0.0.1:1 --threads 100000000", 2, &["--threads", "1..=1024"]),
    ("gateway --server 127.0.0.1:x", 1, &["--server", "127.0.0.1:x"]),
    (
        "gateway --server 127.0.0.1:1 --listen localhost:6380",
        2,
        &["--listen", "localhost:6380", "IP:PORT"],
    ),
    (
        "gateway --server 127.0.0.1:1 --listen 192.0.2.1:1",
        1,
        &["--listen 192.0.2.1:1", "cannot listen"],
    ),
    (
        "gateway --server 127.0.0.1:1 --backend memcached://h:1",
        2,
        &["--backend", "memcached://h:1", "redis[s]://HOST:PORT"],
    ),
    (
        "gateway --server 127.0.0.1:1 --backend redis://u:hunter2@127.0.0.1:99999",
        1,
        &["--backend redis://127.0.0.1:99999: expected redis[s]://HOST:PORT"],
    ),
    (
        "gateway --server 127.0.0.1:1 --backend redis://127.0.0.1:1/-3",
        1,
        &["--backend redis://127.0.0.1:1/-3: database -3", "0 to 2147483647"],
    ),
    ("gateway --server 127.0.0.1:1 --backend 1-2=redis://h:1", 1, &["--backend 1-2", "0 to 0"]),
];

#[test]
fn bad_input_is_answered_with_a_line_that_names_it() {
    let directory = files("bad");
    let mut wrong = String::new();
    for (line, status, expected) in BAD {
        // {N}: N letters.
        let letters = |word: &str| -> Option<String> {
            Some("x".repeat(word.strip_prefix('{')?.strip_suffix('}')?.parse().ok()?))
        };
        let words: Vec<String> =
            line.split(' ').map(|word| letters(word).unwrap_or_else(|| word.into())).collect();
        let is_variable = |word: &String| word.starts_with("SHORTSTOP_");
        let (variables, words): (Vec<_>, Vec<_>) = words.into_iter().partition(is_variable);
        let variables: Vec<_> = variables.iter().filter_map(|word| word.split_once('=')).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = shortstop_with(&directory, &words, &variables);
        let error = String::from_utf8_lossy(&output.stderr);
        let names_all = expected.iter().all(|text| error.contains(text));
        let is_warning = |line: &&str| line.contains(" WARN ");
        let says_once = error.lines().filter(|line| !is_warning(line)).count() == 1;
        let tells = error.contains("panicked") || error.contains("hunter2");
        let is_so = names_all && says_once && !tells;
        let is_quiet = output.stdout.is_empty();
        if output.status.code() != Some((*status).into()) || !is_so || !is_quiet {
            wrong += &format!(
                "shortstop {line}\n  {}, expected {status} and {expected:?} in: {error}\n",
                output.status
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
