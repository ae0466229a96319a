use std::{io::Read, net::SocketAddr, os::unix::net::UnixStream, time::Duration};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use wire::{Cluster, PORT, Secret};

use super::{Experiment, Options, Params, fill};
use lab::{
    interrupt,
    progress::Progress,
    rack::{Lab, unique_name},
    topology::{Link, Node, ProcessSpec, Topology},
};
use load::{
    LoadConfig, LoadDriver, Phase, PhaseResult, model,
    search::{self, Limits, Point},
    workload::{KeySpace, Permutation, Popularity},
};

/// What holds the data behind the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The store itself; one process stands for all servers.
    Embedded,
    /// One Redis per server.
    Redis,
    /// One memcached per server.
    Memcached,
}

impl Backend {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Embedded => "embedded",
            Backend::Redis => "redis",
            Backend::Memcached => "memcached",
        }
    }
}

const CLIENT: &str = "client";
const SWITCH: &str = "switch";
/// CPU of the load generator, and of the stores.
const CLIENT_CPU: usize = 0;
const STORE_CPU: usize = 1;
/// Length of the leases in milliseconds.
pub const LEASE_MS: u64 = 1000;

/// A rack under measurement: client, switch, servers; the cache on or off.
pub struct Bench {
    lab: Lab,
    load: Option<LoadDriver>,
    params: Params,
    seed: u64,
    cluster: Cluster,
    hosts: Vec<String>,
    keys_by_rank: Permutation,
    partition_of_key: Vec<u32>,
}

/// One saturation point.
pub struct Saturation {
    /// Highest offered rate that passed, in requests per second.
    pub rate: f64,
    /// What was measured there.
    pub result: PhaseResult,
    /// Requests that each server took meanwhile.
    pub server_load: Vec<f64>,
    /// Every step of the search.
    pub points: Vec<Point>,
}

#[derive(Deserialize)]
struct StoreStatus {
    ready: bool,
    takes_writes: bool,
    partitions: Vec<PartitionStatus>,
}

#[derive(Deserialize)]
struct PartitionStatus {
    #[serde(default)]
    partition: Option<u32>,
    served: u64,
}

impl Bench {
    /// Builds the rack and starts the stores and the switch, without a cache.
    ///
    /// # Errors
    /// The lab cannot be built, or a process does not start.
    pub fn new(
        experiment: &Experiment,
        params: &Params,
        options: &Options,
        progress: &Progress,
    ) -> anyhow::Result<Bench> {
        progress.say("building the rack");
        let stores = if options.backend == Backend::Embedded {
            1
        } else {
            params.servers
        };
        let hosts: Vec<String> = match stores {
            1 => vec!["server".into()],
            n => (1..=n).map(|i| format!("server{i}")).collect(),
        };
        let mut topology = layout(&hosts);
        let cluster = cluster(&topology, &hosts, params.servers)?;
        topology
            .files
            .insert("cluster.toml".into(), cluster.to_toml());
        for (i, host) in hosts.iter().enumerate() {
            let node = topology.hosts.iter_mut().find(|node| node.name == *host);
            let node = node.context("a server that was just made")?;
            node.processes = server_processes(host, params, options.backend, &cluster, i)?;
        }
        let switch = topology.switches.first_mut().context("the switch")?;
        switch.processes = switch_processes(experiment, params);
        let name = options.name.clone().unwrap_or_else(unique_name);
        let mut lab = Lab::create(&name, topology, false)?;
        progress.say(format!("starting {} servers", params.servers));
        lab.start_all(false)?;
        let keys = KeySpace::new(params.keys, 0, &Secret::NONE);
        let mut bench = Bench {
            lab,
            load: None,
            partition_of_key: keys.partitions(params.servers),
            keys_by_rank: Permutation::new(params.keys, options.seed),
            params: params.clone(),
            seed: options.seed,
            cluster,
            hosts,
        };
        bench.fill(&keys, options.backend, progress)?;
        bench.wait_for_stores()?;
        Ok(bench)
    }

    /// Gives real servers their share of the keys; the embedded table has them already.
    fn fill(&self, keys: &KeySpace, backend: Backend, progress: &Progress) -> anyhow::Result<()> {
        for (host, store) in self.hosts.iter().zip(&self.cluster.stores) {
            let owned = (0..keys.len() as u32).filter(|key| {
                (store.first..=store.last).contains(&self.partition_of_key[*key as usize])
            });
            let owned = owned.map(|key| &keys.get(key).bytes);
            let value_len = self.params.value_len;
            progress.say(format!("filling {host}"));
            match backend {
                Backend::Embedded => {}
                Backend::Redis => {
                    let socket = self.lab.dir().join(format!("{host}-data"));
                    fill::redis(&socket, owned, value_len)?;
                }
                Backend::Memcached => fill::memcached(&self.lab.namespace(host), owned, value_len)?,
            }
        }
        Ok(())
    }

    fn wait_for_stores(&mut self) -> anyhow::Result<()> {
        for host in self.hosts.clone() {
            let name = format!("{host}-store");
            interrupt::wait_for(&format!("{name} ready"), Duration::from_secs(60), || {
                ensure!(self.lab.is_running(&name), "{name} ended");
                let status = self.store_status(&host).ok();
                Ok(status.filter(|s| s.ready && s.takes_writes).map(|_| ()))
            })?;
        }
        Ok(())
    }

    fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        let mut stream = UnixStream::connect(self.lab.dir().join(format!("{host}.sock")))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        serde_json::from_str(&text).context("a store's status")
    }

    /// Requests that each server has taken since it started.
    ///
    /// # Errors
    /// A store that does not say.
    pub fn served(&self) -> anyhow::Result<Vec<f64>> {
        let mut served = vec![0.0; self.params.servers as usize];
        for (host, store) in self.hosts.iter().zip(&self.cluster.stores) {
            for (i, partition) in self.store_status(host)?.partitions.iter().enumerate() {
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
        let spec = self.lab.spec(SWITCH, "control")?;
        self.lab.start(SWITCH, &spec, false)
    }

    /// Stops the controller and empties the switch.
    ///
    /// # Errors
    /// The switch does not start again.
    pub fn cache_off(&mut self) -> anyhow::Result<()> {
        self.lab.stop(SWITCH, "control", libc::SIGTERM)?;
        self.lab.stop(SWITCH, "agent", libc::SIGTERM)?;
        self.lab.forget_switch(SWITCH);
        for left in ["control", "agent"] {
            let _ = std::fs::remove_dir_all(self.lab.dir().join(left));
        }
        let spec = self.lab.spec(SWITCH, "agent")?;
        self.lab.start(SWITCH, &spec, false)
    }

    /// Runs one phase of load.
    ///
    /// # Errors
    /// The generator died, or an interruption.
    pub fn phase(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        if self.load.is_none() {
            let config = LoadConfig {
                cluster: self.cluster.clone(),
                tenants: vec![],
                keys: self.params.keys,
                value_len: self.params.value_len,
                seed: self.seed,
                timeout_ms: 200,
                interval_ms: 50,
                cpu: Some(CLIENT_CPU),
                phases: vec![],
            };
            self.load = Some(LoadDriver::start(&mut self.lab, CLIENT, &config)?);
        }
        self.load
            .as_mut()
            .context("the generator that was just started")?
            .run(phase)
    }

    /// Shares of the servers under this mix, with the hottest `cached` keys answered on the way.
    pub fn shares(
        &self,
        reads: Popularity,
        write_ratio: f64,
        writes: Popularity,
        cached: usize,
    ) -> Vec<f64> {
        let (n, servers) = (self.params.keys, self.params.servers);
        let of = |popularity: Popularity, cached| {
            let probabilities = popularity.probabilities(n);
            let keys = self.keys_by_rank.keys();
            model::server_shares(
                &probabilities,
                keys,
                &self.partition_of_key,
                servers,
                cached,
            )
        };
        let reads = of(reads, cached);
        if write_ratio == 0.0 {
            return reads;
        }
        let writes = of(writes, 0);
        let both = reads.iter().zip(&writes);
        both.map(|(r, w)| r * (1.0 - write_ratio) + w * write_ratio)
            .collect()
    }

    /// The rate at which servers of these shares lose as much as is allowed.
    pub fn bound(&self, shares: &[f64]) -> f64 {
        model::saturation(shares, self.params.server_rate, self.params.loss)
    }

    /// Offers load until the hit ratio rises no more, or time is up; returns the last second.
    ///
    /// # Errors
    /// As [`Bench::phase`].
    pub fn learn(
        &mut self,
        popularity: Popularity,
        rate: f64,
        progress: &Progress,
    ) -> anyhow::Result<PhaseResult> {
        let rate = rate.min(self.params.max_rate);
        let probabilities = popularity.probabilities(self.params.keys);
        let optimum: f64 = probabilities.iter().take(self.params.items).sum();
        let rounds = (self.params.learn_s / 1.0).ceil().max(1.0) as usize;
        let mut best = 0.0;
        let mut stalled = 0;
        let mut last = PhaseResult::default();
        for _ in 0..rounds {
            last = self.phase(&Phase::reads(popularity, rate, 0.0, 0.8))?;
            // Of requests, not of answers: overload drops misses only.
            let hits = last.cached as f64 / (last.sent as f64).max(1.0);
            let title = popularity.title();
            progress.say(format!("{title}: learning, {:.1} % hits", hits * 100.0));
            stalled = if hits < best + 0.003 { stalled + 1 } else { 0 };
            best = best.max(hits);
            let good = hits >= 0.985 * optimum;
            if good || (stalled >= 3 && best > 0.2 * optimum) {
                break;
            }
        }
        Ok(last)
    }

    /// Finds the saturation point, from an expectation on.
    ///
    /// # Errors
    /// As [`Bench::phase`].
    pub fn saturate(
        &mut self,
        expected: f64,
        what: &str,
        progress: &Progress,
        phase: impl Fn(f64, f64, f64) -> Phase,
    ) -> anyhow::Result<Saturation> {
        let params = self.params.clone();
        let limits = Limits {
            loss: params.loss,
            precision: params.precision,
            steps: params.steps,
            time: Duration::from_secs_f64(params.search_s),
            max_rate: params.max_rate,
        };
        let start = if expected.is_finite() {
            expected * 0.97
        } else {
            params.max_rate / 2.0
        };
        let (rate, (result, server_load), points) = search::saturation(start, &limits, |rate| {
            progress.say(format!(
                "{what}: trying {}/s",
                crate::table::thousands(rate)
            ));
            let needed = params.step_requests / rate;
            let seconds = needed.clamp(params.step_s, 3.0 * params.step_s);
            let before = self.served()?;
            let result = self.phase(&phase(rate, params.warmup_s, seconds))?;
            let after = self.served()?;
            let load = after.iter().zip(&before).map(|(a, b)| a - b).collect();
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
            Ok((loss, (result, load)))
        })?;
        Ok(Saturation {
            rate,
            result,
            server_load,
            points,
        })
    }

    /// The rack.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Where the first store listens.
    pub fn first_store(&self) -> SocketAddr {
        self.cluster.stores[0].address
    }

    /// The namespace that load comes from.
    pub fn client_namespace(&self) -> String {
        self.lab.namespace(CLIENT)
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The generator first, so that it does not report the loss of everything else.
        self.load = None;
    }
}

fn layout(hosts: &[String]) -> Topology {
    let node = |name: &str| Node {
        name: name.into(),
        processes: vec![],
    };
    let link = |a: &str, b: &str| Link {
        ends: [a.into(), b.into()],
        addresses: None,
        fault: None,
        mtu: 1500,
    };
    let mut topology = Topology {
        hosts: vec![node(CLIENT)],
        switches: vec![node(SWITCH)],
        links: vec![link(CLIENT, SWITCH)],
        ..Topology::default()
    };
    for host in hosts {
        topology.hosts.push(node(host));
        topology.links.push(link(SWITCH, host));
    }
    topology
}

fn cluster(topology: &Topology, hosts: &[String], partitions: u32) -> anyhow::Result<Cluster> {
    let count = hosts.len() as u32;
    let mut stores = vec![];
    for (i, host) in (0..).zip(hosts) {
        let address = topology
            .address_of(host)
            .context("a server without an address")?;
        stores.push(wire::Store {
            address: SocketAddr::new(address.into(), PORT),
            first: i * partitions / count,
            last: (i + 1) * partitions / count - 1,
        });
    }
    let (tenants, open_tenant, system_secret) = (vec![], true, None);
    Ok(Cluster {
        partitions,
        stores,
        tenants,
        open_tenant,
        system_secret,
    })
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| word.to_string()).collect()
}

fn server_processes(
    host: &str,
    params: &Params,
    backend: Backend,
    cluster: &Cluster,
    index: usize,
) -> anyhow::Result<Vec<ProcessSpec>> {
    let address = cluster.stores[index].address.to_string();
    let populate = format!("{}:{}", params.keys, params.value_len);
    let (rate, queue) = (
        params.server_rate.to_string(),
        params.queue_limit.to_string(),
    );
    let socket = format!("{{dir}}/{host}.sock");
    let lease = LEASE_MS.to_string();
    let mut command = words(&["shortstop", "store", "--listen", &address]);
    command.extend(words(&[
        "--cluster",
        "{dir}/cluster.toml",
        "--rate-limit",
        &rate,
    ]));
    command.extend(words(&["--queue-limit", &queue]));
    command.extend(words(&["--status-socket", &socket, "--lease-ms", &lease]));
    let process = |name: &str, command, ready: Option<String>| ProcessSpec {
        name: name.into(),
        command,
        cpu: Some(STORE_CPU),
        nice: 0,
        ready,
        settled: None,
        autostart: true,
    };
    // Appears once the server listens: Redis's socket, or the file with memcached's process id.
    let data = format!("{{dir}}/{host}-data");
    let data_process = match backend {
        Backend::Embedded => None,
        Backend::Redis => Some(words(&[
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            &data,
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            "{dir}",
        ])),
        Backend::Memcached => Some(words(&[
            "memcached",
            "-u",
            "root",
            "-l",
            "127.0.0.1",
            "-p",
            "11211",
            "-U",
            "0",
            "-P",
            &data,
        ])),
    };
    match backend {
        Backend::Embedded => command.extend(words(&["--populate", &populate])),
        Backend::Redis => command.extend(["--backend".into(), format!("redis+unix://{data}")]),
        Backend::Memcached => command.extend(words(&["--backend", "memcached://127.0.0.1:11211"])),
    }
    let data_process = data_process.map(|command| process(backend.name(), command, Some(data)));
    let store = process("store", command, Some(socket));
    Ok(data_process.into_iter().chain([store]).collect())
}

fn switch_processes(experiment: &Experiment, params: &Params) -> Vec<ProcessSpec> {
    let mut agent = words(&["shortstop", "switch", "--id", "1", "{interfaces}"]);
    agent.extend(words(&[
        "--mode",
        "generic",
        "--control",
        "http://127.0.0.1:7118",
    ]));
    agent.extend(words(&[
        "--name",
        "{lab}-switch",
        "--state-dir",
        "{dir}/agent",
    ]));
    agent.extend(params.switch_args.iter().cloned());
    let items = params.items.to_string();
    let mut control = words(&["shortstop", "control", "--cluster", "{dir}/cluster.toml"]);
    control.extend(words(&["--state", "{dir}/control", "--max-items", &items]));
    control.extend(words(&["--discipline", &experiment.discipline]));
    control.extend(params.control_args.iter().cloned());
    let process = |name: &str, command, ready: Option<&str>| ProcessSpec {
        name: name.into(),
        command,
        cpu: None,
        nice: 5,
        ready: ready.map(String::from),
        // The agent forwards from the start; the cache learns once there is a controller.
        settled: None,
        autostart: ready.is_some(),
    };
    let pinned = "/sys/fs/bpf/shortstop/{lab}-switch";
    vec![
        process("agent", agent, Some(pinned)),
        process("control", control, None),
    ]
}
