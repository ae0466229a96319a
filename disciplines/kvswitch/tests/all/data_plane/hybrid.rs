//! Both kinds of items beside each other: copies, which the switch answers from, and records of
//! replicas.

use dataplane::Event;
use harness::{Switch, message::secret_of, switch::on_roads};

use super::world::{Leaves::*, *};

/// A key with a copy here; [`KEY`] has replicas at A and B.
const COPIED: &[u8] = b"key0000000000077";
const VALUE: &[u8] = b"a value that stands in the switch";
const NEW: &[u8] = b"another";

fn both(w: &mut World) {
    hot(w, &[A, B], &[]);
    w.cached(SIGNED, COPIED, VALUE);
}

fn read_copied() -> Message {
    Message::read(SIGNED, COPIED).padded(129)
}

fn write_copied() -> Message {
    Message::write(SIGNED, COPIED, NEW)
}

/// The home's reply, which grants the switch what its entry waits for.
fn granted(w: &World, op: Op, value: &[u8]) -> Message {
    on_a_road(Message::grant(op, SIGNED, COPIED, value, w.epoch(SIGNED, COPIED)))
}

/// To a client at an address that there is a way to.
fn on_a_road(mut reply: Message) -> Message {
    reply.to.set_ip([10, 0, 0, 4].into());
    reply
}

const HIT: Step = (|_| read_copied(), &[Answered(VALUE)], &["hit"]);
const ASKS: Step = (|_| read_copied(), &[Stamped { grant: true }], &["read_invalid", "forward"]);

/// What a copy does not answer is counted as reads of cold keys are, and reported as of a key with
/// an item.
fn what_a_copy_does_not_answer_is_reported() {
    let mut w = world();
    both(&mut w);
    w.send(read_copied());
    w.send(write_copied());
    for _ in 0..THRESHOLD + 3 {
        w.send(read_copied());
    }
    let hash = secret_of(SIGNED).key_hash(SIGNED, COPIED);
    let estimate = w.switch.sketches.estimate(SIGNED, hash, 0);
    assert_eq!(estimate, u64::from(THRESHOLD + 3));
    let told: Vec<Event> = w.switch.events.drain().expect("the ring").collect();
    let unanswered = Event::Hot {
        tenant: SIGNED,
        key: COPIED.into(),
        count: THRESHOLD,
        window: 0,
        has_item: true,
    };
    assert_eq!(told, [unanswered]);
}

#[test]
fn what_a_copy_does_not_answer_is_reported_once_in_a_window() {
    on_roads(what_a_copy_does_not_answer_is_reported);
}

const ROWS: &[Row] = &[
    Row::of("a copy is answered here, a record sends to replicas")
        .given(both)
        .steps(&[
            HIT,
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            HIT,
            (|_| read(), &[To(B)], &["redirect", "forward"]),
        ])
        .loads(&[(A, 1, 0), (B, 1, 0)]),
    Row::of(
        "a write of a copy's key is stamped, its reply brings the value; a record's goes to all",
    )
    .given(both)
    .steps(&[
        (|_| write_copied(), &[Stamped { grant: true }], ALONE_HOME),
        ASKS,
        (|_| write(), &[ToAll, Update(A), Update(B)], WITH_TWO),
        (|w| granted(w, Op::WriteReply, NEW), &[AsItIs], &["grant_installed", "forward"]),
        (|_| read_copied(), &[Answered(NEW)], &["hit"]),
        (|_| read(), &[AsItIs], &["redirect_invalid", "forward"]),
    ])
    .loads(&[(HOME, 4, 1), (A, 1, 0), (B, 1, 0)]),
    Row::of("a delete of a copy's key")
        .given(both)
        .steps(&[
            (|_| Message::delete(SIGNED, COPIED), &[Stamped { grant: true }], ALONE_HOME),
            ASKS,
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("a write that went to replicas elsewhere is stamped here all the same")
        .given(both)
        .steps(&[
            (
                |_| write_copied().with(|write| write.header.node = NODE_ALL),
                &[StampedToAll],
                ALONE_HOME,
            ),
            ASKS,
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("what the home invalidates is asked for again, and comes with a read's reply")
        .given(|w| {
            both(w);
            let granted = Epoch::new(Switch::ID, w.switch.table.epoch());
            let invalidate = Message::from_store(Op::Invalidate, SIGNED, COPIED).epoch(granted);
            w.send_as("invalidate", invalidate);
        })
        .steps(&[
            ASKS,
            (|w| granted(w, Op::ReadReply, VALUE), &[AsItIs], &["grant_installed", "forward"]),
            HIT,
        ])
        .loads(&[(HOME, 1, 1)]),
    Row::of("without the home's lease nothing is answered")
        .given(|w| {
            both(w);
            w.outlive_lease();
        })
        .steps(&[
            (|_| read_copied(), &[AsItIs], &["read_no_lease", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
        ])
        .loads(&[(HOME, 1, 0), (A, 1, 0)]),
    Row::of("parts, and what another switch gave to a replica, go on")
        .given(both)
        .steps(&[
            (
                |_| {
                    let mut read = read_copied();
                    (read.header.part, read.header.total) = (4, 5_000);
                    read.version(77)
                },
                &[AsItIs],
                &["forward"],
            ),
            (|_| read_copied().with(|read| read.header.node = B), &[AsItIs], &["forward"]),
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("an answer that finds no room in an open tenant's packet is the home's")
        .given(|w| w.cached(OPEN, COPIED, VALUE))
        .steps(&[
            (|_| Message::read(OPEN, COPIED), &[AsItIs], &["bypass_no_room", "forward"]),
            (|_| Message::read(OPEN, COPIED).padded(40), &[Answered(VALUE)], &["hit"]),
        ])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a grant changes no record, a confirmation no copy")
        .given(both)
        .steps(&[
            (
                |_| {
                    let none = Epoch::new(Switch::ID, 0);
                    on_a_road(Message::grant(Op::ReadReply, SIGNED, KEY, VALUE, none))
                },
                &[AsItIs],
                &["grant_stale", "forward"],
            ),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (
                |_| {
                    let mut confirm = Message::from_store(Op::ReplicaConfirm, SIGNED, COPIED);
                    confirm.header.epoch = Epoch::new(C, 12);
                    (confirm.from, confirm.to) = (confirm.to, confirm.from);
                    confirm
                },
                &[AsItIs],
                &["forward"],
            ),
            HIT,
        ])
        .loads(&[(HOME, 0, 1), (A, 1, 0)]),
    Row::of("a value that its cells do not hold stays at home")
        .given(|w| {
            w.lease(harness::world::TERM);
            w.entry(SIGNED, COPIED, 8);
        })
        .steps(&[
            (
                |w| granted(w, Op::ReadReply, &[b'x'; 300]),
                &[AsItIs],
                &["grant_too_large", "forward"],
            ),
            ASKS,
        ])
        .loads(&[(HOME, 1, 1)]),
];

#[test]
fn each_key_goes_its_items_way() {
    check_on_roads(ROWS);
}
