//! Several racks: what a switch at the top of one makes of what a spine chose, and how a
//! spine chooses.

use harness::message::address;

use super::world::{Leaves::*, *};

/// At the top of the rack of `A`, `B` and `C`, of which `A` is the entry of a key from elsewhere.
fn of_another_rack(w: &mut World) {
    hot_from(w, TOP, KEY, A, &[B, C], &[A]);
}

/// A read that a spine sent to that store.
fn named(holder: u16) -> Message {
    let mut read = Message::read(TOP, KEY);
    read.header.node = holder;
    read.to.set_ip(address(false, (holder & 0xff) as u8 + 2));
    read
}

/// A write of the key, as a spine made it the update of that store.
fn updates(holder: u16) -> Message {
    let mut update = Message::from_client(Op::ReplicaUpdate, TOP, KEY).value(b"of an odd length!");
    update.header.node = holder;
    update.to.set_ip(address(false, (holder & 0xff) as u8 + 2));
    update
}

const REDIRECTED: &[&str] = &["redirect", "forward"];

const AT_THE_TOP: &[Row] = &[
    Row::of("a read that names the rack's entry takes its turn among the rack's replicas")
        .given(of_another_rack)
        .steps(&[
            (|_| named(A), &[To(B)], REDIRECTED),
            (|_| named(A), &[To(C)], REDIRECTED),
            (|_| named(A), &[AsItIs], &["forward"]),
            (|_| named(A), &[To(B)], REDIRECTED),
        ])
        .loads(&[(A, 1, 0), (B, 2, 0), (C, 1, 0)]),
    Row::of(
        "one that no switch has sent to this rack goes on, and one that names another store of it",
    )
    .given(of_another_rack)
    .steps(&[
        (|_| Message::read(TOP, KEY), &[AsItIs], &["forward"]),
        (|_| named(B), &[AsItIs], &["forward"]),
    ])
    .loads(&[(HOME, 1, 0), (B, 1, 0)]),
    Row::of("a read of a key that is at home here takes a turn if nobody chose before")
        .given(|w| hot_key(w, TOP, KEY, &[A, B], &[]))
        .steps(&[
            (|_| Message::read(TOP, KEY), &[To(A)], REDIRECTED),
            (|_| named(B), &[AsItIs], &["forward"]),
        ])
        .loads(&[(A, 1, 0), (B, 1, 0)]),
    Row::of("a write that a spine sent to other racks goes to this one's replicas as well")
        .given(|w| hot_key(w, TOP, KEY, &[A, B], &[]))
        .steps(&[(
            |_| Message::write(TOP, KEY, b"v").with(|write| write.header.node = NODE_ALL),
            &[AsItIs, Update(A), Update(B)],
            WITH_TWO,
        )])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("a write on its way to another rack ends what is read here, and is no update yet")
        .given(of_another_rack)
        .steps(&[
            (|_| Message::write(TOP, KEY, b"v"), &[AsItIs], ALONE_HOME),
            (|_| named(A), &[AsItIs], &["redirect_invalid", "forward"]),
        ])
        .loads(&[(HOME, 1, 0), (A, 1, 0)]),
    Row::of("the entry's update becomes those of the rack's others; each is read once it confirms")
        .given(of_another_rack)
        .steps(&[
            (
                |_| updates(A),
                &[Update(A), Update(B), Update(C)],
                &[
                    "write_invalidated",
                    "forward",
                    "replica_round",
                    "replica_update",
                    "forward",
                    "replica_round",
                    "replica_update",
                    "forward",
                ],
            ),
            (|_| named(A), &[AsItIs], &["redirect_invalid", "forward"]),
            (|_| confirms_of(TOP, C), &[AsItIs], &["replica_confirm", "forward"]),
            (|_| named(A), &[To(C)], REDIRECTED),
        ])
        .loads(&[(A, 2, 0), (B, 1, 0), (C, 2, 0)]),
    Row::of("an update of a store that is not the entry goes to that alone")
        .given(of_another_rack)
        .steps(&[
            (|_| updates(B), &[Update(B)], &["forward"]),
            (|_| named(A), &[To(B)], REDIRECTED),
        ])
        .loads(&[(B, 2, 0)]),
];

#[test]
fn at_the_top_of_a_rack() {
    check_on_roads(AT_THE_TOP);
}

fn hot_above(w: &mut World) {
    hot_key(w, ABOVE, KEY, &[A, B], &[HOME]);
}

fn read_above() -> Message {
    Message::read(ABOVE, KEY)
}

/// A read of another key, which is at home at that store.
fn cold_above(holder: u16) -> Message {
    Message::read(ABOVE, b"another")
        .with(|read| read.to.set_ip(address(false, (holder & 0xff) as u8 + 2)))
}

const TWO_CHOICES: &[Row] = &[
    Row::of("of two turns the one whose server was sent less is taken")
        .given(hot_above)
        .steps(&[
            (|_| cold_above(A), &[AsItIs], &["miss", "forward"]),
            (|_| cold_above(A), &[AsItIs], &["miss", "forward"]),
            (|_| read_above(), &[To(B)], REDIRECTED),
            (|_| read_above(), &[AsItIs], &["forward"]),
            (|_| read_above(), &[AsItIs], &["forward"]),
            (|_| read_above(), &[To(B)], REDIRECTED),
            (|_| read_above(), &[To(B)], REDIRECTED),
            (|_| read_above(), &[AsItIs], &["forward"]),
            (|_| read_above(), &[To(A)], REDIRECTED),
        ])
        .loads(&[(A, 3, 0), (B, 3, 0), (HOME, 3, 0)]),
    Row::of("one that is not valid is no choice")
        .given(|w| {
            hot_above(w);
            w.send(Message::write(ABOVE, KEY, b"v"));
            w.send(confirms_of(ABOVE, B));
        })
        .steps(&[
            (|_| cold_above(B), &[AsItIs], &["miss", "forward"]),
            (|_| cold_above(B), &[AsItIs], &["miss", "forward"]),
            (|_| read_above(), &[To(B)], REDIRECTED),
            (|_| read_above(), &[AsItIs], &["forward"]),
            (|_| read_above(), &[AsItIs], &["forward"]),
        ])
        .loads(&[(B, 3, 0), (HOME, 3, 0)]),
    Row::of("where neither is valid the read goes home")
        .given(|w| {
            hot_above(w);
            w.send(Message::write(ABOVE, KEY, b"v"));
        })
        .steps(&[
            (|_| read_above(), &[AsItIs], &["redirect_invalid", "forward"]),
            (|_| read_above(), &[AsItIs], &["forward"]),
        ])
        .loads(&[(HOME, 3, 0)]),
];

#[test]
fn a_spine_takes_the_better_of_two_turns() {
    check_on_roads(TWO_CHOICES);
}
