//! Another client writes directly to the Redis behind a store, while hot keys are answered in the
//! switch: how old is what readers get, with everything well and with things broken?
//!
//! Every value carries its number. Reader and writer run in this process, on one clock: a read is
//! stale by the time between the acknowledgement of the write that replaced its value and the
//! sending of the read, if that came later.

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::ensure;
use lab::{interrupt, namespace};
use load::workload::KeySpace;
use plan::LEASE_MS;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use seed::SeededRng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, percent, thousands};
use wire::{Flags, Header, Op, Packet, Secret, Status};

use crate::{
    Backend, Measure, Options, Report, Run,
    params::positive,
    resp::{Connection, Server},
    servers::{Rack, Servers},
};

/// Keys that are read and written; all of them fit the cache.
const HOT: usize = 32;
/// Reads sent each millisecond, and the longest wait for an answer.
const READS_PER_MS: u64 = 8;
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Outside writes per second over all hot keys.
const WRITES_PER_S: u32 = 200;
/// How often the store's connection is killed, and how long the store stands still, in
/// those phases.
const KILL_EVERY: Duration = Duration::from_millis(500);
const STAND_STILL: Duration = Duration::from_millis(1500);
/// Digits of a value's number, after the key.
const DIGITS: usize = 16;

/// What is done to the store meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Redis closes the store's connection, so that it does not hear of writes until it is
    /// connected again.
    ConnectionKilled,
    /// The store neither hears nor says anything: the switch is on its own.
    StoreStopped,
}

/// One read's answer: key, number of the value, when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadAnswer {
    key: usize,
    number: usize,
    asked: Instant,
}

/// For each key, when write number n was acknowledged.
type AckTimes = Vec<Vec<Instant>>;

#[derive(Default)]
struct Reads {
    seen: Vec<ReadAnswer>,
    cached: u64,
    unanswered: u64,
    wrong_values: u64,
}

/// Parameters of outside writes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideWrites {
    rack: Rack,
    /// Length of each phase in seconds.
    step_s: f64,
}

impl Measure for OutsideWrites {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        positive!(self, step_s)
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis")
    }

    /// All is well, then each fault.
    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &OutsideWrites, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let (rack, seed) = (&params.rack, run.options.seed);
    let mut servers = Servers::new(run, rack, Backend::Redis)?;
    servers.cache_on()?;
    let mut writer = Writer::connect(&servers.data_of("server")?, rack.value_len.longest(), seed)?;
    for key in 0..HOT {
        writer.write(key)?;
    }
    learn(&servers, rack, run)?;
    let mut table = Table::new(&["", "reads", "hit ratio", "stale reads", "p50", "p99", "max"]);
    let (mut all, mut reads, mut wrong, mut healthy_hits) = (vec![], 0, 0, 0.0);
    let faults = [
        ("all is well", Fault::None),
        ("connection killed", Fault::ConnectionKilled),
        ("store stands still", Fault::StoreStopped),
    ];
    for (name, fault) in faults {
        run.progress.say(name);
        let answers = phase(&servers, &mut writer, fault, params, seed)?;
        let staleness = staleness_ms(&answers.seen, &writer.written);
        let hits = answers.cached as f64 / answers.seen.len().max(1) as f64;
        let (p50, p99, max) = spread(staleness.clone());
        table.row([
            name.into(),
            thousands(answers.seen.len() as f64),
            percent(hits),
            thousands(staleness.len() as f64),
            format!("{p50:.2} ms"),
            format!("{p99:.2} ms"),
            format!("{max:.2} ms"),
        ]);
        report.rows.push(json!({
            "phase": name,
            "reads": answers.seen.len(),
            "unanswered": answers.unanswered,
            "hit_ratio": hits,
            "stale_reads": staleness.len(),
            "staleness_ms_p50": p50,
            "staleness_ms_p99": p99,
            "staleness_ms_max": max,
        }));
        if fault == Fault::None {
            healthy_hits = hits;
            report.summarize("healthy_staleness_ms_p99", p99);
            report.summarize("healthy_staleness_ms_max", max);
        }
        reads += answers.seen.len();
        wrong += answers.wrong_values;
        all.extend(staleness);
    }
    let bound_ms = f64::from(LEASE_MS);
    let violations = all.iter().filter(|ms| **ms > bound_ms).count();
    let stale = all.len();
    let (p50, p99, max) = spread(all);
    for (name, value) in [
        ("staleness_ms_p50", p50),
        ("staleness_ms_p99", p99),
        ("staleness_ms_max", max),
        ("bound_ms", bound_ms),
        ("reads", reads as f64),
        ("stale_reads", stale as f64),
        ("outside_writes", writer.written.iter().map(Vec::len).sum::<usize>() as f64),
        ("hit_ratio", healthy_hits),
        ("violations", violations as f64),
        ("wrong_values", wrong as f64),
    ] {
        report.summarize(name, value);
    }
    if violations > 0 || wrong > 0 {
        report.failure = Some(format!(
            "{violations} reads were older than {bound_ms} ms, {wrong} values were no key's"
        ));
    }
    report.text = format!(
        "{}\nA read is stale if its value had been overwritten, and that acknowledged by Redis, before the read was sent.\n\
         Percentiles are over the stale reads. The bound is one lease, {bound_ms} ms, whatever breaks.\n",
        table.render()
    );
    Ok(())
}

/// Reads until the hot keys are answered in the switch.
fn learn(servers: &Servers, rack: &Rack, run: &Run<'_>) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let stop = AtomicBool::new(false);
        let place = Place::of(servers)?;
        let reads = std::thread::scope(|scope| {
            let reader =
                scope.spawn(|| read(&place, rack.value_len.longest(), run.options.seed, &stop));
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
            reader.join().expect("the reader does not panic")
        })?;
        let hits = reads.cached as f64 / reads.seen.len().max(1) as f64;
        run.progress.say(format!("learning, {:.1} % hits", hits * 100.0));
        if hits > 0.95 {
            return Ok(());
        }
        ensure!(
            start.elapsed().as_secs_f64() < rack.learn_s,
            "only {} of the reads of {HOT} hot keys are answered in the switch after {} s",
            percent(hits),
            rack.learn_s
        );
    }
}

/// Reads and writes for a while, under a fault.
fn phase(
    servers: &Servers,
    writer: &mut Writer,
    fault: Fault,
    params: &OutsideWrites,
    seed: u64,
) -> anyhow::Result<Reads> {
    let stop = AtomicBool::new(false);
    let length = Duration::from_secs_f64(params.step_s);
    let store = |signal| servers.rig().signal("server", "store", signal);
    let place = Place::of(servers)?;
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&place, params.rack.value_len.longest(), seed, &stop));
        let writing = writer.write_for(length, fault == Fault::ConnectionKilled, |since| {
            if fault == Fault::StoreStopped {
                // Every other time, beginning well.
                let stands = (since.as_millis() / STAND_STILL.as_millis()) % 2 == 1;
                store(if stands { libc::SIGSTOP } else { libc::SIGCONT });
            }
        });
        if fault == Fault::StoreStopped {
            store(libc::SIGCONT);
        }
        stop.store(true, Ordering::Relaxed);
        let reads = reader.join().expect("the reader does not panic");
        writing.and(reads)
    })?;
    Ok(reads)
}

/// The outside writer, on Redis's own socket.
struct Writer {
    redis: Connection,
    keys: KeySpace,
    value_len: usize,
    rng: SeededRng,
    written: AckTimes,
}

/// What decides which key is written next: other keys with another seed, and than the reader's.
fn writers(seed: u64) -> SeededRng {
    seed::rng(seed, "outside writer")
}

impl Writer {
    fn connect(socket: &Path, value_len: usize, seed: u64) -> anyhow::Result<Writer> {
        Ok(Writer {
            redis: Connection::to(&Server::Unix(socket.into()))?,
            keys: KeySpace::new(HOT, wire::TENANT_OPEN, &Secret::NONE.into()),
            value_len,
            rng: writers(seed),
            written: vec![vec![]; HOT],
        })
    }

    /// Writes the next value of a key and notes when Redis acknowledged it.
    fn write(&mut self, key: usize) -> anyhow::Result<()> {
        let bytes = self.keys.get(key as u32).bytes;
        let value = value_of(&bytes, self.written[key].len(), self.value_len);
        let answer = self.redis.ask(&[b"SET", &bytes, &value])?;
        let now = Instant::now();
        ensure!(answer.as_deref() == Some(b"OK"), "Redis refused a write: {answer:?}");
        self.written[key].push(now);
        Ok(())
    }

    /// Has Redis close every connection but this one.
    fn kill_others(&mut self) -> anyhow::Result<()> {
        self.redis.ask(&[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"])?;
        Ok(())
    }

    fn write_for(
        &mut self,
        length: Duration,
        kill: bool,
        each: impl Fn(Duration),
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut killed = start;
        for n in 1.. {
            let since = start.elapsed();
            if since >= length {
                break;
            }
            interrupt::check()?;
            each(since);
            if kill && killed.elapsed() >= KILL_EVERY {
                killed = Instant::now();
                self.kill_others()?;
            }
            let key = self.rng.random_range(0..HOT);
            self.write(key)?;
            // The rate, not a wait for anything.
            std::thread::sleep(
                (start + n * Duration::from_secs(1) / WRITES_PER_S) - Instant::now(),
            );
        }
        Ok(())
    }
}

/// Where a reader is, and the store that it asks.
struct Place {
    namespace: String,
    store: SocketAddr,
}

impl Place {
    fn of(servers: &Servers) -> anyhow::Result<Place> {
        Ok(Place { namespace: servers.client_namespace()?, store: servers.first_store() })
    }
}

/// Reads hot keys through the switch until `stop`.
fn read(place: &Place, value_len: usize, seed: u64, stop: &AtomicBool) -> anyhow::Result<Reads> {
    namespace::within(&place.namespace, || {
        let mut reader = Reader::connect(place.store, value_len, seed)?;
        while !stop.load(Ordering::Relaxed) {
            reader.send()?;
            reader.receive()?;
        }
        Ok(reader.reads)
    })
}

struct Reader {
    socket: UdpSocket,
    keys: KeySpace,
    value_len: usize,
    rng: StdRng,
    request: u64,
    open: HashMap<u64, (usize, Instant)>,
    next: Instant,
    reads: Reads,
}

impl Reader {
    fn connect(store: SocketAddr, value_len: usize, seed: u64) -> anyhow::Result<Reader> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(store)?;
        Ok(Reader {
            socket,
            keys: KeySpace::new(HOT, wire::TENANT_OPEN, &Secret::NONE.into()),
            value_len,
            rng: StdRng::seed_from_u64(seed),
            request: 0,
            open: HashMap::new(),
            next: Instant::now(),
            reads: Reads::default(),
        })
    }

    /// Sends what is due this millisecond.
    fn send(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        self.open.retain(|_, (_, asked)| {
            let lost = now.duration_since(*asked) > LOST_AFTER;
            self.reads.unanswered += u64::from(lost);
            !lost
        });
        for _ in 0..READS_PER_MS {
            let index = self.rng.random_range(0..HOT);
            let key = self.keys.get(index as u32);
            self.request += 1;
            let header = Header {
                key_hash: key.hash,
                request: self.request,
                client: 1,
                ..Header::new(Op::ReadRequest)
            };
            let mut bytes = vec![];
            Packet::new(header, &key.bytes, &[]).encode(&Secret::NONE, &mut bytes)?;
            // Tenant 0 gets no more bytes than it sends.
            bytes.resize(bytes.len() + self.value_len, 0);
            self.open.insert(self.request, (index, Instant::now()));
            // A full queue or an unreachable store: the read goes unanswered, and counts so.
            let _ = self.socket.send(&bytes);
        }
        // A socket's timeouts are coarse: what is overdue is made up for, if it is not much.
        let overdue = now.checked_sub(Duration::from_millis(10)).unwrap_or(now);
        self.next = (self.next + Duration::from_millis(1)).max(overdue);
        Ok(())
    }

    /// Takes answers until it is time to send again.
    fn receive(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.socket.set_read_timeout(Some(left))?;
            let Ok(len) = self.socket.recv(&mut buffer) else { continue };
            let Ok(packet) = Packet::decode(&buffer[..len]) else {
                self.reads.wrong_values += 1;
                continue;
            };
            let Some((key, asked)) = self.open.remove(&packet.header.request) else { continue };
            if packet.header.status != Status::Ok {
                self.reads.unanswered += 1;
                continue;
            }
            match number_of(&self.keys.get(key as u32).bytes, packet.value) {
                Some(number) => {
                    self.reads.cached += u64::from(packet.header.flags.has(Flags::CACHED));
                    self.reads.seen.push(ReadAnswer { key, number, asked });
                }
                None => self.reads.wrong_values += 1,
            }
        }
    }
}

/// The key, the number in hexadecimal digits, padding.
fn value_of(key: &[u8], number: usize, len: usize) -> Vec<u8> {
    let mut value = key.to_vec();
    value.extend_from_slice(format!("{number:0width$x}", width = DIGITS).as_bytes());
    value.resize(len.max(key.len() + DIGITS), b'.');
    value
}

/// The number in a value of this key; `None` if it is no value of it.
fn number_of(key: &[u8], value: &[u8]) -> Option<usize> {
    let digits = value.strip_prefix(key)?.get(..DIGITS)?;
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// How stale each stale read was, in milliseconds.
fn staleness_ms(seen: &[ReadAnswer], written: &AckTimes) -> Vec<f64> {
    let stale = |read: &ReadAnswer| {
        let replaced = *written.get(read.key)?.get(read.number + 1)?;
        let ago = read.asked.checked_duration_since(replaced)?;
        (!ago.is_zero()).then_some(ago.as_secs_f64() * 1000.0)
    };
    seen.iter().filter_map(stale).collect()
}

/// Median, 99th percentile and maximum; 0 of nothing.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (values.len() as f64 * part) as usize;
        values.get(index.min(values.len().saturating_sub(1))).copied()
    };
    let of = |part| at(part).unwrap_or(0.0);
    (of(0.5), of(0.99), of(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_keys_are_written_follows_from_the_seed() {
        let keys = |seed| -> Vec<usize> {
            let mut rng = writers(seed);
            (0..64).map(|_| rng.random_range(0..HOT)).collect()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn a_value_tells_its_number() {
        let value = value_of(b"key0000000000001", 300, 128);
        assert_eq!(value.len(), 128);
        assert_eq!(number_of(b"key0000000000001", &value), Some(300));
        assert_eq!(number_of(b"key0000000000002", &value), None);
        assert_eq!(number_of(b"key0000000000001", b"key0000000000001"), None);
    }

    #[test]
    fn a_read_is_stale_by_the_time_since_its_value_was_replaced() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let written = vec![vec![at(0), at(10), at(20)]];
        let read = |number, ms| ReadAnswer { key: 0, number, asked: at(ms) };
        // (read, staleness in ms)
        let rows = [
            (read(0, 5), vec![]),
            (read(0, 10), vec![]),
            (read(0, 15), vec![5.0]),
            (read(0, 25), vec![15.0]),
            (read(1, 25), vec![5.0]),
            (read(2, 99), vec![]),
        ];
        for (read, staleness) in rows {
            assert_eq!(staleness_ms(&[read], &written), staleness, "{read:?}");
        }
    }

    #[test]
    fn spreads() {
        assert_eq!(spread(vec![]), (0.0, 0.0, 0.0));
        let values = (1..=100).map(f64::from).collect();
        assert_eq!(spread(values), (51.0, 100.0, 100.0));
    }
}
