//! README, from the demo to the last command, on a router between two stores and a client.

use super::{
    network::{Network, README},
    page::Step,
};

/// A Redis beside each store, as README has it: as Debian starts it, on loopback.
pub fn start_redis(network: &mut Network) {
    for store in ["store1", "store2"] {
        network.on(store).start("redis-server --port 6379 --save ''");
    }
}

/// What README says in words: the second store is started as the first, and the client reads until
/// the switch answers. What is written for a while is written for good as well.
pub fn in_words(network: &mut Network, step: &Step) -> bool {
    let Step::Line { text, .. } = step else { return false };
    if let Some((lasting, _)) = text.split_once(" --ttl ") {
        network.until_said("client", text, "");
        // And once more for good: busy machines read it when its life is over.
        network.until_said("client", lasting, "");
        return true;
    }
    if text.starts_with("shortstop store") {
        network.typed("store1", text);
        network.typed("store2", &text.replace("--listen 10.0.2.1:7117", "--listen 10.0.2.2:7117"));
        return true;
    }
    if text.starts_with("shortstop get") {
        let first = network.typed("client", text);
        assert!(first.contains("\"from\":\"") && first.contains("Ada"), "{first}");
        network.until_said("client", text, "\"from\":\"switch\"");
        return true;
    }
    false
}

#[test]
fn readme_can_be_typed() {
    let mut network = Network::new("readme", README);
    start_redis(&mut network);
    network.on("switch").just_booted();
    // What `make demo` has built.
    let programs = "mkdir -p target/debug && ln -s /usr/local/bin/shortstop* target/debug/";
    network.typed("switch", programs);
    network.follow("README.md", "switch", |network, step| {
        if let Step::Line { text, .. } = step {
            if text.starts_with("target/debug/shortstop-lab up rack") {
                let said = network.typed("switch", text);
                let exec = "  target/debug/shortstop-lab exec";
                let hints = said.lines().filter(|line| line.starts_with(exec));
                let hints: Vec<&str> = hints.collect();
                assert!(hints.len() >= 4, "{said}");
                for hint in hints {
                    network.typed("switch", hint);
                }
                return true;
            }
            // The sockets of Redis clients.
            if text.starts_with("shortstop gateway") {
                network.typed("client", text);
                let said = network.typed("client", "redis-cli -p 6380 get user:42");
                assert_eq!(said.trim(), "Ada");
                return true;
            }
            if text == "shortstop switch status" {
                let said = network.typed("switch", text);
                for part in ["items", "reads", "lease", "counters"] {
                    assert!(said.contains(part), "{part} is not in\n{said}");
                }
                return true;
            }
        }
        in_words(network, step)
    });
    // Caching is off, and the kernel forwards.
    let get = "shortstop get --cluster /etc/shortstop/cluster.toml user:42 --json";
    let said = network.typed("client", get);
    assert!(said.contains("\"from\":\"store\""), "{said}");
    let said = network.typed("switch", "shortstop switch status");
    assert!(said.contains("no switch"), "{said}");
}
