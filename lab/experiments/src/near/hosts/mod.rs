//! Application hosts in namespaces: unmodified Redis clients on each, first directly at the
//! servers, then by a gateway of their own that keeps copies, and with what else keeps keys near.
//! How much more do the same servers serve, how long does a read take at equal load, and how many
//! reads are stale?
//!
//! Each Redis has a small part of a processor (`cpu_share`), for it is one thread: so it is what is
//! short, as it is where somebody wants this, and not this machine. Stores take what they need, and
//! that is told.

mod rack;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use history::{Effect, Operation};
use lab::{
    cpu_share::{CpuShare, Throttling},
    interrupt, namespace,
};
use load::workload::{KeySpace, Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, percent, thousands};
use wire::{Secret, TENANT_OPEN};

use self::rack::Rack;
use crate::{
    Report, Run,
    applications::{
        ApplicationCache, Invalidations, Mix, NearCache, Observations, Pace, Servers, Worker,
        stale_in,
    },
    params::{exponent, positive},
    resp::{Connection, Server},
};

/// How long what lives for a time is kept.
const TTL: Duration = Duration::from_millis(100);
/// Of the throughput directly, what both are given for the time that a read takes.
const EQUAL_LOAD: f64 = 0.5;

/// Writes, Zipf's exponent and the length of values that the gain is told of, and the writes at
/// which a gateway is to be no loss.
const USUAL: (f64, f64, usize) = (0.05, 0.99, 64);
const MANY_WRITES: f64 = 0.2;

/// Parameters of application hosts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hosts {
    /// Application hosts with a gateway each.
    pub hosts: usize,
    /// Servers: a Redis with a store beside it.
    pub servers: usize,
    /// Part of one processor that each Redis has.
    pub cpu_share: f64,
    /// Connections of each host, and commands that each sends at a time.
    connections: usize,
    depth: usize,
    /// Keys, and lengths of their values in bytes.
    values: Vec<[usize; 2]>,
    /// Exponents of Zipf's law.
    skews: Vec<f64>,
    /// Parts of the commands that write.
    writes: Vec<f64>,
    /// What gateways keep copies in.
    cache: String,
    /// Seconds that each step is measured, and before that.
    step_s: f64,
    warm_s: f64,
}

impl Hosts {
    pub fn check(&self) -> anyhow::Result<()> {
        positive!(self, cpu_share, step_s, warm_s)?;
        self.skews.iter().try_for_each(|skew| exponent(*skew))?;
        let is_part = |writes: &f64| (0.0..1.0).contains(writes);
        ensure!(self.writes.iter().all(is_part), "hosts.writes: 0 to below 1 each");
        ensure!((1..=64).contains(&self.hosts), "hosts.hosts: 1 to 64");
        ensure!((1..=16).contains(&self.servers), "hosts.servers: 1 to 16");
        ensure!((1..=64).contains(&self.connections), "hosts.connections: 1 to 64");
        ensure!((1..=256).contains(&self.depth), "hosts.depth: 1 to 256");
        let fits = |[keys, len]: &[usize; 2]| {
            (1..=1_000_000).contains(keys) && (8..=1 << 20).contains(len)
        };
        ensure!(
            !self.values.is_empty() && self.values.iter().all(fits),
            "hosts.values: pairs of a number of keys, 1 to 1000000, and a length, 8 to 1048576"
        );
        Ok(())
    }
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Gateway,
    Tracking,
    Ttl,
    Replica,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Gateway => "gateway",
            Way::Tracking => "tracking",
            Way::Ttl => "ttl",
            Way::Replica => "replica",
        }
    }
}

/// How keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    keys: usize,
    len: usize,
    skew: f64,
    writes: f64,
    /// Whether what is written is drawn as what is read; else each key alike.
    written_as_read: bool,
}

/// What came of a way at a point.
struct Row {
    point: Point,
    way: Way,
    per_s: f64,
    /// At equal load, in milliseconds; none: that was not measured.
    p99_ms: Option<f64>,
    /// The part of it that was answered in time.
    equal_served: Option<f64>,
    stale: usize,
    seen: Counts,
    /// Part of the time that the server that had least left was held up.
    held_up: f64,
    /// Seconds of a processor that Redis used, and stores, at closed loop.
    used_s: [f64; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: usize,
    failed: u64,
    torn: u64,
    near: u64,
}

/// The rack under measurement.
struct Bench<'a> {
    params: &'a Hosts,
    run: &'a Run<'a>,
    rack: Rack,
    rows: Vec<Row>,
    /// Every write so far of the keys as they are now.
    written: Vec<Operation>,
    /// The number of the next connection.
    next: u32,
}

pub(super) fn measure(params: &Hosts, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    run.parts.begin("gateway")?;
    let rack = Rack::build(params, run)?;
    let mut bench = Bench { params, run, rack, rows: vec![], written: vec![], next: 0 };
    for [keys, len] in params.values.clone() {
        bench.values(keys, len)?;
    }
    tell(&bench.rows, report);
    report.summarize("quota_period_ms", CpuShare::period_ms(params.cpu_share));
    Ok(())
}

impl Bench<'_> {
    /// All ways with values of one length.
    fn values(&mut self, keys: usize, len: usize) -> anyhow::Result<()> {
        let points = self.points(keys, len);
        self.fill(keys, len)?;
        for point in &points {
            self.measure(Way::Direct, *point, &[])?;
        }
        let is_usual = |point: &&Point| point.written_as_read && point.writes > 0.0;
        if let Some(point) = points.iter().find(is_usual).filter(|_| self.rows_of(Way::Ttl) == 0) {
            self.measure(Way::Tracking, *point, &[])?;
            self.measure(Way::Ttl, *point, &[])?;
            let replicas = self.rack.start_replicas()?;
            self.measure(Way::Replica, *point, &replicas)?;
            self.rack.stop_replicas()?;
        }
        self.say("stores and gateways start");
        self.rack.start_gateways(&self.params.cache)?;
        if let Some(point) = points.first() {
            self.begin_gateways(*point)?;
        }
        for point in &points {
            self.measure(Way::Gateway, *point, &[])?;
        }
        self.rack.stop_gateways()
    }

    /// Gateways and stores ask servers about themselves as they begin, what commands there are
    /// above all: with a small part of a processor that takes a server a second or two. It is not
    /// what their requests cost.
    fn begin_gateways(&mut self, point: Point) -> anyhow::Result<()> {
        let seen = self.phase(Way::Gateway, point, &[], Pace::Closed(self.params.depth))?;
        self.keep_writes(&seen);
        Ok(())
    }

    fn keep_writes(&mut self, seen: &Observations) {
        let writes = seen.operations.iter().filter(|o| o.effect != Effect::Keep);
        self.written.extend(writes.copied());
    }

    fn points(&self, keys: usize, len: usize) -> Vec<Point> {
        let mut points = vec![];
        for skew in &self.params.skews {
            for writes in &self.params.writes {
                let laws: &[bool] = if *writes == USUAL.0 { &[true, false] } else { &[true] };
                points.extend(laws.iter().map(|as_read| Point {
                    keys,
                    len,
                    skew: *skew,
                    writes: *writes,
                    written_as_read: *as_read,
                }));
            }
        }
        points
    }

    fn rows_of(&self, way: Way) -> usize {
        self.rows.iter().filter(|row| row.way == way).count()
    }

    fn say(&self, what: impl Into<String>) {
        self.run.progress.say(what);
    }

    /// How much a way takes at a point, how many reads are stale, and how long a command takes at
    /// equal load.
    fn measure(&mut self, way: Way, point: Point, replicas: &[SocketAddr]) -> anyhow::Result<()> {
        interrupt::check()?;
        let before = self.rack.throttling()?;
        let used_before = self.rack.used_s()?;
        let hits_before = self.rack.local_hits()?;
        let name = format!("{}: {} bytes, Zipf {}", way.name(), point.len, point.skew);
        self.say(format!("{name}, {} written", percent(point.writes)));
        let mut seen = self.phase(way, point, replicas, Pace::Closed(self.params.depth))?;
        let after = self.rack.throttling()?;
        let used_s = self.rack.used_s()?;
        seen.near += self.rack.local_hits()? - hits_before;
        let used_s = [0, 1].map(|role| used_s[role] - used_before[role]);
        let per_s = seen.done as f64 / self.params.step_s;
        let direct = self.rows.iter().find(|row| row.way == Way::Direct && row.point == point);
        let direct_per_s = direct.map_or(per_s, |row| row.per_s);
        let is_timed = point.writes == USUAL.0 && point.skew == USUAL.1;
        let (p99_ms, equal_served) = match way {
            Way::Direct | Way::Gateway if is_timed => {
                let each = direct_per_s * EQUAL_LOAD / self.connections() as f64;
                let calm = self.phase(way, point, replicas, Pace::Open(each))?;
                let timed = (Some(calm.within_ms(0.99)), Some(calm.served()));
                seen.add(calm);
                timed
            }
            _ => (None, None),
        };
        self.keep_writes(&seen);
        let reads = seen.operations.iter().filter(|o| o.effect == Effect::Keep);
        let reads: Vec<Operation> = reads.copied().collect();
        let counts =
            Counts { reads: reads.len(), failed: seen.failed, torn: seen.torn, near: seen.near };
        let stale = stale_in(&[&self.written[..], &reads].concat());
        let held_up = held_up(&before, &after);
        self.rows.push(Row {
            point,
            way,
            per_s,
            p99_ms,
            equal_served,
            stale,
            seen: counts,
            held_up,
            used_s,
        });
        Ok(())
    }

    fn connections(&self) -> usize {
        self.params.hosts * self.params.connections
    }

    /// Lets all applications ask.
    fn phase(
        &mut self,
        way: Way,
        point: Point,
        replicas: &[SocketAddr],
        pace: Pace,
    ) -> anyhow::Result<Observations> {
        let addresses = self.rack.servers()?;
        let servers = match way {
            Way::Gateway => Servers {
                addresses: vec![rack::gateway()],
                replicas: vec![],
                of_key: Arc::new(vec![0; point.keys]),
            },
            _ => Servers {
                of_key: Arc::new(self.of_key(point.keys, &addresses)?),
                addresses,
                replicas: replicas.to_vec(),
            },
        };
        let mix = Mix {
            keys: point.keys as u32,
            reads: Popularity::Zipf(point.skew),
            write_part: point.writes,
            writes: match point.written_as_read {
                true => Popularity::Zipf(point.skew),
                false => Popularity::Uniform,
            },
            value_len: point.len,
        };
        let first = self.next;
        self.next += self.connections() as u32;
        let (stop, seed) = (AtomicBool::new(false), self.run.options.seed);
        let (warm, time) = (self.params.warm_s, self.params.step_s);
        let (warm, time) = (Duration::from_secs_f64(warm), Duration::from_secs_f64(time));
        let hosts = self.rack.hosts().iter();
        let kept = hosts.map(|place| Ok((place, keep_near(way, place, &servers.addresses)?)));
        let kept = kept.collect::<anyhow::Result<Vec<_>>>()?;
        // Nothing returns from here before whoever listens was told to stop.
        std::thread::scope(|scope| {
            let mut working = vec![];
            let mut listening = vec![];
            for (host, (place, (near, told_by))) in kept.into_iter().enumerate() {
                for (one, near) in told_by.into_iter().zip(near.iter().cycle()) {
                    let (cache, stop) = (near.cache.clone(), &stop);
                    listening.push(scope.spawn(move || one.listen(&cache, stop)));
                }
                for connection in 0..self.params.connections {
                    let number = first + (host * self.params.connections + connection) as u32;
                    let (near, servers, mix) = (near.clone(), servers.clone(), mix.clone());
                    let work = move || {
                        namespace::within(place, || {
                            Worker::new(number, servers, near, mix, seed)?.run(pace, warm, time)
                        })
                    };
                    working.push(scope.spawn(work));
                }
            }
            let mut all = Observations::default();
            let mut failed = None;
            for one in working {
                match one.join() {
                    Ok(Ok(seen)) => all.add(seen),
                    Ok(Err(error)) => failed = Some(error),
                    Err(_) => failed = Some(anyhow::anyhow!("a client panicked")),
                }
            }
            stop.store(true, Ordering::Relaxed);
            for one in listening {
                let ended = one.join();
                ended.map_err(|_| anyhow::anyhow!("who listens has panicked"))??;
            }
            failed.map_or(Ok(all), Err)
        })
    }

    /// Which of these servers has each key.
    fn of_key(&self, keys: usize, addresses: &[SocketAddr]) -> anyhow::Result<Vec<u8>> {
        let cluster = self.rack.rig().cluster(&[])?;
        let space = KeySpace::new(keys, TENANT_OPEN, &Secret::NONE.into());
        let server_of = |key: u32| {
            let at = cluster.store_of(TENANT_OPEN, space.get(key).hash).address.ip();
            let found = addresses.iter().position(|address| address.ip() == at);
            found.map(|at| at as u8).context("a store beside each Redis")
        };
        (0..keys as u32).map(server_of).collect()
    }

    /// Takes all keys away, and writes these, each once.
    fn fill(&mut self, keys: usize, len: usize) -> anyhow::Result<()> {
        self.say(format!("{keys} keys of {len} bytes are written"));
        let addresses = self.rack.servers()?;
        let of_key = Arc::new(self.of_key(keys, &addresses)?);
        let place = self.rack.hosts()[0].clone();
        let mix = Mix {
            keys: keys as u32,
            reads: Popularity::Uniform,
            write_part: 0.0,
            writes: Popularity::Uniform,
            value_len: len,
        };
        let servers = Servers { addresses: addresses.clone(), replicas: vec![], of_key };
        let (number, seed) = (self.next, self.run.options.seed);
        self.next += 1;
        let seen = namespace::within(&place, || {
            for address in addresses {
                Connection::to(&Server::Tcp(address))?.ask(&[b"FLUSHALL"])?;
            }
            Worker::new(number, servers, None, mix, seed)?.fill(0..keys as u32)
        })?;
        ensure!(seen.failed == 0, "{} keys could not be written", seen.failed);
        self.written = seen.operations;
        Ok(())
    }
}

/// What the applications of a host keep by themselves, and who tells them what is not valid.
fn keep_near(
    way: Way,
    place: &str,
    servers: &[SocketAddr],
) -> anyhow::Result<(Option<ApplicationCache>, Vec<Invalidations>)> {
    let cache = Arc::new(NearCache::default());
    match way {
        Way::Direct | Way::Gateway | Way::Replica => Ok((None, vec![])),
        Way::Ttl => {
            let for_ns = TTL.as_nanos() as u64;
            Ok((Some(ApplicationCache { cache, for_ns, told_by: vec![] }), vec![]))
        }
        Way::Tracking => namespace::within(place, || {
            let all: Vec<Invalidations> =
                servers.iter().map(|at| Invalidations::of(*at)).collect::<Result<_, _>>()?;
            let told_by = all.iter().map(|one| one.id.clone()).collect();
            Ok((Some(ApplicationCache { cache, for_ns: u64::MAX, told_by }), all))
        }),
    }
}

/// Part of the time in which the server that was held up most had nothing left.
fn held_up(before: &[Throttling], after: &[Throttling]) -> f64 {
    let part = |(before, after): (&Throttling, &Throttling)| {
        let periods = after.periods - before.periods;
        (after.throttled - before.throttled) as f64 / (periods as f64).max(1.0)
    };
    before.iter().zip(after).map(part).fold(0.0, f64::max)
}

fn tell(rows: &[Row], report: &mut Report) {
    let columns = [
        "",
        "bytes",
        "Zipf",
        "writes",
        "per second",
        "over direct",
        "p99",
        "near",
        "stale reads",
        "held up",
        "Redis",
        "stores",
    ];
    let mut table = Table::new(&columns);
    let direct_of =
        |row: &Row| rows.iter().find(|other| other.way == Way::Direct && other.point == row.point);
    let gain = |row: &Row| direct_of(row).map_or(0.0, |direct| row.per_s / direct.per_s.max(1.0));
    for row in rows {
        let Row { point, way, per_s, p99_ms, stale, seen, held_up, used_s, .. } = row;
        let law = if point.written_as_read { "" } else { ", each key alike" };
        let near = seen.near as f64 / (seen.reads as f64).max(1.0);
        table.row([
            way.name().into(),
            point.len.to_string(),
            point.skew.to_string(),
            format!("{}{law}", percent(point.writes)),
            thousands(*per_s),
            format!("{:.2}", gain(row)),
            p99_ms.map_or(String::new(), |ms| format!("{ms:.2} ms")),
            percent(near),
            stale.to_string(),
            percent(*held_up),
            format!("{:.2} s", used_s[0]),
            format!("{:.2} s", used_s[1]),
        ]);
        report.rows.push(json!({
            "way": way.name(),
            "value_bytes": point.len,
            "keys": point.keys,
            "skew": point.skew,
            "writes": point.writes,
            "written_as_read": point.written_as_read,
            "per_s": per_s,
            "over_direct": gain(row),
            "p99_ms": p99_ms,
            "equal_load_served": row.equal_served,
            "reads": seen.reads,
            "near": near,
            "stale_reads": stale,
            "failed": seen.failed,
            "held_up": held_up,
            "redis_cpu_s": used_s[0],
            "store_cpu_s": used_s[1],
        }));
    }
    let of = |way: Way| rows.iter().filter(move |row| row.way == way);
    let stale = |way| of(way).map(|row| row.stale as f64).sum::<f64>();
    let torn = rows.iter().map(|row| row.seen.torn as f64).sum::<f64>();
    report.summarize("stale_reads", stale(Way::Gateway) + torn);
    report.summarize("stale_reads_directly", stale(Way::Direct));
    for way in [Way::Tracking, Way::Ttl, Way::Replica] {
        report.summarize(format!("{}_stale_reads", way.name()), stale(way));
        let gains = of(way).map(gain);
        report.summarize(format!("{}_over_direct", way.name()), gains.fold(0.0, f64::max));
    }
    report.summarize("failed", rows.iter().map(|row| row.seen.failed as f64).sum());
    let usual = |as_read: bool| {
        move |row: &&Row| {
            let point = &row.point;
            let shape = (point.writes, point.skew, point.len);
            shape == USUAL && point.written_as_read == as_read
        }
    };
    for (name, as_read) in [("throughput_gain", true), ("throughput_gain_uniform_writes", false)] {
        if let Some(row) = of(Way::Gateway).find(usual(as_read)) {
            report.summarize(name, gain(row));
        }
    }
    let mut worst: Option<[f64; 3]> = None;
    for row in of(Way::Gateway).filter(|row| usual(true)(row) || usual(false)(row)) {
        let direct = direct_of(row).and_then(|direct| direct.p99_ms);
        if let (Some(p99_ms), Some(direct_ms)) = (row.p99_ms, direct) {
            let ratio = p99_ms / direct_ms.max(1e-6);
            // What is no number (both never were) is the worst.
            if worst.is_none_or(|[most, ..]| ratio > most || ratio.is_nan()) {
                worst = Some([ratio, direct_ms, p99_ms]);
            }
        }
    }
    // Of the same point: a server that has used its part up stands still for the rest of a period.
    let names = ["p99_over_direct", "p99_ms_direct", "p99_ms_gateway"];
    for (name, value) in names.into_iter().zip(worst.into_iter().flatten()) {
        report.summarize(name, value);
    }
    let served = rows.iter().filter_map(|row| row.equal_served);
    if let Some(least) = served.reduce(f64::min) {
        report.summarize("equal_load_served", least);
    }
    let at_many = of(Way::Gateway).filter(|row| row.point.writes == MANY_WRITES).map(gain);
    let least = at_many.fold(f64::INFINITY, f64::min);
    if least.is_finite() {
        report.summarize("gain_at_many_writes", least);
    }
    report.text = format!(
        "{}\nOver direct: commands per second by the same servers. p99: at half of what they serve directly. Near: reads that applications\n\
         answered from what they keep by themselves. Held up: how often the server that had least left had no part of a processor any more.\n",
        table.render()
    );
}
