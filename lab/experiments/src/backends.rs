//! A Redis behind a store refuses, is made a replica, is slow, hangs, is away and comes back, while
//! clients read and write its keys and another server's through a switch: what are they told, how
//! soon, and how soon is all well again?
//!
//! Each of the clients' lanes has a key of its own and asks one thing after the other: so what it
//! may read is what it wrote last, or one of the writes in doubt since. Values carry their number.

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::ensure;
use client::{Answer, Condition, Error, Machine, Operation};
use lab::{interrupt, namespace};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, thousands};
use wire::{Cluster, Secret, Secrets, TENANT_OPEN, partition_of};

use crate::{
    Backend, Measure, Options, Report, Run,
    params::positive,
    resp::{Connection, Server},
    servers::{Rack, Servers},
};

/// Keys of each server that are asked for, each in a lane of its own.
const LANES: usize = 16;
/// From one question of a lane to its next, if that was answered.
const EVERY: Duration = Duration::from_millis(5);
/// One question in so many is a write.
const WRITE_EVERY: u64 = 4;
/// Clients ask for so long before the fault, and after it.
const BEFORE: Duration = Duration::from_secs(1);
/// How long a slow Redis answers nothing, in milliseconds.
const SLOW_MS: u64 = 500;

/// The server whose Redis fails, and the other one.
const FAILS: usize = 0;
const WELL: usize = 1;

/// What becomes of a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is full.
    Refuses,
    /// It is a replica of nobody who answers.
    Demoted,
    /// It answers nothing for a moment.
    Slow,
    /// It answers nothing for longer than a store waits for it.
    Hangs,
    /// Its process ends, and starts again with its data.
    Gone,
}

/// One question, answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reply {
    /// The server of its key.
    server: usize,
    asked_ns: u64,
    ended_ns: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    /// It was refused, and nothing was done.
    Refused,
    /// It failed, and a write may have been done.
    Failed,
    /// A read of what cannot have been there.
    Wrong,
}

impl Reply {
    fn took_ms(&self) -> f64 {
        self.ended_ns.saturating_sub(self.asked_ns) as f64 / 1e6
    }

    fn is_error(&self) -> bool {
        matches!(self.end, End::Refused | End::Failed)
    }
}

/// Parameters of backends that fail.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backends {
    rack: Rack,
    /// Length of each fault, and of the time after it, in seconds.
    step_s: f64,
}

impl Measure for Backends {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        ensure!(self.rack.servers == 2, "servers = {}: expected 2", self.rack.servers);
        positive!(self, step_s)
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis")
    }

    /// One fault after the other.
    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &Backends, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut servers = Servers::new(run, &params.rack, Backend::Redis)?;
    servers.cache_on()?;
    let cluster = servers.rig().cluster(&[])?;
    let head = ["", "asked", "refused", "failed", "wrong", "slowest error", "recovered", "others"];
    let mut table = Table::new(&head);
    let faults = [
        ("refuses", Fault::Refuses),
        ("demoted", Fault::Demoted),
        ("slow", Fault::Slow),
        ("hangs", Fault::Hangs),
        ("gone", Fault::Gone),
    ];
    let (mut wrong, mut others_errors) = (0, 0);
    let (mut most_recovered, mut most_others, mut most_error) = (0.0, 0.0, 0.0);
    for (name, fault) in faults {
        run.progress.say(name);
        let value_len = params.rack.value_len.longest();
        // Clients of one seed are one client, and what they number is asked once.
        let seed = seed::rng(run.options.seed, name).random();
        let lanes = || Lanes::new(&cluster, name, value_len, seed);
        let seen = phase(&mut servers, lanes, fault, params)?;
        let row = Row::of(&seen);
        table.row([
            name.into(),
            thousands(row.asked as f64),
            thousands(row.refused as f64),
            thousands(row.failed as f64),
            thousands(row.wrong as f64),
            format!("{:.1} ms", row.slowest_error_ms),
            format!("{:.0} ms", row.recovered_ms),
            format!("{:.2}", row.others_p99_over_before),
        ]);
        report.rows.push(json!({
            "fault": name,
            "asked": row.asked,
            "refused": row.refused,
            "failed": row.failed,
            "wrong_answers": row.wrong,
            "slowest_error_ms": row.slowest_error_ms,
            "recovered_ms": row.recovered_ms,
            "others_p99_over_before": row.others_p99_over_before,
        }));
        report.summarize(format!("{name}_errors"), row.errors as f64);
        if matches!(fault, Fault::Refuses | Fault::Demoted | Fault::Slow) {
            most_error = f64::max(most_error, row.slowest_error_ms);
        }
        wrong += row.wrong;
        most_recovered = f64::max(most_recovered, row.recovered_ms);
        others_errors += row.others_errors;
        // What was not measured once is not the best of all.
        most_others = match row.others_p99_over_before {
            none if none.is_nan() => none,
            ratio if ratio < most_others => most_others,
            ratio => ratio,
        };
    }
    for (name, value) in [
        ("wrong_answers", wrong as f64),
        ("slowest_error_ms", most_error),
        ("recovered_ms", most_recovered),
        ("others_errors", others_errors as f64),
        ("others_p99_over_before", most_others),
    ] {
        report.summarize(name, value);
    }
    report.text = format!(
        "{}\nAn error is a refusal, or a failure that may have been done; the slowest of those while Redis answers is in the summary.\n\
         Recovered: from the end of the fault to the last error. Others: the 99th percentile of what the other server did, over that of the second before.\n",
        table.render()
    );
    Ok(())
}

/// What clients saw, and when the fault began and ended.
struct Observation {
    ended: Vec<Reply>,
    begun_ns: u64,
    over_ns: u64,
}

/// What a fault came to.
struct Row {
    asked: usize,
    refused: usize,
    failed: usize,
    wrong: usize,
    /// Errors of keys of the server that fails, and of the other one's.
    errors: usize,
    others_errors: usize,
    slowest_error_ms: f64,
    recovered_ms: f64,
    others_p99_over_before: f64,
}

impl Row {
    fn of(seen: &Observation) -> Row {
        let count = |end: End| seen.ended.iter().filter(|ended| ended.end == end).count();
        let errors = || seen.ended.iter().filter(|ended| ended.is_error());
        let errors_of = |server| errors().filter(|ended| ended.server == server).count();
        let last_ns = errors().map(|ended| ended.ended_ns).max().unwrap_or(0);
        let others = |from_ns: u64, to_ns: u64| {
            let ended = seen.ended.iter().filter(|ended| ended.server == WELL);
            // A refusal is quick.
            let ended = ended.filter(|ended| ended.end == End::Done);
            let ended = ended.filter(|ended| (from_ns..to_ns).contains(&ended.asked_ns));
            p99(ended.map(Reply::took_ms).collect())
        };
        Row {
            asked: seen.ended.len(),
            refused: count(End::Refused),
            failed: count(End::Failed),
            wrong: count(End::Wrong),
            errors: errors_of(FAILS),
            others_errors: errors_of(WELL),
            slowest_error_ms: errors().map(Reply::took_ms).fold(0.0, f64::max),
            recovered_ms: last_ns.saturating_sub(seen.over_ns) as f64 / 1e6,
            others_p99_over_before: others(seen.begun_ns, u64::MAX) / others(0, seen.begun_ns),
        }
    }
}

fn p99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let at = (times.len() as f64 * 0.99) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Clients ask while a fault comes and goes.
fn phase(
    servers: &mut Servers,
    lanes: impl Fn() -> anyhow::Result<Lanes> + Send + Sync,
    fault: Fault,
    params: &Backends,
) -> anyhow::Result<Observation> {
    let stop = AtomicBool::new(false);
    let space = servers.client_namespace()?;
    let step = Duration::from_secs_f64(params.step_s);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| namespace::within(&space, || lanes()?.run(start, &stop)));
        let fails = (|| {
            wait(BEFORE)?;
            let begun_ns = start.elapsed().as_nanos() as u64;
            begin(servers, fault, step)?;
            wait(if fault == Fault::Slow { Duration::from_millis(SLOW_MS) } else { step })?;
            end(servers, fault)?;
            let over_ns = start.elapsed().as_nanos() as u64;
            wait(step)?;
            anyhow::Ok((begun_ns, over_ns))
        })();
        stop.store(true, Ordering::Relaxed);
        let ended = asks.join().expect("the clients do not panic");
        let (begun_ns, over_ns) = fails?;
        Ok(Observation { ended: ended?, begun_ns, over_ns })
    })
}

/// Lets time go by, unless the run is interrupted.
fn wait(time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn begin(servers: &mut Servers, fault: Fault, step: Duration) -> anyhow::Result<()> {
    match fault {
        Fault::Refuses => say(servers, &["CONFIG", "SET", "maxmemory", "1"]),
        // Nobody listens there, and nobody ever does.
        Fault::Demoted => say(servers, &["REPLICAOF", "127.0.0.1", "1"]),
        Fault::Slow => say(servers, &["CLIENT", "PAUSE", &SLOW_MS.to_string(), "ALL"]),
        Fault::Hangs => {
            let step_ms = step.as_millis().to_string();
            say(servers, &["CLIENT", "PAUSE", &step_ms, "ALL"])
        }
        Fault::Gone => {
            // So it saves when it is told to end.
            say(servers, &["CONFIG", "SET", "save", "3600 1"])?;
            servers.stop_data(FAILS)
        }
    }
}

fn end(servers: &mut Servers, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Refuses => say(servers, &["CONFIG", "SET", "maxmemory", "0"]),
        Fault::Demoted => say(servers, &["REPLICAOF", "NO", "ONE"]),
        Fault::Slow | Fault::Hangs => Ok(()),
        Fault::Gone => servers.start_data(FAILS),
    }
}

/// Has the Redis that fails carry out a command.
fn say(servers: &Servers, words: &[&str]) -> anyhow::Result<()> {
    let socket = servers.data_of(&servers.rig().stores()[FAILS])?;
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    Connection::to(&Server::Unix(socket))?.ask(&words).map(drop)
}

/// A key, and who asks for it.
struct Lane {
    key: String,
    server: usize,
    /// Numbers of the values that it may have; 0: it may be absent.
    possible: Vec<u64>,
    /// Number of the last write, and questions asked.
    written: u64,
    asked: u64,
    /// When the next is asked; none: one is open.
    next_ns: Option<u64>,
}

/// One question that is open.
struct Question {
    lane: usize,
    asked_ns: u64,
    /// The number of what it writes; none: it reads.
    writes: Option<u64>,
}

/// All lanes, on one socket.
struct Lanes {
    machine: Machine,
    socket: UdpSocket,
    lanes: Vec<Lane>,
    /// By the machine's numbers.
    open: BTreeMap<u64, Question>,
    value_len: usize,
    ended: Vec<Reply>,
}

impl Lanes {
    /// Lanes whose keys begin so, which nobody has written yet.
    fn new(cluster: &Cluster, begin: &str, value_len: usize, seed: u64) -> anyhow::Result<Lanes> {
        let keys = cluster.secrets_of(TENANT_OPEN).unwrap_or_else(|| Secrets::one(Secret::NONE));
        let server_of = |key: &str| {
            let hash = keys.hash.key_hash(TENANT_OPEN, key.as_bytes());
            let partition = partition_of(hash, cluster.partitions);
            cluster.stores.iter().position(|s| (s.first..=s.last).contains(&partition))
        };
        let mut lanes: Vec<Lane> = vec![];
        for key in (0..).map(|number| format!("{begin}{number}")) {
            if lanes.len() == 2 * LANES {
                break;
            }
            let Some(server) = server_of(&key) else { continue };
            if lanes.iter().filter(|lane| lane.server == server).count() < LANES {
                let next_ns = Some(0);
                lanes.push(Lane { key, server, possible: vec![0], written: 0, asked: 0, next_ns });
            }
        }
        Ok(Lanes {
            machine: Machine::new(cluster, TENANT_OPEN, Default::default(), seed)?,
            socket: UdpSocket::bind(("0.0.0.0", 0))?,
            lanes,
            open: BTreeMap::new(),
            value_len,
            ended: vec![],
        })
    }

    /// Asks until it is told to stop, and all is answered. Times are counted from `start`.
    fn run(mut self, start: Instant, stop: &AtomicBool) -> anyhow::Result<Vec<Reply>> {
        let mut buffer = [0; 2048];
        loop {
            let now_ns = start.elapsed().as_nanos() as u64;
            let stops = stop.load(Ordering::Relaxed);
            if self.machine.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                self.machine.timer(now_ns);
            }
            self.take_ended(now_ns);
            if stops && self.open.is_empty() {
                return Ok(self.ended);
            }
            if !stops {
                self.ask_due(now_ns);
            }
            while let Some((to, datagram)) = self.machine.next_datagram() {
                // A full queue: it is lost, and sent again.
                let _ = self.socket.send_to(&datagram, to);
            }
            self.socket.set_nonblocking(false)?;
            self.socket.set_read_timeout(Some(Duration::from_millis(1)))?;
            while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
                let now_ns = start.elapsed().as_nanos() as u64;
                self.machine.take(&buffer[..len], from, now_ns);
                self.socket.set_nonblocking(true)?;
            }
        }
    }

    /// Asks what is due.
    fn ask_due(&mut self, now_ns: u64) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.next_ns.is_none_or(|at_ns| at_ns > now_ns) {
                continue;
            }
            lane.next_ns = None;
            lane.asked += 1;
            let writes = (lane.asked % WRITE_EVERY == 1).then(|| {
                lane.written += 1;
                lane.written
            });
            let value = value_of(writes.unwrap_or_default(), self.value_len);
            let (key, value) = (lane.key.as_bytes(), value.as_bytes());
            let operation = match writes {
                Some(_) => Operation::Set { key, value, ttl: None, condition: Condition::Always },
                None => Operation::Get { key },
            };
            let question = Question { lane: number, asked_ns: now_ns, writes };
            self.open.insert(self.machine.begin(&operation, now_ns), question);
        }
    }

    /// Takes what has been answered.
    fn take_ended(&mut self, now_ns: u64) {
        while let Some((number, result)) = self.machine.next_finished() {
            let Some(Question { lane, asked_ns, writes }) = self.open.remove(&number) else {
                continue;
            };
            let lane = &mut self.lanes[lane];
            let end = lane.ended(writes, result);
            lane.next_ns = Some(now_ns + EVERY.as_nanos() as u64);
            self.ended.push(Reply { server: lane.server, asked_ns, ended_ns: now_ns, end });
        }
    }
}

impl Lane {
    /// How a question ended, and what the key may have since.
    fn ended(&mut self, writes: Option<u64>, result: Result<Answer, Error>) -> End {
        let result = match writes {
            Some(_) => result.and_then(Answer::written).map(|_| None),
            None => result.and_then(Answer::found).map(Some),
        };
        match (writes, result) {
            (_, Err(Error::Refused { .. } | Error::NotWhole { .. })) => End::Refused,
            (Some(number), Err(_)) => {
                self.possible.push(number);
                End::Failed
            }
            (None, Err(_)) => End::Failed,
            (Some(number), Ok(_)) => {
                self.possible = vec![number];
                End::Done
            }
            (None, Ok(found)) => {
                let number = found.flatten().map_or(Some(0), |value| number_in(&value.bytes));
                match number.is_some_and(|number| self.possible.contains(&number)) {
                    true => End::Done,
                    false => End::Wrong,
                }
            }
        }
    }
}

/// The number, and as many dots as it takes.
fn value_of(number: u64, len: usize) -> String {
    format!("{number:.<len$}")
}

/// The number in a value; none: it has none.
fn number_in(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_value_tells_its_number() {
        let value = value_of(307, 64);
        assert_eq!((value.len(), number_in(value.as_bytes())), (64, Some(307)));
        assert_eq!(number_in(b"no number"), None);
    }

    #[test]
    fn a_row_is_of_errors_and_of_the_others() {
        let ended = |server, asked_ms: u64, took_ms: u64, end| {
            let asked_ns = asked_ms * MS;
            Reply { server, asked_ns, ended_ns: asked_ns + took_ms * MS, end }
        };
        let row = Row::of(&Observation {
            ended: vec![
                ended(WELL, 0, 2, End::Done),
                ended(FAILS, 10, 1, End::Done),
                ended(FAILS, 20, 7, End::Refused),
                ended(WELL, 20, 3, End::Done),
                ended(FAILS, 30, 15, End::Failed),
                ended(FAILS, 60, 1, End::Wrong),
            ],
            begun_ns: 15 * MS,
            over_ns: 40 * MS,
        });
        assert_eq!((row.asked, row.refused, row.failed, row.wrong), (6, 1, 1, 1));
        assert_eq!((row.slowest_error_ms, row.recovered_ms), (15.0, 5.0));
        assert_eq!(row.others_p99_over_before, 1.5);
        assert_eq!((row.errors, row.others_errors), (2, 0));
    }

    #[test]
    fn what_the_other_server_refuses_is_an_error_and_not_quick() {
        let ended = |server, asked_ms: u64, took_ms: u64, end| {
            let asked_ns = asked_ms * MS;
            Reply { server, asked_ns, ended_ns: asked_ns + took_ms * MS, end }
        };
        let before = ended(WELL, 0, 2, End::Done);
        let of = |ended: Vec<Reply>| {
            Row::of(&Observation { ended, begun_ns: 15 * MS, over_ns: 40 * MS })
        };
        let row = of(vec![before, ended(WELL, 20, 1, End::Refused)]);
        assert_eq!((row.errors, row.others_errors), (0, 1));
        assert!(row.others_p99_over_before.is_nan());
        let row = of(vec![before, ended(WELL, 20, 1, End::Refused), ended(WELL, 21, 4, End::Done)]);
        assert_eq!(row.others_p99_over_before, 2.0);
    }
}
