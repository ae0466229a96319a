//! Every state of a small world, and whether what the clients were told is linearizable in each.

use std::time::Instant;

use model::{Bounds, Call, Path, World};
use stateright::{Checker, Model};

const READ: Call = Call::Read;
const CAS: Call = Call::CompareAndSet { from: 0, to: 1 };

/// Client 1 goes through both switches and its retransmissions around the first; client 2 goes
/// around the first; client 3 through both.
const PATHS: [(Path, Path); 3] =
    [(Path::Both, Path::Second), (Path::Second, Path::Neither), (Path::Both, Path::Both)];

/// Exhausts one world; returns its number of states.
fn exhaust(name: &str, bounds: Bounds) -> usize {
    let begun = Instant::now();
    println!("{name}: {bounds:?}");
    let checker = World { bounds, discipline: &netcache::REGISTRATION, broken: None }
        .checker()
        .threads(2)
        .spawn_dfs()
        .join();
    let states = checker.unique_state_count();
    println!(
        "{name}: {states} states, depth {}, {:.1} s",
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    for property in ["linearizable", "no copy outlives its value"] {
        if let Some(path) = checker.discovery(property) {
            panic!("{name}: not so ({property}) after\n{path}");
        }
    }
    assert!(checker.is_done(), "{name}: not exhausted");
    assert!(checker.discovery("a switch answers").is_some(), "{name}: no switch ever answered");
    states
}

/// Everything that may go wrong, so many of it together; `lapse`: time for a lease to lapse and be
/// lent anew, or for a store that restarted to take writes.
fn faults(scripts: [&[Call]; 3], together: u8, lapse: bool) -> Bounds {
    Bounds {
        duplicates: 1,
        retransmissions: 1,
        evictions: 1,
        refills: 1,
        fetches: 1,
        renewals: 1,
        steps: if lapse { 2 } else { 0 },
        restarts: 1,
        together,
        ..Bounds::quiet(scripts.map(<[Call]>::to_vec), PATHS)
    }
}

/// What the three clients do, by name.
const SCRIPTS: [(&str, [&[Call]; 3]); 4] = [
    ("write, read, read", [&[Call::Write(1)], &[READ], &[READ]]),
    ("write, write, read", [&[Call::Write(1)], &[Call::Write(2)], &[READ]]),
    ("compare-and-set, write, read", [&[CAS], &[Call::Write(2)], &[READ]]),
    ("delete, write, read", [&[Call::Delete], &[Call::Write(2)], &[READ]]),
];

/// A minute: each single fault in every script; and a lapse together with a restart, a new lease or
/// an eviction.
#[test]
fn small_worlds() {
    let mut states = 0;
    for (name, scripts) in SCRIPTS {
        states += exhaust(&format!("{name}, one fault"), faults(scripts, 1, false));
    }
    for (name, scripts) in &SCRIPTS[..2] {
        states += exhaust(&format!("{name}, on probation, one fault"), on_probation(*scripts));
    }
    let lapse =
        Bounds { duplicates: 0, retransmissions: 0, fetches: 0, ..faults(SCRIPTS[0].1, 1, true) };
    states += exhaust("write, read, read, a lapse and a restart, lease or eviction", lapse);
    for (name, scripts) in IN_PARTS {
        states += exhaust(&format!("{name}, values in parts, one fault"), in_parts(scripts));
    }
    println!("coherence: {states} states, none of them not linearizable");
}

/// A switch leaves in order, and comes back at once: what it said of either may arrive first.
fn leaving(scripts: [&[Call]; 3]) -> Bounds {
    let quiet = Bounds::quiet(scripts.map(<[Call]>::to_vec), PATHS);
    Bounds { leaves: 1, renewals: 1, together: 2, ..quiet }
}

#[test]
fn switches_that_leave_and_come_back() {
    for (name, scripts) in &SCRIPTS[..2] {
        exhaust(&format!("{name}, a switch leaves and comes back"), leaving(*scripts));
    }
}

/// The first client's operations are commands by the RESP port. The connection that one is on is
/// lost, and an agent fetches, while time passes in which a lease may lapse.
fn by_the_port(scripts: [&[Call]; 3]) -> Bounds {
    let quiet = Bounds::quiet(scripts.map(<[Call]>::to_vec), PATHS);
    let ports = [true, false, false];
    Bounds { ports, entries: [true, false], lost: 1, fetches: 1, steps: 2, ..quiet }
}

#[test]
fn commands_by_the_resp_port() {
    let mut states = 0;
    for (name, scripts) in [SCRIPTS[0], SCRIPTS[1], SCRIPTS[3]] {
        states += exhaust(&format!("{name}, the first by the port"), by_the_port(scripts));
    }
    println!("coherence: {states} states with commands, none of them not linearizable");
}

/// No switch has an entry but by a read that makes it one, and a fault.
fn on_probation(scripts: [&[Call]; 3]) -> Bounds {
    Bounds { entries: [false; 2], refills: 0, blanks: 2, ..faults(scripts, 1, false) }
}

/// What they do with values of two parts.
const IN_PARTS: [(&str, [&[Call]; 3]); 2] = [
    ("write, read twice", [&[Call::Write(1)], &[READ, READ], &[]]),
    ("write, write and read", [&[Call::Write(1)], &[Call::Write(2), READ], &[]]),
];

/// Values of two parts, switch 1 with an entry, and a fault.
fn in_parts(scripts: [&[Call]; 3]) -> Bounds {
    Bounds {
        parts: true,
        entries: [true, false],
        paths: [PATHS[0], PATHS[2], PATHS[2]],
        ..faults(scripts, 1, false)
    }
}

/// Up to an hour, and some 20 GB: every two faults in every script, and two faults with a lapse.
#[test]
#[ignore = "an hour"]
fn large_worlds() {
    let mut states = 0;
    for (name, scripts) in SCRIPTS {
        states += exhaust(&format!("{name}, two faults"), faults(scripts, 2, false));
        states += exhaust(&format!("{name}, a lapse and one fault"), faults(scripts, 1, true));
    }
    for (name, scripts) in &SCRIPTS[2..] {
        states += exhaust(&format!("{name}, on probation, one fault"), on_probation(*scripts));
    }
    let lapse = Bounds { entries: [true, false], ..faults(SCRIPTS[0].1, 2, true) };
    states += exhaust("write, read, read, a lapse and two faults", lapse);
    for (name, scripts) in &SCRIPTS[..2] {
        let more = Bounds { fetches: 1, duplicates: 1, ..leaving(*scripts) };
        states += exhaust(&format!("{name}, a switch leaves, and one thing more"), more);
    }
    println!("coherence: {states} states, none of them not linearizable");
}
