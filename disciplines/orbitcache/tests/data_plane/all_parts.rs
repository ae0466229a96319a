//! Reads that take all parts of a value.

use crate::world::*;

const GRANTED: &[&str] = &["grant_installed", "wake_grant", "recirculate"];

/// The store grants these parts of an item's value, under the epoch that it has.
fn parts(o: &mut Orbit, tenant: u32, numbers: &[u16]) {
    let epoch = newest(&o.w);
    for number in numbers {
        let value = PARTS[usize::from(*number)];
        o.send(grant_part_to(tenant, epoch, 4 * number, value));
    }
}

fn item(o: &mut Orbit, tenant: u32) {
    o.w.lease(harness::world::TERM);
    o.w.entry(tenant, KEY, V.len());
    // Asks for an epoch, as the agent does before it fetches.
    o.w.epoch(tenant, KEY);
}

/// An item of which all parts go round.
fn whole(o: &mut Orbit) {
    item(o, SIGNED);
    parts(o, SIGNED, &[0, 1, 2]);
    o.turn();
}

const WHOLE: &[&str] = &[
    "grant_installed",
    "grant_installed",
    "grant_installed",
    "recirculate",
    "recirculate",
    "recirculate",
    "recirculate",
    "recirculate",
    "recirculate",
    "wake_grant",
    "wake_grant",
    "wake_grant",
];

#[test]
fn one_read_has_all_parts_that_go_round() {
    check(&[
        Row {
            name: "each part answers it once, and says whether the next follows",
            given: |_| {},
            steps: &[
                (whole, WHOLE),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round"; 3]),
                (Orbit::turn, &["recirculate"; 3]),
                (
                    |o| assert_eq!(o.told(), [(0, true), (4, true), (8, false)]),
                    &[],
                ),
            ],
            answered: &[(1, PARTS[0]), (1, PARTS[1]), (1, PARTS[2])],
            left: 3,
        },
        Row {
            name: "the first part comes first, the others when they come by",
            given: |_| {},
            steps: &[
                (whole, WHOLE),
                (|o| o.round.rotate_left(1), &[]),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["recirculate", "recirculate", "hit_round"]),
                (Orbit::turn, &["hit_round", "hit_round", "recirculate"]),
                (Orbit::turn, &["recirculate"; 3]),
            ],
            answered: &[(1, PARTS[0]), (1, PARTS[1]), (1, PARTS[2])],
            left: 3,
        },
        Row {
            name: "several reads, one of them twice, and one of a part",
            given: |_| {},
            steps: &[
                (whole, WHOLE),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (|o| o.send(read_part(2, 4)), &["wait"]),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round"; 3]),
                (Orbit::turn, &["hit_round"; 3]),
                (Orbit::turn, &["recirculate", "hit_round", "recirculate"]),
            ],
            answered: &[
                (1, PARTS[0]),
                (2, PARTS[1]),
                (1, PARTS[2]),
                (1, PARTS[0]),
                (1, PARTS[1]),
                (1, PARTS[2]),
                (1, PARTS[1]),
            ],
            left: 3,
        },
        Row {
            name: "a part that does not go round ends it; the client asks for the rest",
            given: |_| {},
            steps: &[
                (|o| item(o, SIGNED), &[]),
                (|o| parts(o, SIGNED, &[0]), GRANTED),
                (|o| parts(o, SIGNED, &[1]), GRANTED),
                (Orbit::turn, &["recirculate"; 2]),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round"; 2]),
                (|o| assert_eq!(o.told(), [(0, true), (4, false)]), &[]),
                (|o| o.send(read_part(2, 8)), &["read_part", "pass_local"]),
            ],
            answered: &[(1, PARTS[0]), (1, PARTS[1])],
            left: 2,
        },
        Row {
            name: "a gap: nothing behind it follows",
            given: |_| {},
            steps: &[
                (|o| item(o, SIGNED), &[]),
                (|o| parts(o, SIGNED, &[0]), GRANTED),
                (|o| parts(o, SIGNED, &[2]), GRANTED),
                (Orbit::turn, &["recirculate"; 2]),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round", "recirculate"]),
                (|o| assert_eq!(o.told(), [(0, false)]), &[]),
            ],
            answered: &[(1, PARTS[0])],
            left: 2,
        },
        Row {
            name: "as many wait for a part as may: nothing from there on follows",
            given: |_| {},
            steps: &[
                (whole, WHOLE),
                (
                    |o| (2..10).for_each(|n| o.send(read_part(n, 8))),
                    &["wait"; 8],
                ),
                (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round"; 3]),
                (
                    |o| assert_eq!(o.told(), [(0, true), (4, false), (8, false)]),
                    &[],
                ),
            ],
            answered: &[(1, PARTS[0]), (1, PARTS[1]), (2, PARTS[2])],
            left: 3,
        },
        Row {
            name: "all of a value that is whole here is one packet",
            given: |w| w.cached(SIGNED, KEY, V),
            steps: &[
                (|o| o.send(read_all(SIGNED, 1)), &["wake"]),
                (|o| o.send(read_all(SIGNED, 2)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (|o| assert_eq!(o.told(), [(0, false), (0, false)]), &[]),
            ],
            answered: &[(1, V), (2, V)],
            left: 1,
        },
    ]);
}

#[test]
fn nobody_is_amplified() {
    check(&[
        Row {
            name: "who could be anybody gets one packet",
            given: |_| {},
            steps: &[
                (|o| item(o, OPEN), &[]),
                (|o| parts(o, OPEN, &[0]), GRANTED),
                (|o| parts(o, OPEN, &[1]), GRANTED),
                (Orbit::turn, &["recirculate"; 2]),
                (|o| o.send(read_all(OPEN, 1)), &["wait"]),
                (Orbit::turn, &["hit_round", "recirculate"]),
                (Orbit::turn, &["recirculate"; 2]),
            ],
            answered: &[(1, PARTS[0])],
            left: 2,
        },
        Row {
            name: "so does a read that is shorter than its answers",
            given: |_| {},
            steps: &[
                (whole, WHOLE),
                (|o| o.send(read_all(SIGNED, 1).padded(1023)), &["wait"]),
                (Orbit::turn, &["hit_round", "recirculate", "recirculate"]),
                (|o| assert_eq!(o.told(), [(0, false)]), &[]),
            ],
            answered: &[(1, PARTS[0])],
            left: 3,
        },
    ]);
}

#[test]
fn what_follows_is_of_one_version() {
    check(&[Row {
        name: "a write between the first part and the others: they do not follow, and keep nobody's place",
        given: |_| {},
        steps: &[
            (whole, WHOLE),
            (|o| o.round.rotate_left(1), &[]),
            (|o| o.send(read_all(SIGNED, 1)), &["wait"]),
            (Orbit::turn, &["recirculate", "recirculate", "hit_round"]),
            (
                |o| o.write(SIGNED),
                &["write", "write_invalidated", "pass_local"],
            ),
            (Orbit::turns, &["round_stale"; 3]),
            (|o| parts(o, SIGNED, &[0]), GRANTED),
            (|o| parts(o, SIGNED, &[1]), GRANTED),
            (Orbit::turn, &["recirculate"; 2]),
            (|o| o.send(read_part(2, 4)), &["wait"]),
            (Orbit::turn, &["recirculate", "wait_other", "hit_round"]),
        ],
        answered: &[(1, PARTS[0]), (2, PARTS[1])],
        left: 2,
    }]);
}
