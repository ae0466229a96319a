//! Switches in a line, for tenants: the plan that most experiments about tenants have their rig
//! built from, and the names that nodes have in it.

use std::collections::BTreeMap;

use crate::{
    Hardware, OTHER_CPU, Plan, SeatedRole, Site,
    roles::{Control, Data, ETCD_PORT, Etcd, Role, Store, Switch, control_url},
    shapes,
    topology::{Fault, Link},
};

const ETCD: &str = "etcd";

/// Name of client host `number`, from 1.
pub fn client(number: usize) -> String {
    format!("client{number}")
}

/// Name of controller host `number`, from 1.
pub fn control(number: usize) -> String {
    format!("control{number}")
}

/// Name of switch `number`, from 1; also its id.
pub fn switch(number: usize) -> String {
    format!("switch{number}")
}

/// Name of server `number`, from 1: where there is one only, it needs no number.
pub fn server(number: usize) -> String {
    match number {
        1 => "server".into(),
        _ => format!("server{number}"),
    }
}

/// Switches in a line for tenants: clients and controllers at the first, servers at the last.
/// One switch makes a star.
#[derive(Clone, Debug)]
pub struct Line {
    /// Switches in the line.
    pub switches: usize,
    /// Client hosts at the first switch.
    pub clients: usize,
    /// Client hosts at the last switch, numbered after the others.
    pub far_clients: usize,
    /// Servers, each with one partition of the keys.
    pub servers: usize,
    /// Where their data are.
    pub data: Data,
    /// Controllers; more than one keep their state in an etcd.
    pub controllers: usize,
    /// Whether anybody may ask, beside tenants with secrets.
    pub is_open: bool,
    /// Pages of each switch.
    pub pages: u32,
    /// What the switches do.
    pub discipline: String,
    /// What switches and links are in the simulator.
    pub hardware: Hardware,
    /// What goes wrong on every link.
    pub fault: Option<Fault>,
    /// Requests per second that the server takes; none: as many as it can.
    pub server_rate: Option<f64>,
    /// Requests that wait at a partition before it drops more, if its rate is limited.
    pub queue: u32,
    /// Writes of a key within a second from which on it is lent; none: as many as make it worth it.
    pub lend_from: Option<u32>,
    /// Length of a statistics window in milliseconds.
    pub window_ms: u32,
    /// Options added to the controllers' command line.
    pub control_args: Vec<String>,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
    /// Whether switches say their addresses, so that others reach what they keep.
    pub says_addresses: bool,
    /// Options added to the switches' command line.
    pub switch_args: Vec<String>,
}

impl Line {
    /// A line of switches with one client, one server and one controller.
    pub fn of(switches: usize, pages: u32, discipline: &str) -> Line {
        Line {
            switches,
            clients: 1,
            far_clients: 0,
            is_open: false,
            servers: 1,
            data: Data::Own,
            controllers: 1,
            pages,
            discipline: discipline.into(),
            hardware: Hardware::default(),
            fault: None,
            server_rate: None,
            queue: 64,
            lend_from: None,
            window_ms: 500,
            control_args: vec![],
            settings: BTreeMap::new(),
            says_addresses: false,
            switch_args: vec![],
        }
    }

    /// Where agents and stores find the controllers.
    fn urls(&self) -> String {
        let urls: Vec<String> = (1..=self.controllers).map(|n| control_url(&control(n))).collect();
        urls.join(",")
    }

    /// Its nodes, links and roles.
    pub fn plan(&self) -> Plan {
        let switches: Vec<String> = (1..=self.switches).map(switch).collect();
        let (first, last) = (switch(1), switch(self.switches));
        let near: Vec<String> = (1..=self.clients).map(client).collect();
        let far: Vec<String> = (1..=self.far_clients).map(|n| client(self.clients + n)).collect();
        let etcd = (self.controllers > 1).then_some(ETCD);
        let servers: Vec<String> = (1..=self.servers).map(server).collect();
        let controls: Vec<String> = (1..=self.controllers).map(control).collect();
        // A node's first link gives it its address: hosts have one link only.
        let links = [
            shapes::star(&first, &near),
            shapes::star(&last, &far),
            shapes::line(&switches),
            shapes::star(&last, &servers),
            shapes::star(&first, etcd),
            shapes::star(&first, &controls),
        ];
        let links = links.concat().into_iter().zip(0..).map(|(link, number)| Link {
            fault: self.fault.map(|fault| Fault {
                seed: fault.seed.wrapping_mul(31).wrapping_add(number),
                ..fault
            }),
            ..link
        });
        let clients = near.into_iter().chain(far).map(|name| Site::host(name, vec![]));
        let alone = Role::Etcd(Etcd::alone(format!("{{address:{ETCD}}}")));
        let etcd = etcd.map(|name| Site::host(name, vec![alone.into()]));
        let controls =
            (1..=self.controllers).map(|n| Site::host(control(n), vec![self.controller(n)]));
        let servers = servers.iter().map(|name| Site::host(name.clone(), vec![self.store(name)]));
        let switches = (1..=self.switches).map(|n| Site::switch(switch(n), vec![self.agent(n)]));
        Plan {
            sites: clients.chain(etcd).chain(controls).chain(servers).chain(switches).collect(),
            links: links.collect(),
            partitions: self.servers as u32,
            is_open: self.is_open,
            hardware: self.hardware.clone(),
            ..Plan::default()
        }
    }

    fn controller(&self, number: usize) -> SeatedRole {
        let name = control(number);
        let mut role = Control::of(&name);
        if self.controllers > 1 {
            role.state = format!("etcd://{{address:{ETCD}}}:{ETCD_PORT}/lab");
        }
        SeatedRole::from(Role::Control(Control {
            url: Some(control_url(&name)),
            name: Some(name),
            discipline: Some(self.discipline.clone()),
            window_ms: Some(self.window_ms),
            // A page holds some 128 items; the limit is there for safety, pages are what
            // counts here.
            max_items: Some((self.pages as usize * 256).clamp(1, 1_000_000)),
            settings: self.settings.clone(),
            options: self.control_args.clone(),
            ..role
        }))
    }

    fn store(&self, server: &str) -> SeatedRole {
        let store = SeatedRole::from(Role::Store(Store {
            control: Some(self.urls()),
            data: self.data,
            rate_limit: self.server_rate,
            queue_limit: self.server_rate.map(|_| self.queue),
            lend_from: self.lend_from,
            ..Store::of(server)
        }));
        store.on(OTHER_CPU)
    }

    fn agent(&self, number: usize) -> SeatedRole {
        let agent = SeatedRole::from(Role::Switch(Switch {
            pages: Some(self.pages),
            says_address: self.says_addresses,
            options: self.switch_args.clone(),
            ..Switch::of(number as u16, &switch(number), self.urls())
        }));
        agent.nice(5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// Parses what it gives: names, links and addresses are checked there.
    fn checked(line: &Line) -> Topology {
        let text = toml::to_string(&line.plan().topology().unwrap()).unwrap();
        Topology::parse(&text).unwrap()
    }

    #[test]
    fn a_line_has_its_client_first_and_its_server_last() {
        let topology = checked(&Line::of(3, 20, "some"));
        let ends: Vec<[&str; 2]> = topology
            .links
            .iter()
            .map(|link| [link.ends[0].as_str(), link.ends[1].as_str()])
            .collect();
        assert_eq!(
            ends,
            [
                ["client1", "switch1"],
                ["switch1", "switch2"],
                ["switch2", "switch3"],
                ["server", "switch3"],
                ["control1", "switch1"],
            ]
        );
        // Host .1, as stores and clients must be told.
        assert_eq!(topology.address_of("server").unwrap().octets(), [10, 0, 4, 1]);
    }

    #[test]
    fn several_servers_have_numbers_and_a_partition_each() {
        let line = Line { servers: 2, ..Line::of(1, 20, "some") };
        let cluster = line.plan().cluster().unwrap();
        let owned: Vec<[u32; 2]> = cluster.stores.iter().map(|s| [s.first, s.last]).collect();
        assert_eq!((cluster.partitions, owned), (2, vec![[0, 0], [1, 1]]));
        assert!(checked(&line).address_of("server2").is_some());
    }

    #[test]
    fn several_controllers_share_an_etcd() {
        let line = Line { controllers: 3, clients: 2, ..Line::of(1, 20, "some") };
        let topology = checked(&line);
        let agent = &topology.switches[0].processes[0];
        let words = topology.expand("switch1", &agent.command, "l", "/d").unwrap();
        let urls = "http://10.0.5.1:7118,http://10.0.6.1:7118,http://10.0.7.1:7118";
        assert!(words.contains(&urls.to_string()), "{words:?}");
        let started: Vec<&str> = topology
            .hosts
            .iter()
            .flat_map(|host| &host.processes)
            .map(|process| process.name.as_str())
            .collect();
        assert_eq!(started, ["etcd", "control", "control", "control", "store"]);
    }

    #[test]
    fn links_of_one_seed_meet_different_fates() {
        let line = Line {
            fault: Some(Fault { loss: 0.05, seed: 3, ..Fault::default() }),
            ..Line::of(2, 20, "some")
        };
        let topology = checked(&line);
        let seeds: std::collections::HashSet<u64> =
            topology.links.iter().map(|link| link.fault.unwrap().seed).collect();
        assert_eq!(seeds.len(), topology.links.len());
    }
}
