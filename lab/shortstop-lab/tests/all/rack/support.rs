//! A rack to test: the built-in topology, varied, with its processes and what people do with it.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use client::{Client, Options};
use lab::{
    namespace,
    process::command_in,
    rack::{Lab, unique_name},
};
use plan::topology::Topology;
use serde_json::Value;

pub use lab::testing::{Kind, PATIENCE, needs_root, until};

/// The built-in topology of `shortstop-lab up rack`, with fewer keys.
const RACK: &str = include_str!("../../../src/rack.toml");

/// Addresses of the server, as the topology gives them.
pub const SERVER: &str = "10.0.3.1";
/// The same over IPv6.
pub const SERVER_V6: &str = "fd00:0:0:3::1";

/// A rack that is removed when dropped.
pub struct Rack {
    pub lab: Lab,
}

/// What a read by command line gave.
#[derive(Debug)]
pub struct ReadAnswer {
    pub value: Option<String>,
    pub version: u64,
    pub from_switch: bool,
    pub expires_in_ms: Option<u64>,
}

/// Writes a file with secrets, for its owner's eyes only.
pub fn write_private(path: &Path, text: &str) {
    std::fs::write(path, "").unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(path, text).unwrap();
}

/// What makes the rack's switch a soft one.
const SOFT: [(&str, &str); 2] = [
    ("\"--mode\", \"generic\"", "\"--soft\""),
    ("/sys/fs/bpf/shortstop/{lab}-switch", "/run/shortstop/switch-{lab}-switch.sock"),
];

/// The rack's text with parts replaced; each part must be there.
pub fn rack_with(kind: Kind, changes: &[(&str, &str)]) -> String {
    let mut text = RACK.replace("100000:128", "1000:128");
    let soft: &[_] = if kind == Kind::Soft { &SOFT } else { &[] };
    for (from, to) in soft.iter().chain(changes) {
        assert!(text.contains(from), "the rack has no {from:?} to be replaced");
        text = text.replace(from, to);
    }
    text
}

impl Rack {
    /// The rack as people get it, ready for use.
    pub fn up(kind: Kind) -> Rack {
        Rack::with(kind, &[])
    }

    /// A rack with parts of its description replaced, ready for use.
    pub fn with(kind: Kind, changes: &[(&str, &str)]) -> Rack {
        let mut rack = Rack::build(kind, changes);
        rack.start();
        rack
    }

    /// Namespaces and links only.
    pub fn build(kind: Kind, changes: &[(&str, &str)]) -> Rack {
        let topology = Topology::parse(&rack_with(kind, changes)).expect("a valid topology");
        let lab = Lab::create(&unique_name(), topology, false);
        Rack { lab: lab.unwrap_or_else(|e| panic!("{e:#}")) }
    }

    /// Starts the processes and waits until all of them do their work.
    pub fn start(&mut self) {
        self.lab.start_all(false).unwrap_or_else(|e| panic!("{e:#}"));
        self.lab.settle().unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// The cluster file.
    pub fn cluster(&self) -> String {
        self.lab.dir().join("cluster.toml").to_string_lossy().into_owned()
    }

    /// The switch's name.
    pub fn switch(&self) -> String {
        format!("{}-switch", self.lab.name())
    }

    /// A command on a host; `shortstop` is the program under test.
    pub fn command(&self, host: &str, words: &[&str]) -> Command {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        command_in(&self.lab.namespace(host), &words).unwrap_or_else(|e| panic!("{e:#}"))
    }

    /// Runs a command on a host to its end.
    pub fn run(&self, host: &str, words: &[&str]) -> Output {
        self.command(host, words).output().expect("the command can be started")
    }

    /// Runs a command that has to succeed; gives what it printed.
    pub fn done(&self, host: &str, words: &[&str]) -> String {
        let output = self.run(host, words);
        assert!(output.status.success(), "{host}: {words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command that has to fail; gives its complaint, which is one line.
    pub fn refused(&self, host: &str, words: &[&str]) -> String {
        let mut child = self.command(host, words);
        child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let mut child = child.spawn().expect("the command can be started");
        let start = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("{words:?} goes on instead of refusing");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("a child");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success(), "{words:?} succeeded: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: one line is expected:\n{said}");
        said
    }

    fn shortstop(&self, command: &str, key: &str, rest: &[&str]) -> Vec<String> {
        let cluster = self.cluster();
        let mut words = vec!["shortstop", command, "--json"];
        if !rest.contains(&"--cluster") {
            words.extend(["--cluster", &cluster]);
        }
        words.extend(rest);
        words.extend(["--", key]);
        words.into_iter().map(String::from).collect()
    }

    fn json(&self, host: &str, words: &[String]) -> (Value, Output) {
        let output = command_in(&self.lab.namespace(host), words)
            .and_then(|mut command| Ok(command.output()?))
            .unwrap_or_else(|e| panic!("{e:#}"));
        let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (json, output)
    }

    /// `shortstop get --json`.
    pub fn get(&self, host: &str, key: &str) -> ReadAnswer {
        self.get_as(host, key, &[])
    }

    /// `shortstop get --json` with more options.
    pub fn get_as(&self, host: &str, key: &str, options: &[&str]) -> ReadAnswer {
        let options = [&["--timeout", "60s"], options].concat();
        let (json, output) = self.json(host, &self.shortstop("get", key, &options));
        assert!(json.is_object(), "get {key} on {host}: {output:?}");
        assert_eq!(output.status.success(), !json["value"].is_null(), "{output:?}");
        ReadAnswer {
            value: json["value"].as_str().map(String::from),
            version: json["version"].as_u64().unwrap_or(0),
            from_switch: json["from"] == "switch",
            expires_in_ms: json["expires_in_ms"].as_u64(),
        }
    }

    /// `shortstop set --json`: the new version, or the complaint.
    pub fn try_set(
        &self,
        host: &str,
        key: &str,
        value: &str,
        options: &[&str],
    ) -> Result<u64, String> {
        let mut words = self.shortstop("set", key, options);
        words.push(value.into());
        let (json, output) = self.json(host, &words);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        output
            .status
            .success()
            .then(|| json["version"].as_u64().expect("a version"))
            .ok_or(complaint)
    }

    /// `shortstop set` that has to succeed.
    pub fn set(&self, host: &str, key: &str, value: &str) -> u64 {
        self.set_as(host, key, value, &[])
    }

    /// `shortstop set` with more options, none of which is a condition, that has to succeed.
    pub fn set_as(&self, host: &str, key: &str, value: &str, options: &[&str]) -> u64 {
        until_known(&format!("set {key} on {host}"), || self.try_set(host, key, value, options))
    }

    /// `shortstop delete --json`: whether there was such a key, or the complaint.
    pub fn try_delete(&self, host: &str, key: &str) -> Result<bool, String> {
        let (json, output) = self.json(host, &self.shortstop("delete", key, &[]));
        let complaint = || String::from_utf8_lossy(&output.stderr).into_owned();
        json["deleted"].as_bool().ok_or_else(complaint)
    }

    /// `shortstop delete` that has to succeed: whether there was such a key, or may have been,
    /// as where a first try was in doubt.
    pub fn delete(&self, host: &str, key: &str) -> bool {
        let mut tries = 0;
        let was_there = until_known(&format!("delete {key} on {host}"), || {
            tries += 1;
            self.try_delete(host, key)
        });
        was_there || tries > 1
    }

    /// Reads a key until the switch answers; gives that answer.
    pub fn until_cached(&self, host: &str, key: &str) -> ReadAnswer {
        until(&format!("{key} answered by the switch"), || {
            Some(self.get(host, key)).filter(|got| got.from_switch)
        })
    }

    /// `shortstop switch status --json` of this rack's switch.
    pub fn status(&self) -> Value {
        let words = ["shortstop", "switch", "status", "--json", "--name", &self.switch()];
        let all: Value = serde_json::from_str(&self.done("switch", &words)).expect("JSON");
        all[0].clone()
    }

    /// A number of the switch's status: a counter, or else a field.
    pub fn count(&self, name: &str) -> u64 {
        let status = self.status();
        let value = status["counters"].get(name).unwrap_or(&status[name]);
        value.as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    /// The controller's word on the switch.
    pub fn control_status(&self) -> Option<Value> {
        let output = self.run("switch", &["shortstop", "control", "status", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).ok()?;
        all["switches"].get(0).cloned()
    }

    /// Restarts a process of the topology.
    pub fn start_again(&mut self, host: &str, process: &str) {
        let spec = self.lab.spec(host, process).expect("a process of the topology");
        self.lab.start(host, &spec, false).unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// Ends a process of the topology at once.
    pub fn kill(&mut self, host: &str, process: &str) {
        self.lab.stop(host, process, libc::SIGKILL).unwrap_or_else(|e| panic!("{e:#}"));
    }

    /// Starts reading a key on a host, again and again.
    pub fn keep_reading(&self, host: &str, key: &str, options: Options) -> Reader {
        let text = std::fs::read_to_string(self.cluster()).expect("the cluster file");
        self.keep_reading_as(host, key, &text, wire::TENANT_OPEN, options)
    }

    /// Likewise as a tenant that stands in this text of a cluster file.
    pub fn keep_reading_as(
        &self,
        host: &str,
        key: &str,
        cluster: &str,
        tenant: u32,
        options: Options,
    ) -> Reader {
        let space = self.lab.namespace(host);
        let shared = Arc::new(ReaderState::default());
        let (key, text, own) = (key.to_string(), cluster.to_string(), shared.clone());
        let thread = std::thread::spawn(move || {
            use_client(&space, &text, tenant, options, async |client| {
                read_on(&client, &key, &own).await
            })
        });
        Reader { shared, thread }
    }
}

/// Tries a write until its outcome is known: on a machine that stands still its time is over
/// before it is answered.
///
/// # Panics
/// It fails otherwise.
pub fn until_known<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    until(what, || match attempt() {
        Ok(done) => Some(done),
        Err(complaint) if is_in_doubt(&complaint) => None,
        Err(complaint) => panic!("{what}: {complaint}"),
    })
}

/// Whether a write was given up when its time was over.
pub fn is_in_doubt(complaint: &str) -> bool {
    complaint.contains("outcome unknown") || complaint.contains("took too few of")
}

/// Does something with a client of a tenant in a namespace.
pub fn use_client<T: Send>(
    space: &str,
    cluster: &str,
    tenant: u32,
    options: Options,
    work: impl AsyncFnOnce(Client) -> T + Send,
) -> T {
    let cluster = wire::Cluster::parse(cluster).expect("a valid cluster file");
    let done = namespace::within(space, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::connect(&cluster, tenant, options).await?;
            Ok(work(client).await)
        })
    });
    done.unwrap_or_else(|e| panic!("{e:#}"))
}

/// A client that never gives up within a test.
pub fn patient() -> Options {
    Options { deadline: PATIENCE, ..Options::default() }
}

/// A client that sends nothing twice, so that a single lost packet shows.
pub fn unforgiving() -> Options {
    let wait = Duration::from_secs(30);
    Options {
        deadline: PATIENCE,
        initial_timeout: wait,
        min_timeout: wait,
        max_timeout: wait,
        ..Options::default()
    }
}

#[derive(Default)]
struct ReaderState {
    stop: AtomicBool,
    /// The version of the last write that was answered: no read that begins later may give an
    /// older one.
    newest: AtomicU64,
    reads: AtomicU64,
    hits: AtomicU64,
}

/// A client that reads one key all the time.
pub struct Reader {
    shared: Arc<ReaderState>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Reader {
    /// From now on, older versions are stale.
    pub fn expect_version(&self, version: u64) {
        self.shared.newest.store(version, SeqCst);
    }

    /// Waits until that many more reads were answered.
    pub fn wait_for_reads(&self, more: u64) {
        self.wait("reads", &self.shared.reads, more);
    }

    /// Waits until that many more reads were answered by the switch.
    pub fn wait_for_hits(&self, more: u64) {
        self.wait("hits", &self.shared.hits, more);
    }

    fn wait(&self, what: &str, count: &AtomicU64, more: u64) {
        let goal = count.load(SeqCst) + more;
        until(&format!("{more} more {what}"), || {
            (count.load(SeqCst) >= goal || self.thread.is_finished()).then_some(())
        });
    }

    /// Reads that were answered by the switch.
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(SeqCst)
    }

    /// Stops; gives how often a request had to be sent again. Fails if a read failed or was stale.
    pub fn finish(self) -> u64 {
        self.shared.stop.store(true, SeqCst);
        let result = self.thread.join().expect("the reader does not panic");
        result.unwrap_or_else(|e| panic!("a read: {e}"))
    }
}

async fn read_on(client: &Client, key: &str, shared: &ReaderState) -> Result<u64, String> {
    while !shared.stop.load(SeqCst) {
        let newest = shared.newest.load(SeqCst);
        let began = Instant::now();
        let value = client.get(key).await.map_err(|e| e.to_string())?;
        let value = value.ok_or("the key has gone")?;
        if value.version < newest {
            return Err(format!("stale: version {} after {newest} was written", value.version));
        }
        shared.reads.fetch_add(1, SeqCst);
        shared.hits.fetch_add(value.from_switch.into(), SeqCst);
        // Leaves the processor to others between two reads, on however slow a machine; nothing
        // waits for this.
        tokio::time::sleep(began.elapsed().max(Duration::from_millis(1))).await;
    }
    Ok(client.counts().retransmitted)
}
