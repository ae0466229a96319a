//! Tenants whose keys bear other names at the server: they reach their own, and nobody else's.

use std::os::unix::net::UnixStream;

use wire::{Cluster, Tenant};

use crate::support::{Config, Gateway, Redis, Speaker, config};

fn tenants_config(redis: &Redis, tenant: u32) -> Config {
    let usual = config(&redis.url());
    let tenants = [7, 8].map(|id| Tenant::new(id, format!("{id:032x}"))).into();
    Config { tenant, cluster: Cluster { tenants, ..usual.cluster.clone() }, ..usual }
}

#[test]
fn commands_reach_the_tenant_s_keys_alone() {
    let redis = Redis::start(&[]);
    let gateways = [7, 8].map(|tenant| Gateway::start(tenants_config(&redis, tenant)));
    let mut others = redis.speak();
    for line in ["SET a others", "RPUSH l others", "SET shortstop:8:a eight"] {
        others.ask(line);
    }
    let mut client = gateways[0].speak();
    let rows = [
        ("GET a", "$-1\r\n"),
        ("SET a mine", "+OK\r\n"),
        ("GET a", "$4\r\nmine\r\n"),
        ("MSET b 1 c 2", "+OK\r\n"),
        ("MGET a b none", "*3\r\n$4\r\nmine\r\n$1\r\n1\r\n$-1\r\n"),
        ("RENAME b d", "+OK\r\n"),
        ("COPY d e", ":1\r\n"),
        ("RPUSH l 3 1 2", ":3\r\n"),
        ("SORT l STORE sorted", ":3\r\n"),
        ("LRANGE sorted 0 -1", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"),
        ("ZADD z 1 x", ":1\r\n"),
        ("ZUNIONSTORE u 2 z z WEIGHTS 1 2", ":1\r\n"),
        ("OBJECT REFCOUNT l", ":1\r\n"),
        ("PING", "+PONG\r\n"),
        ("ECHO a", "$1\r\na\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        // A transaction is of the tenant's keys, and of none if a command of it was refused.
        ("WATCH a", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET a 1", "+QUEUED\r\n"),
        ("INCR a", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n+OK\r\n:2\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET a 9", "+QUEUED\r\n"),
        (
            "FLUSHALL",
            "-ERR FLUSHALL is not possible for tenant 7: it names no keys that could be kept to the tenant's\r\n",
        ),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("GET a", "$1\r\n2\r\n"),
        (
            "EVAL return(1) 1 a",
            "-ERR EVAL is not possible for tenant 7: what it runs may name keys of others\r\n",
        ),
        ("BLPOP l 0", "-ERR BLPOP is not possible for tenant 7: its answer names keys\r\n"),
        (
            "SORT l BY w_* GET a_*",
            "-ERR SORT is not possible for tenant 7: it may reach keys that it does not name\r\n",
        ),
    ];
    for (line, answer) in rows {
        assert_eq!(client.ask(line), answer, "{line}");
    }
    // Nor is one that is given up the end of another database.
    for line in ["SELECT 1", "MULTI", "KEYS *", "EXEC"] {
        client.ask(line);
    }
    assert_eq!(client.ask("GET a"), "$-1\r\n");
    assert_eq!(client.ask("SELECT 0"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n");
    for line in [
        "KEYS *",
        "SCAN 0",
        "DBSIZE",
        "RANDOMKEY",
        "FLUSHDB",
        "SWAPDB 0 1",
        "CONFIG GET *",
        "SUBSCRIBE a",
        "PUBLISH a b",
        "MONITOR",
        "CLIENT LIST",
        "CLIENT TRACKING ON",
        "CLIENT REPLY OFF",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "DEBUG OBJECT a",
        "SHUTDOWN",
        "ACL LIST",
        "XREAD STREAMS a 0",
        "nosuch a",
        "SYNC",
    ] {
        let said = client.ask(line);
        assert!(said.contains(" is not possible for tenant 7: "), "{line}: {said}");
    }
    assert_eq!(others.ask("GET a"), "$6\r\nothers\r\n");
    assert_eq!(others.ask("LRANGE l 0 -1"), "*1\r\n$6\r\nothers\r\n");
    assert_eq!(others.ask("GET shortstop:7:a"), "$1\r\n2\r\n");
    assert_eq!(gateways[1].speak().ask("GET a"), "$5\r\neight\r\n");
    // Whatever was written bears the tenant's name, but for what others wrote.
    let foreign = foreign(&mut others);
    assert_eq!(foreign.len(), 3, "{foreign:?}");
}

/// The server's keys that bear no name of the tenant's. DBSIZE would also count what has expired
/// and was not looked at since.
fn foreign(server: &mut Speaker<UnixStream>) -> Vec<String> {
    let keys = server.ask("KEYS *");
    let lines = keys.lines().filter(|line| !line.starts_with(['*', '$']));
    lines.filter(|line| !line.starts_with("shortstop:7:")).map(String::from).collect()
}

/// Every command that the server has and that takes keys, said with a key where it has its keys,
/// changes nothing that bears no name of the tenant's.
#[test]
fn no_command_of_the_server_reaches_a_key_of_others() {
    let redis = Redis::start(&["--enable-debug-command", "yes"]);
    let gateway = Gateway::start(tenants_config(&redis, 7));
    let mut others = redis.speak();
    let list = others.ask("COMMAND LIST");
    let names: Vec<&str> =
        list.lines().filter(|line| !line.starts_with(['*', '$'])).map(str::trim).collect();
    assert!(names.len() > 200, "{list}");
    others.ask("SET k 1");
    let digest = |server: &mut Speaker<UnixStream>| server.ask("DEBUG DIGEST-VALUE k 1 0");
    let before = (digest(&mut others), others.ask("TTL k"), foreign(&mut others));
    assert!(before.0.starts_with('*'), "{}", before.0);
    for name in names.iter().filter(|name| !["quit", "reset", "wait", "waitaof"].contains(name)) {
        for words in 0..6 {
            let mut client = gateway.speak();
            let line = [*name, "k", "1", "k", "1", "k"][..=words.min(5)].join(" ");
            client.ask(&line);
            if name == &"multi" {
                client.ask("EXEC");
            }
        }
    }
    assert_eq!((digest(&mut others), others.ask("TTL k"), foreign(&mut others)), before);
}
