//! A rack of servers behind one switch, with a cache that is on or off: what it can carry, beside what an ideal cache of
//! the same size would let it carry for the same map of keys to servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use lab::{
    progress::Progress,
    roles::{CONTROL_PORT, Control, MEMCACHED_PORT, Redis, Role, Store, Switch},
    steered::Seat,
    topology::Link,
};
use load::{
    Phase, PhaseResult,
    model::{self, ServersByRank},
    search::{self, Limits, Point},
    workload::{KeySpace, Permutation, Popularity},
};
use serde::{Deserialize, Serialize};
use wire::{Cluster, Lengths, PORT, Secret};

use crate::{
    Backend, Run, fill,
    params::{keys, part, positive, value_len},
    rig::{CLIENT_CPU, Generating, Hardware, Load, OTHER_CPU, Plan, Rig, Seated, Site, TIMEOUT_MS},
    table::thousands,
};

/// A cache that takes nothing more for so long is full: a key that found no room is asked for again after a second.
const STALLED: Duration = Duration::from_secs(3);
const CLIENT: &str = "client";
const SWITCH: &str = "switch";
const CONTROL: &str = "control";

/// The servers and the cache in front of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rack {
    /// Number of keys, 16 bytes each.
    pub keys: usize,
    /// Lengths of values: one, or a table `{ mix = [[64, 82], [1024, 18]] }` of lengths with their weights, of which each key has one.
    pub value_len: Lengths,
    /// Number of servers, each one partition.
    pub servers: u32,
    /// Whether each server is a host of its own, with an address of its own, and hears the controller; otherwise one host has the partitions of
    /// all of them.
    pub apart: bool,
    /// Requests per second that each server takes.
    pub server_rate: f64,
    /// What switch and links are in the simulator; none: one core, and links of 10 us.
    pub hardware: Option<Hardware>,
    /// By this the rates of servers and hardware are divided, and the hardware's times multiplied: the same rack with fewer requests in
    /// each second, so that one of fast machines can be simulated. What is measured is so much slower, too; ratios are the same.
    pub factor: f64,
    /// Requests that wait at a server before it drops more.
    pub queue_limit: u32,
    /// Most items in the cache.
    pub items: usize,
    /// Part of the requests that may be lost at saturation.
    pub loss: f64,
    /// A request unanswered for so long is lost, in milliseconds.
    pub timeout_ms: u64,
    /// What the switch does, when it caches; none: what the experiment is about.
    pub discipline: Option<String>,
    /// Longest time to let the cache learn in seconds.
    pub learn_s: f64,
    /// Length of the controller's statistics windows in milliseconds; none: the usual one.
    pub window_ms: Option<u32>,
    /// Rates above this are not offered: two CPUs carry no more.
    pub max_rate: f64,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// Options added to the controller's command line.
    pub control_args: Vec<String>,
    /// Options added to the switch's command line.
    pub switch_args: Vec<String>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            keys: 1_000_000,
            value_len: 128.into(),
            servers: 128,
            apart: false,
            server_rate: 250.0,
            hardware: None,
            factor: 1.0,
            queue_limit: 32,
            items: 10_000,
            loss: 0.02,
            timeout_ms: TIMEOUT_MS,
            discipline: None,
            learn_s: 30.0,
            window_ms: None,
            max_rate: 150_000.0,
            settings: BTreeMap::new(),
            control_args: vec![],
            switch_args: vec![],
        }
    }
}

impl Rack {
    /// The node with the controller.
    fn controller(&self) -> &'static str {
        if self.apart { CONTROL } else { SWITCH }
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        value_len(self.value_len.longest())?;
        let Rack {
            keys,
            servers,
            items,
            ..
        } = self;
        ensure!(
            (1..=4096).contains(servers),
            "servers = {servers}: 1 to 4096 are possible"
        );
        ensure!(
            items <= keys,
            "items = {items}: more than there are keys ({keys})"
        );
        positive([
            ("server_rate", self.server_rate),
            ("learn_s", self.learn_s),
            ("max_rate", self.max_rate),
            ("factor", self.factor),
        ])?;
        if let Some(hardware) = &self.hardware {
            let rate = hardware.switch_rate / self.factor;
            positive([("switch_rate", rate)])?;
        }
        part([("loss", self.loss)])
    }
}

/// How a point of saturation is searched for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Longest search for one point in seconds.
    pub search_s: f64,
    /// One step in seconds, measured part.
    pub step_s: f64,
    /// Requests that a step must at least contain; it takes longer (up to three times) if needed.
    pub step_requests: f64,
    /// Load before each measured part in seconds.
    pub warmup_s: f64,
    /// Width of the answer, a part of one.
    pub precision: f64,
    /// Most steps.
    pub steps: usize,
    /// Seconds for which the servers' loads are measured, at nine tenths of the rate that is expected: the same rate in every run,
    /// and long enough that chance does not decide. 0: as the best step had them.
    pub loads_s: f64,
}

impl Default for Search {
    fn default() -> Search {
        Search {
            search_s: 25.0,
            step_s: 1.0,
            step_requests: 10_000.0,
            warmup_s: 0.3,
            precision: 0.02,
            steps: 12,
            loads_s: 0.0,
        }
    }
}

impl Search {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        positive([("step_s", self.step_s), ("search_s", self.search_s)])
    }
}

/// A rack under measurement: client, switch, servers; the cache on or off.
pub struct Servers<'a> {
    // The generator first, so that it does not report the loss of everything else.
    load: Option<Load>,
    rig: Rig,
    params: Rack,
    seed: u64,
    cluster: Cluster,
    by_rank: ServersByRank,
    progress: &'a Progress,
    backend: Backend,
    /// Servers that were stopped, by their numbers.
    stopped: BTreeSet<usize>,
}

/// One point of saturation.
pub struct Saturation {
    /// Highest offered rate that passed, in requests per second.
    pub rate: f64,
    /// What was measured there.
    pub result: PhaseResult,
    /// Requests that each server took meanwhile, or where that was asked for, at nine tenths of what was expected.
    pub server_load: Vec<f64>,
    /// What was counted meanwhile.
    pub counted: Counted,
    /// Every step of the search.
    pub points: Vec<Point>,
}

/// What was counted while load ran.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Requests that each server took.
    pub served: Vec<f64>,
    /// The switch's counters, by name.
    pub switch: BTreeMap<String, f64>,
    /// The port by which the switch sends packets round, if anybody counts it.
    pub rounds: Option<sim::RoundCounts>,
    /// The time that all that took, in seconds.
    pub seconds: f64,
}

impl Counted {
    /// What one of the switch's counters counted; 0 if it has none of this name.
    pub fn switch(&self, name: &str) -> f64 {
        self.switch.get(name).copied().unwrap_or(0.0)
    }

    /// What was counted since then.
    #[must_use]
    pub fn since(mut self, before: &Counted) -> Counted {
        // One that was started again has counted from nothing.
        for (now, before) in self.served.iter_mut().zip(&before.served) {
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
        let rig = Rig::build(plan, run.options.name.clone(), run)?;
        let keys = KeySpace::new(params.keys, 0, &Secret::NONE);
        let servers = Servers {
            load: None,
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

    /// Starts a server that was killed again, so many times as fast as before.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn start_server(&mut self, number: usize, speed: f64) -> anyhow::Result<()> {
        let host = server(number);
        let params = Rack {
            server_rate: self.params.server_rate * speed,
            ..self.params.clone()
        };
        let mut roles = server_roles(&host, &params, self.backend).into_iter();
        let store = roles.find(|seated| seated.role.name() == "store");
        let store = store.with_context(|| format!("{host}: no store in this rack"))?;
        self.rig.start_as(&host, &store)?;
        self.stopped.remove(&number);
        Ok(())
    }

    /// Requests that each server has taken since it started; 0 of those that were stopped.
    ///
    /// # Errors
    /// A store that does not say.
    pub fn served(&self) -> anyhow::Result<Vec<f64>> {
        let mut served = vec![0.0; self.params.servers as usize];
        let hosts = self.rig.stores();
        let stores = hosts.iter().zip(&self.cluster.stores);
        for (_, (host, store)) in (0..).zip(stores).filter(|(n, _)| !self.stopped.contains(n)) {
            let status = self.rig.store_status(host)?;
            for (i, partition) in status.partitions.iter().enumerate() {
                let number = partition.partition.unwrap_or(store.first + i as u32);
                if let Some(slot) = served.get_mut(number as usize) {
                    *slot += partition.served as f64;
                }
            }
        }
        Ok(served)
    }

    /// Starts the controller: from here on the cache learns.
    ///
    /// # Errors
    /// It does not start.
    pub fn cache_on(&mut self) -> anyhow::Result<()> {
        let node = self.params.controller();
        self.rig.start(node, "control")
    }

    /// Stops the controller and empties the switch.
    ///
    /// # Errors
    /// The switch does not start again.
    pub fn cache_off(&mut self) -> anyhow::Result<()> {
        let node = self.params.controller();
        self.rig.stop(node, "control", libc::SIGTERM)?;
        self.rig.stop(SWITCH, "agent", libc::SIGTERM)?;
        self.rig.forget_tables(SWITCH);
        self.rig.forget(CONTROL_STATE);
        self.rig.forget(AGENT_STATE);
        self.rig.start(SWITCH, "agent")
    }

    /// Runs one phase of load.
    ///
    /// # Errors
    /// The generator died, or an interruption.
    pub fn phase(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        self.load()?.run(phase)
    }

    /// The generator, which starts when it is needed first.
    fn load(&mut self) -> anyhow::Result<&mut Load> {
        if self.load.is_none() {
            self.load = Some(self.rig.load(&Generating {
                seat: Seat {
                    host: CLIENT,
                    name: "load",
                    cpu: Some(CLIENT_CPU),
                    nice: 0,
                },
                tenants: &[],
                keys: self.params.keys,
                value_len: self.params.value_len.clone(),
                timeout_ms: self.params.timeout_ms,
                seed: self.seed,
                interval_ms: 50,
                names_lives: false,
                number: 0,
            })?);
        }
        self.load
            .as_mut()
            .context("the generator that was just started")
    }

    /// Runs one phase of load; beside its result what servers and switch counted, warm-up included.
    ///
    /// # Errors
    /// As [`Servers::phase`], or nobody says what was counted.
    pub fn counting(&mut self, phase: &Phase) -> anyhow::Result<(PhaseResult, Counted)> {
        let before = self.counted()?;
        let result = self.phase(phase)?;
        Ok((result, self.counted()?.since(&before)))
    }

    /// Runs one phase of load; beside its result what was counted in each stretch of so many seconds.
    ///
    /// # Errors
    /// As [`Servers::counting`].
    pub fn watching(
        &mut self,
        phase: &Phase,
        every_s: f64,
    ) -> anyhow::Result<(PhaseResult, Vec<Counted>)> {
        let every = Duration::from_secs_f64(every_s);
        let mut stretches = vec![];
        let mut before = self.counted()?;
        self.load()?.begin(phase)?;
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
    pub fn counted(&self) -> anyhow::Result<Counted> {
        let counters = self.rig.switch_counters(SWITCH)?;
        let counters = counters.as_object().into_iter().flatten();
        Ok(Counted {
            served: self.served()?,
            switch: counters
                .filter_map(|(name, count)| Some((name.clone(), count.as_f64()?)))
                .collect(),
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
        both.map(|(r, w)| r * (1.0 - write_ratio) + w * write_ratio)
            .collect()
    }

    /// The rate at which servers of these shares, or the switch before them, lose as much as is allowed.
    pub fn bound(&self, shares: &[f64]) -> f64 {
        let Rack { factor, loss, .. } = self.params;
        let servers = model::saturation(shares, self.params.server_rate / factor, loss);
        let hardware = self.params.hardware.as_ref();
        let switch = hardware.map_or(f64::INFINITY, |h| h.switch_rate / factor);
        servers.min(switch / (1.0 - loss))
    }

    /// Offers load until the hit ratio rises no more, or time is up; returns the last round.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn learn(&mut self, popularity: Popularity, rate: f64) -> anyhow::Result<PhaseResult> {
        let rate = rate.min(self.params.max_rate);
        let chances = popularity.chances(self.params.keys);
        let optimum: f64 = chances.take(self.params.items).sum();
        // A cache that learns window by window stalls in between.
        let round_s = self
            .params
            .window_ms
            .map_or(0.8, |ms| f64::from(ms) / 1000.0);
        let rounds = (self.params.learn_s / round_s.max(1.0)).ceil().max(1.0) as usize;
        let mut best = 0.0;
        let mut stalled = 0;
        let mut last = PhaseResult::default();
        for _ in 0..rounds {
            last = self.phase(&Phase::reads(popularity, rate, 0.0, round_s))?;
            // Of requests, not of answers: overload drops misses only.
            let hits = last.cached as f64 / (last.sent as f64).max(1.0);
            let title = popularity.title();
            self.progress
                .say(format!("{title}: learning, {:.1} % hits", hits * 100.0));
            stalled = if hits < best + 0.003 { stalled + 1 } else { 0 };
            best = best.max(hits);
            let good = hits >= 0.985 * optimum;
            if good || (stalled >= 3 && best > 0.2 * optimum) {
                break;
            }
        }
        Ok(last)
    }

    /// Asks for as many of the hottest keys as the cache may hold, each alike, until so large a part of that is there: what the hottest
    /// are need not be learned first. Where no more come, `enough` of that part is enough. A read that found its value there, but no place to wait for it, counts as well.
    ///
    /// # Errors
    /// As [`Servers::phase`], or the time to learn is over and keys are missing.
    pub fn preload(&mut self, part: f64, enough: f64, rate: f64) -> anyhow::Result<PhaseResult> {
        let rate = rate.min(self.params.max_rate);
        let keys = self.params.items;
        let window_s = self.params.window_ms.unwrap_or(1000) as f64 / 1000.0;
        let begun = self.rig.now();
        let (mut best, mut risen) = (0.0, begun);
        loop {
            let phase = Phase {
                keys,
                ..Phase::reads(Popularity::Uniform, rate, 0.0, window_s)
            };
            // A switch that has just been started counts nothing yet.
            let overflows = |this: &Servers<'_>| {
                let counted = this.counted().unwrap_or_default();
                counted.switch("wait_full")
            };
            let before = overflows(self);
            let result = self.phase(&phase)?;
            let there = result.cached as f64 + overflows(self) - before;
            let hits = there / (result.sent as f64).max(1.0);
            let percent = hits * 100.0;
            self.progress.say(format!(
                "filling the cache with {keys}: {percent:.1} % are there"
            ));
            let now = self.rig.now();
            if hits > best + 0.002 {
                (best, risen) = (hits, now);
            }
            let took = (now - begun).as_secs_f64();
            let is_over = took >= self.params.learn_s;
            let no_more_come =
                hits > 0.0 && hits >= enough * part && (is_over || now - risen > STALLED);
            if hits >= 0.997 * part || no_more_come {
                return Ok(result);
            }
            ensure!(
                !is_over,
                "after {took:.0} s the cache has {percent:.1} % of the {keys} hottest keys, and {:.1} % are wanted; the controller says: {}",
                part * 100.0,
                self.rig.status().unwrap_or_default()["switches"]
            );
        }
    }

    /// Finds the saturation point, from an expectation on.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate(
        &mut self,
        expected: f64,
        what: &str,
        search: &Search,
        phase: impl Fn(f64, f64, f64) -> Phase,
    ) -> anyhow::Result<Saturation> {
        let (progress, max_rate) = (self.progress, self.params.max_rate);
        let limits = Limits {
            loss: self.params.loss,
            precision: search.precision,
            steps: search.steps,
            time: Duration::from_secs_f64(search.search_s),
            max_rate,
        };
        // Just below what is expected: the first step passes if it is reached.
        const FIRST_STEP: f64 = 0.97;
        let expected = if expected.is_finite() {
            expected
        } else {
            max_rate / 2.0 / FIRST_STEP
        };
        let step = |this: &mut Servers<'_>, rate: f64, seconds: f64| {
            this.counting(&phase(rate, search.warmup_s, seconds))
        };
        let (rate, measured, points) =
            search::saturation(expected * FIRST_STEP, &limits, |rate| {
                progress.say(format!("{what}: trying {}/s", thousands(rate)));
                let begun = self.rig.now();
                let needed = search.step_requests / rate;
                let seconds = needed.clamp(search.step_s, 3.0 * search.step_s);
                let (result, counted) = step(self, rate, seconds)?;
                tracing::info!(
                    "{what}: {rate:.0}/s, lost {:.2} %, {:.1} % hits, {:.1} ms behind",
                    result.lasting_loss() * 100.0,
                    result.hit_ratio() * 100.0,
                    result.behind_ms
                );
                // A generator that falls behind offers less than it should: that is no pass.
                let offered = result.sent_rate() / rate;
                let loss = if offered < 0.95 {
                    1.0
                } else {
                    result.lasting_loss()
                };
                Ok((loss, self.rig.now() - begun, (result, counted)))
            })?;
        let (result, counted) = measured;
        let mut server_load = counted.served.clone();
        if search.loads_s > 0.0 {
            progress.say(format!("{what}: loads of the servers"));
            server_load = step(self, expected.min(rate) * 0.9, search.loads_s)?
                .1
                .served;
        }
        Ok(Saturation {
            rate,
            result,
            server_load,
            counted,
            points,
        })
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

    /// The rig, to break something.
    pub fn rig_mut(&mut self) -> &mut Rig {
        &mut self.rig
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

/// Where controller and agent keep their state.
const CONTROL_STATE: &str = "{dir}/control";
const AGENT_STATE: &str = "{dir}/agent";

/// client - switch - servers, with the controller on the switch.
fn plan(params: &Rack, backend: Backend, discipline: &str) -> Plan {
    let servers: Vec<String> = match (backend, params.servers) {
        (Backend::Embedded, _) if !params.apart => vec!["server".into()],
        (_, 1) => vec!["server".into()],
        (_, n) => (0..n as usize).map(server).collect(),
    };
    let mut hosts = vec![Site::new(CLIENT, vec![])];
    let mut links = vec![Link::between([CLIENT.into(), SWITCH.into()])];
    for server in &servers {
        hosts.push(Site::new(server, server_roles(server, params, backend)));
        links.push(Link::between([SWITCH.into(), server.clone()]));
    }
    let [agent, control] = switch_roles(params, discipline);
    let mut switch = vec![agent];
    if params.apart {
        hosts.push(Site::new(CONTROL, vec![control]));
        links.push(Link::between([SWITCH.into(), CONTROL.into()]));
    } else {
        switch.push(control);
    }
    Plan {
        hosts,
        switches: vec![Site::new(SWITCH, switch)],
        links,
        partitions: params.servers,
        is_open: true,
        is_signed: false,
        hardware: params.hardware.as_ref().map(|h| h.slowed(params.factor)),
    }
}

/// The host of a server, counted from 0, where each has its own.
fn server(number: usize) -> String {
    format!("server{}", number + 1)
}

/// Where the controller is found.
fn control_url(params: &Rack) -> String {
    match params.apart {
        true => format!("http://{{address:{CONTROL}}}:{CONTROL_PORT}"),
        false => format!("http://127.0.0.1:{CONTROL_PORT}"),
    }
}

fn server_roles(host: &str, params: &Rack, backend: Backend) -> Vec<Seated> {
    let data = format!("{{dir}}/{host}-data");
    let url = match backend {
        Backend::Embedded => None,
        Backend::Redis => Some(format!("redis+unix://{data}")),
        Backend::Memcached => Some(format!("memcached://127.0.0.1:{MEMCACHED_PORT}")),
    };
    let store = Role::Store(Store {
        listen: format!("{{address:{host}}}:{PORT}"),
        populate: (backend == Backend::Embedded)
            .then(|| (params.keys, params.value_len.to_string())),
        backend: url,
        rate_limit: Some(params.server_rate / params.factor),
        queue_limit: Some(params.queue_limit),
        socket: format!("{{dir}}/{host}.sock"),
        control: params.apart.then(|| control_url(params)),
        ..Store::default()
    });
    let behind = match backend {
        Backend::Embedded => None,
        Backend::Redis => Some(Role::Redis(Redis {
            socket: data,
            journal: None,
        })),
        Backend::Memcached => Some(Role::Memcached(data)),
    };
    let roles = behind.into_iter().chain([store]);
    roles.map(|role| Seated::new(role).on(OTHER_CPU)).collect()
}

/// The agent forwards from the start; the cache learns once there is a controller.
fn switch_roles(params: &Rack, discipline: &str) -> [Seated; 2] {
    let agent = Role::Switch(Switch {
        id: 1,
        node: SWITCH.into(),
        control: control_url(params),
        state: AGENT_STATE.into(),
        options: params.switch_args.clone(),
        ..Switch::default()
    });
    let control = Role::Control(Control {
        state: CONTROL_STATE.into(),
        max_items: Some(params.items),
        window_ms: params.window_ms,
        discipline: Some(discipline.into()),
        settings: params.settings.clone(),
        options: params.control_args.clone(),
        listen: params.apart.then(|| format!("0.0.0.0:{CONTROL_PORT}")),
        ..Control::default()
    });
    [
        Seated::new(agent).nice(5),
        Seated::new(control).nice(5).later(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_of_a_real_backend_has_its_share_of_the_partitions() {
        let params = Rack {
            servers: 3,
            ..Rack::default()
        };
        let plan = plan(&params, Backend::Redis, "some");
        let topology = plan.topology().unwrap();
        let cluster = Cluster::parse(&topology.files["cluster.toml"]).unwrap();
        let shares: Vec<(u32, u32)> = cluster.stores.iter().map(|s| (s.first, s.last)).collect();
        assert_eq!(shares, [(0, 0), (1, 1), (2, 2)]);
        let started: Vec<&str> = topology.hosts[1]
            .processes
            .iter()
            .map(|process| process.name.as_str())
            .collect();
        assert_eq!(started, ["redis", "store"]);
        assert!(!topology.switches[0].processes[1].autostart);
    }

    #[test]
    fn a_factor_divides_the_rates_of_servers_and_switch() {
        let hardware: Hardware = toml::from_str("switch_rate = 2e9\nround_gbit = 100").unwrap();
        let params = Rack {
            server_rate: 10e6,
            hardware: Some(hardware),
            factor: 40_000.0,
            ..Rack::default()
        };
        params.check().unwrap();
        let plan = plan(&params, Backend::Embedded, "some");
        let slowed = plan.hardware.as_ref().unwrap();
        assert_eq!(slowed.switch_rate, 50_000.0);
        assert_eq!((slowed.round_gbit, slowed.link_gbit), (Some(0.0025), None));
        assert_eq!(slowed.link_us, 400_000.0);
        let Role::Store(store) = &plan.seated("server", "store").unwrap().role else {
            panic!("a store")
        };
        assert_eq!(store.rate_limit, Some(250.0));
    }

    #[test]
    fn errors_name_the_parameter() {
        let rack = |text: &str| -> anyhow::Result<()> {
            let rack: Rack = toml::from_str(text)?;
            rack.check()
        };
        for (line, expected) in [
            ("kees = 5", "kees"),
            ("keys = 0", "keys = 0"),
            ("keys = 10\nitems = 20", "items = 20"),
            ("loss = 1.0", "loss = 1"),
        ] {
            let error = format!("{:#}", rack(line).unwrap_err());
            assert!(
                error.contains(expected),
                "{error:?} should name {expected:?}"
            );
        }
    }
}
