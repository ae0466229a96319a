//! Everything goes wrong at once, and no client may notice: two switches in a line, a path around
//! the first, a detour over a third, faulty links, three stores by different families of addresses,
//! tenants of all disciplines, processes that are killed or stand still in turn, backends that
//! restart, clients whose address changes, tenants whose pages move and whose secrets change, a
//! link that is cut. What the clients saw must be linearizable, key by key; tenants' keys have the
//! same names.

mod addresses;
mod hunt;
mod layout;
mod simulated;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::ensure;
use decide::{Items, Registration};
use lab::interrupt;
use serde::{Deserialize, Serialize};
use text::table::{Table, thousands};

use self::hunt::{Hunt, RerouteTimes};
use crate::{Measure, Report, Run, World, params::keys, verdict::judge};

/// Client processes on each of the two client hosts, and clients in each.
const PROCESSES: u32 = 2;
const CLIENTS: u32 = 4;
/// Operations of the full run and of the quick one.
const OPERATIONS: [u64; 2] = [100_000, 20_000];
/// Faults of the full run and of the quick one: each kind comes four times, or at least once.
const ROUNDS: [u32; 2] = [28, 7];
/// Seconds after which the run ends whatever it has come to.
const PATIENCE_S: [u64; 2] = [600, 45];
/// Between one fault and the next, in the full run and in the quick one.
const FAULT_EVERY: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(800)];
/// In whose names the clients ask: the open tenant, and three with secrets.
const TENANTS: [u32; 4] = [wire::TENANT_OPEN, 7, 8, 9];

/// Those of these with write-back. For the last one only clients ask whose packets pass both
/// switches: its keys are lent for longer.
const LENT: [u32; 2] = [8, 9];
/// What has to come about of loans, by the counters' names.
const LOANS: [&str; 5] = ["loans", "loans_returned", "loan_flushes", "lent_read", "lent_answer"];

/// What has to come about of copies in stores, where a discipline has some held.
const COPIES: [&str; 4] = ["replica_reads", "replica_confirms", "replica_updates", "pushes"];

/// What goes wrong, each of which has to: by its name in the summary.
const KINDS: [&str; 16] = [
    "lost",
    "duplicated",
    "reordered",
    "killed_store",
    // A store that came back with other leases than before.
    "leases_rewritten",
    "killed_switch",
    "rebooted_switch",
    "killed_controller",
    "killed_redis",
    // Stores and clients that stood still for longer than a lease.
    "stopped_store",
    "stopped_clients",
    // Times that a client's packets came from another address of its host than before.
    "moved_addresses",
    // Tenants that got another secret, and tenants left without a page of their own.
    "rotated_secrets",
    "unplaced_tenants",
    "evictions",
    // Pages that another tenant held, or that were taken or given, from one look to the next.
    "page_moves",
];
/// Beside those: only where links flip bits, and where a link was cut.
const FLIPPED: &str = "flipped";
/// Times that a switch took another way to the server because a link was cut or came back.
const REROUTED: &str = "reroutes";

/// How often each thing went wrong, by its name.
#[derive(Clone, Debug, Default)]
struct Faults(BTreeMap<&'static str, u64>);

impl Faults {
    fn add(&mut self, kind: &'static str, count: u64) {
        *self.0.entry(kind).or_default() += count;
    }

    /// All kinds, those that never came about too.
    fn all(&self, links_flip: bool) -> impl Iterator<Item = (&'static str, u64)> {
        let flipped = links_flip.then_some(FLIPPED);
        let kinds = KINDS.into_iter().chain([REROUTED]).chain(flipped);
        kinds.map(|kind| (kind, self.0.get(kind).copied().unwrap_or(0)))
    }
}

/// Parameters of the hunt.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coherence {
    /// Keys of each tenant.
    keys: usize,
    /// Most items of a switch.
    items: usize,
    /// Chance that the link of a server flips a bit of a frame.
    flip: f64,
}

/// Whether what a discipline's switches hold has to be what stores hold.
fn are_copies(discipline: &Registration) -> bool {
    !discipline.object.is_empty() && discipline.items == Items::Copies
}

/// The disciplines of the tenants: the experiment's for the open one, and for each of the others
/// another of this build, the newest first.
fn disciplines(run: &Run<'_>) -> [&'static Registration; TENANTS.len()] {
    let known = run.options.disciplines.iter().filter(|d| are_copies(d));
    let (own, others): (Vec<_>, Vec<_>) = known.partition(|d| d.name == run.discipline);
    let mut all = own.iter().chain(others.iter().rev()).cycle();
    std::array::from_fn(|_| *all.next().expect("the experiment's is one of them"))
}

impl Measure for Coherence {
    const TAKES_SEEDS: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        let Coherence { keys: of, items, .. } = self;
        keys(*of)?;
        ensure!(items <= of, "items = {items}: more than there are keys ({of})");
        let flip = self.flip;
        ensure!((0.0..=0.1).contains(&flip), "flip = {flip}: a chance from 0 to 0.1 is expected");
        Ok(())
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        match run.options.world {
            World::Kernel => hunt(self, run, report),
            World::Sim => simulated::run(run, report),
        }
    }
}

fn hunt(params: &Coherence, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let quick = usize::from(run.options.quick);
    let mut hunt = Hunt::new(params, run)?;
    let (wanted, patience) = (OPERATIONS[quick], Duration::from_secs(PATIENCE_S[quick]));
    let begun = Instant::now();
    let every = FAULT_EVERY[quick];
    let mut next_fault = Instant::now() + every;
    loop {
        interrupt::check()?;
        let operations = hunt.clients.operations()?;
        if hunt.round >= ROUNDS[quick] && operations >= wanted || begun.elapsed() > patience {
            break;
        }
        run.progress.say(format!("{operations} of {wanted} operations, {} faults", hunt.round));
        if Instant::now() >= next_fault {
            hunt.next_fault()?;
            hunt.look_at_pages();
            next_fault = Instant::now() + every;
        }
        hunt.look_at_owners();
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let recorded = hunt.finish()?;
    run.progress.say(format!("checking {} operations", recorded.operations.len()));
    let checked = Instant::now();
    judge(report, &recorded, TENANTS.len() * params.keys)?;
    let open = recorded.operations.iter().filter(|o| o.return_ns.is_none()).count();
    tell(report, &hunt.faults, params.flip > 0.0);
    let done = recorded.operations.len() as u64;
    if done < wanted {
        report.fails(format!("{done} operations: {wanted} were asked for"));
    }
    if recorded.cached == 0 {
        report.fails("no read was answered by a switch".into());
    }
    for (name, count) in [
        ("operations", done),
        ("outcome_unknown", open as u64),
        ("reads_from_switches", recorded.cached),
        ("torn_values", recorded.torn),
        ("reads_unanswered", recorded.unanswered),
        ("double_owned_pages", hunt.ownership.double_owned),
        ("foreign_items", hunt.ownership.foreign_items),
        ("looks", hunt.ownership.looks),
    ] {
        report.count(name, count);
    }
    let mut halves = disciplines(run).into_iter().filter_map(|d| d.store);
    loans_and_copies(report, &hunt, halves.any(|half| half.holds_copies));
    if let Some(text) = hunt.ownership.complaint() {
        report.fails(text);
    }
    reroutes(report, &hunt.rerouted);
    report.summarize("seconds", seconds);
    report.summarize("check_seconds", checked.elapsed().as_secs_f64());
    Ok(())
}

/// What came about of loans, of items on probation, and of copies in stores if there are to be any.
fn loans_and_copies(report: &mut Report, hunt: &Hunt, have_copies_held: bool) {
    let copies = COPIES.iter().filter(|_| have_copies_held);
    let all = LOANS.iter().map(|name| (name, "keys have to be lent"));
    let all = all.chain([(&::hunt::PROBATION, "keys have to get items on probation")]);
    for (name, why) in all.chain(copies.map(|name| (name, "stores have to hold copies"))) {
        let count = hunt.counted(name);
        report.count(name, count);
        if count == 0 {
            report.fails(format!("{name} = 0: {why}"));
        }
    }
    report.count("loans_found", hunt.counted("loans_found"));
    report.count("loans_lost", hunt.counted("loans_lost"));
}

/// How long it took until another way was there, and until it was of use.
fn reroutes(report: &mut Report, rerouted: &[Option<RerouteTimes>]) {
    let longest = |what: fn(&RerouteTimes) -> Duration| {
        let ms = rerouted.iter().flatten().map(what);
        ms.max().unwrap_or_default().as_secs_f64() * 1000.0
    };
    report.summarize("reroute_ms_max", longest(|r| r.installed));
    report.summarize("reachable_ms_max", longest(|r| r.reached));
    let never = rerouted.iter().filter(|r| r.is_none()).count();
    if never > 0 {
        report.fails(format!(
            "after {never} of {} cuts the server was not reached another way",
            rerouted.len()
        ));
    }
}

/// Adds each kind of fault to the summary; one that never came about fails the run.
fn tell(report: &mut Report, faults: &Faults, links_flip: bool) {
    let mut table = Table::new(&["what went wrong", "times"]);
    for (kind, count) in faults.all(links_flip) {
        report.count(&format!("faults_{kind}"), count);
        table.row([kind.replace('_', " "), thousands(count as f64)]);
        if count == 0 {
            report.fails(format!("faults_{kind} = 0: every kind has to come about"));
        }
    }
    report.text += &table.render();
}
