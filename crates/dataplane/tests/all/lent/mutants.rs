//! Ways to break what keeps a lent key whole (`bpf/mutants.h`): the rows must notice each.

use dataplane::native::Mutant;

use super::{keeper, owner, store, world::*};

#[test]
fn each_is_caught() {
    let rows = [
        owner::READS,
        owner::LIVES,
        owner::ANSWERS,
        owner::WRITES,
        keeper::KEPT,
        keeper::PASSED,
        store::BEGUN,
    ];
    let holds = |name| rows.iter().all(|rows| holds_with(name, rows));
    assert!(holds(None));
    let of_loans = Mutant::list().iter().filter(|mutant| mutant.is_of_loans());
    for mutant in of_loans {
        assert!(!holds(Some(mutant)), "{}: nobody noticed", mutant.name);
    }
}
