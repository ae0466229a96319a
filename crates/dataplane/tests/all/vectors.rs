//! The data plane's parser against `crates/wire/vectors.json`.

use harness::{
    Frame, Switch, Verdict,
    message::{client, store},
    switch::tenant,
    unhex,
};
use serde_json::Value;
use wire::Secret;

fn vectors(kind: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/vectors.json");
    let text = std::fs::read_to_string(path).expect(path);
    let all: Value = serde_json::from_str(&text).expect(path);
    all[kind].as_array().expect(kind).clone()
}

/// No discipline runs, and the lease messages are for another switch: a packet that is admitted
/// ends as `bypass_no_discipline`.
fn switch() -> Switch {
    let secret = Secret(std::array::from_fn(|i| i as u8));
    let with_secret = |id| dataplane::TenantEntry { secret, ..tenant(id, 0) };
    let switch =
        Switch::load(&[], &[tenant(0, 0), with_secret(7), with_secret(wire::TENANT_SYSTEM)]);
    switch.table.set_identity(Switch::ID + 1, 0);
    switch
}

fn frames(vector: &Value) -> Vec<(String, Vec<u8>)> {
    let payload = unhex(vector["packet"].as_str().expect("hex"));
    let frame = |ipv6| {
        let (from, to) = (client(ipv6), store(ipv6));
        let payload = payload.clone();
        let frame = Frame {
            vlan: None,
            from,
            to,
            hop_limit: 64,
            checksum: true,
            flipped: false,
            unfinished: false,
            payload,
        };
        frame.bytes()
    };
    let name = vector["name"].as_str().expect("a name");
    vec![(format!("{name}, IPv4"), frame(false)), (format!("{name}, IPv6"), frame(true))]
}

#[test]
fn every_packet_is_admitted() {
    let switch = switch();
    for (name, frame) in vectors("packets").iter().flat_map(frames) {
        let run = switch.run(&frame, None);
        let unharmed = !run.moved.keys().any(|name| name.starts_with("drop_"));
        assert!(
            unharmed && run.moved.contains_key("bypass_no_discipline"),
            "{name}: {:?}",
            run.moved
        );
    }
}

#[test]
fn every_malformed_packet_ends_under_its_name() {
    let switch = switch();
    for vector in vectors("malformed") {
        let ending = match vector["error"].as_str().expect("an error") {
            // Not even a first byte that could be ours.
            "ShortHeader" if vector["packet"] == "" => "pass_other_magic",
            "ShortHeader" => "drop_short_header",
            "BadMagic" => "pass_other_magic",
            "UnknownVersion" => "drop_bad_version",
            "UnknownOp" => "drop_unknown_op",
            "UnknownStatus" => "drop_unknown_status",
            "BadKeyLength" => "drop_bad_key_length",
            "UnexpectedValue" => "drop_bad_value_length",
            "BadPart" => "drop_bad_part",
            "Truncated" => "drop_truncated",
            other => panic!("no counter is known for {other}"),
        };
        for (name, frame) in frames(&vector) {
            let run = switch.run(&frame, None);
            assert_eq!(run.moved.into_iter().collect::<Vec<_>>(), [(ending, 1)], "{name}");
            let wanted = if ending.starts_with("pass_") { Verdict::Pass } else { Verdict::Drop };
            assert_eq!(run.verdict, wanted, "{name}");
            assert_eq!(run.frame, frame, "{name}: changed");
        }
    }
}

#[test]
fn every_forged_packet_passes_the_tables_by() {
    let switch = switch();
    for (name, frame) in vectors("forged").iter().flat_map(frames) {
        let run = switch.run(&frame, None);
        let moved: Vec<_> = run.moved.into_iter().collect();
        assert_eq!(moved, [("bypass_bad_tag", 1), ("pass_local", 1)], "{name}");
        assert_eq!((run.verdict, run.frame), (Verdict::Pass, frame), "{name}");
    }
}
