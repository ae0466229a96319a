//! Each part of the rules of coherence, broken in the real C or in the real store: the hunt in the
//! simulator must notice.
//!
//! One of the slow tests: what takes several faults in one order shows in the hundredth plan or
//! later, and each plan is a whole system.

use std::{
    io::{Write, stdout},
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use dataplane::native::Mutant as InSwitch;
use hunt::{HuntPlan, Limits, run};
use store::mutants::Mutant as InStore;

/// Plans after which a mutant counts as one that survived; of loans, plans with write-back; of
/// copies in stores, plans with these; of clients, plans with many, or with some of one number; of
/// holds, plans in which clients send commands of Redis.
const SEEDS: usize = 1000;

/// What needs two packets in a switch at once, or one beside the agent. In the simulator packets
/// pass a switch one after the other; the data plane's fuzzer lets them interrupt one another, and
/// its oracle catches these (`crates/dataplane/tests/all/host_c.rs`).
const NOT_ATOMIC: [&str; 5] = [
    "epoch_after_lookup",
    "entry_epoch_falls",
    "probation_twice",
    "overwrites_younger",
    "serves_torn",
];

/// What needs several rare things in one order; the model goes through all orders, and finds them
/// (`disciplines/netcache/tests/all/coherence`), and what is about loans is noticed by rows of a
/// switch's programs (`crates/dataplane/tests/all/lent`) and by tests of the store's decisions
/// (`crates/store/src/coherence/tests.rs`).
const RARE: [&str; 13] = [
    "WaitTimesOut",
    "expiry_from_arrival",
    "lease_from_arrival",
    "serves_earlier_term",
    "floor_not_raised",
    "TermNotRaised",
    "PartOfAnyVersion",
    "lent_begins_any_epoch",
    "LifeKept",
    "MovedForgotten",
    "LentWithCopies",
    "probation_old_epoch",
    "ReplicaWithoutLease",
];

/// What takes ten plans or more from the first on, with one that caught it when this was
/// written: that one is tried first. Where the code has changed so that it no longer does, the test
/// takes longer and says which seed does now.
const KNOWN: [(&str, u64); 20] = [
    ("EverythingWithCopies", 8351),
    ("OlderAnswerPassedOn", 1284),
    ("JournalForgotten", 1162),
    ("HoldForgotten", 1111),
    ("GrantedFalls", 705),
    ("ReplicaOfAnyTerm", 666),
    ("NoWaitAfterRestart", 443),
    ("OwnerNotWaitedFor", 280),
    ("PartNotCompared", 170),
    ("lent_keeps_any_loan", 150),
    ("lent_serves_sealed", 113),
    ("serves_expired", 112),
    ("ClientForgotten", 61),
    ("UpdateLeavesValid", 56),
    ("lent_keeper_forgets", 37),
    ("ReadWhileLent", 37),
    ("AppliedWithoutAsking", 37),
    ("LeaseCutShort", 24),
    ("serves_without_lease", 18),
    ("TwoWritesAtOnce", 12),
];

/// What breaks the programs of the discipline whose values go round.
static OF_ROUNDS: LazyLock<Vec<InSwitch>> =
    LazyLock::new(|| InSwitch::own(include_str!("../../orbitcache/mutants.h")));

/// A broken rule of docs/coherence.md.
#[derive(Clone, Copy)]
enum Mutant {
    Switch(&'static InSwitch),
    Store(InStore),
}

impl Mutant {
    fn all() -> Vec<Mutant> {
        let switch = InSwitch::list().iter().chain(&*OF_ROUNDS).map(Mutant::Switch);
        let store = InStore::ALL.iter().copied().map(Mutant::Store);
        let mut all: Vec<Mutant> = switch.chain(store).collect();
        all.sort_by_key(|mutant| mutant.rule());
        all
    }

    fn breaks(self) -> &'static str {
        match self {
            Mutant::Switch(mutant) => &mutant.breaks,
            Mutant::Store(mutant) => mutant.breaks(),
        }
    }

    /// Which tests look for it: the model, this one, the fuzzer of the C.
    fn looked_for_by(self) -> [bool; 3] {
        let is_in = |names: &[&str]| names.contains(&self.name());
        match self {
            Mutant::Switch(mutant) if InSwitch::safe().any(|safe| safe == mutant) => [false; 3],
            // Rows of the discipline's data plane do.
            Mutant::Switch(mutant) if OF_ROUNDS.contains(mutant) => [false; 3],
            Mutant::Store(mutant) if mutant.noticed_by().is_some() => [false; 3],
            Mutant::Store(mutant) if mutant.is_of_several_keys() => [false, true, false],
            Mutant::Store(mutant) if mutant.is_of_clients() => [false, true, false],
            Mutant::Store(mutant) if mutant.is_of_replicas() => [true, !is_in(&RARE), false],
            _ if self.is_of_loans() => [false, !is_in(&RARE), false],
            Mutant::Switch(_) => [!is_in(&NOT_ATOMIC), !is_in(&NOT_ATOMIC) && !is_in(&RARE), true],
            Mutant::Store(_) => [true, !is_in(&RARE), false],
        }
    }

    /// Whether it is about keys that are lent.
    fn is_of_loans(self) -> bool {
        match self {
            Mutant::Switch(mutant) => mutant.is_of_loans(),
            Mutant::Store(mutant) => mutant.is_of_loans(),
        }
    }

    /// Its row of the table in `docs/coherence.md`.
    fn row(self) -> String {
        let names = ["model", "hunt", "fuzzer"];
        let by = names.iter().zip(self.looked_for_by());
        let by: Vec<&str> = by.filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        let rows = match self {
            Mutant::Switch(mutant) if OF_ROUNDS.contains(mutant) => {
                Some("rows of `disciplines/orbitcache/tests/all/data_plane`")
            }
            Mutant::Switch(mutant) if mutant.is_of_loans() => {
                Some("rows of `crates/dataplane/tests/all/lent`")
            }
            Mutant::Store(mutant) if mutant.is_of_loans() && RARE.contains(&mutant.name()) => {
                Some("`crates/store/src/coherence/tests.rs`")
            }
            Mutant::Store(InStore::WaitTimesOut) => Some("`disciplines/tests/all/waits.rs`"),
            Mutant::Store(InStore::ExecKeyForgotten) => Some("`crates/store/tests/all/resp_port`"),
            Mutant::Store(mutant) if mutant.is_of_holds() => {
                Some("`crates/store/tests/all/resp_port`, `crates/store/tests/all/memcached_port`")
            }
            _ => None,
        };
        let test = match self {
            Mutant::Store(mutant) => mutant.noticed_by().map(|file| format!("`{file}`")),
            Mutant::Switch(_) => None,
        };
        let by: Vec<&str> = by.into_iter().chain(rows).chain(test.as_deref()).collect();
        let by = match by.as_slice() {
            [] => "harms nobody, costs a round trip: model".into(),
            some => some.join(", "),
        };
        let (rule, name, breaks) = (self.rule(), self.name(), self.breaks());
        format!("| {rule} | `{name}` | {breaks} | {by} |")
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

    /// A seed in which somebody notices, and nobody does where nothing is broken: of the first ones
    /// the hunt knows that.
    fn caught(self) -> Option<u64> {
        self.choose();
        let known = KNOWN.iter().filter(|(name, _)| *name == self.name());
        let seeds = known.map(|(_, seed)| *seed).chain(1..);
        let plans = seeds.map(|seed| HuntPlan::draw(seed, disciplines::all(), Limits::default()));
        let of_replicas = matches!(self, Mutant::Store(mutant) if mutant.is_of_replicas());
        let of_clients = matches!(self, Mutant::Store(mutant) if mutant.is_of_clients());
        let of_holds = matches!(self, Mutant::Store(mutant) if mutant.is_of_holds());
        let shows = |plan: &HuntPlan| {
            (!of_holds || plan.commands.is_some())
                && (!self.is_of_loans() || plan.writes_back())
                && (!of_clients || plan.is_crowd() || plan.clients.same_ids)
                && (!of_replicas || plan.has_copies_held(disciplines::all()))
        };
        let mut plans = plans.filter(shows).take(SEEDS);
        let is_noticed = |plan: &HuntPlan| {
            run(plan, disciplines::all()).is_ok_and(|outcome| outcome.violation.is_some())
        };
        let plan = plans.find(is_noticed)?;
        if plan.seed > crate::hunt::SEEDS {
            choose_none();
            assert!(!is_noticed(&plan), "seed {}: noticed where nothing is broken", plan.seed);
        }
        Some(plan.seed)
    }
}

/// Breaks nothing in what this thread makes and runs.
fn choose_none() {
    dataplane::native::choose(None);
    store::mutants::choose(None);
}

/// On the terminal, also from a test that passes.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

#[test]
fn each_is_caught() {
    let mut all = Mutant::all();
    // One alone, for whoever looks into it.
    let one = std::env::var("MUTANT").ok();
    let is_wanted = |mutant: &Mutant| one.as_ref().is_none_or(|name| name == mutant.name());
    all.retain(|mutant| mutant.looked_for_by()[1] && is_wanted(mutant));
    let next = AtomicU64::new(0);
    let survivors = Mutex::new(vec![]);
    let work = || {
        while let Some(mutant) = all.get(next.fetch_add(1, SeqCst) as usize) {
            let (name, rule) = (mutant.name(), mutant.rule());
            match mutant.caught() {
                Some(seed) => say(&format!("rule {rule}: {name}: caught with seed {seed}")),
                None => {
                    say(&format!("rule {rule}: {name}: survived {SEEDS} plans"));
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

/// `docs/coherence.md` lists what is broken, and by what it is noticed: so does the code.
#[test]
fn the_documents_list_is_the_codes() {
    let page = include_str!("../../../docs/coherence.md");
    let rows: Vec<String> = Mutant::all().into_iter().map(Mutant::row).collect();
    let listed: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| rule | mutant |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(listed, rows, "expected:\n{}", rows.join("\n"));
}
