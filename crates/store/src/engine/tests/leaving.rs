//! Switches that give their leases back, and stores that end in order.

use super::*;

/// When the wait after the start has long been over, in nanoseconds.
const DAY_NS: u64 = 86_400_000_000_000;

/// Switch 1 gives its lease of this term back, or says that it is going to; what it hears.
fn gives_back(store: &mut Store, term: u64, before_ns: u64, serves_ms: u32) -> Option<Header> {
    let header = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        client: term,
        version: before_ns,
        expiry_ms: serves_ms,
        ..Header::new(Op::LeaseReturn)
    };
    store.hand_in(header, &[]);
    let headers: Vec<Header> =
        store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header).collect();
    headers.into_iter().find(|header| header.op == Op::LeaseReturned)
}

/// The term of switch 1's lease; it asks by a clock that shows `asked_ns`.
fn lease_at(store: &mut Store, asked_ns: u64) -> Option<u64> {
    let header = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        version: asked_ns,
        ..Header::new(Op::LeaseRequest)
    };
    store.ask(header, &[]).map(|reply| reply.client)
}

fn writes_applied(store: &Store) -> u64 {
    store.engine.counters().write.writes_applied
}

#[test]
fn no_write_waits_for_a_switch_that_gave_its_lease_back() {
    let mut store = with_a_copy();
    let term = store.engine.facts.leases.term(1, LATER_NS).unwrap();
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
    assert_eq!(writes_applied(&store), 1);
    let heard = gives_back(&mut store, term, 1, 0).unwrap();
    assert_eq!((heard.client, heard.version, heard.expiry_ms), (term, 1, 0));
    assert_eq!(writes_applied(&store), 2, "at once");
    assert_eq!(store.engine.counters().leases.leases_given_back, 1);
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS), None);
    // And what comes later does not either.
    assert_eq!(store.write(KEYED, 1, 3, b"k"), Some(Status::Ok));
    // The answer was lost: it is said again.
    assert!(gives_back(&mut store, term, 1, 0).is_some());
    assert_eq!(store.engine.counters().leases.leases_given_back, 1);
}

#[test]
fn a_switch_that_came_back_before_it_was_heard_to_leave_has_its_lease() {
    let mut store = with_a_copy();
    let term = store.engine.facts.leases.term(1, LATER_NS).unwrap();
    assert!(gives_back(&mut store, term, 0, 0).is_some(), "it is answered, and asks no more");
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS), Some(term));
    assert_eq!(store.engine.counters().leases.leases_given_back, 0);
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "waits for the copy");
}

#[test]
fn who_only_says_that_it_goes_is_waited_for() {
    let mut store = with_a_copy();
    let term = store.engine.facts.leases.term(1, LATER_NS).unwrap();
    assert_eq!(gives_back(&mut store, term, 0, 5_000).unwrap().expiry_ms, 0, "nothing is lent");
    assert_eq!(store.write(KEYED, 1, 2, b"k"), None, "it serves still");
    assert!(store.engine.facts.leases.is_leaving(1, LATER_NS));
    // An earlier release does not date it; it holds for as long as it would serve.
    let over_ns = LATER_NS + 5_000_000_000;
    assert!(store.engine.facts.leases.is_leaving(1, over_ns - 1));
    assert!(!store.engine.facts.leases.is_leaving(1, over_ns));
}

/// What a switch said before it left and came back, under the same term: it comes late, and once
/// more an hour later.
#[test]
fn who_came_back_is_not_taken_for_one_that_goes() {
    let mut store = Store::new();
    let second_ns = 1_000_000_000;
    let term = lease_at(&mut store, 100 * second_ns).unwrap();
    // Dated when it began to leave. It may be gone five seconds later.
    assert!(gives_back(&mut store, term, 100 * second_ns + 1, 5_000).is_some());
    let is_leaving = |store: &Store, after_s: u64| {
        store.engine.facts.leases.is_leaving(1, LATER_NS + after_s * second_ns)
    };
    assert!(is_leaving(&store, 4) && !is_leaving(&store, 6));
    // It asks for leases until it has gone: that says nothing.
    let renews = |store: &mut Store, asked_s: u64, after_s: u64| {
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(1, 0),
            version: asked_s * second_ns,
            ..Header::new(Op::LeaseRequest)
        };
        store.hand_in_at(header, &[], &[], 0, LATER_NS + after_s * second_ns);
    };
    renews(&mut store, 101, 1);
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS + second_ns), Some(term));
    assert!(is_leaving(&store, 4) && !is_leaving(&store, 6), "as before");
    // A second copy, later: it is gone at the same time all the same.
    assert!(gives_back(&mut store, term, 100 * second_ns + 1, 5_000).is_some());
    assert!(is_leaving(&store, 4) && !is_leaving(&store, 6));
    // It has come back, and goes on in the same term.
    for s in 2..=7 {
        renews(&mut store, 100 + s, s);
    }
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS + 7 * second_ns), Some(term));
    let heard = gives_back(&mut store, term, 100 * second_ns + 1, 5_000).unwrap();
    assert_eq!((heard.client, heard.expiry_ms), (term, 0), "it is answered, and that is all");
    assert!(!is_leaving(&store, 7));
}

/// A lease that was given back is not brought back by what was on its way, nor ended by what was
/// said of an earlier one.
#[test]
fn a_term_that_was_given_back_does_not_come_again() {
    let mut store = Store::new();
    let first = lease_at(&mut store, 100).unwrap();
    assert!(gives_back(&mut store, first, 1_000, 0).is_some());
    assert_eq!(lease_at(&mut store, 999), None, "it was on its way");
    let second = lease_at(&mut store, 1_000).unwrap();
    assert_ne!(second, first);
    // The first message again, late.
    assert!(gives_back(&mut store, first, 1_000, 0).is_some());
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS), Some(second));
    // A switch that was started anew since, whose clock begins again.
    assert!(gives_back(&mut store, second, 5_000, 0).is_some());
    assert_eq!(lease_at(&mut store, 10), None);
    let over_ns = LATER_NS + store.engine.facts.leases.length_ns();
    asks(&mut store, 10, 0, over_ns);
    let offer = offered(&mut store).unwrap();
    asks(&mut store, 11, offer, over_ns);
    assert!(store.engine.facts.leases.term(1, over_ns).is_some());
}

/// Switch 1 asks for a lease when its clock shows `asked_ns`, because of the offer of this number.
fn asks(store: &mut Store, asked_ns: u64, offer: u64, now_ns: u64) {
    let header = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        version: asked_ns,
        client: offer,
        ..Header::new(Op::LeaseRequest)
    };
    store.hand_in_at(header, &[], &[], 0, now_ns);
}

/// The number of the newest lease that was offered.
fn offered(store: &mut Store) -> Option<u64> {
    let headers: Vec<Header> =
        store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header).collect();
    headers.into_iter().find(|header| header.op == Op::LeaseOffer).map(|offer| offer.client)
}

/// Somebody on the path caught what a switch asked for its leases with, and sends it once more
/// whenever its lease has lapsed.
#[test]
fn a_request_that_is_sent_once_more_keeps_no_switch_without_a_lease() {
    let second_ns = 1_000_000_000;
    let mut store = Store::new();
    let lease_ns = store.engine.facts.leases.length_ns();
    let term = |store: &Store, now_ns| store.engine.facts.leases.term(1, now_ns);
    let theirs = |now_ns: u64| now_ns - LATER_NS + 100 * second_ns;
    asks(&mut store, theirs(LATER_NS), 0, LATER_NS);
    store.tick(1);
    let caught = offered(&mut store).unwrap();
    asks(&mut store, theirs(LATER_NS) + 1_000_000, caught, LATER_NS + 1_000_000);
    assert!(term(&store, LATER_NS + 1_000_000).is_some());
    let mut now_ns = LATER_NS;
    for round in 0..3 {
        // The switch was cut off meanwhile.
        now_ns += 5 * lease_ns;
        asks(&mut store, theirs(LATER_NS), 0, now_ns);
        asks(&mut store, theirs(LATER_NS) + 1_000_000, caught, now_ns);
        assert_eq!(term(&store, now_ns), None, "round {round}: nothing of it counts");
        now_ns += 1_000_000;
        asks(&mut store, theirs(now_ns), 0, now_ns);
        assert!(term(&store, now_ns).is_some(), "round {round}: the switch has its lease");
    }
    // One that was started anew answers the offer that it gets at once, and that works once.
    now_ns += 5 * lease_ns;
    store.out = Outbox::default();
    asks(&mut store, 10, 0, now_ns);
    let offer = offered(&mut store).unwrap();
    assert_eq!(term(&store, now_ns), None);
    asks(&mut store, 20, offer, now_ns);
    assert!(term(&store, now_ns).is_some());
    now_ns += 5 * lease_ns;
    asks(&mut store, 20, offer, now_ns);
    assert_eq!(term(&store, now_ns), None);
}

#[test]
fn a_lease_is_given_back_with_the_systems_secret_only() {
    let mut store = with_a_copy();
    let term = store.engine.facts.leases.term(1, LATER_NS).unwrap();
    let header = Header {
        tenant: TENANT_SYSTEM,
        epoch: Epoch::new(1, 0),
        client: term,
        ..Header::new(Op::LeaseReturn)
    };
    let forged = Packet::new(header, &[], &[]).to_bytes(&SECRET).unwrap();
    let peer = Peer { address: store.client, local: None };
    store.engine.receive(&forged, peer, LATER_NS, &mut store.out);
    assert_eq!(store.engine.facts.leases.term(1, LATER_NS), Some(term));
    assert_eq!(store.engine.counters().leases.dropped_lease_auth, 1);
}

/// A store whose data outlives it, though it has it itself here.
fn beside_redis() -> Store {
    Store::with(|config| config.backend = "redis://127.0.0.1:6379".parse().unwrap())
}

#[test]
fn a_store_that_ends_calls_every_copy_back_and_grants_none() {
    let mut store = beside_redis();
    granted(&mut store);
    assert_eq!(store.engine.owed(), 0, "it stays");
    store.engine.leave(LATER_NS, &mut store.out);
    let ops: Vec<Op> =
        store.sent().map(|bytes| Packet::decode(&bytes).unwrap().header.op).collect();
    assert!(ops.contains(&Op::Invalidate), "{ops:?}");
    assert_eq!(store.engine.owed(), 1);
    assert_eq!(store.engine.hand_over(LATER_NS), None, "a copy is left");
    store.hand_in(ack(11, 10), b"k");
    assert_eq!(store.engine.owed(), 0);
    let fetch = Header {
        tenant: KEYED,
        epoch: Epoch::new(1, 12),
        flags: Flags::GRANT,
        ..Header::new(Op::FetchRequest)
    };
    assert!(!store.ask(fetch, b"k").unwrap().flags.has(Flags::GRANT));
    assert_eq!(lease_at(&mut store, 5), None, "nothing is lent");
    assert_eq!(store.write(KEYED, 1, 2, b"k"), Some(Status::Ok), "writes are taken");
}

#[test]
fn a_life_goes_on_in_the_next_store_without_a_wait() {
    let mut store = beside_redis();
    granted(&mut store);
    let life = store.engine.facts.replies.life;
    let last = store.engine.facts.versions.newest;
    store.engine.leave(LATER_NS, &mut store.out);
    store.hand_in(ack(11, 10), b"k");
    let left = store.engine.hand_over(LATER_NS).expect("it ended in order");
    let born = Incarnation::new(1_700_000_000, 77).going_on(left.life, left.newest_version);
    assert!(born.first_version() > last);
    let mut config = (*store.engine.facts.config).clone();
    config.client_limit = 100;
    let backend = Box::new(EmbeddedBackend::new(config.memory_limit));
    let mut next = Store {
        engine: Engine::new(Arc::new(config), backend, 0, born),
        out: Outbox::default(),
        client: store.client,
    };
    next.engine.go_on(left);
    assert_eq!(next.engine.facts.replies.life, life);
    // What the former store answered is answered again, not applied.
    assert_eq!(next.write(KEYED, 1, 1, b"k"), Some(Status::Ok));
    assert_eq!(writes_applied(&next), 0);
    // A write that names the life is new, and needs no wait; a lease is lent at once.
    let header =
        Header { tenant: KEYED, client: 1, request: 2, life, ..Header::new(Op::WriteRequest) };
    assert_eq!(next.ask(header, b"k").map(|reply| reply.status), Some(Status::Ok));
    assert_eq!(writes_applied(&next), 1);
    assert!(lease_at(&mut next, 7).is_some());
}

#[test]
fn nothing_is_handed_over_where_the_next_store_could_not_tell() {
    // Its own data ends with it.
    let mut embedded = Store::new();
    embedded.engine.leave(LATER_NS, &mut embedded.out);
    assert_eq!(embedded.engine.hand_over(LATER_NS), None);
    // It waits itself for what a former one lent.
    let mut young = beside_redis();
    young.engine.leave(1, &mut young.out);
    assert_eq!(young.engine.hand_over(1), None);
    assert!(young.engine.hand_over(DAY_NS).is_some());
    // A write waits for a switch.
    let mut busy = beside_redis();
    granted(&mut busy);
    assert_eq!(busy.write(KEYED, 1, 2, b"k"), None);
    busy.engine.leave(LATER_NS, &mut busy.out);
    assert_eq!(busy.engine.hand_over(LATER_NS), None);
    // It did not leave.
    assert_eq!(beside_redis().engine.hand_over(DAY_NS), None);
}

#[cfg(debug_assertions)]
#[test]
fn a_request_that_is_lent_once_more_is_noticed() {
    use holder::mutants::{Mutant, is_noticed};
    let test = a_request_that_is_sent_once_more_keeps_no_switch_without_a_lease;
    assert!(is_noticed(Mutant::RepeatedRequestLent, test));
}
