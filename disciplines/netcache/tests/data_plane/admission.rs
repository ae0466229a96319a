//! Who may use the cache.

use crate::{
    case::{Case, Then::*, check},
    harness::Message,
    world::*,
};

#[test]
fn admitted_or_not() {
    check(&[
        Case {
            name: "an unknown tenant",
            given: |_| {},
            packet: |_| Message::read(UNKNOWN, KEY),
            then: Forwarded,
            counts: &["bypass_unknown_tenant", "pass_local"],
        },
        Case {
            name: "a tenant without a discipline here",
            given: |_| {},
            packet: |_| Message::read(PLAIN, KEY),
            then: Forwarded,
            counts: &["bypass_no_discipline", "pass_local"],
        },
        Case {
            name: "a wrong tag, of a key that is cached",
            given: |w| w.cached(SIGNED, KEY, V128),
            packet: |_| Message::read(SIGNED, KEY).with_a_wrong_tag(),
            then: Forwarded,
            counts: &["bypass_bad_tag", "pass_local"],
        },
        Case {
            name: "tenant 0 has no tag to be wrong",
            given: |w| w.cached(OPEN, KEY, b""),
            packet: |_| {
                let mut read = Message::read(OPEN, KEY);
                read.spoil = 0;
                read
            },
            then: Answered(b""),
            counts: &["hit"],
        },
        Case {
            name: "the first request within the rate",
            given: |_| {},
            packet: |_| Message::read(LIMITED, KEY),
            then: Forwarded,
            counts: &["miss", "pass_local"],
        },
        Case {
            name: "above the rate: past the cache",
            given: |w| {
                w.cached(LIMITED, KEY, V128);
                w.send_as("hit", Message::read(LIMITED, KEY));
            },
            packet: |_| Message::read(LIMITED, KEY),
            then: Forwarded,
            counts: &["bypass_over_rate", "pass_local"],
        },
        Case {
            name: "above the rate of a tenant that is set to drop",
            given: |w| {
                w.cached(STRICT, KEY, V128);
                w.send_as("hit", Message::read(STRICT, KEY));
            },
            packet: |_| Message::read(STRICT, KEY),
            then: Dropped,
            counts: &["drop_over_rate"],
        },
        Case {
            name: "replies do not count against a rate",
            given: |w| {
                w.lease(TERM);
                w.entry(STRICT, KEY, 128);
                w.send(Message::read(STRICT, KEY));
                w.send_as("drop_over_rate", Message::read(STRICT, KEY));
            },
            packet: |w| w.grant(STRICT, KEY, V128),
            then: Dropped,
            counts: &["grant_installed", "fetch_reply"],
        },
    ]);
}

/// The store must learn of every write with an epoch, or invalidate by itself: over the rate it does the latter.
#[test]
fn a_write_above_the_rate_is_not_stamped() {
    check(&[Case {
        name: "the write goes on as it came; the store will invalidate",
        given: |w| {
            w.cached(LIMITED, KEY, V128);
            w.send_as("hit", Message::read(LIMITED, KEY));
        },
        packet: |_| Message::write(LIMITED, KEY, b"new"),
        then: Forwarded,
        counts: &["bypass_over_rate", "pass_local"],
    }]);
}
