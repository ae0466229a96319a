//! The engine as a whole: datagrams in, replies out, at times that the test chooses.

use std::sync::Arc;

use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status, TENANT_OPEN, TENANT_SYSTEM};

use super::{Engine, MAX_WAITING};
use crate::{
    Config,
    backend::embedded::Embedded,
    net::{Outbox, Peer},
};

const KEYED: u32 = 7;
const SECRET: Secret = Secret([9; 16]);
/// A time at which the wait after the start is over.
const LATER_NS: u64 = 3_000_000_000;

struct Store {
    engine: Engine,
    out: Outbox,
}

impl Store {
    fn new() -> Store {
        let mut config = Config::new("127.0.0.1:7117".parse().unwrap());
        config.cluster.tenants.push(wire::Tenant {
            id: KEYED,
            secret: "09".repeat(16),
            rate: 0,
        });
        let backend = Box::new(Embedded::new(config.memory_limit));
        Store {
            engine: Engine::new(Arc::new(config), backend, 0, 1_700_000_000),
            out: Outbox::default(),
        }
    }

    /// Hands a packet in; the header of the answer, if one leaves at once.
    fn ask(&mut self, mut header: Header, key: &[u8]) -> Option<Header> {
        let secret = if header.tenant == KEYED {
            SECRET
        } else {
            Secret::NONE
        };
        if !key.is_empty() {
            header.key_hash = secret.key_hash(header.tenant, key);
        }
        let mut bytes = vec![];
        Packet::new(header, key, &[])
            .encode(&secret, &mut bytes)
            .unwrap();
        let peer = Peer {
            address: "10.0.0.1:5000".parse().unwrap(),
            local: None,
        };
        self.out.clear();
        self.engine.receive(&bytes, peer, LATER_NS, &mut self.out);
        let reply = |(bytes, _): (Vec<u8>, Peer)| Packet::decode(&bytes).unwrap().header;
        self.out
            .pop()
            .map(reply)
            .filter(|reply| Some(reply.op) == header.op.reply())
    }

    fn write(&mut self, tenant: u32, client: u32, request: u32, key: &[u8]) -> Option<Status> {
        let header = Header {
            tenant,
            client,
            request,
            ..Header::new(Op::WriteRequest)
        };
        self.ask(header, key).map(|reply| reply.status)
    }
}

#[test]
fn a_tenants_writes_are_not_answered_from_anothers() {
    let mut store = Store::new();
    assert_eq!(store.write(TENANT_OPEN, 1, 1, b"a"), Some(Status::Ok));
    assert_eq!(store.write(KEYED, 1, 1, b"b"), Some(Status::Ok));
    let read = Header {
        tenant: KEYED,
        ..Header::new(Op::ReadRequest)
    };
    assert_eq!(
        store.ask(read, b"b").map(|reply| reply.status),
        Some(Status::Ok)
    );
}

#[test]
fn writes_that_wait_for_switches_are_bounded_over_all_keys() {
    let mut store = Store::new();
    let lease = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        ..Header::new(Op::LeaseRequest)
    };
    store.ask(lease, &[]);
    let (mut waiting, mut refused) = (0, 0);
    for n in 0..MAX_WAITING as u32 / 32 {
        let key = n.to_be_bytes();
        let fetch = Header {
            epoch: Epoch::new(1, 10),
            flags: Flags::GRANT,
            ..Header::new(Op::FetchRequest)
        };
        store.ask(fetch, &key);
        for request in 1..=40 {
            match store.write(TENANT_OPEN, n, request, &key) {
                None => waiting += 1,
                Some(status) => {
                    assert_eq!(status, Status::TryAgain);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(waiting, MAX_WAITING);
    assert!(refused > 0);
}
