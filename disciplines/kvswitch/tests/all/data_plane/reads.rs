//! Reads: whose turn it is, and what the packet for a replica looks like.

use harness::Switch;

use super::world::{Leaves::*, *};

const READS: &[Row] = &[
    Row::of("a read of a key that is not hot goes home")
        .steps(&[(|_| read(), &[AsItIs], &["miss", "forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("reads go to replicas and home in turn")
        .given(|w| hot(w, &[A, B], &[HOME]))
        .steps(&[
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(B)], &["redirect", "forward"]),
            (|_| read(), &[AsItIs], &["forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
        ])
        .loads(&[(HOME, 1, 0), (A, 2, 0), (B, 1, 0)]),
    Row::of("a store that has more turns has more of the reads")
        .given(|w| hot(w, &[A, B], &[A]))
        .steps(&[
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(B)], &["redirect", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read(), &[To(A)], &["redirect", "forward"]),
        ])
        .loads(&[(A, 3, 0), (B, 1, 0)]),
    Row::of("a key without replicas goes home")
        .given(|w| hot(w, &[], &[HOME]))
        .steps(&[(|_| read(), &[AsItIs], &["forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("another tenant's key of the same name goes home")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(|_| Message::read(ALONE, KEY), &[AsItIs], &["miss", "forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a record that is being changed is not read")
        .given(|w| {
            hot(w, &[A], &[]);
            busy(w);
        })
        .steps(&[(|_| read(), &[AsItIs], &["forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("nobody is sent to a replica that has an address of the other kind")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (|_| read().over_ipv6(), &[AsItIs], &["forward"]),
        ])
        .loads(&[(HOME, 1, 0), (A, 1, 0)]),
    Row::of("the other way round")
        .given(|w| hot(w, &[SIX], &[]))
        .steps(&[
            (|_| read(), &[AsItIs], &["forward"]),
            (|_| read().over_ipv6(), &[To(SIX)], &["redirect", "forward"]),
        ])
        .loads(&[(HOME, 1, 0), (SIX, 1, 0)]),
    Row::of("a read that another switch gave to a replica stays there")
        .given(|w| hot(w, &[A, B], &[]))
        .steps(&[(|_| read().with(|read| read.header.node = B), &[AsItIs], &["forward"])])
        .loads(&[(HOME, 1, 0)]),
    Row::of("a read that is asked again goes to whom it names")
        .given(|w| hot(w, &[A, B], &[]))
        .steps(&[
            (|_| read(), &[To(A)], &["redirect", "forward"]),
            (
                |_| read().with(|read| read.header.status = wire::Status::TryAgain),
                &[AsItIs],
                &["forward"],
            ),
        ])
        .loads(&[(HOME, 1, 0), (A, 1, 0)]),
    Row::of(
        "a stamp that claims to be this switch's is taken off at home, and of no use to a replica",
    )
    .given(|w| hot(w, &[A], &[HOME]))
    .steps(&[
        (
            |_| read().epoch(Epoch::new(ELSEWHERE, 9)).flags(Flags::GRANT),
            &[To(A)],
            &["redirect", "forward"],
        ),
        (
            |_| read().epoch(Epoch::new(Switch::ID, 9)).flags(Flags::GRANT),
            &[Disowned],
            &["forward"],
        ),
    ])
    .loads(&[(HOME, 1, 0), (A, 1, 0)]),
    Row::of("who may not use the switch reaches his store")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(|_| read().with_a_wrong_tag(), &[AsItIs], &["bypass_bad_tag", "forward"])]),
    Row::of("a replica without a neighbour's address is the kernel's affair")
        .given(|w| hot(w, &[END], &[]))
        .steps(&[(|_| read(), &[Kernels(END)], &["redirect", "pass_no_neighbour"])])
        .loads(&[(END, 1, 0)]),
    Row::of("a read with a VLAN tag is the kernel's to forward, to the replica")
        .given(|w| hot(w, &[A], &[]))
        .steps(&[(|_| read().vlan(5), &[Kernels(A)], &["redirect", "pass_vlan"])])
        .loads(&[(A, 1, 0)]),
    Row::of("replies are counted for the store that they come from")
        .steps(&[
            (|_| reply(Op::ReadReply, 3), &[AsItIs], &["forward"]),
            (|_| reply(Op::WriteReply, 3), &[AsItIs], &["forward"]),
            (|_| reply(Op::DeleteReply, 4), &[AsItIs], &["forward"]),
            (|_| reply(Op::ReadReply, 8), &[AsItIs], &["forward"]),
        ])
        .loads(&[(A, 0, 2), (B, 0, 1)]),
];

/// From that host, to one on the road.
fn reply(op: Op, from: u8) -> Message {
    let mut reply = Message::from_store(op, SIGNED, KEY);
    reply.from.set_ip([10, 0, 0, from].into());
    reply.to.set_ip([10, 0, 0, 2].into());
    reply
}

#[test]
fn reads_go_to_replicas_in_turn() {
    check_on_roads(READS);
}

/// A hot key of this tenant and name.
macro_rules! shape {
    ($name:literal, $tenant:expr, $key:expr, $replica:expr, $packet:expr) => {
        Row::of($name)
            .given(|w| hot_key(w, $tenant, $key, &[$replica], &[]))
            .steps(&[($packet, &[To($replica)], &["redirect", "forward"])])
            .loads(&[($replica, 1, 0)])
    };
}

const SHAPES: &[Row] = &[
    shape!("a tenant without a secret", OPEN, KEY, A, |_| { Message::read(OPEN, KEY) }),
    shape!("a key of one byte", SIGNED, b"k", A, |_| Message::read(SIGNED, b"k")),
    shape!("the longest key", SIGNED, &[b'l'; 250], B, |_| {
        Message::read(SIGNED, &[b'l'; 250]).padded(1111)
    }),
    shape!("without a checksum", SIGNED, KEY, A, |_| read().without_checksum()),
    shape!("a checksum that seems unfinished", SIGNED, KEY, A, |_| {
        read().that_seems_unfinished()
    }),
    shape!("over IPv6", SIGNED, KEY, SIX, |_| read().over_ipv6()),
    shape!("over IPv6, seems unfinished", SIGNED, KEY, SIX, |_| {
        read().over_ipv6().that_seems_unfinished()
    }),
    shape!("a secret that is being changed", ROTATING, KEY, C, |_| {
        Message::read(ROTATING, KEY).signed_with(ALSO)
    }),
    shape!("a read of a part", SIGNED, KEY, A, |_| {
        let mut read = read();
        (read.header.part, read.header.total) = (4, 5_000);
        read.version(77)
    }),
];

#[test]
fn the_packet_for_a_replica_is_right_in_every_shape() {
    check_on_roads(SHAPES);
}

/// Both ends of the sums' ranges are met.
#[test]
fn sums_are_right_whatever_they_are() {
    harness::switch::on_roads(|| {
        let mut w = world();
        w.switch.send_round_on_roads();
        hot(&mut w, &[A, B, C], &[]);
        for request in 0..3_000u64 {
            let mut packet = read().numbered(request * 77);
            packet.from.set_ip([10, 9, (request >> 8) as u8, request as u8].into());
            let run = w.switch.run(&packet.frame().bytes(), None);
            let seen = harness::SeenFrame::read(&run.frame).expect("right checksums");
            assert_ne!(seen.to, packet.to);
        }
    });
}

/// The sum of the pseudo header, folded: what a socket writes where its device makes the checksum.
fn pseudo_sum(frame: &[u8], ipv6: bool) -> u16 {
    let (addresses, udp) = if ipv6 { (22..54, 54) } else { (26..34, 34) };
    let words = frame[addresses].chunks(2).chain([&frame[udp + 4..udp + 6]]);
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair[1]);
    let mut sum = words.map(word).sum::<u64>() + 17;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn unfinished(ipv6: bool, later: bool) {
    let mut w = world();
    if later {
        w.switch.leave_checksums();
    }
    w.switch.send_round_on_roads();
    hot(&mut w, &[if ipv6 { SIX } else { A }], &[]);
    let packet = if ipv6 { read().over_ipv6() } else { read() };
    let mut frame = packet.frame().bytes();
    let check = if ipv6 { 60..62 } else { 40..42 };
    let sum = pseudo_sum(&frame, ipv6).to_be_bytes();
    frame[check.clone()].copy_from_slice(&sum);
    let run = w.switch.run(&frame, None);
    assert_eq!(run.moved.get("redirect"), Some(&1));
    let left = u16::from_be_bytes([run.frame[check.start], run.frame[check.start + 1]]);
    // Over IPv4 it may be left out, unless somebody makes it of what stands there.
    let wanted = if ipv6 || later { pseudo_sum(&run.frame, ipv6) } else { 0 };
    assert_eq!(left, wanted);
    assert_ne!(pseudo_sum(&run.frame, ipv6).to_be_bytes(), sum);
}

#[test]
fn a_checksum_that_a_device_makes_is_the_new_addresss() {
    harness::switch::on_roads(|| {
        for (ipv6, later) in [(false, false), (true, false), (false, true), (true, true)] {
            unfinished(ipv6, later);
            harness::switch::in_this_process(|| unfinished(ipv6, later));
        }
    });
}
