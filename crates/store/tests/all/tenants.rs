//! Tenants that come, change and go while a store runs, over loopback.

use std::net::SocketAddr;

use store::{Config, UpdateError};
use wire::{Cluster, Header, Op, Secret, Secrets, Status, Store, Tenant};

use super::support::{self, Client, Reply, StoreThread};

const OLD: Secret = Secret([1; 16]);
const NEW: Secret = Secret([2; 16]);
const TENANT: u32 = 7;

fn hex(secret: Secret) -> String {
    secret.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client of the tenant that signs with one secret; keys are hashed with [`OLD`].
fn client(store: &StoreThread, tag: Secret) -> Client {
    let secrets = Secrets { tag, ..Secrets::one(OLD) };
    Client { secrets, ..Client::to(store.address) }
}

fn ask(client: &mut Client, op: Op, key: &[u8], value: &[u8]) -> Reply {
    let header = Header { tenant: TENANT, ..Header::new(op) };
    loop {
        let reply = client.ask(header, key, value, 512);
        if reply.header.status != Status::TryAgain {
            return reply;
        }
    }
}

fn read(client: &mut Client) -> (Status, bool) {
    let reply = ask(client, Op::ReadRequest, b"k", &[]);
    (reply.header.status, reply.signed_alike)
}

#[test]
fn a_secret_is_rotated_without_losing_a_key() {
    let config = support::loopback();
    let cluster = config.cluster.clone();
    let store = StoreThread::start(config);
    let with = |tenant: Tenant| Cluster { tenants: vec![tenant], ..cluster.clone() };
    let (mut old, mut new) = (client(&store, OLD), client(&store, NEW));
    assert_eq!(read(&mut old).0, Status::Denied, "not known yet");

    store.update(with(Tenant::new(TENANT, hex(OLD)))).unwrap();
    let written = ask(&mut old, Op::WriteRequest, b"k", b"v");
    assert_eq!(written.header.status, Status::Ok);
    assert_eq!(read(&mut old), (Status::Ok, true));
    assert_eq!(read(&mut new).0, Status::Denied);

    let rotating = Tenant {
        also_secret: Some(hex(OLD)),
        hash_secret: Some(hex(OLD)),
        ..Tenant::new(TENANT, hex(NEW))
    };
    store.update(with(rotating.clone())).unwrap();
    assert_eq!(read(&mut old), (Status::Ok, true), "still accepted");
    assert_eq!(read(&mut new), (Status::Ok, true));

    let rotated = Tenant { also_secret: None, ..rotating };
    store.update(with(rotated)).unwrap();
    assert_eq!(read(&mut old).0, Status::Denied);
    assert_eq!(read(&mut new), (Status::Ok, true));

    store.update(cluster).unwrap();
    assert_eq!(read(&mut new).0, Status::Denied, "removed");
}

#[test]
fn a_store_takes_the_partitions_that_it_holds_for_a_tenant() {
    let [me, other]: [SocketAddr; 2] =
        ["10.9.9.1:7117", "10.9.9.2:7117"].map(|a| a.parse().unwrap());
    let part = Store::new;
    let cluster =
        Cluster { stores: vec![part(me, 0, 7), part(other, 8, 15)], ..Cluster::single(me, 16) };
    let store = StoreThread::start(Config {
        cluster: cluster.clone(),
        identity: Some(me),
        ..support::loopback()
    });
    for stores in [vec![], vec![me], vec![other], vec![other, me], vec![]] {
        let tenant = Tenant { stores: stores.clone(), ..Tenant::new(TENANT, hex(OLD)) };
        let cluster = Cluster { tenants: vec![tenant], ..cluster.clone() };
        store.update(cluster.clone()).unwrap();
        let mut client = client(&store, OLD);
        for key in 0..64u8 {
            let hash = OLD.key_hash(TENANT, &[key]);
            let mine = cluster.store_of(TENANT, hash).address == me;
            let status = ask(&mut client, Op::ReadRequest, &[key], &[]).header.status;
            let expected = [Status::WrongPartition, Status::NotFound][usize::from(mine)];
            assert_eq!(status, expected, "{stores:?} {key}");
        }
    }
}

/// Its removal was not heard of: nobody's change waits for a restart because of it.
#[test]
fn another_tenant_under_a_number_that_is_known_takes_the_place_of_the_first() {
    const THIRD: Secret = Secret([3; 16]);
    let config = support::loopback();
    let cluster = config.cluster.clone();
    let store = StoreThread::start(config);
    let with =
        |first: Tenant, eighth: Tenant| Cluster { tenants: vec![first, eighth], ..cluster.clone() };
    let (first, second) = (Tenant::new(TENANT, hex(OLD)), Tenant::new(TENANT, hex(NEW)));
    let eighth = Tenant::new(TENANT + 1, hex(OLD));
    store.update(with(first, eighth.clone())).unwrap();
    let mut old = client(&store, OLD);
    assert_eq!(ask(&mut old, Op::WriteRequest, b"k", b"v").header.status, Status::Ok);

    store.update(with(second.clone(), eighth)).unwrap();
    assert_eq!(read(&mut old).0, Status::Denied);
    let mut new = Client { secrets: Secrets::one(NEW), ..Client::to(store.address) };
    assert_eq!(ask(&mut new, Op::WriteRequest, b"k", b"w").header.status, Status::Ok);
    assert_eq!(read(&mut new), (Status::Ok, true));

    let rotated = Tenant { hash_secret: Some(hex(OLD)), ..Tenant::new(TENANT + 1, hex(THIRD)) };
    store.update(with(second, rotated)).unwrap();
    let secrets = Secrets { tag: THIRD, ..Secrets::one(OLD) };
    let mut other = Client { secrets, ..Client::to(store.address) };
    let header = Header { tenant: TENANT + 1, ..Header::new(Op::ReadRequest) };
    assert_eq!(other.ask(header, b"k", &[], 512).header.status, Status::NotFound);
}

#[test]
fn what_cannot_change_is_refused_and_changes_nothing() {
    let config = support::loopback();
    let mut cluster = config.cluster.clone();
    let store = StoreThread::start(config);
    cluster.tenants = vec![Tenant::new(TENANT, hex(OLD))];
    store.update(cluster.clone()).unwrap();
    // (what changes, the error that says so)
    type Row = (fn(&mut Cluster), fn(&UpdateError) -> bool);
    let rows: [Row; 4] = [
        (
            |c| *c = Cluster::single(c.stores[0].address, 9),
            |e| *e == UpdateError::Partitions { old: 1, new: 9 },
        ),
        (|c| c.stores[0].address.set_port(9), |e| *e == UpdateError::Stores),
        (|c| c.system_secret = Some(hex(NEW)), |e| *e == UpdateError::SystemSecret),
        (|c| c.tenants[0].secret = "short".into(), |e| matches!(e, UpdateError::Cluster(_))),
    ];
    for (change, expected) in rows {
        let mut changed = cluster.clone();
        change(&mut changed);
        let error = store.update(changed).unwrap_err();
        assert!(expected(&error), "{error}");
    }
    assert_eq!(read(&mut client(&store, OLD)), (Status::NotFound, true));
}
