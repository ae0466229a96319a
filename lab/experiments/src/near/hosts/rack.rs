//! The rack: application hosts with a gateway each, and servers: a Redis that has a part of a
//! processor, with a store beside it.

use std::{net::SocketAddr, process::Child, time::Duration};

use anyhow::Context;
use lab::{
    cpu_share::{CpuShare, Throttling},
    interrupt, namespace,
    process::{self, ProcessId},
};
use plan::{
    Plan, SeatedRole, Site,
    roles::{Redis, Role, Store},
    server, shapes,
};

use super::Hosts;
use crate::{
    Run,
    resp::{Connection, Server},
    rig::Rig,
};

const SWITCH: &str = "switch";
const REDIS_PORT: u16 = 6379;
/// Where the gateway of a host listens, on loopback.
const GATEWAY_PORT: u16 = 6380;
/// How long something may take to be ready, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The rack, with what bounds its servers.
pub(super) struct Rack {
    rig: Rig,
    hosts: Vec<String>,
    servers: Vec<String>,
    shares: Vec<CpuShare>,
    gateways: Vec<Child>,
    /// Of replicas, while they run.
    replicas: Vec<CpuShare>,
    cpu_share: f64,
}

/// The gateway that a host's applications ask.
pub(super) fn gateway() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], GATEWAY_PORT))
}

fn replica(number: usize) -> String {
    format!("replica{number}")
}

/// Hosts and servers around one switch that only forwards; replicas are started when wanted.
fn plan(params: &Hosts) -> Plan {
    let hosts: Vec<String> = (1..=params.hosts).map(|n| format!("app{n}")).collect();
    let servers: Vec<String> = (1..=params.servers).map(server).collect();
    let replicas: Vec<String> = (1..=params.servers).map(replica).collect();
    let all = hosts.iter().chain(&servers).chain(&replicas).cloned();
    let of_server = |name: &String| Site::host(name, beside_redis(name));
    let of_replica = |name: &String| Site::host(name, vec![redis(name).later()]);
    Plan {
        links: shapes::star(SWITCH, all),
        sites: hosts
            .iter()
            .map(|name| Site::host(name, vec![]))
            .chain(servers.iter().map(of_server))
            .chain(replicas.iter().map(of_replica))
            .chain([Site::switch(SWITCH, vec![])])
            .collect(),
        partitions: params.servers as u32,
        is_open: true,
        ..Plan::default()
    }
}

fn data_of(server: &str) -> String {
    format!("{{dir}}/{server}-data")
}

fn redis(name: &str) -> SeatedRole {
    let redis = Redis { socket: data_of(name), port: Some(REDIS_PORT), ..Redis::default() };
    Role::Redis(redis).into()
}

fn beside_redis(server: &str) -> Vec<SeatedRole> {
    let store = Store {
        backend: Some(format!("redis+unix://{}", data_of(server))),
        resp: Some(format!("unix:{{dir}}/{server}-resp")),
        ..Store::of(server)
    };
    vec![redis(server), Role::Store(store).into()]
}

impl Rack {
    /// Hosts, and servers of which only Redis runs.
    pub fn build(params: &Hosts, run: &Run<'_>) -> anyhow::Result<Rack> {
        let rig = Rig::build(plan(params), run.options.name.clone(), run)?;
        let servers: Vec<String> = (1..=params.servers).map(server).collect();
        let hosts = (1..=params.hosts).map(|n| rig.namespace(&format!("app{n}")));
        let hosts = hosts.collect::<Result<_, _>>()?;
        let mut rack = Rack {
            rig,
            hosts,
            servers,
            shares: vec![],
            gateways: vec![],
            replicas: vec![],
            cpu_share: params.cpu_share,
        };
        rack.stop_stores()?;
        for server in &rack.servers {
            let share = rack.share_of(server)?;
            rack.shares.push(share);
        }
        Ok(rack)
    }

    /// The namespaces of application hosts.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Where each server's Redis is.
    pub fn servers(&self) -> anyhow::Result<Vec<SocketAddr>> {
        self.servers.iter().map(|server| self.address(server)).collect()
    }

    fn address(&self, node: &str) -> anyhow::Result<SocketAddr> {
        let address = self.rig.topology().address_of(node);
        Ok((address.with_context(|| format!("{node}: no address"))?, REDIS_PORT).into())
    }

    fn process(&self, node: &str, role: &str) -> anyhow::Result<process::ProcessId> {
        let name = format!("{node}-{role}");
        self.rig.lab()?.process(&name).with_context(|| format!("{name} does not run"))
    }

    /// The part of a processor of a machine whose Redis runs.
    fn share_of(&self, node: &str) -> anyhow::Result<CpuShare> {
        let name = format!("{}-{node}", self.rig.lab()?.name());
        let share = CpuShare::new(&name, self.cpu_share)?;
        share.add(self.process(node, "redis")?)?;
        Ok(share)
    }

    /// How often each server has had no part of a processor left so far.
    pub fn throttling(&self) -> anyhow::Result<Vec<Throttling>> {
        self.shares.iter().map(CpuShare::throttling).collect()
    }

    /// Seconds of a processor that Redis and stores of all servers have used so far.
    pub fn used_s(&self) -> anyhow::Result<[f64; 2]> {
        let mut used = [0.0, 0.0];
        for server in &self.servers {
            for (role, sum) in ["redis", "store"].into_iter().zip(&mut used) {
                let process = self.process(server, role).ok();
                *sum += process.and_then(|process| process.cpu_s()).unwrap_or(0.0);
            }
        }
        Ok(used)
    }

    /// Reads that gateways have answered from copies so far.
    pub fn local_hits(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for place in self.hosts.iter().take(self.gateways.len()) {
            sum += namespace::within(place, || {
                let mut connection = Connection::to(&Server::Tcp(gateway()))?;
                let said = connection.ask(&[b"INFO", b"gateway"])?.unwrap_or_default();
                let said = String::from_utf8_lossy(&said).into_owned();
                let hits = said.lines().find_map(|line| line.strip_prefix("local_hits:"));
                Ok(hits.context("INFO gateway: local_hits")?.trim().parse::<u64>()?)
            })?;
        }
        Ok(sum)
    }

    fn stop_stores(&mut self) -> anyhow::Result<()> {
        let mut servers = self.servers.iter();
        servers.try_for_each(|server| self.rig.stop(server, "store", libc::SIGTERM))
    }

    /// Starts stores and gateways, which keep copies in so many bytes.
    pub fn start_gateways(&mut self, cache: &str) -> anyhow::Result<()> {
        for server in &self.servers {
            self.rig.start(server, "store")?;
        }
        for server in &self.servers {
            let what = format!("{server}-store to take writes");
            self.rig.wait_for(&what, PATIENCE, |rig| {
                let status = rig.store_status(server).ok();
                Ok(status.filter(|s| s.ready && s.takes_writes).map(|_| ()))
            })?;
        }
        let command = self.gateway_command(cache)?;
        for (number, place) in (1..).zip(&self.hosts) {
            self.gateways.push(process::launch(&process::Launch {
                namespace: place,
                command: &command,
                log: &self.rig.file(&format!("app{number}-gateway.log"))?,
                cpu: None,
                nice: 0,
                detached: false,
                piped: false,
            })?);
        }
        self.hosts.iter().try_for_each(|place| wait_for_gateway(place))
    }

    fn gateway_command(&self, cache: &str) -> anyhow::Result<Vec<String>> {
        let cluster = self.rig.file("cluster.toml")?.display().to_string();
        let mut words = vec!["shortstop".to_owned(), "gateway".into()];
        let listen = gateway().to_string();
        for (option, value) in [("--cluster", &*cluster), ("--listen", &listen), ("--cache", cache)]
        {
            words.extend([option.to_owned(), value.to_owned()]);
        }
        for (partition, server) in self.servers.iter().enumerate() {
            let resp = self.rig.file(&format!("{server}-resp"))?;
            let resp = format!("{partition}-{partition}=redis+unix://{}", resp.display());
            let backend = format!("{partition}-{partition}=redis://{}", self.address(server)?);
            words.extend(["--resp".to_owned(), resp, "--backend".to_owned(), backend]);
        }
        Ok(words)
    }

    /// Ends gateways and stores.
    pub fn stop_gateways(&mut self) -> anyhow::Result<()> {
        let gateways = std::mem::take(&mut self.gateways);
        let of = |child: &Child| ProcessId::of(child.id() as i32);
        ProcessId::end_all(&gateways.iter().filter_map(of).collect::<Vec<_>>(), PATIENCE);
        self.stop_stores()
    }

    /// Starts a replica of each server's Redis, on a machine of its own with as much of a
    /// processor, and waits until it has all keys. Where they are.
    pub fn start_replicas(&mut self) -> anyhow::Result<Vec<SocketAddr>> {
        let mut replicas = vec![];
        for (number, server) in (1..).zip(self.servers.clone()) {
            let name = replica(number);
            self.rig.start(&name, "redis")?;
            let (of, at) = (self.address(&server)?, self.address(&name)?);
            follow(&self.hosts[0], at, of)?;
            replicas.push(at);
        }
        for (at, number) in replicas.iter().zip(1..) {
            wait_for_replica(&self.hosts[0], *at)?;
            let share = self.share_of(&replica(number))?;
            self.replicas.push(share);
        }
        Ok(replicas)
    }

    pub fn stop_replicas(&mut self) -> anyhow::Result<()> {
        let running = std::mem::take(&mut self.replicas);
        let mut numbers = 1..=running.len();
        numbers.try_for_each(|number| self.rig.stop(&replica(number), "redis", libc::SIGTERM))
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for child in &mut self.gateways {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for_gateway(place: &str) -> anyhow::Result<()> {
    interrupt::wait_for("a gateway", PATIENCE, || {
        let connects = || Ok(std::net::TcpStream::connect(gateway()).is_ok());
        Ok(namespace::within(place, connects)?.then_some(()))
    })
}

/// Makes a Redis the replica of another.
fn follow(place: &str, at: SocketAddr, of: SocketAddr) -> anyhow::Result<()> {
    namespace::within(place, || {
        // It would wait for more replicas to come before it sends what it has.
        let at_once: [&[u8]; 4] = [b"CONFIG", b"SET", b"repl-diskless-sync-delay", b"0"];
        Connection::to(&Server::Tcp(of))?.ask(&at_once)?;
        let (host, port) = (of.ip().to_string(), of.port().to_string());
        let words: [&[u8]; 3] = [b"REPLICAOF", host.as_bytes(), port.as_bytes()];
        Connection::to(&Server::Tcp(at))?.ask(&words)?;
        Ok(())
    })
}

/// Waits until a replica has what its master has.
fn wait_for_replica(place: &str, at: SocketAddr) -> anyhow::Result<()> {
    namespace::within(place, || {
        let mut connection = Connection::to(&Server::Tcp(at))?;
        interrupt::wait_for(&format!("{at} to follow"), PATIENCE, || {
            let said = connection.ask(&[b"INFO", b"replication"])?.unwrap_or_default();
            let is_up = String::from_utf8_lossy(&said).contains("master_link_status:up");
            Ok(is_up.then_some(()))
        })
    })
}
