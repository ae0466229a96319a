//! A client that seals, against a fake store over loopback UDP: what leaves it, and what it makes
//! of what comes back.

use std::time::Duration;

use crate::{Client, Condition, Error, OpenError, Options, Seal};
use wire::{Flags, Op};

use super::fake::{FakeStore, Faults, patient};

const KEY: &str = "patient:4711";
const VALUE: &[u8] = b"nobody's business";

async fn store() -> FakeStore {
    FakeStore::start_at("127.0.0.1:0", 9, Faults::default()).await
}

async fn connect(store: &FakeStore, seal: Option<[u8; 32]>) -> Client {
    let options = Options { seal: seal.map(Seal::new), ..patient() };
    let cluster = store.cluster();
    let tenant = cluster.tenants.first().map_or(0, |tenant| tenant.id);
    Client::connect(&cluster, tenant, options).await.unwrap()
}

async fn sealing(store: &FakeStore) -> Client {
    connect(store, Some([1; 32])).await
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn not_opened(result: Result<Option<crate::Value>, Error>) -> (OpenError, bool) {
    match result {
        Err(Error::NotOpened { why, from_switch, .. }) => (why, from_switch),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn everything_works_sealed_and_nothing_of_it_leaves() {
    let store =
        FakeStore::start(Faults { lose: 10, duplicate: 20, reorder: 10, seed: 1, longest: 0 })
            .await;
    let client = sealing(&store).await;
    assert_eq!(client.get(KEY).await.unwrap(), None);
    let ttl = Some(Duration::from_secs(60));
    let first = client.set(KEY, VALUE, ttl).await.unwrap();
    let value = client.get(KEY).await.unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.version), (VALUE, first));
    assert_eq!(value.expires_in, ttl);
    let second = client.compare_and_set(KEY, first, VALUE).await.unwrap();
    assert!(second > first);
    let missed = client.compare_and_set(KEY, first, VALUE).await;
    assert!(matches!(missed, Err(Error::Mismatch { current }) if current == second));
    let absent = client.set_if(KEY, VALUE, None, Condition::Absent).await;
    assert!(matches!(absent, Err(Error::Mismatch { .. })));
    let all = client.get_many(&[KEY, "another", KEY]).await;
    let found: Vec<_> = all.into_iter().map(|v| v.unwrap().is_some()).collect();
    assert_eq!(found, [true, false, true]);
    client.set("empty", "", None).await.unwrap();
    assert_eq!(client.get("empty").await.unwrap().unwrap().bytes, "");
    assert!(client.delete(KEY).await.unwrap());
    assert_eq!(client.get(KEY).await.unwrap(), None);

    let state = store.state();
    assert_eq!(state.applied, 4);
    assert!(state.datagrams.len() >= 10);
    for datagram in &state.datagrams {
        let packet = wire::Packet::decode(datagram).unwrap();
        assert_eq!(packet.key.len(), Seal::HIDDEN_KEY_BYTES);
        for part in [KEY.as_bytes(), b"4711", b"patient", b"another", b"empty"] {
            assert!(!contains(datagram, part), "a key left: {packet:?}");
        }
        for part in [VALUE, b"nobody", b"business"] {
            assert!(!contains(datagram, part), "a value left: {packet:?}");
        }
        if packet.header.op == Op::DeleteRequest {
            assert_eq!(packet.value, b"");
        }
    }
}

#[tokio::test]
async fn a_write_is_sealed_once_for_all_its_datagrams() {
    let store = store().await;
    let mut put_off = 2;
    store.twist(move |_, reply| {
        if put_off > 0 {
            put_off -= 1;
            reply.header.status = wire::Status::TryAgain;
        }
    });
    sealing(&store).await.set(KEY, VALUE, None).await.unwrap();
    let state = store.state();
    assert!(state.datagrams.len() > 2);
    assert!(state.datagrams.iter().all(|d| *d == state.datagrams[0]));
}

#[tokio::test]
async fn what_a_switch_answers_opens_as_well() {
    let store = store().await;
    let client = sealing(&store).await;
    client.set(KEY, VALUE, None).await.unwrap();
    store.twist(|_, reply| reply.header.flags = Flags::CACHED);
    let value = client.get(KEY).await.unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.from_switch), (VALUE, true));
    store.twist(|_, reply| {
        reply.header.flags = Flags::CACHED;
        *reply.value.last_mut().unwrap() ^= 1;
    });
    let error = client.get(KEY).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("switch before") && !text.contains('\n'), "{text}");
    assert_eq!(not_opened(Err(error)), (OpenError::Refused, true));
}

#[tokio::test]
async fn what_was_not_sealed_for_this_key_is_not_returned() {
    let store = store().await;
    let client = sealing(&store).await;
    client.set(KEY, VALUE, None).await.unwrap();
    client.set("another", VALUE, None).await.unwrap();
    // Whoever keeps the data swaps two values, both sealed with the right key.
    {
        let data = &mut store.state().data;
        let values: Vec<_> = data.values().cloned().collect();
        for (entry, value) in data.values_mut().zip(values.iter().rev()) {
            *entry = value.clone();
        }
    }
    assert_eq!(not_opened(client.get(KEY).await), (OpenError::Refused, false));

    client.set(KEY, VALUE, None).await.unwrap();
    for value in store.state().data.values_mut() {
        value.0 = b"written without a seal".to_vec();
    }
    assert_eq!(not_opened(client.get(KEY).await), (OpenError::NotSealed, false));
}

#[tokio::test]
async fn without_the_key_there_is_no_such_key() {
    let store = store().await;
    sealing(&store).await.set(KEY, VALUE, None).await.unwrap();
    for seal in [None, Some([2; 32])] {
        let other = connect(&store, seal).await;
        assert_eq!(other.get(KEY).await.unwrap(), None);
    }
    let again = sealing(&store).await;
    assert_eq!(again.get(KEY).await.unwrap().unwrap().bytes, VALUE);
}

#[tokio::test]
async fn a_seal_takes_its_bytes_from_the_longest_value() {
    let store = store().await;
    let client = sealing(&store).await;
    let packet = wire::max_value(Seal::HIDDEN_KEY_BYTES) - Seal::OVERHEAD;
    let max = store.cluster().max_value as usize - Seal::OVERHEAD;
    for len in [packet, packet + 1, max] {
        let value = vec![3; len];
        client.set(KEY, &value, None).await.unwrap();
        assert!(client.get(KEY).await.unwrap().unwrap().bytes == value);
    }
    let error = client.set(KEY, vec![3; max + 1], None).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("{} bytes is too large: {max} bytes are", max + 1))
            && text.contains("41 bytes of a seal"),
        "{text}"
    );
    // Which keys are possible does not depend on the seal.
    for len in [0, 251] {
        let error = client.get(vec![b'k'; len]).await.unwrap_err();
        assert!(matches!(error, Error::KeyLength(n) if n == len));
    }
    client.set([b'k'; 250], VALUE, None).await.unwrap();
    assert_eq!(store.state().applied, 4);
}
