//! Each part of a rule is broken in turn, in the C, and a small world must show that something
//! is wrong.

use crate::mutants;
use dataplane::native::Mutant;
use stateright::{Checker, HasDiscoveries, Model};

use super::{
    bounds::{Arrangement, Bounds},
    exhaust::{ITEM_COMES, QUIET, RELAXED, SLOT_IS_GIVEN_ON, TWO_WRITES_MEET, say},
    key::Call::*,
    steps::ALWAYS,
    world::World,
};

const TAIL_GOES: &[Arrangement] = &[(&[0, 1], false), (&[0], false)];
const HEAD_GOES: &[Arrangement] = &[(&[0, 1], false), (&[1], false)];
const JOINS: &[Arrangement] = &[(&[0], false), (&[0, 1], true)];
const JOINS_AND_HEAD_GOES: &[Arrangement] =
    &[(&[0], false), (&[0, 1], true), (&[0, 1], false), (&[1], false)];

/// The smallest world found in which it does harm.
fn harmed_by(name: &str) -> Bounds {
    match name {
        "order_known_again" | "order_clean_at_once" => QUIET,
        "order_reads_dirty" => Bounds { scripts: &[&[Put(1)], &[Read, Read]], ..QUIET },
        "order_any_sequence" => {
            Bounds { arrangements: HEAD_GOES, scripts: &[&[Put(1)], &[Put(2)]], steps: 2, ..QUIET }
        }
        "order_noted_by_head" => {
            Bounds { arrangements: HEAD_GOES, scripts: &[&[Put(1)], &[Read]], steps: 2, ..QUIET }
        }
        "order_locks_nothing" => TWO_WRITES_MEET,
        "order_new_unlocked" => ITEM_COMES,
        "order_refusal_unnoted" => {
            Bounds { scripts: &[&[Put(1), Delete, Read], &[Create(2)]], retries: &[0, 1], ..QUIET }
        }
        "order_refused_early" => {
            Bounds { scripts: &[&[Put(1)], &[Create(2), Read]], retries: &[0, 0], ..QUIET }
        }
        "order_refused_by_head" => {
            Bounds { scripts: &[&[Put(1)], &[Create(2), Read]], retries: &[0, 0], ..QUIET }
        }
        "order_reads_unleased"
        | "order_holds_nothing"
        | "order_holds_half"
        | "order_writes_held" => Bounds { arrangements: TAIL_GOES, steps: 2, ..QUIET },
        "order_grants_to_slots" => SLOT_IS_GIVEN_ON,
        "order_any_number" => Bounds { arrangements: TAIL_GOES, steps: 3, ..QUIET },
        "order_window_open" => Bounds { scripts: &[&[Put(1)], &[Put(2)]], shift: 0, ..QUIET },
        "order_reads_unfilled" => Bounds { arrangements: JOINS, steps: 1, ..QUIET },
        "order_copies_over" => Bounds {
            arrangements: JOINS,
            scripts: &[&[Put(1), Put(2)], &[Read]],
            retries: &[0, 0],
            steps: 1,
            ..QUIET
        },
        "order_marks_nothing" => Bounds {
            arrangements: JOINS_AND_HEAD_GOES,
            scripts: &[&[Put(1)]],
            retries: &[1],
            steps: 3,
            ..QUIET
        },
        other => panic!("{other}: no world for this mutant"),
    }
}

fn search(mutant: &Mutant, bounds: Bounds) -> (bool, usize) {
    let checker = World::new(bounds, Some(mutant))
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let violated = ALWAYS.iter().any(|property| checker.discovery(property).is_some());
    (violated, checker.unique_state_count())
}

/// A member that was removed and does not know it answers what is older than what was answered.
#[test]
fn without_leases_a_relaxed_read_is_too_old() {
    let mutants = mutants();
    let unleased = mutants.iter().find(|mutant| mutant.name == "order_reads_unleased");
    let bounds = Bounds { arrangements: TAIL_GOES, scripts: RELAXED, steps: 2, ..QUIET };
    assert!(search(unleased.expect("one of the list"), bounds).0);
}

#[test]
fn each_is_caught() {
    for mutant in &mutants() {
        let Mutant { name, rule, breaks, .. } = mutant;
        let title = format!("rule {rule}: {name} ({breaks})");
        let (violated, states) = search(mutant, harmed_by(name));
        assert!(violated, "{title}: not caught in {states} states");
        say(&format!("{title} ... caught in {states} states"));
    }
}

/// `docs/coordination.md` lists what is broken: so does the code.
#[test]
fn the_documents_list_is_the_codes() {
    let page = include_str!("../../../../../docs/coordination.md");
    let row = |mutant: &Mutant| {
        let Mutant { name, rule, breaks, .. } = mutant;
        format!("| R{rule} | `{name}` | {breaks} |")
    };
    let rows: Vec<String> = mutants().iter().map(row).collect();
    let listed: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| rule | mutant |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(listed, rows, "expected:\n{}", rows.join("\n"));
}
