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

/// Where nobody has a secret, nothing but its checksum says that a packet is as it was sent.
fn a_flipped_bit_makes_no_other_word_of_one_where_there_are_no_secrets() {
    let net = Net::ready(3, 2);
    net.ask(net.write(0, b"one"));
    // Two more are on their way, and not committed.
    net.lose(|going| going.to == Some(2));
    let writes = [net.write(0, b"two"), net.write(0, b"three")];
    assert!(writes.iter().all(|write| net.send(write.clone()).is_empty()));
    net.lose_nothing();
    net.know_no_secrets();
    let says = |kind, from, to| net.says(from, to, Peer::new(kind), 1, b"");
    let mut ack = Message { value: vec![], ..says(PeerKind::Ask, 2, 1) };
    (ack.header.op, ack.header.node) = (Op::ChainAck, 2);
    let mut answer = Message { value: vec![], padding: 0, ..writes[0].clone().version(1) };
    answer.header.op = Op::ChainWriteReply;
    (answer.to, answer.from) = (writes[0].from, says(PeerKind::Ask, 2, 1).from);
    answer.from.set_port(wire::PORT);
    let words = [
        (1, ack, "order_ack"),
        (0, answer, "order_ack"),
        (1, says(PeerKind::Nack, 2, 1), "order_stream"),
        (2, says(PeerKind::Ask, 1, 2).version(3), "order_nack"),
    ];
    let versions = net.versions();
    assert_eq!(versions, [(3, 1), (3, 1), (1, 1)]);
    for (at, message, counter) in words {
        let message = message.signed_with(Secret::NONE);
        let frame = message.frame().bytes();
        let payload = frame.len() - wire::HEADER_LEN - KEY.len() - message.value.len();
        for bit in payload * 8..frame.len() * 8 {
            let mut frame = frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            let run = net.switches[at].switch.run(&frame, None);
            let does = ["order_ack", "order_nack", "order_stream"];
            let did = does.into_iter().find(|name| run.moved.contains_key(name));
            assert_eq!(did, None, "{:?}, bit {}", message.header.op, bit - payload * 8);
            assert_eq!(net.versions(), versions, "bit {}", bit - payload * 8);
        }
        let run = net.switches[at].switch.run(&frame, None);
        assert!(run.moved.contains_key(counter), "{:?}: {:?}", message.header, run.moved);
    }
}

#[test]
fn malformed() {
    in_both!(
        spoiled_packets_come_to_one_end_and_change_nothing,
        a_flipped_bit_makes_no_other_word_of_one_where_there_are_no_secrets,
    );
}
