//! What others may say to a store that holds copies, and to a home of some: what moved, late
//! answers, forged names, too much of all.

use wire::{Epoch, Flags, Header, NodeId, Op, Packet, Secret, Status};

use super::{
    super::{KEYED, Peer, SECRET},
    stores::{Stores, address_of, client, node},
};

/// Packets of this kind.
fn of(op: Op, sent: &[Vec<u8>]) -> Vec<Header> {
    let headers = sent.iter().map(|bytes| Packet::decode(bytes).unwrap().header);
    headers.filter(|header| header.op == op).collect()
}

/// A client's read, which a switch has sent to a store.
fn read(at: usize, request: u64) -> Header {
    Header { client: 55, request, node: node(at), ..Header::new(Op::ReadRequest) }
}

fn hand_in_read(stores: &mut Stores, at: usize, header: Header) -> Vec<Vec<u8>> {
    stores.hand_in(at, header, &[], client())
}

/// A home calls a store's copy back.
fn call_back(stores: &mut Stores, at: usize) -> Vec<Vec<u8>> {
    let invalidate = Header { epoch: stores.epoch_of(at).unwrap(), ..Header::new(Op::Invalidate) };
    stores.hand_in(at, invalidate, &[], address_of(0))
}

#[test]
fn a_store_grants_nothing_of_a_key_that_has_moved_to_another() {
    let mut stores = Stores::holding();
    stores.limit(0, [1, 2]);
    stores.run(1_500);
    assert!(stores.counters(0).keys.invalidations >= 2, "called back");
    assert_eq!(stores.counters(1).replicas.replica_grants, 1, "nothing since");
    assert_eq!((stores.status(1).valid, stores.status(2).valid), (0, 0));
}

#[test]
fn the_answer_about_a_part_is_none_to_a_read_of_the_whole() {
    let mut stores = Stores::holding();
    stores.cut = vec![(0, 1)];
    call_back(&mut stores, 1);
    let sent = hand_in_read(&mut stores, 1, read(1, 1));
    let question = of(Op::FetchRequest, &sent)[0];
    let reply = |question: Header, flags| Header {
        op: Op::FetchReply,
        flags,
        version: 9,
        total: 5000,
        ..question
    };
    let granted = reply(question, Flags::GRANT);
    let sent = stores.hand_in(1, granted, &[1; wire::PART_BYTES], address_of(0));
    assert_eq!(of(Op::ReadReply, &sent).len(), 1);
    let sent = hand_in_read(&mut stores, 1, read(1, 2));
    let questions = of(Op::FetchRequest, &sent);
    let part = *questions.iter().find(|q| q.part > 0).expect("it joins");
    call_back(&mut stores, 1);
    let sent = stores.hand_in(1, reply(part, Flags::NONE), &[1; wire::PART_BYTES], address_of(0));
    assert_eq!(of(Op::ReadReply, &sent), [], "it is still waiting");
    let whole = questions.iter().find(|q| q.part == 0).unwrap();
    let sent = stores.hand_in(1, reply(*whole, Flags::NONE), &[1; wire::PART_BYTES], address_of(0));
    assert_eq!(of(Op::ReadReply, &sent)[0].part, 0);
}

/// What somebody says in a store's name.
fn claimed(op: Op, of: NodeId) -> Header {
    Header {
        client: 66,
        request: 1,
        node: 1,
        epoch: Epoch::new(of, Epoch::MAX_NUMBER),
        flags: Flags::GRANT,
        ..Header::new(op)
    }
}

#[test]
fn no_request_of_a_client_speaks_for_a_store() {
    let mut stores = Stores::holding();
    let grants = stores.counters(0).keys.grants;
    for op in [Op::ReadRequest, Op::FetchRequest] {
        stores.hand_in(0, claimed(op, node(1)), &[], client());
    }
    assert_eq!(stores.counters(0).keys.grants, grants);
    stores.hand_in(0, claimed(Op::WriteRequest, node(1)), b"what was written", client());
    stores.run(50);
    assert_eq!(stores.counters(0).write.writes_applied, 2);
    assert_eq!(stores.counters(0).keys.invalidations, 2, "both are asked");
    let sent = hand_in_read(&mut stores, 1, read(1, 1));
    let mut reply = sent.iter().map(|bytes| Packet::decode(bytes).unwrap());
    let reply = reply.next_back().unwrap();
    assert_eq!(reply.value, b"what was written");

    let part = Header { total: 5000, part: 4, request: 2, ..claimed(Op::WriteRequest, node(1)) };
    stores.hand_in(0, part, &[2; 904], client());
    let first = Header { part: 0, ..part };
    stores.hand_in(0, first, &[2; wire::PART_BYTES], client());
    stores.run(3);
    assert_eq!(stores.counters(0).keys.invalidations, 2, "not whole");
}

/// What a store asks homes when it is sent reads of many keys of the open tenant.
fn asked_for_the_open(stores: &mut Stores, room: usize) -> Vec<usize> {
    stores.on(1, |engine, now_ns, out| {
        for n in 0..9u8 {
            let read = Header {
                node: node(1),
                key_hash: Secret::NONE.key_hash(wire::TENANT_OPEN, &[n]),
                ..Header::new(Op::ReadRequest)
            };
            let mut bytes =
                Packet::new(read, std::slice::from_ref(&n), &[]).to_bytes(&Secret::NONE).unwrap();
            bytes.resize(room, 0);
            let peer = Peer { address: client(), local: None };
            engine.receive(&bytes, peer, now_ns, out);
        }
        let fetch = |bytes: &&[u8]| bytes[40] == Op::FetchRequest as u8;
        let messages = out.messages().map(|(bytes, _)| bytes);
        messages.filter(fetch).map(<[u8]>::len).collect()
    })
}

#[test]
fn a_read_of_the_open_tenant_is_passed_on_with_the_room_that_it_has() {
    for room in [100, 700, wire::MAX_PAYLOAD] {
        let mut stores = Stores::new();
        let lens = asked_for_the_open(&mut stores, room);
        assert!(lens.len() > 3, "those of other stores");
        assert!(lens.iter().all(|len| *len == room), "{lens:?}");
    }
}

#[test]
fn what_is_asked_over_ipv6_fits_a_packet() {
    let mut stores = Stores::with_config(|config| {
        let moved = |address: &mut std::net::SocketAddr| {
            let std::net::IpAddr::V4(ip) = address.ip() else { return };
            let [.., last] = ip.octets();
            *address = format!("[fd00::{last}]:7117").parse().unwrap();
        };
        config.identity.iter_mut().for_each(moved);
        for store in &mut config.cluster.stores {
            moved(&mut store.address);
        }
    });
    let lens = asked_for_the_open(&mut stores, wire::MAX_PAYLOAD);
    assert!(lens.len() > 3);
    assert!(lens.iter().all(|len| *len == wire::MAX_PAYLOAD - 20), "{lens:?}");
}

#[test]
fn many_reads_of_one_key_wait_once_each_and_are_all_answered() {
    let mut stores = Stores::holding();
    stores.cut = vec![(0, 1)];
    call_back(&mut stores, 1);
    let mut question = None;
    for request in (1..=20_000).chain(1..=20_000) {
        let sent = hand_in_read(&mut stores, 1, read(1, request));
        question = question.or(of(Op::FetchRequest, &sent).first().copied());
    }
    assert_eq!(stores.waiting_reads(1), 20_000);
    let reply = Header { op: Op::FetchReply, flags: Flags::GRANT, ..question.unwrap() };
    let sent = stores.hand_in(1, reply, b"value", address_of(0));
    assert_eq!(of(Op::ReadReply, &sent).len(), 20_000);
    assert_eq!(stores.waiting_reads(1), 0);
}

#[test]
fn however_often_a_key_is_written_its_home_is_asked_while_reads_wait() {
    let mut stores = Stores::holding();
    stores.cut = vec![(0, 1)];
    call_back(&mut stores, 1);
    hand_in_read(&mut stores, 1, read(1, 1));
    let before = stores.counters(1).replicas.replica_asks;
    for request in 0..60 {
        let update = Header { flags: Flags::ALL, ..update(request) };
        hand_in_read(&mut stores, 1, update);
        stores.run(10);
    }
    let asked = stores.counters(1).replicas.replica_asks - before;
    assert!((4..20).contains(&asked), "{asked} in 600 ms");
}

#[test]
fn a_part_that_was_passed_on_is_answered_by_its_home_only() {
    let mut stores = Stores::holding();
    stores.cut = vec![(0, 1)];
    call_back(&mut stores, 1);
    let of_part = Header { part: 4, total: 5000, version: 77, ..read(1, 1) };
    let sent = hand_in_read(&mut stores, 1, of_part);
    let question = of(Op::FetchRequest, &sent)[0];
    let reply = Header { op: Op::FetchReply, ..question };
    let sent = stores.hand_in(1, reply, &[1; 904], address_of(2));
    assert_eq!(of(Op::ReadReply, &sent), []);
    let sent = stores.hand_in(1, reply, &[1; 904], address_of(0));
    assert_eq!(of(Op::ReadReply, &sent).len(), 1);
}

fn update(request: u64) -> Header {
    Header { client: 77, request, node: node(1), ..Header::new(Op::ReplicaUpdate) }
}

#[test]
fn updates_of_keys_that_are_not_held_take_no_epochs() {
    let mut stores = Stores::holding();
    let before = stores.epoch_of(1).unwrap();
    stores.release(1);
    for request in 0..1000 {
        let sent = hand_in_read(&mut stores, 1, update(request));
        assert!(sent.is_empty(), "and are not answered");
    }
    stores.hold(1);
    stores.run(20);
    assert_eq!(stores.status(1).valid, 1);
    let after = stores.epoch_of(1).unwrap();
    assert!(after.number() - before.number() < 10);
}

/// Another tenant's key is held beside, and who writes nothing but updates has taken all epochs
/// that there were for it.
#[test]
fn who_sends_updates_without_end_leaves_those_of_others_their_share() {
    const OPEN: u32 = wire::TENANT_OPEN;
    let mut stores = Stores::holding();
    let hash = |key: &[u8]| Secret::NONE.key_hash(OPEN, key);
    let at_home = |key: &[u8; 1]| wire::partition_of(hash(key), 3) == 0;
    let key = (0..).map(|n: u8| [n]).find(at_home).expect("one in three");
    let is_held = stores.on(1, |engine, now_ns, out| {
        engine.at(now_ns, out, |engine| engine.replicas.hold(&mut engine.facts, OPEN, &key))
    });
    assert!(is_held);
    let taken = |stores: &Stores| stores.counters(1).replicas.replica_updates;
    let before = taken(&stores);
    for request in 0..90_000 {
        hand_in_read(&mut stores, 1, update(request));
    }
    let took = taken(&stores) - before;
    assert!((40_000..60_000).contains(&took), "{took}: half of a second's, and a share");
    let sent = stores.on(1, |engine, now_ns, out| {
        let update = Header { key_hash: hash(&key), ..update(1) };
        let bytes = Packet::new(update, &key, b"value").to_bytes(&Secret::NONE).unwrap();
        engine.receive(&bytes, Peer { address: client(), local: None }, now_ns, out);
        out.messages().map(|(bytes, _)| bytes.to_vec()).collect::<Vec<_>>()
    });
    assert_eq!(of(Op::InvalidateAck, &sent).len(), 1, "to its home");
}

#[test]
fn what_cannot_be_held_is_asked_for_less_and_less() {
    let mut stores = Stores::with_config(|config| config.replica_memory = 1000);
    stores.put(vec![1; 900], 0);
    stores.hold(1);
    stores.hold(2);
    stores.run(20_000);
    let fetches = stores.counters(0).read.fetches;
    assert!((6..=12).contains(&fetches), "{fetches} of two stores");
    assert_eq!(stores.counters(1).replicas.replica_no_room, fetches / 2);
}

#[test]
fn a_value_of_parts_that_is_called_back_all_the_time_is_not_read_each_time() {
    let mut stores = Stores::new();
    stores.put(vec![9; 100_000], 0);
    stores.hold(1);
    for request in 0..500 {
        // It stays in the way of every join.
        hand_in_read(&mut stores, 1, update(request));
        stores.run(6);
    }
    let parts = stores.counters(0).read.reads_parts;
    assert!(parts < 800, "{parts}");
    stores.run(600);
    assert_eq!(stores.status(1).valid, 1, "in the end");
}

#[test]
fn who_is_denied_is_told_by_whom() {
    let mut stores = Stores::holding();
    let key = stores.key.clone();
    let header = Header { tenant: KEYED, key_hash: SECRET.key_hash(KEYED, &key), ..read(1, 1) };
    let mut bytes = vec![];
    let packet = Packet::new(header, &key, &[]);
    packet.encode(&Secret([77; 16]), &mut bytes).unwrap();
    let reply = stores.on(1, |engine, now_ns, out| {
        let peer = Peer { address: client(), local: None };
        engine.receive(&bytes, peer, now_ns, out);
        let (bytes, _) = out.messages().next().unwrap();
        Packet::decode(bytes).unwrap().header
    });
    assert_eq!((reply.status, reply.node), (Status::Denied, node(1)));
    assert_eq!(reply.life, 0, "not the home's");
}

#[test]
fn a_key_that_is_read_while_it_is_absent_is_held_as_soon_as_it_is_there() {
    let mut stores = Stores::new();
    stores.hold(1);
    stores.run(20);
    for request in 1..=20 {
        hand_in_read(&mut stores, 1, read(1, request));
        stores.run(5);
    }
    stores.put(vec![3; 30], 0);
    stores.run(1_000);
    assert_eq!(stores.status(1).valid, 1);
}
