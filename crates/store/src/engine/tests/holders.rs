//! Holders at the clients' side: a real one, and stores.

use std::{net::SocketAddr, sync::Arc};

use holder::{Cache, Holder, HolderOptions, Miss};
use wire::{HOLDERS_MOST, HolderProof, ReadCount};

use super::{
    remote::{BackendCall, RemoteBackend},
    tenants::{remove_and_create, update},
    *,
};
use crate::{
    HoldEnd, HoldRequest,
    backend::{Change, Completion, Item, ReadOutcome},
    coherence::Watch,
    engine::{context::Context, lease_holder::LeaseHolder},
};
use holder::mutants::{Mutant, choose};

const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 2000 * MS;
/// Reads that a key needs to be kept.
const READS: usize = 4;

/// A store, a holder of a tenant's keys, and a clock for both. What is sent arrives at once.
struct Pair {
    store: Store,
    holder: Holder,
    tenant: u32,
    /// Where the holder's packets come from.
    from: SocketAddr,
    now_ns: u64,
    /// Nothing reaches the holder, or nothing reaches the store.
    deaf: bool,
    mute: bool,
    versions: u64,
    /// What did not reach the holder.
    lost: Vec<Vec<u8>>,
}

impl Pair {
    fn of(tenant: u32) -> Pair {
        Pair::with(Store::new(), tenant, 77)
    }

    /// Over a backend that answers when it is told to.
    fn over_remote() -> (Pair, RemoteBackend) {
        let mut store = Store::new();
        let backend = RemoteBackend::new(Watch::Unneeded);
        store.engine.facts.backend = Box::new(backend.clone());
        (Pair::with(store, KEYED, 77), backend)
    }

    fn with(store: Store, tenant: u32, client: u64) -> Pair {
        let cluster = &store.engine.config().cluster;
        let cache = Arc::new(Cache::new(1 << 20, Holder::stores(cluster)));
        let options = HolderOptions { tenant, client, first_epoch: 1 << 40 };
        let holder = Holder::new(cluster, options, cache, LATER_NS).unwrap();
        let from = "10.0.0.9:4000".parse().unwrap();
        Pair {
            store,
            holder,
            tenant,
            from,
            now_ns: LATER_NS,
            deaf: false,
            mute: false,
            versions: 0,
            lost: vec![],
        }
    }

    /// Delivers what there is, until nothing is left. What the store sends to others is returned.
    fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut others = vec![];
        let address = self.store.engine.config().cluster.stores[0].address;
        loop {
            let sent = self.store.out.messages();
            let sent: Vec<(Vec<u8>, SocketAddr)> =
                sent.map(|(bytes, peer)| (bytes.to_vec(), peer.address)).collect();
            self.store.out.clear();
            for (bytes, to) in sent {
                match to == self.from {
                    true if self.deaf => self.lost.push(bytes),
                    true => self.holder.take(&bytes, address, self.now_ns),
                    false => others.push(bytes),
                }
            }
            let mut is_over = true;
            while let Some((_, bytes)) = self.holder.next_datagram() {
                if self.mute {
                    continue;
                }
                is_over = false;
                let peer = Peer { address: self.from, local: None };
                self.store.engine.receive(&bytes, peer, self.now_ns, &mut self.store.out);
            }
            if is_over && self.store.out.is_empty() {
                return others;
            }
        }
    }

    /// Lets time pass, in steps of a millisecond.
    fn pass(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let mut others = vec![];
        for _ in 0..ms {
            self.now_ns += MS;
            if self.holder.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
                self.holder.timer(self.now_ns);
            }
            self.store.engine.tick(self.now_ns, &mut self.store.out);
            others.extend(self.settle());
        }
        others
    }

    /// A read at the holder: what it answers by itself.
    fn read(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let cache = self.holder.cache().clone();
        let hash = cache.hash(key);
        match cache.read(hash, key, self.now_ns, <[u8]>::to_vec) {
            Ok(value) => Some(value),
            Err(Miss::Elsewhere | Miss::AtStore) => None,
            Err(Miss::Wanted) => {
                self.holder.want(hash, key, self.now_ns);
                self.settle();
                None
            }
        }
    }

    /// Reads until the key is kept.
    fn warm(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        (0..=READS + 1).find_map(|_| self.read(key))
    }

    /// Somebody writes, past the holder. Whether it is answered at once.
    fn write(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.versions += 1;
        let life = self.store.engine.facts.replies.life;
        let header = Header {
            tenant: self.tenant,
            client: 5,
            request: self.versions,
            life,
            ..Header::new(Op::WriteRequest)
        };
        self.store.hand_in_at(header, key, value, 0, self.now_ns);
        let others = self.settle();
        self.is_answered(&others)
    }

    fn is_answered(&self, others: &[Vec<u8>]) -> bool {
        let is_reply = |bytes: &Vec<u8>| {
            let header = Packet::decode(bytes).unwrap().header;
            header.op == Op::WriteReply
                && header.status == Status::Ok
                && header.request == self.versions
        };
        others.iter().any(is_reply)
    }

    /// Lets time pass until the write is answered, which takes less than two leases.
    fn pass_until_answered(&mut self) {
        let mut waited_ms = 0;
        while !{
            let others = self.pass(1);
            self.is_answered(&others)
        } {
            waited_ms += 1;
            assert!(waited_ms < 2 * LEASE_NS / MS);
        }
    }

    fn counters(&self) -> crate::counters::HolderCounters {
        self.store.engine.counters().holders
    }

    /// A packet in the name of the holder, but with this token.
    fn forged_ack(&mut self, key: &[u8], epoch: u64, token: u64) {
        let number = *self.numbers().first().unwrap();
        let header = Header {
            tenant: self.tenant,
            client: 77,
            request: token,
            epoch: Epoch::new(number, epoch),
            ..Header::new(Op::HolderAck)
        };
        self.store.hand_in_at(header, key, &[], 0, self.now_ns);
    }

    fn numbers(&self) -> Vec<u16> {
        let leases = self.store.engine.facts.leases.iter();
        leases.map(|(number, _)| number).filter(|number| wire::is_holder(*number)).collect()
    }
}

#[test]
fn a_holder_serves_what_it_was_granted_until_it_is_called_back() {
    for tenant in [KEYED, TENANT_OPEN] {
        let mut pair = Pair::of(tenant);
        assert!(pair.write(b"k", b"v1"));
        assert_eq!(pair.warm(b"k").as_deref(), Some(&b"v1"[..]));
        assert_eq!(pair.counters().holders_begun, 1);
        assert!(pair.write(b"k", b"v2"), "the holder has acknowledged");
        assert_eq!(pair.read(b"k"), None, "wanted again");
        assert_eq!(pair.read(b"k").as_deref(), Some(&b"v2"[..]));
        assert_eq!(pair.holder.counts().invalidations, 1);
    }
}

#[test]
fn a_write_waits_for_a_deaf_holder_until_its_lease_is_over_and_the_holder_serves_nothing_then() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert_eq!(pair.warm(b"k").as_deref(), Some(&b"v1"[..]));
    pair.deaf = true;
    assert!(!pair.write(b"k", b"v2"));
    pair.pass_until_answered();
    assert_eq!(pair.read(b"k"), None);
    pair.deaf = false;
    pair.pass(3000);
    assert_eq!(pair.warm(b"k"), None, "its address is lent nothing for a while");
    assert!(pair.counters().holders_refused_mute > 0);
    assert!(pair.write(b"k", b"v3"), "nobody waits for it");
    pair.pass(12 * LEASE_NS / MS);
    assert_eq!(pair.warm(b"k").as_deref(), Some(&b"v3"[..]), "it has another lease");
}

/// What holders serve they serve also when their tenant is removed and made anew: they hear of it
/// when they ask for something next.
#[test]
fn a_tenant_that_is_made_anew_waits_for_its_holders() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    remove_and_create(&mut pair.store);
    assert!(pair.write(b"k", b"v2"), "the holder has acknowledged");
    assert_eq!(pair.read(b"k"), None);
    assert_eq!(pair.warm(b"k").as_deref(), Some(&b"v2"[..]));
    pair.deaf = true;
    remove_and_create(&mut pair.store);
    assert!(!pair.write(b"k", b"v3"));
    pair.pass_until_answered();
    assert_eq!(pair.read(b"k"), None);
}

/// A tenant is away for less than a lease, and its key is written meanwhile by others than its
/// clients.
#[test]
fn a_holder_serves_nothing_that_was_written_while_its_tenant_was_away() {
    let by_hold = |pair: &mut Pair| {
        let names = vec![wire::backend_name(KEYED, b"k").unwrap()];
        let wanted = HoldRequest { names, everything: false };
        pair.store.engine.hold(1, wanted, pair.now_ns, &mut pair.store.out);
        assert!(pair.store.engine.take_held().is_empty(), "the holder serves it");
    };
    let by_others = |pair: &mut Pair| {
        let changed = crate::backend::OutsideEvent::Changed { tenant: KEYED, key: b"k".to_vec() };
        let changed = Completion::Outside(changed);
        pair.store.engine.complete(changed, pair.now_ns, &mut pair.store.out);
    };
    for happens in [&by_hold as &dyn Fn(&mut Pair), &by_others] {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.warm(b"k").is_some());
        let lease = |pair: &Pair| {
            let leases = &pair.store.engine.facts.leases;
            let of = |number: u16| leases.term(number, pair.now_ns).map(|term| (number, term));
            pair.numbers().into_iter().find_map(of)
        };
        let before = lease(&pair);
        let with = pair.store.engine.facts.config.cluster.tenants.clone();
        update(&mut pair.store, vec![]);
        happens(&mut pair);
        pair.settle();
        update(&mut pair.store, with);
        assert_eq!(pair.read(b"k"), None, "it was told, or its lease is over");
        let until_ns = pair.now_ns + 4 * LEASE_NS;
        while pair.now_ns < until_ns && lease(&pair).is_none_or(|lease| Some(lease) == before) {
            pair.pass(1);
            pair.read(b"k");
        }
        assert!(lease(&pair).is_some_and(|lease| Some(lease) != before), "it has a lease again");
        assert_eq!(pair.counters().holders_refused_mute, 0, "it has done nothing wrong");
    }
}

#[test]
fn a_holder_whose_copies_are_read_keeps_its_lease_and_an_idle_one_is_silent() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    for _ in 0..20 {
        pair.pass(500);
        assert!(pair.read(b"k").is_some());
    }
    assert_eq!(pair.counters().holders_begun, 1);
    pair.pass(18 * LEASE_NS / MS);
    assert_eq!(pair.holder.next_ns(), None);
    assert_eq!(pair.holder.cache().kept(), (0, 0));
    assert_eq!(pair.store.engine.status(pair.now_ns).holders, 0);
    assert!(pair.warm(b"k").is_some(), "it is a holder again");
}

#[test]
fn who_has_not_the_token_does_not_speak_for_a_holder() {
    let stale = |mutant| {
        let mut pair = Pair::of(TENANT_OPEN);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.warm(b"k").is_some());
        pair.deaf = true;
        assert!(!pair.write(b"k", b"v2"));
        choose(mutant);
        pair.forged_ack(b"k", Epoch::MAX_NUMBER, 1);
        choose(None);
        pair.settle();
        pair.read(b"k").is_some() && pair.store.engine.counters().write.writes_applied == 2
    };
    assert!(!stale(None));
    assert!(stale(Some(Mutant::AnyHolderToken)));
}

#[test]
fn a_value_of_several_parts_is_joined_of_one_version() {
    let mut pair = Pair::of(KEYED);
    let value: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
    let long = |pair: &mut Pair, value: &[u8]| {
        let key = crate::backend::Key {
            tenant: KEYED,
            hash: SECRET.key_hash(KEYED, b"long"),
            bytes: b"long",
        };
        let value = Bytes::copy_from_slice(value);
        let put = crate::backend::Put {
            value: Some(&value),
            ttl_ms: 0,
            condition: crate::backend::Condition::Always,
            version: pair.store.engine.facts.versions.next(),
        };
        let now_ns = pair.now_ns;
        pair.store.engine.facts.backend.put(key, put, now_ns, 0);
    };
    long(&mut pair, &value);
    assert_eq!(pair.warm(b"long").as_ref(), Some(&value));
    assert!(pair.write(b"long", b"short"));
    assert_eq!(pair.read(b"long"), None);
    assert_eq!(pair.read(b"long").as_deref(), Some(&b"short"[..]));
}

/// The backend takes its time, and all that a holder asks for has one id.
#[test]
fn what_a_holder_asks_for_after_a_write_is_no_copy_of_what_it_asked_for_before() {
    let (mut pair, backend) = Pair::over_remote();
    let finds = |pair: &mut Pair, ticket, value: &[u8], version| {
        let item = Item { value: value.to_vec(), version, expiry_ms: 0 };
        let found = Completion::Get(ticket, ReadOutcome::Item(item));
        pair.store.engine.complete(found, pair.now_ns, &mut pair.store.out);
        pair.settle();
    };
    for _ in 0..READS {
        pair.read(b"k");
    }
    let first = backend.take_read();
    assert!(!pair.write(b"k", b"new"), "the backend has not done it");
    let written = Completion::Change(backend.take_write(), Change::Done(6));
    pair.store.engine.complete(written, pair.now_ns, &mut pair.store.out);
    pair.settle();
    assert_eq!(pair.holder.counts().invalidations, 1);
    assert_eq!(pair.read(b"k"), None, "it is asked for again");
    let second = backend.take_read();
    finds(&mut pair, first, b"old", 5);
    assert_eq!(pair.read(b"k"), None);
    finds(&mut pair, second, b"new", 6);
    assert_eq!(pair.read(b"k").as_deref(), Some(&b"new"[..]));
}

#[test]
fn the_backend_hears_of_what_holders_read_and_of_nothing_that_others_say_in_their_name() {
    let (mut pair, backend) = Pair::over_remote();
    // The backend answers what it was asked, so that the keys are granted.
    let keys: [&[u8]; 2] = [b"hot", b"cool"];
    for key in keys {
        for _ in 0..READS {
            pair.read(key);
        }
        let found = Item { value: b"v".to_vec(), version: 5, expiry_ms: 0 };
        let found = Completion::Get(backend.take_read(), ReadOutcome::Item(found));
        pair.store.engine.complete(found, pair.now_ns, &mut pair.store.out);
        pair.settle();
        assert!(pair.read(key).is_some(), "{key:?}");
    }
    (1..3000).for_each(|_| assert!(pair.read(b"hot").is_some()));
    pair.pass(1500);
    let hash = |key| SECRET.key_hash(KEYED, key);
    let marked = |backend: &RemoteBackend| -> Vec<(wire::KeyHash, u32)> {
        let asked = backend.asked().into_iter();
        let marks = asked.filter_map(|call| match call {
            BackendCall::Mark(hash, reads) => Some((hash, reads)),
            _ => None,
        });
        marks.collect()
    };
    assert_eq!(marked(&backend), [(hash(b"hot"), 3000), (hash(b"cool"), 1)]);
    // Each read is told once.
    (0..2000).for_each(|_| assert!(pair.read(b"hot").is_some()));
    pair.pass(2500);
    assert_eq!(marked(&backend), [(hash(b"hot"), 2000)]);
    // Who does not show the holder's token is not heard, nor is the holder about others' keys.
    let number = pair.numbers()[0];
    let forged = Header {
        tenant: KEYED,
        client: 77,
        request: 1,
        epoch: Epoch::new(number, 0),
        ..Header::new(Op::ReadCounts)
    };
    let mut rows = vec![];
    ReadCount { tenant: KEYED, hash: hash(b"hot"), reads: 9999 }.encode(&mut rows);
    let bytes = Packet::new(forged, &[], &rows).to_bytes(&SECRET).unwrap();
    let peer = Peer { address: pair.from, local: None };
    let before = pair.store.engine.counters().elsewhere;
    pair.store.engine.receive(&bytes, peer, pair.now_ns, &mut pair.store.out);
    let after = pair.store.engine.counters().elsewhere;
    assert_eq!(after.dropped_read_counts, before.dropped_read_counts + 1);
    assert_eq!(after.reads_elsewhere, before.reads_elsewhere);
}

#[test]
fn a_hold_of_the_resp_port_calls_a_holders_copy_back() {
    let mut pair = Pair::of(TENANT_OPEN);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    let id = 1;
    let request = HoldRequest { names: vec![b"k".to_vec()], everything: false };
    pair.store.engine.hold(id, request, pair.now_ns, &mut pair.store.out);
    assert!(pair.store.engine.take_held().is_empty(), "there is a copy");
    pair.settle();
    assert_eq!(pair.store.engine.take_held(), [id]);
    assert_eq!(pair.read(b"k"), None);
    assert_eq!(pair.read(b"k"), None, "nothing is granted meanwhile");
    pair.store.engine.end_hold(id, HoldEnd::Over, pair.now_ns, &mut pair.store.out);
    pair.pass(20);
    assert!(pair.warm(b"k").is_some());
}

#[test]
fn a_number_is_anothers_only_when_nothing_is_served_under_it() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    let first = pair.numbers();
    // Another one begins, whose client has another number.
    let store = std::mem::replace(&mut pair.store, Store::new());
    let mut other = Pair::with(store, KEYED, 78);
    other.now_ns = pair.now_ns;
    assert!(other.warm(b"k").is_some());
    assert_eq!(other.numbers().len(), 2);
    assert_eq!(other.numbers()[0], first[0]);
    // A holder of another tenant does not speak for it.
    let header = Header {
        tenant: TENANT_OPEN,
        client: 77,
        epoch: Epoch::new(first[0], 1 << 47),
        ..Header::new(Op::HolderAck)
    };
    let before = other.counters().dropped_holder;
    other.store.hand_in_at(header, b"k", &[], 0, other.now_ns);
    assert_eq!(other.counters().dropped_holder, before + 1);
}

#[test]
fn a_key_that_is_written_for_each_read_is_not_granted_for_a_while() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v"));
    assert!(pair.warm(b"k").is_some());
    for _ in 0..20 {
        assert!(pair.write(b"k", b"v"));
        pair.read(b"k");
    }
    let paused = pair.counters().holder_grants_paused;
    assert!(paused > 0);
    assert!(pair.holder.counts().invalidations < 20);
    pair.pass(6000);
    assert!(pair.warm(b"k").is_some(), "it is over");
}

/// It may come twice, or be of a key of which its holder never had a copy.
#[test]
fn an_acknowledgement_of_nothing_says_nothing_of_what_copies_are_worth() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v"));
    assert!(pair.warm(b"k").is_some());
    let number = pair.numbers()[0];
    let holders = &pair.store.engine.facts.holders;
    let token = holders.invalidation(number).expect("a holder").0.request;
    for key in [b"k", b"l"] {
        (0..100).for_each(|_| pair.forged_ack(key, 1, token));
        let id = (KEYED, SECRET.key_hash(KEYED, key));
        let holders = &pair.store.engine.facts.holders;
        assert_eq!(holders.pause_ms(&id, pair.now_ns), 0);
        assert!(!holders.want(&id, LEASE_NS, pair.now_ns));
    }
    assert_eq!(pair.read(b"k").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_holder_that_leaves_is_waited_for_by_nobody() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    pair.holder.leave(pair.now_ns + MS);
    pair.now_ns += MS;
    let cache = pair.holder.cache();
    assert_eq!(cache.version(cache.hash(b"k"), b"k", pair.now_ns), None);
    pair.settle();
    pair.mute = true;
    assert!(pair.write(b"k", b"v2"));
}

#[test]
fn a_lease_that_is_given_back_costs_no_look_at_the_keys_that_nobody_waits_for() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    pair.deaf = true;
    assert!(!pair.write(b"k", b"v2"));
    pair.deaf = false;
    pair.now_ns += MS;
    pair.holder.leave(pair.now_ns);
    let walks = || crate::directory::WALKS.with(std::cell::Cell::get);
    let before = walks();
    let others = pair.settle();
    assert!(pair.is_answered(&others), "the write waited for that lease");
    assert_eq!(walks(), before);
}

#[test]
fn numbers_that_are_nobodys_still_are_of_the_share_of_whose_they_were() {
    let mut store = Store::new();
    let Context { holders, leases, .. } = &mut store.engine.facts;
    let at = LeaseHolder { peer: Peer { address: store.client, local: None }, slot: 0 };
    let mut begun = 0;
    while let Some((number, _)) = holders.enter((KEYED, begun), SECRET, LATER_NS) {
        leases.request(number, at, 1, LATER_NS);
        let term = leases.term(number, LATER_NS).expect("a lease");
        assert!(leases.give_back(number, term, 2, LATER_NS));
        holders.forget(number, leases);
        begun += 1;
        assert!(begun <= HOLDERS_MOST as u64, "whatever it gives back");
    }
    // The share of the other one of two tenants in half of them is left.
    assert_eq!(begun, (HOLDERS_MOST - HOLDERS_MOST / 4) as u64);
    assert!(holders.enter((TENANT_OPEN, 1), SECRET, LATER_NS).is_some());
    let later_ns = LATER_NS + leases.length_ns();
    assert!(holders.enter((KEYED, begun), SECRET, later_ns - 1).is_none());
    assert!(holders.enter((KEYED, begun), SECRET, later_ns).is_some());
}

#[test]
fn no_address_is_lent_to_that_does_not_hear_the_store() {
    let mut pair = Pair::of(TENANT_OPEN);
    let request = |token| Header {
        client: 9,
        request: 1,
        version: 5,
        key_hash: HolderProof { token, term: 0 }.to_hash(),
        ..Header::new(Op::HolderLeaseRequest)
    };
    let now_ns = pair.now_ns;
    pair.store.hand_in_at(request(0), b"", &[], 0, now_ns);
    let mut tokens = vec![];
    for (bytes, _) in pair.store.out.messages() {
        let header = Packet::decode(bytes).unwrap().header;
        assert_eq!(header.status, Status::TryAgain);
        tokens.push(HolderProof::from_hash(header.key_hash).token);
    }
    pair.store.client = "10.0.0.2:5000".parse().unwrap();
    pair.store.hand_in_at(request(tokens[0]), b"", &[], 0, now_ns);
    assert_eq!(pair.counters().holders_begun, 0, "another address's token");
    pair.store.client = "10.0.0.1:5000".parse().unwrap();
    pair.store.hand_in_at(request(tokens[0]), b"", &[], 0, now_ns);
    assert_eq!(pair.counters().holders_begun, 1);
}

/// What the store answers who asks for a lease, from where, in these words.
fn lease_answers(pair: &mut Pair, from: SocketAddr, request: Header) -> Vec<Header> {
    let bytes = Packet::new(request, &[], &[]).to_bytes(&Secret::NONE).unwrap();
    let peer = Peer { address: from, local: None };
    pair.store.engine.receive(&bytes, peer, pair.now_ns, &mut pair.store.out);
    let answers = pair.store.out.messages().map(|(bytes, to)| {
        assert_eq!(to.address, from);
        Packet::decode(bytes).unwrap().header
    });
    let answers = answers.collect();
    pair.store.out.clear();
    answers
}

/// How the holder of a pair asks for its lease again.
fn renewal(pair: &Pair) -> Header {
    let number = pair.numbers()[0];
    let facts = &pair.store.engine.facts;
    let token = facts.holders.invalidation(number).expect("a holder").0.request;
    let term = facts.leases.term(number, pair.now_ns).expect("a lease");
    Header {
        client: 77,
        request: 999,
        version: pair.now_ns,
        epoch: Epoch::new(number, 0),
        key_hash: HolderProof { token, term }.to_hash(),
        ..Header::new(Op::HolderLeaseRequest)
    }
}

#[test]
fn nobody_lends_his_number_to_an_address_that_is_not_his() {
    let mut pair = Pair::of(TENANT_OPEN);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    pair.now_ns += 100 * MS;
    let request = renewal(&pair);
    let victim = "10.0.0.3:5000".parse().unwrap();
    let answers = lease_answers(&mut pair, victim, request);
    assert_eq!(answers.len(), 1, "as long as what was asked");
    assert_eq!(answers[0].status, Status::TryAgain);
    assert_ne!(HolderProof::from_hash(answers[0].key_hash).token, 0);
    let at = pair.store.engine.facts.leases.address(request.epoch.switch()).unwrap();
    assert_eq!(at.peer.address, pair.from);
    assert!(pair.write(b"k", b"v2"), "the holder is asked where it is");
}

#[test]
fn a_holder_that_has_moved_shows_again_that_it_hears_and_keeps_its_number() {
    let mut pair = Pair::of(KEYED);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    let numbers = pair.numbers();
    pair.from = "10.0.0.8:4500".parse().unwrap();
    pair.pass(LEASE_NS / MS / 2);
    assert_eq!((pair.numbers(), pair.counters().holders_begun), (numbers, 1));
    assert!(pair.read(b"k").is_some(), "it is the holder that it was");
    assert!(pair.write(b"k", b"v2"), "it is asked where it is now");
    assert_eq!(pair.read(b"k"), None);
}

#[test]
fn a_holder_that_asks_again_at_once_has_the_store_look_at_nothing() {
    let mut pair = Pair::of(TENANT_OPEN);
    assert!(pair.write(b"k", b"v1"));
    assert!(pair.warm(b"k").is_some());
    let from = pair.from;
    // (ms after the request before, whether it is answered)
    for (ms, is_lent) in [(100, true), (1, false), (8, false), (1, true), (9, false), (20, true)] {
        pair.now_ns += ms * MS;
        let before = pair.counters();
        let request = renewal(&pair);
        let answers = lease_answers(&mut pair, from, request);
        let after = pair.counters();
        assert_eq!(answers.iter().filter(|answer| answer.status == Status::Ok).count(), {
            usize::from(is_lent)
        });
        let refused = after.holders_refused_pace - before.holders_refused_pace;
        assert_eq!(refused, u64::from(!is_lent), "{ms} ms");
    }
}

/// Another holder of the same store, as long as it talks to nobody else.
fn beside(pair: Pair, tenant: u32, client: u64) -> Pair {
    let Pair { store, now_ns, versions, .. } = pair;
    let mut other = Pair::with(store, tenant, client);
    other.from.set_port(4000 + client as u16);
    (other.now_ns, other.versions) = (now_ns, versions);
    other
}

#[test]
fn holders_that_acknowledge_do_not_pay_for_the_first_at_their_address_that_did_not() {
    for mute in [1, 2] {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        for client in 1..=mute {
            pair = beside(pair, KEYED, client);
            assert!(pair.warm(b"k").is_some());
        }
        let mut pair = beside(pair, KEYED, 10);
        assert!(pair.warm(b"k").is_some());
        assert!(!pair.write(b"k", b"v2"), "the others are gone");
        pair.pass_until_answered();
        // It reads on, and asks for its lease again each third of one.
        for _ in 0..30 {
            pair.pass(100);
            pair.read(b"k");
        }
        assert_eq!(pair.read(b"k").is_some(), mute == 1, "{mute} were mute");
        assert_eq!(pair.counters().holders_refused_mute > 0, mute > 1);
        let mut newer = beside(pair, KEYED, 11);
        assert!(newer.warm(b"k").is_none(), "of that tenant nobody begins there");
        assert!(newer.counters().holders_refused_mute > 0);
        let mut others = beside(newer, TENANT_OPEN, 12);
        others.versions += 1000;
        assert!(others.write(b"k", b"v"));
        assert!(others.warm(b"k").is_some(), "another tenant's does");
    }
}

/// Stories in which a holder serves what a write has replaced that was answered, where the rule is
/// broken. Whether it does.
mod stories {
    use super::*;

    /// Its copy is called back.
    pub fn called_back() -> bool {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.warm(b"k").is_some());
        assert!(pair.write(b"k", b"v2"));
        pair.read(b"k").is_some_and(|value| value == b"v1")
    }

    /// It hears nothing any more, until its lease is over and the write is applied.
    pub fn lapsed() -> bool {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.warm(b"k").is_some());
        pair.deaf = true;
        assert!(!pair.write(b"k", b"v2"));
        // The holder's thread stands still meanwhile, and whoever serves reads does not.
        for _ in 0..2 * LEASE_NS / MS {
            pair.now_ns += MS;
            let now_ns = pair.now_ns;
            pair.store.engine.tick(now_ns, &mut pair.store.out);
        }
        assert_eq!(pair.store.engine.counters().write.writes_applied, 2);
        pair.read(b"k").is_some_and(|value| value == b"v1")
    }

    /// Its lease is over before it asks again, and it is lent another one.
    pub fn lent_again() -> bool {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.write(b"other", b"v"));
        assert!(pair.warm(b"k").is_some());
        for _ in 0..2 * LEASE_NS / MS {
            pair.now_ns += MS;
            let now_ns = pair.now_ns;
            pair.store.engine.tick(now_ns, &mut pair.store.out);
        }
        assert!(pair.write(b"k", b"v2"), "nobody has a lease");
        // Another key is wanted, so the lease is asked for at once.
        for _ in 0..=READS {
            pair.read(b"other");
        }
        pair.pass(50);
        pair.read(b"k").is_some_and(|value| value == b"v1")
    }

    /// A grant is on its way while the key is written.
    pub fn overtaken() -> bool {
        let mut pair = Pair::of(KEYED);
        assert!(pair.write(b"k", b"v1"));
        assert!(pair.write(b"other", b"v"));
        // It has a lease.
        assert!(pair.warm(b"other").is_some());
        // The fetch is answered, and the answer is late.
        pair.deaf = true;
        (0..READS).for_each(|_| _ = pair.read(b"k"));
        let late = pair.lost.pop().expect("a grant");
        pair.deaf = false;
        assert!(pair.write(b"k", b"v2"));
        // It asks again, under another epoch, and the late answer comes first.
        pair.mute = true;
        pair.read(b"k");
        pair.mute = false;
        let address = pair.store.engine.config().cluster.stores[0].address;
        pair.holder.take(&late, address, pair.now_ns);
        pair.read(b"k").is_some_and(|value| value == b"v1")
    }
}

#[test]
fn each_rule_is_needed_for_holders() {
    let stories: [(Mutant, fn() -> bool); 4] = [
        (Mutant::ReplicaStaysValid, stories::called_back),
        (Mutant::ReplicaOfAnyEpoch, stories::overtaken),
        (Mutant::ReplicaWithoutLease, stories::lapsed),
        (Mutant::ReplicaOfAnyTerm, stories::lent_again),
    ];
    for (mutant, is_stale) in stories {
        assert!(!is_stale(), "{}", mutant.name());
        choose(Some(mutant));
        let noticed = is_stale();
        choose(None);
        assert!(noticed, "{}: nobody noticed", mutant.name());
    }
}

/// Each may be asked for by thousands of holders, three times in a lease.
#[test]
fn leases_cost_no_look_at_each_key_that_is_being_called_back() {
    let mut store = Store::new();
    let outside = &mut store.engine.facts.outside;
    outside.watches(Watch::Tracked);
    outside.seen(LATER_NS);
    for n in 0..4_000 {
        outside.opened((KEYED, SECRET.key_hash(KEYED, format!("key {n}").as_bytes())));
    }
    let asked = || crate::directory::ASKED.with(std::cell::Cell::get);
    let before = asked();
    for switch in 1..=50 {
        let epoch = Epoch::new(switch, 0);
        let header = Header { tenant: TENANT_SYSTEM, epoch, ..Header::new(Op::LeaseRequest) };
        assert!(store.ask(header, &[]).is_some());
    }
    assert!(asked() - before <= 8_000, "{}", asked() - before);
}
