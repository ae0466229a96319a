//! Each part of the rules of coherence, broken in the real C or in the real store: the hunt in the simulator must notice.

use std::{
    io::{Write, stdout},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use dataplane::native::Mutant as InSwitch;
use hunt::{Limits, Plan, run};
use store::mutants::Mutant as InStore;

/// Seeds after which a mutant counts as one that survived.
const SEEDS: u64 = 400;

/// What needs two packets in a switch at once, or one beside the agent. In the simulator packets pass a switch one after the
/// other; the data plane's fuzzer lets them interrupt one another, and its oracle catches these (`crates/dataplane/tests/host_c.rs`).
const NOT_ATOMIC: [&str; 4] = [
    "epoch_after_lookup",
    "entry_epoch_falls",
    "overwrites_younger",
    "serves_torn",
];

/// What needs several rare things in one order; the model goes through all orders, and finds them (`disciplines/netcache/tests/coherence`).
const RARE: [&str; 5] = [
    "expiry_from_arrival",
    "lease_from_arrival",
    "serves_earlier_term",
    "floor_not_raised",
    "TermNotRaised",
];

/// A broken rule.
#[derive(Clone, Copy)]
enum Mutant {
    Switch(&'static InSwitch),
    Store(InStore),
}

impl Mutant {
    fn all() -> Vec<Mutant> {
        let switch = InSwitch::list().iter().map(Mutant::Switch);
        let store = InStore::ALL.iter().copied().map(Mutant::Store);
        let elsewhere = |mutant: &Mutant| {
            let name = mutant.name();
            NOT_ATOMIC.contains(&name) || RARE.contains(&name)
        };
        switch.chain(store).filter(|m| !elsewhere(m)).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Mutant::Switch(mutant) => &mutant.name,
            Mutant::Store(mutant) => mutant.name(),
        }
    }

    fn rule(self) -> u8 {
        match self {
            Mutant::Switch(mutant) => mutant.rule,
            Mutant::Store(mutant) => mutant.rule(),
        }
    }

    /// Breaks it in what this thread makes and runs.
    fn choose(self) {
        dataplane::native::choose(match self {
            Mutant::Switch(mutant) => Some(mutant),
            Mutant::Store(_) => None,
        });
        store::mutants::choose(match self {
            Mutant::Switch(_) => None,
            Mutant::Store(mutant) => Some(mutant),
        });
    }

    /// The first seed in which somebody notices.
    fn caught(self) -> Option<u64> {
        self.choose();
        (1..=SEEDS).find(|seed| {
            let plan = Plan::draw(*seed, disciplines::all(), Limits::default());
            run(&plan, disciplines::all()).is_ok_and(|outcome| outcome.violation.is_some())
        })
    }
}

/// On the terminal, also from a test that passes.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

#[test]
fn each_is_caught() {
    let all = Mutant::all();
    let next = AtomicU64::new(0);
    let survivors = Mutex::new(vec![]);
    let work = || {
        while let Some(mutant) = all.get(next.fetch_add(1, SeqCst) as usize) {
            let (name, rule) = (mutant.name(), mutant.rule());
            match mutant.caught() {
                Some(seed) => say(&format!("rule {rule}: {name}: caught with seed {seed}")),
                None => {
                    say(&format!("rule {rule}: {name}: survived {SEEDS} seeds"));
                    survivors.lock().unwrap().push(name);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "nobody noticed {survivors:?}");
}
