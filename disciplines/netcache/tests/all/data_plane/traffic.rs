//! The sample of who asks whom.

use std::net::{IpAddr, Ipv6Addr};

use dataplane::FlowCount;

use harness::{Message, message::address};

use super::world::*;

fn drained(w: &World) -> Vec<FlowCount> {
    let mut flows = w.switch.traffic.drain().expect("the sample");
    flows.sort_unstable();
    flows
}

fn in_16_bytes(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn flow(tenant: u32, client: IpAddr, ipv6: bool, requests: u64) -> FlowCount {
    FlowCount {
        tenant,
        client: in_16_bytes(client),
        store: in_16_bytes(address(ipv6, 2)),
        requests,
    }
}

/// Requests 1 to 640, ten of which are counted.
fn many(w: &World, message: &Message) {
    for request in 1..=640 {
        w.send(message.clone().numbered(request));
    }
}

#[test]
fn requests_are_counted_by_client_and_store_until_they_are_drained() {
    let mut w = world();
    w.cached(MEASURED, KEY, V128);
    let other = "10.9.9.9".parse().unwrap();
    many(&w, &Message::read(MEASURED, KEY));
    many(&w, &Message::read(MEASURED, b"a miss"));
    many(&w, &Message::read(MEASURED, KEY).sent_by(other));
    many(&w, &Message::write(MEASURED, KEY, b"new").over_ipv6());
    let mut wanted = [
        flow(MEASURED, address(false, 1), false, 1280),
        flow(MEASURED, other, false, 640),
        flow(MEASURED, address(true, 1), true, 640),
    ];
    wanted.sort_unstable();
    assert_eq!(drained(&w), wanted);
    assert_eq!(drained(&w), []);
    many(&w, &Message::read(MEASURED, KEY));
    let again = flow(MEASURED, address(false, 1), false, 640);
    assert_eq!(drained(&w), [again]);
}

#[test]
fn only_admitted_requests_of_measured_tenants_are_counted() {
    let mut w = world();
    w.lease(TERM);
    w.entry(MEASURED, KEY, 128);
    // Replies and what switches and stores say to one another are no requests.
    let grant = w.grant(MEASURED, KEY, V128).numbered(64);
    for (counter, message) in [
        ("miss", Message::read(SIGNED, KEY)),
        ("miss", Message::read(OPEN, KEY)),
        ("bypass_bad_tag", Message::read(MEASURED, KEY).with_a_wrong_tag()),
        ("bypass_unknown_tenant", Message::read(UNKNOWN, KEY)),
        ("grant_installed", grant),
        ("miss", Message::read(MEASURED_LIMITED, KEY).numbered(1)),
        ("drop_over_rate", Message::read(MEASURED_LIMITED, KEY)),
    ] {
        if counter == "drop_over_rate" {
            w.over_rate(MEASURED_LIMITED);
        }
        let message = match message.header.request {
            1 => message,
            _ => message.numbered(64),
        };
        w.send_as(counter, message);
    }
    assert_eq!(drained(&w), []);
}

/// Whoever makes up addresses takes no more memory than there is.
#[test]
fn the_sample_is_bounded() {
    let w = world();
    for n in 0..9000u32 {
        let client = std::net::Ipv4Addr::from(0x0b00_0000 + n);
        w.switch.runner.run(
            &Message::read(MEASURED, KEY).numbered(64).sent_by(client.into()).frame().bytes(),
            None,
            &mut vec![],
        );
    }
    let flows = drained(&w);
    assert!(flows.len() > 1000 && flows.len() <= 8192, "{}", flows.len());
}
