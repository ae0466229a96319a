//! Stores before a Redis Cluster whose slots move back and forth and whose masters are killed,
//! stopped and demoted, while clients write and read through a gateway and by packets: does
//! anybody read what is old, is anything lost that Redis itself did not lose, and for how long can
//! nothing be written, beside a client that asks the nodes themselves?
//!
//! All on loopback, with the programs as users run them.

mod askers;
mod losses;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use history::{Effect, Need, Operation, now_ns};
use lab::{interrupt, port};
use rand::{RngExt, seq::IndexedRandom};
use seed::rng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, thousands};
use wire::{Cluster, cluster_slot};

use self::{
    askers::{Asker, ClusterClient, GatewayClient, Outcome, PacketClient},
    losses::{Cut, KeyVerdict, LAST_READER, judge},
};
use crate::{
    Measure, Options, Report, Run,
    gaps::longest_gap_ms,
    loopback::{Directory, Process, address},
    params::positive,
    redis_cluster::{Failure, Nodes, Stores, connect},
    resp::info_of_gateway,
};

/// How long a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one command of a client to its next.
const PACE: Duration = Duration::from_millis(1);
/// A replica has what was on its way to it by then.
const DRAINED: Duration = Duration::from_millis(100);
/// Part of the commands that write.
const WRITES: f64 = 0.4;
/// Masters, each of which has a replica.
const SHARDS: usize = 3;
/// After so long without a word a node has failed, for the others.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Parameters of slots that move and masters that fail.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMoves {
    /// Slots that move.
    moves: u32,
    /// Masters that fail: killed, stopped and demoted in turn.
    failovers: u32,
    /// Keys that clients write and read, each of a slot of its own.
    keys: usize,
    /// Clients that write and read them, two of three through the gateway.
    clients: u32,
    /// How long a slot is in each state of its move, in milliseconds.
    pause_ms: f64,
}

impl Measure for ClusterMoves {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.keys >= 3, "keys = {}: at least 3 are needed", self.keys);
        ensure!(self.clients >= 3, "clients = {}: at least 3 are needed", self.clients);
        ensure!(self.failovers > 0, "failovers = 0: at least one is needed");
        positive!(self, pause_ms)
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis")
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut stage = Stage::build(run)?;
        let keys: Vec<String> = (0..self.keys).map(|key| format!("moving-{key}")).collect();
        let probes = probes(&keys);
        let stop = AtomicBool::new(false);
        let (events, seen, asked) = std::thread::scope(|scope| {
            let (stage_of, keys, stop) = (stage.place(), &keys, &stop);
            let recording: Vec<_> = (0..self.clients)
                .map(|number| {
                    let place = stage_of.clone();
                    let seed = run.options.seed;
                    scope.spawn(move || record(&place, number, seed, keys, stop))
                })
                .collect();
            let asking: Vec<_> = probes
                .iter()
                .map(|[own, ours]| {
                    let nodes = ClusterClient::new(&stage_of.nodes);
                    let gateway = GatewayClient::new(stage_of.gateway);
                    [
                        scope.spawn(move || probe(nodes, own, stop)),
                        scope.spawn(move || probe(gateway, ours, stop)),
                    ]
                })
                .collect();
            let events = self.go_round(run, &mut stage, keys, &probes);
            stop.store(true, Relaxed);
            let seen: anyhow::Result<Vec<Observations>> =
                recording.into_iter().map(|one| one.join().expect("no panic")).collect();
            let asked: anyhow::Result<Vec<[Vec<u64>; 2]>> = asking
                .into_iter()
                .map(|[own, ours]| {
                    Ok([own.join().expect("no panic")?, ours.join().expect("no panic")?])
                })
                .collect();
            anyhow::Ok((events?, seen?, asked?))
        })?;
        let copies = info_of_gateway(&mut connect(stage.gateway.port())?, "local_hits")?;
        let last = stage.values(&keys)?;
        self.tell(report, &keys, events, seen, &asked, &last, copies)
    }
}

/// What happened.
#[derive(Default)]
struct Events {
    moved: u64,
    failovers: Vec<Failover>,
}

/// A master has failed.
struct Failover {
    failure: Failure,
    /// The shard, by its place among the probes.
    shard: usize,
    /// From when to when, in nanoseconds of the clients' clock.
    clock_ns: [u64; 2],
    /// Keys that it had, and when, and what its replica had of them.
    cuts: Vec<(usize, Cut)>,
}

/// What a recording client has seen.
#[derive(Default)]
struct Observations {
    operations: Vec<Operation>,
    not_done: u64,
    redirects: u64,
}

impl ClusterMoves {
    /// Moves slots, and has masters fail between.
    fn go_round(
        &self,
        run: &Run<'_>,
        stage: &mut Stage,
        keys: &[String],
        probes: &[[String; 2]],
    ) -> anyhow::Result<Events> {
        let mut rng = rng(run.options.seed, "slots that move");
        let pause = Duration::from_secs_f64(self.pause_ms / 1000.0);
        let mut events = Events::default();
        // The shard that a slot has left, by its probe.
        let mut homes: BTreeMap<u32, usize> = BTreeMap::new();
        // When a slot was moved last.
        let mut moved: BTreeMap<u32, Instant> = BTreeMap::new();
        let shard_at = |stage: &Stage, shard: usize| {
            stage.nodes.owner(cluster_slot(probes[shard][0].as_bytes()))
        };
        for round in 0..self.failovers {
            let until = u64::from(self.moves) * u64::from(round + 1) / u64::from(self.failovers);
            while events.moved < until {
                interrupt::check()?;
                run.progress.say(format!("slot {} of {}", events.moved + 1, self.moves));
                // Who was told of one move and comes late takes the next one of that slot to the
                // same shard for it: with Redis's own clients as well.
                moved.retain(|_, at| at.elapsed() < 2 * askers::WITHIN);
                let slots = keys.iter().map(|key| (key, cluster_slot(key.as_bytes())));
                let rested: Vec<_> = slots.filter(|(_, slot)| !moved.contains_key(slot)).collect();
                let Some((key, slot)) = rested.choose(&mut rng).copied() else {
                    std::thread::sleep(pause);
                    continue;
                };
                let to = match homes.remove(&slot) {
                    Some(home) => home,
                    None => {
                        let owner = stage.nodes.owner(slot)?.port;
                        let mut others = vec![];
                        for shard in 0..SHARDS {
                            match shard_at(stage, shard)?.port == owner {
                                true => drop(homes.insert(slot, shard)),
                                false => others.push(shard),
                            }
                        }
                        *others.choose(&mut rng).context("there are other shards")?
                    }
                };
                let to = shard_at(stage, to)?;
                stage.nodes.move_slot(slot, std::slice::from_ref(key), &to, pause)?;
                moved.insert(slot, Instant::now());
                events.moved += 1;
                std::thread::sleep(pause);
            }
            let failure = Failure::ALL[round as usize % Failure::ALL.len()];
            let shard = rng.random_range(0..SHARDS);
            run.progress.say(format!(
                "master {} of {}: {}",
                round + 1,
                self.failovers,
                failure.name()
            ));
            events.failovers.push(fail(stage, failure, shard, keys, &probes[shard])?);
        }
        Ok(events)
    }

    #[expect(clippy::too_many_arguments, reason = "each is another part of what was seen")]
    fn tell(
        &self,
        report: &mut Report,
        keys: &[String],
        events: Events,
        seen: Vec<Observations>,
        asked: &[[Vec<u64>; 2]],
        last: &[Option<u64>],
        copies: f64,
    ) -> anyhow::Result<()> {
        let mut operations: Vec<Vec<Operation>> = vec![vec![]; keys.len()];
        let at_last_ns = now_ns();
        let (mut not_done, mut redirects) = (0, 0);
        for client in seen {
            not_done += client.not_done;
            redirects += client.redirects;
            for operation in client.operations {
                operations[operation.key as usize].push(operation);
            }
        }
        let mut all = KeyTotals::default();
        for (key, operations) in operations.iter_mut().enumerate() {
            all.operations += operations.len() as u64;
            all.unknown += operations.iter().filter(|one| one.return_ns.is_none()).count() as u64;
            let need = last[key].map_or(Need::Absent, Need::Value);
            operations.push(operation(LAST_READER, key, at_last_ns, need, Effect::Keep));
            let cuts: Vec<Cut> = events
                .failovers
                .iter()
                .flat_map(|f| &f.cuts)
                .filter(|(of, _)| *of == key)
                .map(|(_, cut)| *cut)
                .collect();
            let verdict = judge(operations, &cuts).with_context(|| keys[key].clone())?;
            if verdict.stale_reads > 0 || verdict.lost {
                let name = format!("{}-history-{}.json", report.experiment, keys[key]);
                let text = json!({ "operations": operations, "cuts": cuts.iter().map(|cut| (cut.at_ns, cut.heard_ns, cut.until_ns, cut.left)).collect::<Vec<_>>() });
                report.plots.push((name, text.to_string()));
            }
            all.add(verdict);
        }
        let mut table =
            Table::new(&["master", "unavailable to Redis's clients", "through shortstop"]);
        let mut totals = [0.0; 2];
        for failover in &events.failovers {
            let gaps = asked[failover.shard]
                .each_ref()
                .map(|times| longest_gap_ms(times, failover.clock_ns));
            totals = [totals[0] + gaps[0], totals[1] + gaps[1]];
            let ms = |ms: f64| format!("{} ms", thousands(ms));
            table.row([failover.failure.name().into(), ms(gaps[0]), ms(gaps[1])]);
            report.rows.push(json!({
                "failure": failover.failure.name(),
                "unavailable_ms_of_redis": gaps[0],
                "unavailable_ms": gaps[1],
            }));
        }
        report.text = format!(
            "{}\nUnavailable: the longest time without a write of a key of the shard that was answered.\n",
            table.render()
        );
        for (name, count) in [
            ("slots_moved", events.moved),
            ("failovers", events.failovers.len() as u64),
            ("operations", all.operations),
            ("outcome_unknown", all.unknown),
            ("not_done", not_done),
            ("redirects_seen", redirects),
            ("stale_reads", all.stale_reads),
            ("lost_writes_beyond_redis", all.lost),
            ("keys_that_redis_lost_writes_of", all.lost_by_redis),
            ("reads_from_copies", copies as u64),
        ] {
            report.count(name, count);
        }
        report.summarize("unavailable_ms_of_redis", totals[0]);
        report.summarize("unavailable_ms", totals[1]);
        report.summarize("unavailable_ms_over_redis", totals[1] / totals[0].max(1.0));
        Ok(())
    }
}

#[derive(Default)]
struct KeyTotals {
    operations: u64,
    unknown: u64,
    stale_reads: u64,
    lost: u64,
    lost_by_redis: u64,
}

impl KeyTotals {
    fn add(&mut self, verdict: KeyVerdict) {
        self.stale_reads += verdict.stale_reads;
        self.lost += u64::from(verdict.lost);
        self.lost_by_redis += u64::from(verdict.lost_by_redis);
    }
}

/// Has the master of a shard fail, and come back.
fn fail(
    stage: &mut Stage,
    failure: Failure,
    shard: usize,
    keys: &[String],
    probes: &[String; 2],
) -> anyhow::Result<Failover> {
    let master = stage.nodes.owner(cluster_slot(probes[0].as_bytes()))?;
    let replica = stage.nodes.replica_of(&master)?;
    let had: Vec<usize> =
        (0..keys.len()).filter(|key| master.has(cluster_slot(keys[*key].as_bytes()))).collect();
    let at_ns = now_ns();
    stage.nodes.fails(failure, &master, &replica)?;
    let mut left = vec![];
    if failure != Failure::Demoted {
        std::thread::sleep(DRAINED);
        let names: Vec<String> = had.iter().map(|key| keys[*key].clone()).collect();
        left = Nodes::values_at(replica.port, &names)?;
    }
    stage.nodes.is_promoted(&replica)?;
    let until_ns = now_ns() + stage.lease_ns;
    stage.nodes.comes_back(failure, master.port)?;
    let heard_ns = match failure {
        Failure::Stopped => stage.nodes.is_demoted(master.port).map(|()| now_ns())?,
        Failure::Killed | Failure::Demoted => at_ns,
    };
    stage.nodes.heals()?;
    stage.takes_writes(&probes[1])?;
    let cut = |left| Cut { at_ns, heard_ns, until_ns, left };
    let cuts = had.into_iter().zip(left).map(|(key, left)| (key, cut(left)));
    Ok(Failover { failure, shard, clock_ns: [at_ns, now_ns()], cuts: cuts.collect() })
}

/// Of each shard two keys that stay in it: one for Redis's own clients, one for ours.
fn probes(keys: &[String]) -> Vec<[String; 2]> {
    let moving: Vec<u32> = keys.iter().map(|key| cluster_slot(key.as_bytes())).collect();
    let shard_of = |key: &String| cluster_slot(key.as_bytes()) as usize * SHARDS / 16_384;
    let names = (0..).map(|n| format!("probe-{n}"));
    let stays = |key: &String| !moving.contains(&cluster_slot(key.as_bytes()));
    let mut of_shards: Vec<Vec<String>> = vec![vec![]; SHARDS];
    for name in names.filter(stays) {
        let shard = &mut of_shards[shard_of(&name)];
        if shard.len() < 2 {
            shard.push(name);
        }
        if of_shards.iter().all(|shard| shard.len() == 2) {
            break;
        }
    }
    of_shards.into_iter().map(|of| [of[0].clone(), of[1].clone()]).collect()
}

fn operation(client: u32, key: usize, call_ns: u64, need: Need, effect: Effect) -> Operation {
    let return_ns = Some(now_ns());
    Operation { client, key: key as u32, call_ns, return_ns, need, effect, lapse: None }
}

/// Writes and reads keys until it is told to stop.
fn record(
    place: &Place,
    number: u32,
    seed: u64,
    keys: &[String],
    stop: &AtomicBool,
) -> anyhow::Result<Observations> {
    let mut asker: Box<dyn Asker> = match number % 3 {
        0 => Box::new(PacketClient::new(&place.cluster)?),
        _ => Box::new(GatewayClient::new(place.gateway)),
    };
    let mut rng = rng(seed, &format!("recording client {number}"));
    let (mut seen, mut written) = (Observations::default(), 0);
    while !stop.load(Relaxed) {
        // The first ones more often: copies are kept of those.
        let draw: f64 = rng.random();
        let key = (draw * draw * keys.len() as f64) as usize;
        let value = rng.random_bool(WRITES).then(|| {
            written += 1;
            (u64::from(number) << 40) | written
        });
        let call_ns = now_ns();
        let told = asker.ask(&keys[key], value)?;
        let effect = value.map_or(Effect::Keep, Effect::Write);
        match (told, value) {
            (Outcome::Done(_), Some(_)) => {
                seen.operations.push(operation(number, key, call_ns, Need::Any, effect));
            }
            (Outcome::Done(read), None) => {
                let need = read.map_or(Need::Absent, Need::Value);
                seen.operations.push(operation(number, key, call_ns, need, effect));
            }
            (Outcome::Unknown, Some(_)) => {
                let open = operation(number, key, call_ns, Need::Any, effect);
                seen.operations.push(Operation { return_ns: None, ..open });
            }
            (Outcome::NotDone | Outcome::Unknown, _) => seen.not_done += 1,
        }
        std::thread::sleep(PACE);
    }
    seen.redirects = asker.redirects();
    Ok(seen)
}

/// Writes a key again and again: when it was answered.
fn probe(mut asker: impl Asker, key: &str, stop: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let mut times = vec![];
    for n in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        if let Outcome::Done(_) = asker.ask(key, Some(n))? {
            times.push(now_ns());
        }
        std::thread::sleep(PACE);
    }
    Ok(times)
}

/// Where clients ask.
#[derive(Clone)]
struct Place {
    cluster: Cluster,
    gateway: SocketAddr,
    nodes: Vec<u16>,
}

/// The Redis Cluster, the stores before it and a gateway; gone when it is dropped.
struct Stage {
    // In this order they end.
    _gateway: Process,
    stores: Stores,
    nodes: Nodes,
    gateway: SocketAddr,
    lease_ns: u64,
    _directory: Directory,
}

impl Stage {
    fn build(run: &Run<'_>) -> anyhow::Result<Stage> {
        run.progress.say("a Redis Cluster");
        let directory = Directory::of_run(run.name)?;
        let nodes = Nodes::start(&directory.0, SHARDS, 1, NODE_TIMEOUT)?;
        let stores = Stores::start(&nodes, &directory.0)?;
        let gateway = address(port::free());
        let listen = gateway.to_string();
        let words = ["gateway", "--cluster", "cluster.toml", "--listen", &listen];
        let process = Process::of_product(&directory.0, &words)?;
        let lives = || true;
        ensure!(port::listens(gateway.port(), PATIENCE, lives), "the gateway does not listen");
        let stage = Stage {
            _gateway: process,
            nodes,
            lease_ns: u64::from(stores.cluster.lease_ms) * 1_000_000,
            stores,
            gateway,
            _directory: directory,
        };
        run.progress.say("stores wait for a lease");
        for [_, ours] in probes(&[]) {
            stage.takes_writes(&ours)?;
        }
        Ok(stage)
    }

    fn place(&self) -> Place {
        let nodes = self.nodes.ports();
        Place { cluster: self.stores.cluster.clone(), gateway: self.gateway, nodes }
    }

    /// Waits until a key can be written through the gateway.
    fn takes_writes(&self, key: &str) -> anyhow::Result<()> {
        let mut client = GatewayClient::new(self.gateway);
        interrupt::wait_for("a write through the gateway", PATIENCE, || {
            Ok(matches!(client.ask(key, Some(0))?, Outcome::Done(_)).then_some(()))
        })
    }

    /// What the masters have of keys.
    fn values(&self, keys: &[String]) -> anyhow::Result<Vec<Option<u64>>> {
        let nodes = self.nodes.ports();
        let value = |key: &String| {
            let mut client = ClusterClient::new(&nodes);
            interrupt::wait_for("a read at the nodes", PATIENCE, || {
                Ok(match client.ask(key, None)? {
                    Outcome::Done(value) => Some(value),
                    Outcome::NotDone | Outcome::Unknown => None,
                })
            })
        };
        keys.iter().map(value).collect()
    }
}
