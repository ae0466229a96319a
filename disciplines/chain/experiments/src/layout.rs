//! Where the switches of a chain stand: around a router, where any of them may be cut off alone; or
//! in a line, as the paper has them.

use chain::ranked;
use experiments::World;
use experiments::rig::{Hardware, Plan, SeatedRole, Site, client, switch};
use lab::{
    roles::{CONTROL_PORT, Control, Etcd, Role, Store, Switch},
    topology::{Fault, Link},
};
use serde::{Deserialize, Serialize};
use wire::PORT;

use crate::protocol::Protocol;

/// The tenant whose chain it is. In a line the switches stand in the order that its chain has.
pub const TENANT: u32 = 7;
/// Pages of each switch, and of these the tenant's.
const PAGES: u32 = 96;
pub const QUOTA: u32 = 80;

/// The controller's host; it keeps its state in a file.
pub const CONTROL: &str = "control";
/// Nobody asks it: a cluster has a store.
const SERVER: &str = "server";
/// Forwards, and has no programs.
const ROUTER: &str = "router";
/// A member of an etcd, with its number after it.
const ETCD: &str = "etcd";

/// Switches of one tenant's chains.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Switches.
    pub switches: u16,
    /// Whether they stand in a line, the chain's head first; else they stand around a router.
    pub in_a_line: bool,
    /// Client hosts: at the head's end of the line, or at the router.
    pub clients: usize,
    /// Members of an etcd beside the switches, each on a host at the router: real processes, so in
    /// the kernel only.
    pub etcds: usize,
    /// Whether these have each write on their disks before they answer, as etcd does unless it is
    /// told not to.
    pub syncs: bool,
    /// What goes wrong on each switch's link to the router.
    pub fault: Option<Fault>,
    /// What takes the switches' packets in the simulator; in the kernel it is the machine's cores.
    pub cores: Cores,
}

/// Whose time a switch takes for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    /// That of a core of its own, as a switch in a network has it.
    #[default]
    Own,
    /// That of the one core that all switches have together, as the paper had all of them on
    /// one machine.
    Shared,
}

impl Cores {
    /// What figures are called: those of shared cores have names of their own.
    pub fn named(self, figure: impl Into<String>) -> String {
        let figure = figure.into();
        match self {
            Cores::Own => figure,
            Cores::Shared => figure + "_shared",
        }
    }

    /// What a protocol's line is called in plots.
    pub fn series(self, protocol: Protocol) -> String {
        match self {
            Cores::Own => protocol.name().into(),
            Cores::Shared => format!("{}, one core of all", protocol.name()),
        }
    }

    /// Its name in the tables of a world.
    pub fn name(self, world: World) -> &'static str {
        match (world, self) {
            (World::Kernel, _) => "this machine's",
            (World::Sim, Cores::Own) => "one each",
            (World::Sim, Cores::Shared) => "one of all",
        }
    }
}

impl Layout {
    /// So many switches around a router, with two client hosts.
    pub fn star(switches: u16) -> Layout {
        Layout { in_a_line: false, clients: 2, ..Layout::line(switches) }
    }

    /// So many switches in a line, and a client at the head's end.
    pub fn line(switches: u16) -> Layout {
        Layout {
            switches,
            in_a_line: true,
            clients: 1,
            etcds: 0,
            syncs: false,
            fault: None,
            cores: Cores::Own,
        }
    }

    /// The same where each switch's link to the router loses, doubles and holds back a packet by
    /// these chances; what overtakes does so by a millisecond at most.
    pub fn faulty(self, [loss, duplicate, reorder]: [f64; 3], seed: u64) -> Layout {
        let fault = Fault { loss, duplicate, reorder, reorder_ms: 1.0, seed, ..Fault::default() };
        Layout { fault: Some(fault), ..self }
    }

    /// Ids of the switches, in the order in which they stand.
    pub fn order(&self) -> Vec<u16> {
        match self.in_a_line {
            true => ranked(TENANT, 0, 1..=self.switches),
            false => (1..=self.switches).collect(),
        }
    }

    /// Index of a switch's link to the router.
    pub fn link_of(&self, id: u16) -> usize {
        usize::from(id) - 1
    }

    /// Its nodes, links and roles.
    pub fn plan(&self) -> Plan {
        let order = self.order();
        let mut links: Vec<Link> = match self.in_a_line {
            true => along(&order),
            false => order.iter().map(|id| self.to_router(*id)).collect(),
        };
        let first = match self.in_a_line {
            true => switch(order[0].into()),
            false => ROUTER.into(),
        };
        let names = (1..=self.clients).map(client).chain(self.etcds());
        let hosts: Vec<String> = names.chain([CONTROL, SERVER].map(String::from)).collect();
        links.extend(hosts.iter().map(|host| Link::between([host.clone(), first.clone()])));
        let mut switches: Vec<Site> = order.iter().map(|id| agent(*id)).collect();
        if !self.in_a_line {
            switches.push(Site::new(ROUTER, vec![]));
        }
        Plan {
            hosts: hosts.iter().map(|host| Site::new(host, self.role_of(host))).collect(),
            switches,
            links,
            partitions: 1,
            is_open: false,
            is_signed: true,
            tells_racks: false,
            hardware: (self.cores == Cores::Shared).then(Hardware::shared_core),
        }
    }

    /// Hosts of the etcd's members.
    pub fn etcds(&self) -> Vec<String> {
        (1..=self.etcds).map(|number| format!("{ETCD}{number}")).collect()
    }

    fn role_of(&self, host: &str) -> Vec<SeatedRole> {
        let role = match host {
            CONTROL => Role::Control(Control {
                state: format!("{{dir}}/{CONTROL}"),
                listen: Some(format!("0.0.0.0:{CONTROL_PORT}")),
                ..Control::default()
            }),
            SERVER => Role::Store(Store {
                listen: format!("{{address:{SERVER}}}:{PORT}"),
                control: Some(control_url()),
                socket: format!("{{dir}}/{SERVER}.sock"),
                ..Store::default()
            }),
            etcd if etcd.starts_with(ETCD) => Role::Etcd(Etcd {
                address: format!("{{address:{etcd}}}"),
                name: etcd.into(),
                members: self.members_of_etcd(),
                syncs: self.syncs,
            }),
            _ => return vec![],
        };
        vec![SeatedRole::new(role)]
    }

    fn members_of_etcd(&self) -> Vec<(String, String)> {
        let all = self.etcds().into_iter();
        let with_address = |host: String| (host.clone(), format!("{{address:{host}}}"));
        all.map(with_address).collect()
    }

    fn to_router(&self, id: u16) -> Link {
        Link {
            fault: self.fault.map(|fault| Fault {
                seed: fault.seed.wrapping_mul(31).wrapping_add(id.into()),
                ..fault
            }),
            ..Link::between([switch(id.into()), ROUTER.into()])
        }
    }
}

fn along(order: &[u16]) -> Vec<Link> {
    let between = |pair: &[u16]| Link::between([switch(pair[0].into()), switch(pair[1].into())]);
    order.windows(2).map(between).collect()
}

fn agent(id: u16) -> Site {
    let node = switch(id.into());
    let role = Role::Switch(Switch {
        id,
        node: node.clone(),
        control: control_url(),
        state: format!("{{dir}}/{node}"),
        pages: Some(PAGES),
        no_probes: true,
        says_address: true,
        ..Switch::default()
    });
    Site::new(node, vec![SeatedRole::new(role)])
}

fn control_url() -> String {
    format!("http://{{address:{CONTROL}}}:{CONTROL_PORT}")
}
