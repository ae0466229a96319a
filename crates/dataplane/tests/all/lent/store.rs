//! What a store says: prepare, begin, give back; late, twice, and with no room.

use harness::{Message, message::secret_of};
use wire::{Epoch, Flags, Header, Op, Status};

use super::world::{Expectation::*, *};

const NEW: &[u8] = b"new";

fn prepare_with(at: &LoanInProgress, change: fn(&mut Message)) -> Message {
    prepare(&at.w, SIGNED, X, true, L).with(change)
}

/// Prepared as the owner's, under that life.
fn prepared_under(life: u16) -> LoanInProgress {
    let at = LoanInProgress::first();
    let loan = prepared(&at.w, &prepare(&at.w, SIGNED, X, true, life));
    LoanInProgress { loan, ..at }
}

#[test]
fn a_loan_is_prepared() {
    check(PREPARED);
}

pub const PREPARED: &[Row] = &[
    Row::of("for the owner")
        .packet(|at| prepare(&at.w, SIGNED, X, true, L))
        .then(Lends(Status::Ok), &["lend"]),
    Row::of("for the keeper, which needs no lease")
        .given(|| LoanInProgress::first().and(|at| at.w.outlive_lease()))
        .packet(|at| prepare(&at.w, SIGNED, X, false, L))
        .then(Lends(Status::Ok), &["lend"]),
    Row::of("beside a loan that is sealed")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|at| prepare(&at.w, SIGNED, X, true, L + 1))
        .then(Lends(Status::Ok), &["lend"]),
    Row::of("in the place of one that came to nothing")
        .given(|| prepared_under(L + 1))
        .packet(|at| prepare(&at.w, SIGNED, X, true, L))
        .then(Lends(Status::Ok), &["lend"]),
    to_owner("beside one that is active: it says which")
        .packet(|at| prepare(&at.w, SIGNED, X, true, L + 1))
        .then(Lends(Status::Mismatch), &["lend_refused"]),
    to_owner("beside one that is active and another store's")
        .packet(|at| {
            let lend = prepare(&at.w, SIGNED, X, true, L + 1);
            lend.with(|lend| lend.header.request += 1)
        })
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("the sealed one's word comes late")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|at| prepare(&at.w, SIGNED, X, true, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("the owner has no lease")
        .given(|| LoanInProgress::first().and(|at| at.w.outlive_lease()))
        .packet(|at| prepare(&at.w, SIGNED, X, true, L))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("the lease is another store's")
        .packet(|at| {
            let lend = prepare(&at.w, SIGNED, X, true, L);
            lend.sent_by(harness::message::address(false, 3))
        })
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("there is no such lease")
        .packet(|at| prepare_with(at, |lend| lend.header.request = 1 << 32))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("the other switch is this one")
        .packet(|at| prepare_with(at, |lend| lend.header.node = X))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("there is no other switch")
        .packet(|at| prepare_with(at, |lend| lend.header.node = 0))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("the open tenant's keys never")
        .packet(|at| prepare(&at.w, OPEN, X, true, L))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("a tenant that did not ask for it")
        .packet(|at| prepare(&at.w, PLAIN, X, true, L))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("a tenant that nobody knows here")
        .packet(|at| prepare(&at.w, UNKNOWN, X, true, L))
        .then(Lends(Status::TryAgain), &["lend_refused"]),
    Row::of("at another switch: it goes on")
        .packet(|at| prepare(&at.w, SIGNED, 33, true, L))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("forged")
        .packet(|at| prepare(&at.w, SIGNED, X, true, L).signed_with(secret_of(SIGNED)))
        .then(Dropped, &["drop_forged"]),
];

#[test]
fn a_word_that_comes_twice_is_answered_as_before() {
    in_both(|| {
        let x = switch(X);
        let lend = prepare(&x, SIGNED, X, true, L);
        let epoch = prepared(&x, &lend);
        assert_eq!(prepared(&x, &lend), epoch, "prepared");
        let begins = begin(&x, SIGNED, epoch, true, L);
        send(&x, &begins, &["lend"]);
        assert_eq!(prepared(&x, &lend), epoch, "active");
        let (header, _) = send(&x, &begins, &["lend"]).system();
        assert_eq!((header.status, header.epoch), (Status::Ok, epoch));
    });
}

#[test]
fn only_what_was_prepared_so_begins() {
    check(BEGUN);
}

pub const BEGUN: &[Row] = &[
    Row::of("prepared")
        .given(|| prepared_under(L))
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L))
        .then(Lends(Status::Ok), &["lend"]),
    Row::of("a beginning that comes again leaves the value")
        .given(|| {
            LoanInProgress::owner()
                .replied(1, 1, b"new")
                .and(|at| send(&at.w, &begin(&at.w, SIGNED, at.loan, true, L), &["lend"]))
        })
        .packet(|_| Message::read(SIGNED, KEY).padded(200))
        .then(Read(BASE + 1, b"new"), &["lent_read"]),
    Row::of("never prepared")
        .packet(|at| begin(&at.w, SIGNED, Epoch::new(X, 5), true, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("prepared under another epoch")
        .given(|| prepared_under(L))
        .packet(|at| {
            let before = Epoch::new(X, at.loan.number() - 1);
            begin(&at.w, SIGNED, before, true, L)
        })
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("prepared under another life")
        .given(|| prepared_under(L + 1))
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("prepared to keep")
        .given(|| prepared_under(L))
        .packet(|at| begin(&at.w, SIGNED, at.loan, false, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("sealed")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("given up before it began")
        .given(|| {
            prepared_under(L).and(|at| send(&at.w, &take(SIGNED, X, L, true, VERSION), &["take"]))
        })
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L))
        .then(Lends(Status::NotFound), &["lend_refused"]),
    Row::of("a bit of it flipped")
        .given(|| prepared_under(L))
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L).with_a_flipped_bit())
        .then(Dropped, &["drop_spoiled"]),
    Row::of("without a checksum")
        .given(|| prepared_under(L))
        .packet(|at| begin(&at.w, SIGNED, at.loan, true, L).without_checksum())
        .then(Dropped, &["drop_spoiled"]),
];

#[test]
fn what_was_kept_is_given_back() {
    check(TAKEN);
}

pub const TAKEN: &[Row] = &[
    to_owner("of the owner, which nobody wrote to: the store has it")
        .packet(|_| take(SIGNED, X, L, true, VERSION))
        .then(Takes(Status::Ok, Flags::GRANT, VERSION, b""), &["take"]),
    Row::of("of the owner, over IPv6")
        .given(|| LoanInProgress::owner().replied(1, 1, NEW))
        .packet(|_| take(SIGNED, X, L, true, VERSION).over_ipv6())
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, NEW), &["take"]),
    to_keeper("of the keeper, where nothing was kept")
        .packet(|_| take(SIGNED, X, L, false, 5))
        .then(Takes(Status::Ok, Flags::NONE, VERSION, b""), &["take"]),
    Row::of("of the keeper, which goes on")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW))
        .packet(|_| take(SIGNED, X, L, false, VERSION))
        .then(Takes(Status::Ok, Flags::NONE, BASE + 1, NEW), &["take"]),
    Row::of("what the store has flushed is not sent again")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW))
        .packet(|_| take(SIGNED, X, L, false, BASE + 1))
        .then(Takes(Status::Ok, Flags::NONE, BASE + 1, b""), &["take"]),
    Row::of("sealed, and asked again")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed())
        .packet(|_| take(SIGNED, X, L, false, VERSION))
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, NEW), &["take"]),
    Row::of("as long as any packet's, in one that is shorter")
        .given(|| LoanInProgress::keeper().kept(1, 1, &[b'l'; 1452 - 80 - 16]))
        .packet(|_| take(SIGNED, X, L, true, VERSION).padded(3))
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, &[b'l'; 1452 - 80 - 16]), &["take"]),
    Row::of("a write was kept")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed())
        .packet(|_| asks(1))
        .then(Takes(Status::Ok, Flags::GRANT.with(Flags::CACHED), BASE + 1, NEW), &["take"]),
    Row::of("a write was not")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed())
        .packet(|_| asks(2))
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, NEW), &["take"]),
    Row::of("a write is too old to tell")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"old").kept(900, 2, NEW).sealed())
        .packet(|_| asks(1))
        .then(Takes(Status::Ok, Flags::GRANT.with(Flags::ALL), BASE + 2, NEW), &["take"]),
    Row::of("no loan")
        .packet(|_| take(SIGNED, X, L, true, VERSION))
        .then(Takes(Status::NotFound, Flags::NONE, VERSION, b""), &["take"]),
    to_owner("of a loan with another life")
        .packet(|_| take(SIGNED, X, L + 1, true, VERSION))
        .then(Takes(Status::NotFound, Flags::NONE, VERSION, b""), &["take"]),
    Row::of("which goes on")
        .given(|| {
            LoanInProgress::owner()
                .and(|at| send(&at.w, &take(SIGNED, X, L + 1, true, VERSION), &["take"]))
        })
        .packet(|_| Message::read(SIGNED, KEY).padded(200))
        .then(Read(VERSION, V), &["lent_read"]),
    Row::of("only prepared: it ends before it began")
        .given(|| prepared_under(L))
        .packet(|_| take(SIGNED, X, L, true, VERSION))
        .then(Takes(Status::Ok, Flags::GRANT, 0, b""), &["take"]),
    Row::of("of a tenant that is gone")
        .given(|| LoanInProgress::owner().replied(1, 1, NEW).without_tenant())
        .packet(|_| take(SIGNED, X, L, true, VERSION))
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, NEW), &["take"]),
    Row::of("the store has all there was")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed())
        .packet(|_| over(Flags::NONE))
        .then(Takes(Status::Ok, Flags::NONE, 0, b""), &["take"]),
    Row::of("it is said twice")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed().over(Flags::NONE))
        .packet(|_| over(Flags::NONE))
        .then(Takes(Status::Ok, Flags::NONE, 0, b""), &["take"]),
    Row::of("of an owner, too")
        .given(|| LoanInProgress::owner().replied(1, 1, NEW).sealed())
        .packet(|_| over(Flags::NONE))
        .then(Takes(Status::Ok, Flags::NONE, 0, b""), &["take"]),
    Row::of("a store that finds an old journal asks for it then")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed().over(Flags::NONE))
        .packet(|_| take(SIGNED, X, L, true, 0))
        .then(Takes(Status::Ok, Flags::GRANT, 0, b""), &["take"]),
    Row::of("which writes were kept is known as before")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed().over(Flags::NONE))
        .packet(|_| asks(1))
        .then(Takes(Status::Ok, Flags::GRANT.with(Flags::CACHED), 0, b""), &["take"]),
    Row::of("until nobody asks any more")
        .given(|| LoanInProgress::keeper().kept(1, 1, NEW).sealed().over(Flags::COMPARE))
        .packet(|_| asks(1))
        .then(Takes(Status::NotFound, Flags::NONE, VERSION, b""), &["take"]),
    Row::of("what was never sealed is sealed first, and keeps its value")
        .given(|| LoanInProgress::owner().replied(1, 1, NEW))
        .packet(|_| over(Flags::COMPARE))
        .then(Takes(Status::Ok, Flags::GRANT, BASE + 1, NEW), &["take"]),
    to_owner("at another switch: it goes on")
        .packet(|_| take(SIGNED, 33, L, true, VERSION))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("forged")
        .packet(|_| take(SIGNED, X, L, true, VERSION).with_a_wrong_tag())
        .then(Dropped, &["drop_forged"]),
];

/// Asks about that write of the usual client.
fn asks(number: u64) -> Message {
    let mut take = take(SIGNED, X, L, true, VERSION);
    take.header.client = Message::from_client(Op::WriteRequest, SIGNED, KEY).header.client;
    take.header.request = number;
    take
}

/// Keys of a tenant whose records stand in one set, by what the switch hashes.
fn keys_of_a_set(tenant: u32) -> Vec<Vec<u8>> {
    let set = |key: &[u8]| {
        let hash = secret_of(tenant).key_hash(tenant, key).0;
        let low = u64::from_be_bytes(hash[8..].try_into().expect("eight bytes"));
        (low ^ u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15)) & 127
    };
    let keys = (0..).map(|number| format!("key{number}").into_bytes());
    keys.filter(|key| set(key) == 5).take(10).collect()
}

fn about(key: &[u8], mut message: Message) -> Message {
    let tenant = message.header.tenant;
    message.key = key.into();
    message.header.key_hash = secret_of(tenant).key_hash(tenant, key);
    message
}

/// What the switch counts of windows, of a tenant and of all.
fn windows(at: &LoanInProgress) -> [u64; 2] {
    let tables = at.w.switch.backing();
    [SIGNED % 4096, 4096].map(|place| {
        let count = tables.element("kept_counts", place).expect("an element");
        u64::from_ne_bytes(count.try_into().expect("eight bytes"))
    })
}

#[test]
fn windows_are_given_back_with_their_loan() {
    in_both(|| {
        let of_another =
            |at: &LoanInProgress| at.keep(1, 2, NEW).with(|keep| keep.header.client = 5);
        let at = LoanInProgress::keeper().kept(1, 1, NEW).kept(2, 2, NEW);
        send(&at.w, &of_another(&at), &["keep"]);
        assert_eq!(windows(&at), [2, 2]);
        let at = at.sealed().over(Flags::NONE);
        assert_eq!(windows(&at), [2, 2], "the store may ask");
        let at = at.over(Flags::COMPARE);
        assert_eq!(windows(&at), [0, 0]);
    });
}

/// Two CPUs that have the same word at once may prepare two records of one loan.
#[test]
fn what_was_prepared_twice_begins_once_and_ends_for_good() {
    in_both(|| {
        let at = prepared_under(L);
        let tables = at.w.switch.backing();
        let places = 0..tables.elements("kept").expect("a table");
        let element = |place| tables.element("kept", place).expect("an element");
        let place = places.into_iter().find(|place| element(*place)[4] != 0);
        let place = place.expect("it is prepared");
        assert_eq!(place % 8, 0, "the first way of its set");
        // The twin stands before the record that begins.
        let (mut record, tag) = (element(place), tables.element("kept_tags", place / 8));
        tables.set_element("kept", place + 1, &record).expect("writable");
        record[EPOCH] ^= 0x40;
        tables.set_element("kept", place, &record).expect("writable");
        let mut tags = tag.expect("an element");
        tags.copy_within(0..4, 4);
        let written = tables.set_element("kept_tags", place / 8, &tags);
        written.expect("writable");
        let begins = begin(&at.w, SIGNED, at.loan, true, L);
        send(&at.w, &begins, &["lend"]);
        let read = Message::read(SIGNED, KEY).padded(200);
        send(&at.w, &read, &["lent_read"]);
        let ends = take(SIGNED, X, L, true, VERSION);
        let (is, _) = send(&at.w, &ends, &["take"]).system();
        assert_eq!((is.status, is.version), (Status::Ok, VERSION));
        send(&at.w, &read, &["bypass_no_discipline", "pass_local"]);
        let twin = Epoch::new(X, at.loan.number() ^ 0x40);
        let begins = begin(&at.w, SIGNED, twin, true, L);
        send(&at.w, &begins, &["lend_refused"]);
    });
}

/// The store asks for a record of that key in the switch; what it is told.
fn asks_for_room(at: &LoanInProgress, tenant: u32, key: &[u8], counts: &[&str]) -> Header {
    let lend = about(key, prepare(&at.w, tenant, X, true, L));
    send(&at.w, &lend, counts).system().0
}

#[test]
fn a_tenant_has_no_more_of_a_set_than_it_leaves() {
    in_both(|| {
        let at = LoanInProgress::first();
        let keys = keys_of_a_set(SIGNED);
        for key in &keys[..4] {
            let epoch = asks_for_room(&at, SIGNED, key, &["lend"]).epoch;
            let begins = about(key, begin(&at.w, SIGNED, epoch, true, L));
            send(&at.w, &begins, &["lend"]);
        }
        asks_for_room(&at, SIGNED, &keys[4], &["lend_refused"]);
        for (key, counts) in keys_of_a_set(ROTATING).iter().zip(["lend", "lend", "lend_refused"]) {
            asks_for_room(&at, ROTATING, key, &[counts]);
        }
        for key in &keys[..4] {
            let read = about(key, Message::read(SIGNED, KEY).padded(200));
            send(&at.w, &read, &["lent_read"]);
        }
    });
}

#[test]
fn a_full_set_has_room_once_a_store_has_all_there_was_of_one() {
    in_both(|| {
        let at = LoanInProgress::first();
        let keys = keys_of_a_set(SIGNED);
        let epoch = asks_for_room(&at, SIGNED, &keys[0], &["lend"]).epoch;
        let begins = about(&keys[0], begin(&at.w, SIGNED, epoch, true, L));
        send(&at.w, &begins, &["lend"]);
        // Another tenant's loans have the other places.
        let tables = at.w.switch.backing();
        let places = 0..tables.elements("kept").expect("a table");
        let element = |place| tables.element("kept", place).expect("an element");
        let place = places.into_iter().find(|place| element(*place)[4] != 0);
        let place = place.expect("it is lent");
        assert_eq!(place % 8, 0, "the first way of its set");
        let mut others = element(place);
        others[TENANT..TENANT + 4].copy_from_slice(&ROTATING.to_ne_bytes());
        for way in 1..8 {
            tables.set_element("kept", place + way, &others).expect("writable");
        }
        asks_for_room(&at, SIGNED, &keys[1], &["lend_refused"]);
        // The store that sealed it may be down, and so may its backend.
        send(&at.w, &about(&keys[0], take(SIGNED, X, L, true, VERSION)), &["take"]);
        let at = at.ago(SEEN_NS, 11_000 * MS);
        asks_for_room(&at, SIGNED, &keys[1], &["lend_refused"]);
        // Which writes were kept is known for ten seconds more.
        send(&at.w, &about(&keys[0], over(Flags::NONE)), &["take"]);
        asks_for_room(&at, SIGNED, &keys[1], &["lend_refused"]);
        let at = at.ago(SEEN_NS, 9_000 * MS);
        asks_for_room(&at, SIGNED, &keys[1], &["lend_refused"]);
        let at = at.ago(SEEN_NS, 11_000 * MS);
        asks_for_room(&at, SIGNED, &keys[1], &["lend"]);
        // What is active stays, however long.
        asks_for_room(&at, SIGNED, &keys[2], &["lend_refused"]);
        let taken = about(&keys[0], take(SIGNED, X, L, true, VERSION));
        let (is, _) = send(&at.w, &taken, &["take"]).system();
        assert_eq!(is.status, Status::NotFound);
    });
}
