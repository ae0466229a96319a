//! Writes: from the head to the tail, and back to whoever is to know.

use chain::{
    packets::{Peer, PeerKind},
    view::Protocol,
};

use chain_wire::session_key;
use dataplane::TenantEntry;
use harness::message::secret_of;

use super::net::*;

fn a_write_goes_down_the_chain_and_is_committed() {
    let net = Net::ready(3, 1);
    let write = net.write(0, b"a value of odd length");
    let request = write.header.request;
    let answer = net.ask(write);
    assert_eq!(answer.header.op, Op::ChainWriteReply);
    assert_eq!((answer.header.status, answer.header.version), (Status::Ok, 1));
    assert_eq!(answer.from.ip(), host(2, false), "the tail answers");
    assert_eq!(net.versions(), [(1, 1), (1, 1), (1, 1)], "all know that it is clean");
    for slot in 0..3 {
        let wanted = version(1, request, b"a value of odd length");
        assert_eq!(net.record(slot).version(1), Some(&wanted));
        let note = net.session(slot).notes[(request % 16) as usize];
        assert_eq!((note.request, note.seq, note.refused), (request, 1, None));
    }
    for slot in 0..3 {
        let answer = net.ask(net.read(slot));
        assert_eq!((answer.header.op, answer.header.status), (Op::ChainReadReply, Status::Ok));
        assert_eq!((answer.header.version, &answer.value[..]), (1, &b"a value of odd length"[..]));
        assert_eq!(answer.from.ip(), host(slot, false), "each answers");
    }
}

fn a_chain_of_one_answers_by_itself() {
    let net = Net::ready(1, 0);
    for n in 1..4 {
        let answer = net.ask(net.write(0, b"value"));
        assert_eq!((answer.header.status, answer.header.version), (Status::Ok, n));
    }
    assert_eq!(net.versions(), [(3, 3)]);
}

fn over_ipv6_too() {
    let mut net = Net::with(2, Protocol::NetCraq, true);
    for slot in 0..2 {
        net.put_key(slot, 2);
        net.put_session(slot);
    }
    let answer = net.ask(net.write(0, b"value"));
    assert_eq!(answer.header.status, Status::Ok);
    assert_eq!(net.versions(), [(1, 1), (1, 1)]);
    assert_eq!(net.ask(net.read(0)).value, b"value");
}

/// Status and version of the answer.
fn outcome(net: &Net, message: Message) -> (Status, u64) {
    let answer = net.ask(message);
    (answer.header.status, answer.header.version)
}

fn conditions_hold_or_the_refusal_is_remembered_by_all() {
    let net = Net::ready(3, 2);
    let absent = Some(wire::VERSION_ABSENT);
    let present = Some(wire::VERSION_PRESENT);
    let refused = net.write_if(0, b"v", present);
    assert_eq!(outcome(&net, refused.clone()), (Status::Mismatch, 0));
    assert_eq!(outcome(&net, net.write_if(0, b"v", absent)), (Status::Ok, 1));
    // The refusal stands, whatever the key is now.
    assert_eq!(outcome(&net, refused.clone()), (Status::Mismatch, 0));
    let again = net.write_if(0, b"v", absent);
    assert_eq!(outcome(&net, again.clone()), (Status::Mismatch, 1));
    for slot in 0..3 {
        let note = net.session(slot).notes[(again.header.request % 16) as usize];
        assert_eq!((note.seq, note.refused), (1, Some(Status::Mismatch)));
    }
    assert_eq!(outcome(&net, net.write_if(0, b"v", Some(1))), (Status::Ok, 2));
    assert_eq!(outcome(&net, net.write_if(0, b"v", Some(1))), (Status::Mismatch, 2));
    assert_eq!(outcome(&net, net.write_if(0, b"w", present)), (Status::Ok, 3));
    assert_eq!(outcome(&net, net.delete(0)), (Status::Ok, 4));
    let delete = net.delete(0);
    assert_eq!(outcome(&net, delete.clone()), (Status::NotFound, 0));
    for slot in 0..3 {
        assert_eq!(outcome(&net, net.read(slot)), (Status::NotFound, 4));
    }
    assert_eq!(outcome(&net, net.write_if(0, b"x", absent)), (Status::Ok, 5));
    assert_eq!(outcome(&net, again), (Status::Mismatch, 1), "still");
    assert_eq!(outcome(&net, delete), (Status::NotFound, 0), "still");
    assert_eq!(net.ask(net.read(1)).value, b"x");
}

fn a_write_that_comes_again_is_not_applied_again() {
    let net = Net::ready(3, 2);
    let first = net.write(0, b"first");
    assert_eq!(outcome(&net, first.clone()), (Status::Ok, 1));
    assert_eq!(outcome(&net, first.clone()), (Status::Ok, 1), "the head knows");
    assert_eq!(net.count("order_known"), 1);
    // The answer and what the tail says to others are lost.
    net.lose(|going| going.packet.header.op != Op::PeerMessage);
    let second = net.write(0, b"second");
    assert!(net.send(second.clone()).is_empty());
    assert_eq!(net.versions(), [(2, 1), (2, 1), (2, 2)]);
    net.lose_nothing();
    assert_eq!(outcome(&net, second.clone()), (Status::Ok, 2));
    assert_eq!(net.count("order_apply"), 0);
    assert_eq!(net.versions(), [(2, 2); 3]);
    // A number so old that nobody knows: its place has a newer one.
    let newer = first.clone().numbered(first.header.request + 16);
    assert_eq!(outcome(&net, newer), (Status::Ok, 3));
    assert_eq!(outcome(&net, first).0, Status::Forgotten);
    assert_eq!(net.versions(), [(3, 3); 3]);
}

fn what_is_lost_on_the_way_is_repaired() {
    let net = Net::ready(3, 2);
    // To the tail nothing comes for a while.
    net.lose(|going| going.to == Some(2));
    let writes = [net.write(0, b"1"), net.write(0, b"2"), net.write(0, b"3")];
    for write in &writes {
        assert!(net.send(write.clone()).is_empty());
    }
    assert_eq!(net.versions(), [(3, 0), (3, 0), (0, 0)]);
    net.lose_nothing();
    // The next one waits, asks, and all of them come.
    let came = net.send(net.write(0, b"4"));
    assert_eq!(net.count("order_nack"), 1, "{came:?}");
    assert_eq!(net.versions(), [(4, 4); 3]);
    // Only the clients ask for the answers of the others.
    for (seq, write) in writes.into_iter().enumerate() {
        assert_eq!(outcome(&net, write), (Status::Ok, seq as u64 + 1));
    }
}

fn whoever_repeats_the_last_write_repairs_it_too() {
    let net = Net::ready(3, 1);
    net.lose(|going| going.to == Some(1));
    let write = net.write(0, b"1");
    assert!(net.send(write.clone()).is_empty());
    net.lose_nothing();
    assert_eq!(outcome(&net, write), (Status::Ok, 1));
    assert_eq!(net.versions(), [(1, 1); 3]);
    // An agent asks the tail: of what is committed, and of what is lost.
    net.lose(|going| going.packet.header.op == Op::ChainAck);
    assert_eq!(outcome(&net, net.write(0, b"2")), (Status::Ok, 2));
    net.lose_nothing();
    assert_eq!(net.versions(), [(2, 1), (2, 1), (2, 2)]);
    let ask = |slot| net.says(slot, 2, Peer::new(PeerKind::Ask), 2, b"");
    assert!(net.send(ask(0)).is_empty());
    assert!(net.send(ask(1)).is_empty());
    assert_eq!(net.versions(), [(2, 2); 3]);
    net.lose(|going| going.to == Some(2));
    assert!(net.send(net.write(0, b"3")).is_empty());
    net.lose_nothing();
    let ask = net.says(0, 2, Peer::new(PeerKind::Ask), 3, b"");
    assert!(net.send(ask).is_empty(), "nobody waits for an answer");
    assert_eq!(net.versions(), [(3, 3); 3]);
}

fn a_full_ring_takes_no_more() {
    let net = Net::ready(2, 0);
    net.lose(|going| going.packet.header.op == Op::ChainAck);
    assert_eq!(outcome(&net, net.write(0, b"1")), (Status::Ok, 1));
    let second = net.write(0, b"2");
    let came = net.send(second.clone());
    let is_told = |came: &Arrival| came.header.status == Status::TryAgain;
    assert!(came.iter().all(is_told), "or it took so long already: {came:?}");
    assert_eq!(net.count("order_full"), 1);
    net.lose_nothing();
    // After some milliseconds the head sends its last version again, and is told.
    while net.versions()[0] == (1, 0) {
        net.send(second.clone());
    }
    assert_eq!(outcome(&net, second), (Status::Ok, 2));
    assert_eq!(net.versions(), [(2, 2); 2]);
}

fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut net = Net::new(2, Protocol::NetCraq);
    assert_eq!(outcome(&net, net.write(0, b"1")).0, Status::NoSession);
    assert_eq!(net.count("hot_report"), 1, "the control half is told");
    net.put_session(0);
    assert_eq!(outcome(&net, net.write(0, b"1")).0, Status::TryAgain);
    assert_eq!(net.count("hot_report"), 1, "the control half is told");
    // What needs the key to be there is refused for good, by all that have the session.
    net.put_session(1);
    let refused = net.write_if(0, b"1", Some(5));
    assert_eq!(outcome(&net, refused.clone()), (Status::Mismatch, 0));
    assert_eq!(outcome(&net, net.delete(0)), (Status::NotFound, 0));
    net.put_key(0, 3);
    net.put_key(1, 3);
    assert_eq!(outcome(&net, refused), (Status::Mismatch, 0));
    assert_eq!(outcome(&net, net.write(0, &[7; 161])).0, Status::TooLarge);
    assert_eq!(outcome(&net, net.write(0, &[7; 160])), (Status::Ok, 1));
    assert_eq!(net.ask(net.read(0).padded(300)).value, [7; 160]);
    let spoiled = net.write(0, b"value").padded(0).with_a_flipped_bit();
    assert!(net.send(spoiled).is_empty());
    assert_eq!(net.count("drop_spoiled"), 1);
    let mut short = net.write(0, b"");
    short.value.truncate(15);
    assert!(net.send(short).is_empty());
    assert_eq!(net.count("drop_refused"), 1);
    let never = net.write(0, b"v").numbered(3);
    assert!(net.send(never).is_empty(), "no write has such a number");
    let own = Message { key: b"\0key".to_vec(), ..net.write(0, b"v") };
    assert_eq!(outcome(&net, own.hash_of(b"\0key")).0, Status::TooLarge);
    assert_eq!(net.versions(), [(1, 1); 2]);
}

/// A window's marks are none that cells have which were never written.
fn a_client_that_is_new_in_window_255_is_reported() {
    let net = Net::new(1, Protocol::NetCraq);
    for _ in 0..255 {
        net.switches[0].switch.table.next_window();
    }
    for reports in [1, 0] {
        assert_eq!(outcome(&net, net.write(0, b"1")).0, Status::NoSession);
        assert_eq!(net.count("hot_report"), reports, "the control half is told once");
    }
}

fn what_there_is_no_room_for_is_told_so_and_nobody_else() {
    let mut net = Net::new(1, Protocol::NetCraq);
    let [key, session] =
        [KEY, &session_key(CLIENT)[..]].map(|k| secret_of(TENANT).key_hash(TENANT, k));
    let other =
        |net: &Net| Message { key: b"other".to_vec(), ..net.write(0, b"1") }.hash_of(b"other");
    net.has_no_room(0, Some(key));
    assert_eq!(outcome(&net, net.write(0, b"1")).0, Status::NoSession);
    net.has_no_room(0, Some(session));
    assert_eq!(outcome(&net, net.write(0, b"1")), (Status::NoRoom, 0));
    assert_eq!(net.count("hot_report"), 0);
    net.put_session(0);
    assert_eq!(outcome(&net, net.write(0, b"1")), (Status::NoRoom, 0));
    assert_eq!(outcome(&net, net.delete(0)), (Status::NotFound, 0));
    assert_eq!(outcome(&net, other(&net)).0, Status::TryAgain);
    assert_eq!(net.count("hot_report"), 1);
    net.has_no_room(0, None);
    assert_eq!(outcome(&net, other(&net)), (Status::NoRoom, 0));
    net.put_key(0, 2);
    assert_eq!(outcome(&net, net.write(0, b"1")), (Status::Ok, 1), "it is there");
}

fn values_of_every_length_in_rings_of_every_length() {
    for shift in 0..5 {
        let net = Net::ready(2, shift);
        let most = chain::record::value_most(shift).expect("possible");
        let most = most.min(1472 - 80 - 40 - KEY.len());
        for (n, len) in [0, 1, 7, most - 1, most, 3].into_iter().enumerate() {
            let value: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
            let seq = n as u64 + 1;
            assert_eq!(outcome(&net, net.write(0, &value)), (Status::Ok, seq));
            for slot in 0..2 {
                let read = net.ask(net.read(slot).padded(1300));
                assert_eq!((read.header.version, read.value), (seq, value.clone()));
            }
        }
    }
}

fn what_members_do_not_have_is_reported_and_never_applied() {
    let mut net = Net::new(2, Protocol::NetCraq);
    net.put_key(0, 1);
    net.put_session(0);
    let write = net.write(0, b"1");
    assert!(net.send(write.clone()).is_empty());
    assert_eq!((net.count("drop_order_missing"), net.count("hot_report")), (1, 1));
    net.put_key(1, 1);
    assert!(net.send(write.clone()).is_empty());
    assert_eq!((net.count("drop_order_missing"), net.count("hot_report")), (1, 1));
    net.put_session(1);
    assert_eq!(outcome(&net, write), (Status::Ok, 1));
    assert_eq!(net.versions(), [(1, 1); 2]);
}

/// It would stand in the ring of one version for ever, and no other could come.
fn what_the_links_of_the_head_do_not_carry_down_the_chain_is_refused_for_good() {
    let mut net = Net::new(2, Protocol::NetCraq);
    (0..2).for_each(|slot| net.put_session(slot));
    let limit = |net: &Net, most| net.switches[0].switch.table.limit_frames(most);
    // Ethernet, IPv4 and UDP headers before ours.
    let most = (14 + 20 + 8 + wire::HEADER_LEN + KEY.len() + Peer::LEN + 100) as u64;
    limit(&net, most);
    let too_long = |net: &Net| net.write(0, &[7; 101]);
    assert_eq!(outcome(&net, too_long(&net)), (Status::TooLarge, 0));
    assert_eq!(net.count("hot_report"), 0, "nobody makes the key for it");
    (0..2).for_each(|slot| net.put_key(slot, 0));
    let refused = too_long(&net);
    assert_eq!(outcome(&net, refused.clone()), (Status::TooLarge, 0));
    for slot in 0..2 {
        let note = net.session(slot).notes[(refused.header.request % 16) as usize];
        assert_eq!((note.seq, note.refused), (0, Some(Status::TooLarge)));
    }
    assert_eq!(outcome(&net, net.write(0, &[7; 100])), (Status::Ok, 1));
    let taken = net.write(0, &[7; 100]);
    assert_eq!(outcome(&net, taken.clone()), (Status::Ok, 2));
    // Each stands, whatever the links of another head carry.
    limit(&net, most - 1);
    assert_eq!(outcome(&net, taken), (Status::Ok, 2));
    limit(&net, 0);
    assert_eq!(outcome(&net, refused), (Status::TooLarge, 0));
    assert_eq!(outcome(&net, too_long(&net)), (Status::Ok, 3));
}

/// A client's request to watch the key.
fn watch(net: &Net, at: usize, client: u64) -> Message {
    let mut read = net.read(at).flags(Flags::GRANT);
    read.header.client = client;
    read.from.set_port(41_000 + client as u16);
    read
}

fn whoever_watches_is_told() {
    let net = Net::ready(3, 2);
    let watch = |at: usize, client: u64| watch(&net, at, client);
    let ask = |read: Message| {
        let mut came = net.send(read);
        assert_eq!(came.len(), 1);
        came.remove(0).header
    };
    let asked = [ask(watch(0, 1)), ask(watch(2, 2)), ask(watch(1, 1))];
    assert!(asked.iter().all(|header| header.status == Status::NotFound));
    for (seq, value) in [(1, &b"a value"[..]), (2, b"another, which is longer")] {
        let came = net.send(net.write(0, value));
        assert_eq!(net.count("order_watch"), 2);
        let told: Vec<_> = came
            .iter()
            .filter(|c| c.header.op == Op::ChainReadReply)
            .map(|c| (c.to.port(), c.header.client, c.header.version, &c.value[..]))
            .collect();
        assert_eq!(told.len() + 1, came.len());
        for client in [1, 2] {
            assert!(told.contains(&(41_000 + client as u16, client, seq, value)), "{told:?}");
        }
        assert!(came.iter().all(|c| c.is_signed && c.from.ip() == host(2, false)));
        assert_eq!(net.versions(), [(seq, seq); 3]);
    }
    let came = net.send(net.delete(0));
    let gone = came.iter().filter(|c| c.header.status == Status::NotFound);
    assert_eq!(gone.count(), 2);
}

fn whoever_watches_is_told_under_the_secret_that_it_signed_with() {
    let net = Net::ready(3, 2);
    net.change_secret(true);
    net.ask(net.read(0).flags(Flags::GRANT));
    let came = net.send(net.write(0, b"one"));
    assert_eq!((came.len(), net.count("order_watch")), (2, 1));
    assert!(came.iter().all(|c| c.is_signed), "{came:?}");
    // Once that is no more, under the tenant's only one; never without a tag.
    net.change_secret(false);
    let came = net.send(net.write(0, b"two").signed_with(NEW_SECRET));
    assert_eq!((came.len(), net.count("order_watch")), (2, 1));
    assert!(came.iter().all(|c| !c.is_signed && c.header.tag != 0), "{came:?}");
}

/// Watches of made-up clients of these tenants fill all sets of a switch.
fn fill_watches(net: &Net, slot: usize, tenants: [u32; 8]) {
    let watch = |(client, tenant): (u64, u32)| {
        let mut watch = [0; 56];
        watch[8..16].copy_from_slice(&(u64::MAX >> 1).to_ne_bytes());
        watch[16..24].copy_from_slice(&client.to_be_bytes());
        watch[48..52].copy_from_slice(&tenant.to_ne_bytes());
        watch
    };
    let set: Vec<u8> = (0..).zip(tenants).flat_map(watch).collect();
    let set = [&[0; 8][..], &set[..]].concat();
    for index in 0..1024 {
        let tables = net.switches[slot].switch.backing();
        tables.set_element("chain_watches", index, &set).expect("writable");
    }
}

fn a_tenant_that_watches_much_leaves_others_their_share() {
    const OTHER: u32 = 9;
    const THIRD: u32 = 10;
    let told = |watches: [u32; 8], clients: u64| {
        let net = Net::ready(3, 2);
        fill_watches(&net, 2, watches);
        (1..=clients).for_each(|client| drop(net.send(watch(&net, 2, client))));
        net.send(net.write(0, b"v"));
        net.count("order_watch")
    };
    assert_eq!(told([OTHER; 8], 1), 1);
    assert_eq!(told([OTHER; 8], 8), 4, "as many as the other one has then");
    assert_eq!(told([OTHER, OTHER, OTHER, OTHER, OTHER, THIRD, THIRD, THIRD], 8), 2);
    assert_eq!(told([TENANT; 8], 1), 0, "it has all there are");
}

/// Who may write little must not have a switch send much.
fn above_its_rate_a_tenants_watchers_are_told_nothing() {
    let net = Net::ready(3, 2);
    (1..=2).for_each(|client| drop(net.send(watch(&net, 2, client))));
    let limited = |entry: TenantEntry| TenantEntry { rate: 1, ..entry };
    let limited: Vec<TenantEntry> = tenants().into_iter().map(limited).collect();
    let tail = &net.switches[2];
    TenantEntry::install(tail.switch.backing(), &limited).expect("room for tenants");
    net.send(net.write(0, b"v"));
    assert!(net.count("order_watch") > 0);
    tail.over_rate(TENANT);
    assert_eq!(outcome(&net, net.write(0, b"w")), (Status::Ok, 2));
    assert_eq!((net.count("order_watch"), net.count("drop_order_untold")), (0, 1));
    assert_eq!(net.versions(), [(2, 2); 3]);
}

fn a_switch_that_is_alone_tells_too() {
    let net = Net::ready(1, 0);
    net.ask(net.read(0).flags(Flags::GRANT));
    assert_eq!(net.send(net.write(0, b"v")).len(), 2);
    assert_eq!(net.count("order_watch"), 1);
}

#[test]
fn writes() {
    in_both!(
        a_write_goes_down_the_chain_and_is_committed,
        a_chain_of_one_answers_by_itself,
        over_ipv6_too,
        conditions_hold_or_the_refusal_is_remembered_by_all,
        a_write_that_comes_again_is_not_applied_again,
        what_is_lost_on_the_way_is_repaired,
        whoever_repeats_the_last_write_repairs_it_too,
        a_full_ring_takes_no_more,
        what_cannot_be_is_refused_and_changes_nothing,
        a_client_that_is_new_in_window_255_is_reported,
        what_there_is_no_room_for_is_told_so_and_nobody_else,
        values_of_every_length_in_rings_of_every_length,
        what_members_do_not_have_is_reported_and_never_applied,
        what_the_links_of_the_head_do_not_carry_down_the_chain_is_refused_for_good,
        whoever_watches_is_told,
        whoever_watches_is_told_under_the_secret_that_it_signed_with,
        a_tenant_that_watches_much_leaves_others_their_share,
        above_its_rate_a_tenants_watchers_are_told_nothing,
        a_switch_that_is_alone_tells_too,
    );
}
