//! Each rule is switched off in turn, and the checker must find the violation; with the rules as they are, the same
//! small world holds none.

use model::{Bounds, Call, Path, Rule, World};
use stateright::{Checker, HasDiscoveries, Model};

const READ: Call = Call::Read;

/// The smallest world found in which the rule is needed.
fn bounds(rule: Rule) -> Bounds {
    use Path::{Both, Neither, Second};
    let quiet = |scripts: [&[Call]; 3], paths: [Path; 3]| {
        Bounds::quiet(
            scripts.map(<[Call]>::to_vec),
            paths.map(|path| (path, path)),
        )
    };
    let write = Call::Write(1);
    let one = [true, false];
    let second = [false, true];
    match rule {
        Rule::R1EpochsRepeat => Bounds {
            entries: second,
            evictions: 1,
            refills: 1,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second; 3])
        },
        Rule::R2WriteDoesNotInvalidate => Bounds {
            entries: second,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second; 3])
        },
        Rule::R3GrantDuringWrite => Bounds {
            entries: one,
            fetches: 2,
            ..quiet([&[write], &[READ], &[]], [Neither, Both, Both])
        },
        Rule::R4EpochNotCompared => Bounds {
            entries: second,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second; 3])
        },
        Rule::R4OffPathNotInvalidated => Bounds {
            entries: one,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R5InstallOfAnyEpoch => Bounds {
            entries: one,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R5GrantedNotRaised => Bounds {
            entries: one,
            fetches: 1,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R6NoLeaseNeeded => Bounds {
            entries: one,
            fetches: 1,
            steps: 2,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R6TermIgnored => Bounds {
            entries: one,
            fetches: 1,
            steps: 2,
            renewals: 1,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R6NoWaitAfterRestart => Bounds {
            entries: one,
            fetches: 1,
            restarts: 1,
            ..quiet([&[write], &[READ], &[]], [Second, Both, Both])
        },
        Rule::R7AppliedAgain => Bounds {
            entries: [false; 2],
            retransmissions: 1,
            ..quiet([&[write], &[Call::Write(2)], &[READ]], [Neither; 3])
        },
    }
}

fn search(without: Option<Rule>, bounds: Bounds) -> (usize, bool) {
    let checker = World { bounds, without }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let violated = checker.discovery("linearizable").is_some();
    (checker.unique_state_count(), violated)
}

/// Without the rule the checker finds a violation; with it, in the same world, none.
fn is_needed(rule: Rule) {
    let title = rule.title();
    let (states, violated) = search(Some(rule), bounds(rule));
    assert!(violated, "{title}: not caught in {states} states");
    println!("{title} ... caught in {states} states");
    let (states, violated) = search(None, bounds(rule));
    assert!(
        !violated,
        "{title}: violated in {states} states although no rule is off"
    );
}

/// A test per rule, so that a test run lists each as caught.
macro_rules! caught {
    ($($name:ident: $rule:ident;)*) => {
        $(#[test]
        fn $name() {
            is_needed(Rule::$rule);
        })*

        #[test]
        fn every_rule_has_its_test() {
            assert_eq!([$(Rule::$rule),*], Rule::ALL);
        }
    };
}

caught! {
    rule_1_epochs_that_repeat_are_caught: R1EpochsRepeat;
    rule_2_a_write_that_does_not_invalidate_is_caught: R2WriteDoesNotInvalidate;
    rule_3_a_grant_during_a_write_is_caught: R3GrantDuringWrite;
    rule_4_an_epoch_that_is_not_compared_is_caught: R4EpochNotCompared;
    rule_4_a_copy_off_the_path_left_valid_is_caught: R4OffPathNotInvalidated;
    rule_5_a_grant_installed_at_any_epoch_is_caught: R5InstallOfAnyEpoch;
    rule_5_granted_that_is_not_raised_is_caught: R5GrantedNotRaised;
    rule_6_serving_without_a_lease_is_caught: R6NoLeaseNeeded;
    rule_6_serving_an_earlier_term_is_caught: R6TermIgnored;
    rule_6_a_store_that_restarts_without_waiting_is_caught: R6NoWaitAfterRestart;
    rule_7_a_write_applied_again_is_caught: R7AppliedAgain;
}
