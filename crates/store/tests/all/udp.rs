//! A whole store over loopback: bytes in, bytes out.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use emulated::{Populate, Rate};
use store::Config;
use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status};

use super::support::{self, Client, PATIENCE, SHORT_MS, StoreThread};

#[test]
fn reads_writes_and_deletes() {
    let store = StoreThread::start(support::loopback());
    let mut client = Client::to(store.address);
    assert_eq!(client.read(b"k").header.status, Status::NotFound);
    let written = client.write(b"k", b"hello");
    assert_eq!((written.header.op, written.header.status), (Op::WriteReply, Status::Ok));
    let read = client.read(b"k");
    assert_eq!((&read.key[..], &read.value[..]), (&b"k"[..], &b"hello"[..]));
    assert_eq!(read.header.version, written.header.version);
    let deleted = client.ask(Header::new(Op::DeleteRequest), b"k", &[], 0);
    assert_eq!((deleted.header.op, deleted.header.status), (Op::DeleteReply, Status::Ok));
    assert_eq!(client.read(b"k").header.status, Status::NotFound);
}

#[test]
fn populated_items_are_there_and_padding_is_asked_for() {
    let store = StoreThread::populated(support::loopback(), 1000, 128);
    let mut client = Client::to(store.address);
    let read = client.read(b"key0000000000999");
    assert_eq!(read.value, b"key0000000000999".repeat(8));
    let small = client.ask(Header::new(Op::ReadRequest), b"key0000000000999", &[], 0);
    assert_eq!((small.header.status, small.header.total), (Status::NeedPadding, 128));
    assert!(small.value.is_empty());
}

#[test]
fn ipv6_works_too() {
    let listen = "[::1]:0".parse().unwrap();
    let store = StoreThread::populated(support::at(listen), 1, 5);
    assert_eq!(Client::to(store.address).read(b"key0000000000000").value, b"key00");
}

#[test]
fn a_wildcard_address_answers_from_where_it_was_asked() {
    let listen = "0.0.0.0:0".parse().unwrap();
    let store = StoreThread::populated(support::at(listen), 1, 5);
    // A connected client socket takes nothing from any other source address.
    let asked = SocketAddr::from(([127, 0, 0, 9], store.address.port()));
    assert_eq!(Client::to(asked).read(b"key0000000000000").value, b"key00");
}

#[test]
fn a_wrong_key_hash_is_denied() {
    let store = StoreThread::start(support::loopback());
    let mut client = Client::to(store.address);
    let header = Header { tenant: 5, ..Header::new(Op::ReadRequest) };
    assert_eq!(client.ask(header, b"k", &[], 0).header.status, Status::Denied);
}

/// The store's side of a switch: sends and receives whole packets.
struct Switch {
    socket: UdpSocket,
}

impl Switch {
    fn at(store: SocketAddr) -> Switch {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(store).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Switch { socket }
    }

    fn send(&self, mut header: Header, key: &[u8], value: &[u8]) {
        header.key_hash = Secret::NONE.key_hash(header.tenant, key);
        let mut bytes = Packet::new(header, key, value).to_bytes(&Secret::NONE).unwrap();
        bytes.resize(512, 0);
        self.socket.send(&bytes).unwrap();
    }

    /// The next packet of this op; others are passed over.
    fn receive(&self, op: Op) -> (Header, Vec<u8>) {
        let mut buffer = [0; 2048];
        loop {
            let len = self.socket.recv(&mut buffer).expect("a packet");
            let packet = Packet::decode(&buffer[..len]).unwrap();
            if packet.header.op == op {
                return (packet.header, packet.value.to_vec());
            }
        }
    }

    /// A lease that is this long, in milliseconds; its term.
    fn lease(&self, number: u16, length_ms: u32) -> u64 {
        let header = Header {
            tenant: wire::TENANT_SYSTEM,
            epoch: Epoch::new(number, 0),
            version: 123_456,
            request: 7,
            ..Header::new(Op::LeaseRequest)
        };
        let bytes = Packet::new(header, &[], &[]).to_bytes(&Secret::NONE).unwrap();
        self.socket.send(&bytes).unwrap();
        let (reply, _) = self.receive(Op::LeaseReply);
        assert_eq!((reply.epoch, reply.request, reply.version), (header.epoch, 7, 123_456));
        assert_eq!(reply.expiry_ms, length_ms);
        reply.client
    }
}

#[test]
fn a_write_waits_until_the_switch_that_holds_a_copy_acknowledges() {
    let store = StoreThread::start(support::loopback());
    let mut client = Client::to(store.address);
    assert_eq!(client.write(b"k", b"old").header.status, Status::Ok);
    let switch = Switch::at(store.address);
    let term = switch.lease(9, 60_000);
    assert!(term > 1_000_000_000, "seconds after 1970, not {term}");

    let fetch =
        Header { flags: Flags::GRANT, epoch: Epoch::new(9, 41), ..Header::new(Op::FetchRequest) };
    switch.send(fetch, b"k", &[]);
    let (grant, value) = switch.receive(Op::FetchReply);
    assert_eq!((grant.flags, grant.epoch, &value[..]), (Flags::GRANT, fetch.epoch, &b"old"[..]));

    // Another client's write, which does not pass the switch.
    let writer = Switch::at(store.address);
    let write = Header { client: 5, request: 1, ..Header::new(Op::WriteRequest) };
    writer.send(write, b"k", b"new");
    let (invalidate, _) = switch.receive(Op::Invalidate);
    assert_eq!(invalidate.epoch, Epoch::new(9, 41));
    assert_eq!(client.read(b"k").value, b"old", "not applied yet");
    let ack = Header { epoch: Epoch::new(9, 42), ..Header::new(Op::InvalidateAck) };
    switch.send(ack, b"k", &[]);
    let (done, _) = writer.receive(Op::WriteReply);
    assert_eq!(done.status, Status::Ok);
    assert_eq!(client.read(b"k").value, b"new");

    // The same write again: the same answer, and nothing is applied.
    writer.send(write, b"k", b"new");
    assert_eq!(writer.receive(Op::WriteReply).0.version, done.version);
    assert_eq!(client.read(b"k").header.version, done.version);
}

#[test]
fn a_write_through_the_switch_is_granted_with_its_answer() {
    let store = StoreThread::start(support::loopback());
    Client::to(store.address).write(b"other", b"");
    let switch = Switch::at(store.address);
    switch.lease(9, 60_000);
    let write = Header {
        client: 5,
        request: 1,
        flags: Flags::GRANT,
        epoch: Epoch::new(9, 7),
        ..Header::new(Op::WriteRequest)
    };
    switch.send(write, b"k", b"new");
    let (done, value) = switch.receive(Op::WriteReply);
    assert_eq!((done.flags, done.epoch, &value[..]), (Flags::GRANT, write.epoch, &b"new"[..]));
    // It comes again, and passes the switch again, which takes a new epoch: no grant this time.
    switch.send(Header { epoch: Epoch::new(9, 8), ..write }, b"k", b"new");
    let (again, value) = switch.receive(Op::WriteReply);
    assert_eq!((again.flags, again.version, value.len()), (Flags::NONE, done.version, 0));
}

#[test]
fn a_mute_switch_delays_a_write_by_its_lease_at_most() {
    let store = StoreThread::start(support::with_short_leases());
    let mut client = Client::to(store.address);
    client.write(b"k", b"old");
    let switch = Switch::at(store.address);
    let granted = |counter| {
        switch.lease(9, SHORT_MS);
        let read = Header {
            flags: Flags::GRANT,
            epoch: Epoch::new(9, counter),
            ..Header::new(Op::ReadRequest)
        };
        switch.send(read, b"k", &[]);
        switch.receive(Op::ReadReply).0.flags == Flags::GRANT
    };
    // On a machine that is busy with something else a lease may lapse before it is of use.
    assert!((1..100).any(granted));
    assert_eq!(client.write(b"k", b"new").header.status, Status::Ok);
}

#[test]
fn leases_are_offered_and_the_status_socket_tells() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status");
    // An offer comes three times in the length of a lease, and goes on for two more once it
    // has lapsed.
    let config = support::loopback();
    let store = StoreThread::start(Config {
        status_socket: Some(path.clone()),
        cluster: config.cluster.clone().with_lease_ms(3000),
        ..config
    });
    let switch = Switch::at(store.address);
    let term = switch.lease(3, 3000);
    let (offer, _) = switch.receive(Op::LeaseOffer);
    assert_eq!(
        (offer.tenant, offer.epoch, offer.request),
        (wire::TENANT_SYSTEM, Epoch::new(3, 0), 7)
    );
    let status = store::read_status(&path).unwrap();
    assert!(status.ready);
    assert_eq!((status.partitions.len(), status.leases[0].term), (1, term));
    assert_eq!(status.totals.leases.leases_granted, 1);
    store.end();
    assert!(!path.exists(), "the socket's file goes with the store");
}

#[test]
fn a_rate_limit_drops_what_is_too_much() {
    let populate = Populate { count: 1, value_len: 8.into() };
    let rate = Rate { requests_per_s: 100.0, queue: 4 };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status");
    let config = Config { status_socket: Some(path.clone()), ..support::loopback() };
    let store = StoreThread::emulated(config, Some(populate), Some(rate));
    let switch = Switch::at(store.address);
    let began = Instant::now();
    for _ in 0..50 {
        switch.send(Header::new(Op::ReadRequest), b"key0000000000000", &[]);
    }
    for _ in 0..4 {
        switch.receive(Op::ReadReply);
    }
    let partition = loop {
        let partition = store::read_status(&path).unwrap().partitions.remove(0);
        if partition.served + partition.dropped == 50 {
            break partition;
        }
        assert!(began.elapsed() < PATIENCE, "{partition:?}");
    };
    // At once, from the queue, and one for each hundredth of a second until now.
    let most = 1 + 4 + began.elapsed().as_millis() as u64 / 10 + 1;
    assert!(partition.served <= most, "{partition:?}, expected {most}");
}
