//! A Redis Cluster that has its keys, and of which one shard is hot: clients in cluster mode ask
//! its nodes, as they do today. Then stores and gateways come, nothing is moved, and the same
//! clients ask gateways: those in cluster mode find a cluster there, the others a Redis. How much
//! of a processor does the hottest node need for the same load, how much more do the same nodes
//! serve, how long does a command take at equal load, and is any value wrong?
//!
//! All on loopback, with the programs as users run them. Each node has a small part of a processor
//! (`cpu_share`): so nodes are what is short, and not this machine. Stores and gateways take what
//! they need, and that is told.

mod stage;
mod tell;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use history::{Effect, Operation};
use lab::{cpu_share::CpuShare, interrupt};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use self::stage::{CpuTime, Stage};
use crate::{
    Measure, Options, Report, Run,
    applications::{Mix, Observations, Pace, Servers, Worker, stale_in},
    params::{exponent, positive},
};

/// Of the throughput at the nodes, what both are given where load is equal.
const EQUAL_LOAD: f64 = 0.5;

/// Parameters of a hot shard.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotShard {
    /// Masters of the Redis Cluster.
    shards: usize,
    /// Part of one processor that each of them has.
    cpu_share: f64,
    /// Applications, each with a gateway of its own once there are gateways.
    hosts: usize,
    /// Connections of each; every other one is in cluster mode at gateways, too.
    connections: usize,
    keys: usize,
    /// Length of values in bytes.
    value_len: usize,
    /// Exponent of Zipf's law, by which keys are read.
    skew: f64,
    /// Part of the commands that write.
    write_part: f64,
    /// What gateways keep copies in.
    cache: String,
    /// Seconds that each step is measured, and before that.
    step_s: f64,
    warm_s: f64,
}

impl Measure for HotShard {
    fn check(&self) -> anyhow::Result<()> {
        positive!(self, cpu_share, step_s, warm_s)?;
        exponent(self.skew)?;
        let HotShard { shards, hosts, connections, keys, value_len, .. } = self;
        ensure!((3..=16).contains(shards), "shards = {shards}: 3 to 16 are possible");
        ensure!((1..=64).contains(hosts), "hosts = {hosts}: 1 to 64");
        ensure!((2..=64).contains(connections), "connections = {connections}: 2 to 64");
        ensure!((1..=1_000_000).contains(keys), "keys = {keys}: 1 to 1000000");
        ensure!((8..=1 << 20).contains(value_len), "value_len = {value_len}: 8 to 1048576");
        ensure!((0.0..1.0).contains(&self.write_part), "write_part: 0 to below 1");
        Ok(())
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis")
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        run.parts.begin("gateway")?;
        run.progress.say("a Redis Cluster");
        let stage = Stage::build(self, run.name)?;
        let mut bench = Bench { params: self, run, stage, written: vec![], next: 0 };
        bench.fill()?;
        let mut before = vec![];
        for law in WriteLaw::ALL {
            before.push(bench.measure(Clients::AtNodes, law, None)?);
        }
        let values = bench.stage.values_at_nodes(self.keys, self.value_len)?;
        run.progress.say("stores and gateways come");
        bench.stage.start_gateways(self.hosts, &self.cache)?;
        let served = bench.stage.values_by_gateway(self.keys, self.value_len)?;
        let same = values.iter().zip(&served).filter(|(a, b)| a.is_some() && a == b).count();
        let mut rows = vec![];
        for (law, before) in WriteLaw::ALL.into_iter().zip(before) {
            let after = bench.measure(Clients::ByGateways, law, Some(before.per_s))?;
            rows.push([before, after]);
        }
        tell::tell(&rows, same as f64 / self.keys as f64, report);
        // A node that has used its part up stands still for the rest of a period.
        report.summarize("quota_period_ms", CpuShare::period_ms(self.cpu_share));
        Ok(())
    }
}

/// Whom clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    /// The nodes of the Redis Cluster.
    AtNodes,
    /// Gateways, each host its own.
    ByGateways,
}

/// Which keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteLaw {
    /// Each alike.
    Alike,
    /// As they are read.
    AsRead,
}

impl WriteLaw {
    const ALL: [WriteLaw; 2] = [WriteLaw::Alike, WriteLaw::AsRead];
}

/// What came of clients at a load.
struct Row {
    clients: Clients,
    law: WriteLaw,
    /// Commands per second when clients ask as fast as they are answered.
    per_s: f64,
    /// Commands per second that all were to ask for where load is equal.
    equal_per_s: f64,
    /// The part of them that was answered in time.
    equal_served: f64,
    /// The time of a command then, in milliseconds.
    p99_ms: f64,
    /// Of a processor, by shard: what was used at equal load, and when clients asked as fast as
    /// they could.
    used: [CpuTime; 2],
    wrong: usize,
    failed: u64,
    reads: usize,
}

struct Bench<'a> {
    params: &'a HotShard,
    run: &'a Run<'a>,
    stage: Stage,
    /// Every write so far.
    written: Vec<Operation>,
    /// The number of the next connection.
    next: u32,
}

impl Bench<'_> {
    /// How much clients are answered, and what it takes at half of what the nodes answer
    /// (`direct_per_s`; none: that is these clients).
    fn measure(
        &mut self,
        clients: Clients,
        law: WriteLaw,
        direct_per_s: Option<f64>,
    ) -> anyhow::Result<Row> {
        self.run.progress.say(match clients {
            Clients::AtNodes => "clients in cluster mode at the nodes",
            Clients::ByGateways => "clients at gateways",
        });
        let (mut seen, most_used) = self.phase(clients, law, Pace::Closed(1))?;
        ensure!(seen.done > 0, "no command was answered, {} failed", seen.failed);
        let per_s = seen.done as f64 / self.params.step_s;
        let equal_per_s = direct_per_s.unwrap_or(per_s) * EQUAL_LOAD;
        let each = equal_per_s / (self.params.hosts * self.params.connections) as f64;
        let (calm, used) = self.phase(clients, law, Pace::Open(each))?;
        let (equal_served, p99_ms) = (calm.served(), calm.within_ms(0.99));
        seen.add(calm);
        let (reads, writes): (Vec<Operation>, Vec<Operation>) =
            seen.operations.into_iter().partition(|o| o.effect == Effect::Keep);
        self.written.extend(writes);
        let wrong = stale_in(&[&self.written[..], &reads].concat()) + seen.torn as usize;
        Ok(Row {
            clients,
            law,
            per_s,
            equal_per_s,
            equal_served,
            p99_ms,
            used: [used, most_used],
            wrong,
            failed: seen.failed,
            reads: reads.len(),
        })
    }

    /// Lets all clients ask; what they saw, and what was used meanwhile.
    fn phase(
        &mut self,
        clients: Clients,
        law: WriteLaw,
        pace: Pace,
    ) -> anyhow::Result<(Observations, CpuTime)> {
        interrupt::check()?;
        let HotShard { hosts, connections, skew, .. } = *self.params;
        let mix = Mix {
            write_part: self.params.write_part,
            writes: match law {
                WriteLaw::Alike => Popularity::Uniform,
                WriteLaw::AsRead => Popularity::Zipf(skew),
            },
            ..self.mix(Popularity::Zipf(skew))
        };
        let mut workers = vec![];
        for connection in 0..hosts * connections {
            let host = connection / connections;
            let servers = match clients {
                Clients::AtNodes => self.as_cluster(self.stage.node())?,
                Clients::ByGateways if connection % 2 == 0 => {
                    self.as_cluster(self.stage.gateway(host))?
                }
                Clients::ByGateways => Servers {
                    addresses: vec![crate::loopback::address(self.stage.gateway(host))],
                    replicas: vec![],
                    of_key: Arc::new(vec![0; self.params.keys]),
                },
            };
            workers.push(self.worker(servers, mix.clone())?);
        }
        let [warm, time] = [self.params.warm_s, self.params.step_s].map(Duration::from_secs_f64);
        let (used, began) = (self.stage.used()?, Instant::now());
        let seen = std::thread::scope(|scope| {
            let working: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || worker.run(pace, warm, time)))
                .collect();
            let mut all = Observations::default();
            for one in working {
                all.add(one.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
            }
            anyhow::Ok(all)
        })?;
        let used = self.stage.used()?.since(&used, began.elapsed());
        Ok((seen, used))
    }

    /// What a client in cluster mode makes of what the node at this port says of the cluster.
    fn as_cluster(&self, port: u16) -> anyhow::Result<Servers> {
        let (addresses, of_key) = stage::map_at(port, self.params.keys)?;
        Ok(Servers { addresses, replicas: vec![], of_key: Arc::new(of_key) })
    }

    fn worker(&mut self, servers: Servers, mix: Mix) -> anyhow::Result<Worker> {
        let number = self.next;
        self.next += 1;
        Worker::new(number, servers, None, mix, self.run.options.seed)
    }

    fn mix(&self, reads: Popularity) -> Mix {
        Mix {
            keys: self.params.keys as u32,
            reads,
            write_part: 0.0,
            writes: Popularity::Uniform,
            value_len: self.params.value_len,
        }
    }

    /// Writes all keys at the nodes, each once: nobody has heard of stores yet.
    fn fill(&mut self) -> anyhow::Result<()> {
        let servers = self.as_cluster(self.stage.node())?;
        let mix = self.mix(Popularity::Uniform);
        let seen = self.worker(servers, mix)?.fill(0..self.params.keys as u32)?;
        ensure!(seen.failed == 0, "{} keys could not be written", seen.failed);
        self.written = seen.operations;
        Ok(())
    }
}
