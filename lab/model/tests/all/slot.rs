//! A slot of a Redis Cluster that moves: every state of small worlds, and each part of the rules
//! for that broken in turn.

use std::io::Write;

use model::{Call, Slot};
use stateright::{Checker, HasDiscoveries, Model};
use store::mutants::Mutant;

const READ: Call = Call::Read;
const WRITE: Call = Call::Write(1);
const SECOND: Call = Call::Write(2);
/// Somebody else's, past the store.
const PAST: Call = Call::Write(3);

/// On the terminal, also from a test that passes.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

/// The slot moves and comes back, while clients write and read, and a copy is made anew.
fn to_and_fro(scripts: [&[Call]; 2]) -> Slot {
    let scripts = scripts.map(<[Call]>::to_vec);
    Slot { scripts, moves: 2, pulls: 1, ..Slot::default() }
}

/// Somebody writes past the store, a lease after the slot has left.
fn written_past(scripts: [&[Call]; 2]) -> Slot {
    Slot {
        scripts: scripts.map(<[Call]>::to_vec),
        past: vec![PAST],
        moves: 1,
        pulls: 1,
        renewals: 1,
        questions: 1,
        steps: 2,
        broken: None,
    }
}

fn exhaust(name: &str, slot: Slot) {
    let (bounds, is_passed) = (format!("{slot:?}"), !slot.past.is_empty());
    let checker = slot.checker().threads(2).spawn_dfs().join();
    if let Some(path) = checker.discovery("linearizable") {
        panic!("{name}: not linearizable after\n{path}");
    }
    assert!(checker.is_done(), "{name}: not exhausted");
    assert!(checker.discovery("a copy is read").is_some(), "{name}");
    let passed = checker.discovery("somebody asks past the store");
    assert_eq!(passed.is_some(), is_passed, "{name}");
    say(&format!("{name}: {} states; {bounds}", checker.unique_state_count()));
}

#[test]
fn every_state_of_a_slot_that_moves() {
    exhaust("a slot that moves, two writes", to_and_fro([&[WRITE, SECOND], &[READ, READ]]));
    exhaust("a slot that moves, two writers", to_and_fro([&[WRITE, READ], &[SECOND, READ]]));
    exhaust("a write past the store", written_past([&[READ], &[]]));
}

#[test]
fn each_mutant_of_slots_that_move_is_caught() {
    for &mutant in Mutant::ALL.iter().filter(|mutant| mutant.is_of_slots()) {
        let broken = Some(mutant);
        let slot = Slot { broken, ..written_past([&[READ], &[]]) };
        let checker = slot.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let (name, states) = (mutant.name(), checker.unique_state_count());
        assert!(checker.discovery("linearizable").is_some(), "{name}: {states} states");
        say(&format!("rule {}: {name} ... caught in {states} states", mutant.rule()));
    }
}
