//! Reads.

use dataplane::native::Clock;
use harness::switch::{at_moment, in_this_process, on_roads};

use super::net::*;

fn a_key_without_an_item_is_not_there() {
    let net = Net::new(3, chain::view::Protocol::NetCraq);
    for slot in 0..3 {
        let answer = net.ask(net.read(slot));
        assert_eq!((answer.header.status, answer.header.version), (Status::NotFound, 0));
    }
}

/// Each member has version 1, and only the tail knows that version 2 is committed.
fn dirty(protocol: chain::view::Protocol) -> Net {
    let net = Net::ready_for(3, 2, protocol);
    net.ask(net.write(0, b"one"));
    net.lose(|going| going.packet.header.op == Op::ChainAck);
    net.ask(net.write(0, b"two"));
    net.lose_nothing();
    net
}

fn what_may_not_be_committed_is_the_tails_to_answer() {
    let net = dirty(chain::view::Protocol::NetCraq);
    assert_eq!(net.versions(), [(2, 1), (2, 1), (2, 2)]);
    for slot in 0..3 {
        let answer = net.ask(net.read(slot));
        assert_eq!(answer.from.ip(), host(2, false));
        assert_eq!((answer.header.version, &answer.value[..]), (2, &b"two"[..]));
        // By whom it is asked first, and by nobody else; the tail knows what is committed.
        assert_eq!(net.count("order_dirty"), u64::from(slot < 2));
    }
    // The tail has not got it: nobody answers the newer one, and it is repaired.
    net.lose(|going| going.to == Some(2) && going.packet.header.op == Op::PeerMessage);
    assert!(net.send(net.write(0, b"three")).is_empty());
    net.lose_nothing();
    let answer = net.ask(net.read(0));
    assert_eq!((answer.header.version, &answer.value[..]), (2, &b"two"[..]));
    assert_eq!(net.count("order_nack"), 1);
    assert_eq!(net.versions(), [(3, 3); 3]);
}

fn only_the_tail_answers_in_netchain() {
    let net = dirty(chain::view::Protocol::NetChain);
    for slot in 0..3 {
        let answer = net.ask(net.read(slot));
        assert_eq!((answer.from.ip(), answer.header.version), (host(2, false), 2));
    }
    let listed = |at: usize, members: &[usize]| {
        let hosts: Vec<_> = members.iter().map(|slot| host(*slot, false)).collect();
        let list = chain_wire::encode_list(&hosts);
        net.read(at).value(&list).expiry_ms(members.len() as u32)
    };
    assert_eq!(net.ask(listed(0, &[1, 2])).header.version, 2);
    let moved = net.ask(listed(0, &[2, 1]));
    assert_eq!(net.route_in(&moved).members.len(), 3);
    assert_eq!(net.ask(listed(1, &[1, 2])).header.status, Status::Moved);
    assert_eq!(net.ask(listed(0, &[1])).header.status, Status::Moved);
}

fn a_relaxed_read_is_answered_with_what_is_newest_here_where_its_tenant_may() {
    use chain::view::Protocol::{NetChain, NetCraq};
    let ask = |net: &Net, slot: usize| {
        let answer = net.ask(net.read(slot).flags(Flags::COMPARE));
        (answer.from.ip(), answer.header.version, answer.value.clone())
    };
    let relaxed = |protocol| {
        let mut net = dirty(protocol);
        net.view.is_relaxed = true;
        net.configure(&[0, 1, 2]);
        net.lose(|going| going.to == Some(1) && going.packet.header.op == Op::PeerMessage);
        assert!(net.send(net.write(0, b"three")).is_empty());
        net.lose_nothing();
        net
    };
    let net = relaxed(NetCraq);
    assert_eq!(net.versions(), [(3, 1), (2, 1), (2, 2)]);
    assert_eq!(ask(&net, 0), (host(0, false), 3, b"three".to_vec()), "nobody else has it");
    assert_eq!((net.count("order_dirty"), net.count("order_relaxed")), (1, 1));
    assert_eq!(ask(&net, 1), (host(1, false), 2, b"two".to_vec()));
    assert_eq!(ask(&net, 2), (host(2, false), 2, b"two".to_vec()));
    assert_eq!(net.count("order_relaxed"), 0, "it is committed there");
    // Who does not ask for it, or wants to be told of what follows, is answered by the tail.
    let watched = net.ask(net.read(1).flags(Flags::COMPARE.with(Flags::GRANT)));
    for answer in [watched, net.ask(net.read(1))] {
        assert_eq!((answer.from.ip(), answer.header.version), (host(2, false), 2));
    }
    // Neither do members of NetChain, nor those whose tenant may not.
    assert_eq!(ask(&relaxed(NetChain), 1), (host(2, false), 2, b"two".to_vec()));
    assert_eq!(ask(&dirty(NetCraq), 1), (host(2, false), 2, b"two".to_vec()));
    // Without a lease nobody answers, what is asked for whatever it is.
    let net = relaxed(NetCraq);
    net.outlive(1, 2);
    let answer = net.ask(net.read(1).flags(Flags::COMPARE));
    assert_eq!(answer.header.status, Status::TryAgain);
}

/// In either protocol: who sends a read on and knows what is committed needs no word of it, however
/// long ago it was written.
fn a_read_that_is_sent_on_asks_for_word_of_what_is_dirty_for_long_only() {
    let read_later = |net: &Net| {
        let clock = || net.switches[0].switch.leases.now_ns();
        let old_ns = clock() + 10_000_000;
        while clock() < old_ns {
            std::thread::yield_now();
        }
        assert_eq!(net.ask(net.read(0)).header.status, Status::Ok);
        (net.count("order_read_on"), net.count("order_round"))
    };
    let mut net = Net::ready_for(3, 2, chain::view::Protocol::NetChain);
    net.in_line = true;
    net.ask(net.write(0, b"one"));
    assert_eq!(net.versions(), [(1, 1); 3]);
    assert_eq!(read_later(&net), (1, 0));
    let net = dirty(chain::view::Protocol::NetCraq);
    assert_eq!(net.versions(), [(2, 1), (2, 1), (2, 2)]);
    assert_eq!(read_later(&net), (1, 1));
    assert_eq!(net.versions()[0], (2, 2));
}

fn nobody_answers_without_a_lease_of_each_other_member() {
    let net = Net::ready(3, 1);
    net.ask(net.write(0, b"one"));
    net.outlive(1, 2);
    assert_eq!(net.ask(net.read(0)).value, b"one");
    let answer = net.ask(net.read(1));
    assert_eq!(answer.header.status, Status::TryAgain);
    assert_eq!(net.count("order_no_lease"), 1);
    // Either of both renews it in both directions.
    net.send(net.beat(2, 1));
    assert_eq!(net.ask(net.read(1)).value, b"one");
    net.outlive(1, 2);
    net.send(net.beat(1, 2));
    assert_eq!(net.ask(net.read(1)).value, b"one");
    // Writes need none.
    net.outlive(2, 0);
    net.outlive(0, 1);
    assert_eq!(net.ask(net.write(0, b"two")).header.status, Status::Ok);
}

fn whoever_asks_elsewhere_is_told_where() {
    let net = Net::ready(3, 1);
    let old = net.read(1).epoch(Epoch(net.view.number - 1));
    let route = net.route_in(&net.ask(old));
    assert_eq!((route.number, route.position, route.protocol), (net.view.number, Some(1), 1));
    let hosts: Vec<_> = (0..3).map(|slot| host(slot, false)).collect();
    assert_eq!((route.members, route.chain, route.chains), (hosts, 0, 1));
    let ahead = net.read(1).epoch(Epoch(net.view.number + 1));
    assert_eq!(net.ask(ahead).header.status, Status::TryAgain);
    assert_eq!(net.ask(net.write(1, b"v")).header.status, Status::Moved, "no head");
    let narrow = net.read(0).padded(1);
    assert_eq!(net.ask(narrow).header.status, Status::NotFound);
}

fn a_member_answers_what_passes_by_if_it_may() {
    let net = Net::ready(3, 1);
    net.ask(net.write(0, b"one"));
    let came = net.send_by(1, net.read(0));
    assert_eq!((came.len(), &came[0].value[..]), (1, &b"one"[..]));
    assert_eq!(came[0].from.ip(), host(0, false), "in its name");
    assert_eq!(net.count("forward"), 0);
    // What it does not know, may not answer, or is none of its business, goes on.
    net.lose(|going| going.packet.header.op == Op::ChainAck);
    net.ask(net.write(0, b"two"));
    net.lose_nothing();
    let came = net.send_by(1, net.read(0));
    assert_eq!((came.len(), &came[0].value[..]), (1, &b"two"[..]));
    assert_eq!(came[0].from.ip(), host(2, false));
    let came = net.send_by(1, net.write(0, b"three"));
    assert_eq!((came.len(), came[0].header.version), (1, 3));
}

/// Whoever asks says that another switch has sent the read on, which knows of newer versions.
fn made_up_versions() {
    let net = Net::ready(2, 2);
    net.ask(net.write(0, b"one"));
    let ask_for_newer = |_| {
        let read = net.read(1).version(99).with(|read| read.header.node = 1);
        assert_eq!(net.ask(read).header.version, 1);
        net.count("order_nack")
    };
    let nacks: u64 = at_moment(Clock::Boot.now_ns(), || (0..50).map(ask_for_newer).sum());
    assert_eq!(nacks, 1);
}

#[test]
fn of_made_up_versions_a_tail_asks_the_member_before_it_as_seldom_as_of_lost_ones() {
    on_roads(|| in_this_process(made_up_versions));
}

#[test]
fn reads() {
    in_both!(
        a_key_without_an_item_is_not_there,
        what_may_not_be_committed_is_the_tails_to_answer,
        only_the_tail_answers_in_netchain,
        a_relaxed_read_is_answered_with_what_is_newest_here_where_its_tenant_may,
        a_read_that_is_sent_on_asks_for_word_of_what_is_dirty_for_long_only,
        nobody_answers_without_a_lease_of_each_other_member,
        whoever_asks_elsewhere_is_told_where,
        a_member_answers_what_passes_by_if_it_may,
    );
}
