//! A key that is lent to the switch, of a tenant of the discipline:
//! `crates/dataplane/tests/all/lent` has the rest.

use super::world::*;

const LENT: &[u8] = &[b'l'; 128];

#[test]
fn what_is_lent_is_answered_from_its_record_and_goes_round_no_more() {
    check(&[
        Row::of("a value that went round ends, reads are answered at once")
            .given(|w| w.cached(LENDS, KEY, V))
            .steps(&[
                (|o| o.send(read(LENDS, 1)), &["wake"]),
                (|o| o.w.lent(LENDS, KEY, LENT, LIFE), &[]),
                (|o| o.send(read(LENDS, 2)), &["lent_read"]),
                (|o| o.turns(), &["round_stale"]),
                (|o| o.send(read(LENDS, 3)), &["lent_read"]),
            ])
            .answered(&[(1, V), (2, LENT), (3, LENT)]),
        Row::of("another tenant's goes round as before")
            .given(|w| {
                w.cached(SIGNED, KEY, V);
                w.lent(LENDS, KEY, LENT, LIFE);
            })
            .steps(&[
                (|o| o.send(read(SIGNED, 1)), &["wake"]),
                (|o| o.send(read(SIGNED, 2)), &["wait"]),
                (Orbit::turn, &["hit_round"]),
                (|o| o.send(read(LENDS, 3)), &["lent_read"]),
            ])
            .answered(&[(1, V), (2, V), (3, LENT)])
            .left(1),
        Row::of("the loan is over: the store is asked")
            .given(|w| {
                w.cached(LENDS, KEY, V);
                w.lent(LENDS, KEY, LENT, LIFE);
                w.seal(LENDS, KEY, LIFE);
            })
            .steps(&[(|o| o.send(read(LENDS, 1)), &["read_invalid", "pass_local"])]),
    ]);
}
