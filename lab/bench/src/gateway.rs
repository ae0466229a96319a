//! What a Redis client's request costs through the gateway when its key is cached, over Redis
//! itself. Both processor times are of `redis-benchmark`, the server it talks to, and the
//! softirq threads.

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
const REDIS_PORT: u16 = 6379;
const GATEWAY_PORT: u16 = 6380;

/// The key that `redis-benchmark` makes of a number.
pub fn key(number: usize) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// The gateway on the client's host and a Redis on another.
pub struct Gateway {
    redis: IpAddr,
    others: [CountedTasks; 2],
}

fn process(name: &str, command: &[&str], ready: Option<&str>) -> ProcessSpec {
    let command = command.iter().map(|word| word.to_string()).collect();
    let ready = ready.map(String::from);
    ProcessSpec { cpu: Some(1), ready, ..ProcessSpec::new(name, command) }
}

impl Gateway {
    /// Starts both, with every key in Redis.
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
        let (server, listen) = (store.to_string(), format!("127.0.0.1:{GATEWAY_PORT}"));
        let command = ["shortstop", "gateway", "--server", &server, "--listen", &listen];
        lab.start(client, &process("gateway", &command, None), false)?;
        namespace::within(&lab.namespace(client), || {
            interrupt::wait_for("the gateway", Duration::from_secs(10), || {
                Ok(TcpStream::connect(&listen).ok().map(drop))
            })
        })?;
        namespace::within(&lab.namespace(host), || fill(redis.into(), value_len))?;
        let of = |name: String| lab.process(&name).map(|process| CountedTasks::of(&[process.pid]));
        let ours = of(format!("{client}-gateway")).context("the gateway's process")?;
        let theirs = of(format!("{host}-redis")).context("Redis's process")?;
        Ok(Gateway { redis: redis.into(), others: [ours, theirs] })
    }

    /// Microseconds of processor time per GET, through the gateway and straight to Redis; from
    /// within the client's namespace.
    ///
    /// # Errors
    /// `redis-benchmark` is missing or failed.
    pub fn batch(&self, pipeline: usize) -> anyhow::Result<[f64; 2]> {
        let gateway = cost("127.0.0.1", GATEWAY_PORT, pipeline, &self.others[0])?;
        let redis = cost(&self.redis.to_string(), REDIS_PORT, pipeline, &self.others[1])?;
        Ok([gateway, redis])
    }
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

fn cost(host: &str, port: u16, pipeline: usize, others: &CountedTasks) -> anyhow::Result<f64> {
    let (before, used, own_before) = (children(), others.used(), own());
    let output = Command::new("redis-benchmark")
        .args(["-h", host, "-p", &port.to_string(), "-t", "get", "-q", "-c", "50"])
        .args(["-n", &REQUESTS.to_string(), "-r", &KEYS.to_string(), "-P", &pipeline.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("cannot run `redis-benchmark` (Debian: apt install redis-tools)")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("GET:"), "redis-benchmark: {said}{wrong}");
    // This thread only waited.
    let served = (others.used() - used).saturating_sub(own() - own_before);
    Ok((children() - before + served).as_secs_f64() * 1e6 / REQUESTS as f64)
}
