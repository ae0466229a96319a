//! Where the switches of a chain stand: around a router, where any of them may be cut off alone; or
//! in a line, as the paper has them.

use chain::ranked;
use experiments::World;
use plan::{
    Hardware, Plan, SeatedRole, Site, client,
    roles::{Control, Etcd, Role, Store, Switch, control_url},
    shapes, switch,
    topology::Fault,
};
use serde::{Deserialize, Serialize};

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
    /// Client hosts at the router. In a line each switch has one of its own.
    pub clients: usize,
    /// Members of an etcd beside the switches, each on a host at the router: real processes, so in
    /// the kernel only.
    pub etcds: usize,
    /// Whether these have each write on their disks before they answer, as etcd does unless it is
    /// told not to.
    pub syncs: bool,
    /// Versions of a key that may be on their way at once, as a power of two: an option of the
    /// tenant.
    pub versions: u32,
    /// Whether clients may read what is not committed: an option of the tenant.
    pub is_relaxed: bool,
    /// What goes wrong on each switch's link to the router.
    pub fault: Option<Fault>,
    /// What takes the switches' packets in the simulator; in the kernel it is the machine's cores.
    pub cores: Cores,
    /// What switches and links are there.
    pub hardware: Hardware,
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

    /// So many switches in a line, and a client host at each, numbered from the head's.
    pub fn line(switches: u16) -> Layout {
        Layout {
            switches,
            in_a_line: true,
            clients: switches.into(),
            etcds: 0,
            syncs: false,
            versions: 2,
            is_relaxed: false,
            fault: None,
            cores: Cores::Own,
            hardware: Hardware::default(),
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
        let names: Vec<String> = order.iter().map(|id| switch((*id).into())).collect();
        let (first, mut links) = match self.in_a_line {
            true => (names[0].as_str(), shapes::line(&names)),
            false => (ROUTER, shapes::star(ROUTER, &names)),
        };
        if !self.in_a_line {
            for (link, id) in links.iter_mut().zip(&order) {
                link.fault = self.fault.map(|fault| Fault {
                    seed: fault.seed.wrapping_mul(31).wrapping_add((*id).into()),
                    ..fault
                });
            }
        }
        let clients: Vec<String> = (1..=self.clients).map(client).collect();
        for (number, host) in clients.iter().enumerate() {
            let at = if self.in_a_line { names[number].as_str() } else { first };
            links.extend(shapes::star(at, [host]));
        }
        let others = self.etcds().into_iter().chain([CONTROL, SERVER].map(String::from));
        let others: Vec<String> = others.collect();
        links.extend(shapes::star(first, &others));
        let hosts: Vec<String> = [clients, others].concat();
        let router = (!self.in_a_line).then(|| Site::switch(ROUTER, vec![]));
        let switches = order.iter().map(|id| agent(*id)).chain(router);
        let hosts = hosts.iter().map(|host| Site::host(host, self.role_of(host)));
        Plan {
            sites: hosts.chain(switches).collect(),
            links,
            hardware: Hardware { is_shared: self.cores == Cores::Shared, ..self.hardware.clone() },
            ..Plan::default()
        }
    }

    /// Hosts of the etcd's members.
    pub fn etcds(&self) -> Vec<String> {
        (1..=self.etcds).map(|number| format!("{ETCD}{number}")).collect()
    }

    fn role_of(&self, host: &str) -> Vec<SeatedRole> {
        let role = match host {
            CONTROL => Role::Control(Control::of(CONTROL)),
            SERVER => {
                let control = Some(control_url(CONTROL));
                Role::Store(Store { control, ..Store::of(SERVER) })
            }
            etcd if etcd.starts_with(ETCD) => Role::Etcd(Etcd {
                address: format!("{{address:{etcd}}}"),
                name: etcd.into(),
                members: self.members_of_etcd(),
                syncs: self.syncs,
            }),
            _ => return vec![],
        };
        vec![role.into()]
    }

    fn members_of_etcd(&self) -> Vec<(String, String)> {
        let all = self.etcds().into_iter();
        let with_address = |host: String| (host.clone(), format!("{{address:{host}}}"));
        all.map(with_address).collect()
    }
}

fn agent(id: u16) -> Site {
    let node = switch(id.into());
    let role = Role::Switch(Switch {
        pages: Some(PAGES),
        no_probes: true,
        says_address: true,
        ..Switch::of(id, &node, control_url(CONTROL))
    });
    Site::switch(node, vec![role.into()])
}
