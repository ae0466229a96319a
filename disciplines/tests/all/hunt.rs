//! Whole systems under every fault, in the simulator: no client may notice.
//!
//! One of the slow tests: each kind of fault has to come about, of which the rare ones take some hundred plans.

use hunt::{Disciplines, Limits, Plan, hunt, run};

/// Seeds of a quick hunt.
const SEEDS: u64 = 400;

fn registered() -> Disciplines {
    disciplines::all()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

#[test]
fn no_client_notices() {
    let first = number("FIRST", 1);
    let seeds = first..first + number("SEEDS", SEEDS);
    let hunted = hunt(seeds, registered(), Limits::default(), 2, |_| true);
    for found in &hunted.found {
        println!(
            "{}\n{:?}",
            serde_json::to_string(&found.plan).unwrap(),
            found.outcome
        );
    }
    println!(
        "{} seeds, {} operations, {} reads from switches, {} packets, {:.2} hours, {:.1} s of work: {:?}",
        hunted.seeds,
        hunted.operations,
        hunted.cached,
        hunted.packets,
        hunted.world_ns as f64 / 3.6e12,
        hunted.busy_s,
        hunted.faults,
    );
    println!("{:?}\n{:?}", hunted.loans, hunted.replicas);
    println!("{} seeds with loans and copies in stores", hunted.both);
    assert!(hunted.found.is_empty(), "{} seeds", hunted.found.len());
    assert!(hunted.cached > 0, "no read was answered by a switch");
    let kinds = hunted.kinds();
    assert!(kinds.values().all(|count| *count > 0), "{kinds:?}");
    let holds_copies = hunt::hold_copies(registered());
    for name in hunt::REPLICAS.iter().filter(|_| holds_copies) {
        let count = hunted.replicas.get(*name);
        assert!(count.is_some_and(|count| *count > 0), "{name}: {count:?}");
    }
    assert!(hunted.both > 0 || !holds_copies, "lent, and held by stores");
    for name in hunt::LOANS {
        let count = hunted.loans.get(name);
        assert!(count.is_some_and(|count| *count > 0), "{name}: {count:?}");
    }
}

#[test]
fn a_seed_is_replayed_bit_by_bit() {
    for seed in [1, 2, 3] {
        let plan = Plan::draw(seed, registered(), Limits::default());
        let again = Plan::draw(seed, registered(), Limits::default());
        assert_eq!(plan, again);
        let outcome = run(&plan, registered()).unwrap();
        assert_eq!(run(&plan, registered()).unwrap(), outcome);
    }
}

/// Not a test of its own: `SEED=n cargo test -p disciplines --test all -- --ignored shrinks` shows the smallest plan.
#[test]
#[ignore = "for whoever looks into a seed"]
fn shrinks() {
    let plan = Plan::draw(number("SEED", 1), registered(), Limits::default());
    let tell = |plan: &Plan| println!("{}", serde_json::to_string(plan).unwrap());
    let smallest = hunt::shrink(&plan, registered(), 300, tell);
    println!("{:#?}", run(&smallest, registered()).unwrap());
}
