//! How members learn that a version is committed, and what that costs each of them.

use std::net::SocketAddr;

use chain::{
    packets::{Peer, PeerKind},
    view::Protocol,
};

use super::net::*;

fn written(net: &Net) -> u64 {
    let answer = net.ask(net.write(0, b"value"));
    assert_eq!(answer.header.status, Status::Ok);
    answer.header.version
}

fn each_member_tells_the_one_before_it() {
    let net = Net::ready(4, 2);
    net.packets();
    for seq in 1..4 {
        assert_eq!(written(&net), seq);
        assert_eq!(net.versions(), [(seq, seq); 4]);
        // The write, and word that it is committed; the tail's answer goes round to become that.
        assert_eq!(net.packets(), [2, 2, 2, 2]);
    }
    // What is lost between two of them is lost to those before as well.
    net.lose(|going| going.packet.header.op == Op::ChainAck && going.to == Some(1));
    assert_eq!(written(&net), 4);
    net.lose_nothing();
    assert_eq!(net.versions(), [(4, 3), (4, 3), (4, 4), (4, 4)]);
    // Whoever asks of them is told, and tells those before.
    let ask = net.says(1, 3, Peer::new(PeerKind::Ask), 4, b"");
    assert!(net.send(ask).is_empty());
    assert_eq!(net.versions(), [(4, 4); 4]);
}

fn what_a_member_lacks_those_before_it_are_told() {
    let net = Net::ready(3, 2);
    let ack = |to: usize| {
        let mut ack = net.says(2, to, Peer::new(PeerKind::Ask), 1, b"").version(1);
        ack.value = vec![];
        ack.header.op = Op::ChainAck;
        ack.header.node = to as u16 + 1;
        ack
    };
    net.lose(|going| going.to == Some(1));
    assert!(net.send(net.write(0, b"value")).is_empty());
    net.lose_nothing();
    assert_eq!(net.versions(), [(1, 0), (0, 0), (0, 0)]);
    assert!(net.send(ack(1)).is_empty());
    assert_eq!(net.versions(), [(1, 1), (0, 0), (0, 0)]);
    // The head tells nobody.
    net.packets();
    assert!(net.send(ack(0)).is_empty());
    assert_eq!(net.packets(), [1, 0, 0]);
}

/// Where each answer passes all members, they need no other word.
fn an_answer_that_passes_is_word_enough() {
    for protocol in [Protocol::NetCraq, Protocol::NetChain] {
        let mut net = Net::ready_for(4, 2, protocol);
        net.in_line = true;
        net.packets();
        assert_eq!(written(&net), 1);
        assert_eq!(net.versions(), [(1, 1); 4]);
        let is_told = protocol == Protocol::NetCraq;
        let first = if is_told { [3, 3, 3, 2] } else { [2, 2, 2, 1] };
        assert_eq!(net.packets(), first, "nobody knows yet which way answers go");
        for seq in 2..8 {
            assert_eq!(written(&net), seq);
            assert_eq!(net.versions(), [(seq, seq); 4]);
            assert_eq!(net.packets(), [2, 2, 2, 1]);
        }
    }
}

fn an_answer_that_goes_another_way_now_is_found_out() {
    let mut net = Net::ready(3, 2);
    net.in_line = true;
    written(&net);
    written(&net);
    assert_eq!(net.count("order_round"), 0);
    net.in_line = false;
    assert_eq!(written(&net), 3);
    assert_eq!(net.versions(), [(3, 2), (3, 2), (3, 3)]);
    // The tail is asked, says so, and says it from now on.
    let ask = net.says(1, 2, Peer::new(PeerKind::Ask), 3, b"");
    assert!(net.send(ask).is_empty());
    assert_eq!(net.versions(), [(3, 3); 3]);
    assert_eq!(written(&net), 4);
    assert_eq!(net.versions(), [(4, 4); 3]);
    assert_eq!(net.count("order_round"), 1);
    // Under another number it is found out anew.
    net.in_line = true;
    written(&net);
    written(&net);
    assert_eq!(net.count("order_round"), 0);
    net.view.number += 1;
    net.configure(&[0, 1, 2]);
    net.confirm(&[0, 1, 2]);
    net.settle(&[0, 1, 2]);
    written(&net);
    assert_eq!(net.count("order_round"), 1);
}

fn whoever_watches_is_told_all_the_same() {
    let mut net = Net::ready(3, 2);
    net.in_line = true;
    written(&net);
    net.ask(net.read(0).flags(Flags::GRANT));
    for seq in 2..5 {
        let came = net.send(net.write(0, b"value"));
        assert_eq!((came.len(), net.count("order_watch")), (2, 1));
        assert_eq!(net.versions(), [(seq, seq); 3]);
    }
}

fn only_the_tails_word_of_this_number_counts() {
    let net = Net::ready(3, 2);
    net.lose(|going| going.packet.header.op != Op::PeerMessage);
    let write = net.write(0, b"value");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    let answer = |from: usize, number: u64, status: Status| {
        let mut answer = write.clone().version(1).epoch(Epoch(number));
        answer.value = vec![];
        answer.header.op = Op::ChainWriteReply;
        answer.header.status = status;
        answer.to = write.from;
        answer.from = SocketAddr::new(host(from, false), wire::PORT);
        answer
    };
    let number = net.view.number;
    for (from, number, status) in [
        (1, number, Status::Ok),
        (2, number - 1, Status::Ok),
        (2, number + 1, Status::Ok),
        (2, number, Status::Mismatch),
    ] {
        let came = net.send_by(0, answer(from, number, status));
        assert_eq!(came.len(), 1, "it goes on");
        assert_eq!(net.versions()[0], (1, 0), "{from} {number} {status:?}");
    }
    let came = net.send_by(0, answer(2, number, Status::Ok).version(2));
    assert_eq!((came.len(), net.versions()[0]), (1, (1, 0)), "not here");
    let came = net.send_by(0, answer(2, number, Status::Ok));
    assert_eq!((came.len(), net.versions()[0]), (1, (1, 1)));
}

#[test]
fn acks() {
    in_both!(
        each_member_tells_the_one_before_it,
        what_a_member_lacks_those_before_it_are_told,
        an_answer_that_passes_is_word_enough,
        an_answer_that_goes_another_way_now_is_found_out,
        whoever_watches_is_told_all_the_same,
        only_the_tails_word_of_this_number_counts,
    );
}
