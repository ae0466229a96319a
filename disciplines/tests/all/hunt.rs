//! Whole systems under every fault, in the simulator: no client may notice.
//!
//! One of the slow tests: each kind of fault has to come about, of which the rare ones take some
//! hundred plans.

use std::sync::LazyLock;

use hunt::{Act, Deed, Disciplines, HuntPlan, HuntResult, Limits, hunt, run};

/// Seeds of a quick hunt.
pub(crate) const SEEDS: u64 = 400;
/// Plans of each pair of copies at the clients' side and something else.
const PAIR_SEEDS: usize = 4;
/// As many whose plans have something that not all have, where FIRST or SEEDS is given.
const CHOSEN_SEEDS: u64 = 40;

fn registered() -> Disciplines {
    disciplines::all()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// Whether FIRST or SEEDS say where to hunt.
fn is_told() -> bool {
    ["FIRST", "SEEDS"].iter().any(|name| std::env::var_os(name).is_some())
}

/// The quick hunt, once for all tests of what no client notices: a plan is run bit by bit the same
/// again, so one that is among its plans is not.
static QUICK: LazyLock<HuntResult> =
    LazyLock::new(|| hunt(1..=SEEDS, registered(), Limits::default(), 2, |_| true));

/// What came of plans of which this is true: all of the quick hunt, or so many from FIRST on.
fn hunted(usual: u64, is_meant: impl Fn(&HuntPlan) -> bool + Sync) -> HuntResult {
    let hunted = match is_told() {
        false => QUICK.clone(),
        true => {
            let is_meant =
                |seed: &u64| is_meant(&HuntPlan::draw(*seed, registered(), Limits::default()));
            let seeds = (number("FIRST", 1)..).filter(is_meant);
            let seeds = seeds.take(number("SEEDS", usual) as usize);
            hunt(seeds, registered(), Limits::default(), 2, |_| true)
        }
    };
    for found in &hunted.found {
        println!("{}\n{:?}", serde_json::to_string(&found.plan).unwrap(), found.outcome);
    }
    assert!(hunted.found.is_empty(), "{} seeds", hunted.found.len());
    assert!(!hunted.overlooks(), "{} keys undecided", hunted.undecided);
    hunted
}

#[test]
fn no_client_notices() {
    let hunted = hunted(SEEDS, |_| true);
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

/// Commands of Redis by the stores' RESP ports, while all of that goes on: those of one key and of
/// several, transactions and FLUSHALL.
#[test]
fn no_client_notices_commands_of_redis() {
    let hunted = hunted(CHOSEN_SEEDS, |plan| plan.commands.is_some());
    println!(
        "{} seeds, {} operations, {} keys undecided, {:.1} s of work: {:?}",
        hunted.seeds, hunted.operations, hunted.undecided, hunted.busy_s, hunted.commands,
    );
    for kind in history::KINDS.iter().chain(&hunt::HOLDS) {
        let count = hunted.commands.get(*kind);
        assert!(count.is_some_and(|count| *count > 0), "{kind}: {count:?}");
    }
}

/// Copies that clients' hosts keep, while all of that goes on.
#[test]
fn no_client_notices_copies_of_its_own() {
    let hunted = hunted(CHOSEN_SEEDS, |plan| plan.clients.caches);
    println!("{} seeds, {} operations: {:?}", hunted.seeds, hunted.operations, hunted.holders);
    let reads = hunted.holders.get(hunt::READS_FROM_HOLDERS);
    assert!(reads.is_some_and(|count| *count > 0), "{reads:?}");
}

/// Plans whose clients' hosts keep copies: reads that those answered, and that switches did, or
/// stores with copies of others' keys.
fn with_copies_of_its_own(plans: impl Iterator<Item = HuntPlan>) -> (u64, u64) {
    let (mut local, mut elsewhere) = (0, 0);
    for mut plan in plans {
        plan.clients.caches = true;
        let outcome = run(&plan, registered()).unwrap();
        assert_eq!(outcome.complaint(), None, "{}", serde_json::to_string(&plan).unwrap());
        local += outcome.holders.get(hunt::READS_FROM_HOLDERS).copied().unwrap_or(0);
        let by_stores = outcome.replicas.get("replica_reads").copied().unwrap_or(0);
        elsewhere += outcome.cached + by_stores;
    }
    (local, elsewhere)
}

/// Copies that clients' hosts keep, beside those of switches and of stores, of each discipline.
#[test]
fn copies_of_its_own_go_with_each_discipline() {
    for discipline in registered().iter().filter(|one| one.items == decide::Items::Copies) {
        let of_one = (1..).map(|seed| {
            let mut plan = HuntPlan::draw(seed, registered(), Limits::default());
            plan.open = Some(discipline.name.to_owned());
            for tenant in &mut plan.tenants {
                tenant.discipline = discipline.name.to_owned();
                tenant.write_back_ms = 0;
            }
            plan
        });
        let (local, elsewhere) = with_copies_of_its_own(of_one.take(PAIR_SEEDS));
        assert!(local > 0 && elsewhere > 0, "{}: {local}, {elsewhere}", discipline.name);
    }
}

/// Likewise, of tenants whose keys are lent to switches.
#[test]
fn copies_of_its_own_go_with_keys_that_are_lent() {
    let plans = (1..).map(|seed| HuntPlan::draw(seed, registered(), Limits::default()));
    let lends = plans.filter(HuntPlan::writes_back);
    let (local, elsewhere) = with_copies_of_its_own(lends.take(2 * PAIR_SEEDS));
    assert!(local > 0 && elsewhere > 0, "{local}, {elsewhere}");
}

/// Tenants that are removed and made anew, while all of that goes on.
#[test]
fn no_client_notices_that_its_tenant_was_made_anew() {
    let is_remade = |deed: &Deed| matches!(deed.act, Act::Remake { .. });
    let hunted = hunted(CHOSEN_SEEDS, |plan| plan.deeds.iter().any(is_remade));
    println!("{} seeds, {} operations: {:?}", hunted.seeds, hunted.operations, hunted.faults);
    assert!(hunted.faults.get("tenants_remade").is_some_and(|count| *count > 0));
}

/// The machine that would be halted instead, if its store is stopped or it is suspended.
fn halted(act: &Act) -> Option<Act> {
    let machine = match act {
        Act::Suspend { machine } => machine.strip_prefix("store").map(|_| &**machine)?,
        Act::Stop { process } => process.strip_suffix("/store")?,
        _ => return None,
    };
    Some(Act::Halt { machine: machine.into() })
}

/// Whether a store has another life after it. Data that outlives a store has the time of whoever
/// asks it here, and would see a jump.
fn begins_anew(deed: &Deed) -> bool {
    match &deed.act {
        Act::Kill { process } => process.ends_with("/store"),
        Act::Relend { .. } => true,
        _ => false,
    }
}

/// Stores that stand still with all of their clocks. One that holds copies of others' keys would
/// serve old ones then, as a switch may.
#[test]
fn nobody_notices_that_a_store_was_paused() {
    let mut halts = 0;
    for seed in 1..=number("SEEDS", SEEDS) {
        let mut plan = HuntPlan::draw(seed, registered(), Limits::default());
        if plan.has_copies_held(registered()) || plan.deeds.iter().any(begins_anew) {
            continue;
        }
        let before = halts;
        for deed in &mut plan.deeds {
            if let Some(halt) = halted(&deed.act) {
                deed.act = halt;
                halts += 1;
            }
        }
        if halts > before {
            let outcome = run(&plan, registered()).unwrap();
            assert_eq!(outcome.violation, None, "seed {seed}");
        }
    }
    println!("{halts} halts");
    assert!(halts > 10, "{halts}");
}

#[test]
fn a_seed_is_replayed_bit_by_bit() {
    for seed in 1..=24 {
        let plan = HuntPlan::draw(seed, registered(), Limits::default());
        let again = HuntPlan::draw(seed, registered(), Limits::default());
        assert_eq!(plan, again);
        let outcome = run(&plan, registered()).unwrap();
        assert_eq!(run(&plan, registered()).unwrap(), outcome);
    }
}

/// Not a test of its own: `SEED=n cargo test -p disciplines --test all -- --ignored shrinks` shows
/// the smallest plan.
#[test]
#[ignore = "for whoever looks into a seed"]
fn shrinks() {
    let plan = HuntPlan::draw(number("SEED", 1), registered(), Limits::default());
    let tell = |plan: &HuntPlan| println!("{}", serde_json::to_string(plan).unwrap());
    let smallest = hunt::shrink(&plan, registered(), 300, tell);
    println!("{:#?}", run(&smallest, registered()).unwrap());
}
