//! Each discipline whose keys are stores', in a rack with two of them: a key that is read again and
//! again is answered elsewhere than at its home, and who writes or deletes it is obeyed at once.

use decide::Items;
use serde_json::Value;

use super::support::{Kind, Rack, Reader, needs_root, patient, rack_with, until};

lab::on_both!(hot_keys_are_answered_elsewhere_and_writes_are_seen_at_once);

const STORES: [&str; 2] = ["server", "server2"];
/// A value of one packet, and one of several.
const SHORT: &str = "short";
const LONG: &str = "long";

/// The rack with a second store, and a discipline for all who name none.
fn rack(kind: Kind, discipline: &str) -> Rack {
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
            ("\"--insecure\"", &format!("\"--insecure\", \"--discipline\", \"{discipline}\"")),
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

fn hot_keys_are_answered_elsewhere_and_writes_are_seen_at_once(kind: Kind) {
    needs_root();
    for discipline in disciplines::all().iter().filter(|known| known.items == Items::Copies) {
        let rack = rack(kind, discipline.name);
        let long = |version: u64| version.to_string().repeat(5000);
        let readers: Vec<Reader> = [(SHORT, "1".into()), (LONG, long(1))]
            .iter()
            .map(|(key, value): &(&str, String)| {
                rack.set("client1", key, value);
                rack.keep_reading("client1", key, patient())
            })
            .collect();
        let what = format!("{}: a hot key is answered elsewhere", discipline.name);
        until(&what, || (readers[0].hits() + of_replicas(&rack) >= 20).then_some(()));
        for version in 2..12 {
            for (key, reader, value) in
                [(SHORT, &readers[0], version.to_string()), (LONG, &readers[1], long(version))]
            {
                reader.expect_version(rack.set("client2", key, &value));
                let got = rack.get("client1", key);
                assert_eq!(got.value, Some(value), "{}: {key}", discipline.name);
            }
        }
        readers.iter().for_each(|reader| reader.wait_for_reads(5));
        for reader in readers {
            let _sent_again = reader.finish();
        }
        for key in [SHORT, LONG] {
            assert!(rack.delete("client2", key));
            assert_eq!(rack.get("client1", key).value, None, "{}: {key}", discipline.name);
        }
    }
}
