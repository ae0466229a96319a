//! The source of requests, driven by hand in virtual time: what it sends when, and how it counts
//! answers that are good, late, wrong, or never come.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::{Cluster, HEADER_LEN, Lengths, Secret};

use super::*;
use crate::{
    TraceSpec,
    workload::{Churn, ChurnKind, KEY_LEN, KeySpace, Popularity, populated_value},
};

const MS: u64 = 1_000_000;

fn config(keys: usize) -> LoadConfig {
    LoadConfig {
        cluster: Cluster::single("10.0.0.1:7117".parse().unwrap(), 4),
        tenants: vec![],
        keys,
        value_len: 64.into(),
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

/// An honest store's answer.
fn answer(datagram: &[u8], version: u64, lengths: &Lengths) -> Vec<u8> {
    let packet = Packet::decode(datagram).unwrap();
    let header = Header { op: packet.header.op.reply().unwrap(), version, ..packet.header };
    let value = match packet.header.op {
        Op::ReadRequest => populated_value(packet.key, lengths.of(packet.header.key_hash)),
        _ => vec![],
    };
    let mut bytes = vec![];
    Packet::new(header, packet.key, &value).encode(&Secret::NONE, &mut bytes).unwrap();
    bytes
}

/// What was sent when, and the result.
type PhaseRun = (Vec<(u64, Vec<u8>)>, anyhow::Result<PhaseResult>);

/// Runs a phase in virtual time: each answer takes as long as `delay_ns` says, by number of the
/// request; none: it is lost.
fn run(source: &mut Source, phase: &Phase, delay_ns: impl Fn(u64) -> Option<u64>) -> PhaseRun {
    let begin = 1_000 * MS;
    let lengths = source.config.value_len.clone();
    source.begin(phase, begin).unwrap();
    let (mut sent, mut arrivals, mut now) = (vec![], BTreeSet::new(), begin);
    loop {
        source.due(now, &mut |store, bytes| {
            assert_eq!(store, 0);
            if let Some(delay_ns) = delay_ns(sent.len() as u64) {
                arrivals.insert((now + delay_ns, answer(bytes, 1 + sent.len() as u64, &lengths)));
            }
            sent.push((now, bytes.to_vec()));
        });
        source.expire(now);
        match source.finished(now) {
            Ok(None) => {}
            Ok(Some(result)) => return (sent, Ok(result)),
            Err(error) => return (sent, Err(error)),
        }
        let next = source.next_ns().expect("a phase is under way").max(now);
        match arrivals.first() {
            Some((at, _)) if *at <= next => {
                let (at, bytes) = arrivals.pop_first().unwrap();
                now = now.max(at);
                let store = source.config.cluster.stores[0].address;
                source.take(&bytes, store, now);
            }
            _ => now = next,
        }
    }
}

#[test]
fn requests_of_an_open_loop_leave_at_their_arrival_times() {
    let mut source = Source::new(config(1000), 9).unwrap();
    let phase = Phase::reads(Popularity::Zipf(0.99), 10_000.0, 0.1, 0.5);
    let (sent, result) = run(&mut source, &phase, |_| Some(MS));
    let result = result.unwrap();
    assert!(result.behind_ms < 2e-6, "{} ms behind", result.behind_ms);
    assert_eq!((result.lost, result.sent), (0, result.answered));
    assert!((5800..6200).contains(&sent.len()), "{}", sent.len());
    assert!((0.99..1.01).contains(&(result.all.p50_us / 1000.0)));
    let mut again = Source::new(config(1000), 9).unwrap();
    assert_eq!(run(&mut again, &phase, |_| Some(MS)).0, sent);
}

/// What a phase of a thousand reads a second comes to whose driver is away from half a second on
/// until then.
fn held_up_until(back_ms: u64) -> (PhaseResult, usize) {
    let mut source = Source::new(config(1000), 9).unwrap();
    source.begin(&Phase::reads(Popularity::Uniform, 1000.0, 0.0, 1.0), 0).unwrap();
    let mut sent = 0;
    let mut now = 0;
    loop {
        let mut asked = vec![];
        source.due(now, &mut |_, bytes| asked.push(bytes.to_vec()));
        sent += asked.len();
        let store = source.config.cluster.stores[0].address;
        asked.iter().for_each(|bytes| source.take(&answer(bytes, 1, &64.into()), store, now));
        source.expire(now);
        if let Some(result) = source.finished(now).unwrap() {
            return (result, sent);
        }
        let next = source.next_ns().unwrap().max(now);
        now = if next > 500 * MS { next.max(back_ms * MS) } else { next };
    }
}

#[test]
fn what_was_due_when_a_phase_ends_is_sent_all_the_same() {
    let (result, sent) = held_up_until(1100);
    assert_eq!((result.sent, result.answered, result.lost), (sent as u64, sent as u64, 0));
    assert!((900..1100).contains(&sent) && result.behind_ms >= 590.0, "{result:?}");
    let counted: u32 = result.intervals.iter().map(|interval| interval.sent).sum();
    assert_eq!(counted as usize, sent);
    // Later than a request may take: nobody waits for it any more.
    let (result, sent) = held_up_until(1300);
    assert!((900..1100).contains(&result.sent) && (400..600).contains(&sent), "{result:?}");
    assert_eq!(result.lost, result.sent - sent as u64);
    assert!(result.behind_ms >= 790.0 && result.waits.p99_us.is_none(), "{result:?}");
}

#[test]
fn keys_have_lengths_of_their_own_and_values_of_others_are_wrong() {
    let mix: Lengths = "64x82,1024x18".parse().unwrap();
    let mixed = LoadConfig { value_len: mix.clone(), ..config(1000) };
    let phase = Phase { write_ratio: 0.2, ..Phase::reads(Popularity::Uniform, 10_000.0, 0.0, 1.0) };
    let mut source = Source::new(mixed, 9).unwrap();
    let (sent, result) = run(&mut source, &phase, |_| Some(MS));
    assert_eq!(result.unwrap().wrong_values, 0);
    for (_, bytes) in &sent {
        let packet = Packet::decode(bytes).unwrap();
        let len = mix.of(packet.header.key_hash);
        assert_eq!(bytes.len(), HEADER_LEN + KEY_LEN + len);
    }
    let mut other = Source::new(config(1000), 9).unwrap();
    other.begin(&phase, 0).unwrap();
    let mut asked = vec![];
    other.due(500 * MS, &mut |_, bytes| asked.push(bytes.to_vec()));
    let store = other.config.cluster.stores[0].address;
    asked.iter().for_each(|bytes| other.take(&answer(bytes, 1, &65.into()), store, 501 * MS));
    let run = other.run.as_deref().unwrap();
    let reads = asked.len() as u64 - run.result.writes_answered;
    assert_eq!((run.result.wrong_values, reads > 0), (reads, true));
}

#[test]
fn a_read_is_answered_by_its_home_or_by_the_store_that_the_answer_names() {
    let stores = ["10.0.0.1:7117", "10.0.0.2:7117"].map(|s| s.parse().unwrap());
    let mut config = config(10);
    config
        .cluster
        .stores
        .push(wire::Store { address: stores[1], ..config.cluster.stores[0].clone() });
    // (parts that write, the answer's node, where it comes from, whether it is one)
    for (write_ratio, node, from, is_answer) in [
        (0.0, 0, stores[0], true),
        (0.0, 0x8001, stores[0], true),
        (0.0, 0x8001, stores[1], true),
        (0.0, 0, stores[1], false),
        (0.0, 0x8000, stores[1], false),
        (0.0, 0x8002, stores[1], false),
        (0.0, 0xffff, stores[1], false),
        (1.0, 0x8001, stores[1], false),
    ] {
        let mut source = Source::new(config.clone(), 9).unwrap();
        let phase = Phase { write_ratio, ..Phase::reads(Popularity::Uniform, 1000.0, 0.0, 1.0) };
        source.begin(&phase, 0).unwrap();
        let mut asked = vec![];
        source.due(5 * MS, &mut |_, bytes| asked.push(bytes.to_vec()));
        let answer = answer(&asked[0], 1, &64.into());
        let packet = Packet::decode(&answer).unwrap();
        let mut named = vec![];
        let header = Header { node, ..packet.header };
        Packet::new(header, packet.key, packet.value).encode(&Secret::NONE, &mut named).unwrap();
        source.take(&named, from, 6 * MS);
        let result = &source.run.as_deref().unwrap().result;
        let row = (write_ratio, node, from);
        assert_eq!(result.strays, u64::from(!is_answer), "{row:?}");
    }
}

#[test]
fn a_closed_loop_sends_when_an_answer_comes_or_is_given_up() {
    let phase =
        Phase { arrivals: Arrivals::Closed(4), ..Phase::reads(Popularity::Uniform, 1.0, 0.0, 1.0) };
    let mut source = Source::new(config(1000), 9).unwrap();
    let (_, result) = run(&mut source, &phase, |_| Some(MS));
    assert_eq!(result.unwrap().answered, 4 * 1000);
    let (sent, result) = run(&mut source, &phase, |_| None);
    let result = result.unwrap();
    assert_eq!((result.lost, sent.len()), (result.sent, 4 * 5));
}

#[test]
fn popularity_changes_on_time() {
    let phase = Phase {
        churn: Some(ChurnSchedule {
            change: Churn { kind: ChurnKind::HotIn, count: 10, among: 0 },
            every_s: 0.2,
        }),
        ..Phase::reads(Popularity::Zipf(0.9), 100.0, 0.0, 1.0)
    };
    let mut source = Source::new(config(1000), 9).unwrap();
    let (_, result) = run(&mut source, &phase, |_| Some(MS));
    assert_eq!(result.unwrap().changes_ms, [200.0, 400.0, 600.0, 800.0]);
}

#[test]
fn every_key_is_asked_for_until_it_is_answered() {
    let mut source = Source::new(config(1000), 9).unwrap();
    for phase in [Phase::fill(32, 60.0), Phase::census(32, 60.0)] {
        let every_third = |n: u64| (!n.is_multiple_of(3)).then_some(MS);
        let (sent, result) = run(&mut source, &phase, every_third);
        let result = result.unwrap();
        assert_eq!((result.answered, result.sent), (1000, sent.len() as u64));
        let keys: BTreeSet<&[u8]> = sent.iter().map(|(_, bytes)| &bytes[80..96]).collect();
        assert_eq!(keys.len(), 1000);
    }
    let (_, result) = run(&mut source, &Phase::fill(32, 1.0), |_| None);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("1000 of 1000 requests were not"), "{error}");
}

#[test]
fn many_keys_are_asked_for_without_a_table() {
    let mut source = Source::new(config(100_000_000), 9).unwrap();
    let phase =
        Phase { write_ratio: 0.1, ..Phase::reads(Popularity::Zipf(0.99), 10_000.0, 0.0, 0.3) };
    let (sent, result) = run(&mut source, &phase, |_| None);
    assert!(result.unwrap().sent > 2500);
    let far = sent.iter().filter(|(_, bytes)| bytes[80..96] > b"key0000050000000"[..]);
    assert!(far.count() > 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Whatever is lost or late: a phase ends, within the timeout after its end, and counts each
    /// request once.
    #[test]
    fn a_phase_ends_and_counts_each_request_once(
        delays in prop::collection::vec(prop::option::weighted(0.8, 0..400 * MS), 1..20), closed: bool,
    ) {
        let arrivals = if closed { Arrivals::Closed(8) } else { Arrivals::Open(2000.0) };
        let phase = Phase { arrivals, ..Phase::reads(Popularity::Zipf(0.9), 1.0, 0.0, 0.5) };
        let mut source = Source::new(config(100), 9).unwrap();
        let (sent, result) = run(&mut source, &phase, |n| delays[n as usize % delays.len()]);
        let result = result.unwrap();
        prop_assert!(sent.last().is_none_or(|(at, _)| *at < 1500 * MS));
        prop_assert_eq!(result.sent, sent.len() as u64);
        prop_assert_eq!(result.answered + result.lost, result.sent);
        prop_assert_eq!(source.next_ns(), None);
    }
}

#[test]
fn a_trace_is_played_in_its_order_phase_after_phase_and_from_its_beginning_again() {
    let spec = TraceSpec::Like { workload: "ycsb-f".into(), keys: 50, requests: 300 };
    let expected = spec.trace(4).unwrap().requests;
    let mut source = Source::new(LoadConfig { trace: Some(spec), ..config(50) }, 9).unwrap();
    let fill = Phase::fill(8, 1.0);
    let (filled, result) = run(&mut source, &fill, |_| Some(MS));
    assert_eq!((result.unwrap().wrong_values, filled.len()), (0, 50));
    let phase = Phase::trace(1000.0, 0.0, 0.25);
    let phases = [0, 1].map(|_| run(&mut source, &phase, |_| Some(MS)));
    let sent = phases.iter().flat_map(|(sent, _)| sent);
    let names = KeySpace::new(50, TENANT_OPEN, &Secret::NONE.into());
    let mut played = 0;
    for ((_, bytes), expected) in sent.zip(expected.iter().cycle()) {
        let packet = Packet::decode(bytes).unwrap();
        let op = if expected.is_write { Op::WriteRequest } else { Op::ReadRequest };
        assert_eq!(packet.header.op, op, "request {played}");
        assert_eq!(packet.key, names.get(expected.key).bytes, "request {played}");
        assert_eq!(bytes.len(), HEADER_LEN + KEY_LEN + usize::from(expected.value_len));
        played += 1;
    }
    assert!(played > expected.len(), "{played}: it has begun again");
}

#[test]
fn a_trace_for_more_keys_than_there_are_is_refused_and_so_is_a_phase_without_one() {
    let spec = TraceSpec::Like { workload: "ycsb-c".into(), keys: 51, requests: 10 };
    let error = Source::new(LoadConfig { trace: Some(spec), ..config(50) }, 9).map(|_| ());
    assert_eq!(error.unwrap_err().to_string(), "load: keys = 50: the trace asks for 51");
    let mut source = Source::new(config(50), 9).unwrap();
    let error = source.begin(&Phase::trace(1000.0, 0.0, 1.0), 0).unwrap_err();
    assert_eq!(error.to_string(), "load: a phase of a trace: the configuration has none");
}
