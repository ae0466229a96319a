//! What the test that types the guides knows of chains, and how their page is typed. A part of
//! `lab/shortstop-lab/tests/all/guides`, which names no discipline.

use super::network::{MachineSpec, Network, as_it_stands};

/// The page.
pub const PAGE: &str = "docs/coordination.md";
/// The group of its commands.
pub const GROUP: &str = "coord";
/// Those of the group that go on until they are ended.
pub const LASTING: [&str; 2] = ["watch", "elect"];

/// Three switches in a row, as docs/coordination.md describes them, and a client.
const CHAIN: &[MachineSpec] = &[
    ("client", &[("clients", "10.0.1.1/24")]),
    ("switch1", &[("clients", "10.0.1.254/24"), ("first", "10.0.12.1/24")]),
    ("switch2", &[("first", "10.0.12.2/24"), ("second", "10.0.23.2/24")]),
    ("switch3", &[("second", "10.0.23.3/24")]),
];

/// The readers' own programs, and routes between them, are there before.
#[test]
fn switches_keep_keys_among_them() {
    let mut network = Network::new("coordination", CHAIN);
    // The first write has five seconds, in which no busy machine is to load programs.
    for switch in ["switch1", "switch2", "switch3"] {
        network.on(switch).just_booted();
    }
    network.on("switch1").script("ip route replace 10.0.23.0/24 via 10.0.12.2");
    network.on("switch2").script("ip route replace 10.0.1.0/24 via 10.0.12.1");
    network.on("switch3").script("ip route replace default via 10.0.23.2");
    network.on("client").script(
        "for name in report scheduler; do \
         printf '#!/bin/sh\\necho token $SHORTSTOP_FENCE\\nsleep 1\\n' >/usr/local/bin/$name; \
         chmod 755 /usr/local/bin/$name; done",
    );
    network.follow(PAGE, "switch1", as_it_stands);
    let told = network.on("client").heard_of("watch");
    assert!(told.contains("10.0.0.9"), "{told}");
}
