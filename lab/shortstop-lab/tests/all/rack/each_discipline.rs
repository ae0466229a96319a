//! Each discipline whose keys are stores', in a rack with two of them: a key that is read again and
//! again is answered elsewhere than at its home, and who writes or deletes it is obeyed at once.

use std::{path::Path, time::Instant};

use client::{Client, Error};
use decide::Items;
use serde_json::Value;

use super::support::{
    Kind, PATIENCE, Rack, Reader, needs_root, patient, rack_with, until, use_client,
};

lab::on_both!(hot_keys_are_answered_elsewhere_and_writes_are_seen_at_once);

const STORES: [&str; 2] = ["server", "server2"];
/// A value of one packet, and one of several.
const SHORT: &str = "short";
const LONG: &str = "long";

/// How often each key is written.
const WRITES: u64 = 5;

/// The rack with a second store.
fn rack(kind: Kind) -> Rack {
    let text = rack_with(kind, &[]);
    let from = text.find("[[host]]\nname = \"server\"").expect("a server");
    let to = text.find("[[switch]]\n").expect("a switch");
    let host = text[from..to].to_string();
    let second = host.replace("server", "server2").replace("store.sock", "store2.sock");
    let half = "last = 63\n[[store]]\naddress = \"{address:server2}:7117\"\nfirst = 64\nlast = 127";
    Rack::with(
        kind,
        &[
            (&host, &format!("{host}{second}")),
            ("last = 127", half),
            (
                "ends = [\"server\", \"switch\"]",
                "ends = [\"server\", \"switch\"]\n[[link]]\nends = [\"server2\", \"switch\"]",
            ),
        ],
    )
}

/// Reads that stores have answered of keys whose home they are not.
fn of_replicas(rack: &Rack) -> u64 {
    let sockets = ["store.sock", "store2.sock"].map(|name| rack.lab.dir().join(name));
    let status = STORES.iter().zip(sockets).map(|(host, socket)| {
        let socket = socket.to_string_lossy();
        let said =
            rack.done(host, &["shortstop", "store", "status", "--json", "--socket", &socket]);
        let status: Value = serde_json::from_str(&said).expect("JSON");
        status["totals"]["replica_reads"].as_u64().unwrap_or_else(|| panic!("{status}"))
    });
    status.sum()
}

/// Writes a key until the outcome is known, on a machine that may stand still; the new version.
async fn set(client: &Client, key: &str, value: &[u8]) -> u64 {
    let began = Instant::now();
    loop {
        match client.set(key, value, None).await {
            Err(Error::OutcomeUnknown { .. } | Error::NotWhole { .. })
                if began.elapsed() < PATIENCE => {}
            written => return written.expect("an answer"),
        }
    }
}

/// Deletes a key likewise; whether it was there, or may have been at a first try.
async fn delete(client: &Client, key: &str) -> bool {
    let (began, mut in_doubt) = (Instant::now(), false);
    loop {
        match client.delete(key).await {
            Err(Error::OutcomeUnknown { .. }) if began.elapsed() < PATIENCE => in_doubt = true,
            deleted => return deleted.expect("an answer") || in_doubt,
        }
    }
}

/// Writes both keys again and again, reads each at once, and removes them in the end.
async fn write(client: Client, readers: &[Reader; 2]) {
    let texts =
        [|version: u64| version.to_string(), |version: u64| version.to_string().repeat(5000)];
    for version in 2..2 + WRITES {
        for ((key, reader), text) in [SHORT, LONG].iter().zip(readers).zip(texts) {
            let value = text(version);
            let written = set(&client, key, value.as_bytes()).await;
            reader.expect_version(written);
            let got = client.get(key).await.expect("an answer").expect("it is there");
            assert_eq!((got.version, &got.bytes[..]), (written, value.as_bytes()), "{key}");
        }
    }
}

fn hot_keys_are_answered_elsewhere_and_writes_are_seen_at_once(kind: Kind) {
    needs_root();
    let rack = rack(kind);
    let all = disciplines::all();
    for (discipline, id) in all.iter().filter(|known| known.items == Items::Copies).zip(11..) {
        let name = discipline.name;
        let file = rack.tenant(id, &format!("--discipline {name}"));
        let cluster = std::fs::read_to_string(Path::new(&file)).expect("the tenant's file");
        let here = |host: &str| (rack.lab.namespace(host), cluster.as_str());
        let (space, text) = here("client1");
        use_client(&space, text, id, patient(), async |client| {
            set(&client, SHORT, b"1").await;
            set(&client, LONG, "1".repeat(5000).as_bytes()).await;
        });
        let before = of_replicas(&rack);
        let readers =
            [SHORT, LONG].map(|key| rack.keep_reading_as("client1", key, &cluster, id, patient()));
        until(&format!("{name}: a hot key is answered elsewhere"), || {
            (readers[0].hits() + of_replicas(&rack) - before >= 20).then_some(())
        });
        let (space, text) = here("client2");
        use_client(&space, text, id, patient(), async |client| write(client, &readers).await);
        readers.iter().for_each(|reader| reader.wait_for_reads(5));
        for reader in readers {
            let _sent_again = reader.finish();
        }
        use_client(&space, text, id, patient(), async |client| {
            for key in [SHORT, LONG] {
                assert!(delete(&client, key).await, "{name}: {key}");
                assert!(client.get(key).await.expect("an answer").is_none(), "{name}: {key}");
            }
        });
    }
}
