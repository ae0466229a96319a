//! The stores in front of a Redis Cluster, with the cluster file that is read off it.

use std::path::Path;

use anyhow::ensure;
use lab::port;
use wire::Cluster;

use super::nodes::Nodes;
use crate::loopback::{Process, printed};

/// The stores of all shards; gone when it is dropped.
pub(crate) struct Stores {
    /// The shards' stores, in the cluster file's order.
    pub processes: Vec<Process>,
    /// What the file says.
    pub cluster: Cluster,
}

impl Stores {
    /// Writes `cluster.toml` into a directory, and starts a store for each shard as it says.
    ///
    /// # Errors
    /// The cluster cannot be read off its nodes.
    pub fn start(nodes: &Nodes, directory: &Path) -> anyhow::Result<Stores> {
        let shards = nodes.shards();
        let listen = (0..shards).map(|_| format!("127.0.0.1:{}", port::free()));
        let listen: Vec<String> = listen.collect();
        let node = format!("redis://127.0.0.1:{}", nodes.ports()[0]);
        let mut text = printed(&["cluster", "import", &node, "--store", &listen.join(",")])?;
        // RESP ports that nobody else has.
        for usual in 6390..6390 + shards {
            text = text.replace(&format!(":{usual}"), &format!(":{}", port::free()));
        }
        std::fs::write(directory.join("cluster.toml"), &text)?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("#   shortstop "));
        let start =
            |line: &str| Process::of_product(directory, &line.split(' ').collect::<Vec<_>>());
        let processes = lines.map(start).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(processes.len() == shards, "{} stores of {shards} shards", processes.len());
        Ok(Stores { processes, cluster: Cluster::parse(&text)? })
    }
}
