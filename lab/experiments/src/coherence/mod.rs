//! Everything goes wrong at once, and no client may notice: two switches in a line, a path around
//! the first, a detour over a third, faulty links, three stores by different families of addresses,
//! tenants of all disciplines, processes that are killed or stand still in turn, backends that
//! restart, clients whose address changes, tenants whose pages move and whose secrets change, a
//! link that is cut. What the clients saw must be linearizable, key by key; tenants' keys have the
//! same names.

mod addresses;
mod commands;
mod hunt;
mod layout;
mod simulated;
mod turns;

use std::time::{Duration, Instant};

use anyhow::ensure;
use decide::{Items, Registration};
use serde::{Deserialize, Serialize};
use text::table::{Table, thousands};

use self::hunt::{Hunt, RerouteTimes};
use crate::{Measure, Report, Run, World, params::keys, verdict::judge};

/// Client processes on each of the two client hosts, and clients in each.
const PROCESSES: u32 = 2;
const CLIENTS: u32 = 4;
/// Operations of the full run and of the quick one.
const OPERATIONS: [u64; 2] = [100_000, 20_000];
/// Turns of the full run and of the quick one: each kind comes four times, or at least once.
const TURNS: [u32; 2] = [28, 7];
/// Seconds after which the run ends whatever it has come to.
const PATIENCE_S: [u64; 2] = [600, 45];
/// Between one turn's deeds and the next one's, in milliseconds, in the full run and in the quick
/// one.
const TURN_EVERY_MS: [u64; 2] = [1500, 800];
/// In whose names the clients ask: the open tenant, and three with secrets.
const TENANTS: [u32; 4] = [wire::TENANT_OPEN, 7, 8, 9];

/// Those of these with write-back. For the last one only clients ask whose packets pass both
/// switches: its keys are lent for longer.
const LENT: [u32; 2] = [8, 9];
/// What has to come about of loans, by the counters' names.
const LOANS: [&str; 5] = ["loans", "loans_returned", "loan_flushes", "lent_read", "lent_answer"];

/// What has to come about of copies in stores, where a discipline has some held.
const COPIES: [&str; 4] = ["replica_reads", "replica_confirms", "replica_updates", "pushes"];

/// What goes wrong in namespaces, each of which has to: by its name in the summary.
const KINDS: [&str; 16] = [
    "lost",
    "duplicated",
    "reordered",
    "killed",
    // A store that came back with other leases than before.
    "leases_rewritten",
    "rebooted",
    "data_restarted",
    // Stores and clients that stood still for longer than a lease.
    "stopped",
    "cut",
    REROUTED,
    // Times that a client's packets came from another address of its host than before.
    "addresses_moved",
    // Tenants that got another secret, and tenants left without a page of their own.
    "secrets_rotated",
    "unplaced_tenants",
    "evictions",
    "moved",
    // Pages that another tenant held, or that were taken or given, from one look to the next.
    "page_moves",
];
/// Times that a switch took another way to the server because a link was cut or came back.
const REROUTED: &str = "reroutes";

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
    loop {
        let operations = hunt.clients.operations()?;
        if hunt.turns >= TURNS[quick] && operations >= wanted || begun.elapsed() > patience {
            break;
        }
        run.progress.say(format!("{operations} of {wanted} operations, {} turns", hunt.turns));
        hunt.next_turn(TURN_EVERY_MS[quick])?;
        hunt.look_at_pages();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let recorded = hunt.finish()?;
    run.progress.say(format!("checking {} operations", recorded.operations.len()));
    let checked = Instant::now();
    judge(report, &recorded, TENANTS.len() * params.keys)?;
    let open = recorded.operations.iter().filter(|o| o.return_ns.is_none()).count();
    let mut table = Table::new(&["what went wrong", "times"]);
    for kind in KINDS.into_iter().chain((params.flip > 0.0).then_some("flipped")) {
        let count = hunt.faults.get(kind).copied().unwrap_or(0);
        came_about(report, &mut table, &format!("faults_{kind}"), count, Some(EVERY_KIND));
    }
    let done = recorded.operations.len() as u64;
    if done < wanted {
        report.fails(format!("{done} operations: {wanted} were asked for"));
    }
    for (tenant, discipline) in (0..).zip(disciplines(run)) {
        if !recorded.cached.contains_key(&tenant) {
            let name = discipline.name;
            report.fails(format!("{name}: no read of its tenant's was answered by a switch"));
        }
    }
    for (name, count) in [
        ("operations", done),
        ("outcome_unknown", open as u64),
        ("reads_from_switches", recorded.from_switches()),
        ("torn_values", recorded.torn),
        ("reads_unanswered", recorded.unanswered),
        ("double_owned_pages", hunt.ownership.double_owned),
        ("foreign_items", hunt.ownership.foreign_items),
        ("looks", hunt.ownership.looks),
    ] {
        report.count(name, count);
    }
    let mut halves = disciplines(run).into_iter().filter_map(|d| d.store);
    loans_and_copies(report, &mut table, &hunt, halves.any(|half| half.holds_copies));
    report.text += &table.render();
    let answered = |name: &str| recorded.commands.get(name).copied().unwrap_or(0);
    // Values live for a while only here, and GETEX and PERSIST would have them live on.
    let all = history::KINDS.iter().copied().filter(|name| !["getex", "persist"].contains(name));
    tell_commands(report, &all.collect::<Vec<&str>>(), answered, Some(EVERY_COMMAND));
    if let Some(text) = hunt.ownership.complaint() {
        report.fails(text);
    }
    reroutes(report, &hunt.rerouted);
    report.summarize("seconds", seconds);
    report.summarize("check_seconds", checked.elapsed().as_secs_f64());
    Ok(())
}

/// What came about of loans, of items on probation, and of copies in stores if there are to be any.
fn loans_and_copies(report: &mut Report, table: &mut Table, hunt: &Hunt, have_copies_held: bool) {
    let copies = COPIES.iter().filter(|_| have_copies_held);
    let all = LOANS.iter().map(|name| (name, LENT_KEYS));
    let all = all.chain([(&::hunt::PROBATION, "keys have to get items on probation")]);
    for (name, why) in all.chain(copies.map(|name| (name, HELD_COPIES))) {
        came_about(report, table, name, hunt.counted(name), Some(why));
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

/// Why something has to come about.
const EVERY_KIND: &str = "every kind has to come about";
const LENT_KEYS: &str = "keys have to be lent";
const HELD_COPIES: &str = "stores have to hold copies";
const CLIENTS_COPIES: &str = "copies at the clients' side have to answer";
const EVERY_COMMAND: &str = "every command of Redis has to be carried out";

/// How many commands of each kind clients were answered by the RESP port.
fn tell_commands(
    report: &mut Report,
    all: &[&str],
    count: impl Fn(&str) -> u64,
    why: Option<&str>,
) {
    let mut table = Table::new(&["commands of Redis", "answered"]);
    for name in all {
        came_about(report, &mut table, &format!("commands_{name}"), count(name), why);
    }
    report.text += &table.render();
}

/// Adds a count to the summary and to a table. One of 0 fails the run if there is a reason why it
/// has to come about.
fn came_about(report: &mut Report, table: &mut Table, name: &str, count: u64, why: Option<&str>) {
    report.count(name, count);
    let words = ["faults_", "commands_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
        .replace('_', " ");
    table.row([words, thousands(count as f64)]);
    if let Some(why) = why.filter(|_| count == 0) {
        report.fails(format!("{name} = 0: {why}"));
    }
}
