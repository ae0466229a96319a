//! Values that are kept for the next who wants a grant.

use holder::mutants::{Mutant, choose};

use super::{remote::RemoteBackend, *};
use crate::{
    HoldRequest,
    backend::{Change, Completion, Item, OutsideEvent, ReadOutcome, Ticket},
    coherence::Watch,
};

const KEY: &[u8] = b"k";
const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";

/// A store whose backend tells of changes, and the test's end of that.
struct Behind {
    store: Store,
    backend: RemoteBackend,
    requests: u64,
    now_ns: u64,
}

impl Behind {
    fn new() -> Behind {
        let mut store = Store::new();
        let backend = RemoteBackend::new(Watch::Tracked);
        store.engine.facts.backend = Box::new(backend.clone());
        store.lease().expect("a lease");
        store.engine.facts.outside.watches(Watch::Tracked);
        Behind { store, backend, requests: 0, now_ns: LATER_NS }
    }

    /// Asks for a grant; whether the backend was asked.
    fn fetch(&mut self) -> bool {
        let epoch = Epoch::new(1, 10);
        self.ask(Header { epoch, flags: Flags::GRANT, ..Header::new(Op::FetchRequest) })
    }

    /// Reads, and wants no grant; whether the backend was asked.
    fn read(&mut self) -> bool {
        self.ask(Header::new(Op::ReadRequest))
    }

    fn ask(&mut self, header: Header) -> bool {
        self.requests += 1;
        let before = self.reads();
        let header = Header { tenant: KEYED, request: self.requests, ..header };
        self.store.hand_in_at(header, KEY, &[], 0, self.now_ns);
        self.reads() > before
    }

    fn reads(&self) -> usize {
        self.backend.count(|call| matches!(call, remote::BackendCall::Read(_)))
    }

    /// The backend answers a question.
    fn finds(&mut self, ticket: Ticket, value: &[u8]) {
        let item = Item { value: value.to_vec(), version: 5, expiry_ms: 0 };
        let found = Completion::Get(ticket, ReadOutcome::Item(item));
        self.store.engine.complete(found, self.now_ns, &mut self.store.out);
    }

    /// One value has been read for a grant.
    fn with_value(value: &[u8]) -> Behind {
        let mut behind = Behind::new();
        assert!(behind.fetch());
        let ticket = behind.backend.take_read();
        behind.finds(ticket, value);
        assert_eq!(behind.granted(), [value]);
        behind
    }

    /// The values that were granted since the last time.
    fn granted(&mut self) -> Vec<Vec<u8>> {
        let sent: Vec<Vec<u8>> = self.store.sent().collect();
        let packets = sent.iter().map(|bytes| Packet::decode(bytes).expect("a packet"));
        let grants = packets.filter(|packet| packet.header.flags.has(Flags::GRANT));
        grants.map(|packet| packet.value.to_vec()).collect()
    }

    /// Another than the store changes the key; the switch is rid of its copy.
    fn changed_outside(&mut self) {
        let changed = OutsideEvent::Changed { tenant: KEYED, key: KEY.into() };
        let told = Completion::Outside(changed);
        self.store.engine.complete(told, self.now_ns, &mut self.store.out);
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        self.store.hand_in_at(ack(11, 10), KEY, &[], 0, self.now_ns);
    }

    /// Copies of the key have been worth nothing.
    fn paused() -> Behind {
        let mut behind = Behind::new();
        let facts = &mut behind.store.engine.facts;
        facts.outside.seen(behind.now_ns);
        let id = (KEYED, SECRET.key_hash(KEYED, KEY));
        while facts.holders.pause_ms(&id, behind.now_ns) == 0 {
            facts.holders.called_back(&id, 0, behind.now_ns);
        }
        behind
    }

    /// A write comes and goes, past the switch.
    fn write(&mut self) {
        let ticket = self.write_begins();
        self.write_ends(ticket);
    }

    /// The backend is asked for a write.
    fn write_begins(&mut self) -> Ticket {
        self.requests += 1;
        let write = Header {
            tenant: KEYED,
            client: 7,
            request: self.requests,
            ..Header::new(Op::WriteRequest)
        };
        self.store.hand_in_at(write, KEY, NEW, 0, self.now_ns);
        self.acknowledge();
        self.backend.take_write()
    }

    fn write_ends(&mut self, ticket: Ticket) {
        let done = Completion::Change(ticket, Change::Done(9));
        self.store.engine.complete(done, self.now_ns, &mut self.store.out);
    }
}

#[test]
fn whoever_wants_what_another_was_granted_is_granted_it_without_the_backend() {
    let mut behind = Behind::with_value(OLD);
    assert!(!behind.fetch());
    assert_eq!(behind.granted(), [OLD]);
    assert_eq!(behind.store.engine.counters().read.reads_from_memory, 1);
}

#[test]
fn whoever_asks_while_the_backend_is_asked_is_answered_with_its_answer() {
    let mut behind = Behind::new();
    behind.store.engine.facts.outside.seen(behind.now_ns);
    assert!(behind.fetch());
    assert!(!behind.fetch());
    assert!(!behind.read());
    let ticket = behind.backend.take_read();
    behind.finds(ticket, OLD);
    let values: Vec<Vec<u8>> =
        behind.store.sent().map(|bytes| Packet::decode(&bytes).unwrap().value.to_vec()).collect();
    assert_eq!(values, [OLD, OLD, OLD]);
    assert_eq!(behind.store.engine.counters().read.reads_joined, 2);
    assert!(behind.store.engine.facts.waiting.is_empty());
}

#[test]
fn those_who_joined_get_parts_of_a_long_value_as_whoever_asked_does() {
    let mut behind = Behind::new();
    behind.store.engine.facts.outside.seen(behind.now_ns);
    let long = vec![7; 100_000];
    assert!(behind.fetch());
    assert!(!behind.fetch());
    assert!(!behind.read());
    let ticket = behind.backend.take_read();
    behind.finds(ticket, &long);
    let sent: Vec<Vec<u8>> = behind.store.sent().collect();
    let headers = sent.iter().map(|bytes| Packet::decode(bytes).expect("a packet").header);
    let parts: Vec<_> = headers.map(|header| (header.status, header.total)).collect();
    assert_eq!(parts, [(Status::Ok, 100_000); 3]);
}

#[test]
fn whoever_asks_after_a_write_does_not_join_a_question_of_before() {
    let mut behind = Behind::new();
    behind.store.engine.facts.outside.seen(behind.now_ns);
    assert!(behind.fetch());
    let early = behind.backend.take_read();
    behind.write();
    assert!(behind.read(), "what it says may be of before the write");
    behind.finds(early, OLD);
    assert!(behind.fetch());
}

#[test]
fn those_who_joined_take_their_part_of_the_room_and_give_it_back() {
    let mut behind = Behind::new();
    behind.store.engine.facts.outside.seen(behind.now_ns);
    for _ in 0..2 * MAX_WAITING {
        behind.fetch();
    }
    assert!(!behind.store.engine.facts.waiting.has_room(KEYED));
    let ticket = behind.backend.take_read();
    behind.finds(ticket, OLD);
    assert!(behind.store.engine.facts.waiting.has_room(KEYED));
}

#[test]
fn a_read_is_answered_from_it_while_the_store_hears_what_others_do() {
    let mut behind = Behind::with_value(OLD);
    behind.store.engine.facts.outside.seen(behind.now_ns);
    assert!(!behind.read());
    let answer = behind.store.sent().next().expect("an answer");
    assert_eq!(Packet::decode(&answer).expect("a packet").value, OLD);
    behind.now_ns += behind.store.engine.facts.leases.length_ns() - 1;
    assert!(!behind.read());
    let mut deaf = Behind::new();
    let length_ns = deaf.store.engine.facts.leases.length_ns();
    deaf.store.engine.facts.outside.seen(deaf.now_ns - length_ns);
    deaf.fetch();
    let ticket = deaf.backend.take_read();
    deaf.finds(ticket, OLD);
    assert!(deaf.read(), "it may be older than a copy may be");
}

#[test]
fn a_key_that_is_written_too_often_for_copies_is_kept_here() {
    let mut behind = Behind::paused();
    assert!(behind.read());
    assert!(!behind.read(), "it waits for the same answer");
    let ticket = behind.backend.take_read();
    behind.finds(ticket, OLD);
    assert!(!behind.read());
    let writes = behind.write_begins();
    assert!(behind.read(), "what is there now is the backend's to say");
    let during = behind.backend.take_read();
    behind.finds(during, OLD);
    behind.write_ends(writes);
    assert!(behind.read(), "what was read during a write may be of before it");
    let ticket = behind.backend.take_read();
    behind.finds(ticket, NEW);
    assert!(!behind.read());
    let mut other = Behind::new();
    other.store.engine.facts.outside.seen(other.now_ns);
    other.read();
    let ticket = other.backend.take_read();
    other.finds(ticket, OLD);
    assert!(other.read(), "nobody wants copies of this one");
}

/// Each holder reads it at the store, and asks for a copy: one question to the backend is enough.
#[test]
fn a_key_that_holders_had_to_give_up_is_kept_for_the_next_who_reads_it() {
    for (after_ns, is_kept) in [(0, true), (u64::MAX, false)] {
        let mut behind = Behind::new();
        let facts = &mut behind.store.engine.facts;
        let id = (KEYED, SECRET.key_hash(KEYED, KEY));
        facts.holders.called_back(&id, 100, behind.now_ns);
        assert_eq!(facts.holders.pause_ms(&id, behind.now_ns), 0);
        behind.now_ns += after_ns.min(facts.leases.length_ns());
        facts.outside.seen(behind.now_ns);
        assert!(behind.read());
        let ticket = behind.backend.take_read();
        assert_eq!(!behind.read(), is_kept, "it waits for the same answer");
        behind.finds(ticket, OLD);
        assert_eq!(!behind.fetch(), is_kept);
    }
}

/// The backend tells of changes from the question for a grant on, which may be the later one there.
#[test]
fn what_was_asked_for_no_grant_is_kept_for_nobody() {
    let mut behind = Behind::new();
    assert!(behind.fetch());
    let for_grant = behind.backend.take_read();
    assert!(behind.ask(Header::new(Op::CorrectionRequest)));
    let other = behind.backend.take_read();
    behind.finds(other, OLD);
    assert!(!behind.fetch(), "it waits for the answer to the first");
    assert_eq!(behind.granted(), Vec::<Vec<u8>>::new());
    behind.finds(for_grant, NEW);
    assert_eq!(behind.granted(), [NEW, NEW]);
    assert!(!behind.fetch(), "and that is kept");
    assert_eq!(behind.granted(), [NEW]);
}

#[test]
fn nothing_is_read_from_it_once_a_command_may_change_every_key() {
    let mut behind = Behind::paused();
    assert!(behind.read());
    let ticket = behind.backend.take_read();
    behind.finds(ticket, OLD);
    assert!(!behind.read());
    let everything = HoldRequest { names: vec![], everything: true };
    let Behind { store, now_ns, .. } = &mut behind;
    store.engine.hold(1, everything, *now_ns, &mut store.out);
    assert!(behind.read());
    let ticket = behind.backend.take_read();
    behind.finds(ticket, OLD);
    assert!(behind.read(), "and nothing is kept until it is over");
}

#[test]
fn it_is_read_anew_after_a_lease_whatever_was_told() {
    let mut behind = Behind::with_value(OLD);
    behind.now_ns += behind.store.engine.facts.leases.length_ns();
    behind.store.engine.facts.outside.seen(behind.now_ns);
    let lease = Header { epoch: Epoch::new(1, 0), ..Header::new(Op::LeaseRequest) };
    let lease = Header { tenant: TENANT_SYSTEM, version: 1, ..lease };
    behind.store.hand_in_at(lease, &[], &[], 0, behind.now_ns);
    assert!(behind.fetch());
    assert_eq!(behind.granted(), Vec::<Vec<u8>>::new());
    assert_eq!(behind.store.engine.counters().read.reads_from_memory, 0);
}

#[test]
fn what_a_write_or_another_has_changed_is_asked_of_the_backend() {
    choose(None);
    for change in [Behind::write, Behind::changed_outside] {
        let mut behind = Behind::with_value(OLD);
        change(&mut behind);
        behind.granted();
        assert!(behind.fetch());
        assert_eq!(behind.granted(), Vec::<Vec<u8>>::new());
        let ticket = behind.backend.take_read();
        behind.finds(ticket, NEW);
        assert_eq!(behind.granted(), [NEW]);
    }
    choose(Some(Mutant::KeptOn));
    let mut behind = Behind::with_value(OLD);
    behind.write();
    behind.granted();
    assert!(!behind.fetch());
    assert_eq!(behind.granted(), [OLD], "the mutant is noticed");
    choose(None);
}

/// The backend's answer to a question of before a write may come after the write's, on another
/// connection; and so may a second request under the epoch of the first.
fn answer_of_before_a_write() -> Behind {
    let mut behind = Behind::new();
    assert!(behind.fetch());
    let early = behind.backend.take_read();
    behind.write();
    assert!(behind.fetch());
    let late = behind.backend.take_read();
    behind.finds(early, OLD);
    behind.granted();
    assert!(late > early);
    behind
}

#[test]
fn what_was_read_before_a_write_is_kept_for_nobody() {
    choose(None);
    let mut behind = answer_of_before_a_write();
    behind.fetch();
    assert_eq!(behind.granted(), Vec::<Vec<u8>>::new(), "it waits for what is read after it");
    choose(Some(Mutant::KeptLate));
    let mut behind = answer_of_before_a_write();
    assert!(!behind.fetch());
    assert_eq!(behind.granted(), [OLD], "the mutant is noticed");
    choose(None);
}
