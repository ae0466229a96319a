//! Many seeds, one after another on all cores, and what came of all of them together. The
//! experiment `coherence` hunts with it in the simulator, and so do the disciplines' tests.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::{Disciplines, HuntPlan, Limits, Outcome, run, tenants::REFUSALS};

/// A seed in which something came about that must not, or that could not be run to its end.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The plan.
    pub plan: HuntPlan,
    /// What came of it, or why nothing did.
    pub outcome: Result<Outcome, String>,
}

/// What a hunt came to.
#[derive(Clone, Debug, Default)]
pub struct HuntResult {
    /// Seeds that were run.
    pub seeds: u64,
    /// Operations in all records.
    pub operations: u64,
    /// Reads that switches answered.
    pub cached: u64,
    /// Items that switches made by themselves, on probation.
    pub on_probation: u64,
    /// Keys that were left undecided.
    pub undecided: u64,
    /// Packets that arrived somewhere.
    pub packets: u64,
    /// Packets that switches took.
    pub switched: u64,
    /// Time in the worlds, in nanoseconds.
    pub world_ns: u64,
    /// Time of all threads together, in seconds.
    pub busy_s: f64,
    /// How often each thing was done or went wrong.
    pub faults: BTreeMap<String, u64>,
    /// What stores and switches counted of loans: [`LOANS`](crate::LOANS), and what they lost where
    /// they may.
    pub loans: BTreeMap<String, u64>,
    /// What stores counted of copies of other stores' keys, [`REPLICAS`](crate::REPLICAS) among it.
    pub replicas: BTreeMap<String, u64>,
    /// What was counted of copies at the clients' side.
    pub holders: BTreeMap<String, u64>,
    /// Commands of Redis that were answered, by their kind, and what stores counted of holds.
    pub commands: BTreeMap<String, u64>,
    /// Seeds in which keys were lent and stores were granted copies.
    pub both: u64,
    /// What was found, in order of seeds.
    pub found: Vec<Failure>,
}

impl HuntResult {
    /// Whether more keys were left undecided than is no way to overlook something: each seed has
    /// several keys, and one in a hundred seeds may have one that is.
    pub fn overlooks(&self) -> bool {
        self.undecided > self.seeds / 100 + 1
    }
}

/// Everything that goes wrong in enough seeds, by its name in [`HuntResult::faults`]; and bits that
/// flip, where they do.
pub const KINDS: [&str; 30] = [
    "lost",
    "duplicated",
    "reordered",
    "killed",
    "stopped",
    "suspended",
    "rebooted",
    "left_in_order",
    "leases_rewritten",
    "data_restarted",
    "disks_failed",
    "files_put_back",
    "secrets_rotated",
    "cut",
    "addresses_moved",
    "moved",
    "wall_clock_set",
    "write_back_changed",
    "terms_changed",
    "agents_without_disk",
    "tenants_remade",
    "slots_moved",
    "stores_passed_by",
    "replaced",
    "switches_forgotten",
    "client_ids_shared",
    REFUSALS[0],
    REFUSALS[1],
    REFUSALS[2],
    REFUSALS[3],
];

impl HuntResult {
    /// How often each of [`KINDS`] came about, and whatever else did.
    pub fn kinds(&self) -> BTreeMap<&str, u64> {
        let mut all: BTreeMap<&str, u64> = KINDS.into_iter().map(|kind| (kind, 0)).collect();
        all.extend(self.faults.iter().map(|(kind, count)| (kind.as_str(), *count)));
        all
    }

    fn add(&mut self, plan: HuntPlan, outcome: anyhow::Result<Outcome>) {
        self.seeds += 1;
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        if let Ok(outcome) = &outcome {
            self.operations += outcome.operations;
            self.cached += outcome.cached;
            self.on_probation += outcome.on_probation;
            self.undecided += outcome.undecided;
            self.packets += outcome.packets;
            self.switched += outcome.switched;
            self.world_ns += outcome.world_ns;
            let came = |all: &BTreeMap<String, u64>, name| all.get(name).is_some_and(|n| *n > 0);
            let both = came(&outcome.loans, "loans") && came(&outcome.replicas, "replica_grants");
            self.both += u64::from(both);
            for (all, its) in [
                (&mut self.faults, &outcome.faults),
                (&mut self.replicas, &outcome.replicas),
                (&mut self.loans, &outcome.loans),
                (&mut self.commands, &outcome.commands),
                (&mut self.holders, &outcome.holders),
            ] {
                for (name, count) in its {
                    *all.entry(name.clone()).or_default() += count;
                }
            }
        }
        if outcome.as_ref().map_or(true, |o| o.complaint().is_some()) {
            self.found.push(Failure { plan, outcome });
        }
    }
}

/// Runs the plans of these seeds on so many threads. `goes_on` is asked before each, with what
/// there is so far; when it says no, no other is begun.
pub fn hunt(
    seeds: impl Iterator<Item = u64> + Send,
    disciplines: Disciplines,
    limits: Limits,
    threads: usize,
    goes_on: impl Fn(&HuntResult) -> bool + Sync,
) -> HuntResult {
    let seeds = Mutex::new(seeds);
    let hunted = Mutex::new(HuntResult::default());
    let is_over = AtomicBool::new(false);
    let busy_ns = AtomicU64::new(0);
    let may_go_on = || goes_on(&hunted.lock().unwrap_or_else(PoisonError::into_inner));
    let work = || {
        loop {
            if is_over.load(Relaxed) || !may_go_on() {
                is_over.store(true, Relaxed);
                return;
            }
            let seed = seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(seed) = seed else { return };
            let begun = Instant::now();
            let plan = HuntPlan::draw(seed, disciplines, limits);
            let outcome = run(&plan, disciplines);
            busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
            let mut hunted = hunted.lock().unwrap_or_else(PoisonError::into_inner);
            hunted.add(plan, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut hunted = hunted.into_inner().unwrap_or_else(PoisonError::into_inner);
    hunted.busy_s = busy_ns.load(Relaxed) as f64 / 1e9;
    hunted.found.sort_by_key(|found| found.plan.seed);
    hunted
}
