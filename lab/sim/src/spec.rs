//! What a world is to be: machines with what runs on them, and the links between them.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context, ensure};
use decide::Registration;
use wire::{Cluster, Lengths, PORT};

use crate::{clock::ClockSpec, ids::ProcessId, link::LinkSpec, network::Network};

/// Most links: each has subnets of its own.
const MAX_LINKS: usize = 65_000;

/// A world before its beginning.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Hosts and switches.
    pub machines: Vec<MachineSpec>,
    /// Links. A machine's first link gives it its address.
    pub links: Vec<LinkSpec>,
    /// The cluster file; [`Spec::cluster_of_stores`] makes one.
    pub cluster: Cluster,
    /// What tenants may choose, and stores and switches know.
    pub disciplines: &'static [Registration],
    /// How long the machines' routing daemons take to see that a link went down or came back, and
    /// to agree on other ways; none: there are none, and routes stay as they were at the beginning.
    pub routing_ns: Option<u64>,
}

/// A host or switch.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Its name.
    pub name: String,
    /// Its clocks.
    pub clock: ClockSpec,
    /// What forwards on it; none: it is a host.
    pub forwards: Option<ForwardSpec>,
    /// What runs on it.
    pub seats: Vec<Seat>,
}

/// How a switch forwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardSpec {
    /// What one packet takes, in nanoseconds.
    pub packet_ns: f64,
    /// Packets that may wait; what comes on top is dropped.
    pub queue: u32,
    /// Cores of that speed that take what comes in turn, as a network card spreads it that knows no
    /// flows; none: each port has a pipeline for itself, as in a switch chip.
    pub cores: Option<u32>,
    /// The cores are the world's, which all switches of which this is so share: they are processes
    /// of one machine. As many and as fast as the first of them says.
    pub is_shared: bool,
    /// What a core waits for a cache line that another one wrote last, in nanoseconds; meanwhile
    /// nobody else has the line.
    pub line_ns: f64,
    /// How long a packet is on its way through, in nanoseconds, beside that and beside waiting:
    /// others pass meanwhile.
    pub transit_ns: u64,
    /// What a packet takes that is sent round once more, in nanoseconds.
    pub round_ns: f64,
    /// What each of its bytes takes beside.
    pub round_byte_ns: f64,
    /// Packets that may wait at the recirculation port.
    pub round_queue: u32,
}

impl Default for ForwardSpec {
    /// One core, at what the programs take in the kernel.
    fn default() -> ForwardSpec {
        ForwardSpec {
            packet_ns: 500.0,
            queue: 1024,
            cores: Some(1),
            is_shared: false,
            line_ns: 0.0,
            transit_ns: 0,
            round_ns: 1000.0,
            round_byte_ns: 0.0,
            round_queue: 256,
        }
    }
}

/// A role, and when it starts.
#[derive(Clone, Debug)]
pub struct Seat {
    /// What it is.
    pub role: Role,
    /// Whether it starts with the world.
    pub autostart: bool,
}

impl Seat {
    /// A role that starts with the world.
    pub fn new(role: Role) -> Seat {
        let autostart = true;
        Seat { role, autostart }
    }
}

/// What a process is.
#[derive(Clone, Debug)]
pub enum Role {
    /// A store of the cluster.
    Store(StoreSpec),
    /// A switch's agent; its first start loads the programs.
    Agent(AgentSpec),
    /// A controller.
    Control(ControlSpec),
}

impl Role {
    /// The process's name on its machine.
    pub fn name(&self) -> &'static str {
        match self {
            Role::Store(_) => "store",
            Role::Agent(_) => "agent",
            Role::Control(_) => "control",
        }
    }

    /// How fast the process is.
    pub fn service(&self) -> ServiceSpec {
        match self {
            Role::Store(store) => store.service,
            Role::Agent(_) | Role::Control(_) => ServiceSpec::default(),
        }
    }
}

/// Where a store's data is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// In its own memory: gone when it is killed.
    #[default]
    Own,
    /// In another process, that is never killed.
    Kept,
    /// Likewise, in one that answers after so many nanoseconds on average.
    Remote(u64),
}

/// A store.
#[derive(Clone, Debug)]
pub struct StoreSpec {
    /// Machines with controllers that it follows.
    pub control: Vec<usize>,
    /// Where its data is.
    pub data: Data,
    /// Keys of the open tenant that it has from the start, and the lengths of their values.
    pub populate: Option<(u64, Lengths)>,
    /// Bytes that its data may take.
    pub memory_limit: u64,
    /// How fast the server of each partition is; none: it has time for everything.
    pub rate: Option<emulated::Rate>,
    /// Writes of a key within a second from which on it is lent; none: as many as make it worth it.
    pub lend_from: Option<u32>,
    /// Length of leases in milliseconds as its own copy of the cluster file has it, if that
    /// is another.
    pub lease_ms: Option<u32>,
    /// What it is given to work with.
    pub service: ServiceSpec,
}

impl Default for StoreSpec {
    fn default() -> StoreSpec {
        StoreSpec {
            control: vec![],
            data: Data::Own,
            populate: None,
            memory_limit: 1 << 30,
            rate: None,
            lend_from: None,
            lease_ms: None,
            service: ServiceSpec { request_ns: 1500.0, ..ServiceSpec::default() },
        }
    }
}

/// A switch's agent.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// The switch's id.
    pub id: u16,
    /// Pages of memory.
    pub pages: u32,
    /// Machines with controllers that it follows.
    pub control: Vec<usize>,
    /// Whether neighbouring switches are probed.
    pub probes: bool,
}

/// A controller, with the options of `shortstop control`.
#[derive(Clone, Debug)]
pub struct ControlSpec {
    /// What it does for tenants that choose nothing; none: the first discipline.
    pub discipline: Option<String>,
    /// Length of a statistics window in milliseconds.
    pub window_ms: u32,
    /// Most items of a tenant on one switch.
    pub max_items: usize,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// Cache updates per second and switch.
    pub updates_per_s: u32,
    /// Hot keys that a switch should report per window at most.
    pub reports_per_window: u32,
    /// Switches count one request in 2^n.
    pub sample_shift: u32,
    /// What writing its state takes, in nanoseconds.
    pub write_ns: u64,
}

impl Default for ControlSpec {
    fn default() -> ControlSpec {
        ControlSpec {
            discipline: None,
            window_ms: 1_000,
            max_items: 10_000,
            settings: BTreeMap::new(),
            updates_per_s: 20_000,
            reports_per_window: 5_000,
            sample_shift: 0,
            write_ns: 2_000_000,
        }
    }
}

/// How fast a process is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceSpec {
    /// What one datagram takes one worker, in nanoseconds; 0: no time.
    pub request_ns: f64,
    /// Workers.
    pub workers: u32,
    /// Datagrams that may wait; what comes on top is dropped.
    pub queue: u32,
}

impl Default for ServiceSpec {
    fn default() -> ServiceSpec {
        ServiceSpec { request_ns: 0.0, workers: 1, queue: 16_384 }
    }
}

impl MachineSpec {
    /// A host.
    pub fn host(name: impl Into<String>, roles: Vec<Role>) -> MachineSpec {
        MachineSpec {
            name: name.into(),
            clock: ClockSpec::default(),
            forwards: None,
            seats: roles.into_iter().map(Seat::new).collect(),
        }
    }

    /// A switch.
    pub fn switch(name: impl Into<String>, roles: Vec<Role>) -> MachineSpec {
        MachineSpec { forwards: Some(ForwardSpec::default()), ..MachineSpec::host(name, roles) }
    }

    /// The id of the switch that it is; 0: it is none.
    fn switch_id(&self) -> u16 {
        let ids = self.seats.iter().filter_map(|seat| match &seat.role {
            Role::Agent(agent) => Some(agent.id),
            _ => None,
        });
        ids.max().unwrap_or(0)
    }
}

impl Spec {
    /// Machines and links; nothing runs but what the machines' seats say. Stores share `partitions`
    /// evenly, in order of their machines; with `is_open` anybody may ask.
    ///
    /// # Errors
    /// A link between machines that are not there, or a store without a link.
    pub fn new(
        machines: Vec<MachineSpec>,
        links: Vec<LinkSpec>,
        partitions: u32,
        is_open: bool,
        disciplines: &'static [Registration],
    ) -> anyhow::Result<Spec> {
        let mut spec = Spec {
            machines,
            links,
            cluster: Cluster {
                stores: vec![],
                open_tenant: is_open,
                system_secret: (!is_open).then(|| format!("{:032x}", 0x5353)),
                ..Cluster::single((std::net::Ipv4Addr::UNSPECIFIED, PORT).into(), partitions)
            },
            disciplines,
            routing_ns: Some(300_000_000),
        };
        spec.cluster.stores = spec.stores()?;
        Ok(spec)
    }

    /// Gives the stores their IPv6 addresses in the place of those of IPv4.
    ///
    /// # Errors
    /// As [`Spec::new`].
    pub fn use_ipv6(&mut self) -> anyhow::Result<()> {
        let network = self.network()?;
        for store in &mut self.cluster.stores {
            let port = network.owner(store.address.ip()).context("a store's port")?;
            store.address.set_ip(network.port(port).v6.into());
        }
        Ok(())
    }

    /// The cluster file says of each store which switch is at the top of its rack: the one that its
    /// machine is linked to.
    pub fn tell_racks(&mut self) {
        let racks = self.machines_with_stores().into_iter().map(|at| {
            let mut links = self.links.iter();
            let link = links.find(|link| link.ends.contains(&at));
            let switch = link.and_then(|link| link.ends.into_iter().find(|end| *end != at));
            switch.map_or(0, |switch| self.machines[switch].switch_id())
        });
        let racks: Vec<u16> = racks.collect();
        for (store, rack) in self.cluster.stores.iter_mut().zip(racks) {
            store.rack = rack;
        }
    }

    /// In the order of the cluster file.
    fn machines_with_stores(&self) -> Vec<usize> {
        let is_store = |at: &usize| {
            let seats = &self.machines[*at].seats;
            seats.iter().any(|seat| matches!(seat.role, Role::Store(_)))
        };
        (0..self.machines.len()).filter(is_store).collect()
    }

    /// The stores of the cluster.
    fn stores(&self) -> anyhow::Result<Vec<wire::Store>> {
        let network = self.network()?;
        let at = self.machines_with_stores();
        let (count, partitions) = (at.len() as u32, self.cluster.partitions);
        let store = |(i, machine): (u32, &usize)| {
            let name = &self.machines[*machine].name;
            let address = network.address(*machine as u32);
            let address = address.with_context(|| format!("{name}: a store without a link"))?;
            Ok(wire::Store {
                address: SocketAddr::new(address.into(), PORT),
                first: (u64::from(i) * u64::from(partitions) / u64::from(count)) as u32,
                last: (u64::from(i + 1) * u64::from(partitions) / u64::from(count)) as u32 - 1,
                rack: 0,
            })
        };
        (0..).zip(&at).map(store).collect()
    }

    /// The network, without routes.
    ///
    /// # Errors
    /// A link between machines that are not there.
    pub fn network(&self) -> anyhow::Result<Network> {
        let machines = self.machines.len();
        ensure!(
            self.links.len() <= MAX_LINKS,
            "{} links: at most {MAX_LINKS} are possible",
            self.links.len()
        );
        for (i, link) in self.links.iter().enumerate() {
            let [a, b] = link.ends;
            ensure!(
                a < machines && b < machines && a != b,
                "link {i}: between {a} and {b} of {machines} machines"
            );
        }
        let is_switch = self.machines.iter().map(|m| m.forwards.is_some()).collect();
        let ends: Vec<[usize; 2]> = self.links.iter().map(|link| link.ends).collect();
        Ok(Network::new(is_switch, &ends))
    }

    /// The process that will have this role on a machine.
    pub fn process_of(&self, machine: usize, role: &str) -> Option<ProcessId> {
        let before: usize = self.machines[..machine].iter().map(|m| m.seats.len()).sum();
        let seats = &self.machines.get(machine)?.seats;
        let seat = seats.iter().position(|seat| seat.role.name() == role)?;
        Some(ProcessId((before + seat) as u32))
    }

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> Option<usize> {
        self.machines.iter().position(|m| m.name == name)
    }
}
