//! Two stores over loopback, one of which holds a copy of the other's key.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use decide::{StoreAction, StoreHalf, StoreMaker};
use store::{Config, Half};
use wire::{Cluster, Header, NODE_ALL, NODE_STORE, NodeId, Op, Secret, Status, TENANT_OPEN};

use super::support::{self, Client, PATIENCE, StoreThread};

/// The second store's number.
const HOLDER: NodeId = NODE_STORE | 1;

/// Has a key held that it is told, and released when it is told the key again behind a minus.
struct Holder;

impl StoreHalf for Holder {
    fn told(&mut self, _: Duration, tenant: u32, message: &[u8], out: &mut Vec<StoreAction>) {
        let key = |bytes| Bytes::copy_from_slice(bytes);
        out.push(match message.strip_prefix(b"-") {
            Some(rest) => StoreAction::Release { tenant, key: key(rest) },
            None => StoreAction::Hold { tenant, key: key(message) },
        });
    }
}

fn half() -> Half {
    let maker = StoreMaker {
        operations: &[],
        foreign_partitions: false,
        holds_copies: true,
        make: || Box::new(Holder),
    };
    let name = "holder";
    Half { name, maker }
}

/// Addresses of this machine that no other process of it makes for itself.
fn own_addresses() -> [SocketAddr; 2] {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    [7117, 7118].map(|port| SocketAddr::from(([127, a | 128, b, c], port)))
}

fn cluster(addresses: [SocketAddr; 2]) -> Cluster {
    let mut cluster = support::loopback().cluster;
    cluster.partitions = 2;
    cluster.stores =
        (0..).zip(addresses).map(|(at, address)| wire::Store::new(address, at, at)).collect();
    cluster
}

fn start(cluster: &Cluster, at: usize, directory: &Path) -> StoreThread {
    let address = cluster.stores[at].address;
    let listen = Config {
        cluster: cluster.clone(),
        identity: Some(address),
        status_socket: Some(directory.join(at.to_string())),
        halves: vec![half()],
        ..support::at(address)
    };
    StoreThread::start(listen)
}

/// A key whose home is the first store.
fn key_at_home() -> String {
    let home = |key: &String| {
        let hash = Secret::NONE.key_hash(TENANT_OPEN, key.as_bytes());
        wire::partition_of(hash, 2) == 0
    };
    let mut keys = (0..).map(|n: u32| format!("key {n}"));
    keys.find(home).unwrap()
}

/// Asks again until it is so.
fn until<T>(mut ask: impl FnMut() -> T, is_so: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask();
        if is_so(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "it never is");
        std::thread::yield_now();
    }
}

#[test]
fn a_key_is_read_at_the_store_that_holds_it_and_is_what_was_written_last() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = cluster(own_addresses());
    let home = start(&cluster, 0, directory.path());
    let holder = start(&cluster, 1, directory.path());
    let key = key_at_home();
    let key = key.as_bytes();
    let (mut at_home, mut at_holder) = (Client::to(home.address), Client::to(holder.address));
    at_holder.request = 1 << 32;
    let written = |reply: &support::Reply| reply.header.status == Status::Ok;
    let first = until(|| at_home.write(key, b"first"), written);

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tell = |message: &[u8]| {
        let handle = holder.handle();
        let told = handle.tell("holder", TENANT_OPEN, message.to_vec().into());
        runtime.block_on(told).unwrap();
    };
    let status = || store::read_status(&directory.path().join("1")).unwrap();
    tell(key);
    until(status, |status| status.replicas.valid == 1);

    let redirected = Header { node: HOLDER, ..Header::new(Op::ReadRequest) };
    let mut read = || at_holder.ask(redirected, key, &[], 512);
    let reply = read();
    assert_eq!(
        (&reply.value[..], reply.header.version, reply.header.node),
        (&b"first"[..], first.header.version, HOLDER)
    );
    let from_copy = |read: &mut dyn FnMut() -> support::Reply| {
        read();
        let totals = status().totals;
        totals.replicas.replica_reads - totals.replicas.replica_reads_passed
    };
    until(|| from_copy(&mut read), |reads| *reads > 0);

    // A write that no switch copies is answered when the copy is gone, and then pushed.
    at_home.write(key, b"second");
    assert_eq!(read().value, b"second");
    assert!(status().totals.replicas.replica_invalidations > 0);
    until(status, |status| status.replicas.valid == 1);

    // One that a switch sends to both.
    let write = Header { node: NODE_ALL, ..Header::new(Op::WriteRequest) };
    let mut switch = Client::to(holder.address);
    switch.request = at_home.request;
    let update = Header { node: HOLDER, ..Header::new(Op::ReplicaUpdate) };
    switch.tell(update, key, b"third, which is longer than its hash");
    at_home.ask(write, key, b"third, which is longer than its hash", 0);
    assert_eq!(read().value, b"third, which is longer than its hash");
    assert_eq!(status().totals.replicas.replica_updates, 1);
    until(status, |status| status.replicas.valid == 1);

    tell(&[b"-", key].concat());
    until(status, |status| status.replicas.keys == 0);
    assert_eq!(read().value, b"third, which is longer than its hash", "passed on");
}
