//! A key that is lent to the switch, of a tenant of the discipline:
//! `crates/dataplane/tests/all/lent` has the rest.

use harness::{Case, Expectation::*, Message};
use wire::Epoch;

use super::world::*;

const LIFE: u16 = 0x1eaf;
const OTHER_KEY: &[u8] = b"key0000000000043";
const LENT: &[u8] = b"what was lent";

#[test]
fn what_is_lent_is_answered_from_its_record_and_all_else_as_before() {
    check(&[
        Case::of("a read of a lent key")
            .given(|w| w.cached(LENDS, KEY, V128))
            .and(|w| w.lent(LENDS, KEY, LENT, LIFE))
            .packet(|_| Message::read(LENDS, KEY).padded(200))
            .then(Answered(LENT), &["lent_read"]),
        Case::of("of another key, which is cached")
            .given(|w| w.cached(LENDS, OTHER_KEY, V128))
            .and(|w| w.lent(LENDS, KEY, LENT, LIFE))
            .packet(|_| Message::read(LENDS, OTHER_KEY).padded(200))
            .then(Answered(V128), &["hit"]),
        Case::of("of another key, which is not")
            .given(|w| w.lease(TERM))
            .and(|w| w.lent(LENDS, KEY, LENT, LIFE))
            .packet(|_| Message::read(LENDS, OTHER_KEY))
            .then(Forwarded, &["miss", "pass_local"]),
        cached("of the same key of another tenant")
            .and(|w| w.lent(LENDS, KEY, LENT, LIFE))
            .packet(|_| Message::read(SIGNED, KEY).padded(200))
            .then(Answered(V128), &["hit"]),
        Case::of("a write of another key")
            .given(|w| w.cached(LENDS, OTHER_KEY, V128))
            .and(|w| w.lent(LENDS, KEY, LENT, LIFE))
            .packet(|_| Message::write(LENDS, OTHER_KEY, b"new"))
            .then(Stamped { grant: true }, &["write", "write_invalidated", "pass_local"]),
        Case::of("the loan is over: what was cached before it is not served")
            .given(|w| {
                w.cached(LENDS, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
                w.seal(LENDS, KEY, LIFE);
            })
            .packet(|_| Message::read(LENDS, KEY).epoch(Epoch::new(9, 5)))
            .then(Forwarded, &["read_invalid", "pass_local"]),
        Case::of("likewise while its lease is")
            .given(|w| {
                w.cached(LENDS, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
                w.outlive_lease();
            })
            .packet(|_| Message::read(LENDS, KEY).padded(200))
            .then(Forwarded, &["read_no_lease", "pass_local"]),
    ]);
}
