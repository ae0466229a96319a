use std::net::SocketAddr;

use anyhow::Context;
use wire::{Cluster, PORT};

use super::LEASE_MS;
use crate::{Experiment, fabric::CONTROL_PORT};
use lab::topology::{Fault, Link, Node, ProcessSpec, Topology};

/// The switch that one client host goes around, and the one on every path.
pub(super) const FIRST: &str = "switch1";
pub(super) const SECOND: &str = "switch2";
/// The detour between the two.
const THIRD: &str = "switch3";
/// The ids and names of all of them.
pub(super) const SWITCHES: [(u16, &str); 3] = [(1, FIRST), (2, SECOND), (3, THIRD)];
pub(super) const SERVER: &str = "server";
pub(super) const CONTROL: &str = "control";
pub(super) const CLIENT_HOSTS: [&str; 2] = ["client1", "client2"];
/// Index of the link that is cut: between the two switches of the line.
pub(super) const CUT: usize = 0;

/// client1 - switch1 - switch2 - server; client2 - switch2, around the first switch; switch1 - switch3 - switch2, a detour.
/// The controller has a link of its own to each switch. Every link is faulty.
const LINKS: [(&str, &str); 9] = [
    (FIRST, SECOND),
    (SECOND, SERVER),
    ("client1", FIRST),
    ("client2", SECOND),
    (FIRST, THIRD),
    (THIRD, SECOND),
    (CONTROL, FIRST),
    (CONTROL, SECOND),
    (CONTROL, THIRD),
];

/// The topology with all of its processes, and the cluster without tenants.
///
/// # Errors
/// A node without an address.
pub(super) fn layout(
    experiment: &Experiment,
    items: usize,
    seed: u64,
) -> anyhow::Result<(Topology, Cluster)> {
    let mut topology = links(seed);
    let address = topology.address_of(SERVER);
    let address = address.context("a server without an address")?;
    let cluster = Cluster::single(SocketAddr::new(address.into(), PORT), 4);
    topology
        .files
        .insert("cluster.toml".into(), cluster.to_toml());
    let bare = topology.clone();
    for node in topology.hosts.iter_mut().chain(&mut topology.switches) {
        node.processes = processes(&node.name, &bare, experiment, items);
    }
    Ok((topology, cluster))
}

fn links(seed: u64) -> Topology {
    let node = |name: &&str| Node {
        name: name.to_string(),
        processes: vec![],
    };
    let link = |(i, (a, b)): (usize, &(&str, &str))| Link {
        ends: [a.to_string(), b.to_string()],
        addresses: None,
        fault: Some(Fault {
            loss: 0.05,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_ms: 3.0,
            delay_ms: 0.0,
            seed: seed.wrapping_mul(31).wrapping_add(i as u64),
        }),
        mtu: 1500,
    };
    let hosts = [CONTROL, SERVER, "client1", "client2"];
    Topology {
        hosts: hosts.iter().map(node).collect(),
        switches: [SECOND, FIRST, THIRD].iter().map(node).collect(),
        links: LINKS.iter().enumerate().map(link).collect(),
        ..Topology::default()
    }
}

/// The controller as seen from this switch: over the link that the two have for themselves.
fn control_from(switch: &str, topology: &Topology) -> String {
    let ends = topology.interfaces();
    let own = ends
        .iter()
        .find(|[a, b]| a.node == CONTROL && b.node == switch);
    let address = own.map_or_else(String::new, |[control, _]| control.v4.to_string());
    format!("http://{address}:{CONTROL_PORT}")
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| word.to_string()).collect()
}

fn process(name: &str, command: Vec<String>, ready: Option<&str>) -> ProcessSpec {
    ProcessSpec {
        name: name.into(),
        command,
        cpu: None,
        nice: 0,
        ready: ready.map(String::from),
        settled: None,
        autostart: true,
    }
}

fn processes(
    node: &str,
    topology: &Topology,
    experiment: &Experiment,
    items: usize,
) -> Vec<ProcessSpec> {
    match node {
        SERVER => vec![redis(), store(topology)],
        CONTROL => vec![controller(experiment, items)],
        _ => {
            let id = SWITCHES.iter().find(|(_, name)| *name == node);
            id.map(|(id, _)| agent(&id.to_string(), node, topology))
                .into_iter()
                .collect()
        }
    }
}

fn agent(id: &str, node: &str, topology: &Topology) -> ProcessSpec {
    let mut command = words(&["shortstop", "switch", "--id", id, "{interfaces}"]);
    let control = control_from(node, topology);
    command.extend(words(&["--mode", "generic", "--control", &control]));
    let (name, state) = (format!("{{lab}}-{node}"), format!("{{dir}}/{node}"));
    command.extend(words(&["--name", &name, "--state-dir", &state]));
    let pinned = format!("/sys/fs/bpf/shortstop/{name}");
    process("agent", command, Some(&pinned))
}

/// Data must outlive the store: a real server behind it.
fn redis() -> ProcessSpec {
    let command =
        "redis-server --port 0 --unixsocket {dir}/data --save  --appendonly no --dir {dir}";
    let command = command.split(' ').map(String::from).collect();
    process("redis", command, Some("{dir}/data"))
}

fn store(topology: &Topology) -> ProcessSpec {
    let mut command = words(&["shortstop", "store", "--listen"]);
    command.push(format!("{{address:{SERVER}}}:{PORT}"));
    command.extend(words(&["--cluster", "{dir}/cluster.toml"]));
    // The switch beside the store leads to the controller.
    command.extend(words(&["--control", &control_from(SECOND, topology)]));
    command.extend(words(&["--backend", "redis+unix://{dir}/data"]));
    command.extend(words(&["--lease-ms", &LEASE_MS.to_string()]));
    command.extend(words(&["--status-socket", "{dir}/store.sock"]));
    process("store", command, Some("{dir}/store.sock"))
}

/// The limit of items comes last: it is changed when the controller is killed.
fn controller(experiment: &Experiment, items: usize) -> ProcessSpec {
    let mut command = words(&["shortstop", "control", "--cluster", "{dir}/cluster.toml"]);
    let listen = format!("0.0.0.0:{CONTROL_PORT}");
    command.extend(words(&["--state", "{dir}/control", "--listen", &listen]));
    command.extend(words(&["--insecure", "--window-ms", "200"]));
    command.extend(words(&["--discipline", &experiment.discipline]));
    command.extend(words(&["--max-items", &items.to_string()]));
    process("control", command, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_has_its_own_way_to_the_controller() {
        let (topology, _) = layout(&crate::coherence("some", "other"), 4, 1).unwrap();
        let parsed = Topology::parse(&toml::to_string(&topology).unwrap()).unwrap();
        let urls: Vec<&String> = parsed
            .switches
            .iter()
            .flat_map(|switch| &switch.processes[0].command)
            .filter(|word| word.starts_with("http://"))
            .collect();
        assert_eq!(
            urls,
            [
                "http://10.0.8.1:7118",
                "http://10.0.7.1:7118",
                "http://10.0.9.1:7118"
            ]
        );
        assert_eq!(
            parsed.links[CUT].ends,
            [FIRST.to_string(), SECOND.to_string()]
        );
    }
}
