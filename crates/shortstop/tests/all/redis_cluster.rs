//! Before a real Redis Cluster that had its data before: imported, served by stores and a gateway,
//! through failovers and the move of a slot.
//!
//! All on loopback, with nodes of the test's own that write nothing to disk. redis-server and
//! redis-cli are needed.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lab::{interrupt, port};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// How long anything may take on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(90);
const KEYS: usize = 200;

/// Processes that end with the test, however it ends.
#[derive(Default)]
struct Rack {
    children: Vec<Child>,
    /// Ports of the nodes: three masters, and a replica of each.
    nodes: Vec<u16>,
    gateway: u16,
    directory: PathBuf,
}

impl Drop for Rack {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What redis-cli prints, line by line, if there is an answer at all.
fn cli(port: u16, words: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["90", "redis-cli", "-p", &port.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli is needed (Debian: redis-tools)");
    String::from_utf8_lossy(&output.stdout).trim_end().to_string()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    interrupt::wait_for(what, PATIENCE, || Ok(is_so().then_some(()))).unwrap();
}

fn slot_of(node: u16, key: &str) -> u32 {
    cli(node, &["cluster", "keyslot", key]).parse().expect("a number")
}

impl Rack {
    fn start(test: &str) -> Rack {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = std::fs::remove_dir_all(&directory);
        let mut rack = Rack::default();
        rack.directory = directory;
        for _ in 0..6 {
            rack.node();
        }
        let nodes: Vec<String> =
            rack.nodes.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut words = vec!["--cluster", "create"];
        words.extend(nodes.iter().map(String::as_str));
        words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        cli(rack.nodes[0], &words);
        rack.is_whole();
        rack
    }

    fn node(&mut self) {
        let (port, bus) = (port::free(), port::free());
        let directory = self.directory.join(port.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let (port_text, bus) = (port.to_string(), bus.to_string());
        let child = Command::new("redis-server")
            .args(["--port", &port_text, "--cluster-port", &bus, "--bind", "127.0.0.1"])
            // Longer than a machine stands still that is busy: else a master loses its slots.
            .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--save", ""])
            .arg("--dir")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.children.push(child.expect("redis-server is needed (Debian: redis-server)"));
        let child = self.children.last_mut().unwrap();
        assert!(port::listens(port, PATIENCE, || child.try_wait().unwrap().is_none()));
        self.nodes.push(port);
    }

    /// Waits until all nodes agree, and each replica has what its master has.
    fn is_whole(&self) {
        until("the cluster is not whole", || {
            self.nodes.iter().all(|node| {
                cli(*node, &["cluster", "info"]).contains("cluster_state:ok")
                    && cli(*node, &["cluster", "nodes"]).matches(" slave ").count()
                        + cli(*node, &["cluster", "nodes"]).matches("myself,slave ").count()
                        == 3
            })
        });
        until("a replica does not follow", || {
            let replicas = self.nodes.iter().filter(|node| self.role(**node) == "slave");
            replicas.clone().count() == 3
                && replicas.into_iter().all(|node| {
                    cli(*node, &["info", "replication"]).contains("master_link_status:up")
                })
        });
    }

    fn role(&self, node: u16) -> String {
        cli(node, &["role"]).lines().next().unwrap_or_default().into()
    }

    /// The nodes of which this one is a master.
    fn replica_of(&self, master: u16) -> u16 {
        let is_replica = |node: &&u16| {
            let role = cli(**node, &["role"]);
            let mut lines = role.lines();
            lines.next() == Some("slave") && lines.nth(1) == Some(&master.to_string()[..])
        };
        *self.nodes.iter().find(is_replica).expect("it has one")
    }

    /// Writes the cluster file, and starts a store for each shard and a gateway.
    fn imported(&mut self) {
        let shortstop = env!("CARGO_BIN_EXE_shortstop");
        let stores: Vec<String> = (0..3).map(|_| format!("127.0.0.1:{}", port::free())).collect();
        let node = format!("redis://127.0.0.1:{}", self.nodes[0]);
        let output = Command::new(shortstop)
            .args(["cluster", "import", &node, "--store", &stores.join(",")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut text = String::from_utf8(output.stdout).unwrap();
        for usual in 6390..6393 {
            text = text.replace(&format!(":{usual}"), &format!(":{}", port::free()));
        }
        let file = self.directory.join("cluster.toml");
        std::fs::write(&file, &text).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("#   shortstop ")) {
            let child = Command::new(shortstop)
                .args(line.split(' '))
                .current_dir(&self.directory)
                .stdin(Stdio::null())
                .spawn();
            self.children.push(child.unwrap());
        }
        self.gateway = port::free();
        let child = Command::new(shortstop)
            .args(["gateway", "--cluster"])
            .arg(&file)
            .args(["--listen", &format!("127.0.0.1:{}", self.gateway)])
            .stdin(Stdio::null())
            .spawn();
        self.children.push(child.unwrap());
        let child = self.children.last_mut().unwrap();
        assert!(port::listens(self.gateway, PATIENCE, || child.try_wait().unwrap().is_none()));
        // A store takes writes a lease after its start.
        until("a store takes no writes", || {
            (0..3).all(|at| self.ask(&["set", &format!("{{{at}}}up"), "1"]) == "OK")
                && self.ask(&["mset", "a", "1", "b", "1", "c", "1", "d", "1"]) == "OK"
        });
    }

    /// A command through the gateway, whose clients are never sent elsewhere.
    fn ask(&self, words: &[&str]) -> String {
        let answer = cli(self.gateway, words);
        assert!(!answer.contains("MOVED") && !answer.contains("ASK "), "{words:?}: {answer}");
        answer
    }

    /// Commands through the gateway by one connection, a line each.
    fn types(&self, lines: &str) -> String {
        let mut child = Command::new("redis-cli")
            .args(["-p", &self.gateway.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    }

    /// Writes through the gateway until it is done, and finds it at this node.
    fn writes_at(&self, key: &str, value: &str, node: u16) {
        until("nothing can be written", || self.ask(&["set", key, value]) == "OK");
        assert_eq!(cli(node, &["get", key]), value);
        assert_eq!(self.ask(&["get", key]), value);
    }

    /// A client of the gateway that says what it likes.
    fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.gateway)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    fn at(&self, node: u16) -> usize {
        self.nodes.iter().position(|other| *other == node).unwrap()
    }

    fn stop(&self, node: u16) {
        let child = &self.children[self.at(node)];
        signal::kill(Pid::from_raw(child.id() as i32), Signal::SIGSTOP).unwrap();
    }

    fn kill(&mut self, node: u16) {
        let at = self.at(node);
        self.children[at].kill().unwrap();
        self.children[at].wait().unwrap();
    }
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn says(&mut self, bytes: &str) {
        self.reader.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    /// So many lines.
    fn hears(&mut self, lines: usize) -> Vec<String> {
        let mut read = || {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            line.trim_end().to_string()
        };
        (0..lines).map(|_| read()).collect()
    }
}

#[test]
fn a_redis_cluster_with_its_data_is_served_through_failovers_and_the_move_of_a_slot() {
    let mut rack = Rack::start("redis-cluster");
    let [first, second, third] = [rack.nodes[0], rack.nodes[1], rack.nodes[2]];
    let bounds = [5461, 10_923, 16_384];
    let node_of = |key: &str| {
        let slot = slot_of(first, key);
        [first, second, third][bounds.iter().position(|end| slot < *end).unwrap()]
    };
    for at in 0..KEYS {
        let (key, value) = (format!("key{at}"), format!("value{at}"));
        assert_eq!(cli(node_of(&key), &["set", &key, &value]), "OK", "{key}");
    }
    rack.imported();

    // What was written before is there, one by one and together.
    for at in 0..KEYS {
        assert_eq!(rack.ask(&["get", &format!("key{at}")]), format!("value{at}"));
    }
    let names: Vec<String> = (0..KEYS).map(|at| format!("key{at}")).collect();
    let mut words = vec!["mget"];
    words.extend(names.iter().map(String::as_str));
    let values: Vec<String> = (0..KEYS).map(|at| format!("value{at}")).collect();
    assert_eq!(rack.ask(&words), values.join("\n"));
    let mut words = vec!["exists"];
    words.extend(names.iter().map(String::as_str));
    assert_eq!(rack.ask(&words), KEYS.to_string());

    // Who insists on a cluster finds one that is the gateway alone.
    let slots = rack.ask(&["cluster", "slots"]);
    let expected = ["0", "16383", "127.0.0.1", &rack.gateway.to_string()];
    assert_eq!(slots.lines().take(4).collect::<Vec<_>>(), expected);
    assert_eq!(rack.ask(&["-c", "get", "key7"]), "value7");
    let own = cli(first, &["cluster", "keyslot", "key7"]);
    assert_eq!(rack.ask(&["cluster", "keyslot", "key7"]), own);

    // One command is one slot's, also within a shard, as the cluster's own nodes have it.
    assert_eq!(rack.ask(&["mset", "{t}a", "1", "{t}b", "2"]), "OK");
    assert_eq!(rack.ask(&["rename", "{t}a", "{t}b"]), "OK");
    let crossing = "CROSSSLOT Keys in request don't hash to the same slot";
    let of_first: Vec<&String> = names.iter().filter(|key| node_of(key) == first).collect();
    assert_eq!(rack.ask(&["rename", of_first[0], of_first[1]]), crossing);

    // A planned failover, and one by a kill: the shard's new master is found.
    let (key, before) = (of_first[0].as_str(), rack.replica_of(first));
    // One that is not done within five seconds is given up by Redis, and wanted again then.
    until("no failover", || {
        cli(before, &["cluster", "failover"]);
        let is_done = || Ok((rack.role(before) == "master").then_some(()));
        interrupt::wait_for("a failover", Duration::from_secs(10), is_done).is_ok()
    });
    rack.writes_at(key, "after a planned failover", before);
    rack.is_whole();
    rack.kill(before);
    until("no failover after a kill", || rack.role(first) == "master");
    rack.writes_at(key, "after a kill", first);

    // A slot moves: whatever is refused may be tried again, and the shard's other keys are served.
    let (slot, other) = (slot_of(first, key).to_string(), of_first[1].as_str());
    let (from, to) = (cli(first, &["cluster", "myid"]), cli(second, &["cluster", "myid"]));
    until("the second does not know of the first's return", || {
        cli(second, &["cluster", "setslot", &slot, "importing", &from]) == "OK"
    });
    assert_eq!(cli(first, &["cluster", "setslot", &slot, "migrating", &to]), "OK");
    assert_eq!(rack.ask(&["get", key]), "after a kill");
    let import = |node: u16| {
        let node = format!("redis://127.0.0.1:{node}");
        let shortstop = env!("CARGO_BIN_EXE_shortstop");
        Command::new(shortstop).args(["cluster", "import", &node]).output().unwrap()
    };
    let refused = String::from_utf8(import(third).stderr).unwrap();
    assert!(refused.contains(&format!("slot {slot} is being moved")), "{refused}");
    let host = second.to_string();
    assert_eq!(cli(first, &["migrate", "127.0.0.1", &host, key, "0", "5000"]), "OK");
    // Half of the slot is there: what is asked goes where it is.
    assert_eq!(rack.ask(&["get", key]), "after a kill");
    assert_eq!(rack.ask(&["append", key, "!"]), "13");
    assert_eq!(rack.ask(&["get", key]), "after a kill!");
    for node in [second, first, third] {
        assert_eq!(cli(node, &["cluster", "setslot", &slot, "node", &to]), "OK");
    }
    rack.writes_at(key, "at its new shard", second);
    assert_eq!(rack.ask(&["append", key, "!"]), "17");
    assert_eq!(rack.ask(&["get", key]), "at its new shard!");
    assert_eq!(rack.ask(&["eval", "return redis.call('strlen', KEYS[1])", "1", key]), "17");
    let transaction = format!("multi\nincr {{{key}}}n\nincrby {{{key}}}n 4\nexec\n");
    assert_eq!(rack.types(&transaction), "OK\nQUEUED\nQUEUED\n1\n5");
    let watched = format!("watch {{{key}}}n\nget {{{key}}}n\nmulti\nset {{{key}}}n 7\nexec\n");
    assert_eq!(rack.types(&watched), "OK\n5\nOK\nQUEUED\nOK");
    assert_eq!(cli(second, &["get", &format!("{{{key}}}n")]), "7");
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = rack.ask(&[&["mget"], &words[..]].concat());
    assert!(found.lines().all(|value| value.starts_with("value") || value == "at its new shard!"));
    assert!(rack.ask(&["get", other]).starts_with("value"));

    // What others write there is seen at once, for nothing is granted of it.
    for round in 0..50 {
        let value = format!("round {round}");
        assert_eq!(cli(second, &["set", key, &value]), "OK");
        assert_eq!(rack.ask(&["get", key]), value);
    }
    // An EXEC that waits for another's write is said once, at the slot's node.
    assert_eq!(cli(second, &["client", "pause", "2000", "write"]), "OK");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| rack.ask(&["set", key, "x"]));
        until("the other's write does not wait", || {
            cli(second, &["info", "clients"]).contains("blocked_clients:1")
        });
        let mut client = rack.connect();
        client.says(&format!("MULTI\r\nAPPEND {key} y\r\nEXEC\r\nPING\r\n"));
        assert_eq!(client.hears(5), ["+OK", "+QUEUED", "*1", ":2", "+PONG"]);
        assert_eq!(other.join().unwrap(), "OK");
        // Said twice, it has an answer that is taken for that of another command.
        client.says("PING\r\nECHO last\r\n");
        assert_eq!(client.hears(3), ["+PONG", "$4", "last"]);
    });
    assert_eq!(rack.ask(&["append", key, "z"]), "3", "its keys are free");
    assert_eq!(rack.ask(&["get", key]), "xyz");

    until("the new file does not have the move", || {
        let text = String::from_utf8(import(third).stdout).unwrap();
        text.contains(&format!("first = {slot}\nlast = {slot}\n"))
    });

    // A transaction that has gone to a node which others replace keeps its keys from nobody.
    let successor = rack.replica_of(second);
    let mut client = rack.connect();
    client.says(&format!("WATCH {key}\r\nMULTI\r\nSET {key} z\r\n"));
    assert_eq!(client.hears(3), ["+OK", "+OK", "+QUEUED"]);
    rack.stop(second);
    client.says("EXEC\r\n");
    until("no failover of one that is stopped", || rack.role(successor) == "master");
    until("nothing can be written", || rack.ask(&["set", key, "free"]) == "OK");
    assert_eq!(cli(successor, &["get", key]), "free");
}
