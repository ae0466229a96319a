//! What other clients do in a real Redis: copies are called back, and no grant is given that they
//! could have made old.
//!
//! The test plays the switch: it takes leases and grants, and waits for the INVALIDATEs.

use std::time::{Duration, Instant};

use store::{Config, OutsideWrites};
use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status};

use super::support::{
    self, Client, PATIENCE, SHORT_MS, StoreThread,
    others::{Outsider, SWITCH, Switch},
    servers::{Process, redis, redis_command, start_at},
};

fn config(server: &Process) -> Config {
    Config {
        backend: format!("redis://127.0.0.1:{}", server.port).parse().unwrap(),
        ..support::loopback()
    }
}

#[test]
fn every_way_to_change_a_key_calls_its_copy_back() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut switch = Switch::to(store.address);
    let mut other = Outsider::of(&server);
    let rows = [
        "SET k v",
        "APPEND k x",
        "EXPIRE k 1000",
        "PEXPIRE k 1",
        "DEL k",
        "RENAME k other",
        "RENAME other k",
        "EVAL \"return redis.call('set','k','s')\" 0",
        "FLUSHDB",
        "FLUSHALL",
    ];
    for line in rows {
        other.command("SET k before");
        other.command("SET other o");
        assert_eq!(switch.copy(b"k"), b"before");
        other.command(line);
        switch.loses(b"k", line);
        // And again: the key is tracked anew by the next grant.
    }
    other.command("SET k after");
    assert_eq!(switch.copy(b"k"), b"after");
}

#[test]
fn a_tenants_key_is_found_by_its_name() {
    let server = redis();
    let mut with_tenant = config(&server);
    let secret = "09".repeat(16);
    with_tenant.cluster.tenants.push(wire::Tenant::new(7, secret));
    let store = StoreThread::start(with_tenant);
    let mut other = Outsider::of(&server);
    other.command("SET shortstop:7:k v");
    let mut switch = Switch::to(store.address);
    switch.hold_lease();
    let secret = Secret([9; 16]);
    let header = Header {
        tenant: 7,
        epoch: Epoch::new(SWITCH, 1),
        flags: Flags::GRANT,
        key_hash: secret.key_hash(7, b"k"),
        ..Header::new(Op::FetchRequest)
    };
    let bytes = Packet::new(header, b"k", &[]).to_bytes(&secret).unwrap();
    switch.socket.send(&bytes).unwrap();
    switch.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (reply, _, value) = std::iter::repeat_with(|| switch.hear())
        .flatten()
        .find(|(header, ..)| header.op == Op::FetchReply)
        .unwrap();
    assert_eq!((reply.flags, &value[..]), (Flags::GRANT, &b"v"[..]));
    other.command("SET shortstop:7:k w");
    switch.loses(b"k", "SET by another");
}

#[test]
fn our_own_writes_call_back_once_and_are_never_grants() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = Client::to(store.address);
    client.write(b"k", b"1");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"1");
    for n in 0..100 {
        // The write passes the switch: the copy is gone with that, and a grant is asked for.
        switch.epoch += 1;
        let header = Header {
            epoch: Epoch::new(SWITCH, switch.epoch),
            flags: Flags::GRANT,
            ..Header::new(Op::WriteRequest)
        };
        let value = n.to_string();
        let reply = client.ask(header, b"k", value.as_bytes(), 0).header;
        assert_eq!(reply.status, Status::Ok);
        assert!(!reply.flags.has(Flags::GRANT), "its key is not tracked");
        assert_eq!(switch.copy(b"k"), value.as_bytes());
    }
}

#[test]
fn when_the_connection_is_lost_every_copy_is_called_back_before_anything_is_granted() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut switch = Switch::to(store.address);
    let mut other = Outsider::of(&server);
    for round in 0..5 {
        other.command("MSET k old l old");
        assert_eq!(switch.copy(b"k"), b"old");
        assert_eq!(switch.copy(b"l"), b"old");
        // All but this one; in the same breath what nobody tells the store.
        let killed = other.command("CLIENT KILL TYPE normal SKIPME yes");
        assert_ne!(killed, ":0\r\n", "the store is connected");
        other.command("SET k new");
        switch.loses(b"k", "connection lost");
        assert_eq!(switch.copy(b"k"), b"new", "round {round}");
        switch.acknowledge_all();
    }
}

#[test]
fn while_redis_does_not_answer_no_lease_goes_beyond_what_was_seen() {
    const LEASE_MS: u64 = SHORT_MS as u64;
    let server = redis();
    let store = StoreThread::start(Config {
        cluster: support::with_short_leases().cluster,
        backend_within: Duration::from_secs(1),
        ..config(&server)
    });
    let mut switch = Switch::to(store.address);
    let mut other = Outsider::of(&server);
    other.command("SET k v");
    assert_eq!(switch.copy(b"k"), b"v");
    let (_, term) = switch.hold_lease();
    // It stands still: no answer, and no sign of a broken connection.
    server.freeze();
    let stopped = Instant::now();
    loop {
        let asked = stopped.elapsed().as_millis() as u64;
        assert!(stopped.elapsed() < PATIENCE, "the lease is left to lapse");
        match switch.lease() {
            Some((lent_ms, _)) => assert!(
                asked + u64::from(lent_ms) <= LEASE_MS,
                "lent {lent_ms} ms after {asked} ms of silence"
            ),
            // The last is lent half a lease after the silence began, cut short; the store counts
            // all of it, and a 64th more.
            None if asked > LEASE_MS * 7 / 4 => break,
            None => {}
        }
    }
    let again = start_at(server.stop(), redis_command);
    Outsider::of(&again).command("SET k w");
    assert_eq!(switch.copy(b"k"), b"w");
    let (_, next) = switch.hold_lease();
    assert!(next > term, "it had lapsed: a new term");
}

/// Values that no packet carries are not brought here: many reads of them take no longer than many
/// reads, and the connection, which every tenant's copies depend on, stays.
#[test]
fn large_values_in_redis_cost_no_more_than_small_ones() {
    let server = redis();
    let mut other = Outsider::of(&server);
    other.command("SET small v");
    for n in 0..4 {
        let len = other.command(&format!("SETRANGE large{n} 33554431 x"));
        assert_eq!(len, ":33554432\r\n");
    }
    let store = StoreThread::start(config(&server));
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"small"), b"v");
    let crowd = Switch::to(store.address);
    for round in 0..4 {
        for n in 0..128 {
            let header = Header { request: n, ..Header::new(Op::ReadRequest) };
            crowd.send(header, format!("large{}", n % 4).as_bytes());
        }
        let deadline = Instant::now() + PATIENCE;
        let mut answered = 0;
        while answered < 128 {
            if let Some((header, _, value)) = crowd.hear() {
                assert_eq!((header.status, value.len()), (Status::TooLarge, 0));
                answered += 1;
            }
            assert!(Instant::now() < deadline, "{answered} of 128 answers in round {round}");
        }
        while let Some((header, ..)) = switch.hear() {
            assert_ne!(header.op, Op::Invalidate, "the copy of another key");
        }
    }
    let (length_ms, term) = switch.hold_lease();
    assert!(length_ms > 0 && switch.lease().unwrap().1 == term);
    // A copy of one that was large is brought once it is small.
    other.command("SET large0 v");
    assert_eq!(switch.copy(b"large0"), b"v");
}

#[test]
fn without_tracking_nothing_is_granted_unless_outside_writes_are_ignored() {
    let server = redis();
    let mut other = Outsider::of(&server);
    other.command("SET k v");
    // As with a managed Redis whose users may not use it.
    other.command("ACL SETUSER default -client|tracking");
    let store = StoreThread::start(config(&server));
    let mut switch = Switch::to(store.address);
    switch.hold_lease();
    let (header, value) = switch.fetch(b"k");
    assert_eq!((header.status, &value[..]), (Status::Ok, &b"v"[..]));
    assert!(!header.flags.has(Flags::GRANT));
    drop(store);
    let store =
        StoreThread::start(Config { outside_writes: OutsideWrites::Ignore, ..config(&server) });
    assert_eq!(Switch::to(store.address).copy(b"k"), b"v");
}

#[test]
fn when_redis_forgets_a_key_its_copy_is_called_back() {
    let server = redis();
    let mut other = Outsider::of(&server);
    other.command("CONFIG SET tracking-table-max-keys 1");
    other.command("MSET a 1 b 2 c 3");
    let store = StoreThread::start(config(&server));
    let mut switch = Switch::to(store.address);
    let mut lost = vec![];
    for key in [b"a", b"b", b"c"] {
        switch.hold_lease();
        assert!(switch.fetch(key).0.flags.has(Flags::GRANT));
    }
    let deadline = Instant::now() + PATIENCE;
    while lost.len() < 2 {
        if let Some((header, key, _)) = switch.hear()
            && header.op == Op::Invalidate
        {
            switch.acknowledge(&header, &key);
            if !lost.contains(&key) {
                lost.push(key);
            }
        }
        assert!(Instant::now() < deadline, "only {} of 2 called back", lost.len());
    }
}
