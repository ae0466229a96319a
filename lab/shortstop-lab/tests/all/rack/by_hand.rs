//! What somebody types first: get, set, delete, conditions and times to live, from two clients.

use std::time::{Duration, Instant};

use super::support::{Kind, Rack, is_in_doubt, needs_root, until, until_known};

lab::on_both!(
    two_clients_read_write_and_delete,
    a_write_is_seen_by_the_other_client_at_once_two_hundred_times,
    conditions_hold_for_cached_keys_too,
    a_copy_never_outlives_its_time_to_live
);

fn two_clients_read_write_and_delete(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    assert_eq!(rack.get("client1", "greeting").value, None);
    let first = rack.set("client1", "greeting", "hello");
    let got = rack.get("client2", "greeting");
    assert_eq!((got.value.as_deref(), got.version), (Some("hello"), first));
    let got = rack.until_cached("client2", "greeting");
    assert_eq!((got.value.as_deref(), got.version), (Some("hello"), first));

    // A populated key, from both sides.
    let got = rack.until_cached("client1", "key0000000000007");
    assert_eq!(got.value.unwrap(), "key0000000000007".repeat(8));
    until("the copy serves every client", || {
        rack.until_cached("client1", "key0000000000007");
        rack.get("client2", "key0000000000007").from_switch.then_some(())
    });

    // A cached key that is deleted is gone for everybody at once, and can come back.
    assert!(rack.delete("client2", "greeting"));
    assert_eq!(rack.get("client1", "greeting").value, None);
    let again = until_known("a deletion", || rack.try_delete("client1", "greeting"));
    assert!(!again, "there is nothing any more");
    let again = rack.set("client2", "greeting", "hello again");
    assert!(again > first, "{again} after {first}");
    assert_eq!(rack.get("client1", "greeting").value.as_deref(), Some("hello again"));

    // Empty and binary-safe values, the largest key.
    rack.set("client1", "empty", "");
    assert_eq!(rack.get("client2", "empty").value.as_deref(), Some(""));
    let key = "k".repeat(250);
    rack.set("client1", &key, &"v".repeat(1000));
    assert_eq!(rack.until_cached("client2", &key).value.unwrap().len(), 1000);
}

fn a_write_is_seen_by_the_other_client_at_once_two_hundred_times(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let key = "contended";
    rack.set("client1", key, "-1");
    rack.until_cached("client2", key);
    let (mut hits, mut last) = (0, 0);
    for round in 0..200 {
        let (writer, reader) =
            if round % 2 == 0 { ("client1", "client2") } else { ("client2", "client1") };
        let version = rack.set(writer, key, &round.to_string());
        assert!(version > last, "round {round}: version {version} after {last}");
        last = version;
        for host in [reader, writer] {
            let got = rack.get(host, key);
            let expected = (Some(round.to_string()), version);
            assert_eq!((got.value, got.version), expected, "round {round}, read on {host}");
            hits += u32::from(got.from_switch);
        }
    }
    assert!(hits > 0, "the key was written so often that no read was answered by the switch");
}

fn conditions_hold_for_cached_keys_too(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    // A write in doubt may have made its own condition untrue: each try has a key of its own.
    let mut tries = 0;
    until_known("conditions", || {
        tries += 1;
        conditions_hold(&rack, &format!("lock{tries}"))
    });
}

/// The complaint of a write whose condition is not met; that of one in doubt is an error.
fn not_met(tried: Result<u64, String>) -> Result<String, String> {
    match tried {
        Ok(version) => panic!("version {version} was written"),
        Err(complaint) if is_in_doubt(&complaint) => Err(complaint),
        Err(complaint) => Ok(complaint),
    }
}

fn conditions_hold(rack: &Rack, key: &str) -> Result<(), String> {
    let first = rack.try_set("client1", key, "one", &["--if-absent"])?;
    let error = not_met(rack.try_set("client2", key, "two", &["--if-absent"]))?;
    assert!(error.contains("condition not met") && error.contains(&first.to_string()), "{error}");
    assert_eq!(rack.until_cached("client2", key).value.as_deref(), Some("one"));

    let version = first.to_string();
    let second = rack.try_set("client2", key, "two", &["--if-version", &version])?;
    let error = not_met(rack.try_set("client1", key, "three", &["--if-version", &version]))?;
    assert!(error.contains(&second.to_string()), "{error}");
    let got = rack.get("client1", key);
    assert_eq!((got.value.as_deref(), got.version), (Some("two"), second));

    rack.try_set("client1", key, "three", &["--if-present"])?;
    let error = not_met(rack.try_set("client1", "nothing", "x", &["--if-present"]))?;
    assert!(error.contains("absent"), "{error}");
    assert_eq!(rack.get("client2", key).value.as_deref(), Some("three"));
    Ok(())
}

fn a_copy_never_outlives_its_time_to_live(kind: Kind) {
    needs_root();
    let rack = Rack::up(kind);
    let (key, life) = ("short", Duration::from_secs(2));
    rack.set("client1", key, "for ever");
    rack.until_cached("client2", key);
    until("a round in which the switch served the value while it lived", || {
        let version = rack.set_as("client1", key, "for a while", &["--ttl", "2s"]);
        // The store counted from some moment before this one.
        let answered = Instant::now();
        let mut hits = 0;
        loop {
            let began = Instant::now();
            let got = rack.get("client2", key);
            if got.value.is_none() {
                return (hits > 0).then_some(());
            }
            assert!(began < answered + life, "served {:?} late", began - answered - life);
            assert_eq!((got.value.as_deref(), got.version), (Some("for a while"), version));
            assert!(got.expires_in_ms.is_some_and(|ms| ms <= 2000), "{got:?}");
            hits += u32::from(got.from_switch);
        }
    });
    assert_eq!(rack.get("client1", key).value, None);
    rack.set("client2", key, "again for ever");
    assert_eq!(rack.until_cached("client1", key).value.as_deref(), Some("again for ever"));
}
