//! What a store does by itself about keys that it lends. What store, switches and clients do to one
//! another then is `disciplines/tests/all/loans.rs`, and the hunt.

use std::sync::{Mutex, MutexGuard};

use wire::KeyHash;

use super::{remote::RemoteBackend, *};
use crate::{
    HoldRequest,
    backend::{Answer, Change, Completion, Refusal, Ticket},
    coherence::Watch,
    journal::{Entry, Journal},
};

/// A store whose tenant has write-back, with leases lent to the switches 1 and 2.
fn lending() -> Store {
    let mut store = Store::with(|config| {
        config.lend_from = Some(8);
        config.cluster.tenants[0].write_back_ms = 100;
    });
    for switch in [1, 2] {
        let (tenant, epoch) = (TENANT_SYSTEM, Epoch::new(switch, 0));
        store.ask(Header { tenant, epoch, ..Header::new(Op::LeaseRequest) }, &[]);
    }
    store
}

/// A write that has passed both switches, so many milliseconds after [`LATER_NS`].
fn write(store: &mut Store, request: u64, ms: u64) {
    write_by(2, store, request, ms);
}

/// The same, where the second switch that it has passed is this one; 0: there was one only.
fn write_by(node: u16, store: &mut Store, request: u64, ms: u64) {
    let (tenant, client, epoch) = (KEYED, 1, Epoch::new(1, request));
    let header = Header { tenant, client, request, epoch, node, ..Header::new(Op::WriteRequest) };
    store.hand_in_at(header, b"k", b"new", 0, LATER_NS + ms * 1_000_000);
}

#[test]
fn what_cannot_be_kept_is_not_lent_and_the_status_says_why() {
    let mut store = lending();
    store.engine.loans.needs_journal = true;
    for request in 1..=20 {
        write(&mut store, request, 0);
    }
    let counters = store.engine.counters();
    assert_eq!(counters.loans.loans, 0);
    assert!(counters.loans.loans_refused_unsafe > 0);
    let status = store.engine.status(LATER_NS);
    assert!(status.loans.none_because.unwrap().contains("--state"));
}

#[test]
fn where_writes_pass_one_switch_the_status_says_so() {
    let mut store = lending();
    for request in 1..=20 {
        write_by(0, &mut store, request, 0);
    }
    let counters = store.engine.counters();
    assert!(counters.loans.loans == 0 && counters.loans.loans_refused_path > 0);
    let why = store.engine.status(LATER_NS).loans.none_because;
    assert!(why.as_deref().is_some_and(|why| why.contains("one switch")), "{why:?}");
}

/// What the two switches of a loan have been told, and what they have.
#[derive(Default)]
struct Switches {
    /// Versions of the loan are above it.
    base: u64,
    /// What was written since the key was lent, and is not at the store.
    newest: Option<&'static [u8]>,
}

impl Switches {
    /// Both do what they are asked, and what follows from that.
    fn obey(&mut self, store: &mut Store, ms: u64) {
        while let Some((bytes, _)) = store.out.pop() {
            let asked = Packet::decode(&bytes).unwrap().header;
            let Some((reply, value)) = self.answer(asked) else { continue };
            // What else it sends now waits behind.
            let others: Vec<_> = std::iter::from_fn(|| store.out.pop()).collect();
            store.hand_in_at(reply, b"k", value, 0, LATER_NS + ms * 1_000_000);
            others.iter().for_each(|(bytes, peer)| store.out.push_bytes(bytes, *peer));
        }
    }

    fn answer(&mut self, asked: Header) -> Option<(Header, &'static [u8])> {
        let epoch = Epoch::new(asked.epoch.switch(), asked.epoch.number().max(100));
        if asked.op == Op::LendRequest {
            self.base = self.base.max(asked.client);
            return Some((Header { op: Op::LendReply, epoch, ..asked }, &[]));
        }
        let reply = Header { op: Op::TakeReply, epoch, ..asked };
        let nothing = Header { flags: asked.flags.with(Flags::COMPARE), ..reply };
        match (asked.op, self.newest) {
            // The store has said that the loan is over.
            (Op::TakeRequest, _) if asked.flags.has(Flags::ALL) => Some((nothing, &[])),
            (Op::TakeRequest, None) => Some((nothing, &[])),
            (Op::TakeRequest, Some(value)) => {
                Some((Header { version: self.base + 1, ..reply }, value))
            }
            _ => None,
        }
    }
}

/// A store that has lent the key, and whom to.
fn lent() -> (Store, Switches) {
    let (mut store, mut switches) = (lending(), Switches::default());
    for request in 1..=8 {
        write(&mut store, request, 0);
    }
    switches.obey(&mut store, 0);
    assert_eq!(store.engine.status(LATER_NS).loans.lent, 1);
    (store, switches)
}

/// A journal that was empty, and the loans that it remembers.
#[derive(Clone, Default)]
struct SureJournal(Arc<Mutex<Vec<Entry>>>);

impl SureJournal {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap()
    }
}

impl Journal for SureJournal {
    fn found(&mut self) -> Vec<Entry> {
        vec![]
    }

    fn begin(&mut self, entry: Entry, _: Ticket) -> Answer<bool> {
        self.entries().push(entry);
        Answer::Now(true)
    }

    fn end(&mut self, _: u32, _: KeyHash, _: Ticket) -> Answer<bool> {
        self.entries().clear();
        Answer::Now(true)
    }
}

impl Store {
    /// From now on its data outlives it, and so does this.
    fn outlived_by(&mut self, journal: &(impl Journal + Clone + 'static)) {
        self.engine.loans.needs_journal = true;
        self.engine.loans.journal = Some(Box::new(journal.clone()));
    }
}

#[test]
fn a_tenant_whose_write_back_ends_or_that_leaves_has_its_keys_called_back() {
    let changes: [fn(&mut wire::Cluster); 3] = [
        |cluster| cluster.tenants[0].write_back_ms = 0,
        |cluster| cluster.tenants.clear(),
        // Another tenant has its number.
        |cluster| cluster.tenants[0].secret = "08".repeat(16),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (mut store, mut switches) = lent();
        switches.newest = Some(b"newer");
        let mut cluster = store.engine.facts.config.cluster.clone();
        change(&mut cluster);
        store.out.clear();
        store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
        switches.obey(&mut store, 0);
        let loans = store.engine.counters().loans;
        let ended = (store.engine.loans(), loans.loans_returned, loans.loans_lost);
        assert_eq!((ended, loans.loan_flushes), ((0, 1, 0), 1), "{n}");
    }
}

/// The command would be answered, and what the switches have would come over it.
#[test]
fn a_command_waits_for_what_is_lent_also_when_its_tenant_is_gone() {
    for is_asked_before in [true, false] {
        let (mut store, mut switches) = lent();
        switches.newest = Some(b"newer");
        let names = vec![wire::backend_name(KEYED, b"k").unwrap()];
        let wanted = HoldRequest { names, everything: false };
        let hold = |store: &mut Store| {
            store.engine.hold(1, wanted.clone(), LATER_NS, &mut store.out);
        };
        let cluster = store.engine.facts.config.cluster.clone();
        let without = wire::Cluster { tenants: vec![], ..cluster };
        store.out.clear();
        if is_asked_before {
            hold(&mut store);
        }
        store.engine.update(without, LATER_NS, &mut store.out).unwrap();
        if !is_asked_before {
            hold(&mut store);
        }
        assert_eq!(store.engine.take_held(), [0; 0], "its owner answers");
        switches.obey(&mut store, 0);
        assert_eq!(store.engine.counters().loans.loan_flushes, 1);
        assert_eq!(store.engine.take_held(), [1], "{is_asked_before}");
    }
}

/// To the server the keys of both tenants are one.
#[test]
fn a_write_waits_for_what_is_lent_of_a_tenant_that_had_the_number() {
    let (mut store, mut switches) = lent();
    switches.newest = Some(b"older");
    store.out.clear();
    let cluster = store.engine.facts.config.cluster.clone();
    let secret = Secret([8; 16]);
    let tenants = vec![wire::Tenant::new(KEYED, "08".repeat(16))];
    let cluster = wire::Cluster { tenants, ..cluster };
    store.engine.update(cluster, LATER_NS, &mut store.out).unwrap();
    let asked = std::mem::take(&mut store.out);
    let write = |store: &mut Store, request: u64| {
        let key_hash = secret.key_hash(KEYED, b"k");
        let header =
            Header { key_hash, tenant: KEYED, client: 1, request, ..Header::new(Op::WriteRequest) };
        let bytes = Packet::new(header, b"k", b"newer").to_bytes(&secret).unwrap();
        let peer = Peer { address: store.client, local: None };
        store.engine.receive(&bytes, peer, LATER_NS, &mut store.out);
        let answers = std::iter::from_fn(|| store.out.pop());
        let answers = answers.map(|(bytes, _)| Packet::decode(&bytes).unwrap().header);
        let answers = answers.filter(|header| header.op == Op::WriteReply);
        answers.map(|header| header.status).collect::<Vec<_>>()
    };
    assert_eq!(write(&mut store, 1), [Status::TryAgain]);
    store.out = asked;
    switches.obey(&mut store, 0);
    assert_eq!(store.engine.counters().loans.loan_flushes, 1);
    assert_eq!(write(&mut store, 1), [Status::Ok]);
}

/// A packet that comes again an hour later is about a lease that the switch has not any more.
#[test]
fn what_a_switch_said_as_it_left_calls_nothing_back_once_it_has_come_again() {
    let (mut store, _) = lent();
    let term = store.engine.facts.leases.term(1, LATER_NS).unwrap();
    let mut says = |term: u64, serves_ms: u32| {
        let leaving = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(1, 0),
            client: term,
            version: 1,
            expiry_ms: serves_ms,
            ..Header::new(Op::LeaseReturn)
        };
        let heard = store.ask(leaving, &[]).expect("an answer");
        (heard.expiry_ms, store.engine.status(LATER_NS).loans.lent)
    };
    for serves_ms in [5_000, 0] {
        assert_eq!(says(term.wrapping_sub(1), serves_ms), (1, 1), "of an earlier lease");
    }
    assert_eq!(says(term, 5_000), (1, 0), "it is to come back");
}

#[test]
fn a_store_that_ends_calls_everything_back_and_lends_nothing_more() {
    let (mut store, mut switches) = lent();
    store.outlived_by(&SureJournal::default());
    switches.newest = Some(b"newer");
    store.out.clear();
    store.engine.leave(LATER_NS, &mut store.out);
    assert_eq!(store.engine.loans(), 1);
    switches.obey(&mut store, 0);
    assert_eq!(store.engine.loans(), 0);
    store.hand_in(Header { tenant: KEYED, ..Header::new(Op::ReadRequest) }, b"k");
    let read = store.out.pop().expect("an answer").0;
    assert_eq!(Packet::decode(&read).unwrap().value, b"newer");
    (9..=40).for_each(|request| write(&mut store, request, request * 100));
    let loans = store.engine.counters().loans;
    assert_eq!((store.engine.loans(), loans.loans, loans.loans_returned), (0, 1, 1));
    assert!(loans.loans_refused_unsafe > 0, "it was hot again");
}

/// A journal whose answers come later: what it was asked.
#[derive(Clone, Default)]
struct SlowJournal(Arc<Mutex<Vec<(&'static str, Ticket)>>>);

impl SlowJournal {
    fn ask(&self, what: &'static str, ticket: Ticket) -> Answer<bool> {
        self.0.lock().unwrap().push((what, ticket));
        Answer::Later
    }

    /// It answers the only question that there is.
    fn answer(&self, store: &mut Store, what: &str, done: bool, ms: u64) {
        let asked = std::mem::take(&mut *self.0.lock().unwrap());
        let &[(asked, ticket)] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(asked, what);
        let now_ns = LATER_NS + ms * 1_000_000;
        store.engine.complete(Completion::Journal(ticket, done), now_ns, &mut store.out);
    }
}

impl Journal for SlowJournal {
    fn found(&mut self) -> Vec<Entry> {
        vec![]
    }

    fn begin(&mut self, _: Entry, ticket: Ticket) -> Answer<bool> {
        self.ask("begin", ticket)
    }

    fn end(&mut self, _: u32, _: KeyHash, ticket: Ticket) -> Answer<bool> {
        self.ask("end", ticket)
    }
}

/// A store that is about to lend the key, and whose journal has been asked to note that.
fn noting() -> (Store, SlowJournal) {
    let (mut store, journal) = (lending(), SlowJournal::default());
    store.outlived_by(&journal);
    (1..=8).for_each(|request| write(&mut store, request, 0));
    Switches::default().obey(&mut store, 0);
    (store, journal)
}

impl Store {
    /// The switches that have been told to begin since the last event.
    fn told_to_begin(&mut self) -> Vec<u16> {
        let sent = self.sent().map(|bytes| Packet::decode(&bytes).unwrap().header.epoch);
        let begun = sent.filter(|epoch| epoch.number() > 0);
        begun.map(|epoch| epoch.switch()).collect()
    }
}

/// Or the next life of the store would look for it at switches that have forgotten it.
#[test]
fn what_was_not_lent_after_all_is_erased_from_the_journal() {
    for is_recorded in [true, false] {
        let (mut store, journal) = noting();
        store.engine.loans.recall_all(&mut store.engine.facts);
        journal.answer(&mut store, "begin", is_recorded, 0);
        let refuses_ms = if is_recorded { vec![0] } else { vec![1_000, 2_000] };
        for ms in refuses_ms {
            store.tick(ms);
            assert_eq!(store.engine.loans(), 1);
            journal.answer(&mut store, "end", false, ms);
        }
        store.tick(3_000);
        journal.answer(&mut store, "end", true, 3_000);
        let loans = store.engine.counters().loans;
        assert_eq!((store.engine.loans(), loans.loans, loans.loans_cancelled), (0, 0, 1));
    }
}

/// A disk may refuse, or stand still, for as long as it likes: nobody was told to begin, and no
/// write of such a loan can come over what the command leaves.
#[test]
fn what_the_journal_does_not_forget_that_was_never_lent_holds_no_command_up() {
    for refuses in [false, true] {
        let (mut store, journal) = noting();
        if refuses {
            journal.answer(&mut store, "begin", false, 0);
        }
        let everything = HoldRequest { names: vec![], everything: true };
        store.engine.hold(1, everything, LATER_NS, &mut store.out);
        assert_eq!((store.engine.take_held(), store.engine.loans()), (vec![1], 1), "{refuses}");
        if !refuses {
            journal.answer(&mut store, "begin", true, 0);
        }
        store.tick(1_000);
        journal.answer(&mut store, "end", true, 1_000);
        assert_eq!((store.engine.counters().loans.loans, store.engine.loans()), (0, 0));
    }
}

/// The same when it was noted, and its keeper told to begin: a keeper that has begun has no value,
/// and its owner, which was not told, answers no write.
#[test]
fn a_loan_that_is_cancelled_holds_nothing_up_while_the_journal_refuses_to_forget_it() {
    let everything = HoldRequest { names: vec![], everything: true };
    let of_key =
        HoldRequest { names: vec![wire::backend_name(KEYED, b"k").unwrap()], everything: false };
    for wanted in [everything, of_key] {
        let (mut store, journal) = noting();
        journal.answer(&mut store, "begin", true, 0);
        assert!(store.told_to_begin().contains(&2), "the keeper");
        store.engine.loans.recall_all(&mut store.engine.facts);
        store.engine.hold(1, wanted, LATER_NS, &mut store.out);
        assert_eq!(store.engine.take_held(), [1]);
        store.engine.end_hold(1, crate::HoldEnd::Over, LATER_NS, &mut store.out);
        for ms in [0, 1_000] {
            journal.answer(&mut store, "end", false, ms);
            store.tick(ms + 1_000);
        }
        store.out.clear();
        write(&mut store, 20, 2_000);
        let answers = std::iter::from_fn(|| store.out.pop());
        let answers: Vec<_> =
            answers.map(|(bytes, _)| Packet::decode(&bytes).unwrap().header).collect();
        let is_done = |header: &Header| header.op == Op::WriteReply && header.status == Status::Ok;
        assert!(answers.iter().any(is_done), "{answers:?}");
        assert_eq!(store.engine.loans(), 1, "it is not lent again before it is forgotten");
        journal.answer(&mut store, "end", true, 2_000);
        assert_eq!((store.engine.counters().loans.loans, store.engine.loans()), (0, 0));
    }
}

/// The word may be lost, and the keeper's record would be kept for a day.
#[test]
fn a_keeper_that_has_begun_is_told_again_that_there_is_no_loan() {
    let (mut store, mut switches) = (lending(), Switches::default());
    (1..=8).for_each(|request| write(&mut store, request, 0));
    while store.engine.status(LATER_NS).loans.returning == 0 {
        let (bytes, _) = store.out.pop().expect("more to be asked");
        let asked = Packet::decode(&bytes).unwrap().header;
        if asked.op == Op::LendRequest && asked.epoch.number() == 0 {
            let (reply, _) = switches.answer(asked).unwrap();
            store.hand_in(reply, b"k");
        } else if asked.op == Op::LendRequest {
            break;
        }
    }
    store.out.clear();
    store.engine.loans.recall_all(&mut store.engine.facts);
    let mut told = vec![];
    for ms in [0, 100, 200, 300] {
        store.tick(ms);
        let sent = store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header);
        let takes = sent.filter(|header| header.op == Op::TakeRequest);
        told.extend(takes.map(|header| (header.epoch.switch(), header.life)));
    }
    assert!(told.len() >= 2 && told.iter().all(|to| *to == told[0] && to.0 == 2), "{told:?}");
    assert_eq!(store.engine.counters().loans.loans_cancelled, 1);
}

/// A key is lent, with a newer value at its switches, and the backend answers when it is told to.
fn lent_before_a_backend_elsewhere() -> (Store, Switches, RemoteBackend) {
    let (mut store, mut switches) = lent();
    switches.newest = Some(b"newer");
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    (store, switches, backend)
}

/// Everything else would wait with it: also the deletes that make room at the backend.
#[test]
fn a_hold_of_everything_is_refused_where_a_lent_key_does_not_come_back() {
    let (mut store, mut switches, backend) = lent_before_a_backend_elsewhere();
    let everything = || HoldRequest { names: vec![], everything: true };
    let of_another = || HoldRequest {
        names: vec![wire::backend_name(KEYED, b"another").unwrap()],
        everything: false,
    };
    store.out.clear();
    for (id, wanted) in [(1, everything()), (2, of_another()), (3, everything())] {
        let asked = std::mem::take(&mut store.out);
        store.engine.hold(id, wanted, LATER_NS, &mut store.out);
        asked.messages().for_each(|(bytes, peer)| store.out.push_bytes(bytes, peer));
    }
    switches.obey(&mut store, 0);
    let is_write =
        |call: &super::remote::BackendCall| matches!(call, super::remote::BackendCall::Write(..));
    let mut had = vec![];
    for ms in (0..60_000).step_by(100) {
        while backend.count(is_write) > 0 {
            let full = Change::Refused(Refusal::new("OOM no room"));
            let refused = Completion::Change(backend.take_write(), full);
            store.engine.complete(refused, LATER_NS + ms * 1_000_000, &mut store.out);
        }
        store.tick(ms);
        had.extend(store.engine.take_held());
    }
    assert_eq!((had, store.engine.take_refused()), (vec![2], vec![1, 3]));
    assert_eq!((store.engine.loans(), store.engine.counters().holds.holds_refused), (1, 2));
    let header = Header { tenant: KEYED, client: 3, request: 1, ..Header::new(Op::WriteRequest) };
    store.hand_in_at(header, b"other", b"v", 0, LATER_NS + 60_000_000_000);
    assert_eq!(backend.count(is_write), 1, "it is begun with");
}

/// Nothing is lost: who asks has to hear why he gets nothing, or he takes the store for dead.
#[test]
fn while_the_backend_does_not_take_a_value_that_came_back_reads_are_answered() {
    let (mut store, mut switches, backend) = lent_before_a_backend_elsewhere();
    store.engine.at(LATER_NS, &mut store.out, |engine| engine.loans.recall_all(&mut engine.facts));
    switches.obey(&mut store, 0);
    let read = |store: &mut Store, ms: u64| {
        let header = Header { tenant: KEYED, ..Header::new(Op::ReadRequest) };
        store.hand_in_at(header, b"k", &[], 0, LATER_NS + ms * 1_000_000);
        let (bytes, _) = store.out.pop()?;
        Some(Packet::decode(&bytes).unwrap().header.status)
    };
    assert_eq!(read(&mut store, 0), None, "the value is on its way");
    let away = Change::Refused(Refusal::new("OOM no room"));
    let refused = Completion::Change(backend.take_write(), away);
    store.engine.complete(refused, LATER_NS, &mut store.out);
    assert_eq!(read(&mut store, 0), Some(Status::BackendError));
    store.tick(5_000);
    assert_eq!(read(&mut store, 5_000), Some(Status::BackendError), "also while it is tried again");
    let done = Completion::Change(backend.take_write(), Change::Done(1));
    store.engine.complete(done, LATER_NS + 5_000_000_000, &mut store.out);
    assert_eq!((store.engine.loans(), read(&mut store, 5_000)), (0, None), "the backend is asked");
}

/// Whoever starts it again finds in its journal where to ask.
#[test]
fn a_store_that_ends_forgets_no_loan_whose_value_its_backend_does_not_take() {
    let (mut store, mut switches) = (lending(), Switches::default());
    let journal = SureJournal::default();
    store.outlived_by(&journal);
    (1..=8).for_each(|request| write(&mut store, request, 0));
    switches.obey(&mut store, 0);
    switches.newest = Some(b"newer");
    let backend = RemoteBackend::new(Watch::Unneeded);
    store.engine.facts.backend = Box::new(backend.clone());
    store.engine.leave(LATER_NS, &mut store.out);
    switches.obey(&mut store, 0);
    let lease_ms = store.engine.facts.leases.length_ns().div_ceil(1_000_000);
    let put = |store: &mut Store, ms: u64, change| {
        let (ticket, now_ns) = (backend.take_write(), LATER_NS + ms * 1_000_000);
        store.out.clear();
        store.engine.complete(Completion::Change(ticket, change), now_ns, &mut store.out);
    };
    for n in 0..5 {
        let away = Refusal::new("TRYAGAIN it is away");
        put(&mut store, n * lease_ms, Change::Refused(away));
        assert_eq!((store.engine.loans(), journal.entries().len()), (1, 1));
        assert!(store.sent().next().is_none(), "the switches keep what they have");
        store.tick((n + 1) * lease_ms);
    }
    put(&mut store, 5 * lease_ms, Change::Done(1));
    assert_eq!((store.engine.loans(), journal.entries().len()), (0, 0));
}

#[test]
fn a_write_that_finds_no_place_in_the_queue_calls_its_key_back_all_the_same() {
    let (mut store, mut switches) = lent();
    Arc::make_mut(&mut store.engine.facts.config).key_queue_limit = 0;
    // Later than what was on its way when the key was lent.
    let (tenant, client, request) = (KEYED, 2, 1);
    let around = Header { tenant, client, request, ..Header::new(Op::WriteRequest) };
    store.hand_in_at(around, b"k", b"new", 0, LATER_NS + 20_000_000);
    let sent: Vec<_> = std::iter::from_fn(|| store.out.pop()).collect();
    let headers = sent.iter().map(|(bytes, _)| Packet::decode(bytes).unwrap().header);
    let headers: Vec<Header> = headers.collect();
    let seals = |header: &Header| header.op == Op::TakeRequest && header.flags.has(Flags::GRANT);
    assert!(headers.iter().any(seals), "{headers:?}");
    let refuses = |header: &Header| header.status == Status::TryAgain;
    assert!(headers.iter().any(refuses), "{headers:?}");
    sent.iter().for_each(|(bytes, peer)| store.out.push_bytes(bytes, *peer));
    switches.obey(&mut store, 20);
    assert_eq!(store.engine.counters().loans.loans_returned, 1);
    store.hand_in_at(around, b"k", b"new", 0, LATER_NS + 30_000_000);
    let answer = store.out.pop().expect("it finds the key here").0;
    assert_eq!(Packet::decode(&answer).unwrap().header.status, Status::Ok);
}
