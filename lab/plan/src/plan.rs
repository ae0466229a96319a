//! The plan of a rig: nodes with their roles, links, and hardware. Layouts of experiments write it;
//! the rig and both of its worlds read it, and so they start the same things under the same names.

use std::net::SocketAddr;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use wire::{Cluster, PORT, Store};

use crate::{
    roles::Role,
    topology::{Link, Node, ProcessSpec, Topology},
};

/// CPU of the load generator that is measured. What it sends is handled by the switches on the
/// same CPU.
pub const CLIENT_CPU: usize = 0;
/// CPU of the stores, the agents' and controllers' more frequent one, and of generators
/// that disturb.
pub const OTHER_CPU: usize = 1;
/// The shortest lease that a store gives, in milliseconds: the sooner it takes writes.
pub const LEASE_MS: u32 = 1000;

/// What a rig is to be: nodes with their roles, the links between them, and who may ask.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ends of the network, started in this order. A node's first link gives it its address.
    pub hosts: Vec<Site>,
    /// Nodes that forward, started after the hosts.
    pub switches: Vec<Site>,
    /// Links with their faults.
    pub links: Vec<Link>,
    /// Partitions of the keys, divided evenly among the stores in order of their hosts.
    pub partitions: u32,
    /// Whether anybody may ask; otherwise everybody has to show who they are.
    pub is_open: bool,
    /// Whether switches and stores sign what they say to each other.
    pub is_signed: bool,
    /// Whether the cluster file names the switch that each store is linked to as the one at the top
    /// of its rack.
    pub tells_racks: bool,
    /// What switches and links are made of in the simulator; none: each switch is one core.
    pub hardware: Option<Hardware>,
}

/// Switches like chips, and their links, in the simulator; the kernel's world is as fast as the
/// machine is. Other times than these do not come from here: those of stores are their roles',
/// those of clients and controllers are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Packets per second that a switch takes by each of its ports, or with each core.
    pub switch_rate: f64,
    /// Cores of that speed that all of its ports share, as where Linux forwards; none: it is
    /// a chip.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Whether all switches share those cores, as processes of one machine do.
    #[serde(default)]
    pub is_shared: bool,
    /// What a core waits for a cache line that another one wrote last, in nanoseconds.
    #[serde(default)]
    pub line_ns: f64,
    /// How long a packet is on its way through a switch, in microseconds, beside waiting.
    #[serde(default)]
    pub switch_us: f64,
    /// What a link carries in Gbit/s; none: whatever comes.
    #[serde(default)]
    pub link_gbit: Option<f64>,
    /// How long a packet is on its way between two machines, in microseconds, beside waiting.
    #[serde(default = "link_us")]
    pub link_us: f64,
    /// What the port carries in Gbit/s by which switches send packets round; none: as many packets
    /// as a core.
    #[serde(default)]
    pub round_gbit: Option<f64>,
}

fn link_us() -> f64 {
    10.0
}

impl Hardware {
    /// One core for all switches, at the pace that each has a core to itself where nothing is said
    /// of hardware.
    pub fn shared_core() -> Hardware {
        Hardware {
            switch_rate: 2e6,
            cores: Some(1),
            is_shared: true,
            line_ns: 0.0,
            switch_us: 0.0,
            link_gbit: None,
            link_us: link_us(),
            round_gbit: None,
        }
    }

    /// The same `factor` times as slow: nothing of it changes its place beside the others.
    pub fn slowed(&self, factor: f64) -> Hardware {
        Hardware {
            switch_rate: self.switch_rate / factor,
            cores: self.cores,
            is_shared: self.is_shared,
            line_ns: self.line_ns * factor,
            switch_us: self.switch_us * factor,
            link_gbit: self.link_gbit.map(|rate| rate / factor),
            link_us: self.link_us * factor,
            round_gbit: self.round_gbit.map(|rate| rate / factor),
        }
    }
}

/// A node and its roles.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What runs there, in order of starting.
    pub roles: Vec<SeatedRole>,
}

/// A role, how it is scheduled, and when it starts.
#[derive(Clone, Debug)]
pub struct SeatedRole {
    /// What it is.
    pub role: Role,
    /// The CPU to run on; none: any.
    pub cpu: Option<usize>,
    /// Niceness.
    pub nice: i32,
    /// Whether it starts with the rig.
    pub autostart: bool,
}

impl SeatedRole {
    /// A role on any CPU that starts with the rig.
    pub fn new(role: Role) -> SeatedRole {
        SeatedRole { role, cpu: None, nice: 0, autostart: true }
    }

    /// On this CPU.
    pub fn on(self, cpu: usize) -> SeatedRole {
        let cpu = Some(cpu);
        SeatedRole { cpu, ..self }
    }

    /// With this niceness.
    pub fn nice(self, nice: i32) -> SeatedRole {
        SeatedRole { nice, ..self }
    }

    /// Started only when an experiment says so.
    pub fn later(self) -> SeatedRole {
        let autostart = false;
        SeatedRole { autostart, ..self }
    }

    /// The process.
    pub fn process(&self) -> ProcessSpec {
        ProcessSpec {
            cpu: self.cpu,
            nice: self.nice,
            autostart: self.autostart,
            ..self.role.process()
        }
    }
}

impl Site {
    /// A node with these roles.
    pub fn new(name: impl Into<String>, roles: Vec<SeatedRole>) -> Site {
        let name = name.into();
        Site { name, roles }
    }

    /// The node with its processes.
    pub fn node(&self) -> Node {
        Node {
            name: self.name.clone(),
            processes: self.roles.iter().map(SeatedRole::process).collect(),
        }
    }
}

impl Plan {
    /// Nodes, links, processes and the cluster file.
    ///
    /// # Errors
    /// A store without a link.
    pub fn topology(&self) -> anyhow::Result<Topology> {
        let mut topology = Topology {
            hosts: self.hosts.iter().map(Site::node).collect(),
            switches: self.switches.iter().map(Site::node).collect(),
            links: self.links.clone(),
            ..Topology::default()
        };
        let cluster = self.cluster(&topology)?;
        topology.files.insert("cluster.toml".into(), cluster.to_toml());
        Ok(topology)
    }

    /// The stores, and no tenants.
    ///
    /// # Errors
    /// A store without a link.
    pub fn cluster(&self, topology: &Topology) -> anyhow::Result<Cluster> {
        let hosts = self.nodes_of("store");
        let (partitions, count) = (self.partitions, hosts.len() as u32);
        let ends = topology.interfaces();
        let store = |(i, host): (u32, &String)| {
            let end = ends.iter().flatten().find(|end| end.node == *host);
            let end = end.with_context(|| format!("{host}: a store without an address"))?;
            let over_ipv6 = match &self.seated(host, "store")?.role {
                Role::Store(store) => store.listen.contains("{address6:"),
                _ => false,
            };
            let address = if over_ipv6 { end.v6.into() } else { end.v4.into() };
            Ok(Store {
                address: SocketAddr::new(address, PORT),
                first: i * partitions / count,
                last: (i + 1) * partitions / count - 1,
                rack: self.rack_of(host),
            })
        };
        Ok(Cluster {
            partitions,
            stores: (0..).zip(&hosts).map(store).collect::<anyhow::Result<_>>()?,
            tenants: vec![],
            open_tenant: self.is_open,
            system_secret: self.is_signed.then(|| format!("{:032x}", 0x5353)),
            lease_ms: LEASE_MS,
            lease_max_ms: LEASE_MS,
            max_value: wire::MAX_VALUE_DEFAULT,
            switches: vec![],
        })
    }

    /// The id of the switch that a store's host is linked to, where the file is to say so; else 0.
    fn rack_of(&self, host: &str) -> u16 {
        let mut links = self.links.iter().filter(|_| self.tells_racks);
        let link = links.find(|link| link.ends.iter().any(|end| end == host));
        let switch = link.and_then(|link| link.ends.iter().find(|end| *end != host));
        let agent = switch.and_then(|switch| self.seated(switch, "agent").ok());
        match agent.map(|seated| &seated.role) {
            Some(Role::Switch(switch)) => switch.id,
            _ => 0,
        }
    }

    /// Every role with its node, in order of starting.
    pub fn seats(&self) -> impl Iterator<Item = (String, SeatedRole)> + '_ {
        let sites = self.hosts.iter().chain(&self.switches);
        sites.flat_map(|site| {
            let roles = site.roles.iter().cloned();
            roles.map(|seated| (site.name.clone(), seated))
        })
    }

    /// The nodes that have a role of this name.
    pub fn nodes_of(&self, role: &str) -> Vec<String> {
        let seats = self.seats();
        let with = seats.filter(|(_, seated)| seated.role.name() == role);
        with.map(|(node, _)| node).collect()
    }

    /// The role of this name on a node.
    ///
    /// # Errors
    /// There is none.
    pub fn seated(&self, node: &str, role: &str) -> anyhow::Result<&SeatedRole> {
        let mut sites = self.hosts.iter().chain(&self.switches);
        let site = sites.find(|site| site.name == node);
        let found = site.and_then(|s| s.roles.iter().find(|s| s.role.name() == role));
        found.with_context(|| format!("{node}: no {role} in this plan"))
    }
}
