//! Each part of a rule is broken in turn, in the C or in the store, and the checker must find what
//! comes of it; with nothing broken the same small world holds no violation.

use std::io::Write;

use dataplane::native;
use model::{Bounds, BrokenRule, Call, Path, World};
use stateright::{Checker, HasDiscoveries, Model};
use store::mutants::Mutant::{self, *};

const READ: Call = Call::Read;
const WRITE: Call = Call::Write(1);
const SECOND: Call = Call::Write(2);

/// Needs two packets in a switch at once, or the agent beside one. Here packets pass a switch one
/// after the other; the data plane's fuzzer lets them interrupt each other, and its oracle catches
/// these (`crates/dataplane/tests/all/host_c.rs`).
const NOT_ATOMIC: [&str; 5] = [
    "epoch_after_lookup",
    "entry_epoch_falls",
    "probation_twice",
    "overwrites_younger",
    "serves_torn",
];

fn quiet(scripts: [&[Call]; 3], paths: [Path; 3]) -> Bounds {
    Bounds::quiet(scripts.map(<[Call]>::to_vec), paths.map(|path| (path, path)))
}

/// Switch 2 has an entry, whose agent may fetch, and everybody passes it.
fn on_the_path() -> Bounds {
    Bounds {
        entries: [false, true],
        fetches: 1,
        ..quiet([&[WRITE], &[READ], &[]], [Path::Second; 3])
    }
}

/// Switch 1 has an entry, whose agent may fetch; the writer goes around it.
fn off_the_path() -> Bounds {
    Bounds {
        entries: [true, false],
        fetches: 1,
        ..quiet([&[WRITE], &[READ], &[]], [Path::Second, Path::Both, Path::Both])
    }
}

/// The value's life ends after one step of time.
fn short_lived() -> Bounds {
    Bounds { steps: 1, life: Some(1), ..quiet([&[], &[READ], &[READ]], [Path::Second; 3]) }
}

/// Switch 2 has no entry but by a read that makes it one, and everybody passes it.
fn on_probation(scripts: [&[Call]; 3]) -> Bounds {
    Bounds { entries: [false; 2], blanks: 1, ..quiet(scripts, [Path::Second; 3]) }
}

/// Values have two parts. Switch 1 has an entry; one passes it on the way to read, and the writer's
/// second part goes around it.
fn in_parts() -> Bounds {
    Bounds {
        parts: true,
        entries: [true, false],
        ..Bounds::quiet(
            [vec![WRITE], vec![READ, READ], vec![]],
            [(Path::Both, Path::Second), (Path::Both, Path::Both), (Path::Both, Path::Both)],
        )
    }
}

/// The smallest world found in which the switches' mutant does harm.
fn of_switches(name: &str) -> Bounds {
    match name {
        "epoch_repeats" | "write_invalidates_nothing" | "entry_keeps_epoch" | "serves_invalid" => {
            on_the_path()
        }
        "probation_valid" => on_probation([&[WRITE], &[READ, READ], &[]]),
        "probation_old_epoch" => on_probation([&[WRITE], &[SECOND], &[READ, READ]]),
        "ack_invalidates_nothing" | "ack_takes_no_epoch" | "installs_any_epoch" => off_the_path(),
        "serves_expired" | "expiry_from_arrival" => {
            Bounds { entries: [false, true], ..short_lived() }
        }
        "serves_without_lease" => Bounds { steps: 2, ..off_the_path() },
        "lease_from_arrival" | "serves_earlier_term" | "floor_not_raised" => {
            Bounds { steps: 2, renewals: 1, ..off_the_path() }
        }
        other => panic!("{other}: no world for this mutant"),
    }
}

/// Likewise for the store's.
fn of_the_store(mutant: Mutant) -> Bounds {
    use Path::{Both, Neither, Second};
    let again = |calls: [&[Call]; 3]| Bounds {
        entries: [false; 2],
        retransmissions: 1,
        ..quiet(calls, [Neither; 3])
    };
    match mutant {
        TwoWritesAtOnce => Bounds {
            entries: [true; 2],
            fetches: 1,
            ..quiet([&[WRITE, READ], &[SECOND], &[READ]], [Second, Neither, Neither])
        },
        GrantDuringWrite => Bounds {
            entries: [true, false],
            fetches: 2,
            ..quiet([&[WRITE], &[READ], &[]], [Neither, Both, Both])
        },
        VersionNotRaised => {
            quiet([&[Call::CompareAndSet { from: 0, to: 1 }], &[SECOND], &[READ]], [Neither; 3])
        }
        EpochNotCompared => on_the_path(),
        GrantedFalls => Bounds { fetches: 2, ..on_the_path() },
        OffPathNotInvalidated | AppliedBeforeAcknowledged | GrantedNotRaised => off_the_path(),
        WaitTimesOut | LeaseCutShort => Bounds { steps: 1, ..off_the_path() },
        AckNotCompared => Bounds {
            entries: [true, false],
            fetches: 2,
            duplicates: 1,
            ..quiet([&[WRITE, SECOND], &[READ], &[]], [Neither, Both, Both])
        },
        RepeatedAnswerGrants => Bounds {
            entries: [false, true],
            retransmissions: 1,
            ..quiet([&[WRITE], &[SECOND, READ], &[READ]], [Second, Neither, Second])
        },
        TermNotRaised => Bounds { steps: 2, renewals: 1, ..off_the_path() },
        NoWaitAfterRestart => Bounds { restarts: 1, ..off_the_path() },
        AppliedAgain => again([&[WRITE], &[SECOND], &[READ]]),
        PendingAppliedAgain => Bounds { retransmissions: 1, ..off_the_path_with(Call::Delete) },
        PartOfAnyVersion | AppliedUnfinished => {
            Bounds { parts: true, ..quiet([&[WRITE], &[READ], &[]], [Neither; 3]) }
        }
        PartNotCompared => in_parts(),
        NotHeld | HoldLetGoEarly => command(),
        // The writer is not told: one reader sees what it wrote, and the other what it had been.
        HoldForgotten => Bounds {
            entries: [true, false],
            ports: [true, false, false],
            fetches: 1,
            lost: 1,
            ..quiet([&[WRITE], &[READ], &[READ]], [Neither, Neither, Both])
        },
        WindowForgets => again([&[WRITE, SECOND, READ], &[], &[]]),
        other => panic!("{other:?}: no world for this mutant"),
    }
}

/// As `off_the_path`; what the writer does is a command by the RESP port.
fn command() -> Bounds {
    Bounds { ports: [true, false, false], ..off_the_path() }
}

fn off_the_path_with(call: Call) -> Bounds {
    let mut bounds = off_the_path();
    bounds.scripts[0] = vec![call];
    bounds
}

fn search(broken: Option<BrokenRule>, bounds: Bounds) -> (usize, bool) {
    let world = World { bounds, discipline: &netcache::REGISTRATION, broken };
    let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let violated = ["linearizable", "no copy outlives its value"]
        .iter()
        .any(|property| checker.discovery(property).is_some());
    (checker.unique_state_count(), violated)
}

/// With the mutant the checker finds a violation; without it, in the same world, none.
fn is_caught(broken: BrokenRule, bounds: Bounds) {
    let title = broken.title();
    let (states, violated) = search(Some(broken), bounds.clone());
    assert!(violated, "{title}: not caught in {states} states");
    // Not as `println!` does, which a test that passes does not show.
    let line = format!("{title} ... caught in {states} states");
    writeln!(std::io::stdout(), "{line}").expect("standard output");
    let (states, violated) = search(None, bounds);
    assert!(!violated, "{title}: violated in {states} states although nothing is broken");
}

#[test]
fn every_mutant_of_the_switches_is_caught() {
    let atomic =
        native::Mutant::harmful().filter(|mutant| !NOT_ATOMIC.contains(&mutant.name.as_str()));
    atomic.for_each(|mutant| is_caught(BrokenRule::Switch(mutant), of_switches(&mutant.name)));
}

#[test]
fn every_mutant_of_the_store_is_caught() {
    let elsewhere = |mutant: &Mutant| {
        mutant.is_of_loans()
            || mutant.is_of_replicas()
            || mutant.noticed_by().is_some()
            || mutant.is_of_clients()
            || mutant.is_of_several_keys()
    };
    let all = Mutant::ALL.iter().filter(|mutant| !elsewhere(mutant));
    all.for_each(|mutant| is_caught(BrokenRule::Store(*mutant), of_the_store(*mutant)));
}

/// What keeps copies right where writes come by packets keeps them right where commands come by the
/// RESP port: without it they are wrong, too.
#[test]
fn the_rules_are_needed_for_commands() {
    for (mutant, bounds) in [
        (GrantDuringWrite, Bounds { fetches: 2, ..command() }),
        (AppliedBeforeAcknowledged, command()),
        (GrantedNotRaised, command()),
        (OffPathNotInvalidated, command()),
        (LeaseCutShort, Bounds { steps: 1, ..command() }),
    ] {
        is_caught(BrokenRule::Store(mutant), bounds);
    }
}

/// What keeps copies of whole values right keeps those in parts: without it they are wrong, too.
#[test]
fn the_rules_are_needed_for_values_in_parts() {
    let around = |fetches| Bounds {
        parts: true,
        entries: [true, false],
        fetches,
        ..quiet([&[WRITE], &[READ, READ], &[]], [Path::Second, Path::Both, Path::Both])
    };
    for (mutant, bounds) in [
        (GrantedNotRaised, around(0)),
        (OffPathNotInvalidated, around(0)),
        (AppliedBeforeAcknowledged, around(0)),
        (GrantDuringWrite, around(2)),
        (EpochNotCompared, in_parts()),
    ] {
        is_caught(BrokenRule::Store(mutant), bounds);
    }
    for name in ["write_invalidates_nothing", "ack_invalidates_nothing", "serves_invalid"] {
        let mutant = native::Mutant::harmful().find(|mutant| mutant.name == name);
        is_caught(BrokenRule::Switch(mutant.expect("one of them")), in_parts());
    }
}

/// A client reads, so that switch 2 has a copy, and writes.
fn read_and_write() -> Bounds {
    Bounds { entries: [false, true], ..quiet([&[READ, WRITE], &[], &[]], [Path::Second; 3]) }
}

/// Whether the store ever has to call a switch's copy back.
fn calls_back(broken: Option<BrokenRule>) -> bool {
    let world = World { bounds: read_and_write(), discipline: &netcache::REGISTRATION, broken };
    let checker = world.checker().spawn_bfs().join();
    checker.discovery("a copy is called back").is_some()
}

/// What docs/coherence.md says of the two other parts of rule 2: nobody sees a wrong value, but the
/// store calls back a copy that the write's own packet would have proved invalid.
#[test]
fn the_safe_mutants_cost_a_round_trip_and_no_more() {
    assert!(!calls_back(None), "an epoch proves that the copy is gone");
    for mutant in native::Mutant::safe() {
        let broken = BrokenRule::Switch(mutant);
        assert!(calls_back(Some(broken)), "{}", broken.title());
        for world in [on_the_path(), off_the_path(), read_and_write()] {
            let (states, violated) = search(Some(broken), world);
            assert!(!violated, "{}: violated in {states} states", broken.title());
        }
    }
}
