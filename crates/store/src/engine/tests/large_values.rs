//! Values that a backend elsewhere has given, and that are read in parts.

use wire::{PART, PART_BYTES};

use super::{
    remote::{BackendCall, RemoteBackend},
    *,
};
use crate::{
    backend::{Change, Completion, Item, OutsideEvent, ReadOutcome},
    coherence::Watch,
};

/// A store before a backend elsewhere.
struct StoreBeforeBackend {
    store: Store,
    backend: RemoteBackend,
    now_ns: u64,
}

impl StoreBeforeBackend {
    fn new(watch: Watch) -> StoreBeforeBackend {
        StoreBeforeBackend::with(watch, |_| {})
    }

    fn with(watch: Watch, change: impl FnOnce(&mut Config)) -> StoreBeforeBackend {
        let mut store = Store::with(change);
        let backend = RemoteBackend::new(watch);
        store.engine.facts.backend = Box::new(backend.clone());
        store.lease();
        store.engine.facts.outside.watches(watch);
        StoreBeforeBackend { store, backend, now_ns: LATER_NS }
    }

    /// Asks; the answer, if there is one at once.
    fn ask(&mut self, header: Header, key: &[u8]) -> Option<(Header, Vec<u8>)> {
        let now_ns = self.now_ns;
        self.store.hand_in_at(header, key, &[], wire::MAX_PAYLOAD, now_ns);
        self.answer()
    }

    fn answer(&mut self) -> Option<(Header, Vec<u8>)> {
        let packets = self.store.sent().map(|bytes| {
            let packet = Packet::decode(&bytes).unwrap();
            (packet.header, packet.value.to_vec())
        });
        packets.filter(|(header, _)| header.op == Op::ReadReply).last()
    }

    /// The backend answers the read that it was asked first.
    fn gives(&mut self, value: &[u8], version: u64) -> Option<(Header, Vec<u8>)> {
        let ticket = self.backend.take_read();
        let item = Item { value: value.to_vec(), version, expiry_ms: 0 };
        let get = Completion::Get(ticket, ReadOutcome::Item(item));
        let (engine, out) = (&mut self.store.engine, &mut self.store.out);
        engine.complete(get, self.now_ns, out);
        self.answer()
    }

    fn happens(&mut self, event: OutsideEvent) {
        let (engine, out) = (&mut self.store.engine, &mut self.store.out);
        engine.complete(Completion::Outside(event), self.now_ns, out);
    }

    fn reads(&self) -> usize {
        self.backend.count(|call| matches!(call, BackendCall::Read(_)))
    }
}

fn value(byte: u8) -> Vec<u8> {
    (0..5000).map(|at| byte + (at / PART_BYTES) as u8).collect()
}

fn read() -> Header {
    Header { tenant: KEYED, ..Header::new(Op::ReadRequest) }
}

/// The same with another request id.
fn nth(request: u64, header: Header) -> Header {
    Header { request, ..header }
}

fn part(index: usize, version: u64) -> Header {
    Header { part: (index * PART_BYTES / PART) as u16, total: 5000, version, ..read() }
}

/// The same, through switch 1, which would like a copy.
fn wanted(header: Header, epoch: u64) -> Header {
    Header { epoch: Epoch::new(1, epoch), flags: Flags::GRANT, ..header }
}

/// A read that takes a part at most, of whatever is there.
fn begins() -> Header {
    Header { total: 1, version: wire::VERSION_PRESENT, ..read() }
}

/// The second part of a value of 1300 bytes.
fn rest(version: u64) -> Header {
    Header { part: (PART_BYTES / PART) as u16, total: 1300, version, ..read() }
}

#[test]
fn parts_of_a_value_that_fits_a_packet_are_of_one_value_too() {
    let mut before = StoreBeforeBackend::new(Watch::Impossible);
    assert_eq!(before.ask(nth(1, begins()), b"k"), None);
    let (first, bytes) = before.gives(&[1; 1300], 50).unwrap();
    assert_eq!((first.total, first.version, bytes.len()), (1300, 50, PART_BYTES));
    let (_, bytes) = before.ask(nth(2, rest(50)), b"k").unwrap();
    assert_eq!(bytes, [1; 276], "it is held");

    // Who begins to read is answered by the backend, where others have written what has the
    // same version.
    assert_eq!(before.ask(nth(3, begins()), b"k"), None);
    assert_eq!(before.reads(), 1);
    let (first, bytes) = before.gives(&[2; 1300], 50).unwrap();
    assert_eq!((first.total, &bytes[..]), (1300, &[2; PART_BYTES][..]));
    assert!(first.version > 50);
    let (other, bytes) = before.ask(nth(4, rest(50)), b"k").unwrap();
    assert_eq!((other.part, other.version), (0, first.version));
    assert_eq!(bytes, [2; PART_BYTES], "the older parts are nobody's");
}

#[test]
fn several_may_begin_to_read_at_once() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    for client in [1, 2] {
        let header = Header { client, ..begins() };
        assert_eq!(before.ask(header, b"k"), None);
    }
    assert_eq!(before.reads(), 2);
    assert_eq!(before.store.engine.counters().read.dropped_part_reads, 0);
}

#[test]
fn a_value_is_read_once_for_all_its_parts() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    assert_eq!(before.ask(read(), b"k"), None);
    let (first, bytes) = before.gives(&value(1), 50).unwrap();
    assert_eq!((first.total, first.version, &bytes[..]), (5000, 50, &[1; 1024][..]));
    for index in [4, 1, 2, 3, 1] {
        let (reply, bytes) = before.ask(part(index, 50), b"k").unwrap();
        let expected = &value(1)[index * PART_BYTES..];
        assert_eq!(bytes, expected[..expected.len().min(PART_BYTES)]);
        assert_eq!((reply.part, reply.version), (part(index, 50).part, 50));
    }
    assert_eq!(before.reads(), 0);
    // Who begins to read asks the backend, always.
    assert_eq!((before.ask(read(), b"k"), before.reads()), (None, 1));
}

#[test]
fn a_read_that_comes_again_asks_the_backend_once() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    for _ in 0..3 {
        before.ask(read(), b"k");
    }
    assert_eq!(before.reads(), 1);
    // Others are none of these: by another id, of another key, to another address.
    before.ask(nth(1, read()), b"k");
    before.ask(read(), b"other");
    before.store.client = ([10, 9, 9, 9], 7117).into();
    before.ask(read(), b"k");
    assert_eq!(before.reads(), 4);
    assert_eq!(before.store.engine.counters().read.duplicates_reads, 2);
    for _ in 0..4 {
        assert!(before.gives(&value(1), 50).is_some());
    }
    // The answer was lost.
    before.ask(read(), b"k");
    assert_eq!(before.reads(), 1);
}

#[test]
fn a_write_ends_what_is_held_and_it_is_read_once_more_for_all_who_ask() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    before.ask(read(), b"k");
    before.gives(&value(1), 50);
    let write = Header { tenant: KEYED, request: 1, ..Header::new(Op::WriteRequest) };
    before.ask(write, b"k");
    assert_eq!(before.store.engine.facts.values.bytes(), 0);
    for index in 1..5 {
        assert_eq!(before.ask(part(index, 50), b"k"), None);
    }
    assert_eq!(before.reads(), 1);
    assert_eq!(before.store.engine.counters().read.dropped_part_reads, 3);
    // It was asked before the write is over: not to be held, though it is of the version that the
    // write will have.
    let (reply, _) = before.gives(&value(2), 60).unwrap();
    assert_eq!((reply.part, reply.version), (0, 60));
    assert_eq!(before.store.engine.facts.values.bytes(), 0);
    let ticket = before.backend.take_write();
    let (engine, out) = (&mut before.store.engine, &mut before.store.out);
    engine.complete(Completion::Change(ticket, Change::Done(60)), LATER_NS, out);
    before.ask(part(1, 60), b"k");
    before.gives(&value(2), 60);
    // A late part of the older version: as if its reader had begun anew.
    let (reply, bytes) = before.ask(part(3, 50), b"k").unwrap();
    assert_eq!((reply.part, reply.version, bytes[0]), (0, 60, 2));
}

#[test]
fn another_value_under_the_same_version_gets_another_version() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    let next = before.store.engine.facts.versions.newest + 1;
    for (byte, version) in [(1, 50), (1, 50), (2, next)] {
        before.ask(read(), b"k");
        let (reply, _) = before.gives(&value(byte), 50).unwrap();
        assert_eq!(reply.version, version);
    }
    assert_eq!(before.backend.asked(), [BackendCall::Raise(KEYED, 50, next)]);
    // From now on that is its version; a read that was asked before is not mixed with it.
    before.ask(read(), b"k");
    assert_eq!(before.gives(&value(2), next).unwrap().0.version, next);
    before.ask(read(), b"k");
    let (late, _) = before.gives(&value(3), 50).unwrap();
    assert_eq!(late.status, Status::TryAgain);
    let (reply, bytes) = before.ask(part(1, next), b"k").unwrap();
    assert_eq!((reply.version, bytes[0]), (next, 3));
}

#[test]
fn a_part_that_was_asked_before_the_value_changed_is_not_taken_from_another_one() {
    let mut before = StoreBeforeBackend::new(Watch::Tracked);
    before.ask(read(), b"k");
    before.gives(&value(1), 50);
    before.happens(OutsideEvent::Everything);
    // One begins to read, another goes on, both while the version is 50; by now others have written
    // a value of the same length.
    before.ask(read(), b"k");
    before.ask(nth(1, part(1, 50)), b"k");
    let next = before.store.engine.facts.versions.newest + 1;
    assert_eq!(before.gives(&value(2), 50).unwrap().0.version, next);
    let (reply, _) = before.gives(&value(2), 50).unwrap();
    assert_eq!((reply.status, reply.total), (Status::TryAgain, 0));
    assert_eq!(before.store.engine.counters().read.refused_late_reads, 1);
}

#[test]
fn a_value_that_others_wrote_before_a_write_of_ours_gets_no_version() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    before.ask(read(), b"k");
    before.gives(&value(1), 50);
    // Two begin to read before the key has the version of a write.
    before.ask(read(), b"k");
    before.ask(nth(1, read()), b"k");
    before.backend.has_versions(60);
    for _ in 0..2 {
        let (reply, _) = before.gives(&value(2), 50).unwrap();
        assert_eq!(reply.status, Status::TryAgain);
    }
    // What was written is read, held, and read on.
    before.ask(read(), b"k");
    assert_eq!(before.gives(&value(3), 60).unwrap().0.version, 60);
    let (reply, bytes) = before.ask(part(1, 60), b"k").unwrap();
    assert_eq!((reply.version, bytes[0]), (60, 4));
    assert_eq!(before.reads(), 0);
}

#[test]
fn nobody_asks_for_it_any_more() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    before.ask(read(), b"k");
    before.gives(&value(1), 50);
    for _ in 0..3 {
        before.now_ns += 1_900_000_000;
        let due_ns = before.store.engine.next_deadline_ns().unwrap();
        assert!(due_ns <= before.now_ns);
        before.store.engine.tick(before.now_ns, &mut before.store.out);
        assert!(before.ask(part(1, 50), b"k").is_some());
    }
    before.now_ns += 2_000_000_000;
    before.store.engine.tick(before.now_ns, &mut before.store.out);
    assert_eq!(before.store.engine.facts.values.bytes(), 0);
    assert_eq!(before.ask(part(1, 50), b"k"), None);
    let (reply, bytes) = before.gives(&value(1), 50).unwrap();
    assert_eq!((reply.part, bytes[0]), (4, 2), "as if it had been held");
}

#[test]
fn what_is_held_dies_with_its_key() {
    let mut before = StoreBeforeBackend::new(Watch::Unneeded);
    before.ask(read(), b"k");
    let ticket = before.backend.take_read();
    let item = Item { value: value(1), version: 50, expiry_ms: 700 };
    let get = Completion::Get(ticket, ReadOutcome::Item(item));
    let (engine, out) = (&mut before.store.engine, &mut before.store.out);
    engine.complete(get, LATER_NS, out);
    before.now_ns += 300_500_000;
    assert_eq!(before.ask(part(1, 50), b"k").unwrap().0.expiry_ms, 399);
    before.now_ns += 400_000_000;
    assert_eq!((before.ask(part(1, 50), b"k"), before.reads()), (None, 1));
}

#[test]
fn where_others_write_a_part_is_granted_only_if_that_would_be_told() {
    type Occurrence = fn(&mut StoreBeforeBackend);
    let changed = |before: &mut StoreBeforeBackend| {
        before.happens(OutsideEvent::Changed { tenant: KEYED, key: b"k".to_vec() });
    };
    let nothing: Occurrence = |_| {};
    let recalled: Occurrence = |before| {
        before.happens(OutsideEvent::Changed { tenant: KEYED, key: b"k".to_vec() });
        before.store.hand_in(ack(11, 10), b"k");
        before.ask(wanted(read(), 12), b"k");
    };
    let lost: Occurrence = |before| before.happens(OutsideEvent::Everything);
    // (watch, whether the first read wanted a grant, what happens before the answer, whether later
    // parts are granted)
    let rows: [(Watch, bool, Occurrence, bool); 7] = [
        (Watch::Tracked, true, nothing, true),
        (Watch::Tracked, false, nothing, false),
        (Watch::Tracked, true, changed, false),
        (Watch::Tracked, true, recalled, false),
        (Watch::Tracked, true, lost, false),
        (Watch::Unneeded, true, nothing, true),
        (Watch::Unneeded, false, nothing, true),
    ];
    for (at, (watch, wants, then, granted)) in rows.into_iter().enumerate() {
        let mut before = StoreBeforeBackend::new(watch);
        let first = if wants { wanted(read(), 10) } else { read() };
        before.ask(first, b"k");
        then(&mut before);
        before.gives(&value(1), 50);
        before.store.hand_in(ack(21, 12), b"k");
        let reply = before.ask(wanted(part(1, 50), 30), b"k");
        let is_granted = reply.is_some_and(|(reply, _)| reply.flags.has(Flags::GRANT));
        assert_eq!(is_granted, granted, "row {at}");
    }
}

#[test]
fn what_others_change_is_not_held() {
    for event in
        [OutsideEvent::Everything, OutsideEvent::Changed { tenant: KEYED, key: b"k".to_vec() }]
    {
        let mut before = StoreBeforeBackend::new(Watch::Tracked);
        before.ask(read(), b"k");
        before.gives(&value(1), 50);
        before.happens(event);
        assert_eq!((before.ask(part(1, 50), b"k"), before.reads()), (None, 1));
    }
}

#[test]
fn a_tenant_that_reads_much_leaves_the_others_room() {
    let mut before =
        StoreBeforeBackend::with(Watch::Unneeded, |config| config.parts_limit = 64 << 10);
    let mut refused = 0;
    for n in 0..20u8 {
        before.ask(read(), &[n]);
        let (reply, _) = before.gives(&value(1), 50).unwrap();
        refused += u32::from(reply.status == Status::TryAgain);
    }
    assert_eq!(refused, 11, "nine take less than three quarters of the room");
    let others = Header { tenant: TENANT_OPEN, ..read() };
    before.ask(others, b"k");
    assert_eq!(before.gives(&value(1), 50).unwrap().0.status, Status::Ok);
    // What nobody asks for any more makes way.
    before.now_ns += 90_000_000;
    assert!(before.ask(part(1, 50), &[0]).is_some());
    before.now_ns += 10_000_000;
    before.ask(read(), b"new");
    assert_eq!(before.gives(&value(1), 50).unwrap().0.status, Status::Ok);
    assert!(before.ask(part(1, 50), &[0]).is_some(), "it was asked for");
    assert!(before.ask(part(1, 50), &[1]).is_none());
}
