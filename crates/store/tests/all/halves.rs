//! A discipline's half in a store, over loopback: its operations, its messages, its reports.

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use bytes::Bytes;
use decide::{Operation, Request, StoreAction, StoreHalf, StoreMaker};
use store::{Config, Half, Report, TellError};
use wire::{Cluster, Header, KeyHash, Op, Packet, Secret, Secrets, Status, Store, Tenant};

use super::support::{
    self, Client, PATIENCE, StoreThread,
    servers::{memcached, redis},
};

const SECRET: Secret = Secret([1; 16]);
const TENANT: u32 = 7;

/// Measures values. Asked about a key it says how long the key's value is, and whether the key is
/// the store's own; a request with a value, which is an address, goes on to that address without
/// it. What it is told it reports, and of a tenant that it is told to watch every read.
#[derive(Default)]
struct Measurer {
    asked: HashMap<Request, bool>,
}

impl StoreHalf for Measurer {
    fn operation(&mut self, _: Duration, operation: Operation<'_>, out: &mut Vec<StoreAction>) {
        let Operation { request, owned, .. } = operation;
        match std::str::from_utf8(operation.value).unwrap().parse() {
            Ok(to) => out.push(StoreAction::Send {
                to,
                header: Header {
                    tenant: operation.header.tenant,
                    ..Header::new(Op::DisciplineRequest)
                },
                key: Bytes::copy_from_slice(operation.key),
                value: Bytes::new(),
            }),
            Err(_) => {
                self.asked.insert(request, owned);
                out.push(StoreAction::Read { request });
            }
        }
    }

    fn value(
        &mut self,
        _: Duration,
        request: Request,
        value: Option<(&[u8], u64)>,
        out: &mut Vec<StoreAction>,
    ) {
        let owned = self.asked.remove(&request).unwrap();
        let mut header = Header::new(Op::DisciplineReply);
        header.status = value.map_or(Status::NotFound, |_| Status::Ok);
        header.version = value.map_or(0, |(_, version)| version);
        let len = value.map_or(0, |(bytes, _)| bytes.len());
        let value = format!("{len} {}", ["foreign", "own"][usize::from(owned)]).into();
        out.push(StoreAction::Reply { request, header, value });
    }

    fn read(
        &mut self,
        _: Duration,
        tenant: u32,
        key: &[u8],
        hash: KeyHash,
        out: &mut Vec<StoreAction>,
    ) {
        assert_eq!(hash, SECRET.key_hash(tenant, key));
        let report = Bytes::copy_from_slice(key);
        out.push(StoreAction::Report { tenant, report });
    }

    fn told(&mut self, _: Duration, tenant: u32, message: &[u8], out: &mut Vec<StoreAction>) {
        out.push(match message.starts_with(b"watch") {
            true => StoreAction::Watch { tenant, on: message == b"watch" },
            false => StoreAction::Report { tenant, report: Bytes::copy_from_slice(message) },
        });
    }
}

fn measurer(foreign_partitions: bool) -> Half {
    let maker = StoreMaker {
        operations: &[Op::DisciplineRequest],
        foreign_partitions,
        holds_copies: false,
        make: || Box::<Measurer>::default(),
    };
    let name = "measurer";
    Half { name, maker }
}

/// A store with the half, and the tenant.
fn config() -> Config {
    let mut config = support::loopback();
    config.cluster.tenants = vec![Tenant::new(TENANT, "01".repeat(16))];
    config.halves = vec![measurer(false)];
    config
}

fn tenants_client(store: &StoreThread) -> Client {
    Client { secrets: Secrets::one(SECRET), ..Client::to(store.address) }
}

fn of_tenant(op: Op) -> Header {
    Header { tenant: TENANT, ..Header::new(op) }
}

#[test]
fn a_half_reads_and_answers_whatever_the_backend() {
    let (redis, memcached) = (redis(), memcached());
    let backends = [
        "embedded".to_owned(),
        format!("redis://127.0.0.1:{}", redis.port),
        format!("memcached://127.0.0.1:{}", memcached.port),
    ];
    for backend in backends {
        let store = StoreThread::start(Config { backend: backend.parse().unwrap(), ..config() });
        let mut client = tenants_client(&store);
        let written = loop {
            let reply = client.ask(of_tenant(Op::WriteRequest), b"k", b"hello", 0);
            if reply.header.status != Status::TryAgain {
                break reply.header;
            }
        };
        let reply = client.ask(of_tenant(Op::DisciplineRequest), b"k", &[], 0);
        assert!(reply.signed_alike);
        assert_eq!(
            (reply.header.op, reply.header.status, reply.header.version),
            (Op::DisciplineReply, Status::Ok, written.version),
            "{backend}"
        );
        let hash = SECRET.key_hash(TENANT, b"k");
        assert_eq!((reply.header.tenant, reply.header.client), (TENANT, written.client));
        assert_eq!((reply.header.key_hash, &reply.key[..]), (hash, &b"k"[..]));
        assert_eq!(reply.value, b"5 own");
        let none = client.ask(of_tenant(Op::DisciplineRequest), b"none", &[], 0);
        assert_eq!(none.header.status, Status::NotFound);
    }
}

#[test]
fn a_backend_that_fails_is_the_stores_answer() {
    let server = redis();
    let backend = format!("redis://127.0.0.1:{}", server.port);
    let store = StoreThread::start(Config { backend: backend.parse().unwrap(), ..config() });
    let _port = server.stop();
    let mut client = tenants_client(&store);
    let reply = client.ask(of_tenant(Op::DisciplineRequest), b"k", &[], 0);
    assert_eq!((reply.header.op, reply.header.status), (Op::DisciplineReply, Status::BackendError));
}

#[test]
fn who_asks_is_checked_first() {
    let store = StoreThread::start(config());
    let ask = |header, secrets| {
        let mut client = Client { secrets, ..Client::to(store.address) };
        client.ask(header, b"k", &[], 0).header.status
    };
    let header = of_tenant(Op::DisciplineRequest);
    let (right, wrong) = (Secrets::one(SECRET), Secret([2; 16]));
    // (secrets, tenant, status)
    let rows = [
        (right.clone(), TENANT, Status::NotFound),
        (Secrets { tag: wrong, ..right.clone() }, TENANT, Status::Denied),
        (Secrets { hash: wrong.into(), ..right.clone() }, TENANT, Status::Denied),
        (right.clone(), TENANT + 1, Status::Denied),
        (right, wire::TENANT_SYSTEM, Status::Denied),
    ];
    for (secrets, tenant, status) in rows {
        assert_eq!(ask(Header { tenant, ..header }, secrets), status);
    }
}

#[test]
fn who_needs_no_secret_gets_no_more_than_he_sent() {
    let store = StoreThread::start(config());
    let mut client = Client::to(store.address);
    let header = Header::new(Op::DisciplineRequest);
    let bare = client.ask(header, b"k", &[], 0);
    assert_eq!((bare.header.status, bare.header.total), (Status::NeedPadding, 5), "0 own");
    assert!(bare.value.is_empty());
    let padded = client.ask(header, b"k", &[], 128);
    assert_eq!(padded.header.status, Status::NotFound);
    assert_eq!(padded.value, b"0 own");
}

#[test]
fn other_stores_keys_reach_a_half_that_wants_them() {
    let [me, other]: [SocketAddr; 2] =
        ["10.9.9.1:7117", "10.9.9.2:7117"].map(|a| a.parse().unwrap());
    let part = |address, partition| Store::new(address, partition, partition);
    for wanted in [false, true] {
        let mut config = config();
        config.cluster = Cluster {
            stores: vec![part(me, 0), part(other, 1)],
            tenants: config.cluster.tenants,
            ..Cluster::single(me, 2)
        };
        config.identity = Some(me);
        config.halves = vec![measurer(wanted)];
        let store = StoreThread::start(config);
        let mut client = tenants_client(&store);
        for key in 0..16u8 {
            let own = wire::partition_of(SECRET.key_hash(TENANT, &[key]), 2) == 0;
            let reply = client.ask(of_tenant(Op::DisciplineRequest), &[key], &[], 0);
            let expected: (Status, &[u8]) = match (own, wanted) {
                (true, _) => (Status::NotFound, b"0 own"),
                (false, true) => (Status::NotFound, b"0 foreign"),
                (false, false) => (Status::WrongPartition, b""),
            };
            assert_eq!((reply.header.status, &reply.value[..]), expected, "{key}");
            let read = client.ask(of_tenant(Op::ReadRequest), &[key], &[], 0);
            let read = read.header.status == Status::WrongPartition;
            assert_eq!(read, !own, "reads stay where they were");
        }
    }
}

#[test]
fn what_a_half_sends_is_signed_and_hashed_as_the_tenants_are() {
    let store = StoreThread::start(config());
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    target.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let header =
        Header { key_hash: SECRET.key_hash(TENANT, b"k"), ..of_tenant(Op::DisciplineRequest) };
    let bytes = Packet::new(header, b"k", to.as_bytes()).to_bytes(&SECRET).unwrap();
    target.send_to(&bytes, store.address).unwrap();
    let mut buffer = [0; 2048];
    let (len, from) = target.recv_from(&mut buffer).unwrap();
    let sent = Packet::decode(&buffer[..len]).unwrap();
    assert_eq!(from, store.address);
    assert_eq!((sent.header.tenant, sent.key, sent.value), (TENANT, &b"k"[..], &b""[..]));
    assert_ne!(sent.header.key_hash, KeyHash([0; 16]));
    assert_eq!(sent.header.key_hash, header.key_hash);
    assert!(sent.tag_is_valid(&SECRET));
}

#[test]
fn messages_come_in_and_the_newest_reports_go_out() {
    let store = StoreThread::start(config());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = store.handle();
    runtime.block_on(async {
        for (tenant, message) in [(TENANT, "old"), (0, "other"), (TENANT, "new")] {
            handle.tell("measurer", tenant, message.into()).await.unwrap();
        }
        let report = |tenant, report: &'static str| Report {
            half: "measurer",
            tenant,
            report: report.into(),
        };
        assert_eq!(handle.reports().await, [report(0, "other"), report(TENANT, "new")]);
        let later = async {
            tokio::task::yield_now().await;
            handle.tell("measurer", TENANT, "later".into()).await
        };
        let (reports, told) = tokio::join!(handle.reports(), later);
        assert_eq!((reports, told), (vec![report(TENANT, "later")], Ok(())));

        let unknown = handle.tell("stranger", TENANT, Bytes::new()).await;
        assert_eq!(unknown, Err(TellError::Half("stranger".into())));
        let unknown = handle.tell("measurer", 99, Bytes::new()).await;
        assert_eq!(unknown, Err(TellError::Tenant(99)));
    });
    store.end();
    let late = runtime.block_on(handle.tell("measurer", TENANT, Bytes::new()));
    assert_eq!(late, Err(TellError::Ended));
}

#[test]
fn a_half_is_told_of_the_reads_that_it_watches() {
    let store = StoreThread::start(config());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = store.handle();
    let mut client = tenants_client(&store);
    let tell = |message: &'static str| {
        let told = handle.tell("measurer", TENANT, message.into());
        runtime.block_on(told).unwrap();
    };
    let seen = || {
        let reports = runtime.block_on(handle.reports()).into_iter();
        reports.map(|report| report.report).collect::<Vec<_>>()
    };
    client.ask(of_tenant(Op::ReadRequest), b"before", &[], 0);
    tell("watch");
    client.ask(of_tenant(Op::ReadRequest), b"hot", &[], 0);
    client.ask(of_tenant(Op::CorrectionRequest), b"no read", &[], 0);
    assert_eq!(seen(), ["hot"]);
    tell("watch no longer");
    client.ask(of_tenant(Op::ReadRequest), b"after", &[], 0);
    tell("said");
    assert_eq!(seen(), ["said"], "nothing newer takes its place, and nothing came before");
}

#[test]
fn each_operation_has_one_taker() {
    let of = |operations| Half {
        maker: StoreMaker { operations, ..measurer(false).maker },
        ..measurer(false)
    };
    // (operations of each half, what is wrong with them)
    let rows: [(&[&'static [Op]], &str); 4] = [
        (&[&[Op::DisciplineRequest], &[Op::ChainRead]], ""),
        (&[&[Op::ChainRead], &[Op::ChainRead]], "measurer and measurer both take ChainRead"),
        (&[&[Op::ReadRequest]], "measurer cannot take ReadRequest in a store"),
        (&[&[Op::PeerSignal]], "measurer cannot take PeerSignal in a store"),
    ];
    for (halves, error) in rows {
        let halves = halves.iter().map(|operations| of(*operations)).collect();
        let checked = Config { halves, ..config() }.check();
        let said = checked.map_or_else(|e| e.to_string(), |()| String::new());
        assert_eq!(said, error);
    }
}
