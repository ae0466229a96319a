//! A cache, and a store that is played by hand.

use std::sync::Arc;

use wire::{Cluster, Epoch, Flags, Header, HolderProof, Op, Packet, Secret, Status, TENANT_OPEN};

use crate::{Cache, Holder, HolderOptions, Miss, Nanos};

const S: Nanos = 1_000_000_000;
const READS: usize = 4;

/// A holder before a store that says what the test says.
struct Played {
    holder: Holder,
    cluster: Cluster,
}

impl Played {
    fn new(bytes: usize) -> Played {
        let cluster = Cluster::single("10.0.2.1:7117".parse().unwrap(), 1);
        let cache = Arc::new(Cache::new(bytes, Holder::stores(&cluster)));
        let options = HolderOptions { tenant: TENANT_OPEN, client: 5, first_epoch: 1 << 40 };
        let holder = Holder::new(&cluster, options, cache, S).unwrap();
        Played { holder, cluster }
    }

    fn read(&mut self, key: &[u8], now_ns: Nanos) -> Option<Vec<u8>> {
        let cache = self.holder.cache().clone();
        let hash = cache.hash(key);
        match cache.read(hash, key, now_ns, <[u8]>::to_vec) {
            Ok(value) => Some(value),
            Err(miss) => {
                if miss == Miss::Wanted {
                    self.holder.want(hash, key, now_ns);
                }
                None
            }
        }
    }

    /// What it has sent since.
    fn sent(&mut self) -> Vec<Header> {
        let sent = std::iter::from_fn(|| self.holder.next_datagram());
        sent.map(|(_, bytes)| Packet::decode(&bytes).unwrap().header).collect()
    }

    fn hear(&mut self, header: Header, key: &[u8], value: &[u8], now_ns: Nanos) {
        let header = Header { client: 5, ..header };
        let bytes = Packet::new(header, key, value).to_bytes(&Secret::NONE).unwrap();
        self.holder.take(&bytes, self.cluster.stores[0].address, now_ns);
    }

    /// Lends it a lease of two seconds, whatever it asked for last.
    fn lend(&mut self, number: u16, token: u64, term: u64, now_ns: Nanos) -> Vec<Header> {
        let asked = self.asked();
        let reply = Header {
            request: asked.request,
            version: asked.version,
            epoch: Epoch::new(number, 0),
            key_hash: HolderProof { token, term }.to_hash(),
            expiry_ms: 2000,
            ..Header::new(Op::HolderLeaseReply)
        };
        self.hear(reply, b"", b"", now_ns);
        self.sent()
    }

    /// The request for a lease that it has sent last.
    fn asked(&mut self) -> Header {
        let asked = self.sent().pop().filter(|header| header.op == Op::HolderLeaseRequest);
        asked.expect("it asks for a lease")
    }

    /// Has it show, whatever it asked for last, that it hears at its address.
    fn doubt(&mut self, token: u64, now_ns: Nanos) {
        let again = Header {
            request: self.asked().request,
            status: Status::TryAgain,
            key_hash: HolderProof { token, term: 0 }.to_hash(),
            ..Header::new(Op::HolderLeaseReply)
        };
        self.hear(again, b"", b"", now_ns);
    }

    fn grant(&mut self, asked: &Header, key: &[u8], value: &[u8], now_ns: Nanos) {
        self.grant_of(0, asked, key, value, now_ns);
    }

    /// The part of a value of so many bytes that is asked for; 0: all of it.
    fn grant_of(&mut self, total: u32, asked: &Header, key: &[u8], value: &[u8], now_ns: Nanos) {
        let grant = Header {
            flags: Flags::GRANT,
            epoch: asked.epoch,
            request: asked.request,
            key_hash: asked.key_hash,
            version: 9,
            total,
            part: asked.part,
            ..Header::new(Op::HolderGrant)
        };
        self.hear(grant, key, value, now_ns);
    }

    /// Grants a key as long as it asks for more of it.
    fn grant_all(&mut self, key: &[u8], value: &[u8], now_ns: Nanos) {
        let is_long = value.len() > wire::PART_BYTES;
        let total = if is_long { value.len() as u32 } else { 0 };
        loop {
            let asked = self.sent();
            if asked.is_empty() {
                return;
            }
            for asked in asked {
                let part = &value[usize::from(asked.part) * wire::PART..];
                let part = &part[..part.len().min(wire::PART_BYTES)];
                self.grant_of(total, &asked, key, part, now_ns);
            }
        }
    }

    /// Has so many keys read, each until it is fetched, and grants them this value.
    fn fill(&mut self, keys: usize, value: &[u8]) {
        for number in 0..keys {
            let key = format!("filled {number}").into_bytes();
            (0..READS).for_each(|_| _ = self.read(&key, S));
            self.grant_all(&key, value, S);
        }
    }

    /// Leaves room for no other value as long: twelve are there that are read more than others.
    fn fill_with_long_hot_values(&mut self) {
        self.fill(12, &vec![7; 80 << 10]);
        for number in 0..12 {
            (0..100).for_each(|_| _ = self.read(format!("filled {number}").as_bytes(), S));
        }
    }

    /// It is lent a lease, and granted a key.
    fn granted(key: &[u8], value: &[u8]) -> Played {
        let mut played = Played::new(1 << 20);
        (0..READS).for_each(|_| _ = played.read(key, S));
        let fetch = played.lend(0xc000, 7, 3, S);
        assert_eq!(fetch.len(), 1);
        assert_eq!((fetch[0].op, fetch[0].request), (Op::HolderFetch, 7));
        played.grant(&fetch[0], key, value, S);
        assert_eq!(played.read(key, S).as_deref(), Some(value));
        played
    }
}

#[test]
fn who_begins_is_asked_to_show_that_it_hears_at_its_address() {
    let mut played = Played::new(1 << 20);
    (0..READS).for_each(|_| _ = played.read(b"k", S));
    let first = played.asked();
    assert_eq!(HolderProof::from_hash(first.key_hash), HolderProof::default());
    let again = Header {
        request: first.request,
        status: Status::TryAgain,
        key_hash: HolderProof { token: 8, term: 0 }.to_hash(),
        ..Header::new(Op::HolderLeaseReply)
    };
    played.hear(again, b"", b"", S);
    let second = played.asked();
    assert_eq!(HolderProof::from_hash(second.key_hash).token, 8);
    assert_ne!(first.request, second.request);
}

#[test]
fn a_store_that_wants_to_be_shown_something_for_ever_is_not_asked_at_once_for_ever() {
    let mut played = Played::new(1 << 20);
    (0..READS).for_each(|_| _ = played.read(b"k", S));
    for token in [8, 9] {
        played.doubt(token, S);
        assert_eq!(played.holder.next_ns().map(|at_ns| at_ns > S), Some(true));
    }
    played.doubt(10, S);
    assert_eq!(played.sent(), []);
    let next_ns = played.holder.next_ns().expect("it is looked after");
    assert!(next_ns >= S + S / 100);
    played.holder.timer(next_ns);
    assert_eq!(played.sent(), [], "nobody waits any more");
    (0..READS).for_each(|_| _ = played.read(b"k", next_ns));
    let asked = played.asked();
    assert_eq!(HolderProof::from_hash(asked.key_hash).token, 10);
}

#[test]
fn who_is_to_show_where_it_is_answers_meanwhile_as_who_it_was() {
    let mut played = Played::granted(b"k", b"v");
    let later_ns = S + 2 * S / 3 + 1;
    played.holder.timer(later_ns);
    played.doubt(8, later_ns);
    let asked = played.sent();
    assert_eq!((asked.len(), asked[0].epoch), (1, Epoch::new(0, 0)));
    assert!(played.read(b"k", later_ns).is_some());
    let invalidate =
        Header { request: 7, epoch: Epoch::new(0xc000, 1), ..Header::new(Op::HolderInvalidate) };
    played.hear(invalidate, b"k", b"", later_ns);
    assert_eq!(played.sent()[0].op, Op::HolderAck);
    assert!(played.read(b"k", later_ns).is_none());
}

/// A store lends less than before where it has not heard of outside writes for a while.
#[test]
fn an_idle_lease_is_waited_for_until_it_ends() {
    for short in [0, 1] {
        let mut played = Played::granted(b"k", b"v");
        let mut count = 0;
        while let Some(now_ns) = played.holder.next_ns() {
            played.holder.timer(now_ns);
            count += 1;
            assert!(count < 100, "it is idle");
            let is_over = played.holder.next_ns().is_none_or(|at_ns| at_ns > now_ns);
            assert!(is_over, "its time would come for ever");
            let sent = played.sent().into_iter();
            for asked in sent.filter(|header| header.op == Op::HolderLeaseRequest) {
                let reply = Header {
                    request: asked.request,
                    epoch: Epoch::new(0xc000, 0),
                    key_hash: HolderProof { token: 7, term: 3 }.to_hash(),
                    expiry_ms: if count % 2 == short { 1000 } else { 2000 },
                    ..Header::new(Op::HolderLeaseReply)
                };
                played.hear(reply, b"", b"", now_ns);
            }
        }
        assert_eq!(played.holder.cache().kept(), (0, 0));
    }
}

#[test]
fn another_number_ends_what_was_granted_under_the_one_before_though_its_term_is_the_same() {
    for (number, token, serves) in [(0xc000, 7, true), (0xc001, 7, false), (0xc000, 8, false)] {
        let mut played = Played::granted(b"k", b"v");
        let later_ns = S + 2 * S / 3 + 1;
        played.holder.timer(later_ns);
        played.lend(number, token, 3, later_ns);
        assert_eq!(played.read(b"k", later_ns).is_some(), serves, "{number:x} {token}");
    }
}

#[test]
fn without_its_token_nobody_takes_a_copy_or_gives_one() {
    let mut played = Played::granted(b"k", b"v");
    let invalidate = |request| Header {
        request,
        epoch: Epoch::new(0xc000, 1),
        ..Header::new(Op::HolderInvalidate)
    };
    played.hear(invalidate(6), b"k", b"", S);
    assert!(played.sent().is_empty());
    assert!(played.read(b"k", S).is_some());
    played.hear(invalidate(7), b"k", b"", S);
    let ack = played.sent();
    assert_eq!((ack[0].op, ack[0].version, ack[0].request), (Op::HolderAck, 1, 7));
    assert!(ack[0].epoch.number() > 1 << 40);
    assert_eq!(ack[0].expiry_ms, 2, "reads that the copy has answered");
    assert!(played.read(b"k", S).is_none());
    let fetch = played.sent();
    let forged = Header { request: 6, ..fetch[0] };
    played.grant(&forged, b"k", b"forged", S);
    assert!(played.read(b"k", S).is_none());
}

#[test]
fn a_refusal_says_for_how_long_not_to_ask() {
    let mut played = Played::granted(b"k", b"v");
    let invalidate =
        Header { request: 7, epoch: Epoch::new(0xc000, 1), ..Header::new(Op::HolderInvalidate) };
    played.hear(invalidate, b"k", b"", S);
    played.read(b"k", S);
    let fetch = played.sent().pop().unwrap();
    let refusal = Header {
        request: 7,
        epoch: fetch.epoch,
        status: Status::TryAgain,
        expiry_ms: 50,
        ..Header::new(Op::HolderGrant)
    };
    played.hear(refusal, b"k", b"", S);
    played.read(b"k", S + 49_999_999);
    assert!(played.sent().is_empty());
    played.read(b"k", S + 50_000_000);
    assert_eq!(played.sent()[0].op, Op::HolderFetch);
}

/// A read that goes by packet because a store is at work on its key costs a packet, and there is
/// one of each as long as that is said.
#[test]
fn a_store_is_said_to_be_at_work_on_a_key_only_while_it_is() {
    let refusal = |asked: &Header, status| Header {
        request: asked.request,
        epoch: asked.epoch,
        key_hash: asked.key_hash,
        status,
        expiry_ms: 50,
        ..Header::new(Op::HolderGrant)
    };
    type End<'a> = &'a dyn Fn(&mut Played, &Header);
    let no_room: End<'_> = &|played, asked| {
        played.grant_of(200 << 10, asked, b"k", &[0; wire::PART_BYTES], S);
    };
    let too_long: End<'_> = &|played, asked| {
        played.grant_of(2 << 20, asked, b"k", &[0; wire::PART_BYTES], S);
    };
    let absent: End<'_> =
        &|played, asked| played.hear(refusal(asked, Status::NotFound), b"k", b"", S);
    let put_off: End<'_> =
        &|played, asked| played.hear(refusal(asked, Status::TryAgain), b"k", b"", S);
    let rows = [
        ("no room", no_room, Miss::Elsewhere),
        ("too long", too_long, Miss::Elsewhere),
        ("absent", absent, Miss::Elsewhere),
        ("put off", put_off, Miss::AtStore),
    ];
    for (what, end, expected) in rows {
        let mut played = Played::granted(b"lent", b"v");
        played.fill_with_long_hot_values();
        (0..READS).for_each(|_| _ = played.read(b"k", S));
        let asked = played.sent().remove(0);
        let cache = played.holder.cache().clone();
        let read = || cache.read(cache.hash(b"k"), b"k", S, |_| ());
        assert_eq!(read(), Err(Miss::AtStore), "it is being fetched");
        end(&mut played, &asked);
        assert_eq!(read(), Err(expected), "{what}");
    }
    // Nor where no store has answered at all.
    let mut played = Played::new(1 << 20);
    (0..READS).for_each(|_| _ = played.read(b"k", S));
    let cache = played.holder.cache().clone();
    let read = |now_ns| cache.read(cache.hash(b"k"), b"k", now_ns, |_| ());
    let mut now_ns = S;
    while read(now_ns) == Err(Miss::AtStore) {
        now_ns = played.holder.next_ns().expect("it waits for its lease");
        assert!(now_ns < 10 * S);
        played.holder.timer(now_ns);
    }
    assert_eq!(read(now_ns), Err(Miss::Elsewhere));
}

#[test]
fn what_is_kept_is_what_is_read_most_within_its_bytes() {
    const BYTES: usize = 1 << 20;
    let mut played = Played::new(BYTES);
    let value = vec![0; 1000];
    let key = |number: usize| format!("key {number}").into_bytes();
    let visit = |played: &mut Played, number: usize| {
        let is_hit = played.read(&key(number), S).is_some();
        for asked in played.sent() {
            match asked.op {
                Op::HolderLeaseRequest => {
                    let reply = Header {
                        request: asked.request,
                        version: asked.version,
                        epoch: Epoch::new(0xc000, 0),
                        key_hash: HolderProof { token: 7, term: 3 }.to_hash(),
                        expiry_ms: 2000,
                        ..Header::new(Op::HolderLeaseReply)
                    };
                    played.hear(reply, b"", b"", S);
                    let fetch = played.sent().pop().expect("what waited");
                    played.grant(&fetch, &key(number), &value, S);
                }
                _ => played.grant(&asked, &key(number), &value, S),
            }
        }
        let (bytes, _) = played.holder.cache().kept();
        assert!(bytes <= BYTES, "{bytes}");
        is_hit
    };
    // Some that are read often, among many of which each is read now and then.
    let mut hits = 0;
    for round in 0..400 {
        for hot in 0..20 {
            hits += usize::from(visit(&mut played, hot));
        }
        (0..20).for_each(|at| _ = visit(&mut played, 1000 + (round * 20 + at) % 4000));
    }
    assert!(hits > 7500, "{hits} of 8000");
    // A scan takes nothing away from them.
    (0..20_000).for_each(|at| _ = visit(&mut played, 10_000 + at));
    assert!((0..20).all(|hot| visit(&mut played, hot)));
}

#[test]
fn keys_that_are_read_once_are_not_fetched_and_one_that_is_read_often_stays() {
    const KEYS: usize = 50_000;
    let cache = Cache::new(1 << 20, 1);
    let read = |key: &str| {
        let hash = cache.hash(key.as_bytes());
        cache.read(hash, key.as_bytes(), S, |_| ()).expect_err("no store has granted it")
    };
    let (mut fetches, mut of_often) = (0, vec![]);
    for number in 0..KEYS {
        fetches += usize::from(read(&format!("key {number}")) == Miss::Wanted);
        // Ten times in a tick.
        if number % 400 == 0 {
            of_often.push(read("often"));
        }
    }
    assert!(fetches < KEYS / 20, "{fetches} fetches");
    let is_wanted = |miss: &&Miss| **miss == Miss::Wanted;
    assert_eq!(of_often.iter().filter(is_wanted).count(), 1, "{of_often:?}");
}

#[test]
fn a_value_for_which_there_is_no_room_is_not_asked_for_at_once_and_takes_none() {
    /// Of the counts of reads.
    const SKETCH: usize = 2048;
    let mut played = Played::new(8192 + SKETCH);
    let value = [7; 1000];
    let key = |number: usize| format!("key {number}").into_bytes();
    for number in 0..6 {
        (0..READS).for_each(|_| _ = played.read(&key(number), S));
        let asked = match number {
            0 => played.lend(0xc000, 7, 3, S),
            _ => played.sent(),
        };
        played.grant(&asked[0], &key(number), &value, S);
        (0..100).for_each(|_| assert!(played.read(&key(number), S).is_some()));
    }
    (0..READS).for_each(|_| _ = played.read(b"one more", S));
    let asked = played.sent();
    played.grant(&asked[0], b"one more", &value, S);
    assert!((0..6).all(|number| played.read(&key(number), S).is_some()));
    assert_eq!(played.holder.cache().kept().1, 6);
    // Its reads are counted meanwhile, until it is the one that is read most.
    (0..200).for_each(|_| assert!(played.read(b"one more", S + S / 4).is_none()));
    assert_eq!(played.sent(), []);
    let later = S + S / 2;
    assert!(played.read(b"one more", later).is_none());
    let asked = played.sent();
    played.grant(&asked[0], b"one more", &value, later);
    assert!(played.read(b"one more", later).is_some());
    assert_eq!(played.holder.cache().kept().1, 6, "in the place of another");
}

/// In the place of many more than go at a time.
#[test]
fn a_long_value_that_is_read_most_is_kept_in_the_place_of_short_ones() {
    let mut played = Played::granted(b"lent", b"v");
    played.fill(6000, &[7; 10]);
    let (filled, _) = played.holder.cache().kept();
    let value = vec![8; 64 << 10];
    let mut rounds = 0;
    while played.read(b"long", S + rounds * S / 2).is_none() {
        assert!(rounds < 3, "it is kept in the end");
        let now_ns = S + rounds * S / 2;
        (0..1000).for_each(|_| _ = played.read(b"long", now_ns));
        played.grant_all(b"long", &value, now_ns);
        rounds += 1;
    }
    let (kept, _) = played.holder.cache().kept();
    assert!(kept + 4096 > filled, "{kept} of {filled}: no more has gone than was needed");
}

#[test]
fn where_short_values_give_way_to_long_ones_their_memory_is_given_back() {
    const BYTES: usize = 1 << 20;
    let mut played = Played::granted(b"lent", b"v");
    played.fill(6000, &[7; 8]);
    let value = vec![8; 100_000];
    let keys = (0..10).map(|number| format!("long {number}").into_bytes());
    let keys: Vec<Vec<u8>> = keys.collect();
    for round in 0..4 {
        let now_ns = S + round * S / 2;
        for key in &keys {
            (0..100).for_each(|_| _ = played.read(key, now_ns));
            played.grant_all(key, &value, now_ns);
        }
    }
    let kept = keys.iter().filter(|key| played.read(key, S + 3 * S / 2).is_some());
    assert_eq!(kept.count(), keys.len());
    let mut taken = 0;
    played.holder.cache().each(|shelf| taken += shelf.taken());
    assert!(taken <= BYTES / 4 * 5, "{taken} of {BYTES}");
}

#[test]
fn of_a_value_that_has_no_room_no_more_is_asked_for_than_says_how_long_it_is() {
    let mut played = Played::granted(b"lent", b"v");
    played.fill_with_long_hot_values();
    (0..READS).for_each(|_| _ = played.read(b"long", S));
    let asked = played.sent().remove(0);
    played.grant_of(100 << 10, &asked, b"long", &[8; wire::PART_BYTES], S);
    assert_eq!(played.sent().len(), 0, "parts are asked for");
    assert_eq!(played.holder.cache().kept().1, 13, "nothing has gone");
}

#[test]
fn values_of_which_parts_are_here_have_a_part_of_its_bytes() {
    const TOTAL: u32 = 200 << 10;
    let mut played = Played::granted(b"lent", &[0; 10]);
    let mut begun = |key: &[u8]| {
        (0..READS).for_each(|_| _ = played.read(key, S));
        let asked = played.sent().remove(0);
        played.grant_of(TOTAL, &asked, key, &[0; wire::PART_BYTES], S);
        played.sent().len()
    };
    assert!(begun(b"first") > 0);
    assert_eq!(begun(b"second"), 0, "both have more than a quarter of a MiB");
}

#[test]
fn who_had_no_copy_says_so_to_an_invalidation() {
    let mut played = Played::granted(b"kept", b"value");
    (0..READS).for_each(|_| _ = played.read(b"on its way", S));
    let asked = played.sent().remove(0);
    for (key, expected) in
        [(&b"kept"[..], 1), (b"kept", wire::HAD_NONE), (b"on its way", 0), (b"x", wire::HAD_NONE)]
    {
        let invalidate = Header {
            request: 7,
            epoch: Epoch::new(0xc000, asked.epoch.number()),
            ..Header::new(Op::HolderInvalidate)
        };
        played.hear(invalidate, key, b"", S);
        let acks = played.sent();
        assert_eq!(acks[0].op, Op::HolderAck);
        assert_eq!(acks[0].expiry_ms, expected, "{}", key.escape_ascii());
    }
}

#[test]
fn who_leaves_serves_nothing_and_tells_stores_before_it_forgets_what_it_kept() {
    let mut played = Played::granted(b"k", b"v");
    played.holder.leave(S + 1);
    let cache = played.holder.cache().clone();
    assert_eq!(cache.version(cache.hash(b"k"), b"k", S + 1), None);
    assert_eq!(played.sent()[0].op, Op::HolderReturn);
    assert_eq!(cache.kept().1, 1);
    cache.clear();
    assert_eq!(cache.kept(), (0, 0));
}
