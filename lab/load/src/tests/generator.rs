//! The load generator against stores of a few lines: what it counts and what it notices.
//!
//! In a time of its own, where what comes back and when does not depend on the machine; and on
//! loopback, where of numbers only that is looked at which is so however late answers are.

use std::{
    collections::{HashMap, VecDeque},
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    Arrivals, Generator, LoadConfig, Phase, PhaseKind, PhaseResult, Source,
    workload::{Popularity, populated_value},
};
use wire::{Cluster, Flags, Header, Op, Packet, Secret, Status};

/// How the stand-in answers: the reply to a request, or none.
type Answer = fn(&Packet, u64) -> Option<(Header, Vec<u8>)>;

fn reply(packet: &Packet, version: u64) -> Header {
    let op = packet.header.op.reply().unwrap();
    Header { op, version, status: Status::Ok, ..packet.header }
}

fn honest(packet: &Packet, _: u64) -> Option<(Header, Vec<u8>)> {
    let value = populated_value(packet.key, 128);
    Some((reply(packet, 1), value))
}

/// Runs one phase of the open tenant.
fn measure(answer: Answer, phase: Phase) -> PhaseResult {
    measure_all(&[], answer, &[phase]).pop().unwrap()
}

/// Tenants `ids`, each with a secret of its own.
fn tenants(ids: &[u32]) -> Vec<wire::Tenant> {
    ids.iter().map(|id| wire::Tenant::new(*id, format!("{:032x}", id + 1))).collect()
}

/// A thousand keys at a store at this address.
fn config(store: SocketAddr, ids: &[u32]) -> LoadConfig {
    let mut cluster = Cluster::single(store, 4);
    cluster.tenants = tenants(ids);
    LoadConfig {
        cluster,
        tenants: ids.to_vec(),
        keys: 1000,
        value_len: 128.into(),
        seed: 4,
        timeout_ms: 200,
        interval_ms: 50,
        again_ms: None,
        names_lives: false,
        number: 0,
        trace: None,
        phases: vec![],
    }
}

/// What the stand-in answers to a datagram that is its `count`th.
fn answer_to(
    datagram: &[u8],
    count: u64,
    answer: &mut impl FnMut(&Packet, u64) -> Option<(Header, Vec<u8>)>,
) -> Option<Vec<u8>> {
    let packet = Packet::decode(datagram).unwrap();
    let (header, value) = answer(&packet, count)?;
    let mut bytes = vec![];
    let packet = Packet::new(header, packet.key, &value);
    packet.encode(&Secret::NONE, &mut bytes).unwrap();
    Some(bytes)
}

/// Runs phases of these tenants against a stand-in that takes 100 us for each answer, in a time of
/// their own: what is lost is what it does not answer.
fn measure_all(
    ids: &[u32],
    mut answer: impl FnMut(&Packet, u64) -> Option<(Header, Vec<u8>)>,
    phases: &[Phase],
) -> Vec<PhaseResult> {
    const DELAY_NS: u64 = 100_000;
    let store = "10.0.0.1:7117".parse().unwrap();
    let mut source = Source::new(config(store, ids), 9).unwrap();
    let (mut now, mut count, mut on_its_way) = (0, 0, VecDeque::new());
    let run = |phase: &Phase| {
        source.begin(phase, now).unwrap();
        loop {
            source.due(now, &mut |_, bytes| {
                count += 1;
                let bytes = answer_to(bytes, count, &mut answer);
                on_its_way.extend(bytes.map(|bytes| (now + DELAY_NS, bytes)));
            });
            source.expire(now);
            if let Some(result) = source.finished(now).unwrap() {
                return result;
            }
            let next = source.next_ns().expect("a phase is under way").max(now);
            match on_its_way.front() {
                Some((at, _)) if *at <= next => {
                    let (at, bytes) = on_its_way.pop_front().unwrap();
                    now = now.max(at);
                    source.take(&bytes, store, now);
                }
                _ => now = next,
            }
        }
    };
    phases.iter().map(run).collect()
}

/// Runs phases of these tenants on sockets, against a stand-in on a thread.
fn measure_on_loopback(
    ids: &[u32],
    mut answer: impl FnMut(&Packet, u64) -> Option<(Header, Vec<u8>)> + Send + 'static,
    phases: &[Phase],
) -> Vec<PhaseResult> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let config = config(socket.local_addr().unwrap(), ids);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        let mut count = 0;
        while !stopped.load(Ordering::Relaxed) {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            count += 1;
            if let Some(bytes) = answer_to(&buffer[..len], count, &mut answer) {
                socket.send_to(&bytes, from).unwrap();
            }
        }
    });
    let mut generator = Generator::new(config).unwrap();
    let results = phases.iter().map(|p| generator.run(p).unwrap()).collect();
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap();
    results
}

fn reads(arrivals: Arrivals) -> Phase {
    Phase { arrivals, ..Phase::reads(Popularity::Zipf(0.99), 1.0, 0.05, 0.3) }
}

/// Each request has one end, and stands in one interval.
fn counted_once(result: &PhaseResult) {
    assert_eq!(result.sent, result.answered + result.lost);
    assert_eq!((result.cached, result.wrong(), result.not_found), (0, 0, 0));
    let sum = |f: fn(&crate::Interval) -> u32| {
        result.intervals.iter().map(|i| u64::from(f(i))).sum::<u64>()
    };
    assert_eq!(result.intervals.len(), 6);
    assert_eq!(sum(|i| i.sent), result.sent);
    assert_eq!(sum(|i| i.answered), result.answered);
    assert_eq!(sum(|i| i.lost), result.lost);
    assert_eq!(result.all.count, result.answered);
}

#[test]
fn every_request_is_counted_once() {
    let result = measure(honest, reads(Arrivals::Open(5000.0)));
    counted_once(&result);
    assert_eq!(result.lost, 0);
    // A Poisson count of 1500 has a standard deviation of 39.
    assert!((1300..1700).contains(&result.sent), "{} sent", result.sent);
}

#[test]
fn on_sockets_keys_are_filled_and_swept_and_each_request_is_counted_once() {
    const PATIENCE_S: f64 = 90.0;
    let phases = [
        Phase::fill(32, PATIENCE_S),
        Phase::census(32, PATIENCE_S),
        reads(Arrivals::Open(5000.0)),
        reads(Arrivals::Closed(8)),
    ];
    let results = measure_on_loopback(&[7, 8], keeping(false), &phases);
    for result in &results[..2] {
        // What is not answered in time is asked for again.
        assert!(result.sent >= 2000);
        assert_eq!((result.answered, result.wrong()), (2000, 0));
    }
    results[2..].iter().for_each(counted_once);
}

#[test]
fn silence_is_loss() {
    let every_third = |packet: &Packet, count| (count % 3 != 0).then(|| honest(packet, 0))?;
    let result = measure(every_third, reads(Arrivals::Open(5000.0)));
    assert!((result.loss() - 1.0 / 3.0).abs() < 0.05, "{} lost", result.loss());
    assert_eq!(result.sent, result.answered + result.lost);
}

#[test]
fn a_closed_loop_keeps_going() {
    let result = measure(honest, reads(Arrivals::Closed(8)));
    assert!(result.answered > 8 * 10);
    assert_eq!((result.lost, result.wrong()), (0, 0));
}

#[test]
fn cached_answers_are_told_apart() {
    let cached = |packet: &Packet, count| {
        let (header, value) = honest(packet, count)?;
        Some((Header { flags: Flags::CACHED, ..header }, value))
    };
    let result = measure(cached, reads(Arrivals::Open(2000.0)));
    assert_eq!(result.cached, result.answered);
    assert_eq!((result.hit.count, result.miss.count), (result.answered, 0));
}

#[test]
fn another_keys_value_is_noticed() {
    let liar =
        |packet: &Packet, _| Some((reply(packet, 1), populated_value(b"key000000000xxxx", 128)));
    let result = measure(liar, reads(Arrivals::Open(1000.0)));
    // Wrong is wrong, also in the warm-up.
    assert!(result.wrong_values >= result.answered);
    assert!(result.answered > 0);
}

#[test]
fn a_write_that_reads_do_not_see_is_noticed() {
    // Writes are acknowledged with rising versions and forgotten: reads go on as if nothing
    // was written.
    let forgetful = |packet: &Packet, count| match packet.header.op {
        Op::WriteRequest => Some((reply(packet, count + 1), vec![])),
        _ => honest(packet, count),
    };
    let phase = Phase { write_ratio: 0.3, ..reads(Arrivals::Open(3000.0)) };
    let result = measure(forgetful, phase);
    assert!(result.writes_answered > 0 && result.wrong_values > 0);
}

#[test]
fn refusals_are_losses() {
    let refuse = |packet: &Packet, _| {
        Some((Header { status: Status::TryAgain, ..reply(packet, 0) }, vec![]))
    };
    let result = measure(refuse, reads(Arrivals::Open(1000.0)));
    assert_eq!((result.refused, result.answered), (result.lost, 0));
    assert_eq!(result.sent, result.lost);
}

/// A store of a few lines: keeps values, by tenant and key, or by key alone.
fn keeping(mix_tenants_up: bool) -> impl FnMut(&Packet, u64) -> Option<(Header, Vec<u8>)> + Send {
    let mut values = HashMap::<(u32, Vec<u8>), (u64, Vec<u8>)>::new();
    move |packet, count| {
        let tenant = if mix_tenants_up { 0 } else { packet.header.tenant };
        let key = (tenant, packet.key.to_vec());
        if packet.header.op == Op::WriteRequest {
            values.insert(key, (count, packet.value.to_vec()));
            return Some((reply(packet, count), vec![]));
        }
        let (version, value) = values.get(&key).cloned().unwrap_or_default();
        let status = if value.is_empty() { Status::NotFound } else { Status::Ok };
        Some((Header { status, ..reply(packet, version) }, value))
    }
}

#[test]
fn tenants_share_the_load_and_see_their_own_values() {
    let few = Phase { tenants: 2, ..reads(Arrivals::Open(4000.0)) };
    let phases = [Phase::fill(32, 10.0), few, reads(Arrivals::Open(4000.0))];
    let results = measure_all(&[7, 8, 9], keeping(false), &phases);
    assert_eq!(results[0].answered, 3000);
    assert_eq!(results[1].tenants.len(), 2);
    for tenant in &results[2].tenants {
        // A third of 1200, with a standard deviation below 20.
        assert!((300..500).contains(&tenant.sent), "{tenant:?}");
        assert_eq!(tenant.sent, tenant.answered + tenant.lost);
        assert_eq!((tenant.wrong, tenant.foreign), (0, 0));
        assert_eq!(tenant.all.count, tenant.answered);
    }
    assert_eq!((results[2].wrong(), results[2].not_found), (0, 0));
    assert_eq!(results[2].share_of(0), 1.0);
}

#[test]
fn another_tenants_value_is_noticed() {
    let phases = [Phase::fill(32, 10.0), reads(Arrivals::Open(2000.0))];
    let results = measure_all(&[7, 8], keeping(true), &phases);
    assert!(results[1].foreign_values > results[1].answered / 4);
    assert_eq!(
        results[1].foreign_values,
        results[1].tenants.iter().map(|t| t.foreign).sum::<u64>()
    );
}

#[test]
fn a_census_reads_each_key_once() {
    let mut store = keeping(false);
    let caching = move |packet: &Packet, count| {
        let (mut header, value) = store(packet, count)?;
        // One key in ten is answered by the switch.
        if packet.header.op == Op::ReadRequest && packet.key.ends_with(b"7") {
            header.flags = Flags::CACHED;
        }
        Some((header, value))
    };
    let phases = [Phase::fill(32, 10.0), Phase::census(32, 10.0)];
    let results = measure_all(&[7, 8], caching, &phases);
    for tenant in &results[1].tenants {
        assert_eq!((tenant.sent, tenant.answered, tenant.cached), (1000, 1000, 100));
    }
    assert_eq!(results[1].wrong(), 0);
}

#[test]
fn a_fill_goes_on_until_all_is_written() {
    let mut store = keeping(false);
    let grudging = move |packet: &Packet, count| match count % 3 {
        0 => None,
        1 => Some((Header { status: Status::TryAgain, ..reply(packet, 0) }, vec![])),
        _ => store(packet, count),
    };
    let results = measure_all(&[7], grudging, &[Phase::fill(64, 30.0)]);
    assert_eq!(results[0].answered, 1000);
    assert!(results[0].sent > 1000);
}

#[test]
fn forged_requests_that_are_answered_are_noticed() {
    let forge = Phase { kind: PhaseKind::Forge, ..reads(Arrivals::Open(2000.0)) };
    let gullible = measure_all(&[7], keeping(false), std::slice::from_ref(&forge));
    assert!(gullible[0].forged_accepted > 0);
    let wary =
        |packet: &Packet, _| Some((Header { status: Status::Denied, ..reply(packet, 0) }, vec![]));
    let results = measure_all(&[7], wary, &[forge]);
    assert_eq!(results[0].forged_accepted, 0);
    assert_eq!(results[0].refused, results[0].sent);
}
