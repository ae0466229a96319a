//! Everything goes wrong at once, and no client may notice: two switches in a line, a path around the first, a detour over a
//! third, faulty links, processes that are killed in turn, tenants whose pages move, a link that is cut. What the clients
//! saw must be linearizable, key by key; tenants' keys have the same names.

mod hunt;
mod layout;
mod simulated;

use std::time::{Duration, Instant};

use anyhow::ensure;
use lab::interrupt;
use serde::{Deserialize, Serialize};

use self::hunt::{Hunt, Rerouted};
use crate::{Measure, Report, Run, World, params::keys, verdict::judge};

/// Client processes on each of the two client hosts, and clients in each.
const PROCESSES: u32 = 2;
const CLIENTS: u32 = 4;
/// Operations of the full run and of the quick one.
const OPERATIONS: [u64; 2] = [100_000, 20_000];
/// Faults of the full run and of the quick one: each kind comes four times, or at least once.
const ROUNDS: [u32; 2] = [20, 5];
/// Seconds after which the run ends whatever it has come to.
const PATIENCE_S: [u64; 2] = [600, 30];
/// Between one fault and the next.
const FAULT_EVERY: Duration = Duration::from_millis(1500);
/// In whose names the clients ask: the open tenant, and two with secrets.
const TENANTS: [u32; 3] = [wire::TENANT_OPEN, 7, 8];

/// How often each thing went wrong.
#[derive(Clone, Debug, Default, Serialize)]
struct Faults {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    killed_store: u64,
    killed_switch: u64,
    rebooted_switch: u64,
    killed_controller: u64,
    evictions: u64,
    /// Pages that another tenant held, or that were taken or given, from one look to the next.
    page_moves: u64,
    /// Times that a switch took another way to the server because a link was cut or came back.
    reroutes: u64,
}

/// Parameters of the hunt.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coherence {
    /// Keys of each tenant.
    keys: usize,
    /// Most items of a switch.
    items: usize,
    /// The discipline of every other tenant; empty: the experiment's.
    other_discipline: String,
}

impl Measure for Coherence {
    const TAKES_SEEDS: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        let Coherence {
            keys: of, items, ..
        } = self;
        keys(*of)?;
        ensure!(
            items <= of,
            "items = {items}: more than there are keys ({of})"
        );
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
    let mut next_fault = Instant::now() + FAULT_EVERY;
    loop {
        interrupt::check()?;
        let operations = hunt.clients.operations()?;
        if hunt.round >= ROUNDS[quick] && operations >= wanted || begun.elapsed() > patience {
            break;
        }
        run.progress.say(format!(
            "{operations} of {wanted} operations, {} faults",
            hunt.round
        ));
        if Instant::now() >= next_fault {
            hunt.next_fault()?;
            hunt.look_at_pages();
            next_fault = Instant::now() + FAULT_EVERY;
        }
        hunt.look_at_owners();
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let recorded = hunt.finish()?;
    run.progress
        .say(format!("checking {} operations", recorded.operations.len()));
    let checked = Instant::now();
    judge(report, &recorded, TENANTS.len() * params.keys)?;
    let faults = &hunt.faults;
    let open = recorded
        .operations
        .iter()
        .filter(|o| o.return_ns.is_none())
        .count();
    report
        .summary
        .insert("faults".into(), serde_json::to_value(faults)?);
    for (name, count) in [
        ("operations", recorded.operations.len() as u64),
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
    if let Some(text) = hunt.ownership.complaint() {
        report.fails(text);
    }
    reroutes(report, &hunt.rerouted);
    report.summarize("seconds", seconds);
    report.summarize("check_seconds", checked.elapsed().as_secs_f64());
    report.text += &tell(faults);
    Ok(())
}

/// How long it took until another way was there, and until it was of use.
fn reroutes(report: &mut Report, rerouted: &[Option<Rerouted>]) {
    let longest = |what: fn(&Rerouted) -> Duration| {
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

fn tell(faults: &Faults) -> String {
    format!(
        "\nframes lost {}, duplicated {}, reordered {}; killed: store {}, switch agent {} (and rebooted {}), controller {}; \
         evictions {}; pages moved {}; other ways taken {}\n",
        faults.lost,
        faults.duplicated,
        faults.reordered,
        faults.killed_store,
        faults.killed_switch,
        faults.rebooted_switch,
        faults.killed_controller,
        faults.evictions,
        faults.page_moves,
        faults.reroutes,
    )
}
