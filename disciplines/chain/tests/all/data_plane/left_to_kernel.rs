//! What no program can forward is left to the kernel, addressed to the interface that it came in
//! by: the kernel drops what is for another Ethernet address. [`Net::send`] looks at each such
//! packet.

use std::{net::UdpSocket, time::Duration};

use chain::packets::{Peer, PeerKind, flags};
use dataplane::Mode;
use harness::{
    Switch,
    message::{address, client, secret_of},
    namespace::{across_a_link, in_namespace, ip, sysctl, until},
    switch::ROAD_END,
};

use super::net::*;

/// For how long an answer is waited for before the write is sent again.
const AGAIN: Duration = Duration::from_millis(300);

/// By a client whose Ethernet address no switch knows yet.
fn from_afar(net: &Net, message: Message) -> Message {
    message.with(|m| m.from.set_ip(address(net.six, ROAD_END)))
}

/// Who is answered what, how many of the packets that led to it the kernel had to send on.
fn answers(net: &Net, message: Message) -> (Vec<(IpAddr, Status)>, usize) {
    let came = net.send(message);
    (came.iter().map(|a| (a.from.ip(), a.header.status)).collect(), net.passed.get())
}

fn answers_to_clients_whose_neighbour_is_not_resolved() {
    for six in [false, true] {
        let mut net = Net::with(2, chain::view::Protocol::NetCraq, six);
        for slot in 0..2 {
            net.put_key(slot, 2);
            net.put_session(slot);
        }
        let tail = host(1, six);
        let by_tail = |status| (vec![(tail, status)], 1);
        // To a write, to one that is refused, and to one that comes again.
        let write = from_afar(&net, net.write(0, b"one"));
        assert_eq!(answers(&net, write.clone()), by_tail(Status::Ok));
        assert_eq!(answers(&net, write), by_tail(Status::Ok));
        let refused = net.write_if(0, b"x", Some(wire::VERSION_ABSENT));
        assert_eq!(answers(&net, from_afar(&net, refused)), by_tail(Status::Mismatch));
        // To reads that the first member sends on, which never hears that a version is committed.
        net.lose(|going| going.packet.header.op == Op::ChainAck);
        assert_eq!(answers(&net, from_afar(&net, net.write(0, b"two"))), by_tail(Status::Ok));
        let read = from_afar(&net, net.read(0));
        assert_eq!(answers(&net, read), by_tail(Status::Ok));
        // One that the tail may not answer, for it heard nothing of the other for long.
        net.outlive(1, 0);
        let read = from_afar(&net, net.read(0));
        assert_eq!(answers(&net, read), by_tail(Status::TryAgain));
        // One that comes to a switch which was the tail.
        net.confirm(&[0, 1]);
        let read = from_afar(&net, net.read(0));
        net.view.number += 1;
        net.configure(&[1]);
        assert_eq!(answers(&net, read), by_tail(Status::Moved));
    }
}

/// What went round is addressed to the port that it came back by.
fn words_that_went_round() {
    let net = Net::ready(2, 2);
    let watch = from_afar(&net, net.read(1).flags(Flags::GRANT));
    net.send(watch);
    let (told, passed) = answers(&net, net.write(0, b"one"));
    assert_eq!((told.len(), net.count("order_watch"), passed), (2, 1, 1));
    assert_eq!(net.count("order_round"), 2);
}

fn whatever_has_a_vlan_tag() {
    let net = Net::ready(2, 2);
    // The write to the tail, and the tail's answer.
    let write = net.write(0, b"one").vlan(5);
    assert_eq!(answers(&net, write), (vec![(host(1, false), Status::Ok)], 2));
    assert_eq!(net.count("pass_vlan"), 2);
}

#[test]
fn what_is_left_to_the_kernel_is_addressed_to_it() {
    in_both!(
        answers_to_clients_whose_neighbour_is_not_resolved,
        words_that_went_round,
        whatever_has_a_vlan_tag,
    );
}

/// A write comes to its chain's tail by a real link, at whose far end its client is too. Nobody
/// there knows the client's Ethernet address: the kernel asks for it, and sends the answer.
fn reaches_a_client_that_is_not_known_yet(mode: Mode) {
    in_namespace(move || {
        sysctl("ipv4/ip_forward", "1");
        sysctl("ipv4/conf/all/accept_local", "1");
        sysctl("ipv4/conf/all/rp_filter", "0");
        sysctl("ipv4/conf/default/rp_filter", "0");
        let net = Net::off_roads(2, 2);
        let tail = host(1, false);
        // As the head passes it on; in the client's name, who is to be answered.
        let peer = Peer {
            flags: flags::REPLY | flags::AGAIN,
            session: session_hash(),
            accepted: net.view.number,
            ..Peer::new(PeerKind::Pass)
        };
        let passed = net.says(0, 1, peer, 1, b"one").with(|m| {
            m.header.client = CLIENT;
            m.header.request = net.request();
        });
        let payload = passed.payload();
        let there = move || {
            let far = Switch::load(&[], &[]);
            far.dataplane().attach("in1", mode).expect("attaching");
            ip(&format!("neigh add {tail} lladdr 02:00:00:00:00:02 dev in1 nud permanent"));
            let socket = UdpSocket::bind((client(false).ip(), 40_001)).expect("a socket");
            socket.set_read_timeout(Some(AGAIN)).expect("a timeout");
            let mut bytes = [0; 2048];
            until("the answer comes", || {
                socket.send_to(&payload, (tail, wire::PORT)).expect("sent");
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { return false };
                let packet = Packet::decode(&bytes[..len]).expect("a packet of ours");
                assert_eq!(
                    (packet.header.op, packet.header.status),
                    (Op::ChainWriteReply, Status::Ok)
                );
                assert!(from.ip() == tail && packet.tag_is_valid(&secret_of(TENANT)));
                true
            });
        };
        let here = || {
            ip(&format!(
                "link set lo up
                address add {tail}/32 dev lo
                route add {} dev in0",
                client(false).ip()
            ));
            net.switches[1].switch.dataplane().attach("in0", mode).expect("attaching");
        };
        across_a_link(here, there);
        let passed = net.switches[1].switch.counters.get("pass_no_neighbour").expect("counters");
        assert!(passed > 0);
    });
}

#[test]
fn an_answer_reaches_a_client_that_is_not_known_yet_in_the_driver() {
    reaches_a_client_that_is_not_known_yet(Mode::Native);
}

#[test]
fn an_answer_reaches_a_client_that_is_not_known_yet_in_generic_mode() {
    reaches_a_client_that_is_not_known_yet(Mode::Generic);
}
