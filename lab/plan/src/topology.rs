//! A topology file: hosts, switches, links, and the processes that run on them.
//!
//! ```toml
//! [[host]]
//! name = "client"
//! [[switch]]
//! name = "switch"
//! [[host]]
//! name = "server"
//! [[host.process]]
//! name = "store"
//! command = ["shortstop", "store", "--listen", "{address:server}:7117"]
//! [[link]]
//! ends = ["client", "switch"]
//! [[link]]
//! ends = ["switch", "server"]
//! fault = { loss = 0.01, delay_ms = 0.2, seed = 7 }
//! ```
//!
//! Parsing checks everything that can be known without creating anything.

use std::{
    collections::{HashMap, HashSet},
    net::{Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use crate::network::{Port, Ports};

/// Longest name of a host, switch or process.
const MAX_NAME: usize = 32;
/// Most links of one topology that a kernel is to have; each has its own subnet 10.0.N.0/24.
const MAX_LINKS: usize = 250;

/// Why a topology cannot be built.
#[derive(Debug, PartialEq)]
pub struct TopologyError(pub String);

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "topology: {}", self.0)
    }
}

impl std::error::Error for TopologyError {}

fn fail<T>(text: String) -> Result<T, TopologyError> {
    Err(TopologyError(text))
}

/// Hosts, switches and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Text files written to the lab's directory before anything starts: name to content.
    #[serde(default)]
    pub files: std::collections::BTreeMap<String, String>,
    /// Ends of the network.
    #[serde(rename = "host", default)]
    pub hosts: Vec<Node>,
    /// Nodes that forward.
    #[serde(rename = "switch", default)]
    pub switches: Vec<Node>,
    /// Links; the N-th has the subnets 10.0.N.0/24 and fd00:0:0:N::/64 unless it says otherwise.
    #[serde(rename = "link", default)]
    pub links: Vec<Link>,
}

/// A host or switch: one network namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Letters, digits and dashes.
    pub name: String,
    /// What runs there, in order of starting.
    #[serde(rename = "process", default)]
    pub processes: Vec<ProcessSpec>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// Letters, digits and dashes; unique on its node.
    pub name: String,
    /// Program and arguments. `shortstop-lab` is the running binary, `shortstop` the one beside it.
    /// `{dir}` stands for the lab's directory, `{lab}` for its name, `{address:NODE}` and
    /// `{address6:NODE}` for a node's addresses, `{interfaces}` for `--interface NAME` of each of
    /// this node's interfaces.
    pub command: Vec<String>,
    /// The CPU to run on; any if absent.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// Niceness, 0 to 19.
    #[serde(default)]
    pub nice: i32,
    /// A file or socket whose appearance says that the process is ready.
    #[serde(default)]
    pub ready: Option<String>,
    /// How to see that it does its whole work, once the processes that it depends on are there too.
    #[serde(default)]
    pub settled: Option<ReadinessProbe>,
    /// Whether it is started with the lab; otherwise only on demand.
    #[serde(default = "yes")]
    pub autostart: bool,
}

impl ProcessSpec {
    /// A process on any CPU that starts with the lab and is ready at once.
    pub fn new(name: &str, command: Vec<String>) -> ProcessSpec {
        ProcessSpec {
            name: name.into(),
            command,
            cpu: None,
            nice: 0,
            ready: None,
            settled: None,
            autostart: true,
        }
    }
}

/// A question to ask on a process's node until the answer is right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadinessProbe {
    /// Program and arguments, with the placeholders of [`ProcessSpec::command`].
    pub command: Vec<String>,
    /// Text that its standard output contains at last.
    pub says: String,
}

fn yes() -> bool {
    true
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Names of two nodes.
    pub ends: [String; 2],
    /// IPv4 addresses of the two ends in one /24; chosen if absent.
    #[serde(default)]
    pub addresses: Option<[Ipv4Addr; 2]>,
    /// What goes wrong on it.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Largest IP packet in bytes.
    #[serde(default = "mtu")]
    pub mtu: u32,
}

impl Link {
    /// A link of the usual size without faults, with addresses of the lab's choice.
    pub fn between(ends: [String; 2]) -> Link {
        Link { ends, addresses: None, fault: None, mtu: mtu() }
    }
}

fn mtu() -> u32 {
    1500
}

/// What a faulty link does to each frame, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// Chance that a frame is lost.
    pub loss: f64,
    /// Chance that a frame comes twice.
    pub duplicate: f64,
    /// Chance that a frame is held back for a random time of up to `reorder_ms`, so that later ones
    /// overtake it.
    pub reorder: f64,
    /// Longest time that a reordered frame is held back.
    pub reorder_ms: f64,
    /// Delay of every frame.
    pub delay_ms: f64,
    /// Chance that a bit of a frame is flipped on the way, in a place where no frame check sequence
    /// finds it.
    pub flip: f64,
    /// Decides which frames.
    pub seed: u64,
}

/// One end of a link as it is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Node.
    pub node: String,
    /// Name in the node's namespace: `eth0`, `eth1`, in order of links.
    pub name: String,
    /// IPv4 address, /24.
    pub v4: Ipv4Addr,
    /// IPv6 address, /64.
    pub v6: Ipv6Addr,
    /// Hardware address.
    pub mac: String,
}

/// How a node reaches a subnet it is not part of.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Node.
    pub node: String,
    /// The link whose subnet is meant.
    pub link: usize,
    /// Next hop.
    pub via_v4: Ipv4Addr,
    /// Next hop.
    pub via_v6: Ipv6Addr,
}

impl Topology {
    /// Reads and checks a topology file.
    ///
    /// # Errors
    /// [`TopologyError`] names what is wrong and what was expected.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let topology: Topology = toml::from_str(text).map_err(|e| TopologyError(e.to_string()))?;
        topology.check()?;
        Ok(topology)
    }

    /// Hosts, then switches.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.hosts.iter().chain(&self.switches)
    }

    /// Whether this node forwards.
    pub fn is_switch(&self, name: &str) -> bool {
        self.switches.iter().any(|node| node.name == name)
    }

    fn check(&self) -> Result<(), TopologyError> {
        let mut names = HashSet::new();
        for node in self.nodes() {
            check_name(&node.name)?;
            if !names.insert(node.name.as_str()) {
                return fail(format!("{} is there twice: names must differ", node.name));
            }
            let mut processes = HashSet::new();
            for process in &node.processes {
                check_name(&process.name)?;
                if !processes.insert(process.name.as_str()) {
                    let (node, process) = (&node.name, &process.name);
                    return fail(format!("{node}: process {process} is there twice"));
                }
                if process.command.is_empty() {
                    return fail(format!("{}: process {}: no command", node.name, process.name));
                }
            }
        }
        if names.is_empty() {
            return fail("no [[host]] and no [[switch]]: at least one is needed".into());
        }
        for name in self.files.keys() {
            if name.contains('/') || name.starts_with('.') {
                return fail(format!("file {name:?}: a plain file name is expected"));
            }
        }
        if self.links.len() > MAX_LINKS {
            return fail(format!("{} links: at most {MAX_LINKS} are possible", self.links.len()));
        }
        for (i, link) in self.links.iter().enumerate() {
            self.check_link(link).map_err(|e| TopologyError(format!("link {}: {}", i + 1, e.0)))?;
        }
        Ok(())
    }

    fn check_link(&self, link: &Link) -> Result<(), TopologyError> {
        let [a, b] = &link.ends;
        for end in &link.ends {
            if !self.nodes().any(|node| node.name == *end) {
                return fail(format!("{end} is neither a host nor a switch"));
            }
        }
        if a == b {
            return fail(format!("both ends are {a}"));
        }
        if !(1280..=9000).contains(&link.mtu) {
            return fail(format!("mtu {}: 1280 to 9000 are possible", link.mtu));
        }
        if let Some([x, y]) = link.addresses
            && (x == y || x.octets()[..3] != y.octets()[..3])
        {
            return fail(format!("addresses {x} and {y} must differ within one /24"));
        }
        let Some(fault) = link.fault else { return Ok(()) };
        for (name, chance) in [
            ("loss", fault.loss),
            ("duplicate", fault.duplicate),
            ("reorder", fault.reorder),
            ("flip", fault.flip),
        ] {
            if !(0.0..=1.0).contains(&chance) {
                return fail(format!("{name} = {chance}: a chance from 0 to 1 is expected"));
            }
        }
        for (name, ms) in [("delay_ms", fault.delay_ms), ("reorder_ms", fault.reorder_ms)] {
            if !(0.0..=10_000.0).contains(&ms) {
                return fail(format!("{name} = {ms}: 0 to 10000 is possible"));
            }
        }
        Ok(())
    }

    /// The ports of its nodes, by their places. An end that is no node is taken for a host.
    fn ports(&self) -> Ports {
        let mut is_switch = vec![false; self.hosts.len()];
        is_switch.resize(self.hosts.len() + self.switches.len(), true);
        let mut places: HashMap<&str, usize> = self.nodes().map(|n| &*n.name).zip(0..).collect();
        let ends = self.links.iter().map(|link| {
            link.ends.each_ref().map(|end| {
                *places.entry(end).or_insert_with(|| {
                    is_switch.push(false);
                    is_switch.len() - 1
                })
            })
        });
        let ends: Vec<[usize; 2]> = ends.collect();
        Ports::new(is_switch, &ends)
    }

    /// Both ends of every link, with their names and addresses.
    pub fn interfaces(&self) -> Vec<[Interface; 2]> {
        let ports = self.ports();
        let links = self.links.iter().zip(ports.all().chunks_exact(2));
        let interface = |link: &Link, ports: &[Port], side: usize| Interface {
            node: link.ends[side].clone(),
            name: format!("eth{}", ports[side].index),
            v4: link.addresses.map_or(ports[side].v4, |addresses| addresses[side]),
            v6: ports[side].v6,
            mac: ports[side].mac.map(|byte| format!("{byte:02x}")).join(":"),
        };
        links.map(|(link, ports)| [0, 1].map(|side| interface(link, ports, side))).collect()
    }

    /// The IPv4 address of a node: that of its first link.
    pub fn address_of(&self, node: &str) -> Option<Ipv4Addr> {
        self.first_interface(node).map(|interface| interface.v4)
    }

    /// A node's end of its first link: what others know it by.
    pub fn first_interface(&self, node: &str) -> Option<Interface> {
        let mut all = self.interfaces().into_iter().flatten();
        all.find(|interface| interface.node == node)
    }

    /// Names of a node's interfaces.
    pub fn interfaces_of(&self, node: &str) -> Vec<String> {
        let all = self.interfaces();
        all.into_iter().flatten().filter(|i| i.node == node).map(|i| i.name).collect()
    }

    /// Static routes by the fewest hops, over switches only.
    pub fn routes(&self) -> Vec<Route> {
        let (ports, ends) = (self.ports(), self.interfaces());
        let mut routes = vec![];
        for (machine, node) in (0..).zip(self.nodes()) {
            let own = ports.of(machine);
            let ways = ports.ways_from(machine, |_| true);
            for (link, way) in ways.into_iter().enumerate() {
                let is_own = own.iter().any(|port| *port as usize / 2 == link);
                let Some(index) = way.filter(|_| !is_own) else { continue };
                let port = own[usize::from(index)] as usize;
                let Interface { v4: via_v4, v6: via_v6, .. } = ends[port / 2][1 - port % 2];
                routes.push(Route { node: node.name.clone(), link, via_v4, via_v6 });
            }
        }
        routes
    }

    /// A command with its placeholders replaced.
    ///
    /// # Errors
    /// A placeholder that means nothing here.
    pub fn expand(
        &self,
        node: &str,
        command: &[String],
        lab: &str,
        dir: &str,
    ) -> Result<Vec<String>, TopologyError> {
        let mut words = vec![];
        for word in command {
            if word == "{interfaces}" {
                let names = self.interfaces_of(node).into_iter();
                words.extend(names.flat_map(|name| ["--interface".to_string(), name]));
                continue;
            }
            words.push(self.expand_text(word, lab, dir)?);
        }
        Ok(words)
    }

    /// A text with `{dir}`, `{lab}`, `{address:NODE}` and `{address6:NODE}` replaced.
    ///
    /// # Errors
    /// An address of a node that has none.
    pub fn expand_text(&self, text: &str, lab: &str, dir: &str) -> Result<String, TopologyError> {
        let mut text = text.replace("{dir}", dir).replace("{lab}", lab);
        for placeholder in ["{address:", "{address6:"] {
            while let Some(start) = text.find(placeholder) {
                let node_at = start + placeholder.len();
                let Some(len) = text[node_at..].find('}') else {
                    return fail(format!("{text:?}: {placeholder} without its closing brace"));
                };
                let node = &text[node_at..node_at + len];
                let Some(interface) = self.first_interface(node) else {
                    return fail(format!("{text:?}: {node} has no address"));
                };
                let address = match placeholder {
                    "{address6:" => interface.v6.to_string(),
                    _ => interface.v4.to_string(),
                };
                text.replace_range(start..node_at + len + 1, &address);
            }
        }
        Ok(text)
    }
}

/// Checks a name that becomes part of a namespace's or file's name.
///
/// # Errors
/// What a name may look like.
pub fn check_name(name: &str) -> Result<(), TopologyError> {
    let fits = !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('-')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if fits {
        return Ok(());
    }
    fail(format!("name {name:?}: 1 to {MAX_NAME} letters, digits and dashes are expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RACK: &str = r#"
        [[host]]
        name = "client"
        [[host]]
        name = "server"
        [[host.process]]
        name = "store"
        command = ["shortstop", "store", "--listen", "{address:server}:7117", "{interfaces}", "{dir}/x"]
        [[switch]]
        name = "s1"
        [[switch]]
        name = "s2"
        [[link]]
        ends = ["client", "s1"]
        [[link]]
        ends = ["s1", "s2"]
        [[link]]
        ends = ["s2", "server"]
    "#;

    #[test]
    fn addresses_and_routes_of_a_chain() {
        let topology = Topology::parse(RACK).unwrap();
        assert_eq!(topology.address_of("client"), Some(Ipv4Addr::new(10, 0, 1, 1)));
        assert_eq!(topology.address_of("server"), Some(Ipv4Addr::new(10, 0, 3, 1)));
        assert_eq!(topology.interfaces_of("s1"), ["eth0", "eth1"]);
        let routes = topology.routes();
        let of = |node: &str| -> Vec<(usize, String)> {
            let of_node = routes.iter().filter(|route| route.node == node);
            of_node.map(|r| (r.link, r.via_v4.to_string())).collect()
        };
        let client = [(1, "10.0.1.254".to_string()), (2, "10.0.1.254".to_string())];
        assert_eq!(of("client"), client);
        assert_eq!(of("s1"), [(2, "10.0.2.253".to_string())]);
        assert_eq!(of("s2"), [(0, "10.0.2.254".to_string())]);
    }

    #[test]
    fn commands_are_expanded() {
        let topology = Topology::parse(RACK).unwrap();
        let command = &topology.hosts[1].processes[0].command;
        let words = topology.expand("server", command, "l", "/d").unwrap();
        assert_eq!(words[3..], ["10.0.3.1:7117", "--interface", "eth0", "/d/x"]);
        let unknown = topology.expand_text("{address:nobody}", "l", "/d").unwrap_err();
        assert!(unknown.to_string().contains("nobody has no address"), "{unknown}");
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let host = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";
        for (text, expected) in [
            ("", "at least one is needed"),
            ("[[host]]\nname = \"a b\"", "name \"a b\""),
            ("[[host]]\nname = \"a\"\n[[switch]]\nname = \"a\"", "a is there twice"),
            ("[[host]]\nname = \"a\"\ncolour = 1", "unknown field `colour`"),
            (&format!("{host}[[link]]\nends = [\"a\", \"c\"]"), "link 1: c is neither"),
            (&format!("{host}[[link]]\nends = [\"a\", \"a\"]"), "link 1: both ends are a"),
            (&format!("{host}[[link]]\nends = [\"a\", \"b\"]\nmtu = 100"), "mtu 100"),
            (
                &format!("{host}[[link]]\nends = [\"a\", \"b\"]\nfault = {{ loss = 1.5 }}"),
                "loss = 1.5",
            ),
            (
                &format!(
                    "{host}[[link]]\nends = [\"a\", \"b\"]\naddresses = [\"10.1.1.1\", \"10.1.2.2\"]"
                ),
                "within one /24",
            ),
        ] {
            let error = Topology::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} should say {expected:?}");
        }
    }
}
