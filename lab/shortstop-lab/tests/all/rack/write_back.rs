//! Write-back with real processes: keys are lent to two switches while they are written, and then
//! something ends. Every write that was answered is there afterwards.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use client::Options;
use lab::{
    namespace::within,
    rack::{Lab, unique_name},
};
use plan::topology::Topology;
use serde_json::Value;

use super::support::{Kind, PATIENCE, Rack, needs_root, until, use_client};

lab::on_both!(
    what_was_answered_outlives_a_store_that_is_killed_and_its_memcached_has_it,
    what_was_answered_outlives_a_store_that_is_killed_and_its_redis_has_it,
    a_store_that_is_ended_calls_everything_back,
    switches_that_are_ended_one_after_the_other_lose_nothing,
);

const TENANT: u32 = 7;
const KEYS: [&str; 4] = ["counter1", "counter2", "counter3", "counter4"];
/// The switch that answers, and the one that keeps.
const SWITCHES: [&str; 2] = ["switch1", "switch2"];

/// What holds the data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backend {
    Redis,
    Memcached,
}

impl Backend {
    fn process(self) -> &'static str {
        match self {
            Backend::Redis => {
                "[[host.process]]\nname = \"redis\"\ncommand = [\"redis-server\", \"--port\", \"6379\", \
                 \"--bind\", \"127.0.0.1\", \"--unixsocket\", \"{dir}/redis.sock\", \"--save\", \"\", \
                 \"--dir\", \"{dir}\"]\nready = \"{dir}/redis.sock\"\n"
            }
            Backend::Memcached => {
                "[[host.process]]\nname = \"memcached\"\ncommand = [\"memcached\", \"-u\", \"root\", \
                 \"-l\", \"127.0.0.1\", \"-p\", \"11211\", \"-U\", \"0\", \"-P\", \"{dir}/memcached.pid\"]\n\
                 ready = \"{dir}/memcached.pid\"\n"
            }
        }
    }

    fn options(self) -> &'static str {
        match self {
            Backend::Redis => {
                "\"--backend\", \"redis://127.0.0.1:6379\", \"--outside-writes\", \"ignore\""
            }
            Backend::Memcached => "\"--backend\", \"memcached://127.0.0.1:11211\"",
        }
    }

    /// What it has of a key itself, whoever answers for that at the moment.
    fn has(self, rack: &Rack, key: &str) -> Option<u64> {
        let name = format!("shortstop:{TENANT}:{key}");
        let said = match self {
            Backend::Redis => rack.done("server", &["redis-cli", "-p", "6379", "get", &name]),
            Backend::Memcached => {
                let connect = || Ok(TcpStream::connect("127.0.0.1:11211")?);
                let mut stream = within(&rack.lab.namespace("server"), connect).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                write!(stream, "get {name}\r\n").unwrap();
                let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
                match lines.next().unwrap().as_str() {
                    "END" => String::new(),
                    _ => lines.next().unwrap(),
                }
            }
        };
        said.trim().parse().ok()
    }
}

fn rack(kind: Kind, backend: Backend) -> Rack {
    needs_root();
    let (mode, ready, ending) = match kind {
        Kind::Kernel => ("\"--mode\", \"generic\"", "/sys/fs/bpf/shortstop/{lab}", ""),
        Kind::Soft => ("\"--soft\"", "/run/shortstop/switch-{lab}", ".sock"),
    };
    let text = include_str!("write_back.toml")
        .replace("BACKEND", backend.process())
        .replace("OPTIONS", backend.options())
        .replace("MODE", mode)
        .replace("READY", ready)
        .replace("ENDING", ending);
    let topology = Topology::parse(&text).expect("a valid topology");
    let lab = Lab::create(&unique_name(), topology, false).unwrap_or_else(|e| panic!("{e:#}"));
    let mut rack = Rack { lab };
    rack.start();
    rack
}

/// What is known of one key's writes: numbers that rise.
#[derive(Default)]
struct WriteProgress {
    answered: AtomicU64,
    tried: AtomicU64,
}

/// Clients that write one key each as fast as they are answered, until one write is not.
struct Writers {
    stop: Arc<AtomicBool>,
    keys: Vec<(Arc<WriteProgress>, JoinHandle<()>)>,
}

impl Writers {
    fn start(rack: &Rack, from: u64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let cluster = std::fs::read_to_string(rack.cluster()).unwrap();
        let writer = |key: &'static str| {
            let written = Arc::new(WriteProgress::default());
            written.answered.store(from, SeqCst);
            let (own, stop) = (written.clone(), stop.clone());
            let (space, cluster) = (rack.lab.namespace("client"), cluster.clone());
            let thread = std::thread::spawn(move || {
                let options = Options::default();
                use_client(&space, &cluster, TENANT, options, async |client| {
                    for number in from + 1.. {
                        if stop.load(SeqCst) {
                            return;
                        }
                        own.tried.store(number, SeqCst);
                        let set = client.set(key, number.to_string(), None).await;
                        if set.is_err() {
                            return;
                        }
                        own.answered.store(number, SeqCst);
                    }
                });
            });
            (written, thread)
        };
        Writers { keys: KEYS.into_iter().map(writer).collect(), stop }
    }

    fn answered(&self) -> u64 {
        let answered = |(written, _): &(Arc<WriteProgress>, _)| written.answered.load(SeqCst);
        self.keys.iter().map(answered).sum()
    }

    /// Whether none of them writes any more: on a busy machine one may hear of no outcome in time.
    fn are_over(&self) -> bool {
        self.keys.iter().all(|(_, thread)| thread.is_finished())
    }

    /// Waits until so many more writes were answered.
    fn wait(&self, more: u64) {
        let goal = self.answered() + more;
        until(&format!("{more} more writes"), || {
            (self.answered() >= goal || self.are_over()).then_some(())
        });
    }

    /// Waits until some keys are lent; false: nobody writes any more.
    fn until_lent(&self, rack: &Rack) -> bool {
        until("keys are lent", || {
            let lent = store_status(rack)?["loans"]["lent"].as_u64()?;
            (lent > 0 || self.are_over()).then_some(lent > 0)
        })
    }

    /// Waits until none is answered any more; for each key the last answered and the last tried.
    fn end(self) -> Vec<(u64, u64)> {
        self.keys
            .into_iter()
            .map(|(written, thread)| {
                thread.join().expect("the writer does not panic");
                (written.answered.load(SeqCst), written.tried.load(SeqCst))
            })
            .collect()
    }

    fn stop(self) -> Vec<(u64, u64)> {
        self.stop.store(true, SeqCst);
        self.end()
    }
}

fn store_status(rack: &Rack) -> Option<Value> {
    let socket = rack.lab.dir().join("store.sock");
    let socket = socket.to_string_lossy();
    let words = ["shortstop", "store", "status", "--json", "--socket", &socket];
    serde_json::from_slice(&rack.run("server", &words).stdout).ok()
}

fn counted(rack: &Rack, name: &str) -> u64 {
    let status = store_status(rack).expect("the store says");
    status["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

fn until_it_takes_writes(rack: &Rack) {
    until("the store takes writes", || (store_status(rack)?["takes_writes"] == true).then_some(()));
}

/// What clients read is what was written last, or the write after that, of which nothing is known.
fn nothing_is_lost(rack: &Rack, written: &[(u64, u64)]) {
    for (key, (answered, tried)) in KEYS.iter().zip(written) {
        let value = rack.get_as("client", key, &["--tenant", "7"]).value;
        let value: u64 = value.map_or(0, |value| value.parse().unwrap());
        assert!(
            (*answered..=*tried).contains(&value),
            "{key}: {value}, and {answered} was answered, {tried} tried"
        );
    }
    assert_eq!(counted(rack, "loans_lost"), 0);
}

fn what_was_answered_outlives_a_store_that_is_killed_and_its_memcached_has_it(kind: Kind) {
    outlives_a_kill(kind, Backend::Memcached);
}

fn what_was_answered_outlives_a_store_that_is_killed_and_its_redis_has_it(kind: Kind) {
    outlives_a_kill(kind, Backend::Redis);
}

/// The number to begin with after these.
fn after(written: &[(u64, u64)]) -> u64 {
    let tried = written.iter().map(|(_, tried)| *tried);
    tried.max().unwrap_or(0)
}

fn outlives_a_kill(kind: Kind, backend: Backend) {
    let mut rack = rack(kind, backend);
    let mut from = 0;
    // Until it so happens that the switches alone have something.
    until("answered by switches without a store", || {
        let writers = Writers::start(&rack, from);
        writers.until_lent(&rack);
        // The store hears of it in time, without anybody asking.
        for (key, (written, _)) in KEYS.iter().zip(&writers.keys) {
            let answered = written.answered.load(SeqCst);
            until("the backend has what was answered", || {
                (backend.has(&rack, key).unwrap_or(0) >= answered).then_some(())
            });
        }
        writers.until_lent(&rack);
        rack.kill("server", "store");
        let killed = writers.answered();
        let written = writers.end();
        let answered: u64 = written.iter().map(|(answered, _)| answered).sum();
        let is_behind = |(key, (answered, _)): (&&str, &(u64, u64))| {
            backend.has(&rack, key).unwrap_or(0) < *answered
        };
        let behind = KEYS.iter().zip(&written).any(is_behind);
        rack.start_again("server", "store");
        until_it_takes_writes(&rack);
        let found = counted(&rack, "loans_found");
        nothing_is_lost(&rack, &written);
        from = after(&written);
        (answered > killed && behind && found > 0).then_some(())
    });
}

fn a_store_that_is_ended_calls_everything_back(kind: Kind) {
    let backend = Backend::Memcached;
    let mut rack = rack(kind, backend);
    let writers = Writers::start(&rack, 0);
    writers.until_lent(&rack);
    writers.wait(200);
    rack.lab.stop("server", "store", libc::SIGTERM).unwrap();
    let written = writers.end();
    for (key, (answered, tried)) in KEYS.iter().zip(&written) {
        let has = backend.has(&rack, key).unwrap_or(0);
        assert!(
            (*answered..=*tried).contains(&has),
            "{key}: {has}, and {answered} was answered, {tried} tried"
        );
    }
    rack.start_again("server", "store");
    until_it_takes_writes(&rack);
    assert_eq!(counted(&rack, "loans_found"), 0, "nothing was left behind");
    nothing_is_lost(&rack, &written);
}

fn switches_that_are_ended_one_after_the_other_lose_nothing(kind: Kind) {
    let mut rack = rack(kind, Backend::Memcached);
    let mut from = 0;
    for switch in SWITCHES {
        let writers = Writers::start(&rack, from);
        writers.until_lent(&rack);
        rack.lab.stop(switch, "agent", libc::SIGTERM).unwrap();
        match kind {
            // The programs go on by themselves.
            Kind::Kernel => writers.wait(500),
            // With the process everything that the switch had is gone, and what it was lent comes
            // back from the other.
            Kind::Soft => until("the loans are back", || {
                let loans = &store_status(&rack)?["loans"];
                (loans["lent"] == 0 && loans["returning"] == 0).then_some(())
            }),
        }
        let written = writers.stop();
        nothing_is_lost(&rack, &written);
        from = after(&written);
        rack.start_again(switch, "agent");
    }
    let writers = Writers::start(&rack, from);
    writers.until_lent(&rack);
    writers.wait(200);
    nothing_is_lost(&rack, &writers.stop());
}
