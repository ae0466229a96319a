//! The engine as a whole: datagrams in, replies out, at times that the test chooses.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use decide::{Operation, StoreAction};
use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status, TENANT_OPEN, TENANT_SYSTEM};

mod busy;
mod copies;
mod doubt;
mod granted_values;
mod holders;
mod holds;
mod large_values;
mod leaving;
mod lives;
mod loans;
mod parts;
mod read_elsewhere;
mod remote;
mod shares;
mod slots;
mod tenants;

use super::{Engine, MAX_WAITING, halves::MAX_OPEN};
use crate::{
    Config, Incarnation,
    backend::embedded::EmbeddedBackend,
    net::{Outbox, Peer},
};

const KEYED: u32 = 7;
const SECRET: Secret = Secret([9; 16]);
const SYSTEM: Secret = Secret([5; 16]);
/// A time at which the wait after the start is over.
const LATER_NS: u64 = 3_000_000_000;

struct Store {
    engine: Engine,
    out: Outbox,
    /// Where requests come from.
    client: std::net::SocketAddr,
}

/// Answers nothing but the key `k`; reports about itself what time it is, at each tick, and which
/// tenant left.
struct Slow;

impl decide::StoreHalf for Slow {
    fn operation(&mut self, _: Duration, operation: Operation<'_>, out: &mut Vec<StoreAction>) {
        if operation.key == b"k" {
            out.push(reply(operation.request));
        }
    }

    fn told(&mut self, _: Duration, _: u32, _: &[u8], out: &mut Vec<StoreAction>) {
        out.push(reply(1));
    }

    fn left(&mut self, _: Duration, tenant: u32, out: &mut Vec<StoreAction>) {
        out.push(StoreAction::Report {
            tenant: TENANT_OPEN,
            report: format!("{tenant} left").into(),
        });
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<StoreAction>) {
        out.push(StoreAction::Report { tenant: TENANT_OPEN, report: format!("{now:?}").into() });
    }
}

fn reply(request: decide::Request) -> StoreAction {
    StoreAction::Reply { request, header: Header::new(Op::DisciplineReply), value: Bytes::new() }
}

/// Switch 1 says that the copy of the tenant's key is gone which it was granted under `of`.
fn ack(epoch: u64, of: u64) -> Header {
    Header {
        tenant: KEYED,
        epoch: Epoch::new(1, epoch),
        version: of,
        ..Header::new(Op::InvalidateAck)
    }
}

impl Store {
    fn new() -> Store {
        Store::with(|_| {})
    }

    /// A store with a slow half.
    fn slow() -> Store {
        Store::with(|config| {
            let maker = decide::StoreMaker {
                operations: &[Op::DisciplineRequest],
                foreign_partitions: true,
                holds_copies: false,
                make: || Box::new(Slow),
            };
            let name = "slow";
            config.halves = vec![crate::Half { name, maker }];
        })
    }

    fn with(change: impl FnOnce(&mut Config)) -> Store {
        Store::make(change, 1_700_000_000, 0)
    }

    /// A store whose life began then.
    fn born(wall_s: u32, random: u64) -> Store {
        Store::make(|_| {}, wall_s, random)
    }

    fn make(change: impl FnOnce(&mut Config), wall_s: u32, random: u64) -> Store {
        let mut config = Config::new("127.0.0.1:7117".parse().unwrap());
        config.cluster.tenants.push(wire::Tenant::new(KEYED, "09".repeat(16)));
        config.cluster.system_secret = Some("05".repeat(16));
        change(&mut config);
        let backend = Box::new(EmbeddedBackend::new(config.memory_limit));
        Store {
            engine: Engine::new(Arc::new(config), backend, 0, Incarnation::new(wall_s, random)),
            out: Outbox::default(),
            client: "10.0.0.1:5000".parse().unwrap(),
        }
    }

    /// Hands a packet in; what is sent then is in `out`.
    fn hand_in(&mut self, header: Header, key: &[u8]) {
        self.hand_in_at(header, key, &[], 0, LATER_NS);
    }

    /// Likewise, with a value, padded to so many bytes, and at another time.
    fn hand_in_at(
        &mut self,
        mut header: Header,
        key: &[u8],
        value: &[u8],
        padded_to: usize,
        now_ns: u64,
    ) {
        let secret = if header.tenant == KEYED { SECRET } else { Secret::NONE };
        if !key.is_empty() {
            header.key_hash = secret.key_hash(header.tenant, key);
        }
        let signs = if header.op.is_system() { SYSTEM } else { secret };
        let mut bytes = Packet::new(header, key, value).to_bytes(&signs).unwrap();
        bytes.resize(bytes.len().max(padded_to), 0);
        let peer = Peer { address: self.client, local: None };
        self.out.clear();
        self.engine.receive(&bytes, peer, now_ns, &mut self.out);
    }

    /// Likewise; the header of the answer, if one leaves at once.
    fn ask(&mut self, header: Header, key: &[u8]) -> Option<Header> {
        self.hand_in(header, key);
        let reply = |(bytes, _): (Vec<u8>, Peer)| Packet::decode(&bytes).unwrap().header;
        self.out.pop().map(reply).filter(|reply| Some(reply.op) == header.op.reply())
    }

    /// Switch 1 asks for a lease; the answer.
    fn lease(&mut self) -> Option<Header> {
        let epoch = Epoch::new(1, 0);
        self.ask(Header { tenant: TENANT_SYSTEM, epoch, ..Header::new(Op::LeaseRequest) }, &[])
    }

    /// The packets that are sent, the newest first.
    fn sent(&mut self) -> impl Iterator<Item = Vec<u8>> {
        std::iter::from_fn(move || Some(self.out.pop()?.0))
    }

    /// Time passes until so many milliseconds after [`LATER_NS`].
    fn tick(&mut self, ms: u64) {
        self.engine.tick(LATER_NS + ms * 1_000_000, &mut self.out);
    }

    /// The newest report of the half, if there is a new one.
    fn report(&self) -> Option<Bytes> {
        let take = self.engine.reports();
        let mut take = std::pin::pin!(take.take());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match take.as_mut().poll(&mut context) {
            std::task::Poll::Ready(reports) => Some(reports[0].report.clone()),
            std::task::Poll::Pending => None,
        }
    }

    fn write(&mut self, tenant: u32, client: u64, request: u64, key: &[u8]) -> Option<Status> {
        let header = Header { tenant, client, request, ..Header::new(Op::WriteRequest) };
        self.ask(header, key).map(|reply| reply.status)
    }
}

#[test]
fn a_tenants_writes_are_not_answered_from_anothers() {
    let mut store = Store::new();
    assert_eq!(store.write(TENANT_OPEN, 1, 1, b"a"), Some(Status::Ok));
    assert_eq!(store.write(KEYED, 1, 1, b"b"), Some(Status::Ok));
    let read = Header { tenant: KEYED, ..Header::new(Op::ReadRequest) };
    assert_eq!(store.ask(read, b"b").map(|reply| reply.status), Some(Status::Ok));
}

#[test]
fn a_write_to_another_life_of_the_store_is_not_applied() {
    let mut store = Store::new();
    let write =
        |life, request| Header { client: 5, request, life, ..Header::new(Op::WriteRequest) };
    let told = store.ask(write(wire::LIFE_UNKNOWN, 1), b"k").unwrap();
    assert_eq!(told.status, Status::OtherLife);
    assert!(told.life > wire::LIFE_UNKNOWN);
    assert_eq!(u64::from(told.expiry_ms), LATER_NS / 1_000_000, "its age");
    let status = |store: &mut Store, life| store.ask(write(life, 1), b"k").unwrap().status;
    assert_eq!(status(&mut store, told.life + 1), Status::OtherLife);
    let read = Header::new(Op::ReadRequest);
    assert_eq!(store.ask(read, b"k").unwrap().status, Status::NotFound);
    assert_eq!(status(&mut store, told.life), Status::Ok);
    // A late copy of the first packet does not count as the write, nor as another one.
    assert_eq!(status(&mut store, wire::LIFE_UNKNOWN), Status::OtherLife);
    assert_eq!(store.engine.counters().loans.refused_other_life, 3);
}

#[test]
fn writes_that_wait_for_switches_are_bounded_over_all_keys() {
    let mut store = Store::new();
    store.lease();
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
            match store.write(TENANT_OPEN, n.into(), request, &key) {
                None => waiting += 1,
                Some(status) => {
                    assert_eq!(status, Status::TryAgain);
                    refused += 1;
                }
            }
        }
    }
    // All but the other tenant's share of half the room.
    assert_eq!(waiting, MAX_WAITING * 3 / 4);
    assert!(refused > 0);
}

/// The store, with a switch that holds a copy of the tenant's key `k`.
fn with_a_copy() -> Store {
    let mut store = Store::new();
    granted(&mut store);
    store
}

/// A switch has a lease, and a copy of the tenant's key `k`.
fn granted(store: &mut Store) {
    store.lease();
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    let fetch = Header {
        tenant: KEYED,
        epoch: Epoch::new(1, 10),
        flags: Flags::GRANT,
        ..Header::new(Op::FetchRequest)
    };
    let granted = store.ask(fetch, b"k").unwrap();
    assert!(granted.flags.has(Flags::GRANT));
}

#[test]
fn a_tenant_that_is_gone_leaves_nothing_behind() {
    let mut store = with_a_copy();
    let with = store.engine.facts.config.cluster.clone();
    let without = wire::Cluster { tenants: vec![], ..with.clone() };
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
    assert_eq!(store.write(KEYED, 1, 3, b"k"), None, "and this for that");
    assert_eq!(store.engine.facts.ledger.pending.all(), 2);
    store.engine.update(without, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.engine.facts.ledger.pending.all(), 0);
    store.out.clear();
    store.engine.tick(LATER_NS + 100_000_000, &mut store.out);
    let ops: Vec<Op> =
        store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header.op).collect();
    assert!(ops.contains(&Op::Invalidate), "its copies are called back: {ops:?}");
    store.hand_in(ack(12, 10), b"k");
    assert_eq!(store.engine.facts.directory.copies(), 0);
    assert!(store.engine.facts.directory.is_settled());
    assert_eq!(store.write(KEYED, 1, 4, b"k"), Some(Status::Denied));
    assert!(store.engine.facts.leases.holds(1, 0, LATER_NS));
    store.engine.update(with, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.write(KEYED, 1, 5, b"k"), Some(Status::Ok));
}

#[test]
fn a_write_waits_for_the_lease_of_a_switch_that_is_silent_and_that_is_counted() {
    let mut store = with_a_copy();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
    let until_ms = store.engine.facts.leases.until_ns(1).unwrap() / 1_000_000;
    let lasts_ms = until_ms - LATER_NS / 1_000_000;
    store.tick(lasts_ms - 1);
    let waited = |store: &Store| {
        let counters = store.engine.counters();
        (counters.keys.waits_lapsed, counters.write.writes_applied)
    };
    assert_eq!(waited(&store), (0, 1));
    store.tick(lasts_ms + 1);
    assert_eq!(waited(&store), (1, 2));
}

#[test]
fn what_a_write_costs_grows_with_the_copies_of_its_key_and_not_with_their_square() {
    const COPIES: u16 = 1000;
    let mut store = Store::new();
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    for switch in 1..=COPIES {
        let asks = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            ..Header::new(Op::LeaseRequest)
        };
        assert!(store.ask(asks, &[]).is_some());
        let fetch = Header {
            tenant: KEYED,
            epoch: Epoch::new(switch, 10),
            flags: Flags::GRANT,
            ..Header::new(Op::FetchRequest)
        };
        assert!(store.ask(fetch, b"k").unwrap().flags.has(Flags::GRANT));
    }
    let looked_up = || crate::coherence::LOOKED_UP.with(std::cell::Cell::get);
    let before = looked_up();
    let write = Header { tenant: KEYED, client: 1, request: 2, ..Header::new(Op::WriteRequest) };
    store.hand_in(write, b"k");
    assert_eq!(store.sent().count(), usize::from(COPIES), "one invalidation each");
    // From the last to the first: no order makes it worse.
    for switch in (1..=COPIES).rev() {
        assert_eq!(store.sent().count(), 0, "the write waits for the others");
        store.hand_in(Header { epoch: Epoch::new(switch, 11), ..ack(11, 10) }, b"k");
    }
    assert_eq!(store.engine.counters().keys.acks, u64::from(COPIES));
    let answered = store.sent().next().map(|bytes| Packet::decode(&bytes).unwrap().header.status);
    assert_eq!(answered, Some(Status::Ok));
    let each = (looked_up() - before) / usize::from(COPIES);
    assert!(each <= 8, "leases were looked at {each} times for each copy");
}

#[test]
fn copies_of_keys_that_are_another_stores_now_are_called_back() {
    let mut store = with_a_copy();
    let mut cluster = store.engine.facts.config.cluster.clone();
    let me = cluster.stores[0].address;
    let other = "10.0.0.2:7117".parse().unwrap();
    // Started with two stores, of which this one owns what the key hashes to.
    cluster.partitions = 2;
    let partition = wire::partition_of(SECRET.key_hash(KEYED, b"k"), 2);
    let own = |address, partition| wire::Store::new(address, partition, partition);
    cluster.stores = vec![own(me, partition), own(other, 1 - partition)];
    let config = Arc::make_mut(&mut store.engine.facts.config);
    config.identity = Some(me);
    config.cluster = cluster.clone();
    store.engine.facts.partitions = crate::partition::Partitions::new(2, |at| at == partition);
    cluster.tenants[0].stores = vec![other];
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    store.out.clear();
    store.engine.tick(LATER_NS, &mut store.out);
    let invalidations = store.sent().filter(|bytes| {
        let packet = Packet::decode(bytes).unwrap();
        packet.header.op == Op::Invalidate && packet.key == b"k" && packet.tag_is_valid(&SYSTEM)
    });
    assert_eq!(invalidations.count(), 1);
    let asked = store.write(KEYED, 1, 9, b"k");
    assert_eq!(asked, Some(Status::WrongPartition));
}

#[test]
fn while_a_tenants_secret_changes_its_copies_are_called_back_as_ever() {
    let mut store = with_a_copy();
    let mut cluster = store.engine.facts.config.cluster.clone();
    cluster.tenants[0] = wire::Tenant {
        also_secret: Some("09".repeat(16)),
        hash_secret: Some("09".repeat(16)),
        ..wire::Tenant::new(KEYED, "08".repeat(16))
    };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
    store.out.clear();
    // Repeated: the first left with the write.
    store.engine.tick(LATER_NS + 50_000_000, &mut store.out);
    let invalidations = store.sent().filter(|bytes| {
        let packet = Packet::decode(bytes).unwrap();
        packet.header.op == Op::Invalidate && packet.tag_is_valid(&SYSTEM)
    });
    assert_eq!(invalidations.count(), 1);
    store.hand_in(ack(11, 10), b"k");
    assert_eq!(store.engine.facts.ledger.pending.all(), 0);
    let reply = store.out.pop().expect("the write's answer").0;
    let packet = Packet::decode(&reply).unwrap();
    assert_eq!(packet.header.status, Status::Ok);
    assert!(packet.tag_is_valid(&SECRET), "signed as the write was");
}

fn operation() -> Header {
    Header { tenant: KEYED, ..Header::new(Op::DisciplineRequest) }
}

#[test]
fn a_request_that_its_half_does_not_answer_is_forgotten() {
    let mut store = Store::slow();
    assert_eq!(store.ask(operation(), b"x"), None);
    store.tick(999);
    assert_eq!(store.engine.counters().halves.discipline_unanswered, 0);
    store.tick(1100);
    assert_eq!(store.engine.counters().halves.discipline_unanswered, 1);
    let tell = |store: &mut Store| {
        let told = store.engine.tell("slow", KEYED, b"answer", LATER_NS, &mut store.out);
        told.unwrap();
        store.engine.counters().halves.discipline_refused
    };
    assert_eq!(tell(&mut store), 1, "too late to answer");
    let mut store = Store::slow();
    store.hand_in(operation(), b"x");
    assert_eq!(tell(&mut store), 0, "in time");
    assert_eq!(tell(&mut store), 1, "answered already");
    assert_eq!(store.sent().count(), 1);
}

#[test]
fn requests_that_halves_have_open_are_bounded_and_each_tenant_has_its_share() {
    let mut store = Store::slow();
    // Two tenants: a quarter is kept for the other one.
    let most = MAX_OPEN as u32 * 3 / 4;
    for n in 0..most + 3 {
        assert_eq!(store.ask(operation(), &n.to_be_bytes()), None);
    }
    assert_eq!(store.engine.counters().halves.dropped_discipline_busy, 3);
    assert_eq!(store.engine.counters().halves.discipline_requests, u64::from(most));
    assert_eq!(store.ask(operation(), b"k"), None, "no room for this one");
    let others = Header { tenant: TENANT_OPEN, ..operation() };
    assert!(store.ask(others, b"k").is_some(), "another tenant has its share");
    store.tick(1000);
    let answer = store.ask(operation(), b"k").unwrap();
    assert_eq!((answer.op, answer.status), (Op::DisciplineReply, Status::Ok));
}

#[test]
fn halves_hear_ten_times_a_second_that_time_passes() {
    let mut store = Store::slow();
    store.tick(0);
    assert_eq!(store.report(), None, "who knows of no tenant has nothing to do");
    store.hand_in(operation(), b"k");
    let mut heard = 0;
    for ms in 0..1000 {
        store.tick(ms);
        heard += u32::from(store.report().is_some());
    }
    assert_eq!(heard, 10);
    store.tick(1000);
    assert_eq!(store.report().as_deref(), Some(&b"4s"[..]));
}

#[test]
fn halves_hear_of_a_tenant_that_left_and_keep_nothing_open_for_it() {
    let mut store = Store::slow();
    store.hand_in(operation(), b"x");
    let mut cluster = store.engine.facts.config.cluster.clone();
    cluster.tenants.clear();
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.report().as_deref(), Some(&b"7 left"[..]));
    store.tick(1000);
    assert_eq!(store.engine.counters().halves.discipline_unanswered, 0);
}

#[test]
fn operations_that_nobody_takes_end_as_before() {
    let mut store = Store::slow();
    let header = Header { op: Op::ChainRead, ..operation() };
    assert_eq!(store.ask(header, b"k"), None);
    assert_eq!(store.engine.counters().halves.dropped_op, 1);
}

#[test]
fn operations_keep_to_the_rate_limit_also_those_of_other_stores_keys() {
    let mut store = Store::slow();
    // One of two partitions is ours: the other's keys cost us as ours do.
    for owned in [0, 1] {
        store.engine.facts.partitions = crate::partition::Partitions::new(2, |at| at == owned);
        busy::make_busy(&mut store.engine, 100, 3);
        store.engine.facts.counters.dropped_rate_limit = 0;
        for _ in 0..20 {
            store.hand_in(operation(), b"k");
        }
        assert_eq!(store.engine.counters().requests.dropped_rate_limit, 16);
        let served = store.engine.facts.partitions.iter().map(|p| p.served);
        assert_eq!(served.collect::<Vec<_>>()[owned as usize], 4);
        store.out.clear();
        store.tick(100 + 1000 * u64::from(owned));
        assert_eq!(store.sent().count(), 4, "each answer at its time");
    }
}
