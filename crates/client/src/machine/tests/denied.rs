//! How a write ends whose denials nobody signed: a store that does not know the tenant cannot.

use super::*;

/// The error of a write of `k` that somebody denied all the time.
fn denied(rules: &Rules) -> Error {
    let mut call = Call::new(rules, &set(b"k", b"v"), MS).unwrap();
    assert!(matches!(call.start(rules, rules.new_id(None), MS), Step::Go));
    call.next(rules, MS, 0.5).expect("a datagram");
    call.timer(rules, true, call.until_ns());
    call.timed_out(rules)
}

#[test]
fn a_write_that_no_life_can_have_done_is_denied_and_not_in_doubt() {
    let rules = Rules::new(&Cluster::single(store(), 4), 0, Options::default(), 1).unwrap();
    assert!(matches!(denied(&rules), Error::Denied { tenant: 0, .. }));
    // Whoever denied it need not be the store, which was there a moment ago.
    let life = Header { life: 77, ..Header::new(Op::WriteReply) };
    rules.lives.heard(0, &Secret::NONE.key_hash(0, b"k"), 1, &life);
    assert!(matches!(denied(&rules), Error::OutcomeUnknown { denied: Some(0), .. }));
}
