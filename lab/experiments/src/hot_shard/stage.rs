//! The nodes of the Redis Cluster, which have a part of a processor each, and later on a store in
//! front of each and the gateways.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use lab::{cpu_share::CpuShare, interrupt, port, process::ProcessId};
use wire::cluster_slot;

use super::HotShard;
use crate::{
    applications::{key_name, number_of},
    loopback::{Directory, Process, address},
    redis_cluster::{Nodes, Stores, connect},
};

/// How long something may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes that have so little of a processor are silent for longer than others.
const NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// All that runs; gone when it is dropped.
pub(super) struct Stage {
    // In this order they end.
    gateways: Vec<(u16, Process)>,
    stores: Option<Stores>,
    _shares: Vec<CpuShare>,
    nodes: Nodes,
    directory: Directory,
}

/// Seconds of a processor.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuTime {
    /// Of each node, by its port.
    pub nodes: Vec<f64>,
    /// Of the stores; none before there are any.
    pub stores: f64,
    pub gateways: f64,
}

impl CpuTime {
    /// Per second, since `before`, which was so long ago.
    pub fn since(&self, before: &CpuTime, time: Duration) -> CpuTime {
        let per_s = |now: f64, then: f64| (now - then) / time.as_secs_f64();
        let nodes = self.nodes.iter().zip(&before.nodes);
        CpuTime {
            nodes: nodes.map(|(now, then)| per_s(*now, *then)).collect(),
            stores: per_s(self.stores, before.stores),
            gateways: per_s(self.gateways, before.gateways),
        }
    }

    /// That of the node that used most.
    pub fn hottest(&self) -> f64 {
        self.nodes.iter().copied().fold(0.0, f64::max)
    }
}

impl Stage {
    /// The Redis Cluster alone.
    pub fn build(params: &HotShard, name: &str) -> anyhow::Result<Stage> {
        let directory = Directory::of_run(name)?;
        let nodes = Nodes::start(&directory.0, params.shards, 0, NODE_TIMEOUT)?;
        let mut shares = vec![];
        for node in nodes.ports() {
            let name = format!("shortstop-{name}-{}-{node}", std::process::id());
            let share = CpuShare::new(&name, params.cpu_share)?;
            share.add(nodes.process(node).context("a node has ended")?)?;
            shares.push(share);
        }
        Ok(Stage { gateways: vec![], stores: None, _shares: shares, nodes, directory })
    }

    /// A node that clients are told of.
    pub fn node(&self) -> u16 {
        self.nodes.ports()[0]
    }

    /// The gateway of a host.
    pub fn gateway(&self, host: usize) -> u16 {
        self.gateways[host].0
    }

    /// Starts stores as the cluster file says that is read off the nodes, and so many gateways,
    /// which keep copies in so many bytes; waits until all shards take writes.
    pub fn start_gateways(&mut self, gateways: usize, cache: &str) -> anyhow::Result<()> {
        let directory = &self.directory.0;
        self.stores = Some(Stores::start(&self.nodes, directory)?);
        for _ in 0..gateways {
            let gateway = port::free();
            let listen = address(gateway).to_string();
            let place = ["gateway", "--cluster", "cluster.toml", "--listen", &listen];
            let words = [&place[..], &["--cache", cache]].concat();
            let process = Process::of_product(directory, &words)?;
            self.gateways.push((gateway, process));
            ensure!(port::listens(gateway, PATIENCE, || true), "a gateway does not listen");
        }
        let view = Nodes::view_of(self.node())?;
        for shard in view.iter().filter(|node| node.is_master) {
            let mut names = (0..).map(|n| format!("probe-{n}"));
            let of_shard = |name: &String| shard.has(cluster_slot(name.as_bytes()));
            let probe = names.find(of_shard).context("a key of each shard")?;
            interrupt::wait_for("a write through the gateway", PATIENCE, || {
                let set: [&[u8]; 3] = [b"SET", probe.as_bytes(), b"1"];
                let told = connect(self.gateway(0)).and_then(|mut to| to.ask(&set));
                Ok(told.is_ok().then_some(()))
            })?;
        }
        Ok(())
    }

    /// What has been used so far.
    pub fn used(&self) -> anyhow::Result<CpuTime> {
        let of_node = |node| self.nodes.process(node).and_then(|process| process.cpu_s());
        let nodes = self.nodes.ports().into_iter().map(of_node).collect::<Option<Vec<f64>>>();
        let stores = self.stores.iter().flat_map(|stores| &stores.processes);
        Ok(CpuTime {
            nodes: nodes.context("a node has ended")?,
            stores: sum(stores),
            gateways: sum(self.gateways.iter().map(|(_, process)| process)),
        })
    }

    /// The numbers of what the nodes have of all keys; none: nobody wrote that.
    pub fn values_at_nodes(&self, keys: usize, len: usize) -> anyhow::Result<Vec<Option<u64>>> {
        let (addresses, of_key) = map_at(self.node(), keys)?;
        let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
        values(keys, len, &ports, |key| usize::from(of_key[key]))
    }

    /// The numbers of what a gateway answers for all keys.
    pub fn values_by_gateway(&self, keys: usize, len: usize) -> anyhow::Result<Vec<Option<u64>>> {
        values(keys, len, &[self.gateway(0)], |_| 0)
    }
}

fn sum<'a>(processes: impl Iterator<Item = &'a Process>) -> f64 {
    let of = |process: &Process| ProcessId::of(process.0.id() as i32)?.cpu_s();
    processes.filter_map(of).sum()
}

fn values(
    keys: usize,
    len: usize,
    ports: &[u16],
    at: impl Fn(usize) -> usize,
) -> anyhow::Result<Vec<Option<u64>>> {
    let mut connections = ports.iter().map(|port| connect(*port)).collect::<Result<Vec<_>, _>>()?;
    let value = |key: usize| {
        let name = key_name(key as u32);
        let value = connections[at(key)].ask(&[b"GET", name.as_bytes()])?;
        Ok(value.and_then(|bytes| number_of(&bytes, len)))
    };
    (0..keys).map(value).collect()
}

/// What a client in cluster mode is told at a port: who has slots, and by key which of them.
pub(super) fn map_at(port: u16, keys: usize) -> anyhow::Result<(Vec<SocketAddr>, Vec<u8>)> {
    let view = Nodes::view_of(port)?;
    let masters: Vec<_> = view.into_iter().filter(|node| node.is_master).collect();
    let of_key = |key: u32| {
        let slot = cluster_slot(key_name(key).as_bytes());
        let at = masters.iter().position(|node| node.has(slot));
        Ok(at.with_context(|| format!("nobody has slot {slot}"))? as u8)
    };
    let of_key = (0..keys as u32).map(of_key).collect::<anyhow::Result<_>>()?;
    Ok((masters.iter().map(|node| address(node.port)).collect(), of_key))
}
