//! Traces that are read and made: what they ask for, and what is said of lines that are none.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> anyhow::Result<Trace> {
    file::read(text.as_bytes(), 1000)
}

/// Key, length and whether it writes, of each request.
fn played(trace: &Trace) -> Vec<(u32, u16, bool)> {
    trace.requests.iter().map(|r| (r.key, r.value_len, r.is_write)).collect()
}

#[test]
fn a_trace_in_twitters_format_is_played_in_its_order() {
    let trace = read(
        "0,nz:u:a,8,100,1,get,0\n\
         0,q:b,3,200,1,set,3600\n\
         1,nz:u:a,8,300,2,set,60\n\
         1,with,comma,10,0,2,gets,0\n\
         2,q:b,3,0,3,delete,0\n\
         2,nz:u:a,8,5000,1,get,0\n",
    );
    let trace = trace.unwrap();
    let most = VALUE_LEN[1] as u16;
    // The third key's value was never found: it has the others' mean.
    let mean = (most + 200) / 2;
    assert_eq!(trace.lengths, [most, 200, mean]);
    assert_eq!(
        played(&trace),
        [
            (0, most, false),
            (1, 200, true),
            (0, 300, true),
            (2, mean, false),
            (1, 200, true),
            (0, most, false)
        ]
    );
    let expected =
        TraceTally { reads: 3, writes: 2, played_as_writes: 1, shortened: 1, lengthened: 0 };
    assert_eq!(trace.tally, expected);
}

#[test]
fn a_trace_in_metas_format_is_played_as_often_as_it_says() {
    for header in ["key,op,size,op_count,key_size", "KEY, OP, SIZE, OP_COUNT, KEY_SIZE"] {
        let text =
            format!("{header}\n7,GET,50,3,8\n9,SET,40,1,8\r\n7,GET_LEASE,0,1,8\n9,DELETE,0,2,8\n");
        let trace = read(&text).unwrap();
        assert_eq!(
            played(&trace),
            [
                (0, 50, false),
                (0, 50, false),
                (0, 50, false),
                (1, 40, true),
                (0, 50, false),
                (1, 40, true),
                (1, 40, true)
            ]
        );
        assert_eq!(trace.tally.played_as_writes, 2);
    }
    let later =
        read("op_time,key,key_size,op,op_count,size,cache_hits,ttl\n5,x,1,GET,1,9,1,0\n").unwrap();
    assert_eq!(played(&later), [(0, VALUE_LEN[0] as u16, false)]);
    assert_eq!(later.tally.lengthened, 1);
}

#[test]
fn no_more_is_played_than_was_asked_for() {
    let text = "key,op,size,op_count\na,GET,50,1000000000000\nb,GET,50,1\n";
    let trace = file::read(text.as_bytes(), 5).unwrap();
    assert_eq!((trace.requests.len(), trace.keys()), (5, 1));
}

#[test]
fn a_line_that_is_none_is_named_with_what_was_expected() {
    for (text, expected) in [
        ("", "there is no request in it"),
        ("key,op,size\n", "there is no request in it"),
        ("1,a,1,1,1,get,0\nnonsense\n", "line 2: 1 columns: Twitter's format has 7"),
        ("1,a,1,1,1,fetch,0\n", "line 1: operation \"fetch\": get, gets, set"),
        ("1,a,1,x,1,get,0\n", "line 1: value size \"x\": a number is expected"),
        ("1,a,1,-5,1,get,0\n", "line 1: value size \"-5\": a number is expected"),
        ("x,a,1,5,1,get,0\n", "line 1: timestamp \"x\": a number is expected"),
        ("key,op,bytes\na,GET,1\n", "size is expected among them"),
        ("key,op,size\na,GET\n", "line 2: 2 columns: the first line names 3"),
        ("key,op,size\na,GET,1\na,GET,?\n", "line 3: size \"?\": a number is expected"),
        ("\u{1f}\u{8b}", "line 1: 1 columns"),
    ] {
        let said = format!("{:#}", read(text).map(|_| ()).expect_err(text));
        assert!(said.contains(expected), "{text:?}: {said:?} should say {expected:?}");
    }
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 1];
    let said = file::read(&zstd[..], 10).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("decompress it first, with zstd -d"), "{said}");
    let line = "a".repeat(100_000);
    assert!(format!("{:#}", read(&line).map(|_| ()).unwrap_err()).contains("longer than"));
    let missing = TraceSpec::File { path: "/nowhere/trace".into(), most: 1 }.trace(1);
    assert!(
        format!("{:#}", missing.map(|_| ()).unwrap_err()).starts_with("trace /nowhere/trace: ")
    );
}

#[test]
fn a_workload_of_no_known_name_is_refused_with_those_that_are_known() {
    let like = |workload: &str, keys| {
        let spec = TraceSpec::Like { workload: workload.into(), keys, requests: 10 };
        spec.trace(1).map(|_| ()).unwrap_err().to_string()
    };
    for name in ["ycsb-g", "twitter-5", "twitter-x", "meta", ""] {
        let said = like(name, 10);
        assert!(said.contains("ycsb-a to ycsb-f") && said.contains("16, 17, 18"), "{said}");
    }
    assert!(like("ycsb-a", 0).contains("keys = 0"));
}

/// A hundred thousand requests for a thousand keys.
fn made(workload: &str) -> Trace {
    let spec = TraceSpec::Like { workload: workload.into(), keys: 1000, requests: 100_000 };
    spec.trace(3).unwrap()
}

fn write_share(trace: &Trace) -> f64 {
    trace.requests.iter().filter(|r| r.is_write).count() as f64 / trace.requests.len() as f64
}

#[test]
fn made_workloads_are_as_published() {
    // Part of the requests that writes: each write of F comes with a read more.
    for (workload, writes, len) in [
        ("ycsb-a", 0.5, 1000),
        ("ycsb-b", 0.05, 1000),
        ("ycsb-c", 0.0, 1000),
        ("ycsb-d", 0.05, 1000),
        ("ycsb-e", 0.05 / (0.05 + 0.95 * 50.5), 1000),
        ("ycsb-f", 1.0 / 3.0, 1000),
        ("twitter-12", 0.8, 1030),
        ("twitter-15", 1.0, 102),
        ("twitter-18", 0.03, 37),
        ("twitter-50", 0.48, VALUE_LEN[1] as u16),
    ] {
        let trace = made(workload);
        let sigma = (writes * (1.0 - writes) / 1e5f64).sqrt();
        let share = write_share(&trace);
        assert!((share - writes).abs() <= 6.0 * sigma + 1e-9, "{workload}: {share} of {writes}");
        assert!(trace.requests.iter().all(|r| r.value_len == len), "{workload}");
        assert_eq!(trace.keys(), 1000, "{workload}");
    }
}

#[test]
fn the_hottest_key_of_a_made_workload_is_as_hot_as_its_exponent_says() {
    for (workload, alpha) in [("ycsb-c", 0.99), ("twitter-18", 2.0994), ("twitter-1", 2.6774)] {
        let trace = made(workload);
        let mut asked = HashMap::new();
        trace.requests.iter().for_each(|r| *asked.entry(r.key).or_insert(0u32) += 1);
        let hottest = f64::from(asked.into_values().max().unwrap()) / 1e5;
        let expected = crate::workload::Popularity::Zipf(alpha).probabilities(1000)[0];
        let sigma = (expected * (1.0 - expected) / 1e5).sqrt();
        assert!((hottest - expected).abs() < 6.0 * sigma, "{workload}: {hottest} of {expected}");
    }
}

#[test]
fn orders_of_ycsb_are_its_own() {
    let pairs = |trace: &Trace| -> Vec<[TraceRequest; 2]> {
        trace.requests.windows(2).map(|pair| [pair[0], pair[1]]).collect()
    };
    // Every write of F is of the key that was read before it.
    let is_modified = |[before, write]: &[TraceRequest; 2]| {
        !write.is_write || (!before.is_write && before.key == write.key)
    };
    assert!(pairs(&made("ycsb-f")).iter().all(is_modified));
    // Most reads of E are of the key behind the one before.
    let scanned = pairs(&made("ycsb-e"));
    let rows = scanned.iter().filter(|[a, b]| (a.key + 1) % 1000 == b.key && !b.is_write).count();
    assert!(rows > 95_000, "{rows}");
    // What was written last is what D reads most.
    let mut latest = None;
    let (mut of_latest, mut reads) = (0, 0);
    for request in made("ycsb-d").requests {
        if request.is_write {
            latest = Some(request.key);
        } else if let Some(latest) = latest {
            reads += 1;
            of_latest += u32::from(latest == request.key);
        }
    }
    let share = f64::from(of_latest) / f64::from(reads);
    let expected = crate::workload::Popularity::Zipf(0.99).probabilities(1000)[0];
    assert!((share / expected - 1.0).abs() < 0.05, "{share} of {expected}");
}

#[test]
fn the_same_seed_makes_the_same_trace() {
    let spec = TraceSpec::Like { workload: "ycsb-b".into(), keys: 100, requests: 1000 };
    let made = |seed| spec.trace(seed).unwrap().requests;
    assert!(made(1) == made(1) && made(1) != made(2));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9,\\n.]{0,200}", header in any::<bool>()) {
        let text = if header { format!("key,op,size,op_count\n{text}") } else { text };
        let _ = read(&text);
    }
}
