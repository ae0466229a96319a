//! Values that no packet carries: read and written in parts.

use wire::{PART, PART_BYTES, VERSION_NEVER, VERSION_PRESENT};

use super::*;
use crate::backend::{Answer as Reply, Change, Key, Put};

/// A value of which no two parts are alike.
fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / PART + at) as u8).collect()
}

fn read(tenant: u32) -> Header {
    Header { tenant, ..Header::new(Op::ReadRequest) }
}

impl Store {
    /// Puts a value where no packet puts it.
    fn holds(&mut self, tenant: u32, key: &[u8], value: &[u8], version: u64) {
        let secret = if tenant == KEYED { SECRET } else { Secret::NONE };
        let key = Key { tenant, hash: secret.key_hash(tenant, key), bytes: key };
        let value = Bytes::copy_from_slice(value);
        let put = self.engine.facts.backend.put(key, Put::of(&value, version), LATER_NS, 0);
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
            let next = Header { part, total, version, ..read(tenant) };
            let (reply, bytes) = store.answer(next, b"k", &[]);
            assert_eq!((reply.part, reply.total, reply.version), (part, total, 50));
            got.extend(bytes);
        }
        assert_eq!(got, large);
    }
    assert_eq!(store.engine.counters().read.reads, 8);
    assert_eq!(store.engine.counters().read.reads_parts, 6);
}

#[test]
fn who_asks_for_a_part_of_what_is_no_more_is_told_what_there_is() {
    let mut store = Store::new();
    store.holds(KEYED, b"k", &value(5000), 60);
    let part = |part, total, version| Header { part, total, version, ..read(KEYED) };
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
        let Header { status, part, total, version, .. } = header;
        assert_eq!((status, part, total, version, bytes.len()), expected);
    }
    store.holds(KEYED, b"k", b"short", 61);
    let (short, bytes) = store.answer(part(4, 5000, 60), b"k", &[]);
    assert_eq!((short.version, short.total, &bytes[..]), (61, 0, &b"short"[..]));
    let (none, _) = store.answer(part(4, 5000, 60), b"other", &[]);
    assert_eq!((none.status, none.is_part()), (Status::NotFound, false));
}

/// A read that takes a part at most, of whatever is there.
fn short(tenant: u32) -> Header {
    Header { total: 1, version: VERSION_PRESENT, ..read(tenant) }
}

#[test]
fn who_names_a_part_is_answered_with_no_more_even_if_a_packet_carries_all() {
    let mut store = Store::new();
    // (length of the value, length of the whole in the answer)
    for (len, total) in [(1, 0), (1024, 0), (1025, 1025), (1391, 1391), (5000, 5000)] {
        store.holds(KEYED, b"k", &value(len), 60 + len as u64);
        let (first, mut got) = store.answer(short(KEYED), b"k", &[]);
        assert_eq!((first.status, first.part), (Status::Ok, 0));
        assert_eq!((first.total, got.len()), (total, len.min(PART_BYTES)));
        while got.len() < len {
            let next = Header {
                part: (got.len() / PART) as u16,
                total: first.total,
                version: first.version,
                ..read(KEYED)
            };
            let (reply, bytes) = store.answer(next, b"k", &[]);
            assert_eq!((reply.part, reply.total), (next.part, total));
            assert!(bytes.len() <= PART_BYTES);
            got.extend(bytes);
        }
        assert_eq!(got, value(len));
    }
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
    for (op, part) in [(Op::ReadRequest, 0), (Op::ReadRequest, 4), (Op::FetchRequest, 0)] {
        let asked = Header {
            epoch: Epoch::new(1, 20),
            flags: Flags::GRANT,
            op,
            part,
            total: if part > 0 { 5000 } else { 0 },
            version: 90,
            ..read(KEYED)
        };
        let before = store.engine.facts.directory.copies();
        let (reply, _) = store.answer(asked, b"large", &[]);
        assert!(reply.flags.has(Flags::GRANT), "{op:?} {part}");
        assert_eq!((reply.epoch, reply.part), (Epoch::new(1, 20), part));
        assert_eq!(store.engine.facts.directory.copies() - before, usize::from(before == 1));
    }
    assert_eq!(store.write(KEYED, 1, 7, b"large"), None, "waits for the copy");
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
fn how_long_values_may_be_may_change() {
    let mut store = Store::new();
    store.holds(KEYED, b"k", &value(5000), 95);
    for (max_value, status) in [(4096, Status::TooLarge), (5000, Status::Ok)] {
        let cluster = wire::Cluster { max_value, ..store.engine.facts.config.cluster.clone() };
        store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
        assert_eq!(store.answer(read(KEYED), b"k", &[]).0.status, status);
    }
}

#[test]
fn what_has_no_parts_takes_none() {
    let mut store = Store::slow();
    for op in [Op::DeleteRequest, Op::DisciplineRequest] {
        let part = Header { op, part: 4, total: 5000, version: VERSION_NEVER, ..read(KEYED) };
        store.hand_in(part, b"k");
        assert!(store.out.is_empty());
    }
    assert_eq!(store.engine.counters().requests.dropped_part, 2);
}

const TOTAL: usize = 3 * PART_BYTES + 100;

/// The header of a part of a write, from its index on.
fn part_of(tenant: u32, request: u64, index: usize, total: usize) -> Header {
    Header {
        tenant,
        client: 3,
        request,
        part: (index * PART_BYTES / PART) as u16,
        total: total as u32,
        ..Header::new(Op::WriteRequest)
    }
}

fn bytes_of(value: &[u8], index: usize) -> &[u8] {
    let rest = &value[index * PART_BYTES..];
    &rest[..rest.len().min(PART_BYTES)]
}

impl Store {
    /// Sends a part of a write; the answer, if one leaves at once.
    fn part(&mut self, header: Header, key: &[u8], value: &[u8]) -> Option<Header> {
        self.part_at(header, key, value, LATER_NS)
    }

    fn part_at(&mut self, header: Header, key: &[u8], value: &[u8], at: u64) -> Option<Header> {
        let index = usize::from(header.part) * PART / PART_BYTES;
        self.hand_in_at(header, key, bytes_of(value, index), 0, at);
        let answers = self.sent().map(|bytes| Packet::decode(&bytes).unwrap().header);
        answers.filter(|header| header.op == Op::WriteReply).last()
    }

    /// Writes a value in parts of this order; the last answer.
    fn write_parts(&mut self, tenant: u32, request: u64, value: &[u8], order: &[usize]) -> Header {
        let mut last = None;
        for index in order {
            last = self.part(part_of(tenant, request, *index, value.len()), b"k", value);
        }
        last.expect("an answer")
    }

    fn whole(&mut self, tenant: u32) -> Vec<u8> {
        let (first, mut got) = self.answer(read(tenant), b"k", &[]);
        while got.len() < first.total as usize {
            let next = Header {
                part: (got.len() / PART) as u16,
                total: first.total,
                version: first.version,
                ..read(tenant)
            };
            got.extend(self.answer(next, b"k", &[]).1);
        }
        got
    }
}

#[test]
fn a_write_in_parts_takes_place_when_it_is_whole() {
    let mut store = Store::new();
    let large = value(TOTAL);
    assert_eq!(store.write(TENANT_OPEN, 1, 1, b"k"), Some(Status::Ok));
    // (part sent, status, first that is missing)
    let rows = [
        (2, Status::Taken, 0),
        (0, Status::Taken, 4),
        (0, Status::Taken, 4),
        (3, Status::Taken, 4),
        (1, Status::Ok, 0),
    ];
    for (index, status, missing) in rows {
        assert_eq!(store.whole(TENANT_OPEN), b"", "until then nothing happens");
        let part = part_of(TENANT_OPEN, 7, index, TOTAL);
        let reply = store.part(part, b"k", &large).unwrap();
        assert_eq!((reply.status, reply.part), (status, missing));
        assert_eq!(reply.total, if missing > 0 || index == 2 { TOTAL as u32 } else { 0 });
    }
    assert_eq!(store.whole(TENANT_OPEN), large);
    assert_eq!(store.engine.facts.ledger.joins.bytes(), 0);
    assert_eq!(store.engine.counters().write.writes, 2);
    assert_eq!(store.engine.counters().write.writes_applied, 2);
    assert_eq!(store.engine.counters().write.writes_parts, 5);
}

#[test]
fn a_value_that_a_packet_carries_may_be_written_in_parts() {
    for tenant in [TENANT_OPEN, KEYED] {
        let mut store = Store::new();
        let written = store.write_parts(tenant, 7, &value(1300), &[1, 0]);
        assert_eq!(written.status, Status::Ok);
        let (whole, bytes) = store.answer(read(tenant), b"k", &[]);
        assert_eq!((whole.total, whole.version), (0, written.version));
        assert_eq!(bytes, value(1300));
    }
}

#[test]
fn a_part_of_a_finished_write_is_answered_as_the_write_was() {
    let mut store = Store::new();
    let large = value(TOTAL);
    let written = store.write_parts(KEYED, 7, &large, &[0, 1, 2, 3]);
    assert_eq!(store.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    let again = store.write_parts(KEYED, 7, &large, &[0, 1, 2, 3]);
    assert_eq!((again.status, again.version), (Status::Ok, written.version));
    assert_eq!(store.whole(KEYED), b"", "not applied again");
    assert_eq!(store.engine.counters().write.duplicates_answered, 4);
    assert_eq!(store.engine.facts.ledger.joins.bytes(), 0);
}

#[test]
fn parts_of_a_write_that_waits_for_a_switch_get_no_answer() {
    let mut store = with_a_copy();
    let large = value(TOTAL);
    for index in 0..4 {
        let reply = store.part(part_of(KEYED, 7, index, TOTAL), b"k", &large);
        assert_eq!(reply.is_some(), index < 3);
    }
    assert_eq!(store.part(part_of(KEYED, 7, 2, TOTAL), b"k", &large), None);
    assert_eq!(store.engine.counters().write.duplicates_pending, 1);
    assert!(store.engine.facts.ledger.joins.bytes() > TOTAL, "until it is over");
    store.hand_in(ack(11, 10), b"k");
    let reply = Packet::decode(&store.out.pop().unwrap().0).unwrap().header;
    assert_eq!((reply.op, reply.status), (Op::WriteReply, Status::Ok));
    assert_eq!((store.whole(KEYED), store.engine.facts.ledger.joins.bytes()), (large, 0));
}

#[test]
fn the_epoch_of_each_part_is_compared() {
    // The switch was granted epoch 10, and this one after the first part. (epochs of the parts,
    // whether the write waits)
    let rows = [
        ([9, 11], 0, false),
        ([11, 9], 0, false),
        ([9, 10], 0, true),
        ([11, 11], 11, true),
        ([11, 12], 11, false),
    ];
    for (epochs, granted, waits) in rows {
        let mut store = with_a_copy();
        let large = value(PART_BYTES + 500);
        let mut last = None;
        for (index, epoch) in epochs.into_iter().enumerate() {
            let part = Header {
                epoch: Epoch::new(1, epoch),
                flags: Flags::GRANT,
                ..part_of(KEYED, 7, index, large.len())
            };
            last = store.part(part, b"k", &large);
            if index == 0 && granted > 0 {
                let asked =
                    Header { epoch: Epoch::new(1, granted), flags: Flags::GRANT, ..read(KEYED) };
                let (reply, _) = store.answer(asked, b"k", &[]);
                assert!(reply.flags.has(Flags::GRANT), "no write goes on yet");
            }
        }
        assert_eq!(last.is_none(), waits, "{epochs:?}");
        if let Some(reply) = last {
            assert!(!reply.flags.has(Flags::GRANT), "no value, no grant");
            assert_eq!(store.engine.facts.directory.copies(), 0);
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_dropped() {
    let mut store = Store::new();
    let large = value(TOTAL);
    let good = part_of(KEYED, 7, 0, TOTAL);
    assert_eq!(store.part(good, b"k", &large).unwrap().status, Status::Taken);
    let other = part_of(KEYED, 7, 1, TOTAL);
    // (header, key, bytes of the value)
    let rows = [
        (Header { total: TOTAL as u32 + 1, ..other }, &b"k"[..], PART_BYTES),
        (Header { expiry_ms: 5, ..other }, b"k", PART_BYTES),
        (Header { version: 5, ..other }, b"k", PART_BYTES),
        (Header { flags: Flags::COMPARE, ..other }, b"k", PART_BYTES),
        (other, b"another", PART_BYTES),
        (other, b"k", PART_BYTES - 1),
        (other, b"k", 0),
        (Header { part: 5, ..other }, b"k", PART_BYTES),
        (Header { part: 12, ..other }, b"k", 99),
    ];
    let bad = rows.len() as u64;
    for (header, key, len) in rows {
        store.hand_in_at(header, key, &large[..len], 0, LATER_NS);
        assert!(store.out.is_empty(), "{header:?}");
    }
    assert_eq!(store.engine.counters().requests.dropped_part, bad);
    assert_eq!(store.write_parts(KEYED, 7, &large, &[1, 2, 3]).status, Status::Ok);
    assert_eq!(store.whole(KEYED), large);
}

#[test]
fn conditions_and_lives_hold_for_a_value_in_parts() {
    let mut store = Store::new();
    let large = value(TOTAL);
    let first = store.write_parts(KEYED, 7, &large, &[0, 1, 2, 3]).version;
    // (request, condition, status)
    let rows = [
        (8, wire::VERSION_ABSENT, Status::Mismatch),
        (9, first + 1, Status::Mismatch),
        (10, first, Status::Ok),
    ];
    for (request, version, status) in rows {
        let mut last = None;
        for index in 0..4 {
            let part = Header {
                flags: Flags::COMPARE,
                version,
                expiry_ms: 1000,
                ..part_of(KEYED, request, index, TOTAL)
            };
            last = store.part(part, b"k", &large);
        }
        assert_eq!(last.unwrap().status, status);
    }
    assert_eq!(store.answer(read(KEYED), b"k", &[]).0.expiry_ms, 1000);
    let late = LATER_NS + 1_001_000_000;
    store.hand_in_at(read(KEYED), b"k", &[], 0, late);
    let reply = Packet::decode(&store.out.pop().unwrap().0).unwrap().header;
    assert_eq!(reply.status, Status::NotFound);
    let another = Header { life: wire::LIFE_UNKNOWN, ..part_of(KEYED, 11, 0, TOTAL) };
    let told = store.part(another, b"k", &large).unwrap();
    assert_eq!((told.status, store.engine.facts.ledger.joins.bytes()), (Status::OtherLife, 0));
}

#[test]
fn longer_than_values_may_be_is_refused_with_its_first_part() {
    let mut store = Store::with(|config| config.cluster.max_value = 1024);
    let large = value(TOTAL);
    let part = store.part(part_of(KEYED, 7, 0, 1025), b"k", &large).unwrap();
    assert_eq!((part.status, store.engine.facts.ledger.joins.bytes()), (Status::TooLarge, 0));
    for (request, len, status) in [(8, 1024, Status::Ok), (9, 1025, Status::TooLarge)] {
        let header = Header { request, ..part_of(KEYED, 0, 0, 0) };
        let (reply, _) = store.answer(header, b"k", &large[..len]);
        assert_eq!(reply.status, status);
    }
}

#[test]
fn a_writer_that_dies_leaves_nothing() {
    let mut store = Store::new();
    let large = value(TOTAL);
    for request in 0..3 {
        let reply = store.part(part_of(KEYED, request, 0, TOTAL), b"k", &large);
        assert_eq!(reply.unwrap().status, Status::Taken);
    }
    assert_eq!(store.write_parts(KEYED, 1, &large, &[1, 2, 3]).status, Status::Ok);
    // Three quarters of a lease of 2 s.
    store.tick(1499);
    assert_eq!(store.engine.counters().write.writes_unfinished, 0);
    store.tick(1500);
    assert_eq!(store.engine.counters().write.writes_unfinished, 2);
    assert_eq!(store.engine.facts.ledger.joins.bytes(), 0);
    assert_eq!(store.engine.facts.ledger.joins.next_ns(), None);
    let now_ns = LATER_NS + 1_500_000_000;
    let rest = store.part_at(part_of(KEYED, 0, 3, TOTAL), b"k", &large, now_ns);
    assert_eq!(rest.unwrap().part, 0, "from the beginning");
}

/// However fast they come, and of whatever they are made: a client may send nothing else.
#[test]
fn writes_that_are_whole_leave_nothing_that_ends_later() {
    let mut store = Store::new();
    for request in 0..10 {
        store.write_parts(KEYED, 2 * request, &value(500), &[0]);
        store.write_parts(KEYED, 2 * request + 1, &value(1300), &[1, 0]);
    }
    assert_eq!(store.engine.facts.ledger.joins.next_ns(), None);
    store.part(part_of(KEYED, 90, 0, 1300), b"k", &value(1300));
    assert!(store.engine.facts.ledger.joins.next_ns().is_some(), "of this the rest is missing");
}

#[test]
fn half_sent_writes_stay_under_their_bound_and_harm_nobody_else() {
    let limit = 64 << 20;
    let mut store = Store::with(|config| config.parts_limit = limit);
    let mib = value(1 << 20);
    let (mut taken, mut refused) = (0, 0);
    for request in 0..10_000 {
        for index in 0..if request < 1000 { 512 } else { 1 } {
            let reply = store.part(part_of(KEYED, request, index, mib.len()), b"k", &mib);
            match reply.unwrap().status {
                Status::Taken => taken += usize::from(index == 0),
                Status::TryAgain => refused += 1,
                status => panic!("{status:?}"),
            }
            if refused > 0 && index > 0 {
                break;
            }
        }
        assert!(store.engine.facts.ledger.joins.bytes() <= limit);
    }
    // All but the other tenant's quarter.
    assert_eq!(taken, 47);
    assert_eq!(store.engine.counters().requests.refused_parts_full, refused);
    let order: Vec<usize> = (0..1024).collect();
    for request in 0..20 {
        let written = store.write_parts(TENANT_OPEN, request, &mib, &order);
        assert_eq!(written.status, Status::Ok);
    }
    assert_eq!(store.whole(TENANT_OPEN), mib);
    // What it did not begin to write in parts is written as ever.
    assert_eq!(store.write(KEYED, 9, 1, b"k"), Some(Status::Ok));
    store.tick(1500);
    assert_eq!(store.engine.facts.ledger.joins.bytes(), 0);
    assert_eq!(store.write_parts(KEYED, 20_000, &mib, &order).status, Status::Ok);
}

#[test]
fn a_write_that_is_put_off_keeps_nothing() {
    let mut store = with_a_copy();
    Arc::make_mut(&mut store.engine.facts.config).key_queue_limit = 1;
    let large = value(TOTAL);
    for request in [7, 8] {
        for index in 0..4 {
            store.part(part_of(KEYED, request, index, TOTAL), b"k", &large);
        }
    }
    let held = store.engine.facts.ledger.joins.bytes();
    let refused = store.write_parts(KEYED, 9, &large, &[0, 1, 2, 3]);
    assert_eq!((refused.status, store.engine.facts.ledger.joins.bytes()), (Status::TryAgain, held));
    let cluster = wire::Cluster { tenants: vec![], ..store.engine.facts.config.cluster.clone() };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    assert_eq!(store.engine.facts.ledger.joins.bytes(), 0, "the tenant is gone");
}
