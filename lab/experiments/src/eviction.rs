//! A backend that is full, and hot keys that the switch answers: does it keep what it never sees
//! read, beside others' cold writes that take the place of everything else?
//!
//! One rack after the other, before a Redis that evicts by last use, one that evicts by frequency,
//! and a memcached. Clients read the hottest keys, and nothing else; another client writes keys
//! that nobody reads to the backend itself. In the end it is counted which of the hottest keys the
//! backend still has, and, for comparison, which of as many others of the same age that nobody
//! read.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::{interrupt, namespace};
use load::{
    Phase, PhaseResult,
    workload::{KEY_LEN, KeySpace, Permutation, Popularity, populated_value},
};
use plan::roles::MEMCACHED_PORT;
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, percent, thousands};
use wire::Secret;

use crate::{
    Backend, Measure, Options, Report, Run,
    params::positive,
    resp::{Connection, Server, info},
    servers::{Rack, Servers},
};

/// The hottest keys, which are read; and as many that are not.
const HOT: usize = 100;
/// Part of the reads that the switch answers, once it has learned.
const LEARNED: f64 = 0.95;
/// Cold keys that are written in a row.
const IN_A_ROW: u32 = 20;
/// The answers of a server on this machine.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is measured: how rows name it, and its policy.
const SYSTEMS: [(&str, Backend, &str); 3] = [
    ("allkeys-lru", Backend::Redis, "allkeys-lru"),
    ("allkeys-lfu", Backend::Redis, "allkeys-lfu"),
    ("memcached", Backend::Memcached, ""),
];

/// Parameters of a full backend behind a switch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eviction {
    rack: Rack,
    /// Length of each system's run in seconds.
    step_s: f64,
    /// Reads of the hottest keys in each second.
    reads_per_s: f64,
    /// Cold keys that are written in each second.
    cold_per_s: f64,
    /// Megabytes that the backend has for the keys.
    room_mb: u64,
}

impl Measure for Eviction {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        positive!(self, step_s, reads_per_s, cold_per_s)?;
        ensure!(self.room_mb >= 8, "room_mb = {}: memcached takes no less than 8", self.room_mb);
        ensure!(self.rack.keys >= 2 * HOT, "keys = {}: at least {}", self.rack.keys, 2 * HOT);
        Ok(())
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis and memcached")
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let names =
            ["", "hits", "hit ratio", "cold writes", "hottest gone", "unread gone", "commands"];
        let mut table = Table::new(&names);
        let mut all = vec![];
        for (name, backend, policy) in SYSTEMS {
            let seen = self.measure(run, name, backend, policy)?;
            let hits = seen.reads.cached as f64;
            let hit_ratio = hits / (seen.reads.sent as f64).max(1.0);
            table.row([
                name.into(),
                thousands(hits),
                percent(hit_ratio),
                thousands(f64::from(seen.written)),
                format!("{} of {HOT}", seen.hottest_gone),
                format!("{} of {HOT}", seen.unread_gone),
                thousands(seen.commands),
            ]);
            report.rows.push(json!({
                "system": name,
                "hits": hits,
                "hit_ratio": hit_ratio,
                "cold_writes": seen.written,
                "hottest_keys_evicted": seen.hottest_gone,
                "unread_keys_evicted": seen.unread_gone,
                "backend_commands": seen.commands,
                "wrong_values": seen.reads.wrong(),
            }));
            all.push((seen, hit_ratio));
        }
        let hottest: usize = all.iter().map(|(seen, _)| seen.hottest_gone).sum();
        let unread = all.iter().map(|(seen, _)| seen.unread_gone).min().unwrap_or(0);
        let per_hit =
            |(seen, _): &(Outcome, f64)| seen.commands / (seen.reads.cached as f64).max(1.0);
        let wrong: u64 = all.iter().map(|(seen, _)| seen.reads.wrong()).sum();
        report.summarize("hottest_keys_evicted", hottest as f64);
        report.summarize("unread_keys_evicted", unread as f64);
        report.summarize("backend_commands_per_hit", all.iter().map(per_hit).fold(0.0, f64::max));
        report.summarize("hit_ratio", all.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::min));
        report.summarize("wrong_values", wrong as f64);
        report.text = format!(
            "{}\nGone: what the backend has evicted of the {HOT} hottest keys, which the switch answers, and of {HOT} others\n\
             of the same age that nobody reads. Commands: what it cost the backend to hear of the hits.\n",
            table.render()
        );
        Ok(())
    }
}

/// What came of one system.
struct Outcome {
    reads: PhaseResult,
    written: u32,
    hottest_gone: usize,
    unread_gone: usize,
    /// Commands to the backend for keys that are read elsewhere.
    commands: f64,
}

impl Eviction {
    fn measure(
        &self,
        run: &Run<'_>,
        name: &str,
        backend: Backend,
        policy: &str,
    ) -> anyhow::Result<Outcome> {
        let rack = &self.rack;
        let mut servers = Servers::new(run, rack, backend)?;
        let mut data = Data::of(&servers, backend)?;
        data.limit(self.room_mb, policy)?;
        servers.cache_on()?;
        self.learn(&mut servers, run, name)?;
        run.progress.say(format!("{name}: beside cold writes"));
        let before = data.commands(&servers)?;
        let (ends, mut cold) = (AtomicBool::new(false), Data::of(&servers, backend)?);
        let (reads, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.write_cold(&mut cold, &ends));
            let reads = servers.phase(&self.reads(self.step_s));
            ends.store(true, Relaxed);
            let written = writer.join().expect("the writer does not panic");
            anyhow::Ok((reads?, written?))
        })?;
        let commands = data.commands(&servers)? - before;
        let keys = KeySpace::new(rack.keys, wire::TENANT_OPEN, &Secret::NONE.into());
        let permutation = Permutation::new(rack.keys, run.options.seed);
        let mut gone = |ranks: std::ops::Range<usize>| -> anyhow::Result<usize> {
            let mut gone = 0;
            for key in permutation.keys().skip(ranks.start).take(ranks.len()) {
                gone += usize::from(!data.has(&keys.get(key).bytes)?);
            }
            Ok(gone)
        };
        let (hottest_gone, unread_gone) = (gone(0..HOT)?, gone(HOT..2 * HOT)?);
        Ok(Outcome { reads, written, hottest_gone, unread_gone, commands })
    }

    /// Reads of the hottest keys alone.
    fn reads(&self, seconds: f64) -> Phase {
        Phase { keys: HOT, ..Phase::reads(Popularity::Uniform, self.reads_per_s, 0.0, seconds) }
    }

    /// Reads until the switch answers.
    fn learn(&self, servers: &mut Servers<'_>, run: &Run<'_>, name: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let seen = servers.phase(&self.reads(0.5))?;
            let hits = seen.cached as f64 / (seen.sent as f64).max(1.0);
            run.progress.say(format!("{name}: learning, {:.1} % hits", hits * 100.0));
            if hits >= LEARNED || servers.is_bare() {
                return Ok(());
            }
            ensure!(
                start.elapsed().as_secs_f64() < self.rack.learn_s,
                "{name}: only {} of the reads of {HOT} keys are answered in the switch after {} s",
                percent(hits),
                self.rack.learn_s
            );
        }
    }

    /// Writes keys that nobody reads until it ends; how many.
    fn write_cold(&self, data: &mut Data, ends: &AtomicBool) -> anyhow::Result<u32> {
        let (start, len) = (Instant::now(), self.rack.value_len.longest());
        let mut written = 0;
        while !ends.load(Relaxed) {
            interrupt::check()?;
            for _ in 0..IN_A_ROW {
                let mut key = [b'c'; KEY_LEN];
                key[..8].copy_from_slice(format!("{written:08x}").as_bytes());
                data.set(&key, &populated_value(&key, len))?;
                written += 1;
            }
            // The rate, not a wait for anything.
            let due = start + Duration::from_secs_f64(f64::from(written) / self.cold_per_s);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(written)
    }
}

/// The backend, as another client of it sees it.
enum Data {
    Redis(Connection),
    Memcached(BufReader<TcpStream>),
}

impl Data {
    fn of(servers: &Servers<'_>, backend: Backend) -> anyhow::Result<Data> {
        if backend == Backend::Redis {
            let socket = servers.data_of("server")?;
            return Ok(Data::Redis(Connection::to(&Server::Unix(socket))?));
        }
        let space = servers.rig().namespace("server")?;
        let stream =
            namespace::within(&space, || Ok(TcpStream::connect(("127.0.0.1", MEMCACHED_PORT))?))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Data::Memcached(BufReader::new(stream)))
    }

    /// From now on there is so much room for keys.
    fn limit(&mut self, room_mb: u64, policy: &str) -> anyhow::Result<()> {
        match self {
            Data::Redis(redis) => {
                let most = info(redis, "used_memory")? as u64 + (room_mb << 20);
                let settings =
                    [("maxmemory", most.to_string()), ("maxmemory-policy", policy.into())];
                for (name, value) in settings {
                    redis.ask(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()])?;
                }
            }
            Data::Memcached(stream) => {
                expect(stream, &format!("cache_memlimit {room_mb}"), b"", "OK")?;
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8; KEY_LEN], value: &[u8]) -> anyhow::Result<()> {
        match self {
            Data::Redis(redis) => redis.ask(&[b"SET", key, value]).map(drop),
            Data::Memcached(stream) => {
                let line = format!("set {} 0 0 {}", std::str::from_utf8(key)?, value.len());
                expect(stream, &line, value, "STORED")
            }
        }
    }

    fn has(&mut self, key: &[u8; KEY_LEN]) -> anyhow::Result<bool> {
        match self {
            Data::Redis(redis) => Ok(redis.ask(&[b"EXISTS", key])?.as_deref() == Some(b"1")),
            Data::Memcached(stream) => {
                let line = format!("mg {}", std::str::from_utf8(key)?);
                Ok(ask(stream, &line, b"")?.starts_with("HD"))
            }
        }
    }

    /// Commands so far that told the backend of keys that are read elsewhere, and asked for its
    /// policy. Redis counts them itself, this one too from the second time on.
    fn commands(&mut self, servers: &Servers<'_>) -> anyhow::Result<f64> {
        let Data::Redis(redis) = self else {
            let totals = servers.store_totals()?;
            return totals.get("mark_commands").copied().context("the store does not tell");
        };
        let told = redis.ask(&[b"INFO", b"commandstats"])?.unwrap_or_default();
        let told = String::from_utf8_lossy(&told).into_owned();
        let calls = |name: &str| -> f64 {
            let mut lines = told.lines().filter_map(|line| line.strip_prefix(name));
            let calls = lines.find_map(|line| line.strip_prefix(":calls=")?.split(',').next());
            calls.and_then(|calls| calls.parse().ok()).unwrap_or(0.0)
        };
        Ok(calls("cmdstat_touch") + calls("cmdstat_info"))
    }
}

/// What a memcached answers to a line and what follows it, if there is anything.
fn ask(stream: &mut BufReader<TcpStream>, line: &str, value: &[u8]) -> anyhow::Result<String> {
    let mut bytes = format!("{line}\r\n").into_bytes();
    if !value.is_empty() {
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    stream.get_mut().write_all(&bytes)?;
    let mut answer = String::new();
    stream.read_line(&mut answer)?;
    Ok(answer.trim_end().into())
}

fn expect(
    stream: &mut BufReader<TcpStream>,
    line: &str,
    value: &[u8],
    expected: &str,
) -> anyhow::Result<()> {
    let answer = ask(stream, line, value)?;
    ensure!(answer == expected, "memcached answered {answer:?} to {line:?}");
    Ok(())
}
