//! Spoiled packets: each comes to one end, and none changes a record, or what is known of others.

use chain::packets::{Peer, PeerKind};
use harness::noise::{every_way, noise};

use super::net::*;

const PACKETS: u32 = 30_000;

fn spoiled_packets_come_to_one_end_and_change_nothing() {
    let net = Net::ready(3, 1);
    net.ask(net.write(0, b"one"));
    // Towards the member in the middle, which has every part but the head's; and the head.
    let says = |kind, from| {
        let peer = Peer { session: session_hash(), ..Peer::new(kind) };
        net.says(from, 1, peer, 2, b"value")
    };
    let ack = Message { value: vec![], ..says(PeerKind::Ask, 2) };
    let mut ack = ack.version(1);
    ack.header.op = Op::ChainAck;
    ack.header.node = 2;
    let kinds = [
        net.read(1),
        net.write(1, b"value"),
        says(PeerKind::Pass, 0),
        says(PeerKind::Lost, 0),
        says(PeerKind::Nack, 2),
        says(PeerKind::Ask, 0),
        says(PeerKind::Copy, 0),
        says(PeerKind::CopySession, 0),
        net.beat(0, 1),
        ack,
    ];
    let w = &net.switches[1];
    let tables = || ["buckets", "pages"].map(|name| w.switch.snapshot(name));
    let before = (tables(), net.state(1));
    let ends = noise(w, &every_way(&kinds), PACKETS, None);
    assert!(before == (tables(), net.state(1)), "a table has changed");
    assert!(ends.contains_key("bypass_bad_tag") || ends.contains_key("forward"), "{ends:?}");
    let head = &net.switches[0];
    let kinds = [net.write(0, b"value"), net.delete(0), net.read(0)];
    let pages = || head.switch.snapshot("pages");
    let before = pages();
    noise(head, &every_way(&kinds), PACKETS, None);
    assert!(before == pages(), "a record has changed");
    assert_eq!(net.ask(net.write(0, b"two")).header.version, 2);
}

#[test]
fn malformed() {
    in_both(&[(
        "spoiled packets come to one end and change nothing",
        spoiled_packets_come_to_one_end_and_change_nothing,
    )]);
}
