//! Traffic that is not ours crosses the switch unharmed.

use std::net::SocketAddr;

use super::{
    echo::{Caller, Echo, stream},
    support::{Kind, Rack, SERVER, SERVER_V6, needs_root},
};

lab::on_both!(
    pings_streams_and_datagrams_cross_the_switch,
    strangers_on_our_port_cross_too,
    jumbo_frames_cross
);

const FAMILIES: [&str; 2] = [SERVER, SERVER_V6];

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

fn ping(rack: &Rack, address: &str, len: &str, more: &[&str]) {
    let words = [&["ping", "-c", "3", "-i", "0.2", "-w", "60", "-s", len], more, &[address]];
    rack.done("client1", &words.concat());
}

fn pings_streams_and_datagrams_cross_the_switch(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let (client, server) = (rack.lab.namespace("client1"), rack.lab.namespace("server"));
    for address in FAMILIES {
        ping(&rack, address, "56", &[]);
        // In fragments.
        ping(&rack, address, "4000", &[]);
        stream(&client, &server, at(address, 0), 50_000_000);
        stream(&server, &client, at(&address.replace('3', "1"), 0), 1_000_000);

        let _echo = Echo::start(&server, at(address, 9));
        let mut caller = Caller::new(&client, at(address, 9));
        for len in [4, 64, 1400, 1472, 4000, 20_000, 60_000] {
            (0..20).for_each(|_| caller.round_trip(len));
        }
    }
    // The rack still answers, and the switch has counted what was not its business; a soft one
    // never sees it.
    rack.until_cached("client1", "key0000000000001");
    assert_eq!(rack.count("pass_not_ours") > 0, kind == Kind::Kernel);
}

fn strangers_on_our_port_cross_too(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let (client, other) = (rack.lab.namespace("client1"), rack.lab.namespace("client2"));
    for address in ["10.0.2.1", "fd00:0:0:2::1"] {
        let _echo = Echo::start(&other, at(address, wire::PORT));
        let mut caller = Caller::new(&client, at(address, wire::PORT));
        for len in [4, 63, 64, 200, 1472, 20_000] {
            (0..5).for_each(|_| caller.round_trip(len));
        }
    }
    assert!(rack.count("pass_other_magic") > 0);
}

fn jumbo_frames_cross(kind: Kind) {
    needs_root();
    let jumbo = |ends: &str| format!("{ends}\nmtu = 9000");
    let links = ["ends = [\"client1\", \"switch\"]", "ends = [\"server\", \"switch\"]"];
    let larger = links.map(jumbo);
    let rack = Rack::with(kind, &[(links[0], &larger[0]), (links[1], &larger[1])]);
    let (client, server) = (rack.lab.namespace("client1"), rack.lab.namespace("server"));
    for address in FAMILIES {
        // Whole, not in fragments: 8900 bytes and headers.
        ping(&rack, address, "8900", &["-M", "do"]);
        stream(&client, &server, at(address, 0), 20_000_000);
        let _echo = Echo::start(&server, at(address, 9));
        let mut caller = Caller::new(&client, at(address, 9));
        for len in [1472, 3600, 8900, 30_000] {
            (0..10).for_each(|_| caller.round_trip(len));
        }
    }
    rack.until_cached("client1", "key0000000000001");
    rack.until_cached("client2", "key0000000000001");
}
