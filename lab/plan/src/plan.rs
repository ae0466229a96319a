//! A plan: machines with their roles, the links between them, and who may ask.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use wire::Tenant;

use crate::{
    hardware::{Clocks, Hardware},
    network::Ports,
    roles::Role,
    topology::{Interface, Link, Node, ProcessSpec, Topology},
};

/// CPU of the load generator that is measured. What it sends is handled by the switches on the
/// same CPU.
pub const CLIENT_CPU: usize = 0;
/// CPU of the stores, the agents' and controllers' more frequent one, and of generators
/// that disturb.
pub const OTHER_CPU: usize = 1;
/// The shortest lease that a store gives, in milliseconds: the sooner it takes writes.
pub const LEASE_MS: u32 = 1000;
/// Most links: each has subnets of its own.
const MAX_LINKS: usize = 65_000;

/// What a rack is to be, in either world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts and switches, started in this order. A machine's first link gives it its address.
    pub sites: Vec<Site>,
    /// Links with their faults.
    pub links: Vec<Link>,
    /// Partitions of the keys, divided evenly among the stores in order of their machines.
    pub partitions: u32,
    /// Whether anybody may ask; otherwise everybody has to show who they are.
    pub is_open: bool,
    /// Whether switches and stores sign what they say to each other.
    pub is_signed: bool,
    /// Whether the cluster file names the switch that each store is linked to as the one at the top
    /// of its rack.
    pub tells_racks: bool,
    /// Length of leases in milliseconds.
    pub lease_ms: u32,
    /// The longest lease that anybody may still go by, in milliseconds.
    pub lease_max_ms: u32,
    /// Tenants that the cluster file has from the start.
    pub tenants: Vec<Tenant>,
    /// What switches and links are made of in the simulator.
    pub hardware: Hardware,
    /// How long the machines' routing daemons take in the simulator to see that a link went down or
    /// came back, and to agree on other ways, in nanoseconds; none: there are none, and routes stay
    /// as they were at the beginning. In namespaces there are none.
    pub routing_ns: Option<u64>,
}

impl Default for Plan {
    /// No machines; whoever comes to them signs, and leases are short.
    fn default() -> Plan {
        Plan {
            sites: vec![],
            links: vec![],
            partitions: 1,
            is_open: false,
            is_signed: true,
            tells_racks: false,
            lease_ms: LEASE_MS,
            lease_max_ms: LEASE_MS,
            tenants: vec![],
            hardware: Hardware::default(),
            routing_ns: Some(300_000_000),
        }
    }
}

/// A machine and its roles.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Whether it forwards: it is a switch.
    pub forwards: bool,
    /// What runs there, in order of starting.
    pub roles: Vec<SeatedRole>,
    /// Its clocks.
    pub clocks: Clocks,
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
    /// Whether it starts with the rack.
    pub autostart: bool,
}

impl From<Role> for SeatedRole {
    /// On any CPU, started with the rack.
    fn from(role: Role) -> SeatedRole {
        SeatedRole { role, cpu: None, nice: 0, autostart: true }
    }
}

impl SeatedRole {
    /// On this CPU.
    pub fn on(self, cpu: usize) -> SeatedRole {
        let cpu = Some(cpu);
        SeatedRole { cpu, ..self }
    }

    /// With this niceness.
    pub fn nice(self, nice: i32) -> SeatedRole {
        SeatedRole { nice, ..self }
    }

    /// Started only when somebody says so.
    pub fn later(self) -> SeatedRole {
        let autostart = false;
        SeatedRole { autostart, ..self }
    }

    /// The process on this node.
    pub fn process(&self, node: &str) -> ProcessSpec {
        ProcessSpec {
            cpu: self.cpu,
            nice: self.nice,
            autostart: self.autostart,
            ..self.role.process(node)
        }
    }
}

impl Site {
    /// A host with these roles.
    pub fn host(name: impl Into<String>, roles: Vec<SeatedRole>) -> Site {
        Site { name: name.into(), forwards: false, roles, clocks: Clocks::default() }
    }

    /// A switch with these roles.
    pub fn switch(name: impl Into<String>, roles: Vec<SeatedRole>) -> Site {
        Site { forwards: true, ..Site::host(name, roles) }
    }

    /// The role of this name.
    pub fn seated(&self, role: &str) -> Option<&SeatedRole> {
        self.roles.iter().find(|seated| seated.role.name() == role)
    }

    fn node(&self) -> Node {
        Node {
            name: self.name.clone(),
            processes: self.roles.iter().map(|seated| seated.process(&self.name)).collect(),
        }
    }
}

impl Plan {
    /// The machines that forward.
    pub fn switches(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.forwards)
    }

    /// Gives machines the roles that they have by their names.
    pub fn seat(&mut self, mut roles: impl FnMut(&str) -> Option<Role>) {
        for site in &mut self.sites {
            site.roles.extend(roles(&site.name).map(SeatedRole::from));
        }
    }

    /// Addresses and ways of the machines, by their places in [`Plan::sites`].
    ///
    /// # Errors
    /// A link between machines that are not there, of a machine with itself, or with addresses of
    /// its own; or too many links.
    pub fn ports(&self) -> anyhow::Result<Ports> {
        let links = self.links.len();
        ensure!(links <= MAX_LINKS, "{links} links: at most {MAX_LINKS} are possible");
        let places: HashMap<&str, usize> = self.sites.iter().map(|s| &*s.name).zip(0..).collect();
        let place = |name: &String| {
            let place = places.get(name.as_str()).copied();
            place.with_context(|| format!("{name}: a link's end that is no machine"))
        };
        let mut ends = vec![];
        for (number, link) in (1..).zip(&self.links) {
            let [a, b] = &link.ends;
            ensure!(a != b, "link {number}: both ends are {a}");
            let is_numbered = link.addresses.is_none();
            ensure!(is_numbered, "link {number}: in a plan its number says its addresses");
            ends.push([place(a)?, place(b)?]);
        }
        Ok(Ports::new(self.sites.iter().map(|site| site.forwards).collect(), &ends))
    }

    /// Both ends of every link.
    pub fn interfaces(&self) -> Vec<[Interface; 2]> {
        self.network().interfaces()
    }

    /// Nodes, links and processes, without files.
    pub(crate) fn network(&self) -> Topology {
        let (switches, hosts): (Vec<&Site>, _) = self.sites.iter().partition(|s| s.forwards);
        let nodes = |sites: Vec<&Site>| sites.into_iter().map(Site::node).collect();
        Topology {
            hosts: nodes(hosts),
            switches: nodes(switches),
            links: self.links.clone(),
            ..Topology::default()
        }
    }

    /// Every role with its machine, in order of starting.
    pub fn seats(&self) -> impl Iterator<Item = (&str, &SeatedRole)> {
        self.sites
            .iter()
            .flat_map(|site| site.roles.iter().map(move |seated| (&*site.name, seated)))
    }

    /// The machines that have a role of this name.
    pub fn nodes_of(&self, role: &str) -> Vec<String> {
        let with = self.seats().filter(|(_, seated)| seated.role.name() == role);
        with.map(|(node, _)| node.to_owned()).collect()
    }

    /// The role of this name on a machine.
    ///
    /// # Errors
    /// There is none.
    pub fn seated(&self, node: &str, role: &str) -> anyhow::Result<&SeatedRole> {
        let site = self.sites.iter().find(|site| site.name == node);
        let found = site.and_then(|site| site.seated(role));
        found.with_context(|| format!("{node}: no {role} in this plan"))
    }
}
