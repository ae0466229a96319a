//! Writes: replicas are no longer read, are sent the write, and are read again when they say so.

use harness::switch::{in_this_process, on_roads};

use super::world::{Leaves::*, *};

const GOES_HOME: Step = (|_| read(), &[AsItIs], &["redirect_invalid", "forward"]);

const WRITES: &[Row] = &[
    Row::of("a write of a key that is not hot goes home")
        .steps(&[(|_| write(), &[AsItIs], &["write", "forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a write goes home and to every replica once; none is read until it confirms")
        .given(|w| hot(w, &[A, B], &[A]))
        .steps(&[
            (|_| write(), &[ToAll, Update(A), Update(B)], WITH_TWO),
            GOES_HOME,
            GOES_HOME,
            GOES_HOME,
            (|_| confirms(A), &[AsItIs], &["replica_confirm", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
        ])
        .loads(&[(HOME, 4, 0), (A, 4, 0), (B, 1, 0)]),
    Row::of("who has not confirmed leaves its turns to the next that has; the home keeps its own")
        .given(|w| {
            hot(w, &[A, B, C], &[HOME]);
            w.send(write());
            w.send(confirms(A));
            w.send(confirms(C));
        })
        .steps(&[
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(C)], &["redirect", "forward"]),
            (|_| read(), &[To(C)], &["redirect", "forward"]),
            (|_| read(), &[AsItIs], &["forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| drops(C), &[AsItIs], &["replica_drop", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
        ])
        .loads(&[(HOME, 2, 0), (A, 3, 0), (C, 2, 0)]),
    Row::of("a delete too")
        .given(|w| hot(w, &[A, B], &[]))
        .steps(&[
            (|_| Message::delete(SIGNED, KEY), &[ToAll, Update(A), Update(B)], WITH_TWO),
            GOES_HOME,
        ])
        .loads(&[(HOME, 2, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("a write with a condition too")
        .given(|w| hot(w, &[A, B], &[HOME]))
        .steps(&[(
            |_| write().flags(Flags::COMPARE).version(9),
            &[ToAll, Update(A), Update(B)],
            WITH_TWO,
        )])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("a secret that is being changed signs updates as it signed the write")
        .given(|w| hot_key(w, ROTATING, KEY, &[A, B], &[]))
        .steps(&[(
            |_| Message::write(ROTATING, KEY, b"v").signed_with(ALSO),
            &[ToAll, Update(A), Update(B)],
            WITH_TWO,
        )])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("without a checksum")
        .given(|w| hot(w, &[A, B], &[]))
        .steps(&[(|_| write().without_checksum(), &[ToAll, Update(A), Update(B)], WITH_TWO)])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("a part of a write is sent home alone")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[
            (
                |_| write().with(|write| (write.header.part, write.header.total) = (4, 5_000)),
                &[AsItIs],
                ALONE_HOME,
            ),
            GOES_HOME,
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("a write that another switch sent to replicas is sent home alone")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[
            (|_| write().with(|write| write.header.node = NODE_ALL), &[AsItIs], ALONE_HOME),
            GOES_HOME,
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("a tenant whose writes go home alone")
        .given(|w| hot_key(w, ALONE, KEY, &[A], &[]))
        .steps(&[
            (|_| Message::write(ALONE, KEY, b"v"), &[AsItIs], ALONE_HOME),
            (|_| Message::read(ALONE, KEY), &[AsItIs], &["redirect_invalid", "forward"]),
        ])
        .loads(&[(HOME, 2, 0)]),
    Row::of("whoever has asked for as much as he may has his writes sent home alone")
        .given(|w| hot_key(w, SLOW, KEY, &[A], &[]))
        .steps(&[(|_| Message::write(SLOW, KEY, b"v"), &[AsItIs], ALONE_HOME)])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a home without a neighbour's address is the kernel's affair")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(
            |_| write().with(|write| write.to.set_ip([10, 0, 0, 9].into())),
            &[Untouched],
            &["write", "write_invalidated", "pass_no_neighbour"],
        )])
        .loads(&[(END, 1, 0)]),
    Row::of("the last replica without a neighbour's address is sent its update by the kernel")
        .given(|w| hot(w, &[A, END], &[]))
        .steps(&[(
            |_| write(),
            &[ToAll, Update(A), KernelsUpdate(END)],
            &[
                "write",
                "write_invalidated",
                "forward",
                "replica_round",
                "replica_update",
                "forward",
                "replica_round",
                "replica_update",
                "pass_no_neighbour",
            ],
        )])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (END, 1, 0)]),
    Row::of("one before others is passed over, and called by its home")
        .given(|w| hot(w, &[END, A, B], &[]))
        .steps(&[(
            |_| write(),
            &[ToAll, Update(A), Update(B)],
            &[
                "write",
                "write_invalidated",
                "forward",
                "replica_round",
                "replica_skip",
                "recirculate",
                "replica_update",
                "forward",
                "replica_round",
                "replica_update",
                "forward",
            ],
        )])
        .loads(&[(HOME, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("over IPv6, every replica of several turns")
        .given(|w| hot(w, &[SIX, A, B], &[A]))
        .steps(&[(
            |_| write().over_ipv6(),
            &[ToAll, Update(SIX), Update(A), Update(B)],
            WITH_THREE,
        )])
        .loads(&[(SIX, 1, 0), (A, 1, 0), (B, 1, 0)]),
    Row::of("replicas that have addresses of the other kind are left out: their home calls them")
        .given(|w| hot(w, &[SIX, A, B], &[]))
        .steps(&[(|_| write(), &[AsItIs], ALONE_HOME)])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a key that is hot no more while its write goes round")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(
            |w| {
                let held = w.switch.table.scan().remove(0);
                w.switch.table.evict(held.slot, held.place);
                write()
            },
            &[AsItIs],
            &["write", "forward"],
        )])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a store that has no replica any more is not read")
        .given(|w| hot(w, &[A, B], &[A]))
        .steps(&[
            (|_| drops(A), &[AsItIs], &["replica_drop", "forward"]),
            (|_| read(), &[To(B)], &["redirect", "forward"]),
            (|_| read(), &[To(B)], &["redirect", "forward"]),
            (|_| drops(B), &[AsItIs], &["replica_drop", "forward"]),
            GOES_HOME,
        ])
        .loads(&[(HOME, 1, 0), (B, 2, 0)]),
    Row::of("nobody confirms but a store of the key's, with the system's secret")
        .given(|w| {
            hot(w, &[A, B], &[]);
            w.send(Message::write(SIGNED, KEY, b"v"));
        })
        .steps(&[
            (
                |_| confirms(A).signed_with(harness::message::secret_of(SIGNED)),
                &[AsItIs],
                &["bypass_bad_tag", "forward"],
            ),
            (|_| confirms(C), &[AsItIs], &["forward"]),
            GOES_HOME,
            GOES_HOME,
        ])
        .loads(&[(HOME, 3, 0)]),
    Row::of("a client's update is not taken for a switch's word")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(
            |_| Message::from_client(Op::ReplicaUpdate, SIGNED, KEY).value(b"v"),
            &[AsItIs],
            &["forward"],
        )]),
];

#[test]
fn writes_go_to_all() {
    check_on_roads(WRITES);
}

fn without_a_loop() {
    let mut w = world();
    w.switch.open_road();
    hot(&mut w, &[A], &[]);
    run_step(&w, 0, &(|_| write(), &[AsItIs], ALONE_HOME));
    run_step(&w, 1, &GOES_HOME);
}

#[test]
fn a_switch_that_sends_nothing_round_sends_writes_home_alone() {
    on_roads(|| {
        without_a_loop();
        in_this_process(without_a_loop);
    });
}
