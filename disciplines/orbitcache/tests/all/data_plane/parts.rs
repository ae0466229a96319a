//! Values in parts: which are kept, which are answered from here, and reads of all of them.

use harness::{Message, message::address};
use wire::Op;

use super::world::*;

const KEPT: &[&str] = &["grant_installed", "fetch_reply"];

fn item(o: &mut Orbit, tenant: u32) {
    o.w.lease(harness::world::TERM);
    o.w.entry(tenant, KEY, V.len());
    // Asks for an epoch, as the agent does before it fetches.
    o.w.epoch(tenant, KEY);
}

/// The store grants a part of the item's value, under the epoch that it has.
fn part_to(o: &mut Orbit, tenant: u32, number: u16) {
    let value = PARTS[usize::from(number)];
    o.send(grant_part_to(tenant, newest(&o.w), 4 * number, value));
}

fn part(o: &mut Orbit, number: u16) {
    part_to(o, SIGNED, number);
}

/// An item of which all parts are kept.
fn whole(o: &mut Orbit) {
    item(o, SIGNED);
    (0..3).for_each(|number| part(o, number));
}

const WHOLE: &[&str] = &[
    "grant_installed",
    "grant_installed",
    "grant_installed",
    "fetch_reply",
    "fetch_reply",
    "fetch_reply",
];

/// Somebody is writing this part all the time.
fn keep_busy(o: &mut Orbit, number: u16) {
    const PARTS: &str = "orbitcache_parts";
    const WHERE: usize = 16;
    let switch = &o.w.switch;
    let kept = (0..).zip(switch.elements(PARTS));
    let its = (4 * number).to_ne_bytes();
    let mut kept = kept.filter(|(_, part)| part[8..16] != [0; 8] && part[WHERE..WHERE + 2] == its);
    let (place, mut part) = kept.next().expect("it is kept");
    part[0] |= 1; // `seq`
    switch.backing().set_element(PARTS, place, &part).expect("writable");
}

/// In a frame of IPv4 that goes round to bring the next part: the last byte of the number of the
/// port that it leaves by, which is its header's epoch.
const PORT_OF_ROUND: usize = 14 + 20 + 8 + 63;

fn write(o: &mut Orbit) {
    o.write(SIGNED);
}

const WRITE: &[&str] = &["write", "write_invalidated", "pass_local"];

const SINGLE: &[Row] = &[
    Row::of("a part that is kept is answered at once, another is asked of the store")
        .steps(&[
            (|o| item(o, SIGNED), &[]),
            (|o| part(o, 0), KEPT),
            (|o| o.send(read_part(1, 0)), &["hit"]),
            (|o| o.send(read_part(2, 4)), &["read_part", "pass_local"]),
            (|o| part(o, 1), KEPT),
            (|o| part(o, 2), KEPT),
            (|o| o.send(read_part(3, 8)), &["hit"]),
            (|o| o.send(read_part(4, 4)), &["hit"]),
            (|o| o.send(read_part(5, 0)), &["hit"]),
        ])
        .answered(&[(1, PARTS[0]), (3, PARTS[2]), (4, PARTS[1]), (5, PARTS[0])]),
    Row::of("after a write no part is answered; and of the new value only what was granted")
        .steps(&[
            (whole, WHOLE),
            (write, WRITE),
            (|o| o.send(read_part(1, 4)), &["read_invalid", "pass_local"]),
            (|o| part(o, 0), KEPT),
            (|o| o.send(read_part(2, 0)), &["hit"]),
            (|o| o.send(read_part(3, 4)), &["read_part", "pass_local"]),
        ])
        .answered(&[(2, PARTS[0])]),
    Row::of("a part of another version is not kept, and a read of one goes to the store")
        .steps(&[
            (whole, WHOLE),
            (
                |o| o.send(grant_part(newest(&o.w), 4, PARTS[2]).version(78)),
                &["grant_stale", "fetch_reply"],
            ),
            (|o| o.send(read_part(1, 4).version(78)), &["bypass_part", "pass_local"]),
            (|o| o.send(read_part(2, 4)), &["hit"]),
        ])
        .answered(&[(2, PARTS[1])]),
    Row::of("a part under an epoch that is over is not kept").steps(&[
        (whole, WHOLE),
        (
            |o| {
                let late = grant_part(newest(&o.w), 4, PARTS[1]);
                o.write(SIGNED);
                o.send(late);
            },
            &["write", "write_invalidated", "pass_local", "grant_stale", "fetch_reply"],
        ),
        (|o| o.send(read_part(1, 4)), &["read_invalid", "pass_local"]),
    ]),
    Row::of("the lease is over, and a new term").steps(&[
        (whole, WHOLE),
        (|o| next_term(&o.w), &[]),
        (|o| o.send(read_part(1, 4)), &["read_invalid", "pass_local"]),
        (|o| o.w.outlive_lease(), &[]),
        (|o| o.send(read_part(2, 4)), &["read_no_lease", "pass_local"]),
    ]),
    cached("a read of a part of a value that is whole here goes to the store")
        .steps(&[(|o| o.send(read_part(1, 4)), &["bypass_part", "pass_local"])]),
    Row::of("the same part of two tenants' keys")
        .steps(&[
            (whole, WHOLE),
            (|o| item(o, OTHER), &[]),
            (|o| part_to(o, OTHER, 0), KEPT),
            (|o| o.send(read_part(1, 4)), &["hit"]),
        ])
        .answered(&[(1, PARTS[1])]),
];

const ALL: &[Row] = &[
    Row::of("the first part at once, and each other as it comes round")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (Orbit::turn, &["hit_round"]),
            (Orbit::turn, &["hit_round"]),
            (Orbit::turn, &[]),
            (|o| assert_eq!(o.told(), [(0, true), (4, true), (8, false)]), &[]),
        ])
        .answered(&[(1, PARTS[0]), (1, PARTS[1]), (1, PARTS[2])]),
    Row::of("by IPv6 and by a VLAN, from two clients, signed with two secrets")
        .steps(&[
            (|o| item(o, ROTATING), &[]),
            (|o| part_to(o, ROTATING, 0), KEPT),
            (|o| part_to(o, ROTATING, 1), KEPT),
            (|o| o.send(read_all(ROTATING, 1).over_ipv6()), &["wake_parts"]),
            (|o| o.send(read_all(ROTATING, 2).vlan(5)), &["wake_parts"]),
            (|o| o.send(read_all(ROTATING, 3).sent_by(address(false, 9))), &["wake_parts"]),
            (|o| o.send(read_all(ROTATING, 4).signed_with(ALSO)), &["wake_parts"]),
            (Orbit::turn, &["hit_round"; 4]),
        ])
        .answered(&[
            (1, PARTS[0]),
            (2, PARTS[0]),
            (3, PARTS[0]),
            (4, PARTS[0]),
            (1, PARTS[1]),
            (2, PARTS[1]),
            (3, PARTS[1]),
            (4, PARTS[1]),
        ]),
    Row::of("a part that is not kept ends it; the client asks for the rest")
        .steps(&[
            (|o| item(o, SIGNED), &[]),
            (|o| part(o, 0), KEPT),
            (|o| part(o, 1), KEPT),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (Orbit::turn, &["hit_round"]),
            (|o| assert_eq!(o.told(), [(0, true), (4, false)]), &[]),
            (|o| o.send(read_part(2, 8)), &["read_part", "pass_local"]),
        ])
        .answered(&[(1, PARTS[0]), (1, PARTS[1])]),
    Row::of("a gap: nothing behind it is sent")
        .steps(&[
            (|o| item(o, SIGNED), &[]),
            (|o| part(o, 0), KEPT),
            (|o| part(o, 2), KEPT),
            (|o| o.send(read_all(SIGNED, 1)), &["hit"]),
            (|o| assert_eq!(o.told(), [(0, false)]), &[]),
        ])
        .answered(&[(1, PARTS[0])]),
    cached("all of a value that is whole here is one packet")
        .steps(&[
            (|o| o.send(read_all(SIGNED, 1)), &["wake"]),
            (|o| o.send(read_all(SIGNED, 2)), &["wait"]),
            (Orbit::turn, &["hit_round"]),
            (|o| assert_eq!(o.told(), [(0, false), (0, false)]), &[]),
        ])
        .answered(&[(1, V), (2, V)])
        .left(1),
    Row::of("who could be anybody gets one packet")
        .steps(&[
            (|o| item(o, OPEN), &[]),
            (|o| part_to(o, OPEN, 0), KEPT),
            (|o| part_to(o, OPEN, 1), KEPT),
            (|o| o.send(read_all(OPEN, 1)), &["hit"]),
            (|o| o.send(read_all(OPEN, 2).padded(1023)), &["bypass_no_room", "pass_local"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("so does a read that is shorter than its answers")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1).padded(1023)), &["hit"]),
            (|o| assert_eq!(o.told(), [(0, false)]), &[]),
        ])
        .answered(&[(1, PARTS[0])]),
];

const ALL_STALE: &[Row] = &[
    Row::of("a write between two parts ends it")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (write, WRITE),
            (Orbit::turn, &["drop_part_over"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("the value of a write between two parts is another version")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (write, WRITE),
            (
                |o| {
                    for number in 0..3 {
                        let value = PARTS[usize::from(number)];
                        let part = grant_part(newest(&o.w), 4 * number, value);
                        o.send(part.version(78));
                    }
                },
                WHOLE,
            ),
            (Orbit::turn, &["drop_part_over"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("of a value that was granted again only what was")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (write, WRITE),
            (|o| part(o, 0), KEPT),
            (Orbit::turn, &["drop_part_over"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("the next part is just being written")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (|o| keep_busy(o, 1), &[]),
            (Orbit::turn, &["drop_part_over"]),
            (|o| o.send(read_part(2, 4)), &["bypass_torn", "pass_local"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("its client's port is gone")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (|o| o.round[0][PORT_OF_ROUND] = 77, &[]),
            (Orbit::turn, &["drop_part_over"]),
        ])
        .answered(&[(1, PARTS[0])]),
    Row::of("a new term of the store")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (|o| o.send(read_all(SIGNED, 2)), &["wake_parts"]),
            (|o| next_term(&o.w), &[]),
            (Orbit::turn, &["drop_part_over"; 2]),
        ])
        .answered(&[(1, PARTS[0]), (2, PARTS[0])]),
    Row::of("evicted")
        .steps(&[
            (whole, WHOLE),
            (|o| o.send(read_all(SIGNED, 1)), &["wake_parts"]),
            (|o| evict(&o.w), &[]),
            (Orbit::turn, &["drop_part_over"]),
        ])
        .answered(&[(1, PARTS[0])]),
];

#[test]
fn parts_are_kept_and_answered_each_for_itself() {
    check(SINGLE);
}

#[test]
fn one_read_has_all_parts_that_are_kept_and_nobody_is_amplified() {
    check(ALL);
}

/// As `status` has it: values that go round now.
fn going(o: &Orbit) -> i64 {
    let totals = &orbitcache::REGISTRATION.totals;
    let sum = |names: &[&str]| names.iter().map(|name| o.count(name) as i64).sum::<i64>();
    sum(totals.rounds_begun) - sum(totals.rounds_ended)
}

#[test]
fn of_a_read_of_all_parts_nothing_is_taken_to_go_round_once_it_has_them() {
    let mut o = Orbit::new();
    whole(&mut o);
    for number in 1..4 {
        o.send(read_all(SIGNED, number));
        (0..3).for_each(|_| o.turn());
        assert_eq!(going(&o), 0);
    }
    o.send(read_all(SIGNED, 4));
    evict(&o.w);
    o.turn();
    assert_eq!((going(&o), o.count("drop_part_over")), (0, 1));
    o.w.cached(SIGNED, KEY, V);
    o.send(read_all(SIGNED, 5));
    assert_eq!(going(&o), 1);
}

#[test]
fn what_follows_is_of_one_version() {
    check(ALL_STALE);
}

#[test]
fn parts_of_another_grant_are_noticed() {
    for (name, rows) in [("round_any_word", SINGLE), ("serves_earlier_term", ALL_STALE)] {
        assert!(holds_with(None, rows));
        assert!(!holds_with(Some(name), rows), "{name}: nobody noticed");
    }
}

/// One tenant reads more in parts than there is room for; another's only part stays.
fn a_tenant_fills_every_set() {
    let mut o = Orbit::new();
    item(&mut o, OTHER);
    part_to(&mut o, OTHER, 0);
    for number in 0..9 {
        let key = format!("large{number:011}").into_bytes();
        o.w.entry(SIGNED, &key, V.len());
        let epoch = o.w.epoch(SIGNED, &key);
        // One in each of the 128 sets, of which eight fill one.
        for part in 0..128 {
            let mut grant = Message::grant(Op::FetchReply, SIGNED, &key, PARTS[0], epoch);
            (grant.header.part, grant.header.total) = (4 * part, 128 * 1024);
            o.send(grant);
        }
    }
    assert_eq!(o.count("grant_installed"), 1 + 9 * 128);
    o.send(read_part_of(OTHER, 1, 0));
    assert_eq!((o.count("hit"), o.count("read_part")), (1, 0));
}

#[test]
fn who_has_few_parts_keeps_them_beside_whoever_has_many() {
    a_tenant_fills_every_set();
    harness::switch::in_this_process(a_tenant_fills_every_set);
}
