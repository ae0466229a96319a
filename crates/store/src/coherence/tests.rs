//! Each rule as a table or a short story. Times are in milliseconds here, for the reader.

use wire::Epoch;

use super::*;

const MS: Nanos = 1_000_000;
const LEASE: Nanos = 1000 * MS;
const FIRST_TERM: u64 = u64::MAX;

/// One key, with switches that hold leases from time 0 on.
struct Story {
    key: KeyState<&'static str>,
    leases: Leases<()>,
    sent: Vec<Invalidate>,
}

impl Story {
    fn with_leases(switches: &[SwitchId]) -> Story {
        let mut leases = Leases::new(LEASE, FIRST_TERM);
        for switch in switches {
            leases.request(*switch, (), 0, 0);
        }
        Story { key: KeyState::default(), leases, sent: vec![] }
    }

    fn granted(mut self, copies: &[(SwitchId, u64)]) -> Story {
        for (switch, number) in copies {
            assert_eq!(self.grant(*switch, *number, 0), Ok(()));
        }
        self
    }

    fn grant(&mut self, switch: SwitchId, number: u64, at: Nanos) -> Result<(), NoGrant> {
        self.key.grant(Epoch::new(switch, number), &self.leases, true, at)
    }

    fn submit(&mut self, epoch: Epoch, body: &'static str) -> Submission<&'static str> {
        let write = Write { epoch, told_stores: false, body };
        self.key.submit(write, 2)
    }

    /// Polls; what was sent replaces what was sent before.
    fn poll(&mut self, at: Nanos) -> Step {
        self.sent.clear();
        self.key.poll(&mut self.leases, at, &mut self.sent)
    }

    fn sent_to(&self) -> Vec<(SwitchId, u64)> {
        self.sent.iter().map(|i| (i.switch, i.granted)).collect()
    }

    fn apply(&mut self) -> &'static str {
        self.key.applied(0).expect("a write is being applied").body
    }
}

#[test]
fn rule_3_writes_to_a_key_go_one_at_a_time_in_order() {
    let mut s = Story::with_leases(&[]);
    assert_eq!(s.submit(Epoch::NONE, "a"), Submission::Started);
    assert_eq!(s.poll(0), Step::Apply);
    assert_eq!(s.submit(Epoch::NONE, "b"), Submission::Queued);
    assert_eq!(s.submit(Epoch::NONE, "c"), Submission::Queued);
    assert_eq!(s.submit(Epoch::NONE, "d"), Submission::Refused("d"), "the queue holds two");
    assert_eq!(s.poll(0), Step::Applying);
    for body in ["a", "b", "c"] {
        assert_eq!(s.apply(), body);
        s.poll(0);
    }
    assert_eq!(s.poll(0), Step::Idle);
    assert!(s.key.is_forgettable());
}

#[test]
fn rule_4_whom_a_write_waits_for() {
    // (copies granted, the write's epoch, whom it waits for, why)
    type Row = (&'static [(SwitchId, u64)], Epoch, &'static [(SwitchId, u64)], &'static str);
    let rows: &[Row] = &[
        (&[], Epoch::NONE, &[], "no copies"),
        (&[], Epoch::new(1, 5), &[], "no copies; X had no entry but took an epoch"),
        (&[(1, 4)], Epoch::new(1, 5), &[], "5 > 4: X is invalid for certain"),
        (&[(1, 5)], Epoch::new(1, 5), &[(1, 5)], "equal: the grant may have come after the write"),
        (&[(1, 6)], Epoch::new(1, 5), &[(1, 6)], "X was granted more since the write passed it"),
        (&[(1, 4)], Epoch::NONE, &[(1, 4)], "the write did not pass X"),
        (&[(1, 4), (2, 9)], Epoch::new(1, 5), &[(2, 9)], "X is done, Y is off the path"),
        (&[(2, 1)], Epoch::new(1, 5), &[(2, 1)], "X's number says nothing of Y"),
        (&[(1, 4), (1, 8)], Epoch::new(1, 8), &[(1, 8)], "the highest grant counts"),
        (&[(1, 8), (1, 4)], Epoch::new(1, 8), &[(1, 8)], "in whatever order they were given"),
    ];
    for (copies, epoch, waits, why) in rows {
        let mut s = Story::with_leases(&[1, 2]).granted(copies);
        s.submit(*epoch, "w");
        let step = s.poll(0);
        assert_eq!(s.sent_to(), *waits, "{why}");
        assert_eq!(step == Step::Apply, waits.is_empty(), "{why}");
    }
}

#[test]
fn rule_4_only_a_higher_epoch_ends_a_wait() {
    for (ack, ends) in [
        (Epoch::new(1, 3), false),
        (Epoch::new(1, 4), false),
        (Epoch::new(2, 9), false),
        (Epoch::new(1, 5), true),
    ] {
        let mut s = Story::with_leases(&[1, 2]).granted(&[(1, 4)]);
        s.submit(Epoch::NONE, "w");
        assert!(matches!(s.poll(0), Step::Wait(_)));
        assert_eq!(s.key.prove_invalid(ack), ends, "{ack:?}");
        assert_eq!(s.poll(0) == Step::Apply, ends, "{ack:?}");
    }
}

#[test]
fn rule_4_a_grant_for_an_epoch_that_was_never_taken_holds_nobody_up() {
    let forged = 1 << 47;
    for (ack, echoed, ends) in [
        (Epoch::new(1, 9), forged, true),
        (Epoch::new(1, 9), forged - 1, false),
        (Epoch::new(2, 9), forged, false),
    ] {
        let mut s = Story::with_leases(&[1, 2]).granted(&[(1, forged)]);
        s.submit(Epoch::NONE, "w");
        assert!(matches!(s.poll(0), Step::Wait(_)));
        assert_eq!(s.key.disprove_grant(ack, echoed), ends, "{ack:?} {echoed}");
        assert_eq!(s.poll(0) == Step::Apply, ends, "{ack:?} {echoed}");
    }
}

#[test]
fn rule_4_a_later_write_through_x_proves_as_much_as_an_acknowledgement() {
    let mut s = Story::with_leases(&[1]).granted(&[(1, 4)]);
    s.submit(Epoch::NONE, "a");
    assert!(matches!(s.poll(0), Step::Wait(_)));
    s.submit(Epoch::new(1, 5), "b");
    assert_eq!(s.poll(0), Step::Apply);
    assert_eq!(s.apply(), "a");
}

#[test]
fn rule_4_invalidations_are_repeated_ever_more_slowly() {
    let mut s = Story::with_leases(&[1]).granted(&[(1, 4)]);
    s.submit(Epoch::NONE, "w");
    let (mut at, mut gaps) = (0, vec![]);
    for _ in 0..8 {
        let Step::Wait(next) = s.poll(at) else { panic!("still waiting") };
        assert_eq!(s.sent_to(), [(1, 4)]);
        gaps.push((next - at) / MS);
        at = next;
    }
    assert_eq!(gaps, [5, 10, 20, 40, 80, 100, 100, 100]);
    let before = at - MS;
    s.poll(before);
    assert_eq!(s.sent_to(), [], "nothing between two repetitions");
}

#[test]
fn rule_5_when_a_grant_is_given() {
    let mut s = Story::with_leases(&[1]);
    assert_eq!(s.grant(2, 7, 0), Err(NoGrant::NoLease));
    assert_eq!(s.grant(0, 7, 0), Err(NoGrant::NoLease), "no switch");
    let refused = s.key.grant(Epoch::new(1, 7), &s.leases, false, 0);
    assert_eq!(refused, Err(NoGrant::DirectoryFull));
    assert_eq!(s.grant(1, 7, 0), Ok(()));
    let again = s.key.grant(Epoch::new(1, 8), &s.leases, false, 0);
    assert_eq!(again, Ok(()), "it takes no more room");
    s.submit(Epoch::NONE, "w");
    assert_eq!(s.grant(1, 9, 0), Err(NoGrant::WritePending), "not even before the first poll");
    s.poll(0);
    assert_eq!(s.grant(1, 9, 0), Err(NoGrant::WritePending));
    s.key.prove_invalid(Epoch::new(1, 9));
    assert_eq!(s.poll(0), Step::Apply);
    assert_eq!(s.grant(1, 10, 0), Err(NoGrant::WritePending), "the backend has it");
    s.apply();
    assert!(s.key.copies().is_empty(), "after a write nobody holds a copy");
    assert_eq!(s.grant(1, 10, 0), Ok(()), "unless granted with its answer");
}

#[test]
fn rule_5_nothing_is_granted_while_a_failed_write_may_still_happen() {
    let mut s = Story::with_leases(&[1]);
    s.submit(Epoch::NONE, "w");
    s.poll(0);
    s.key.applied(500 * MS).expect("it was being applied");
    assert_eq!(s.grant(1, 1, 499 * MS), Err(NoGrant::WritePending));
    assert_eq!(s.poll(0), Step::Wait(500 * MS));
    assert!(!s.key.settle(499 * MS) && !s.key.is_forgettable());
    assert_eq!(s.grant(1, 1, 500 * MS), Err(NoGrant::WritePending), "not settled");
    assert!(s.key.settle(500 * MS) && !s.key.settle(500 * MS), "once");
    assert_eq!(s.grant(1, 1, 500 * MS), Ok(()));
}

#[test]
fn a_write_waits_while_a_failed_one_may_still_happen() {
    let mut s = Story::with_leases(&[1]);
    s.submit(Epoch::NONE, "w");
    s.poll(0);
    s.key.applied(500 * MS).expect("it was being applied");
    s.submit(Epoch::NONE, "x");
    assert_eq!(s.poll(499 * MS), Step::Wait(500 * MS));
    assert!(s.key.settle(500 * MS));
    assert_eq!(s.poll(500 * MS), Step::Apply);
}

#[test]
fn rule_6_a_wait_ends_when_the_lease_has_run_out() {
    let mut s = Story::with_leases(&[1]).granted(&[(1, 4)]);
    let until = s.leases.until_ns(1).unwrap();
    assert!(until > LEASE, "the granter counts longer than the holder");
    s.submit(Epoch::NONE, "w");
    assert_eq!(s.poll(until - 1), Step::Wait(until));
    assert_eq!(s.poll(until), Step::Apply);
}

#[test]
fn rule_6_a_copy_of_an_earlier_term_is_dead() {
    let mut s = Story::with_leases(&[1]).granted(&[(1, 4)]);
    let until = s.leases.until_ns(1).unwrap();
    let lent = s.leases.request(1, (), until, until);
    assert!(matches!(lent, LeaseAnswer::Lent { new_term: true, .. }));
    s.submit(Epoch::NONE, "w");
    assert_eq!(s.poll(until), Step::Apply, "X never serves it again");
}

/// The switch has left, and is there again: what it said as it left comes after that.
#[test]
fn rule_6_what_gives_a_lease_back_that_was_asked_for_again_comes_late() {
    let mut leases = Leases::new(LEASE, FIRST_TERM);
    leases.request(1, (), 0, 0);
    let LeaseAnswer::Lent { term, .. } = leases.request(1, (), 20 * MS, 20 * MS) else {
        panic!("it holds one")
    };
    assert!(!leases.give_back(1, term, 20 * MS, 30 * MS));
    assert!(leases.holds(1, term, 30 * MS));
    assert!(!leases.give_back(1, term.wrapping_add(1), 50 * MS, 40 * MS), "of another term");
    assert!(leases.give_back(1, term, 50 * MS, 40 * MS));
    assert!(!leases.holds(1, term, 40 * MS));
}

#[test]
fn rule_6_terms() {
    let mut leases = Leases::new(LEASE, FIRST_TERM);
    let mut terms = vec![];
    // (when, whether in a new term, why)
    let rows = [
        (0, true, "new: this life's first"),
        (500, false, "renewed in time: the same term"),
        (1499, false, "and again, counted from the renewal"),
        (9000, true, "lapsed: a new term"),
        (19_000, true, "and again"),
    ];
    for (at_ms, begins, why) in rows {
        let LeaseAnswer::Lent { term, new_term } = leases.request(1, (), at_ms * MS, at_ms * MS)
        else {
            panic!("refused: {why}")
        };
        assert_eq!(new_term, begins, "{why}");
        assert_eq!(terms.last() != Some(&term), begins, "{why}");
        if begins {
            assert!(!terms.contains(&term), "{why}");
            terms.push(term);
        }
    }
    assert_eq!(terms[0], FIRST_TERM, "asked at 0 of the switch's clock");
}

#[test]
fn rule_6_a_clock_that_jumped_is_not_renewed_in_its_term() {
    // What the switch's clock shows and what ours does, in milliseconds after the first request;
    // whether it is renewed; why.
    let rows = [
        (300, 300, true, "both went on"),
        (0, 300, true, "it was paused, or its request comes twice"),
        (700, 300, true, "the first request was on its way for long"),
        (-100, 300, false, "it went back to a snapshot, or started anew"),
        (-9000, 300, false, "likewise"),
        (1500, 300, false, "another machine, or we stood still or went back"),
    ];
    for first in [50_000, u64::MAX / MS - 100] {
        for (theirs, ours, is_renewed, why) in rows {
            let mut leases = Leases::new(LEASE, FIRST_TERM);
            let at = |ms: i64| (first * MS).wrapping_add_signed(ms * MS as i64);
            leases.request(1, (), at(0), 0);
            let lent = leases.request(1, (), at(theirs), ours * MS);
            let renewed = matches!(lent, LeaseAnswer::Lent { new_term: false, .. });
            assert_eq!(renewed, is_renewed, "{why}");
            if !renewed {
                assert_eq!(lent, LeaseAnswer::OtherClock, "{why}");
                // It asks on and on; once it has lapsed it begins a new term.
                let until = leases.until_ns(1).unwrap();
                let again = |leases: &mut Leases<()>, now| {
                    let passed = (now / MS) as i64 - ours as i64;
                    leases.request(1, (), at(theirs + passed), now)
                };
                assert_eq!(again(&mut leases, until - 1), LeaseAnswer::OtherClock);
                let lent = again(&mut leases, until);
                assert!(matches!(lent, LeaseAnswer::Lent { new_term: true, .. }));
            }
        }
    }
}

#[test]
fn rule_6_a_request_that_is_overtaken_costs_nothing() {
    let mut leases = Leases::new(LEASE, FIRST_TERM);
    let mut ask = |asked, now| leases.request(1, (), asked * MS, now * MS);
    ask(0, 0);
    ask(300, 301);
    assert_eq!(ask(295, 310), LeaseAnswer::Overtaken);
    for at in [600, 900, 1200, 2000] {
        assert!(matches!(ask(at, at + 1), LeaseAnswer::Lent { new_term: false, .. }));
    }
}

#[test]
fn rule_6_of_two_machines_with_one_number_one_is_lent_to() {
    let mut leases = Leases::new(LEASE, FIRST_TERM);
    let (mut first, mut second) = (0, 0);
    for now in (0..20_000).step_by(333) {
        let lent = |answer| u32::from(matches!(answer, LeaseAnswer::Lent { .. }));
        first += lent(leases.request(1, (), (now + 60_000) * MS, now * MS));
        // A clone of the first, that stood still for four seconds as it was made.
        second += lent(leases.request(1, (), (now + 56_000) * MS, (now + 100) * MS));
    }
    assert_eq!((first, second), (61, 0));
}

#[test]
fn rule_6_a_store_that_went_back_gives_no_term_again() {
    let mut leases = Leases::new(LEASE, FIRST_TERM);
    let ask =
        |leases: &mut Leases<()>, theirs, ours| match leases.request(1, (), theirs * MS, ours * MS)
        {
            LeaseAnswer::Lent { term, .. } => Some(term),
            _ => None,
        };
    let before_all = leases.clone();
    ask(&mut leases, 5000, 100);
    let snapshot = leases.clone();
    // It lapses once, and is then renewed for a while.
    let term = ask(&mut leases, 9000, 4100);
    assert!(term.is_some());
    assert_eq!(ask(&mut leases, 9500, 4600), term);
    // The switch goes on in that term while the store is where it was, and its clock too.
    let mut leases = snapshot;
    assert_eq!(ask(&mut leases, 9800, 200), None, "it had term 1 then");
    let next = ask(&mut leases, 11_000, 1300);
    assert!(next.is_some() && next != term);
    let mut leases = before_all;
    assert_ne!(ask(&mut leases, 9800, 50), term, "nor is it the first again");
}

#[test]
fn rule_6_a_mute_switch_is_not_renewed_until_it_has_lapsed() {
    let mut s = Story::with_leases(&[1, 2]).granted(&[(1, 4)]);
    s.submit(Epoch::NONE, "w");
    let mut at = 0;
    // It renews its lease all the time but never acknowledges.
    let applied_at = loop {
        s.leases.request(1, (), at, at);
        s.leases.request(2, (), at, at);
        match s.poll(at) {
            Step::Wait(next) => at = next,
            _ => break at,
        }
    };
    assert!(applied_at < 2 * LEASE, "half a lease, then one more to run out");
    let term = s.leases.term(1, at);
    assert!(term.is_some() && term != Some(FIRST_TERM), "it had to begin a new term");
    assert_eq!(s.leases.term(2, at), Some(FIRST_TERM), "the other switch is not concerned");
}

#[test]
fn rule_7_what_becomes_of_a_write_that_comes_again() {
    let mut window = Window::default();
    assert_eq!(window.begin(5, 4), Verdict::New);
    assert_eq!(window.begin(5, 4), Verdict::Pending);
    window.finish(5, 'a');
    assert_eq!(window.begin(5, 4), Verdict::Answered('a'));
    assert_eq!(window.begin(3, 4), Verdict::New, "overtaken, not late");
    window.forget(3);
    assert_eq!(window.begin(3, 4), Verdict::New, "it was refused, so it may come again");
    window.finish(3, 'b');
    for id in 6..10 {
        assert_eq!(window.begin(id, 4), Verdict::New);
        window.finish(id, 'c');
    }
    assert_eq!(window.begin(5, 4), Verdict::TooOld, "forgotten, so never applied again");
    assert_eq!(window.begin(4, 4), Verdict::TooOld, "nobody knows whether it was applied");
    assert_eq!(window.begin(9, 4), Verdict::Answered('c'));
}

#[test]
fn rule_7_pending_writes_are_not_forgotten() {
    let mut window: Window<()> = Window::default();
    assert_eq!(window.begin(1, 2), Verdict::New);
    assert_eq!(window.begin(2, 2), Verdict::New);
    assert_eq!(window.begin(3, 2), Verdict::Full);
    window.finish(1, ());
    assert_eq!(window.begin(3, 2), Verdict::New);
    assert!(window.is_busy());
}

#[test]
fn rule_7_a_write_that_others_may_have_decided_is_never_new_again() {
    let mut window = Window::default();
    assert_eq!(window.begin(5, 4), Verdict::New);
    window.finish(5, "moved");
    for _ in 0..2 {
        window.reopen(5);
        assert_eq!(window.begin(5, 4), Verdict::Pending);
        window.forget(5);
        assert_eq!(window.begin(5, 4), Verdict::Answered("moved"));
        window.forget(5);
    }
    window.reopen(5);
    window.finish(5, "kept");
    assert_eq!(window.begin(5, 4), Verdict::Answered("kept"));
}

#[test]
fn rule_7_a_write_after_billions_of_reads_is_a_new_one() {
    let mut window = Window::default();
    let years_of_reads = 1 << 48;
    for id in [1, 2, 3, years_of_reads] {
        assert_eq!(window.begin(id, 2), Verdict::New);
        window.finish(id, id);
    }
    assert_eq!(window.begin(2, 2), Verdict::TooOld);
    assert_eq!(window.begin(years_of_reads, 2), Verdict::Answered(years_of_reads));
}

#[test]
fn a_recall_frees_the_key_and_writes_nothing() {
    let mut s = Story::with_leases(&[1, 2]).granted(&[(1, 4), (2, 2)]);
    assert!(s.key.recall(0));
    assert!(!s.key.recall(0), "one thing at a time");
    assert!(matches!(s.poll(0), Step::Wait(_)));
    assert_eq!(s.grant(1, 5, 0), Err(NoGrant::WritePending));
    s.key.prove_invalid(Epoch::new(1, 5));
    s.key.prove_invalid(Epoch::new(2, 3));
    assert_eq!(s.poll(0), Step::Idle);
    assert!(s.key.is_forgettable());
}

#[test]
fn rule_4_a_key_is_lent_only_when_its_copies_are_called_back() {
    let mut s = Story::with_leases(&[1, 2]).granted(&[(1, 4), (2, 2)]);
    s.key.hold();
    assert!(matches!(s.poll(0), Step::Wait(_)));
    assert_eq!(s.sent_to(), [(1, 4), (2, 2)]);
    s.key.prove_invalid(Epoch::new(1, 5));
    assert!(matches!(s.poll(0), Step::Wait(_)));
    s.key.prove_invalid(Epoch::new(2, 3));
    assert_eq!(s.poll(0), Step::Held);
}

/// What takes too many rare things in one order for the hunt: a test above, of the one decision,
/// fails.
#[cfg(debug_assertions)]
#[test]
fn rare_mutants_are_noticed() {
    use holder::mutants::{Mutant, is_noticed};
    let rare: [(Mutant, fn()); 3] = [
        (Mutant::LentWithCopies, rule_4_a_key_is_lent_only_when_its_copies_are_called_back),
        (Mutant::LifeKept, lives::tests::what_is_done_with_a_write_that_names_a_life),
        (Mutant::MovedForgotten, rule_7_a_write_that_others_may_have_decided_is_never_new_again),
    ];
    for (mutant, test) in rare {
        assert!(is_noticed(mutant, test), "{}: nobody noticed", mutant.name());
    }
}
