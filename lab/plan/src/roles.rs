//! What runs on the machines of a plan, and the one place that knows the command lines by which it
//! runs as a process.
//!
//! Addresses and files may hold the placeholders of [`ProcessSpec::command`]. What only a process
//! needs (sockets, directories, URLs) a simulated role leaves alone, but for whether there is a URL
//! of controllers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::topology::{Interface, ProcessSpec, ReadinessProbe};

/// Where controllers listen.
pub const CONTROL_PORT: u16 = 7118;
/// Where etcd listens.
pub const ETCD_PORT: u16 = 2379;
/// Where memcached listens, on loopback.
pub const MEMCACHED_PORT: u16 = 11211;

/// What a process is.
#[derive(Clone, Debug)]
pub enum Role {
    /// `shortstop store`, or `shortstop-lab store` where it is emulated.
    Store(Store),
    /// `shortstop switch`.
    Switch(Switch),
    /// `shortstop control`.
    Control(Control),
    /// A Redis.
    Redis(Redis),
    /// A memcached on its node's loopback; this file appears once it listens.
    Memcached(String),
    /// An etcd.
    Etcd(Etcd),
}

impl Role {
    /// The process's name on its node.
    pub fn name(&self) -> &'static str {
        match self {
            Role::Store(_) => "store",
            Role::Switch(_) => "agent",
            Role::Control(_) => "control",
            Role::Redis(_) => "redis",
            Role::Memcached(_) => "memcached",
            Role::Etcd(_) => "etcd",
        }
    }

    /// The port that takes connections, of any address of its node, once the process is ready.
    pub fn port(&self) -> Option<u16> {
        match self {
            Role::Control(control) => control.listen.as_ref().map(|_| CONTROL_PORT),
            Role::Etcd(_) => Some(ETCD_PORT),
            _ => None,
        }
    }

    /// The process on this node, started with the lab.
    pub fn process(&self, node: &str) -> ProcessSpec {
        let (line, ready) = match self {
            Role::Store(store) => (store.line(), Some(store.socket.clone())),
            Role::Switch(switch) => (switch.line(node), Some(pinned(node))),
            Role::Control(control) => (control.line(), None),
            Role::Redis(redis) => (redis.line(), Some(redis.socket.clone())),
            Role::Memcached(file) => (memcached(file), Some(file.clone())),
            Role::Etcd(etcd) => (etcd.line(), None),
        };
        let settled = match self {
            Role::Store(store) => Some(store.settled()),
            Role::Switch(_) => Some(agent_settled(node)),
            _ => None,
        };
        ProcessSpec { ready, settled, ..ProcessSpec::new(self.name(), line.0) }
    }
}

/// Where the controller on this node is found, if it listens.
pub fn control_url(node: &str) -> String {
    format!("http://{{address:{node}}}:{CONTROL_PORT}")
}

/// Likewise as a switch sees it, over the link of `ends` that the two have for themselves.
pub fn control_url_from(switch: &str, control: &str, ends: &[[Interface; 2]]) -> String {
    let own = ends.iter().find(|[a, b]| a.node == control && b.node == switch);
    let address = own.map_or_else(String::new, |[control, _]| control.v4.to_string());
    format!("http://{address}:{CONTROL_PORT}")
}

/// Where a store's data is, if it is not in a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// In its own memory: gone when it is killed.
    #[default]
    Own,
    /// In another process, that is never killed; in the simulator.
    Kept,
    /// Likewise, in one that answers after so many nanoseconds on average.
    Remote(u64),
    /// Likewise, and it is a shard of a Redis Cluster: it tells of what others change, and slots
    /// may move to another shard and back.
    Shard(u64),
}

/// A store of the lab's cluster file.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Address and port.
    pub listen: String,
    /// URLs of controllers, separated by commas; none: there is nobody to ask.
    pub control: Option<String>,
    /// URL of what holds the data; none: the store itself, or what `data` says. In namespaces only.
    pub backend: Option<String>,
    /// Where the data is without a backend.
    pub data: Data,
    /// Directory of what outlives it: the journal of loans.
    pub state: Option<String>,
    /// What it makes of writes behind its back; none: as it is usual.
    pub outside_writes: Option<String>,
    /// Keys of the open tenant that it has from the start, and the lengths of their values.
    pub populate: Option<(u64, Lengths)>,
    /// Requests per second that each partition serves; none: as many as it can.
    pub rate_limit: Option<f64>,
    /// Seconds after the first request, and the requests per second from then on; none: it stays as
    /// it is.
    pub rate_later: Option<(f64, f64)>,
    /// Requests that wait at a partition before it drops more.
    pub queue_limit: Option<u32>,
    /// Writes of a key within a second from which on it is lent; none: as many as make it worth it.
    pub lend_from: Option<u32>,
    /// Length of leases in milliseconds as its own copy of the cluster file has it, if that is
    /// another; in the simulator.
    pub lease_ms: Option<u32>,
    /// How much it remembers at most, if that is less than usual; in the simulator.
    pub room: Option<Room>,
    /// Where its RESP port is, as `--resp` takes it; none: it has none. In namespaces only.
    pub resp: Option<String>,
    /// Where it tells its status.
    pub socket: String,
}

/// How much a store remembers at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Clients whose last writes it knows.
    pub clients: usize,
    /// Copies, over all keys.
    pub copies: usize,
    /// Writes that wait behind one another for one key.
    pub queue: usize,
    /// Bytes of values that are written in parts.
    pub parts: usize,
}

impl Store {
    /// The store of a node, at the node's IPv4 address.
    pub fn of(node: &str) -> Store {
        Store {
            listen: format!("{{address:{node}}}:{}", wire::PORT),
            socket: format!("{{dir}}/{node}.sock"),
            ..Store::default()
        }
    }

    fn line(&self) -> Line {
        let populate = self.populate.as_ref();
        let populate = populate.map(|(keys, len)| format!("{keys}:{len}"));
        // What stands for a server that is not there is no affair of the product's.
        let program = if self.is_emulated() { "shortstop-lab" } else { "shortstop" };
        Line::of(&[program, "store"])
            .option("--listen", &self.listen)
            .option("--cluster", CLUSTER)
            .maybe("--control", self.control.as_ref())
            .maybe("--backend", self.backend.as_ref())
            .maybe("--state", self.state.as_ref())
            .maybe("--outside-writes", self.outside_writes.as_ref())
            .maybe("--populate", populate)
            .maybe("--rate-limit", self.rate_limit)
            .maybe("--rate-later", self.rate_later.map(|(s, rate)| format!("{s}:{rate}")))
            .maybe("--queue-limit", self.queue_limit)
            .maybe("--lend-from", self.lend_from)
            .maybe("--resp", self.resp.as_ref())
            .option("--status-socket", &self.socket)
    }

    /// Whether its data, or the server that has it, is made up.
    fn is_emulated(&self) -> bool {
        self.populate.is_some() || self.rate_limit.is_some()
    }

    fn settled(&self) -> ReadinessProbe {
        let line = Line::of(&["shortstop", "store", "status", "--json"]);
        ReadinessProbe {
            command: line.option("--socket", &self.socket).0,
            says: "\"takes_writes\": true".into(),
        }
    }
}

/// A switch's agent, with programs in the driver-independent mode.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    /// Its id.
    pub id: u16,
    /// URLs of controllers, separated by commas.
    pub control: String,
    /// Where it keeps its state.
    pub state: String,
    /// Pages of memory; none: the usual number, 96.
    pub pages: Option<u32>,
    /// Whether it leaves its neighbours unprobed.
    pub no_probes: bool,
    /// Whether it says its address, that of its first link, so that others reach what it keeps. A
    /// simulated one always does.
    pub says_address: bool,
    /// More options.
    pub options: Vec<String>,
}

impl Switch {
    /// The agent of the switch of this id on a node, which follows these controllers.
    pub fn of(id: u16, node: &str, control: String) -> Switch {
        Switch { id, control, state: format!("{{dir}}/{node}"), ..Switch::default() }
    }

    fn line(&self, node: &str) -> Line {
        Line::of(&["shortstop", "switch"])
            .option("--id", self.id)
            .words(&["{interfaces}", "--mode", "generic"])
            .option("--name", tables(node))
            .option("--control", &self.control)
            .option("--state-dir", &self.state)
            .maybe("--pages", self.pages)
            .maybe("--address", self.says_address.then(|| format!("{{address:{node}}}")))
            .words(if self.no_probes { &["--no-probes"][..] } else { &[] })
            .words(&self.options)
    }
}

/// The name of a switch's tables.
fn tables(node: &str) -> String {
    format!("{{lab}}-{node}")
}

/// Where they are pinned.
fn pinned(node: &str) -> String {
    format!("/sys/fs/bpf/shortstop/{}", tables(node))
}

/// A lease shows that the controller has set the switch up and that a store knows it.
fn agent_settled(node: &str) -> ReadinessProbe {
    ReadinessProbe { command: switch_status(&tables(node)), says: "\"term\":".into() }
}

/// A controller.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Where its state is: a directory, or a URL of etcd.
    pub state: String,
    /// Where it listens, without certificates; none: on loopback only.
    pub listen: Option<String>,
    /// Its name among several.
    pub name: Option<String>,
    /// Where others find it.
    pub url: Option<String>,
    /// What it does for the open tenant; none: the usual.
    pub discipline: Option<String>,
    /// Length of a statistics window in milliseconds; none: the usual one.
    pub window_ms: Option<u32>,
    /// Most items of a switch; none: the usual limit.
    pub max_items: Option<usize>,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// More options.
    pub options: Vec<String>,
}

impl Control {
    /// The controller of a node, which keeps its state in a file and listens.
    pub fn of(node: &str) -> Control {
        Control {
            state: format!("{{dir}}/{node}"),
            listen: Some(format!("0.0.0.0:{CONTROL_PORT}")),
            ..Control::default()
        }
    }

    fn line(&self) -> Line {
        let insecure: &[&str] = match self.listen {
            Some(_) => &["--insecure"],
            None => &[],
        };
        let set = |(name, n): (&String, &u32)| ["--set".into(), format!("{name}={n}")];
        let settings: Vec<String> = self.settings.iter().flat_map(set).collect();
        Line::of(&["shortstop", "control"])
            .option("--cluster", CLUSTER)
            .option("--state", &self.state)
            .maybe("--listen", self.listen.as_ref())
            .words(insecure)
            .maybe("--name", self.name.as_ref())
            .maybe("--url", self.url.as_ref())
            .maybe("--discipline", self.discipline.as_ref())
            .maybe("--window-ms", self.window_ms)
            .maybe("--max-items", self.max_items)
            .words(&settings)
            .words(&self.options)
    }
}

/// The cluster file of a lab.
const CLUSTER: &str = "{dir}/cluster.toml";

/// A Redis behind a Unix socket.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    /// Its socket.
    pub socket: String,
    /// The port at which whoever reaches its node finds it, too; none: at no port.
    pub port: Option<u16>,
    /// The file, of the lab's directory, in which every write is before it is answered; none: a
    /// restart loses all.
    pub journal: Option<String>,
}

impl Redis {
    fn line(&self) -> Line {
        let append = if self.journal.is_some() { "yes" } else { "no" };
        let open: &[&str] = if self.port.is_some() { &["--protected-mode", "no"] } else { &[] };
        Line::of(&["redis-server"])
            .option("--port", self.port.unwrap_or(0))
            .words(open)
            .option("--unixsocket", &self.socket)
            .option("--save", "")
            .option("--appendonly", append)
            .option("--appendfsync", "always")
            .maybe("--appendfilename", self.journal.as_ref())
            .words(&["--dir", "{dir}"])
    }
}

fn memcached(file: &str) -> Line {
    Line::of(&["memcached", "-u", "root", "-l", "127.0.0.1"])
        .option("-p", MEMCACHED_PORT)
        .option("-U", 0)
        .option("-P", file)
}

/// Where members of an etcd find each other.
const ETCD_PEER_PORT: u16 = 2380;

/// An etcd, or a member of one.
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    /// Its address.
    pub address: String,
    /// Its name.
    pub name: String,
    /// All members with their addresses, itself too; empty: it is alone.
    pub members: Vec<(String, String)>,
    /// Whether it waits for its disk before it answers a write, as it should where data matter.
    pub syncs: bool,
}

impl Etcd {
    /// One that is alone, for the controllers' state.
    pub fn alone(address: String) -> Etcd {
        Etcd { address, name: "lab".into(), ..Etcd::default() }
    }

    fn line(&self) -> Line {
        let url = format!("http://{}:{ETCD_PORT}", self.address);
        let peer = |address: &str| format!("http://{address}:{ETCD_PEER_PORT}");
        let line = Line::of(&["etcd", "--name", &self.name])
            .option("--data-dir", format!("{{dir}}/etcd-{}", self.name))
            .option("--listen-client-urls", &url)
            .option("--advertise-client-urls", &url)
            .words(&["--log-level", "error"])
            // Every change keeps its old revisions otherwise.
            .option("--auto-compaction-retention", 1)
            .words(if self.syncs { &[][..] } else { &["--unsafe-no-fsync"] });
        if self.members.is_empty() {
            return line.option("--listen-peer-urls", peer("127.0.0.1"));
        }
        let members: Vec<String> = self
            .members
            .iter()
            .map(|(name, address)| format!("{name}={}", peer(address)))
            .collect();
        line.option("--listen-peer-urls", peer(&self.address))
            .option("--initial-advertise-peer-urls", peer(&self.address))
            .option("--initial-cluster", members.join(","))
    }
}

/// What runs `what` (`load`, `clients`) as the configuration in a file says, told more on
/// standard input.
pub fn steered(what: &str, config: &str) -> Vec<String> {
    let line = Line::of(&["shortstop-lab", what]);
    line.option("--config", config).0
}

/// What makes one link of two interfaces, `a` and `b`, with this fault (JSON).
pub fn faulty_link(fault: &str) -> Vec<String> {
    let line = Line::of(&["shortstop-lab", "link", "--a", "a", "--b", "b"]);
    line.option("--fault", fault).0
}

/// What asks a switch's agent beside it for its status. `name` is that of its tables.
pub fn switch_status(name: &str) -> Vec<String> {
    let line = Line::of(&["shortstop", "switch", "status", "--json"]);
    line.option("--name", name).0
}

/// What asks the controller on the same node: `shortstop ARGUMENTS`, answered in JSON.
pub fn ask(arguments: &[&str]) -> Vec<String> {
    let url = format!("http://127.0.0.1:{CONTROL_PORT}");
    Line::of(&["shortstop"]).words(arguments).option("--control", url).words(&["--json"]).0
}

/// A command line that grows.
struct Line(Vec<String>);

impl Line {
    fn of(words: &[&str]) -> Line {
        Line(vec![]).words(words)
    }

    fn words<T: ToString>(mut self, words: &[T]) -> Line {
        self.0.extend(words.iter().map(T::to_string));
        self
    }

    fn option(self, name: &str, value: impl ToString) -> Line {
        self.words(&[name.to_string(), value.to_string()])
    }

    fn maybe(self, name: &str, value: Option<impl ToString>) -> Line {
        match value {
            Some(value) => self.option(name, value),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_no_option() {
        let control = Control { state: "{dir}/control".into(), ..Control::default() };
        let said = Role::Control(control.clone()).process("control").command.join(" ");
        assert_eq!(said, "shortstop control --cluster {dir}/cluster.toml --state {dir}/control");
        let listening = Role::Control(Control {
            listen: Some("0.0.0.0:7118".into()),
            max_items: Some(5),
            options: vec!["--fast".into()],
            ..control
        });
        let said = listening.process("control").command.join(" ");
        assert!(said.ends_with("--listen 0.0.0.0:7118 --insecure --max-items 5 --fast"), "{said}");
        assert_eq!(listening.port(), Some(CONTROL_PORT));
    }

    #[test]
    fn a_switch_is_ready_when_its_tables_are_pinned() {
        let switch = Switch { id: 3, ..Switch::default() };
        let process = Role::Switch(switch).process("switch3");
        let pinned = "/sys/fs/bpf/shortstop/{lab}-switch3";
        assert_eq!(process.ready.as_deref(), Some(pinned));
        assert!(process.command.join(" ").contains("--id 3 {interfaces} --mode generic"));
    }
}
