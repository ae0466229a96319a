//! The same rack otherwise: in native mode, and over IPv6.

use super::{
    echo::stream,
    support::{Kind, Rack, SERVER, SERVER_V6, needs_root},
    xdp::attach_pass,
};

lab::on_both!(a_store_on_ipv6_is_cached_too);

#[test]
fn native_mode_answers_and_forwards() {
    needs_root();
    let mut rack =
        Rack::build(Kind::Kernel, &[("\"--mode\", \"generic\"", "\"--mode\", \"native\"")]);
    // A veth takes in what is redirected to it only if its far end polls; any native program
    // makes it.
    let far_ends = ["client1", "client2", "server"];
    let _programs = far_ends.map(|host| attach_pass(&rack.lab.namespace(host), "eth0", true));
    rack.start();
    let links = rack.done("switch", &["ip", "link"]);
    assert!(links.contains(" xdp ") && !links.contains("xdpgeneric"), "{links}");

    assert_eq!(rack.until_cached("client1", "key0000000000004").value.unwrap().len(), 128);
    let version = rack.set("client2", "key0000000000004", "new");
    let got = rack.get("client1", "key0000000000004");
    assert_eq!((got.value.as_deref(), got.version), (Some("new"), version));
    // Larger than the request: the client has to pad it, and the reply fits into the padding.
    for len in [1usize, 300, 1000] {
        let value = "x".repeat(len);
        rack.set("client1", &format!("long{len}"), &value);
        for host in ["client1", "client2"] {
            assert_eq!(rack.until_cached(host, &format!("long{len}")).value.unwrap(), value);
        }
    }
    let (client, server) = (rack.lab.namespace("client1"), rack.lab.namespace("server"));
    for address in [SERVER, SERVER_V6] {
        rack.done("client1", &["ping", "-c", "3", "-i", "0.2", "-w", "60", address]);
        rack.done("client2", &["ping", "-c", "3", "-i", "0.2", "-w", "60", "-s", "4000", address]);
        stream(
            &client,
            &server,
            (address.parse::<std::net::IpAddr>().unwrap(), 0).into(),
            5_000_000,
        );
    }
}

fn a_store_on_ipv6_is_cached_too(kind: Kind) {
    needs_root();
    let there = format!("[{SERVER_V6}]:7117");
    let rack = Rack::with(kind, &[("{address:server}:7117", &there)]);
    let value = rack.until_cached("client1", "key0000000000004").value;
    assert_eq!(value.unwrap(), "key0000000000004".repeat(8));
    for round in 0..20 {
        let version = rack.set("client1", "six", &round.to_string());
        let got = rack.get("client2", "six");
        assert_eq!((got.value, got.version), (Some(round.to_string()), version));
    }
    rack.until_cached("client2", "six");
    assert!(rack.delete("client1", "six"));
    assert_eq!(rack.get("client2", "six").value, None);
    let server = ["shortstop", "get", "--server", SERVER_V6, "--partitions", "128"];
    let said = rack.done("client1", &[&server[..], &["key0000000000004"]].concat());
    assert!(said.contains("key0000000000004"), "{said}");
}
