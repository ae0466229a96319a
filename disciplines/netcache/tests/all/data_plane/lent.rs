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
        Case {
            name: "a read of a lent key",
            given: |w| {
                w.cached(LENDS, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
            },
            packet: |_| Message::read(LENDS, KEY).padded(200),
            then: Answered(LENT),
            counts: &["lent_read"],
        },
        Case {
            name: "of another key, which is cached",
            given: |w| {
                w.cached(LENDS, OTHER_KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
            },
            packet: |_| Message::read(LENDS, OTHER_KEY).padded(200),
            then: Answered(V128),
            counts: &["hit"],
        },
        Case {
            name: "of another key, which is not",
            given: |w| {
                w.lease(TERM);
                w.lent(LENDS, KEY, LENT, LIFE);
            },
            packet: |_| Message::read(LENDS, OTHER_KEY),
            then: Forwarded,
            counts: &["miss", "pass_local"],
        },
        Case {
            name: "of the same key of another tenant",
            given: |w| {
                w.cached(SIGNED, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
            },
            packet: |_| Message::read(SIGNED, KEY).padded(200),
            then: Answered(V128),
            counts: &["hit"],
        },
        Case {
            name: "a write of another key",
            given: |w| {
                w.cached(LENDS, OTHER_KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
            },
            packet: |_| Message::write(LENDS, OTHER_KEY, b"new"),
            then: Stamped { grant: true },
            counts: &["write", "write_invalidated", "pass_local"],
        },
        Case {
            name: "the loan is over: what was cached before it is not served",
            given: |w| {
                w.cached(LENDS, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
                w.seal(LENDS, KEY, LIFE);
            },
            packet: |_| Message::read(LENDS, KEY).epoch(Epoch::new(9, 5)),
            then: Forwarded,
            counts: &["read_invalid", "pass_local"],
        },
        Case {
            name: "likewise while its lease is",
            given: |w| {
                w.cached(LENDS, KEY, V128);
                w.lent(LENDS, KEY, LENT, LIFE);
                w.outlive_lease();
            },
            packet: |_| Message::read(LENDS, KEY).padded(200),
            then: Forwarded,
            counts: &["read_no_lease", "pass_local"],
        },
    ]);
}
