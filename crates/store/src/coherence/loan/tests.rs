//! A loan step by step. Times are in milliseconds here.

use super::*;

const MS: Nanos = 1_000_000;
const LEASE: Nanos = 1000 * MS;
const BASE: u64 = 5_000;

/// A loan of X (1), kept by Y (2), with a lease of X from time 0 on.
struct Story {
    loan: Loan<&'static str>,
    leases: Leases<()>,
}

impl Story {
    fn new() -> Story {
        let mut leases = Leases::new(LEASE, 7);
        leases.request(1, (), 0, 0);
        let terms = Terms { life: 4711, base: 1, owner: 1, keeper: 2, bound_ns: 100 * MS };
        Story { loan: Loan::new(terms, 7, 0), leases }
    }

    fn at(&mut self, ms: u64) -> Vec<Act<&'static str>> {
        let mut acts = vec![];
        self.loan.poll(&mut self.leases, ms * MS, &mut acts);
        acts
    }

    /// Until the owner is told to begin.
    fn beginning() -> Story {
        let mut story = Story::new();
        assert_eq!(story.at(0), [Act::Prepare(Role::Keeper)]);
        story.loan.prepared(Role::Keeper, Some(20), 0);
        assert_eq!(story.at(0), [Act::Prepare(Role::Owner)]);
        story.loan.prepared(Role::Owner, Some(10), 0);
        assert_eq!(story.at(0), [Act::Record]);
        assert_eq!(story.loan.proceeds(), Whereabouts::Here);
        story.loan.journaled(true, 0);
        assert_eq!(story.at(0), [Act::Clear]);
        assert_eq!(story.loan.proceeds(), Whereabouts::Held);
        story.loan.cleared(Some((4_000, "old")), BASE, 0);
        assert_eq!(story.at(0), [Act::Begin(Role::Keeper, 20, None)]);
        story.loan.begun(Role::Keeper, true, 0);
        assert_eq!(story.loan.proceeds(), Whereabouts::Held);
        let begin = Act::Begin(Role::Owner, 10, Some((4_000, "old")));
        assert_eq!(story.at(0), [begin]);
        assert_eq!(story.loan.proceeds(), Whereabouts::Away, "it may have begun");
        story
    }

    fn lent() -> Story {
        let mut story = Story::beginning();
        story.loan.begun(Role::Owner, true, 0);
        assert_eq!(story.at(0), []);
        assert!(story.loan.is_lent());
        story
    }

    fn says(
        &mut self,
        role: Role,
        found: bool,
        sealed: bool,
        value: Option<(u64, &'static str)>,
        ms: u64,
    ) {
        let taken = RecordAnswer {
            found,
            sealed,
            version: value.map_or(0, |(version, _)| version),
            value: value.map(|(_, value)| value),
        };
        self.loan.taken(role, taken, ms * MS);
    }

    /// Nobody answers; until it is over, what was put, and how it ended.
    fn rest(&mut self, from_ms: u64) -> (u64, Vec<&'static str>, End) {
        let mut put = vec![];
        for ms in from_ms..10_000 {
            let mut acts = self.at(ms);
            while let Some(act) = acts.pop() {
                match act {
                    Act::Put(_, value) => {
                        put.push(value);
                        self.loan.put(true, 0);
                    }
                    Act::Erase => self.loan.journaled(true, ms * MS),
                    Act::Over(end) => return (ms, put, end),
                    _ => {}
                }
                acts.extend(self.at(ms));
            }
        }
        panic!("it does not end: {:?}", self.loan);
    }
}

const fn take(role: Role, seal: bool, newest: u64) -> Act<&'static str> {
    Act::Take { role, seal, newest }
}

#[test]
fn a_loan_that_is_not_prepared_in_time_costs_nothing() {
    let mut story = Story::new();
    assert_eq!(story.at(0), [Act::Prepare(Role::Keeper)]);
    assert_eq!(story.at(5), [Act::Prepare(Role::Keeper)], "again");
    assert_eq!(story.at(6), []);
    assert_eq!(story.at(100), [Act::Over(End::Cancelled)]);
    let mut story = Story::new();
    story.loan.prepared(Role::Keeper, None, 0);
    assert_eq!(story.at(0), [Act::Over(End::Cancelled)]);
}

#[test]
fn what_the_journal_does_not_have_is_not_lent() {
    let mut story = Story::new();
    story.loan.prepared(Role::Keeper, Some(20), 0);
    story.loan.prepared(Role::Owner, Some(10), 0);
    assert_eq!(story.at(0), [Act::Record]);
    story.loan.journaled(false, 0);
    assert_eq!(story.at(0), [], "the disk is left alone for a second");
    assert_eq!(story.loan.proceeds(), Whereabouts::Here);
    // A part of its line may be there: it is taken away for certain, however long that takes.
    for (ms, is_erased) in [(1_000, false), (2_000, true)] {
        assert_eq!(story.at(ms - 1), []);
        assert_eq!(story.at(ms), [Act::Erase]);
        story.loan.journaled(is_erased, ms * MS);
        assert_eq!(story.loan.proceeds() == Whereabouts::Here, !is_erased);
    }
    assert_eq!(story.at(2_000), [Act::Over(End::Cancelled)]);
}

/// The journal's answer comes first, whatever it is.
#[test]
fn a_loan_that_is_called_back_while_it_is_recorded_is_never_begun() {
    for is_recorded in [true, false] {
        let mut story = Story::new();
        story.loan.prepared(Role::Keeper, Some(20), 0);
        story.loan.prepared(Role::Owner, Some(10), 0);
        assert_eq!(story.at(0), [Act::Record]);
        story.loan.recall(0);
        assert_eq!(story.at(0), []);
        assert_eq!(story.loan.proceeds(), Whereabouts::Here);
        story.loan.journaled(is_recorded, 0);
        let at_ms = if is_recorded { 0 } else { 1_000 };
        let erases = story.at(at_ms);
        assert_eq!(erases, [Act::Erase]);
        assert!(!story.loan.may_be_kept());
        story.loan.journaled(true, at_ms * MS);
        assert_eq!(story.at(at_ms), [Act::Over(End::Cancelled)]);
    }
}

#[test]
fn an_owner_that_does_not_say_that_it_has_begun_is_called_back() {
    let mut story = Story::beginning();
    assert!(!story.loan.is_ending());
    let acts = story.at(500);
    assert_eq!(acts, [take(Role::Owner, true, 4_000), take(Role::Keeper, true, 4_000)]);
}

#[test]
fn the_keeper_is_asked_twice_within_the_bound_and_what_is_new_is_put() {
    let mut story = Story::lent();
    assert_eq!(story.at(49), []);
    assert_eq!(story.at(50), [take(Role::Keeper, false, 4_000)]);
    story.says(Role::Keeper, true, false, Some((BASE + 3, "new")), 51);
    assert_eq!(story.at(51), [Act::Put(BASE + 3, "new")]);
    assert_eq!(story.at(52), [], "one at a time");
    story.loan.put(true, 0);
    assert_eq!(story.at(100), [take(Role::Keeper, false, BASE + 3)]);
    story.says(Role::Keeper, true, false, None, 101);
    assert_eq!(story.at(101), []);
    assert_eq!(story.at(150), [take(Role::Keeper, false, BASE + 3)]);
    assert_eq!(story.at(160).len(), 1, "asked again");
    assert_eq!(story.at(200).len(), 2, "mute until the bound: called back");
}

#[test]
fn a_write_that_failed_is_done_again_when_it_cannot_take_place_any_more() {
    let mut story = Story::lent();
    story.at(50);
    story.says(Role::Keeper, true, false, Some((BASE + 3, "new")), 51);
    assert_eq!(story.at(51).len(), 1);
    story.loan.put(false, 1_051 * MS);
    story.loan.recall(52 * MS);
    story.at(52);
    story.says(Role::Owner, true, true, Some((BASE + 3, "new")), 53);
    story.says(Role::Keeper, true, true, Some((BASE + 3, "new")), 53);
    assert_eq!(story.at(1_050), []);
    assert_eq!(story.at(1_051), [Act::Put(BASE + 3, "new")]);
}

/// Who answers a recall at 10 ms, and how: it has its record, it lost it, or it is silent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RecallAnswer {
    Has(&'static str, u64),
    Lost,
    Nothing,
}

#[test]
fn what_a_recall_waits_for_and_what_it_finds() {
    use RecallAnswer::{Has, Lost, Nothing};
    let lease = 1000 + 1000 / 64;
    let (a, b) = (Has("a", BASE + 1), Has("b", BASE + 2));
    // (owner, keeper, when it is over, what is put, whether the keeper tells what it kept and
    // whether anything is lost)
    type Row = (RecallAnswer, RecallAnswer, u64, &'static [&'static str], (bool, bool));
    let rows: &[Row] = &[
        (a, b, 10, &["b"], (true, false)),
        (b, a, 10, &["b"], (true, false)),
        (Nothing, b, lease, &["b"], (true, false)),
        (Lost, b, 10, &["b"], (true, false)),
        (a, Lost, 10, &["a"], (false, false)),
        (a, Nothing, 110, &["a"], (false, false)),
        (Lost, Lost, 10, &[], (false, true)),
        (Nothing, Lost, 2 * lease, &[], (false, true)),
        (Nothing, Nothing, 2 * lease, &[], (false, true)),
        (Lost, Nothing, 10 + lease, &[], (false, true)),
    ];
    for (owner, keeper, over_ms, put, end) in rows {
        let mut story = Story::lent();
        story.loan.recall(5 * MS);
        story.at(5);
        for (role, says) in [(Role::Owner, owner), (Role::Keeper, keeper)] {
            match *says {
                Has(value, version) => story.says(role, true, true, Some((version, value)), 10),
                Lost => story.says(role, false, false, None, 10),
                Nothing => {}
            }
        }
        let (at_ms, values, how) = story.rest(10);
        let (tells, lost) = *end;
        let lapsed = *owner == Nothing;
        let end = End::Returned { tells, lost, lapsed };
        assert_eq!((&values[..], how), (*put, end), "{owner:?} {keeper:?}");
        assert!(at_ms.abs_diff(*over_ms) <= 2, "{owner:?} {keeper:?}: {at_ms}, not {over_ms}");
    }
}

#[test]
fn an_owner_that_leaves_its_recall_unanswered_is_not_renewed() {
    let mut story = Story::lent();
    story.loan.recall(5 * MS);
    story.at(5);
    assert!(matches!(
        story.leases.request(1, (), 400 * MS, 400 * MS),
        super::super::LeaseAnswer::Lent { .. }
    ));
    story.at(600);
    assert_eq!(story.leases.request(1, (), 600 * MS, 600 * MS), super::super::LeaseAnswer::Refused);
}

#[test]
fn an_answer_from_before_the_recall_does_not_end_it() {
    let mut story = Story::lent();
    story.at(50);
    story.loan.recall(51 * MS);
    story.at(51);
    story.says(Role::Keeper, true, false, Some((BASE + 1, "early")), 52);
    story.says(Role::Owner, true, true, Some((BASE + 2, "late")), 52);
    assert_eq!(story.at(52), [], "the keeper is not sealed yet");
    story.says(Role::Keeper, true, true, Some((BASE + 2, "late")), 53);
    assert_eq!(story.at(53), [Act::Put(BASE + 2, "late")]);
}

#[test]
fn versions_that_are_not_the_loans_are_nothing_new() {
    for version in [0, 3_999, BASE, BASE + VERSIONS, u64::MAX] {
        let mut story = Story::lent();
        story.at(50);
        story.says(Role::Keeper, true, false, Some((version, "strange")), 51);
        assert_eq!(story.at(51), [], "{version}");
    }
}

#[test]
fn a_loan_found_in_the_journal_is_called_back_and_its_owner_waited_for() {
    let terms = *Story::new().loan.terms();
    let mut story = Story::new();
    story.loan = Loan::found(terms, 2_000 * MS, 0);
    assert_eq!(story.loan.proceeds(), Whereabouts::Away);
    assert_eq!(story.at(0), [take(Role::Owner, true, 0), take(Role::Keeper, true, 0)]);
    story.says(Role::Keeper, true, true, Some((BASE + 9, "kept")), 1);
    let (at_ms, put, _) = story.rest(1);
    assert_eq!((at_ms, put), (2_000, vec!["kept"]));
}

#[test]
fn a_journal_that_does_not_forget_is_asked_again() {
    let mut story = Story::lent();
    story.loan.recall(5 * MS);
    story.says(Role::Owner, true, true, None, 6);
    story.says(Role::Keeper, true, true, None, 6);
    assert_eq!(story.at(6).pop(), Some(Act::Erase));
    story.loan.journaled(false, 7 * MS);
    assert_eq!(story.at(8), []);
    assert_eq!(story.loan.proceeds(), Whereabouts::Held, "only its writes wait");
    assert_eq!(story.at(1_007), [Act::Erase]);
}

#[cfg(debug_assertions)]
#[test]
fn a_recall_that_is_not_noted_is_noticed() {
    use holder::mutants::{Mutant, is_noticed};
    let test = a_loan_that_is_called_back_while_it_is_recorded_is_never_begun;
    assert!(is_noticed(Mutant::RecallUnrecorded, test));
}
