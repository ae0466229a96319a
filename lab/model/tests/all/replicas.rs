//! Copies in other stores: every state of small worlds, and each part of their rules broken
//! in turn.
//!
//! Among the slowest tests, some ten seconds on two CPUs that have nothing else to do: a proof by
//! looking at each of 2.3 million states is worth what it says only if none is left out.

use std::io::Write;

use model::{Call, Shelf};
use stateright::{Checker, HasDiscoveries, Model};
use store::mutants::Mutant;

const READ: Call = Call::Read;
const WRITE: Call = Call::Write(1);
const SECOND: Call = Call::Write(2);
/// It holds only if nobody has written since the beginning.
const CONDITIONAL: Call = Call::CompareAndSet { from: 0, to: 3 };

fn shelf(scripts: [&[Call]; 3]) -> Shelf {
    Shelf { scripts: scripts.map(<[Call]>::to_vec), ..Shelf::default() }
}

/// On the terminal, also from a test that passes.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

fn exhaust(name: &str, shelf: Shelf) {
    let bounds = format!("{shelf:?}");
    let checker = shelf.checker().threads(2).spawn_dfs().join();
    if let Some(path) = checker.discovery("linearizable") {
        panic!("{name}: not linearizable after\n{path}");
    }
    assert!(checker.is_done(), "{name}: not exhausted");
    assert!(checker.discovery("a copy is read").is_some(), "{name}");
    let states = checker.unique_state_count();
    say(&format!("{name}: {states} states; {bounds}"));
}

#[test]
fn every_state_of_small_worlds() {
    exhaust("two writes", shelf([&[WRITE], &[SECOND], &[READ]]));
    exhaust("a conditional write", shelf([&[WRITE], &[CONDITIONAL], &[READ]]));
    exhaust("copies that are pulled", pulled());
    exhaust("leases that lapse", lapsed());
    exhaust("a store that restarts", restarted());
}

fn pulled() -> Shelf {
    Shelf { pulls: 1, duplicates: 1, ..shelf([&[WRITE], &[READ], &[]]) }
}

fn lapsed() -> Shelf {
    Shelf { steps: 2, renewals: 1, ..shelf([&[WRITE], &[READ], &[]]) }
}

fn restarted() -> Shelf {
    Shelf { restarts: 1, ..shelf([&[WRITE], &[READ], &[READ]]) }
}

/// The smallest world found in which a mutant does harm.
fn harmed_by(mutant: Mutant) -> Shelf {
    match mutant {
        Mutant::ReplicaStaysValid | Mutant::UpdateLeavesValid => shelf([&[WRITE], &[READ], &[]]),
        Mutant::CandidateServed => shelf([&[WRITE], &[READ, READ], &[]]),
        Mutant::ReplicaOfAnyEpoch => {
            Shelf { steps: 1, pulls: 1, ..shelf([&[WRITE], &[READ], &[]]) }
        }
        Mutant::CandidateOfAnyWrite => {
            Shelf { steps: 1, ..shelf([&[WRITE, SECOND], &[READ, READ], &[]]) }
        }
        Mutant::OlderAnswerPassedOn => restarted(),
        _ => lapsed(),
    }
}

/// Whether clients see more than one copy, and in how many states that is known.
fn search(shelf: Shelf) -> (bool, usize) {
    let checker = shelf.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let violated = checker.discovery("linearizable").is_some();
    (violated, checker.unique_state_count())
}

#[test]
fn each_mutant_of_copies_in_stores_is_caught() {
    let all = Mutant::ALL.iter().filter(|mutant| mutant.is_of_replicas());
    for &mutant in all {
        let broken = Some(mutant);
        let name = mutant.name();
        let (violated, states) = search(Shelf { broken, ..harmed_by(mutant) });
        assert!(violated, "{name}: not caught in {states} states");
        say(&format!("rule {}: {name} ... caught in {states} states", mutant.rule()));
    }
}
