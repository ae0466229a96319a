//! Values that no packet carries: read and written in parts.

use wire::{PART, PART_BYTES, VERSION_NEVER};

use super::*;
use crate::backend::{Answer as Reply, Change, Condition, Key, Put};

/// A value of which no two parts are alike.
fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / PART + at) as u8).collect()
}

fn read(tenant: u32) -> Header {
    Header {
        tenant,
        ..Header::new(Op::ReadRequest)
    }
}

impl Store {
    /// Puts a value where no packet puts it.
    fn holds(&mut self, tenant: u32, key: &[u8], value: &[u8], version: u64) {
        let secret = if tenant == KEYED {
            SECRET
        } else {
            Secret::NONE
        };
        let key = Key {
            tenant,
            hash: secret.key_hash(tenant, key),
            bytes: key,
        };
        let put = Put {
            value,
            ttl_ms: 0,
            condition: Condition::Always,
            version,
        };
        let put = self.engine.backend.put(key, put, LATER_NS, 0);
        assert_eq!(put, Reply::Now(Change::Done(version)));
    }

    /// Asks, with a request as long as a packet can be; the answer.
    fn answer(&mut self, header: Header, key: &[u8], value: &[u8]) -> (Header, Vec<u8>) {
        self.hand_in_at(header, key, value, wire::MAX_PAYLOAD, LATER_NS);
        let (bytes, _) = self.out.pop().expect("an answer");
        let packet = Packet::decode(&bytes).unwrap();
        (packet.header, packet.value.to_vec())
    }
}

#[test]
fn a_value_that_no_packet_carries_is_read_in_parts_of_one_version() {
    let mut store = Store::new();
    let large = value(3 * PART_BYTES + 7);
    for tenant in [TENANT_OPEN, KEYED] {
        store.holds(tenant, b"k", &large, 50);
        let (first, mut got) = store.answer(read(tenant), b"k", &[]);
        let (total, version) = (first.total, first.version);
        assert_eq!((total as usize, version, first.part), (large.len(), 50, 0));
        while got.len() < large.len() {
            let part = (got.len() / PART) as u16;
            let next = Header {
                part,
                total,
                version,
                ..read(tenant)
            };
            let (reply, bytes) = store.answer(next, b"k", &[]);
            assert_eq!((reply.part, reply.total, reply.version), (part, total, 50));
            got.extend(bytes);
        }
        assert_eq!(got, large);
    }
    assert_eq!(store.engine.counters.reads, 8);
    assert_eq!(store.engine.counters.reads_of_parts, 6);
}

#[test]
fn who_asks_for_a_part_of_what_is_no_more_is_told_what_there_is() {
    let mut store = Store::new();
    store.holds(KEYED, b"k", &value(5000), 60);
    let part = |part, total, version| Header {
        part,
        total,
        version,
        ..read(KEYED)
    };
    let first = (Status::Ok, 0, 5000, 60, PART_BYTES);
    // (part, total, version) asked; (status, part, total, version, bytes) answered
    let rows = [
        ((4, 5000, 59), first),
        ((4, 5001, 60), first),
        ((0, 5000, 60), first),
        ((16, 5000, 60), (Status::Ok, 16, 5000, 60, 5000 - 4096)),
        // From anywhere that can be named.
        ((19, 5000, 60), (Status::Ok, 19, 5000, 60, 5000 - 19 * 256)),
    ];
    for ((at, total, version), expected) in rows {
        let (header, bytes) = store.answer(part(at, total, version), b"k", &[]);
        let Header {
            status,
            part,
            total,
            version,
            ..
        } = header;
        assert_eq!((status, part, total, version, bytes.len()), expected);
    }
    store.holds(KEYED, b"k", b"short", 61);
    let (short, bytes) = store.answer(part(4, 5000, 60), b"k", &[]);
    assert_eq!(
        (short.version, short.total, &bytes[..]),
        (61, 0, &b"short"[..])
    );
    let (none, _) = store.answer(part(4, 5000, 60), b"other", &[]);
    assert_eq!((none.status, none.is_part()), (Status::NotFound, false));
}

#[test]
fn as_much_as_a_packet_carries_goes_in_one_over_either_protocol() {
    let mut store = Store::new();
    let longest = wire::max_value(1);
    // (client, longest in one packet)
    let rows = [
        ("10.0.0.1:5000", longest),
        ("[::ffff:10.0.0.1]:5000", longest),
        ("[fd00::1]:5000", longest - 20),
    ];
    for (client, most) in rows {
        store.client = client.parse().unwrap();
        for (len, total) in [(most, 0), (most + 1, most + 1)] {
            store.holds(TENANT_OPEN, b"k", &value(len), 70);
            let (reply, bytes) = store.answer(read(TENANT_OPEN), b"k", &[]);
            assert_eq!(reply.total as usize, total, "{client}");
            assert_eq!(bytes.len(), if total == 0 { len } else { PART_BYTES });
        }
    }
}

#[test]
fn the_open_tenant_is_sent_no_more_of_a_part_than_it_sent() {
    let mut store = Store::new();
    store.holds(TENANT_OPEN, b"k", &value(5000), 80);
    let least = wire::HEADER_LEN + 1 + PART_BYTES;
    for (padded_to, status) in [(least - 1, Status::NeedPadding), (least, Status::Ok)] {
        store.hand_in_at(read(TENANT_OPEN), b"k", &[], padded_to, LATER_NS);
        let (bytes, _) = store.out.pop().unwrap();
        let header = Packet::decode(&bytes).unwrap().header;
        assert_eq!((header.status, header.total), (status, 5000));
        assert!(bytes.len() <= padded_to);
    }
}

#[test]
fn a_part_is_granted_as_a_whole_value_is() {
    let mut store = with_a_copy();
    store.holds(KEYED, b"large", &value(5000), 90);
    for (op, part) in [
        (Op::ReadRequest, 0),
        (Op::ReadRequest, 4),
        (Op::FetchRequest, 0),
    ] {
        let asked = Header {
            epoch: Epoch::new(1, 20),
            flags: Flags::GRANT,
            op,
            part,
            total: if part > 0 { 5000 } else { 0 },
            version: 90,
            ..read(KEYED)
        };
        let before = store.engine.directory.copies();
        let (reply, _) = store.answer(asked, b"large", &[]);
        assert!(reply.flags.has(Flags::GRANT), "{op:?} {part}");
        assert_eq!((reply.epoch, reply.part), (Epoch::new(1, 20), part));
        assert_eq!(
            store.engine.directory.copies() - before,
            usize::from(before == 1)
        );
    }
    assert_eq!(
        store.write(KEYED, 1, 7, b"large"),
        None,
        "waits for the copy"
    );
}

#[test]
fn longer_than_values_may_be_is_too_large() {
    let mut store = Store::with(|config| config.cluster.max_value = 4096);
    for (len, status) in [(4096, Status::Ok), (4097, Status::TooLarge)] {
        store.holds(KEYED, b"k", &value(len), 95);
        let (reply, _) = store.answer(read(KEYED), b"k", &[]);
        assert_eq!((reply.status, reply.version), (status, 95));
    }
}

#[test]
fn what_has_no_parts_takes_none() {
    let mut store = Store::slow();
    for op in [Op::DeleteRequest, Op::DisciplineRequest] {
        let part = Header {
            op,
            part: 4,
            total: 5000,
            version: VERSION_NEVER,
            ..read(KEYED)
        };
        store.hand_in(part, b"k");
        assert!(store.out.is_empty());
    }
    assert_eq!(store.engine.counters.dropped_part, 2);
}
