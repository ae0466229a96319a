//! What a Redis client's request costs through the gateway, by each of its ways, over Redis itself
//! and over twemproxy. Processor times are of `redis-benchmark`, the server it talks to, the
//! servers behind that, and the softirq threads.

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use lab::{interrupt, namespace, rack::Lab};
use plan::topology::ProcessSpec;

use crate::cpu::{CountedTasks, own};

/// Keys that `redis-benchmark -r` asks for.
pub const KEYS: usize = 10_000;
const REQUESTS: usize = 30_000;
/// Requests by which a rate is measured: some tenths of a second.
const REQUESTS_OF_RATE: usize = 200_000;
const REDIS_PORT: u16 = 6379;
/// The gateway that hostile clients come to, and its `--max-memory`.
const VICTIM: &str = "victim";
/// The gateway that keeps copies.
const LOCAL: &str = "local";
/// GETs of all keys before it is measured: enough for each to be kept.
const REQUESTS_BEFORE: usize = 400_000;
/// Times that so many are asked before it counts as broken.
const WARM_UPS: usize = 20;
/// In MiB.
pub const VICTIMS_MIB: u32 = 64;

/// The key that `redis-benchmark` makes of a number.
pub fn key(number: usize) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// A server that redis-benchmark asks, and all that works for it.
struct Server {
    host: String,
    port: u16,
    tasks: CountedTasks,
    /// What a gateway counts of GETs that go the way that is measured.
    counts: Option<&'static str>,
}

impl Server {
    /// How many GETs have gone the way that is measured, if that is counted.
    fn counted(&self) -> anyhow::Result<Option<u64>> {
        let Some(name) = self.counts else { return Ok(None) };
        let mut stream = TcpStream::connect((self.host.as_str(), self.port))?;
        stream.write_all(b"INFO gateway\r\n")?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        let mut lines = told.lines().filter_map(|line| line.split_once(':'));
        let count = lines.find(|(key, _)| *key == name).and_then(|(_, count)| count.parse().ok());
        count.with_context(|| format!("the gateway does not tell `{name}`: {told}")).map(Some)
    }
}

/// A Redis on another host, and what stands before it on the client's: gateways, each with another
/// way, and twemproxy, if it is installed.
pub struct Gateway {
    redis: Server,
    network: Server,
    upstream: Server,
    holding: Server,
    local: Server,
    twemproxy: Option<Server>,
    /// Port and process of the one that hostile clients come to.
    pub victim: (u16, i32),
}

/// What a GET or SET costs in one batch, in microseconds of processor time.
pub struct Costs {
    /// A GET of Redis itself.
    pub redis: f64,
    /// One that a switch answers.
    pub network: f64,
    /// One that the gateway passes on to Redis.
    pub upstream: f64,
    /// One that the gateway answers from a copy of its own.
    pub local: f64,
    /// One that twemproxy does.
    pub twemproxy: Option<f64>,
    /// A SET of Redis itself.
    pub set_redis: f64,
    /// One under a hold of the store.
    pub set_holding: f64,
}

fn process(name: &str, command: &[&str], ready: Option<&str>) -> ProcessSpec {
    let command = command.iter().map(|word| word.to_string()).collect();
    let ready = ready.map(String::from);
    ProcessSpec { cpu: Some(1), ready, ..ProcessSpec::new(name, command) }
}

impl Gateway {
    /// Starts them, with every key in Redis.
    ///
    /// # Errors
    /// No Redis, no gateway, or they do not start.
    pub fn start(
        lab: &mut Lab,
        client: &str,
        host: &str,
        store: IpAddr,
        value_len: usize,
    ) -> anyhow::Result<Gateway> {
        let redis = lab.topology().address_of(host).context("an address")?;
        let (address, port) = (redis.to_string(), REDIS_PORT.to_string());
        let options = ["--save", "", "--appendonly", "no", "--protected-mode", "no"];
        let mut command = vec!["redis-server", "--bind", &address, "--port", &port];
        command.extend(options);
        command.extend(["--dir", "{dir}", "--unixsocket", "{dir}/redis.sock"]);
        lab.start(host, &process("redis", &command, Some("{dir}/redis.sock")), false)?;
        namespace::within(&lab.namespace(host), || fill(redis.into(), value_len))?;
        let url = format!("redis://{address}:{port}");
        let holder = "127.0.0.1:7118";
        let command = [
            "shortstop",
            "store",
            "--listen",
            holder,
            "--backend",
            &url,
            "--resp",
            "unix:{dir}/resp",
        ];
        lab.start(client, &process("holder", &command, Some("{dir}/resp")), false)?;
        let (server, holder_url) = (store.to_string(), "redis+unix://{dir}/resp");
        let mut start = |name: &str, port: u16, server: &str, resp: &str, network: &str| {
            let cache = if name == LOCAL { "64MiB" } else { "0" };
            let memory = format!("{VICTIMS_MIB}MiB");
            let listen = format!("127.0.0.1:{port}");
            let command = [
                "shortstop",
                "gateway",
                "--server",
                server,
                "--resp",
                resp,
                "--network",
                network,
                "--listen",
                &listen,
                "--cache",
                cache,
                "--max-memory",
                if name == VICTIM { &memory } else { "256MiB" },
            ];
            lab.start(client, &process(name, &command, None), false)?;
            listens(lab, client, port)
        };
        start("network", 6380, &server, &url, "always")?;
        start("upstream", 6381, &server, &url, "never")?;
        start("holding", 6382, holder, holder_url, "never")?;
        start(VICTIM, 6384, &server, &url, "never")?;
        start(LOCAL, 6385, holder, holder_url, "never")?;
        let twemproxy = start_twemproxy(lab, client, &address)?;
        let pid = |name: String| lab.process(&name).map(|process| process.pid).context(name);
        let redis_pid = pid(format!("{host}-redis"))?;
        let ours = |name: &str| pid(format!("{client}-{name}"));
        let local = |port, pids: &[i32]| Server {
            host: "127.0.0.1".into(),
            port,
            tasks: CountedTasks::of(pids),
            counts: None,
        };
        let twemproxy = match twemproxy {
            true => Some(local(6383, &[ours("twemproxy")?, redis_pid])),
            false => None,
        };
        Ok(Gateway {
            victim: (6384, ours(VICTIM)?),
            network: Server {
                counts: Some("answered_by_switch"),
                ..local(6380, &[ours("network")?])
            },
            upstream: local(6381, &[ours("upstream")?, redis_pid]),
            holding: local(6382, &[ours("holding")?, ours("holder")?, redis_pid]),
            local: Server {
                counts: Some("local_hits"),
                ..local(6385, &[ours(LOCAL)?, ours("holder")?, redis_pid])
            },
            twemproxy,
            redis: Server {
                host: address,
                port: REDIS_PORT,
                tasks: CountedTasks::of(&[redis_pid]),
                counts: None,
            },
        })
    }

    /// What each costs; from within the client's namespace.
    ///
    /// # Errors
    /// `redis-benchmark` is missing or failed.
    pub fn batch(&self, pipeline: usize) -> anyhow::Result<Costs> {
        let cost = |server: &Server, test| cost(server, test, pipeline);
        Ok(Costs {
            redis: cost(&self.redis, "get")?,
            network: cost(&self.network, "get")?,
            upstream: cost(&self.upstream, "get")?,
            local: self.warm().and_then(|()| cost(&self.local, "get"))?,
            twemproxy: self.twemproxy.as_ref().map(|server| cost(server, "get")).transpose()?,
            set_redis: cost(&self.redis, "set")?,
            set_holding: cost(&self.holding, "set")?,
        })
    }

    /// Has the gateway that keeps copies keep every key: what was written or not read for a while
    /// is not kept any more. A store that has just started grants none for a lease.
    ///
    /// # Errors
    /// As [`Gateway::batch`], or it keeps too few.
    fn warm(&self) -> anyhow::Result<()> {
        let keys = KEYS.to_string();
        let words = ["-t", "get", "-q", "-c", "50", "-r", &keys, "-P", "16"];
        for _ in 0..WARM_UPS {
            let before = self.local.counted()?;
            benchmark(&self.local, REQUESTS_BEFORE, &words)?;
            let hits = self.local.counted()?.zip(before).map_or(0, |(now, before)| now - before);
            if hits >= REQUESTS_BEFORE as u64 / 2 {
                return Ok(());
            }
        }
        anyhow::bail!("the gateway keeps too few of {KEYS} keys that are read again and again")
    }

    /// GETs per second of one key, by one connection with 16 under way: from a copy that the
    /// gateway keeps, by the network, and of Redis itself.
    ///
    /// # Errors
    /// As [`Gateway::batch`].
    pub fn one_key(&self) -> anyhow::Result<[f64; 3]> {
        self.warm()?;
        Ok([rate(&self.local)?, rate(&self.network)?, rate(&self.redis)?])
    }
}

/// Whether Redis is installed.
pub fn has_redis() -> bool {
    Command::new("redis-server").arg("--version").output().is_ok()
}

/// Whether twemproxy is installed; then it is started.
fn start_twemproxy(lab: &mut Lab, client: &str, redis: &str) -> anyhow::Result<bool> {
    if Command::new("nutcracker").arg("--version").output().is_err() {
        return Ok(false);
    }
    let file = std::env::temp_dir().join(format!("twemproxy-{}.yml", std::process::id()));
    let pool = format!(
        "pool:\n  listen: 127.0.0.1:6383\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  \
         servers:\n   - {redis}:{REDIS_PORT}:1\n"
    );
    std::fs::write(&file, pool)?;
    let file = file.display().to_string();
    let command = ["nutcracker", "-c", &file, "-o", "{dir}/twemproxy.log"];
    lab.start(client, &process("twemproxy", &command, None), false)?;
    listens(lab, client, 6383)?;
    Ok(true)
}

/// Waits until something at `client` takes connections at this port.
///
/// # Errors
/// Nothing does within ten seconds.
pub fn listens(lab: &Lab, client: &str, port: u16) -> anyhow::Result<()> {
    namespace::within(&lab.namespace(client), || {
        interrupt::wait_for("a server", Duration::from_secs(10), || {
            Ok(TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })
    })
}

fn fill(address: IpAddr, value_len: usize) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect((address, REDIS_PORT)).context("Redis")?;
    let value = "v".repeat(value_len);
    for number in 0..KEYS {
        let line = format!("SET {} {value}\r\n", String::from_utf8(key(number))?);
        stream.write_all(line.as_bytes())?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        ensure!(&reply == b"+OK\r\n", "Redis refused a key");
    }
    Ok(())
}

/// Processor time of all children that have ended.
fn children() -> Duration {
    // SAFETY: all-zero is a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::from_micros((t.tv_sec * 1_000_000 + t.tv_usec) as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn cost(server: &Server, test: &str, pipeline: usize) -> anyhow::Result<f64> {
    let counted = server.counted()?;
    let (before, used, own_before) = (children(), server.tasks.used(), own());
    let (pipeline, keys) = (pipeline.to_string(), KEYS.to_string());
    let mut words = vec!["-q", "-c", "50", "-r", &keys, "-P", &pipeline];
    match test {
        // Names of their own: a SET of a key that is read would call its copies back, at its cost
        // and at that of the next GETs.
        "set" => words.extend(["set", "written:__rand_int__", "VXK"]),
        test => words.extend(["-t", test]),
    }
    benchmark(server, REQUESTS, &words)?;
    // This thread only waited.
    let served = (server.tasks.used() - used).saturating_sub(own() - own_before);
    let cost = (children() - before + served).as_secs_f64() * 1e6 / REQUESTS as f64;
    if let (Some(before), Some(now), Some(name)) = (counted, server.counted()?, server.counts) {
        let went = now - before;
        ensure!(
            went as f64 >= 0.99 * REQUESTS as f64,
            "{name} rose by {went} with {REQUESTS} GETs: the others went another way"
        );
    }
    Ok(cost)
}

fn rate(server: &Server) -> anyhow::Result<f64> {
    let said = benchmark(
        server,
        REQUESTS_OF_RATE,
        &["--csv", "-c", "1", "-P", "16", "get", "key:000000000000"],
    )?;
    let rate = said.lines().last().and_then(|line| line.split(',').nth(1));
    let rate = rate.and_then(|rate| rate.trim_matches('"').parse().ok());
    rate.with_context(|| format!("redis-benchmark: {said}"))
}

fn benchmark(server: &Server, requests: usize, words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("redis-benchmark")
        .args(["-h", &server.host, "-p", &server.port.to_string(), "-n", &requests.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot run `redis-benchmark` (Debian: apt install redis-tools)")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && !said.contains("rror"), "redis-benchmark: {said}{wrong}");
    Ok(said)
}
