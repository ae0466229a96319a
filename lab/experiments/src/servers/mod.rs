//! A rack of servers behind one switch, with a cache that is on or off: what it can carry, beside
//! what an ideal cache of the same size would let it carry for the same map of keys to servers.

mod layout;
mod mix;
mod rack;
mod search;

pub use mix::Mix;
pub(crate) use rack::step_loss;
pub use rack::{Rack, Search};
pub use search::Saturation;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use lab::{progress::Progress, steered::Seat};
use load::{
    Phase, PhaseResult, TraceSpec,
    model::{self, ServersByRank},
    workload::{KeySpace, Permutation, Popularity},
};
use plan::{CLIENT_CPU, OTHER_CPU, roles::Role};
use wire::{Cluster, Secret};

use crate::{
    Backend, Run, fill,
    rig::{GeneratorSpec, Load, Rig},
    run::Searches,
};
use layout::{
    CLIENT, CONTROL_STATE, SWITCH, agent_state, control_node, plan, server, server_roles, switches,
};

/// A rack under measurement: client, switch, servers; the cache on or off.
pub struct Servers<'a> {
    // The generator first, so that it does not report the loss of everything else.
    load: Option<Load>,
    /// One that scans beside it.
    scan: Option<Load>,
    /// Length of an interval of the counts over time.
    interval_ms: u64,
    /// What phases of a trace play.
    trace: Option<TraceSpec>,
    rig: Rig,
    params: Rack,
    seed: u64,
    cluster: Cluster,
    by_rank: ServersByRank,
    progress: &'a Progress,
    backend: Backend,
    /// Servers that were stopped, by their numbers.
    stopped: BTreeSet<usize>,
    /// Whether there is no cache, though the controller runs.
    is_bare: bool,
    /// What switches count reads under that found their value, but too many waiting for it.
    overflows: BTreeSet<&'static str>,
    searches: Searches,
}

/// What was counted while load ran.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that each server took.
    pub served: Vec<f64>,
    /// Requests that each server dropped because others waited.
    pub dropped: Vec<f64>,
    /// The counters of all switches, by name.
    pub switch: BTreeMap<String, f64>,
    /// The port by which the switch sends packets round, if anybody counts it.
    pub rounds: Option<sim::RoundCounts>,
    /// The time that all that took, in seconds.
    pub seconds: f64,
}

impl Counts {
    /// What one of the switch's counters counted; 0 if it has none of this name.
    pub fn switch(&self, name: &str) -> f64 {
        self.switch.get(name).copied().unwrap_or(0.0)
    }

    /// What was counted since then. The most that ever waited at the port by which packets go round
    /// stays what it is: two such figures have no difference.
    #[must_use]
    pub fn since(mut self, before: &Counts) -> Counts {
        // One that was started again has counted from nothing.
        let served = self.served.iter_mut().zip(&before.served);
        let dropped = self.dropped.iter_mut().zip(&before.dropped);
        for (now, before) in served.chain(dropped) {
            *now -= if *now >= *before { *before } else { 0.0 };
        }
        for (name, now) in &mut self.switch {
            *now -= before.switch(name);
        }
        if let (Some(now), Some(before)) = (&mut self.rounds, before.rounds) {
            now.packets -= before.packets;
            now.bytes -= before.bytes;
            now.overflowed -= before.overflowed;
            now.busy_ns -= before.busy_ns;
        }
        self.seconds -= before.seconds;
        self
    }
}

impl<'a> Servers<'a> {
    /// Builds the rack and starts the stores and the switch, without a cache.
    ///
    /// # Errors
    /// It cannot be built, or a process does not start.
    pub fn new(run: &Run<'a>, params: &Rack, backend: Backend) -> anyhow::Result<Servers<'a>> {
        let discipline = params.discipline.as_deref().unwrap_or(run.discipline);
        let plan = plan(params, backend, discipline);
        let is_bare = run.parts.begin(discipline)? == decide::NONE.name;
        let rig = Rig::build(plan, run.options.name.clone(), run)?;
        let keys = KeySpace::new(params.keys, 0, &Secret::NONE.into());
        let overflows = run.options.disciplines.iter().flat_map(|d| d.totals.overflows);
        let servers = Servers {
            load: None,
            scan: None,
            interval_ms: 50,
            trace: None,
            cluster: rig.cluster(&[])?,
            rig,
            by_rank: ServersByRank::new(
                &keys,
                &Permutation::new(params.keys, run.options.seed),
                params.servers,
            ),
            params: params.clone(),
            seed: run.options.seed,
            progress: run.progress,
            backend,
            stopped: BTreeSet::new(),
            is_bare,
            overflows: overflows.copied().collect(),
            searches: run.searches.clone(),
        };
        servers.fill(&keys, backend)?;
        Ok(servers)
    }

    /// Gives real servers their share of the keys; the embedded table has them already.
    fn fill(&self, keys: &KeySpace, backend: Backend) -> anyhow::Result<()> {
        for (host, store) in self.rig.stores().iter().zip(&self.cluster.stores) {
            let partitions = (0..).zip(keys.partitions(self.params.servers));
            let lengths = &self.params.value_len;
            let owned = partitions
                .filter(|(_, partition)| (store.first..=store.last).contains(partition))
                .map(|(key, _)| keys.get(key))
                .map(|key| (key.bytes, lengths.of(key.hash)));
            self.progress.say(format!("filling {host}"));
            match backend {
                Backend::Embedded => {}
                Backend::Redis => fill::redis(&self.data_of(host)?, owned)?,
                Backend::Memcached => {
                    fill::memcached(&self.rig.namespace(host)?, owned)?;
                }
            }
        }
        Ok(())
    }

    /// The socket of the Redis of a server.
    ///
    /// # Errors
    /// As [`Rig::lab`].
    pub fn data_of(&self, host: &str) -> anyhow::Result<std::path::PathBuf> {
        self.rig.file(&format!("{host}-data"))
    }

    /// Tells the Redis of a server, counted from 0, to end.
    ///
    /// # Errors
    /// As [`Rig::stop`].
    pub fn stop_data(&mut self, number: usize) -> anyhow::Result<()> {
        let host = self.rig.stores()[number].clone();
        self.rig.stop(&host, "redis", libc::SIGTERM)
    }

    /// Starts it again.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn start_data(&mut self, number: usize) -> anyhow::Result<()> {
        let host = self.rig.stores()[number].clone();
        self.rig.start(&host, "redis")
    }

    /// Kills a server, counted from 0. Servers have to be apart.
    ///
    /// # Errors
    /// As [`Rig::stop`].
    pub fn stop_server(&mut self, number: usize) -> anyhow::Result<()> {
        let host = server(number);
        // Later nobody says what it has counted.
        self.stopped.insert(number);
        self.rig.stop(&host, "store", libc::SIGKILL)
    }

    /// Starts a server that was killed again. So many seconds after its first request it is so many
    /// times as fast as before.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn start_server(&mut self, number: usize, later: Option<(f64, f64)>) -> anyhow::Result<()> {
        let host = server(number);
        let mut roles = server_roles(&host, &self.params, self.backend).into_iter();
        let store = roles.find(|seated| seated.role.name() == "store");
        let mut store = store.with_context(|| format!("{host}: no store in this rack"))?;
        if let Role::Store(store) = &mut store.role {
            let rate = self.params.server_rate / self.params.factor;
            store.rate_later = later.map(|(after_s, speed)| (after_s, rate * speed));
        }
        self.rig.start_as(&host, &store)?;
        self.stopped.remove(&number);
        Ok(())
    }

    /// Requests that each server has taken, and dropped, since it started; 0 of those that
    /// were stopped.
    fn taken(&self) -> anyhow::Result<[Vec<f64>; 2]> {
        let mut served = vec![0.0; self.params.servers as usize];
        let mut dropped = served.clone();
        let hosts = self.rig.stores();
        let stores = hosts.iter().zip(&self.cluster.stores);
        for (_, (host, store)) in (0..).zip(stores).filter(|(n, _)| !self.stopped.contains(n)) {
            let status = self.rig.store_status(host)?;
            for (i, partition) in status.partitions.iter().enumerate() {
                let number = partition.partition.unwrap_or(store.first + i as u32);
                let number = number as usize;
                if let (Some(served), Some(dropped)) =
                    (served.get_mut(number), dropped.get_mut(number))
                {
                    *served += partition.served as f64;
                    *dropped += partition.dropped as f64;
                }
            }
        }
        Ok([served, dropped])
    }

    /// Starts the controller: from here on the cache learns.
    ///
    /// # Errors
    /// It does not start.
    pub fn cache_on(&mut self) -> anyhow::Result<()> {
        let node = control_node(&self.params);
        self.rig.start(node, "control")
    }

    /// Whether nothing answers or chooses for the servers once the cache is on: what the experiment
    /// is about is off.
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// The switches that have an agent.
    fn agents(&self) -> Vec<String> {
        let mut all = switches(&self.params);
        if self.params.racks > 1 && !self.params.spine {
            all.remove(0);
        }
        all
    }

    /// Stops the controller and empties the switches.
    ///
    /// # Errors
    /// The switch does not start again.
    pub fn cache_off(&mut self) -> anyhow::Result<()> {
        let node = control_node(&self.params);
        self.rig.stop(node, "control", libc::SIGTERM)?;
        self.rig.forget(CONTROL_STATE);
        for switch in self.agents() {
            self.rig.stop(&switch, "agent", libc::SIGTERM)?;
            self.rig.forget_tables(&switch);
            self.rig.forget(&agent_state(&switch));
            self.rig.start(&switch, "agent")?;
        }
        Ok(())
    }

    /// Runs one phase of load.
    ///
    /// # Errors
    /// The generator died, or an interruption.
    pub fn phase(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        self.load()?.run(phase)
    }

    /// Counts over time in intervals of this length. To be said before there is load.
    pub fn look_every(&mut self, ms: u64) {
        self.interval_ms = ms;
    }

    /// Has phases of a trace play this one. To be said before there is load.
    pub fn play(&mut self, trace: TraceSpec) {
        self.trace = Some(trace);
    }

    /// The generator, which starts when it is needed first.
    fn load(&mut self) -> anyhow::Result<&mut Load> {
        if self.load.is_none() {
            self.load = Some(self.generator("load", CLIENT_CPU, 0)?);
        }
        self.load.as_mut().context("the generator that was just started")
    }

    fn generator(&mut self, name: &str, cpu: usize, number: u64) -> anyhow::Result<Load> {
        self.rig.load(&GeneratorSpec {
            seat: Seat { host: CLIENT, name, cpu: Some(cpu), nice: 0 },
            tenants: &[],
            keys: self.params.keys,
            value_len: self.params.value_len.clone(),
            timeout_ms: self.params.timeout_ms,
            seed: self.seed,
            interval_ms: self.interval_ms,
            again_ms: self.params.again_ms,
            names_lives: false,
            number,
            trace: self.trace.clone(),
        })
    }

    /// Runs one phase of load, and another one of another generator at the same time.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn beside(
        &mut self,
        phase: &Phase,
        other: &Phase,
    ) -> anyhow::Result<(PhaseResult, PhaseResult)> {
        let mut scan = match self.scan.take() {
            Some(scan) => scan,
            None => self.generator("scan", OTHER_CPU, 1)?,
        };
        scan.begin(other)?;
        let result = self.phase(phase)?;
        let seen = scan.finish()?;
        self.scan = Some(scan);
        Ok((result, seen))
    }

    /// Runs one phase of load; beside its result what servers and switch counted, warm-up included.
    ///
    /// # Errors
    /// As [`Servers::phase`], or nobody says what was counted.
    pub fn counting(&mut self, phase: &Phase) -> anyhow::Result<(PhaseResult, Counts)> {
        let before = self.counted()?;
        let result = self.phase(phase)?;
        Ok((result, self.counted()?.since(&before)))
    }

    /// Runs one phase of load, and does something as soon as it has begun; beside its result what
    /// was counted in each stretch of so many seconds.
    ///
    /// # Errors
    /// As [`Servers::counting`].
    pub fn watching(
        &mut self,
        phase: &Phase,
        every_s: f64,
        begun: impl FnOnce(&mut Servers<'a>) -> anyhow::Result<()>,
    ) -> anyhow::Result<(PhaseResult, Vec<Counts>)> {
        let every = Duration::from_secs_f64(every_s);
        let mut stretches = vec![];
        let mut before = self.counted()?;
        self.load()?.begin(phase)?;
        begun(self)?;
        loop {
            self.rig.wait(every)?;
            let now = self.counted()?;
            stretches.push(now.clone().since(&before));
            before = now;
            if let Some(result) = self.load()?.poll()? {
                return Ok((result, stretches));
            }
        }
    }

    /// What servers and switch have counted since they started.
    ///
    /// # Errors
    /// Nobody says.
    pub fn counted(&self) -> anyhow::Result<Counts> {
        let mut switch = BTreeMap::new();
        for name in self.agents() {
            let counters = self.rig.switch_counters(&name)?;
            for (name, count) in counters.as_object().into_iter().flatten() {
                *switch.entry(name.clone()).or_default() += count.as_f64().unwrap_or(0.0);
            }
        }
        let [served, dropped] = self.taken()?;
        Ok(Counts {
            served,
            dropped,
            switch,
            rounds: self.rig.rounds(SWITCH),
            seconds: self.rig.now().as_secs_f64(),
        })
    }

    /// Shares of the servers under this mix, with the hottest `cached` keys answered on the way.
    pub fn shares(
        &self,
        reads: Popularity,
        write_ratio: f64,
        writes: Popularity,
        cached: usize,
    ) -> Vec<f64> {
        self.shares_unless(reads, write_ratio, writes, |rank| rank < cached)
    }

    /// The same, with the keys of these ranks (0 is the hottest) answered on the way.
    pub fn shares_unless(
        &self,
        reads: Popularity,
        write_ratio: f64,
        writes: Popularity,
        is_cached: impl Fn(usize) -> bool,
    ) -> Vec<f64> {
        let reads = self.by_rank.shares_unless(reads, is_cached);
        if write_ratio == 0.0 {
            return reads;
        }
        let writes = self.by_rank.shares(writes, 0);
        let both = reads.iter().zip(&writes);
        both.map(|(r, w)| r * (1.0 - write_ratio) + w * write_ratio).collect()
    }

    /// The ranks of a server's keys (0 is the hottest) among so many of the hottest.
    pub fn ranks_of(&self, server: usize, hottest: usize) -> Vec<u32> {
        self.by_rank.ranks_of(server, hottest)
    }

    /// How long a lease of the servers lasts, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.cluster.lease_ms.into()
    }

    /// The rate at which servers of these shares, or the switch before them, lose as much as
    /// is allowed.
    pub fn bound(&self, shares: &[f64]) -> f64 {
        let Rack { factor, loss, .. } = self.params;
        let servers = model::saturation(shares, self.params.server_rate / factor, loss);
        let hardware = self.params.hardware.as_ref();
        let switch = hardware
            .map_or(f64::INFINITY, |h| f64::from(h.cores.unwrap_or(1)) * h.switch_rate / factor);
        servers.min(switch / (1.0 - loss))
    }

    /// The part of an offered load that servers of these shares answer, were everything
    /// else perfect.
    pub fn answered(&self, shares: &[f64], offered: f64) -> f64 {
        let Rack { factor, server_rate, .. } = self.params;
        1.0 - model::lost(offered, shares, server_rate / factor)
    }

    /// What the controller counts of the switch, by name: what its discipline says is among it.
    ///
    /// # Errors
    /// No controller says.
    pub fn control_counters(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let status = self.rig.status()?;
        let of_switch = &status["switches"][0]["counters"];
        let counters = of_switch.as_object().or(status["counters"].as_object());
        let counters = counters.into_iter().flatten();
        let number = |(name, n): (&String, &serde_json::Value)| Some((name.clone(), n.as_f64()?));
        Ok(counters.filter_map(number).collect())
    }

    /// What all stores have counted since they started, by name.
    ///
    /// # Errors
    /// A store that does not say.
    pub fn store_totals(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let mut sums = BTreeMap::new();
        for host in self.rig.stores() {
            let status = self.rig.store_status(&host)?;
            for (name, count) in status.totals.as_object().into_iter().flatten() {
                *sums.entry(name.clone()).or_default() += count.as_f64().unwrap_or(0.0);
            }
        }
        Ok(sums)
    }

    /// The rig.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Where the first store listens.
    pub fn first_store(&self) -> std::net::SocketAddr {
        self.cluster.stores[0].address
    }

    /// The namespace that load comes from.
    ///
    /// # Errors
    /// As [`Rig::lab`].
    pub fn client_namespace(&self) -> anyhow::Result<String> {
        self.rig.namespace(CLIENT)
    }
}
