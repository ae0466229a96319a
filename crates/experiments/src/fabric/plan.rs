use lab::topology::{Fault, Link, Node, ProcessSpec, Topology};

use super::{LEASE_MS, OTHER_CPU};

/// The only server.
pub const SERVER: &str = "server";
/// Where controllers listen.
pub const CONTROL_PORT: u16 = 7118;
/// Where etcd listens.
pub(super) const ETCD_PORT: u16 = 2379;
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

/// A lab with tenants as an experiment wants it: switches in a line, clients and controllers at the first, the server at
/// the last. One switch makes a star.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Switches in the line.
    pub switches: usize,
    /// Client hosts, all at the first switch.
    pub clients: usize,
    /// Controllers; more than one keep their state in an etcd.
    pub controllers: usize,
    /// Pages of each switch.
    pub pages: u32,
    /// What the switches do.
    pub discipline: String,
    /// What goes wrong on every link.
    pub fault: Option<Fault>,
    /// Partitions of the store.
    pub partitions: u32,
    /// Requests per second that each partition serves; none: as many as it can.
    pub server_rate: Option<f64>,
    /// Length of a statistics window in milliseconds.
    pub window_ms: u32,
    /// Options added to the controllers' command line.
    pub control_args: Vec<String>,
    /// Options added to the switches' command line.
    pub switch_args: Vec<String>,
}

impl Plan {
    /// A line of switches with one client, one server and one controller.
    pub fn line(switches: usize, pages: u32, discipline: &str) -> Plan {
        Plan {
            switches,
            clients: 1,
            controllers: 1,
            pages,
            discipline: discipline.into(),
            fault: None,
            partitions: 1,
            server_rate: None,
            window_ms: 500,
            control_args: vec![],
            switch_args: vec![],
        }
    }

    /// Where agents and stores find the controllers.
    fn urls(&self) -> String {
        let url = |i| format!("http://{{address:{}}}:{CONTROL_PORT}", control(i));
        (1..=self.controllers)
            .map(url)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Nodes, links and processes, in the order in which they are to be started.
    pub fn topology(&self) -> Topology {
        let with_etcd = self.controllers > 1;
        let mut ends = vec![];
        let mut hosts = vec![];
        // A node's first link gives it its address: hosts have one link only.
        for number in 1..=self.clients {
            hosts.push(node(client(number), vec![]));
            ends.push([client(number), switch(1)]);
        }
        for number in 1..self.switches {
            ends.push([switch(number), switch(number + 1)]);
        }
        ends.push([SERVER.into(), switch(self.switches)]);
        if with_etcd {
            hosts.push(node(ETCD.into(), vec![etcd()]));
            ends.push([ETCD.into(), switch(1)]);
        }
        for number in 1..=self.controllers {
            hosts.push(node(control(number), vec![self.controller(number)]));
            ends.push([control(number), switch(1)]);
        }
        hosts.push(node(SERVER.into(), vec![self.store()]));
        let switches = (1..=self.switches).map(|n| node(switch(n), vec![self.agent(n)]));
        let links = ends.into_iter().zip(0..).map(|(ends, number)| Link {
            ends,
            addresses: None,
            fault: self.fault.map(|fault| Fault {
                seed: fault.seed.wrapping_mul(31).wrapping_add(number),
                ..fault
            }),
            mtu: 1500,
        });
        Topology {
            links: links.collect(),
            switches: switches.collect(),
            hosts,
            ..Topology::default()
        }
    }

    fn controller(&self, number: usize) -> ProcessSpec {
        let state = if self.controllers > 1 {
            format!("etcd://{{address:{ETCD}}}:{ETCD_PORT}/lab")
        } else {
            format!("{{dir}}/{}", control(number))
        };
        let listen = format!("0.0.0.0:{CONTROL_PORT}");
        let window = self.window_ms.to_string();
        // A page holds some 128 items; the limit is there for safety, pages are what counts here.
        let items = (self.pages * 256).clamp(1, 1_000_000).to_string();
        let mut command = words(&["shortstop", "control", "--cluster", "{dir}/cluster.toml"]);
        command.extend(words(&["--state", &state, "--listen", &listen]));
        command.extend(words(&["--insecure", "--name", &control(number)]));
        let url = format!("http://{{address:{}}}:{CONTROL_PORT}", control(number));
        command.extend(words(&["--url", &url]));
        command.extend(words(&["--discipline", &self.discipline]));
        command.extend(words(&["--window-ms", &window, "--max-items", &items]));
        command.extend(self.control_args.iter().cloned());
        process("control", command)
    }

    fn store(&self) -> ProcessSpec {
        let listen = format!("{{address:{SERVER}}}:{}", wire::PORT);
        let socket = format!("{{dir}}/{SERVER}.sock");
        let mut command = words(&["shortstop", "store", "--listen", &listen]);
        command.extend(words(&["--cluster", "{dir}/cluster.toml"]));
        command.extend(words(&["--control", &self.urls()]));
        command.extend(words(&["--lease-ms", &LEASE_MS.to_string()]));
        command.extend(words(&["--status-socket", &socket]));
        if let Some(rate) = self.server_rate {
            command.extend(words(&["--rate-limit", &rate.to_string()]));
            command.extend(words(&["--queue-limit", "64"]));
        }
        ProcessSpec {
            ready: Some(socket),
            cpu: Some(OTHER_CPU),
            ..process("store", command)
        }
    }

    fn agent(&self, number: usize) -> ProcessSpec {
        let name = format!("{{lab}}-{}", switch(number));
        let state = format!("{{dir}}/{}", switch(number));
        let id = number.to_string();
        let pages = self.pages.to_string();
        let mut command = words(&["shortstop", "switch", "--id", &id, "{interfaces}"]);
        command.extend(words(&["--mode", "generic", "--control", &self.urls()]));
        command.extend(words(&["--name", &name, "--state-dir", &state]));
        command.extend(words(&["--pages", &pages]));
        command.extend(self.switch_args.iter().cloned());
        ProcessSpec {
            ready: Some(format!("/sys/fs/bpf/shortstop/{name}")),
            nice: 5,
            ..process("agent", command)
        }
    }
}

fn etcd() -> ProcessSpec {
    let client = format!("http://{{address:{ETCD}}}:{ETCD_PORT}");
    let mut command = words(&["etcd", "--name", "lab", "--data-dir", "{dir}/etcd"]);
    command.extend(words(&["--listen-client-urls", &client]));
    command.extend(words(&["--advertise-client-urls", &client]));
    command.extend(words(&["--listen-peer-urls", "http://127.0.0.1:2380"]));
    command.extend(words(&["--log-level", "error", "--unsafe-no-fsync"]));
    // Every change keeps its old revisions otherwise.
    command.extend(words(&["--auto-compaction-retention", "1"]));
    process("etcd", command)
}

fn node(name: String, processes: Vec<ProcessSpec>) -> Node {
    Node { name, processes }
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| word.to_string()).collect()
}

fn process(name: &str, command: Vec<String>) -> ProcessSpec {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses what it gives: names, links and addresses are checked there.
    fn checked(plan: &Plan) -> Topology {
        let text = toml::to_string(&plan.topology()).unwrap();
        Topology::parse(&text).unwrap()
    }

    #[test]
    fn a_line_has_its_client_first_and_its_server_last() {
        let topology = checked(&Plan::line(3, 20, "some"));
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
        assert_eq!(
            topology.address_of("server").unwrap().octets(),
            [10, 0, 4, 1]
        );
    }

    #[test]
    fn several_controllers_share_an_etcd() {
        let plan = Plan {
            controllers: 3,
            clients: 2,
            ..Plan::line(1, 20, "some")
        };
        let topology = checked(&plan);
        let agent = &topology.switches[0].processes[0];
        let words = topology
            .expand("switch1", &agent.command, "l", "/d")
            .unwrap();
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
        let plan = Plan {
            fault: Some(Fault {
                loss: 0.05,
                seed: 3,
                ..Fault::default()
            }),
            ..Plan::line(2, 20, "some")
        };
        let topology = checked(&plan);
        let seeds: std::collections::HashSet<u64> = topology
            .links
            .iter()
            .map(|link| link.fault.unwrap().seed)
            .collect();
        assert_eq!(seeds.len(), topology.links.len());
    }
}
