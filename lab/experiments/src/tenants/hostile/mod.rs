//! A tenant with a valid secret that does to everything that tenants share whatever its secret
//! allows, beside a well-behaved one: reads that claim to come by some switch, and writes that have
//! to wait for it; such reads of endless keys; fetches, which only agents send; values too large
//! for a switch; endless keys that are just about hot, some under hashes that are not theirs;
//! clients that are made up ([`load::PhaseKind::Hostile`]). It asks from both ends of the line, in
//! the name of a tenant with pages, of one that has none anywhere, and of the open tenant.
//!
//! The well-behaved tenant reads, writes, and changes which of its keys are hot, so that it needs
//! what is attacked: leases, copies, reports of hot keys. What it gets is compared with what it
//! gets in a second run beside a *harmless* neighbour: the same tenants on the same hosts, which
//! send as many packets, all of them honest. Until caches are warm both runs are the same. So what
//! packets cost whoever shares a machine's cores with them is no effect of the attack. In the
//! simulator every node has its own cores, and the answer is the attack's alone.

use anyhow::ensure;
use lab::steered::Seat;
use load::{
    Attack, ChurnSchedule, Phase, PhaseKind, PhaseResult,
    workload::{Churn, ChurnKind, Popularity},
};
use plan::{CLIENT_CPU, Line, OTHER_CPU, client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::table::{Table, percent, thousands};

use super::Stage;
use crate::{
    Measure, Report, Run,
    params::{Tenancy, exponent, part, positive},
    rig::{Load, TenantSpec, fill},
};

const VICTIM: u32 = 1;
const HOSTILE: u32 = 2;
/// Hostile too, and without a page on any switch.
const POOR: u32 = 3;
const SWITCHES: usize = 2;
const SERVER: &str = "server";
/// Hosts of the attackers: at the victim's end of the line, and at the store's.
const ATTACKERS: [usize; 2] = [2, 3];
const NICE: i32 = 19;
/// Keys of the victim that become hot, and how often.
const NEWLY_HOT: usize = 20;
const NEWLY_HOT_EVERY_S: f64 = 0.5;
/// Load before each measured part, in seconds.
const WARMUP_S: f64 = 0.5;
/// Share of writes in a harmless neighbour's load: about that of the attacks.
const HARMLESS_WRITES: f64 = 0.3;

/// Parameters of a hostile tenant.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hostile {
    tenancy: Tenancy,
    /// Zipf's exponent.
    theta: f64,
    /// Requests per second of the well-behaved tenant.
    rate: f64,
    /// Part of them that write.
    write_ratio: f64,
    /// Packets per second of each of two attackers.
    attack_rate: f64,
    /// One kind of attack alone, to see what it does; all of them without.
    #[serde(default)]
    only: Option<Attack>,
    /// Load before anything is measured, in seconds.
    settle_s: f64,
    /// Length of each measurement, in seconds.
    seconds: f64,
}

impl Measure for Hostile {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        exponent(self.theta)?;
        part([("write_ratio", self.write_ratio)])?;
        ensure!(
            self.tenancy.keys > NEWLY_HOT,
            "keys = {}: more than {NEWLY_HOT} are needed",
            self.tenancy.keys
        );
        positive([
            ("rate", self.rate),
            ("attack_rate", self.attack_rate),
            ("settle_s", self.settle_s),
            ("seconds", self.seconds),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

impl Hostile {
    fn victim(&self, seconds: f64) -> Phase {
        Phase {
            write_ratio: self.write_ratio,
            churn: Some(ChurnSchedule {
                change: Churn { kind: ChurnKind::HotIn, count: NEWLY_HOT, among: 0 },
                every_s: NEWLY_HOT_EVERY_S,
            }),
            ..Phase::reads(Popularity::Zipf(self.theta), self.rate, WARMUP_S, seconds)
        }
    }

    /// What the neighbour does meanwhile, a little longer at both ends.
    fn neighbour(&self, is_hostile: bool, seconds: f64) -> Phase {
        let seconds = seconds + WARMUP_S + 0.2;
        Phase {
            kind: match is_hostile {
                true => PhaseKind::Hostile { switches: SWITCHES as u16, only: self.only },
                false => PhaseKind::Load,
            },
            write_ratio: HARMLESS_WRITES,
            ..Phase::reads(Popularity::Uniform, self.attack_rate, 0.0, seconds)
        }
    }
}

/// What the victim saw beside one neighbour, and what the store counted meanwhile.
struct Encounter {
    victim: PhaseResult,
    neighbours: Vec<PhaseResult>,
    /// Its counters then, and afterwards.
    before: Value,
    after: Value,
}

impl Encounter {
    fn count(&self, name: &str) -> u64 {
        let count = |totals: &Value| totals[name].as_u64().unwrap_or(0);
        count(&self.after) - count(&self.before)
    }

    /// Terms that began anew, and renewals that switches were refused for an invalidation that they
    /// left unanswered.
    fn leases_lost(&self) -> u64 {
        self.count("lease_terms") + self.count("leases_refused_mute")
    }
}

/// The victim's load and its neighbours'.
struct Loads {
    victim: Load,
    neighbours: Vec<Load>,
}

impl Loads {
    fn run(
        &mut self,
        stage: &Stage,
        params: &Hostile,
        is_hostile: bool,
        seconds: f64,
    ) -> anyhow::Result<Encounter> {
        let before = stage.rig.store_status(SERVER)?.totals;
        for load in &mut self.neighbours {
            load.begin(&params.neighbour(is_hostile, seconds))?;
        }
        let victim = self.victim.run(&params.victim(seconds))?;
        let neighbours = self.neighbours.iter_mut().map(|load| load.finish());
        let neighbours = neighbours.collect::<anyhow::Result<_>>()?;
        let after = stage.rig.store_status(SERVER)?.totals;
        Ok(Encounter { victim, neighbours, before, after })
    }
}

fn measure(params: &Hostile, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    // Refused to the attackers.
    for tried in ["denied_key_hash", "dropped_lease_auth"] {
        run.seen.borrow_mut().leave(tried);
    }
    let harmless = beside(params, run, false)?;
    let hostile = beside(params, run, true)?;
    tell(report, &harmless, &hostile);
    Ok(())
}

/// What the victim sees on a rack of its own with one of the neighbours, which is harmless until
/// caches are warm.
fn beside(params: &Hostile, run: &Run<'_>, is_hostile: bool) -> anyhow::Result<Encounter> {
    let tenancy = &params.tenancy;
    let line =
        Line { clients: 2, far_clients: 1, is_open: true, ..Stage::line(run, tenancy, SWITCHES) };
    let mut stage = Stage::start(run, tenancy, &line, run.options.name.clone())?;
    let victim = stage.tenant(VICTIM);
    let mut hostile =
        vec![stage.tenant(HOSTILE), TenantSpec { quota: 0, borrows: false, ..stage.tenant(POOR) }];
    stage.create(std::slice::from_ref(&victim))?;
    stage.create(&hostile)?;
    hostile.push(stage.tenant(wire::TENANT_OPEN));
    run.progress.say("writing everybody's keys");
    let mut loads =
        Loads { victim: stage.load_on(CLIENT_CPU, "load", &[victim])?, neighbours: vec![] };
    for number in ATTACKERS {
        let seat =
            Seat { host: &client(number), name: "neighbour", cpu: Some(OTHER_CPU), nice: NICE };
        let mut load = stage.generator(seat, &hostile, tenancy.keys)?;
        fill(&mut load)?;
        loads.neighbours.push(load);
    }
    run.progress.say("beside a harmless neighbour, until caches are warm");
    loads.run(&stage, params, false, params.settle_s)?;
    let name = if is_hostile { "hostile" } else { "harmless" };
    run.progress.say(format!("beside a {name} neighbour"));
    loads.run(&stage, params, is_hostile, params.seconds)
}

fn tell(report: &mut Report, harmless: &Encounter, hostile: &Encounter) {
    let mut table = Table::new(&[
        "neighbour",
        "its packets/s",
        "req/s",
        "lost",
        "hits",
        "leases lost",
        "recalls",
        "grants",
        "waits lapsed",
    ]);
    for (name, seen) in [("harmless", harmless), ("hostile", hostile)] {
        let theirs: f64 = seen.neighbours.iter().map(PhaseResult::sent_rate).sum();
        let recalls = seen.count("directory_evictions");
        let (grants, lapsed) = (seen.count("grants"), seen.count("waits_lapsed"));
        table.row([
            name.into(),
            thousands(theirs),
            thousands(seen.victim.throughput()),
            percent(seen.victim.loss()),
            percent(seen.victim.hit_ratio()),
            seen.leases_lost().to_string(),
            recalls.to_string(),
            grants.to_string(),
            lapsed.to_string(),
        ]);
        report.rows.push(json!({
            "neighbour": name,
            "their_rate": theirs,
            "throughput": seen.victim.throughput(),
            "loss": seen.victim.loss(),
            "hit_ratio": seen.victim.hit_ratio(),
            "p99_us": seen.victim.all.p99_us,
            "leases_lost": seen.leases_lost(),
            "directory_evictions": recalls,
            "grants": grants,
            "waits_lapsed": lapsed,
        }));
    }
    let share = |what: fn(&PhaseResult) -> f64| what(&hostile.victim) / what(&harmless.victim);
    let throughput = share(PhaseResult::throughput);
    let hits = share(PhaseResult::hit_ratio);
    let leases_lost = hostile.leases_lost();
    report.summarize("victim_throughput_share", throughput);
    report.summarize("victim_hit_ratio_share", hits);
    report.count("leases_lost", leases_lost);
    let mut sent = 0;
    for name in Attack::ALL.map(Attack::name) {
        let of = |result: &PhaseResult| result.attacks.get(name).copied().unwrap_or(0);
        let count: u64 = hostile.neighbours.iter().map(of).sum();
        report.count(&format!("attacks_sent_{name}"), count);
        sent += count;
    }
    report.count("attacks_sent", sent);
    let results = [harmless, hostile];
    let all = results.iter().flat_map(|seen| seen.neighbours.iter().chain([&seen.victim]));
    let (mut foreign, mut wrong) = (0, 0);
    for result in all {
        foreign += result.foreign_values;
        wrong += result.wrong();
    }
    report.count("foreign_values_seen", foreign);
    report.count("wrong_values", wrong);
    report.text = table.render();
}
