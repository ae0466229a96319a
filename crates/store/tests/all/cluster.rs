//! A store before a real Redis Cluster of three masters, as far as that can be asked.

use std::time::Duration;

use lab::port::{self, HeldPort};
use store::Config;
use wire::{Cluster, Scheme};

use super::support::{
    self, StoreThread,
    others::Switch,
    servers::{Process, asked, redis_with, until},
};

/// A node, and the port by which the others reach it.
struct Node {
    process: Process,
    bus: HeldPort,
}

fn node() -> Node {
    let bus = port::held();
    let number = bus.number.to_string();
    let process = redis_with(&["--cluster-enabled", "yes", "--cluster-port", &number]);
    Node { process, bus }
}

/// Three masters that know each other.
fn cluster() -> [Node; 3] {
    let nodes = [(); 3].map(|()| node());
    for (node, slots) in nodes.iter().zip(["0 8000", "8001 12000", "12001 16383"]) {
        asked(&node.process, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        let (to, bus) = (nodes[0].process.port, nodes[0].bus.number);
        asked(&node.process, &format!("CLUSTER MEET 127.0.0.1 {to} {bus}"));
    }
    let knows_all = |node: &Node| {
        let map = asked(&node.process, "CLUSTER NODES");
        let is_whole = ["0-8000", "8001-12000", "12001-16383"].iter().all(|run| map.contains(run));
        is_whole && asked(&node.process, "CLUSTER INFO").contains("cluster_state:ok")
    };
    until("the nodes do not know each other", || nodes.iter().all(knows_all));
    nodes
}

/// How often it was asked for its role.
fn roles(node: &Node) -> u64 {
    let stats = asked(&node.process, "INFO commandstats");
    let calls = stats.split("cmdstat_role:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// It is cut off together with the store: another may be in its place by now.
#[test]
fn a_master_that_answers_alone_has_no_leases_lent_for_long() {
    let nodes = cluster();
    let config = support::with_short_leases();
    let stores = Cluster::single(config.listen, wire::CLUSTER_SLOTS);
    let store = StoreThread::start(Config {
        cluster: Cluster { scheme: Scheme::RedisCluster, ..stores }
            .with_lease_ms(config.cluster.lease_ms),
        backend: format!("redis://127.0.0.1:{}", nodes[0].process.port).parse().unwrap(),
        backend_within: Duration::from_secs(1),
        ..config
    });
    let mut switch = Switch::to(store.address);
    let (_, term) = switch.hold_lease();
    nodes[1..].iter().for_each(|node| node.process.freeze());
    // It answers, again and again, and nothing is lent by that.
    let mut lent_at = roles(&nodes[0]);
    until("leases are lent on and on", || {
        if switch.lease().is_some() {
            lent_at = roles(&nodes[0]);
        }
        roles(&nodes[0]) > lent_at + 20
    });
    nodes[1..].iter().for_each(|node| node.process.thaw());
    let (_, next) = switch.hold_lease();
    assert!(next > term, "it had lapsed: a new term");
}
