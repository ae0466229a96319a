//! The client against a fake store over loopback UDP: what it returns, what it refuses, and that it
//! comes through loss, duplication, reordering and wrong answers.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use tokio::net::UdpSocket;
use wire::{Op, Secret, Status, Store};

use crate::{Client, Condition, Error, Memory, Options, Value};

use super::fake::{self, FakeStore, Faults, patient};

async fn connect(store: &FakeStore) -> Client {
    connect_with(store, patient()).await
}

async fn connect_with(store: &FakeStore, options: Options) -> Client {
    let cluster = store.cluster();
    let tenant = cluster.tenants.first().map_or(0, |tenant| tenant.id);
    Client::connect(&cluster, tenant, options).await.unwrap()
}

#[tokio::test]
async fn sets_gets_and_deletes() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    assert_eq!(client.get("k").await.unwrap(), None);
    let version = client.set("k", "v", Some(Duration::from_micros(1500))).await.unwrap();
    let value = client.get("k").await.unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.version), (&b"v"[..], version));
    assert_eq!((value.expires_in, value.from_switch), (Some(Duration::from_millis(2)), false));
    assert!(client.delete("k").await.unwrap());
    assert!(!client.delete("k").await.unwrap());
    assert_eq!(client.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn conditions_hold_or_name_the_current_version() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    let absent = Condition::Absent;
    let mismatch = |result: Result<u64, Error>| match result {
        Err(Error::Mismatch { current }) => current,
        other => panic!("{other:?}"),
    };
    assert_eq!(mismatch(client.set_if("k", "a", None, Condition::Present).await), 0);
    let first = client.set_if("k", "a", None, absent).await.unwrap();
    assert_eq!(mismatch(client.set_if("k", "b", None, absent).await), first);
    let second = client.compare_and_set("k", first, "b").await.unwrap();
    assert_eq!(mismatch(client.compare_and_set("k", first, "c").await), second);
    assert!(client.set_if("k", "d", None, Condition::Present).await.unwrap() > second);
    assert!(matches!(
        client.delete_if("k", Condition::Version(first)).await,
        Err(Error::Mismatch { .. })
    ));
}

#[tokio::test]
async fn comes_through_loss_duplication_and_reordering_and_writes_once() {
    for seed in 1..=3 {
        let store =
            FakeStore::start(Faults { lose: 10, duplicate: 20, reorder: 10, seed, longest: 0 })
                .await;
        let client = connect(&store).await;
        let keys: Vec<String> = (0..100).map(|i| format!("key{i}")).collect();
        for key in &keys[..20] {
            client.set(key, key, None).await.unwrap();
        }
        let writers = keys[20..].iter().cloned().map(|key| {
            let client = client.clone();
            tokio::spawn(async move { client.set(&key, &key, None).await.unwrap() })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        for (key, value) in keys.iter().zip(client.get_many(&keys).await) {
            assert_eq!(value.unwrap().unwrap().bytes, key.as_bytes(), "seed {seed}");
        }
        assert_eq!(store.state().applied, 100, "seed {seed}");
        let counts = client.counts();
        assert!(counts.retransmitted > 0 && counts.ignored > 0, "seed {seed}: {counts:?}");
    }
}

#[tokio::test]
async fn get_many_keeps_the_order_with_few_places() {
    let store = FakeStore::start(Faults::default()).await;
    let options = Options { max_in_flight: 4, ..patient() };
    let client = connect_with(&store, options).await;
    let keys: Vec<_> = (0..50).map(|i| format!("key{i}")).collect();
    for key in keys.iter().step_by(2) {
        client.set(key, key, None).await.unwrap();
    }
    for (i, value) in client.get_many(&keys).await.into_iter().enumerate() {
        let found = value.unwrap().map(|v| v.bytes.to_vec());
        assert_eq!(found, (i % 2 == 0).then(|| keys[i].clone().into_bytes()));
    }
}

#[tokio::test]
async fn asks_again_with_room_and_remembers_it() {
    let store = FakeStore::start(Faults::default()).await;
    let big = vec![7; 1000];
    store.state().data.insert(b"big".to_vec(), (big.clone(), 1, 0));
    let client = connect(&store).await;
    for _ in 0..3 {
        assert_eq!(client.get("big").await.unwrap().unwrap().bytes, big);
    }
    assert_eq!(client.counts().padded, 1);
    let mut seen = store.state().seen.clone();
    seen.dedup(); // retransmissions
    let sizes: Vec<_> = seen.iter().map(|(_, _, len)| *len - wire::HEADER_LEN - 3).collect();
    assert_eq!(sizes, [256, 1000, 1000, 1000]);
}

#[tokio::test]
async fn values_of_any_length_come_through_loss_duplication_and_reordering() {
    let lengths = [1390, 1391, 1392, 2048, 2049, 5000, 65_536, 300_001];
    for (seed, lose) in [(1, 0), (2, 5), (3, 10)] {
        let store =
            FakeStore::start(Faults { lose, duplicate: 20, reorder: 10, seed, longest: 0 }).await;
        let client = connect(&store).await;
        for len in lengths {
            let value: Vec<u8> = (0..len).map(|i| (i / 7 + len) as u8).collect();
            let version = client.set("k", &value, None).await.unwrap();
            let found = client.get("k").await.unwrap().unwrap();
            assert!(found.bytes == value, "{len} bytes, seed {seed}");
            assert_eq!(found.version, version);
            let missed = client.compare_and_set("k", version - 1, &value).await;
            assert!(matches!(missed, Err(Error::Mismatch { .. })), "{missed:?}");
        }
        assert_eq!(store.state().applied, lengths.len() as u64, "seed {seed}");
    }
}

#[tokio::test]
async fn values_of_any_length_are_read_over_a_tunnel() {
    let faults = Faults { longest: 1450 - 28, ..Faults::default() };
    let store = FakeStore::start(faults).await;
    let client = connect(&store).await;
    for len in [10, 1380, 11, 1391, 100_000, 12] {
        let value = vec![7; len];
        let entry = (value.clone(), len as u64, 0);
        store.state().data.insert(b"k".to_vec(), entry);
        assert_eq!(client.get("k").await.unwrap().unwrap().bytes, value);
    }
}

#[tokio::test]
async fn a_value_longer_than_the_cluster_file_says_is_not_joined() {
    let store = FakeStore::start(Faults::default()).await;
    let long = vec![7; (1 << 20) + 1];
    store.state().data.insert(b"k".to_vec(), (long, 1, 0));
    let error = connect(&store).await.get("k").await.unwrap_err();
    assert!(error.to_string().contains("max_value"), "{error}");
}

#[tokio::test]
async fn a_wrong_key_is_corrected_past_the_caches() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    client.set("k", "right", None).await.unwrap();
    store.twist(|request, reply| {
        if request.header.op == Op::ReadRequest {
            reply.key = b"other".to_vec();
            reply.value = b"wrong".to_vec();
        }
    });
    assert_eq!(client.get("k").await.unwrap().unwrap().bytes, "right");
    assert_eq!(client.counts().corrected, 1);
    store.twist(|_, reply| reply.key = b"other".to_vec());
    assert!(matches!(client.get("k").await, Err(Error::BadReply { .. })));
}

#[tokio::test]
async fn a_disciplines_operation_is_asked_for_until_it_is_answered() {
    let store = FakeStore::start(Faults { lose: 30, seed: 5, ..Faults::default() }).await;
    let client = connect(&store).await;
    let (number, value) = client.ask("k", 42, "echo").await.unwrap();
    assert_eq!((number, &value[..]), (42, &b"echo"[..]));
    store.twist(|_, reply| reply.header.status = wire::Status::Denied);
    let denied = client.ask("k", 42, "echo").await;
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
}

#[tokio::test]
async fn answers_that_are_not_for_the_request_are_ignored() {
    let store = FakeStore::start_at("127.0.0.1:0", 9, Faults::default()).await;
    let client = connect(&store).await;
    client.set("k", "v", None).await.unwrap();
    type Change = fn(&mut fake::Reply);
    let changes: [(&str, Change); 7] = [
        ("client", |r| r.header.client ^= 1),
        ("request", |r| r.header.request ^= 1 << 20),
        ("tenant", |r| r.header.tenant = 3),
        ("op", |r| r.header.op = Op::FetchReply),
        ("key hash", |r| r.header.key_hash.0[0] ^= 1),
        ("tag", |r| r.secret = Secret([6; 16])),
        ("source", |r| r.from_elsewhere = true),
    ];
    for (what, change) in changes {
        // Whoever takes one of these has something else than what is kept.
        let mut wrong = 2;
        store.twist(move |_, reply| {
            if wrong > 0 {
                wrong -= 1;
                reply.value = b"w".to_vec();
                change(reply);
            }
        });
        let value = client.get("k").await.unwrap().unwrap();
        assert_eq!(value.bytes, "v", "{what}");
    }
}

#[tokio::test]
async fn a_store_that_puts_writes_off_is_asked_again_under_the_same_id() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    let mut left = 3;
    store.twist(move |_, reply| {
        if left > 0 {
            left -= 1;
            reply.header.status = Status::TryAgain;
        }
    });
    client.set("k", "v", None).await.unwrap();
    assert!(client.counts().put_off >= 3);
    let state = store.state();
    assert!(state.seen.iter().all(|(_, request, _)| *request == state.seen[0].1));
    assert_eq!(state.applied, 1);
}

#[tokio::test]
async fn silence_is_a_timeout_for_reads_and_unknown_for_writes() {
    let store = FakeStore::start(Faults::default()).await;
    store.twist(|_, reply| reply.from_elsewhere = true);
    let options = Options { deadline: Duration::from_secs(1), ..patient() };
    let client = connect_with(&store, options).await;
    let (read, write) = tokio::join!(client.get("k"), client.set("k", "v", None));
    let (read, write) = (read.unwrap_err(), write.unwrap_err());
    assert!(matches!(read, Error::Timeout { .. }), "{read:?}");
    assert!(matches!(write, Error::OutcomeUnknown { .. }), "{write:?}");
    assert!(write.to_string().starts_with("outcome unknown"), "{write}");
}

#[tokio::test]
async fn what_is_not_answered_is_asked_again_under_the_same_id() {
    let store = FakeStore::start(Faults::default()).await;
    store.twist(|_, reply| reply.from_elsewhere = true);
    let client = connect(&store).await;
    let writing = tokio::spawn(async move { client.set("k", "v", None).await });
    store.has_seen(3).await;
    writing.abort();
    let seen = store.state().seen.clone();
    assert!(seen.iter().all(|(op, request, _)| op.is_write() && *request == seen[0].1));
}

#[tokio::test]
async fn refusals_are_named() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    for (status, version, text) in [
        (Status::WrongPartition, 0, "does not own this key's partition"),
        (
            Status::TooLarge,
            0,
            "a value of 1 byte: longer than max_value of its cluster file, or larger than its backend holds",
        ),
        (Status::TooLarge, 238, "keys of at most 238 bytes"),
        (Status::BackendError, 0, "outcome unknown"),
        (Status::Denied, 0, "denies the request"),
        (Status::NotFound, 0, "a status that does not belong to it"),
    ] {
        store.twist(move |_, reply| {
            reply.header.status = status;
            reply.header.version = version;
        });
        let error = client.set("k", "v", None).await.unwrap_err().to_string();
        assert!(error.contains(text) && !error.contains('\n'), "{error}");
    }
    // (status, what is said of a read)
    let rows = [
        (Status::TooLarge, "does not give this value: it is longer than max_value"),
        (Status::Taken, "protocol version 2"),
    ];
    for (status, text) in rows {
        store.twist(move |_, reply| reply.header.status = status);
        let error = client.get("k").await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn what_the_backend_refuses_is_told_in_its_words() {
    const WORDS: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    let mut asked = 0;
    store.twist(move |_, reply| {
        asked += 1;
        reply.value = vec![];
        // Every other time there is no room for it.
        if asked % 2 == 1 {
            reply.header.status = Status::NeedPadding;
            reply.header.total = WORDS.len() as u32;
        } else {
            reply.header.status = Status::BackendError;
            reply.header.version = wire::BACKEND_REFUSED;
            reply.value = WORDS.into();
        }
    });
    let errors = [
        (client.set("k", "v", None).await.unwrap_err(), "nothing was written"),
        (client.delete("k").await.unwrap_err(), "nothing was written"),
        (client.get("k").await.unwrap_err(), "nothing was read"),
    ];
    for (error, text) in errors {
        assert!(error.to_string().contains(text), "{error}");
        assert!(matches!(error, Error::Refused { words, .. } if words == WORDS));
    }
    for asked in store.state().seen[..4].chunks(2) {
        let [(_, first, _), (_, again, len)] = *asked else { panic!("in twos") };
        assert_eq!(first, again, "a write keeps its id");
        assert!(len >= wire::HEADER_LEN + 1 + WORDS.len(), "{len}");
    }
}

#[tokio::test]
async fn what_no_packet_carries_is_refused_before_it_is_sent() {
    let store = FakeStore::start(Faults::default()).await;
    let client = connect(&store).await;
    assert!(matches!(client.get("").await, Err(Error::KeyLength(0))));
    assert!(matches!(client.get([0; 251]).await, Err(Error::KeyLength(251))));
    let longest = vec![1; store.cluster().max_value as usize];
    client.set("k", &longest, None).await.unwrap();
    assert_eq!(client.get("k").await.unwrap().unwrap().bytes, longest);
    let longer = vec![1; longest.len() + 1];
    let error = client.set("k", longer, None).await.unwrap_err();
    assert!(matches!(error, Error::ValueLength { .. }));
    let error = error.to_string();
    assert!(error.contains("max_value in the cluster file"), "{error}");
    let one_packet = vec![1; wire::max_value(1) + 1];
    let error = client.ask("k", 1, one_packet).await.unwrap_err();
    assert!(error.to_string().contains("goes in one packet"), "{error}");
    for ttl in [Duration::ZERO, Duration::from_secs(1 << 33)] {
        assert!(matches!(client.set("k", "v", Some(ttl)).await, Err(Error::TimeToLive)));
    }
    assert_eq!(store.state().applied, 1);
}

#[tokio::test]
async fn tenants_and_options_are_checked_when_connecting() {
    let store = FakeStore::start(Faults::default()).await;
    for tenant in [5, wire::TENANT_SYSTEM] {
        let result = Client::connect(&store.cluster(), tenant, Options::default()).await;
        assert!(matches!(result, Err(Error::UnknownTenant(_))));
    }
    let options = Options { max_in_flight: 0, ..Options::default() };
    assert!(Client::connect(&store.cluster(), 0, options).await.is_err());
}

#[tokio::test]
async fn a_dropped_call_gives_its_place_back() {
    let store = FakeStore::start(Faults::default()).await;
    store.twist(|_, reply| reply.from_elsewhere = true);
    let options = Options { max_in_flight: 1, ..patient() };
    let client = connect_with(&store, options).await;
    let other = client.clone();
    let stuck = tokio::spawn(async move { other.get("k").await });
    store.has_seen(1).await;
    let crowded = client.get("k");
    stuck.abort();
    store.twist(|_, _| {});
    assert_eq!(crowded.await.unwrap(), None);
}

#[tokio::test]
async fn speaks_ipv6() {
    let loopback = std::net::UdpSocket::bind("[::1]:0");
    assert!(loopback.is_ok(), "IPv6 is needed on loopback ([::1]): {loopback:?}");
    let store = FakeStore::start_at("[::1]:0", 0, Faults::default()).await;
    let client = connect(&store).await;
    client.set("k", "v", None).await.unwrap();
    assert_eq!(client.get("k").await.unwrap().unwrap().bytes, "v");
}

#[tokio::test]
async fn a_store_that_does_not_answer_leaves_places_to_others() {
    let store = FakeStore::start(Faults::default()).await;
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut cluster = store.cluster();
    cluster.stores[0].last = 3;
    cluster.stores.push(Store::new(silent.local_addr().unwrap(), 4, 7));
    let options = Options { max_in_flight: 150, ..patient() };
    let client = Client::connect(&cluster, 0, options).await.unwrap();
    let keys = |address: SocketAddr| {
        let home = |key: &[u8; 4]| cluster.store_of(0, Secret::NONE.key_hash(0, key)).address;
        (0u32..).map(u32::to_be_bytes).filter(move |key| home(key) == address)
    };
    let writes = keys(silent.local_addr().unwrap()).take(300);
    let writes = join_all(writes.map(|key| client.set(key, "v", None)).collect::<Vec<_>>());
    let key = keys(store.address).next().unwrap();
    tokio::select! {
        biased;
        _ = writes => panic!("nobody answers them"),
        found = client.get(key) => assert_eq!(found.unwrap(), None),
    }
}

/// A client that keeps a copy of the key `k`, and has just answered from it.
async fn warm(store: &FakeStore, value: Vec<u8>, memory: Option<Memory>) -> (Client, Value) {
    store.state().data.insert(b"k".to_vec(), (value, 1, 0));
    let options = Options { cache: 1 << 20, memory, ..patient() };
    let client = connect_with(store, options).await;
    loop {
        let found = client.get("k").await.unwrap().unwrap();
        if found.from_copy {
            return (client, found);
        }
    }
}

#[tokio::test]
async fn long_values_of_copies_have_the_same_memory_as_others() {
    let store = FakeStore::start(Faults::default()).await;
    let memory = Memory::new(100 << 10);
    let (client, first) = warm(&store, vec![7; 40 << 10], Some(memory.clone())).await;
    assert_eq!(memory.used_and_total().0, 40 << 10);
    let second = client.get("k").await.unwrap().unwrap();
    assert!(matches!(client.get("k").await, Err(Error::NoMemory { .. })));
    let about = client.about("k").await.unwrap().unwrap();
    assert_eq!((about.len, about.from_copy), (40 << 10, true), "that takes none");
    drop((first, second));
    assert!(client.get("k").await.unwrap().unwrap().from_copy);
    assert_eq!(memory.used_and_total().0, 0);
}

#[tokio::test]
async fn who_reads_copies_in_a_loop_lets_others_run() {
    let store = FakeStore::start(Faults::default()).await;
    let (client, _) = warm(&store, vec![7; 10], None).await;
    let other = tokio::spawn(async {});
    let mut reads = 0;
    while !other.is_finished() {
        assert!(client.get("k").await.unwrap().unwrap().from_copy);
        reads += 1;
        assert!(reads < 10_000, "another task waits for this one");
    }
}
