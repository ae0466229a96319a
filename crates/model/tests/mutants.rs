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

#[test]
fn every_rule_is_needed() {
    for rule in Rule::ALL {
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
}
