//! The hunt in the simulator: a seed after the other, each a whole system of its own.

use std::{collections::BTreeMap, time::Instant};

use ::hunt::{
    self as hunting, Failure, HOLDERS, HOLDS, HuntResult, KINDS, LOANS, Limits, READS_FROM_HOLDERS,
    REPLICAS, hold_copies, hunt, measure, shrink,
};
use anyhow::Context;
use lab::interrupt;
use serde_json::json;
use text::table::{Table, thousands};

use super::{
    CLIENTS_COPIES, EVERY_COMMAND, EVERY_KIND, HELD_COPIES, LENT_KEYS, came_about, tell_commands,
};
use crate::{Report, Run};

/// So many seeds have every kind of fault among them.
const ENOUGH: u64 = 100;
/// So many have everything among them that may become of a loan.
const ENOUGH_TO_LEND: u64 = 1000;
/// Runs that are spent on making a plan that fails smaller.
const SHRINKING: usize = 300;

/// Seeds from that of the options on; 0 of them: until somebody interrupts.
pub(super) fn run(run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let options = run.options;
    // A seed may draw any of these.
    for drawn in options.disciplines.iter().filter(|d| super::are_copies(d)) {
        run.parts.begin(drawn.name)?;
    }
    let last = match options.seeds {
        0 => u64::MAX,
        seeds => options.seed.saturating_add(seeds),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let goes_on = |so_far: &HuntResult| {
        run.progress.say(format!(
            "{} seeds, {} operations, {:.2} simulated hours, {} violations",
            so_far.seeds,
            thousands(so_far.operations as f64),
            hours(so_far),
            so_far.found.len()
        ));
        interrupt::check().is_ok()
    };
    let seeds = options.seed..last;
    let hunted = hunt(seeds, options.disciplines, Limits::default(), threads, goes_on);
    let wall_s = begun.elapsed().as_secs_f64();
    // Without an end the interruption is how it ends.
    if options.seeds > 0 {
        interrupt::check()?;
    }
    tell(report, &hunted, hold_copies(options.disciplines));
    for found in &hunted.found {
        keep(run, report, found)?;
    }
    speed(run, report, &hunted, wall_s)
}

fn hours(hunted: &HuntResult) -> f64 {
    hunted.world_ns as f64 / 3.6e12
}

fn tell(report: &mut Report, hunted: &HuntResult, holds_copies: bool) {
    for (name, count) in [
        ("seeds", hunted.seeds),
        ("operations", hunted.operations),
        ("reads_from_switches", hunted.cached),
        ("on_probation", hunted.on_probation),
        ("keys_undecided", hunted.undecided),
        ("packets", hunted.packets),
        ("violations", hunted.found.len() as u64),
    ] {
        report.count(name, count);
    }
    report.summarize("simulated_hours", hours(hunted));
    // One seed may be all about something else.
    if hunted.cached == 0 && hunted.seeds >= ENOUGH {
        report.fails("no read was answered by a switch".into());
    }
    if hunted.on_probation == 0 && hunted.seeds >= ENOUGH {
        report.fails("no key got an item on probation".into());
    }
    if hunted.overlooks() {
        report.fails(format!(
            "{} keys have more possible pasts than can be looked at",
            hunted.undecided
        ));
    }
    let mut table = Table::new(&["what went wrong", "times"]);
    // In fewer seeds not everything comes about.
    let enough = |seeds: u64, why| Some(why).filter(|_| hunted.seeds >= seeds);
    let count_of = |all: &BTreeMap<String, u64>, name: &str| all.get(name).copied().unwrap_or(0);
    for (kind, count) in hunted.kinds() {
        let why = enough(ENOUGH, EVERY_KIND).filter(|_| KINDS.contains(&kind));
        came_about(report, &mut table, &format!("faults_{kind}"), count, why);
    }
    for name in LOANS {
        let why = enough(ENOUGH_TO_LEND, LENT_KEYS);
        came_about(report, &mut table, name, count_of(&hunted.loans, name), why);
    }
    for name in REPLICAS.iter().filter(|_| holds_copies) {
        let why = enough(ENOUGH, HELD_COPIES);
        came_about(report, &mut table, name, count_of(&hunted.replicas, name), why);
    }
    for name in HOLDERS {
        let why = enough(ENOUGH, CLIENTS_COPIES).filter(|_| name == READS_FROM_HOLDERS);
        came_about(report, &mut table, name, count_of(&hunted.holders, name), why);
    }
    report.text = table.render();
    let all: Vec<&str> = history::KINDS.iter().chain(&HOLDS).copied().collect();
    let count = |name: &str| count_of(&hunted.commands, name);
    tell_commands(report, &all, count, enough(ENOUGH, EVERY_COMMAND));
}

/// What a seed that fails leaves: its plan, the smallest one that fails, and the history that
/// shows it.
fn keep(run: &Run<'_>, report: &mut Report, found: &Failure) -> anyhow::Result<()> {
    let seed = found.plan.seed;
    let name = |what: &str| format!("{}-{what}-seed{seed}.json", run.name);
    let plan = |plan| serde_json::to_string_pretty(plan).context("a plan");
    report.plots.push((name("plan"), plan(&found.plan)?));
    match &found.outcome {
        Err(why) => report.fails(format!("seed {seed}: {why}")),
        Ok(outcome) => {
            run.progress.say(format!("seed {seed}: making it smaller"));
            let disciplines = run.options.disciplines;
            let smallest = shrink(&found.plan, disciplines, SHRINKING, |_| {});
            let again = hunting::run(&smallest, disciplines)?;
            report.plots.push((name("smallest-plan"), plan(&smallest)?));
            let history = serde_json::to_string_pretty(&again.violation)?;
            report.plots.push((name("violation"), history));
            report.rows.push(json!({"seed": seed, "outcome": outcome, "smallest": smallest}));
            report.fails(format!(
                "seed {seed}: {}; the smallest plan that shows it is among the files written, and `lab run {} --world sim --seed {seed} --seeds 1` \
                 replays it",
                outcome.complaint().unwrap_or_default(),
                run.name
            ));
        }
    }
    Ok(())
}

/// How fast that was, beside what the switches' programs alone take.
fn speed(
    run: &Run<'_>,
    report: &mut Report,
    hunted: &HuntResult,
    wall_s: f64,
) -> anyhow::Result<()> {
    let alone = measure(run.options.seed, run.options.disciplines)?;
    let rate = hunted.packets as f64 / wall_s.max(1e-9);
    report.summarize("wall_seconds", wall_s);
    report.summarize("packets_per_second", rate);
    report.summarize("programs_alone_ns", alone.program_ns);
    report.summarize("sim_overhead", 1e9 / alone.program_ns / rate);
    // The same for the packets that switches took, and for one core.
    let busy_ns = hunted.busy_s * 1e9 / (hunted.switched.max(1)) as f64;
    report.summarize("sim_overhead_per_switch_packet", busy_ns / alone.program_ns);
    report.text += &format!(
        "\n{} seeds, {} operations, {:.2} simulated hours in {wall_s:.0} s: {} packets a second\n",
        hunted.seeds,
        thousands(hunted.operations as f64),
        hours(hunted),
        thousands(rate),
    );
    Ok(())
}
