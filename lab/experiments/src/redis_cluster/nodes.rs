//! A real Redis Cluster on loopback, whose slots can be moved and whose masters can be killed,
//! stopped and demoted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use lab::{interrupt::wait_for, port, process::ProcessId};

use crate::{
    loopback::{Process, address},
    resp::{Connection, Server},
};

/// How long a cluster may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one node says of another.
#[derive(Clone, Debug)]
pub(crate) struct NodeLine {
    pub id: String,
    pub port: u16,
    pub is_master: bool,
    pub has_failed: bool,
    /// Its master's name, of a replica.
    pub master: String,
    slots: Vec<(u32, u32)>,
}

impl NodeLine {
    pub fn has(&self, slot: u32) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

pub(crate) fn connect(port: u16) -> anyhow::Result<Connection> {
    Connection::to(&Server::Tcp(address(port)))
}

fn ask(port: u16, words: &[&str]) -> anyhow::Result<String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let answer = connect(port)?.ask(&words)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Does something, and says which of the words it was if that fails.
fn tell(port: u16, words: &[&str]) -> anyhow::Result<()> {
    let answer = ask(port, words).with_context(|| words.join(" "))?;
    ensure!(answer == "OK" || answer == "NOKEY", "{}: {answer}", words.join(" "));
    Ok(())
}

/// How a master ceases to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Killed,
    Stopped,
    Demoted,
}

impl Failure {
    pub const ALL: [Failure; 3] = [Failure::Killed, Failure::Stopped, Failure::Demoted];

    pub fn name(self) -> &'static str {
        match self {
            Failure::Killed => "killed",
            Failure::Stopped => "stopped",
            Failure::Demoted => "demoted",
        }
    }
}

/// The nodes, by their ports.
pub(crate) struct Nodes {
    processes: BTreeMap<u16, Process>,
    /// The port that each node's own talk has.
    buses: BTreeMap<u16, u16>,
    shards: usize,
    node_timeout: Duration,
    directory: PathBuf,
}

impl Nodes {
    /// Starts so many masters, each with so many replicas, and waits until they are a cluster. A
    /// node of which nothing is heard for so long has failed, for the others.
    pub fn start(
        directory: &Path,
        shards: usize,
        replicas: usize,
        node_timeout: Duration,
    ) -> anyhow::Result<Nodes> {
        let directory = directory.to_path_buf();
        let (processes, buses) = (BTreeMap::new(), BTreeMap::new());
        let mut nodes = Nodes { processes, buses, shards, node_timeout, directory };
        let mut ports = vec![];
        for _ in 0..shards * (1 + replicas) {
            let port = port::free();
            nodes.buses.insert(port, port::free());
            nodes.launch(port)?;
            ports.push(format!("127.0.0.1:{port}"));
        }
        let created = Command::new("timeout")
            .args(["30", "redis-cli", "--cluster", "create"])
            .args(&ports)
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .stdin(Stdio::null())
            .output()
            .context("redis-cli is needed (Debian: redis-tools)")?;
        ensure!(
            created.status.success(),
            "redis-cli --cluster create: {}",
            String::from_utf8_lossy(&created.stdout)
        );
        nodes.heals()?;
        Ok(nodes)
    }

    fn launch(&mut self, port: u16) -> anyhow::Result<()> {
        let directory = self.directory.join(port.to_string());
        std::fs::create_dir_all(&directory)?;
        let bus = self.buses.get(&port).context("a port of a node")?;
        let (text, bus, path) =
            (port.to_string(), bus.to_string(), directory.display().to_string());
        let place =
            ["--port", &text, "--cluster-port", &bus, "--bind", "127.0.0.1", "--dir", &path];
        let replicas = ["--save", "", "--repl-diskless-sync-delay", "0"];
        let timeout_ms = self.node_timeout.as_millis().to_string();
        let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout_ms];
        // The other shards go on, and a replica can be asked what it has.
        let others = ["--cluster-require-full-coverage", "no"];
        let words = [&place[..], &replicas, &cluster, &others].concat();
        self.processes.insert(port, Process::server("redis-server", &words, port)?);
        Ok(())
    }

    /// Where they are, in ascending order.
    pub fn ports(&self) -> Vec<u16> {
        self.buses.keys().copied().collect()
    }

    /// How many masters have slots.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The process of the node at a port; none: it does not run.
    pub fn process(&self, port: u16) -> Option<ProcessId> {
        ProcessId::of(self.processes.get(&port)?.0.id() as i32)
    }

    /// What a node says of all.
    pub fn view_of(port: u16) -> anyhow::Result<Vec<NodeLine>> {
        let text = ask(port, &["CLUSTER", "NODES"])?;
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, at, flags, master, ..] = words[..] else { bail!("CLUSTER NODES: {line}") };
            let port = at.split('@').next().and_then(|at| at.rsplit(':').next());
            let slots = words.iter().skip(8).filter(|word| !word.starts_with('[')).map(|word| {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                anyhow::Ok((first.parse()?, last.parse()?))
            });
            Ok(NodeLine {
                id: id.into(),
                port: port.unwrap_or_default().parse()?,
                is_master: flags.split(',').any(|flag| flag == "master"),
                has_failed: flags.split(',').any(|flag| flag == "fail"),
                master: master.into(),
                slots: slots.collect::<Result<_, _>>()?,
            })
        });
        lines.collect()
    }

    /// What a node says that is there.
    pub fn view(&self) -> anyhow::Result<Vec<NodeLine>> {
        let mut last = None;
        for port in self.ports() {
            match Nodes::view_of(port) {
                Ok(view) => return Ok(view),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no nodes")?)
    }

    /// The master that has a slot.
    pub fn owner(&self, slot: u32) -> anyhow::Result<NodeLine> {
        let owner = self.view()?.into_iter().find(|node| node.is_master && node.has(slot));
        owner.with_context(|| format!("nobody has slot {slot}"))
    }

    /// Waits until all nodes are there, agree, and each replica has what its master has.
    pub fn heals(&self) -> anyhow::Result<()> {
        wait_for("a Redis Cluster that is whole", PATIENCE, || {
            let mut maps = vec![];
            for port in self.ports() {
                let Ok(view) = Nodes::view_of(port) else { return Ok(None) };
                let masters = view.iter().filter(|node| node.is_master).count();
                if view.len() != self.buses.len() || masters != self.shards {
                    return Ok(None);
                }
                let mut map: Vec<_> = view
                    .iter()
                    .filter(|node| node.is_master)
                    .map(|node| (node.port, node.slots.clone()))
                    .collect();
                map.sort();
                maps.push(map);
                let info = ask(port, &["INFO", "replication"])?;
                let follows = info.contains("role:master")
                    || info.contains("master_link_status:up")
                        && !info.contains("master_sync_in_progress:1");
                let state = ask(port, &["CLUSTER", "INFO"])?;
                if !follows || !state.contains("cluster_state:ok") {
                    return Ok(None);
                }
            }
            Ok(maps.windows(2).all(|pair| pair[0] == pair[1]).then_some(()))
        })
    }

    /// Moves a slot with these keys to another master, as `redis-cli --cluster reshard` does, with
    /// a pause between the steps.
    pub fn move_slot(
        &self,
        slot: u32,
        keys: &[String],
        to: &NodeLine,
        pause: Duration,
    ) -> anyhow::Result<()> {
        let from = self.owner(slot)?;
        let name = slot.to_string();
        tell(to.port, &["CLUSTER", "SETSLOT", &name, "IMPORTING", &from.id])?;
        tell(from.port, &["CLUSTER", "SETSLOT", &name, "MIGRATING", &to.id])?;
        std::thread::sleep(pause);
        let target = to.port.to_string();
        // Until the target has the slot, what counts is what the source has: also where a client
        // that was told of an earlier move has come late, and made the key there.
        let mut words = vec!["MIGRATE", "127.0.0.1", &target, "", "0", "5000", "REPLACE", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        tell(from.port, &words)?;
        std::thread::sleep(pause);
        for node in [to, &from] {
            wait_for("a slot without keys", PATIENCE, || {
                let done = tell(node.port, &["CLUSTER", "SETSLOT", &name, "NODE", &to.id]);
                Ok(done.is_ok().then_some(()))
            })?;
        }
        let others = self.view()?.into_iter().filter(|node| {
            node.is_master && node.port != to.port && node.port != from.port && !node.has_failed
        });
        for other in others {
            tell(other.port, &["CLUSTER", "SETSLOT", &name, "NODE", &to.id])?;
        }
        Ok(())
    }

    /// A master's replica.
    pub fn replica_of(&self, master: &NodeLine) -> anyhow::Result<NodeLine> {
        let replica = self.view()?.into_iter().find(|node| node.master == master.id);
        replica.with_context(|| format!("the master at {} has no replica", master.port))
    }

    /// Has a master cease to be one.
    pub fn fails(
        &mut self,
        failure: Failure,
        master: &NodeLine,
        replica: &NodeLine,
    ) -> anyhow::Result<()> {
        let process = self.processes.get_mut(&master.port).context("the process of a master")?;
        match failure {
            Failure::Killed => {
                process.0.kill()?;
                process.0.wait()?;
            }
            Failure::Stopped => process.signal(libc::SIGSTOP),
            Failure::Demoted => tell(replica.port, &["CLUSTER", "FAILOVER"])?,
        }
        Ok(())
    }

    /// Waits until a replica is a master.
    pub fn is_promoted(&self, replica: &NodeLine) -> anyhow::Result<()> {
        has_role(replica.port, "master")
    }

    /// Waits until what was a master has heard that it is none any more.
    pub fn is_demoted(&self, port: u16) -> anyhow::Result<()> {
        has_role(port, "slave")
    }

    /// What a master did is over: it comes back, and will be a replica.
    pub fn comes_back(&mut self, failure: Failure, port: u16) -> anyhow::Result<()> {
        match failure {
            Failure::Killed => self.launch(port)?,
            Failure::Stopped => {
                self.processes.get(&port).context("a process")?.signal(libc::SIGCONT);
            }
            Failure::Demoted => {}
        }
        Ok(())
    }

    /// What a replica has of keys.
    pub fn values_at(replica: u16, keys: &[String]) -> anyhow::Result<Vec<Option<u64>>> {
        let mut connection = connect(replica)?;
        connection.ask(&[b"READONLY"])?;
        let mut values = vec![];
        for key in keys {
            let value = connection.ask(&[b"GET", key.as_bytes()])?;
            values.push(value.as_deref().map(number_in).transpose()?);
        }
        Ok(values)
    }
}

fn has_role(port: u16, role: &str) -> anyhow::Result<()> {
    wait_for("a node that takes another role", PATIENCE, || {
        let info = ask(port, &["INFO", "replication"])?;
        Ok(info.contains(&format!("role:{role}")).then_some(()))
    })
}

/// The number that a value is.
pub(crate) fn number_in(value: &[u8]) -> anyhow::Result<u64> {
    let text = std::str::from_utf8(value)?;
    text.parse().with_context(|| format!("a value that no client wrote: {text:?}"))
}
