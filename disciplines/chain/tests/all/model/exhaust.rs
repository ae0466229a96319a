//! Worlds in which nothing is broken.

use std::{io::Write, time::Instant};

use chain::view::Protocol;
use stateright::{Checker, Model};

use super::{
    bounds::Bounds,
    key::Call::{self, *},
    steps::{ALWAYS, SOMETIMES},
    world::World,
};

/// On the terminal, also from a test that passes.
pub fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

/// Returns the number of states.
fn exhaust(name: &str, bounds: Bounds) -> usize {
    let begun = Instant::now();
    let said = format!("{bounds:?}");
    let checker = World::new(bounds, None).checker().spawn_dfs().join();
    let states = checker.unique_state_count();
    say(&format!(
        "{name}: {states} states, depth {}, {:.1} s; {said}",
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    ));
    for property in ALWAYS {
        if let Some(path) = checker.discovery(property) {
            panic!("{name}: not so ({property}) after\n{path}");
        }
    }
    assert!(checker.is_done(), "{name}: not exhausted");
    for property in SOMETIMES {
        assert!(checker.discovery(property).is_some(), "{name}: never: {property}");
    }
    states
}

pub const QUIET: Bounds = Bounds {
    protocol: Protocol::NetCraq,
    arrangements: &[(&[0, 1], false)],
    slots: &[],
    scripts: &[&[Put(1)], &[Read]],
    retries: &[1, 0],
    steps: 0,
    asks: false,
    shift: 1,
    stops: 0,
    absent: false,
};

/// A write, and what another client reads that need not be committed.
pub const RELAXED: &[&[Call]] = &[&[Put(1)], &[Relaxed]];

/// Two members, and what may become of them.
const TAIL_GOES: Bounds =
    Bounds { arrangements: &[(&[0, 1], false), (&[0], false)], steps: 2, ..QUIET };
const HEAD_GOES: Bounds =
    Bounds { arrangements: &[(&[0, 1], false), (&[1], false)], steps: 2, ..QUIET };
const JOINS: Bounds = Bounds {
    arrangements: &[(&[0], false), (&[0, 1], true), (&[0, 1], false)],
    scripts: &[&[Put(1), Read]],
    retries: &[0],
    steps: 2,
    ..QUIET
};
const JOINS_AND_OTHER_GOES: Bounds = Bounds {
    arrangements: &[(&[0], false), (&[0, 1], true), (&[0, 1], false), (&[1], false)],
    scripts: &[&[Put(1), Read]],
    retries: &[0],
    steps: 3,
    ..QUIET
};
/// One goes, and another one joins that has its slot.
pub const SLOT_IS_GIVEN_ON: Bounds = Bounds {
    arrangements: &[(&[0, 1], false), (&[0], false), (&[0, 2], true)],
    slots: &[0, 1, 1],
    retries: &[0, 0],
    steps: 2,
    ..QUIET
};

const fn in_netchain(bounds: Bounds) -> Bounds {
    Bounds { protocol: Protocol::NetChain, ..bounds }
}

const WORLDS: &[(&str, Bounds)] = &[
    ("a write and a read", QUIET),
    ("a write and a read, netchain", in_netchain(QUIET)),
    (
        "two writes and a read",
        Bounds { scripts: &[&[Put(1)], &[Put(2)], &[Read]], retries: &[0, 0, 0], ..QUIET },
    ),
    (
        "a conditional write",
        Bounds { scripts: &[&[Put(1), Read], &[Swap(1, 2)]], retries: &[0, 1], ..QUIET },
    ),
    (
        "a create and a delete",
        Bounds { scripts: &[&[Put(1), Delete], &[Create(2)]], retries: &[0, 0], ..QUIET },
    ),
    (
        "a write, a read and a relaxed read",
        Bounds { scripts: &[&[Put(1)], &[Read], &[Relaxed]], retries: &[1, 0, 0], ..QUIET },
    ),
    ("a relaxed read, and the tail goes", Bounds { scripts: RELAXED, ..TAIL_GOES }),
    ("a relaxed read, and the head goes", Bounds { scripts: RELAXED, ..HEAD_GOES }),
    ("the tail goes", TAIL_GOES),
    ("the tail goes, netchain", in_netchain(TAIL_GOES)),
    ("the head goes", HEAD_GOES),
    ("the head goes, netchain", in_netchain(HEAD_GOES)),
    ("one joins", JOINS),
    ("one joins, netchain", in_netchain(JOINS)),
    ("one joins, and the other goes", JOINS_AND_OTHER_GOES),
    ("one goes, and another one has its slot", SLOT_IS_GIVEN_ON),
];

/// Those that take more than a few seconds.
const LARGE: &[(&str, Bounds)] = &[
    (
        "three, and the tail goes",
        Bounds {
            arrangements: &[(&[0, 1, 2], false), (&[0, 1], false)],
            retries: &[0, 0],
            ..TAIL_GOES
        },
    ),
    (
        "three, and the middle goes",
        Bounds {
            arrangements: &[(&[0, 1, 2], false), (&[0, 2], false)],
            retries: &[0, 0],
            ..TAIL_GOES
        },
    ),
    (
        "three, the tail goes, and another one has its slot",
        Bounds {
            arrangements: &[(&[0, 1, 2], false), (&[0, 1], false), (&[0, 1, 3], true)],
            slots: &[0, 1, 2, 2],
            ..SLOT_IS_GIVEN_ON
        },
    ),
];

/// The key gets its item while a write of it is looked at.
pub const ITEM_COMES: Bounds =
    Bounds { scripts: &[&[Put(1), Read]], retries: &[0], stops: 1, absent: true, ..QUIET };

/// Two writes meet at one member, once its number has settled.
pub const TWO_WRITES_MEET: Bounds = Bounds {
    arrangements: &[(&[0], false)],
    scripts: &[&[Put(1)], &[Put(2)]],
    retries: &[0, 0],
    steps: 1,
    stops: 1,
    ..QUIET
};

/// A packet's run stops on one CPU of a switch, and other packets pass by others.
const TWO_CPUS: &[(&str, Bounds)] = &[
    ("a write and a read on two CPUs", Bounds { retries: &[0, 0], stops: 1, ..QUIET }),
    ("two writes of one member on two CPUs", TWO_WRITES_MEET),
    (
        "two writes and a read of one member on two CPUs",
        Bounds {
            scripts: &[&[Put(1)], &[Put(2)], &[Read]],
            retries: &[0, 0, 0],
            ..TWO_WRITES_MEET
        },
    ),
    ("a write on two CPUs, and its item comes", ITEM_COMES),
];

/// Those that take more than a few seconds.
const TWO_CPUS_LARGE: &[(&str, Bounds)] = &[
    (
        "two writes on two CPUs",
        Bounds { scripts: &[&[Put(1)], &[Put(2)]], retries: &[0, 0], stops: 1, ..QUIET },
    ),
    ("a write and a read on two CPUs, and the tail goes", Bounds { stops: 1, ..TAIL_GOES }),
    ("a write and a read on two CPUs, and one joins", Bounds { stops: 1, ..JOINS }),
];

fn exhaust_all(worlds: &[(&str, Bounds)]) {
    let states: usize = worlds.iter().map(|(name, bounds)| exhaust(name, bounds.clone())).sum();
    say(&format!("chains: {states} states, none of them wrong"));
}

#[test]
fn every_state_of_small_worlds() {
    exhaust_all(WORLDS);
}

#[test]
fn every_state_of_small_worlds_with_two_cpus() {
    exhaust_all(TWO_CPUS);
}

#[test]
#[ignore = "minutes"]
fn every_state_of_larger_worlds() {
    exhaust_all(LARGE);
    exhaust_all(TWO_CPUS_LARGE);
}
