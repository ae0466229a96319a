//! The stories.

use harness::{Message, message::address, world::ItemField};
use wire::Op;

use super::world::*;

const NEW: &[u8] = b"the new value";

#[test]
fn reads_wake_wait_and_are_answered() {
    check(&[
        cached("the first read is answered at once, the others by the packet that it became")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2)), &["wait"]),
                (|o| o.send(read(SIGNED, 3)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["recirculate"]),
                (|o| o.send(read(SIGNED, 4)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V), (3, V), (4, V)])
            .left(1),
        cached("a read that comes again is answered again")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 1)), &["wait"]),
                (|o| o.send(read(SIGNED, 1)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (1, V), (1, V)])
            .left(1),
        Row::of("reads without a secret, from two clients, one without a checksum")
            .given(|w| w.cached(OPEN, KEY, V))
            .steps(&[
                (|o| o.send(read(OPEN, 1)), &["wake"]),
                (
                    |o| o.send(read(OPEN, 2).sent_by(address(false, 9)).without_checksum()),
                    &["wait"],
                ),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V)])
            .left(1),
        Row::of("a read that is too short for its answer, of whoever could be anybody")
            .given(|w| w.cached(OPEN, KEY, V))
            .steps(&[
                (|o| o.send(read(OPEN, 1)), &["wake"]),
                (|o| o.send(read(OPEN, 2).padded(V.len() - 1)), &["bypass_no_room", "pass_local"]),
                (Orbit::turn, &["recirculate"]),
            ])
            .answered(&[(1, V)])
            .left(1),
        cached("with a secret it is answered")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2).padded(0)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V)])
            .left(1),
        Row::of("each is answered under the secret that it was signed with")
            .given(|w| w.cached(ROTATING, KEY, V))
            .steps(&[
                (|o| o.send(read(ROTATING, 1)), &["wake"]),
                (|o| o.send(read(ROTATING, 2).signed_with(ALSO)), &["wait"]),
                (|o| o.send(read(ROTATING, 3)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V), (3, V)])
            .left(1),
        cached("an answer has the kind of tag that its read had")
            .steps(&[
                (|o| o.send(read(SIGNED, 1).vlan(5)), &["wake"]),
                (|o| o.send_of_provider(read(SIGNED, 2).vlan(100)), &["wait"]),
                (|o| o.send(read(SIGNED, 3).vlan(100)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["hit_round"]),
                (|o| o.tags_are(&[CUSTOMER_TAG, PROVIDER_TAG, CUSTOMER_TAG]), &[]),
            ])
            .answered(&[(1, V), (2, V), (3, V)])
            .left(1),
        cached("IPv6, IPv4 and VLANs have packets of their own")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2).over_ipv6()), &["wake"]),
                (|o| o.send(read(SIGNED, 3).vlan(5)), &["wake"]),
                (|o| o.send(read(SIGNED, 4).over_ipv6().vlan(5)), &["wake"]),
                (|o| o.send(read(SIGNED, 5)), &["wait"]),
                (|o| o.send(read(SIGNED, 6).over_ipv6()), &["wait"]),
                (|o| o.send(read(SIGNED, 7).vlan(0x6007)), &["wait"]),
                (|o| o.send(read(SIGNED, 8).over_ipv6().vlan(8)), &["wait"]),
                (Orbit::turn, &["hit_round", "hit_round", "hit_round", "hit_round"]),
            ])
            .answered(&[(1, V), (2, V), (3, V), (4, V), (5, V), (6, V), (7, V), (8, V)])
            .left(4),
        Row::of("an empty value")
            .given(|w| w.cached(SIGNED, KEY, b""))
            .steps(&[
                (|o| o.send(read(SIGNED, 1).padded(0)), &["wake"]),
                (|o| o.send(read(SIGNED, 2).padded(0)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, b""), (2, b"")])
            .left(1),
    ]);
}

#[test]
fn no_more_wait_than_may() {
    check(&[
        cached("as many as fit, the next goes to the store")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| (2..10).for_each(|n| o.send(read(SIGNED, n))), &["wait"; 8]),
                (|o| o.send(read(SIGNED, 10)), &["wait_full", "pass_local"]),
                (Orbit::turn, &["hit_round"]),
                (|o| o.send(read(SIGNED, 11)), &["wait"]),
                (|o| o.send(read(SIGNED, 12)), &["wait_full", "pass_local"]),
            ])
            .answered(&[(1, V), (2, V)])
            .left(1),
        Row::of("as many as the tenant has set")
            .given(|w| w.cached(NARROW, KEY, V))
            .steps(&[
                (|o| o.send(read(NARROW, 1)), &["wake"]),
                (|o| (2..4).for_each(|n| o.send(read(NARROW, n))), &["wait"; 2]),
                (|o| o.send(read(NARROW, 4)), &["wait_full", "pass_local"]),
            ])
            .answered(&[(1, V)])
            .left(1),
        Row::of("who waited for a second has asked again")
            .given(|w| w.cached(RESTLESS, KEY, V))
            .steps(&[
                (|o| o.send(read(RESTLESS, 1)), &["wake"]),
                (|o| o.send(read(RESTLESS, 2)), &["wait"]),
                (|o| o.wait(1100), &[]),
                (Orbit::turn, &["wait_late", "recirculate"]),
            ])
            .answered(&[(1, V)])
            .left(1),
    ]);
}

/// More items than values can go round at a time: the others' reads go to the store, and say so,
/// until something parks.
fn more_items_than_go_round() {
    const ITEMS: u64 = 320;
    const GO_ROUND: u64 = 256;
    let key = |number: u64| format!("key{number:013}").into_bytes();
    let mut o = Orbit::new();
    for number in 0..ITEMS {
        o.w.cached(SIGNED, &key(number), b"short");
    }
    let mut read_all = |times: u64| {
        for number in 0..ITEMS {
            // Those first that were read last: nothing is lost that was just seen.
            let number = if times > 1 { ITEMS - 1 - number } else { number };
            o.send(Message::read(SIGNED, &key(number)).padded(8).numbered(number));
        }
        let names = ["wake", "wait", "wait_full", "round_lost"];
        let [wake, wait, full, lost] = names.map(|name| o.count(name));
        assert_eq!(wake + wait + full, times * ITEMS);
        (wake - lost, wait, full + lost)
    };
    let (wake, _, full) = read_all(1);
    assert!(wake <= GO_ROUND && full >= ITEMS - GO_ROUND, "{wake} go round");
    let (_, wait, _) = read_all(2);
    assert!(wait > 0);
    // All that goes round is lost; after a while the places are the next ones'.
    o.round.clear();
    o.wait(45);
    let before = o.count("wake");
    for number in (0..ITEMS).rev() {
        o.send(Message::read(SIGNED, &key(number)).padded(8).numbered(number));
    }
    assert!(o.count("wake") > before + GO_ROUND / 2);
}

#[test]
fn what_finds_no_place_to_go_round_goes_to_the_store() {
    more_items_than_go_round();
    harness::switch::in_this_process(more_items_than_go_round);
}

/// One tenant's values take every orbit; each other that comes has its part of them, and the first
/// what is left.
fn all_orbits_are_one_tenants() {
    let key = |number: u64| format!("key{number:013}").into_bytes();
    let mut o = Orbit::new();
    let mut read_all = |tenant, times: u64| {
        for number in 0..times {
            o.w.cached(tenant, &key(number), b"short");
            o.send(Message::read(tenant, &key(number)).padded(8).numbered(number));
        }
        ["wake", "wait_full", "round_lost"].map(|name| o.count(name))
    };
    // Where this takes long, those that were read first are lost by then.
    let [first, full, lost] = read_all(SIGNED, 320);
    assert!(full + lost >= 64, "{first} go round");
    let [both, still, _] = read_all(OTHER, 32);
    assert_eq!((both - first, still), (32, full), "as many as fit beside an equal part");
    let [all, _, _] = read_all(NARROW, 16);
    assert_eq!(all - both, 16);
}

#[test]
fn who_has_few_orbits_takes_one_of_whoever_has_many() {
    all_orbits_are_one_tenants();
    harness::switch::in_this_process(all_orbits_are_one_tenants);
}

/// A value that a read waits for is evicted, and comes back after those of so many other keys.
fn somebody_waits_in_the_place_of_an_evicted_value(others: u64) -> Orbit {
    let mut o = Orbit::new();
    o.w.cached(SIGNED, KEY, V);
    (1..=2).for_each(|number| o.send(read(SIGNED, number)));
    evict(&o.w);
    o.turn();
    assert_eq!((o.count("wait"), o.count("round_gone")), (1, 1));
    for number in 0..others {
        let key = format!("other{number:011}").into_bytes();
        o.w.cached(SIGNED, &key, b"short");
        o.send(Message::read(SIGNED, &key).padded(8).numbered(1_000 + number));
    }
    o.w.cached(SIGNED, KEY, V);
    o.send(read(SIGNED, 3));
    o.turn();
    o
}

fn whoever_waits_keeps_its_place_as_long_as_others_are_free() {
    let o = somebody_waits_in_the_place_of_an_evicted_value(48);
    assert_eq!((o.count("wake"), o.count("hit_round"), o.count("wait_gone")), (1 + 48 + 1, 1, 0));
    let o = somebody_waits_in_the_place_of_an_evicted_value(320);
    assert_eq!((o.count("hit_round"), o.count("wait_gone")), (0, 1), "and is counted");
}

#[test]
fn a_place_where_somebody_waits_is_taken_last() {
    whoever_waits_keeps_its_place_as_long_as_others_are_free();
    harness::switch::in_this_process(whoever_waits_keeps_its_place_as_long_as_others_are_free);
}

/// What a packet that goes round must not answer any more.
const STALE: &[Row] = &[
    cached("a write ends what goes round, and nobody who waits gets the old value")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (|o| o.send(read(SIGNED, 3)), &["read_invalid", "pass_local"]),
            (Orbit::turn, &["round_stale"]),
        ])
        .answered(&[(1, V)]),
    cached("with the new value the next read makes a new packet, which answers those that waited")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (|o| o.send(grant(&o.w, SIGNED, NEW)), &["grant_installed", "pass_local"]),
            (|o| o.send(read(SIGNED, 3)), &["wake"]),
            (Orbit::turn, &["round_stale", "hit_round"]),
            (Orbit::turn, &["recirculate"]),
        ])
        .answered(&[(1, V), (3, NEW), (2, NEW)])
        .left(1),
    Row::of("nobody waits: the old packet goes all the same, if nothing else at its next look")
        .given(|w| w.cached(RESTLESS, KEY, V))
        .steps(&[
            (|o| o.send(read(RESTLESS, 1)), &["wake"]),
            (|o| o.write(RESTLESS), &["write", "write_invalidated", "pass_local"]),
            (Orbit::turns, &["round_stale"]),
        ])
        .answered(&[(1, V)]),
    cached("an invalidation by the store")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (
                |o| {
                    let epoch = newest(&o.w);
                    o.send(Message::from_store(Op::Invalidate, SIGNED, KEY).epoch(epoch));
                },
                &["invalidate"],
            ),
            (Orbit::turn, &["round_stale"]),
        ])
        .answered(&[(1, V)]),
    cached("the lease is over")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.w.outlive_lease(), &[]),
            (Orbit::turn, &["round_lapsed"]),
        ])
        .answered(&[(1, V)]),
    cached("a new term of the store")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| next_term(&o.w), &[]),
            (Orbit::turn, &["round_lapsed"]),
        ])
        .answered(&[(1, V)]),
    Row::of("its life is over")
        .given(|w| {
            w.lease(harness::world::TERM);
            w.entry(SIGNED, KEY, V.len());
            let grant = w.grant(SIGNED, KEY, V).expiry_ms(60_000);
            w.send_as("grant_installed", grant);
        })
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (
                |o| {
                    let past = o.w.switch.leases.now_ns() - 1_000_000_000;
                    let past = past.to_ne_bytes();
                    o.w.poke_item(SIGNED, KEY, ItemField::ExpiryNs, &past);
                },
                &[],
            ),
            (Orbit::turn, &["round_lapsed"]),
        ])
        .answered(&[(1, V)]),
    cached("evicted")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| evict(&o.w), &[]),
            (Orbit::turn, &["round_gone"]),
            (|o| o.send(read(SIGNED, 3)), &["miss", "pass_local"]),
        ])
        .answered(&[(1, V)]),
    Row::of("another tenant's item of the same key and hash is another's")
        .given(|w| {
            w.cached(SIGNED, KEY, V);
            w.cached(OTHER, KEY, NEW);
        })
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(OTHER, 2)), &["wake"]),
            (|o| o.send(read(SIGNED, 3)), &["wait"]),
            (|o| o.send(read(OTHER, 4)), &["wait"]),
            (Orbit::turn, &["hit_round", "hit_round"]),
        ])
        .answered(&[(1, V), (2, NEW), (3, V), (4, NEW)])
        .left(2),
    cached("a hash that is made up finds nobody's packet, and harms nobody's")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2).hash_of(b"another key")), &["miss", "pass_local"]),
            (|o| o.send(read(SIGNED, 3)), &["wait"]),
            (Orbit::turn, &["hit_round"]),
        ])
        .answered(&[(1, V), (3, V)])
        .left(1),
    cached("a fetched value goes round at once where somebody waits for it")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (Orbit::turn, &["round_stale"]),
            (
                |o| o.send(o.w.grant(SIGNED, KEY, NEW)),
                &["grant_installed", "wake_grant", "recirculate"],
            ),
            (Orbit::turn, &["recirculate"]),
            (|o| o.send(read(SIGNED, 3)), &["wait"]),
            (Orbit::turn, &["hit_round"]),
            (Orbit::turn, &["hit_round"]),
        ])
        .answered(&[(1, V), (2, NEW), (3, NEW)])
        .left(1),
    cached("it was invalid again when it came round")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (
                |o| o.send(o.w.grant(SIGNED, KEY, NEW)),
                &["grant_installed", "wake_grant", "recirculate"],
            ),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (Orbit::turn, &["round_stale", "round_stale"]),
        ])
        .answered(&[(1, V)]),
    cached("a read woke its value before: one packet stays")
        .steps(&[
            (|o| o.send(read(SIGNED, 1)), &["wake"]),
            (|o| o.send(read(SIGNED, 2)), &["wait"]),
            (|o| o.write(SIGNED), &["write", "write_invalidated", "pass_local"]),
            (
                |o| o.send(o.w.grant(SIGNED, KEY, NEW)),
                &["grant_installed", "wake_grant", "recirculate"],
            ),
            (|o| o.send(read(SIGNED, 3)), &["wake"]),
            (Orbit::turn, &["round_stale", "round_stale", "hit_round"]),
        ])
        .answered(&[(1, V), (3, NEW), (2, NEW)])
        .left(1),
];

#[test]
fn nothing_stale_is_served() {
    check(STALE);
}

#[test]
fn broken_rules_are_noticed() {
    let of_rounds = ["round_any_word", "round_any_generation"];
    let of_all = ["serves_earlier_term", "serves_without_lease", "serves_expired"];
    assert!(holds_with(None, STALE));
    for name in of_rounds.into_iter().chain(of_all) {
        assert!(!holds_with(Some(name), STALE), "{name}: nobody noticed");
    }
}

#[test]
fn what_is_lost_is_made_again_and_what_nobody_wants_parks() {
    check(&[
        cached("a lost packet is found by the next read, which answers those that wait")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2)), &["wait"]),
                (|o| o.round.clear(), &[]),
                (|o| o.send(read(SIGNED, 3)), &["wait"]),
                (|o| o.wait(45), &[]),
                (|o| o.send(read(SIGNED, 4)), &["wake", "round_lost"]),
                (Orbit::turn, &["hit_round"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (4, V), (2, V), (3, V)])
            .left(1),
        cached("where none comes round ever reads are answered without, but for one a second")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.lose(read(SIGNED, 2)), &["wake", "round_lost"]),
                (|o| o.lose(read(SIGNED, 3)), &["wake", "round_lost"]),
                (|o| o.lose(read(SIGNED, 4)), &["wake", "round_lost"]),
                (|o| o.lose(read(SIGNED, 5)), &["wake", "round_lost"]),
                (|o| o.lose(read(SIGNED, 6)), &["hit"]),
                (|o| o.send(read(SIGNED, 7)), &["hit"]),
                (|o| o.wait(1100), &[]),
                (|o| o.send(read(SIGNED, 8)), &["wake", "round_lost"]),
                (|o| o.send(read(SIGNED, 9)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (|o| o.lose(read(SIGNED, 10)), &["wake", "round_lost"]),
            ])
            .answered(&[
                (1, V),
                (2, V),
                (3, V),
                (4, V),
                (5, V),
                (6, V),
                (7, V),
                (8, V),
                (9, V),
                (10, V),
            ])
            .left(1),
        cached("one that was only late is dropped when it comes")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.wait(45), &[]),
                (|o| o.send(read(SIGNED, 2)), &["wake", "round_lost"]),
                (|o| o.send(read(SIGNED, 3)), &["wait"]),
                (Orbit::turn, &["round_stale", "hit_round"]),
            ])
            .answered(&[(1, V), (2, V), (3, V)])
            .left(1),
        cached("after its time for nobody it parks, and the next read wakes it")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.wait(2), &[]),
                (Orbit::turns, &["round_parked"]),
                (|o| o.send(read(SIGNED, 2)), &["wake"]),
                (|o| o.send(read(SIGNED, 3)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V), (3, V)])
            .left(1),
        cached("whoever waits keeps it from parking")
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2)), &["wait"]),
                (|o| o.wait(2), &[]),
                (Orbit::turn, &["hit_round"]),
            ])
            .answered(&[(1, V), (2, V)])
            .left(1),
        Row::of("where the tenant has set so it never parks")
            .given(|w| w.cached(RESTLESS, KEY, V))
            .steps(&[
                (|o| o.send(read(RESTLESS, 1)), &["wake"]),
                (|o| o.wait(5), &[]),
                (Orbit::turns, &[]),
            ])
            .answered(&[(1, V)])
            .left(1),
    ]);
}

/// Everything that goes round was once a packet that a socket of this machine sent, and left the
/// checksum to a device: so whoever takes the answers finishes theirs, also those to others' reads.
fn of_a_packet_that_a_device_is_to_finish_all_answers_are() {
    let mut orbit = Orbit::new();
    orbit.w.cached(SIGNED, KEY, V);
    orbit.w.switch.leave_checksums();
    orbit.send(read(SIGNED, 1).unfinished());
    orbit.send(read(SIGNED, 2));
    orbit.send(read(SIGNED, 3).unfinished());
    orbit.turn();
    orbit.turn();
    assert_eq!((orbit.count("wake"), orbit.count("hit_round")), (1, 2));
    orbit.finish_answers();
    assert_eq!(orbit.told().len(), 3, "with right checksums");
}

#[test]
fn checksums_of_what_goes_round_are_finished_if_its_first_packets_was_to_be() {
    of_a_packet_that_a_device_is_to_finish_all_answers_are();
    harness::switch::in_this_process(of_a_packet_that_a_device_is_to_finish_all_answers_are);
}
