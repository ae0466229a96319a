//! `vectors.json` holds packets with their fields, for every implementation of the protocol to
//! check itself against. This test makes the same vectors anew and compares; after a deliberate
//! change of the protocol, run it with `WRITE_VECTORS=1` to write the file.

use crate::{
    Epoch, Flags, HEADER_LEN, Header, HolderProof, Op, Packet, Secret, Status, VERSION_ABSENT,
    VERSION_PRESENT, partition_of,
};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors.json");
const TENANT: u32 = 7;
/// The bit of a request's number by which chains tell reads from writes.
const READ_BIT: u64 = 1 << 63;
/// Bytes that a request to a chain is padded to hold, so that it can be answered with any chain.
const ROUTE_MOST: usize = 144;

fn secret() -> Secret {
    Secret(std::array::from_fn(|i| i as u8))
}

/// Tenant 7's key with the hash 1, 2, 3 and so on was read 1,000 times.
const COUNTED: [u8; 24] =
    [0, 0, 0, 7, 0, 0, 3, 0xe8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// A header with a different number in each field, so that a swapped pair is noticed.
fn header(op: Op) -> Header {
    Header {
        tenant: TENANT,
        life: 0x11FE,
        client: 0xC11E_0001_0203_0405,
        request: 0x4E21,
        ..Header::new(op)
    }
}

/// What is said of a store's copy of another one's key, the store being the cluster's third.
fn replicas() -> Vec<Case> {
    let (node, epoch) = (0x8002, Epoch::new(0x8002, 0x6543_2100_0003));
    let key: &[u8] = b"key0000000000042";
    let value: &[u8] = b"key0000000000042key0000000000042";
    let version = 0x6543_2100_0000_0005;
    let of_copy = |op| Header { life: 0, client: 0, request: 0, epoch, version, ..header(op) };
    // They say whose write it was.
    let push = |flags| Header {
        flags,
        client: 0xC11E_0001_0203_0405,
        request: 0x4E21,
        ..of_copy(Op::ReplicaPush)
    };
    let update = |flags| Header { flags, node, ..header(Op::ReplicaUpdate) };
    let counts =
        Header { tenant: u32::MAX, epoch: Epoch::new(0x0102, 0), ..Header::new(Op::ReadCounts) };
    vec![
        (
            "read that a switch sent to a store",
            Header { node, ..header(Op::ReadRequest) },
            key,
            b"",
            0,
        ),
        (
            "write that a switch sent to stores, too",
            Header { node: 0xffff, ..header(Op::WriteRequest) },
            key,
            value,
            0,
        ),
        ("replica confirm", of_copy(Op::ReplicaConfirm), key, b"", 0),
        ("replica push", Header { expiry_ms: 60_000, ..push(Flags::GRANT) }, key, value, 0),
        (
            "replica push of a hash in the place of the value",
            push(Flags::GRANT.with(Flags::COMPARE)),
            key,
            &[1, 2, 3, 4, 5, 6, 7, 8],
            0,
        ),
        (
            "replica drop",
            Header { epoch: Epoch::new(0x8002, 0), version: 0, ..of_copy(Op::ReplicaDrop) },
            key,
            b"",
            0,
        ),
        (
            "replica update, of a conditional write",
            Header { version, expiry_ms: 60_000, ..update(Flags::COMPARE) },
            key,
            value,
            0,
        ),
        ("replica update, of a delete", update(Flags::ALL), key, b"", 0),
        ("read counts of one key", counts, b"", &COUNTED, 0),
        (
            "invalidate ack of a store that was told of a write",
            Header {
                flags: Flags::GRANT,
                version: 0,
                client: 0xC11E_0001_0203_0405,
                request: 0x4E21,
                ..of_copy(Op::InvalidateAck)
            },
            key,
            b"",
            0,
        ),
    ]
}

/// What a holder at the clients' side and a store say to each other, the holder being the store's
/// third.
fn holders() -> Vec<Case> {
    let key: &[u8] = b"key0000000000042";
    let value: &[u8] = b"key0000000000042key0000000000042";
    let epoch = Epoch::new(0xc002, 0x6543_2100_0003);
    let token = 0x70CE_0001_0203_0405;
    let proof = HolderProof { token, term: 0x7E31_0001_0203_0405 };
    let version = 0x6543_2100_0000_0005;
    let of_lease = |op| Header {
        life: 0,
        epoch: Epoch::new(0xc002, 0),
        key_hash: proof.to_hash(),
        version,
        ..header(op)
    };
    let of_key = |op| Header { life: 0, request: token, epoch, version, ..header(op) };
    vec![
        (
            "holder lease request of one that begins",
            Header {
                epoch: Epoch::NONE,
                key_hash: HolderProof::default().to_hash(),
                ..of_lease(Op::HolderLeaseRequest)
            },
            b"",
            b"",
            0,
        ),
        (
            "holder lease reply: ask again with this proof",
            Header {
                status: Status::TryAgain,
                epoch: Epoch::NONE,
                key_hash: HolderProof { token, term: 0 }.to_hash(),
                ..of_lease(Op::HolderLeaseReply)
            },
            b"",
            b"",
            0,
        ),
        ("holder lease request", of_lease(Op::HolderLeaseRequest), b"", b"", 0),
        (
            "holder lease reply",
            Header { expiry_ms: 2000, ..of_lease(Op::HolderLeaseReply) },
            b"",
            b"",
            0,
        ),
        ("holder return", of_lease(Op::HolderReturn), b"", b"", 0),
        (
            "holder fetch, padded to its answer",
            Header { flags: Flags::GRANT, version: 0, ..of_key(Op::HolderFetch) },
            key,
            b"",
            32,
        ),
        (
            "holder grant",
            Header { flags: Flags::GRANT, expiry_ms: 60_000, ..of_key(Op::HolderGrant) },
            key,
            value,
            0,
        ),
        (
            "holder grant refused for 50 ms",
            Header { status: Status::TryAgain, expiry_ms: 50, ..of_key(Op::HolderGrant) },
            key,
            b"",
            0,
        ),
        ("holder invalidate", Header { version: 0, ..of_key(Op::HolderInvalidate) }, key, b"", 0),
        (
            "holder ack of a copy that answered nine reads",
            Header {
                epoch: Epoch::new(0xc002, 0x6543_2100_0004),
                version: 0x6543_2100_0003,
                expiry_ms: 9,
                ..of_key(Op::HolderAck)
            },
            key,
            b"",
            0,
        ),
    ]
}

/// Name, header, key, value, padding in bytes.
type Case = (&'static str, Header, &'static [u8], &'static [u8], usize);

fn cases() -> Vec<Case> {
    let epoch = Epoch::new(0x0102, 0x6543_2100_0003);
    let granted = Flags::GRANT;
    let key: &[u8] = b"key0000000000042";
    let value: &[u8] = b"key0000000000042key0000000000042";
    let version = 0x6543_2100_0000_0005;
    let arrangement = Epoch::new(1, 0x6543_2100_0003);
    let lease = Header {
        tenant: u32::MAX,
        request: 3,
        epoch: Epoch::new(0x0102, 0),
        ..Header::new(Op::LeaseRequest)
    };
    vec![
        ("read request", header(Op::ReadRequest), key, b"", 0),
        (
            "read request padded to its reply",
            header(Op::ReadRequest),
            key,
            b"",
            32,
        ),
        (
            "read request that asks for a grant",
            Header {
                flags: granted,
                epoch,
                ..header(Op::ReadRequest)
            },
            key,
            b"",
            0,
        ),
        (
            "read request of the longest key",
            header(Op::ReadRequest),
            &[b'k'; 250],
            b"",
            0,
        ),
        (
            "read request of tenant 0",
            Header {
                tenant: 0,
                ..header(Op::ReadRequest)
            },
            b"k",
            b"",
            0,
        ),
        (
            "read reply from a switch",
            Header {
                flags: Flags::CACHED,
                version,
                expiry_ms: 30_000,
                ..header(Op::ReadReply)
            },
            key,
            value,
            0,
        ),
        (
            "read reply that is a grant",
            Header {
                flags: granted,
                epoch,
                version,
                ..header(Op::ReadReply)
            },
            key,
            value,
            0,
        ),
        (
            "read reply: not found",
            Header {
                status: Status::NotFound,
                ..header(Op::ReadReply)
            },
            key,
            b"",
            0,
        ),
        (
            "read reply: needs padding",
            Header {
                status: Status::NeedPadding,
                total: 1024,
                ..header(Op::ReadReply)
            },
            key,
            b"",
            0,
        ),
        (
            "read request of the second part of a value, if it still is version 5",
            Header {
                flags: Flags::COMPARE,
                version: 5,
                part: 4,
                total: 1500,
                ..header(Op::ReadRequest)
            },
            key,
            b"",
            476,
        ),
        (
            "write reply: another life of the store",
            Header {
                status: Status::OtherLife,
                life: 0x22FE,
                ..header(Op::WriteReply)
            },
            key,
            b"",
            0,
        ),
        (
            "read request sent to another node",
            Header {
                node: 3,
                ..header(Op::ReadRequest)
            },
            key,
            b"",
            0,
        ),
        (
            "keep request",
            Header {
                life: 0x1EAF,
                epoch,
                node: 3,
                version,
                expiry_ms: 5,
                ..header(Op::KeepRequest)
            },
            key,
            value,
            0,
        ),
        (
            "keep reply to a write that had been kept before, signed with the tenant's other secret",
            Header {
                life: 0x1EAF,
                flags: Flags::ALL,
                epoch,
                node: 3,
                version,
                ..header(Op::KeepReply)
            },
            key,
            value,
            0,
        ),
        (
            "lend request that prepares a keeper",
            Header {
                life: 0x1EAF,
                client: version,
                request: 3,
                epoch: Epoch::new(0x0102, 0),
                node: 3,
                version: version - 1,
                ..header(Op::LendRequest)
            },
            key,
            b"",
            0,
        ),
        (
            "lend request with which an owner begins",
            Header {
                life: 0x1EAF,
                client: version,
                request: 3,
                flags: granted,
                epoch,
                node: 3,
                version: version - 1,
                ..header(Op::LendRequest)
            },
            key,
            value,
            0,
        ),
        (
            "lend reply: another loan is active",
            Header {
                life: 0x1EB0,
                client: version,
                request: 3,
                flags: granted,
                status: Status::Mismatch,
                epoch,
                node: 3,
                ..header(Op::LendReply)
            },
            key,
            b"",
            0,
        ),
        (
            "take request that ends a loan and asks about a write",
            Header {
                life: 0x1EAF,
                flags: granted,
                epoch: Epoch::new(0x0102, 0),
                version,
                ..header(Op::TakeRequest)
            },
            key,
            b"",
            48,
        ),
        (
            "take reply: ended, and the write was kept",
            Header {
                life: 0x1EAF,
                flags: granted.with(Flags::CACHED),
                epoch,
                version,
                ..header(Op::TakeReply)
            },
            key,
            value,
            0,
        ),
        (
            "correction request",
            header(Op::CorrectionRequest),
            key,
            b"",
            0,
        ),
        (
            "write request with a time to live",
            Header {
                expiry_ms: 30_000,
                ..header(Op::WriteRequest)
            },
            key,
            value,
            0,
        ),
        (
            "write request if the version is 5",
            Header {
                flags: Flags::COMPARE,
                version: 5,
                ..header(Op::WriteRequest)
            },
            key,
            value,
            0,
        ),
        (
            "write request if absent",
            Header {
                flags: Flags::COMPARE,
                version: VERSION_ABSENT,
                ..header(Op::WriteRequest)
            },
            key,
            value,
            0,
        ),
        (
            "write request if present, that asks for a grant",
            Header {
                flags: Flags::COMPARE.with(granted),
                version: VERSION_PRESENT,
                epoch,
                ..header(Op::WriteRequest)
            },
            key,
            value,
            0,
        ),
        (
            "write reply that is a grant",
            Header {
                flags: granted,
                epoch,
                version,
                ..header(Op::WriteReply)
            },
            key,
            value,
            0,
        ),
        (
            "write reply: mismatch",
            Header {
                status: Status::Mismatch,
                version,
                ..header(Op::WriteReply)
            },
            key,
            b"",
            0,
        ),
        ("delete request", header(Op::DeleteRequest), key, b"", 0),
        (
            "delete reply",
            Header {
                version,
                ..header(Op::DeleteReply)
            },
            key,
            b"",
            0,
        ),
        (
            "fetch request",
            Header {
                flags: granted,
                epoch,
                client: 0,
                ..header(Op::FetchRequest)
            },
            key,
            b"",
            64,
        ),
        (
            "fetch reply that is a grant",
            Header {
                flags: granted,
                epoch,
                version,
                client: 0,
                ..header(Op::FetchReply)
            },
            key,
            value,
            0,
        ),
        (
            "invalidate",
            Header {
                epoch,
                client: 0,
                ..header(Op::Invalidate)
            },
            key,
            b"",
            0,
        ),
        (
            "invalidate ack",
            Header {
                epoch: Epoch::new(0x0102, 0x6543_2100_0004),
                client: 0,
                ..header(Op::InvalidateAck)
            },
            key,
            b"",
            0,
        ),
        (
            "lease offer",
            Header {
                op: Op::LeaseOffer,
                ..lease
            },
            b"",
            b"",
            0,
        ),
        (
            "lease request",
            Header {
                version: 123_456_789_012_345,
                ..lease
            },
            b"",
            b"",
            0,
        ),
        (
            "lease reply",
            Header {
                op: Op::LeaseReply,
                version: 123_456_789_012_345,
                expiry_ms: 2000,
                client: 0x6543_2101_0708_090A,
                ..lease
            },
            b"",
            b"",
            0,
        ),
        (
            "lease that is given back",
            Header {
                op: Op::LeaseReturn,
                version: 123_456_789_012_345,
                client: 0x6543_2101_0708_090A,
                ..lease
            },
            b"",
            b"",
            0,
        ),
        (
            "lease that is taken back",
            Header {
                op: Op::LeaseReturned,
                version: 123_456_789_012_345,
                client: 0x6543_2101_0708_090A,
                expiry_ms: 2,
                ..lease
            },
            b"",
            b"",
            0,
        ),
        (
            "chain read",
            Header {
                request: READ_BIT | 3,
                epoch: arrangement,
                ..header(Op::ChainRead)
            },
            key,
            b"",
            ROUTE_MOST,
        ),
        (
            "chain read that carries the addresses of two switches",
            Header {
                request: READ_BIT | 3,
                expiry_ms: 2,
                epoch: arrangement,
                ..header(Op::ChainRead)
            },
            key,
            &[10, 0, 0, 2, 10, 0, 0, 3],
            0,
        ),
        (
            "chain write if the version is 5",
            Header {
                flags: Flags::COMPARE,
                epoch: arrangement,
                ..header(Op::ChainWrite)
            },
            key,
            b"\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\x05value",
            ROUTE_MOST,
        ),
        (
            "chain write reply: another arrangement, with the addresses of its only switch",
            Header {
                flags: Flags::CACHED,
                status: Status::Moved,
                epoch: arrangement,
                ..header(Op::ChainWriteReply)
            },
            key,
            b"\0\x01\x65\x43\x21\0\0\x03\x01\x01\0\x04\0\x02\0\x03\x0a\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0",
            0,
        ),
        (
            "chain ack",
            Header {
                version,
                node: 2,
                epoch: arrangement,
                ..header(Op::ChainAck)
            },
            key,
            b"",
            0,
        ),
        (
            "discipline request",
            header(Op::DisciplineRequest),
            key,
            value,
            0,
        ),
        (
            "discipline reply",
            Header {
                version,
                ..header(Op::DisciplineReply)
            },
            key,
            value,
            0,
        ),
        (
            "peer message",
            Header {
                version,
                node: 2,
                epoch: arrangement,
                ..header(Op::PeerMessage)
            },
            key,
            value,
            0,
        ),
        (
            "peer signal",
            Header {
                node: 2,
                epoch: arrangement,
                ..header(Op::PeerSignal)
            },
            b"",
            value,
            0,
        ),
    ]
}

fn secret_for(tenant: u32) -> Secret {
    if tenant == 0 { Secret::NONE } else { secret() }
}

fn packet_vector((name, header, key, value, padding): Case) -> Value {
    let secret = secret_for(header.tenant);
    let hash = if key.is_empty() { header.key_hash } else { secret.key_hash(header.tenant, key) };
    let mut bytes = vec![];
    Packet::new(Header { key_hash: hash, ..header }, key, value)
        .encode(&secret, &mut bytes)
        .expect("lengths are possible");
    bytes.resize(bytes.len() + padding, 0);
    // What is written down is what decoding gives, not what was put in.
    let packet = Packet::decode(&bytes).expect("it was just encoded");
    assert!(packet.tag_is_valid(&secret));
    let h = packet.header;
    json!({
        "name": name,
        "packet": hex::encode(&bytes),
        "secret": hex::encode(secret.0),
        "fields": {
            "op": h.op as u8, "op_name": format!("{:?}", h.op), "flags": h.flags.bits(),
            "status": h.status as u8, "key_len": h.key_len, "value_len": h.value_len,
            "life": h.life, "node": h.node, "part": h.part, "total": h.total, "tenant": h.tenant,
            "expiry_ms": h.expiry_ms, "client": format!("{:016x}", h.client), "request": format!("{:016x}", h.request),
            "key_hash": hex::encode(h.key_hash.0), "switch": h.epoch.switch(),
            "epoch_number": h.epoch.number(), "version": format!("{:016x}", h.version),
            "tag": format!("{:016x}", h.tag),
        },
        "key": hex::encode(packet.key),
        "value": hex::encode(packet.value),
        "padding": padding,
    })
}

fn malformed() -> Vec<Value> {
    let mut good = vec![];
    Packet::new(header(Op::WriteRequest), b"key", b"value").encode(&secret(), &mut good).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let lease_with_key = {
        let mut bytes = with(40, Op::LeaseOffer as u8);
        bytes[43] = 0;
        bytes
    };
    let late_part = {
        let mut bytes = with(51, 1);
        bytes[54..56].copy_from_slice(&260u16.to_be_bytes());
        bytes
    };
    [
        ("nothing", vec![]),
        ("a header less one byte", good[..HEADER_LEN - 1].to_vec()),
        ("another magic", with(0, 0x51)),
        ("protocol version 1", with(0, 0xA1)),
        ("op 0", with(40, 0)),
        ("op without meaning", with(40, 0x7f)),
        ("status without meaning", with(41, 0xf0)),
        ("no key", with(1, 0)),
        ("key of 251 bytes", with(1, 251)),
        ("key in a lease message", lease_with_key),
        ("value in a read request", with(40, Op::ReadRequest as u8)),
        ("value cut off by one byte", good[..good.len() - 1].to_vec()),
        ("value length beyond the packet", with(42, 0xff)),
        ("key length beyond the packet", with(1, 200)),
        ("bytes 256 to 261 of 260", late_part),
        ("a part of nothing", with(51, 1)),
    ]
    .into_iter()
    .map(|(name, bytes)| {
        let error = Packet::decode(&bytes).expect_err(name);
        let text = format!("{error:?}");
        let variant = text.split(|c: char| !c.is_alphanumeric()).next();
        json!({ "name": name, "packet": hex::encode(&bytes), "error": variant, "message": error.to_string() })
    })
    .collect()
}

fn forged() -> Vec<Value> {
    let mut good = vec![];
    Packet::new(header(Op::WriteRequest), b"key", b"value").encode(&secret(), &mut good).unwrap();
    [
        ("life", 2, 8),
        ("client", 8, 128),
        ("request", 23, 1),
        ("op", 40, 0x30),
        ("reserved flag bit", 41, 8),
        ("version", 71, 1),
        ("tag", 79, 1),
        ("key", 80, 1),
    ]
        .into_iter()
        .map(|(what, at, bit)| {
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            assert!(!Packet::decode(&bytes).unwrap().tag_is_valid(&secret()), "{what}");
            json!({ "name": format!("one bit changed: {what}"), "packet": hex::encode(&bytes), "secret": hex::encode(secret().0) })
        })
        .collect()
}

fn key_hashes() -> Vec<Value> {
    let keys: [(u32, &[u8]); 4] =
        [(0, b"k"), (0, b"key0000000000042"), (TENANT, b"key0000000000042"), (8, &[0xff; 250])];
    keys.into_iter()
        .map(|(tenant, key)| {
            let secret = secret_for(tenant);
            let hash = secret.key_hash(tenant, key);
            json!({
                "tenant": tenant, "secret": hex::encode(secret.0), "key": hex::encode(key),
                "key_hash": hex::encode(hash.0), "partition_of_128": partition_of(hash, 128),
            })
        })
        .collect()
}

#[test]
fn the_file_holds_these_vectors() {
    let cases = cases().into_iter().chain(replicas()).chain(holders());
    let packets: Vec<_> = cases.map(packet_vector).collect();
    let vectors = json!({
        "about": "See docs/protocol.md. Bytes are hex; version and tag are hex numbers. Checked by crates/wire/src/tests/vectors.rs.",
        "packets": packets,
        "malformed": malformed(),
        "forged": forged(),
        "key_hashes": key_hashes(),
    });
    if std::env::var_os("WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
        std::fs::write(FILE, text).unwrap();
    }
    let text = std::fs::read_to_string(FILE).expect(FILE);
    let stored: Value = serde_json::from_str(&text).expect(FILE);
    assert_eq!(stored, vectors, "vectors.json differs; WRITE_VECTORS=1 writes it anew");
}

#[test]
fn every_malformed_packet_has_a_name_and_every_error_a_packet() {
    let names: std::collections::BTreeSet<String> =
        malformed().iter().map(|v| v["error"].as_str().unwrap().to_owned()).collect();
    let all = [
        "BadKeyLength",
        "BadMagic",
        "BadPart",
        "ShortHeader",
        "Truncated",
        "UnexpectedValue",
        "UnknownOp",
        "UnknownStatus",
        "UnknownVersion",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), all);
}
