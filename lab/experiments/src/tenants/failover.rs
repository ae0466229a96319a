//! Several controllers with their state in etcd, and the one that leads killed again and again,
//! under load with writes. Switches go on serving; what stops for a while is decisions about what
//! to cache. How long, and does anything else give way?

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use history::{ClientsConfig, Operation};
use lab::{interrupt, progress::Progress, steered::Seat};
use plan::{CLIENT_CPU, Line, client, control, switch};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::table::{Table, thousands};

use super::{
    Stage, median,
    probe::{Decision, Probe, unavailable_ms},
};
use crate::{
    Measure, Options, Report, Run,
    params::{Tenancy, positive},
    plot,
    rig::{Clients, Console, Ownership, Rig, TenantSpec, fill},
    verdict::judge,
};

/// Tenants of the clients that read and write, and of the probes: of the discipline that the
/// experiment is about, whose switches may make items by themselves, and of one with which the
/// controller decides alone.
const CLIENTS: [u32; 2] = [1, 2];
const PROBES: [u32; 2] = [3, 4];
const CONTROLLERS: usize = 3;
const SWITCHES: usize = 2;
/// Fresh keys that a probe may use up in a second, and a margin.
const FRESH_PER_S: f64 = 10.0;
const MARGIN: usize = 200;
/// A killed controller is started again after so long.
const DEAD_FOR: Duration = Duration::from_millis(1500);
/// Between two looks at who owns what.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Parameters of fail-over.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failover {
    tenancy: Tenancy,
    /// How often the leader is killed.
    kills: u32,
    /// From one kill to the next, in seconds.
    round_s: f64,
    /// What the tenant runs whose keys only a controller's decision has answered by a switch.
    decided: String,
    /// Whether all controllers die at the first kill, and none comes back: nobody follows.
    nobody_follows: bool,
}

impl Measure for Failover {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        ensure!(self.kills > 0, "kills = 0: at least one is needed");
        ensure!(
            !self.nobody_follows || self.kills == 1,
            "kills = {}: where nobody follows there is one",
            self.kills
        );
        positive([("round_s", self.round_s)])
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("etcd")
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &Failover, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Failover { tenancy, .. } = params;
    let line = Line { clients: 2, controllers: CONTROLLERS, ..Stage::line(run, tenancy, SWITCHES) };
    let mut stage = Stage::start(run, tenancy, &line, run.options.name.clone())?;
    let known = run.options.disciplines.iter().find(|known| known.name == params.decided);
    ensure!(
        known.is_some_and(|known| known.probation.is_none()),
        "decided = {:?}: a discipline is needed whose switches make no items by themselves",
        params.decided
    );
    let decided = run.parts.begin(&params.decided)?;
    let mut tenants: Vec<TenantSpec> = CLIENTS.iter().map(|id| stage.tenant(*id)).collect();
    tenants.push(stage.tenant(PROBES[0]));
    tenants.push(TenantSpec::new(PROBES[1], tenancy.quota, decided));
    stage.create(&tenants)?;
    let ids: Vec<u32> = CLIENTS.into_iter().chain(PROBES).collect();
    let cluster = stage.rig.cluster(&ids)?;
    let seconds = f64::from(params.kills + 2) * params.round_s;
    let namespace = stage.rig.namespace(&client(2))?;
    let probes = PROBES.map(|tenant| Probe {
        namespace: namespace.clone(),
        cluster: cluster.clone(),
        tenant,
        keys: (seconds * FRESH_PER_S) as usize + MARGIN,
        value_len: tenancy.value_len,
    });
    run.progress.say("writing the probes' keys");
    let seat = Seat { host: &client(2), name: "fill", cpu: Some(CLIENT_CPU), nice: 0 };
    let mut filling = stage.generator(seat, &tenants[CLIENTS.len()..], probes[0].keys)?;
    fill(&mut filling)?;
    drop(filling);
    let mut clients = Clients::default();
    for (number, host) in [(0, client(1)), (1, client(2))] {
        let config = ClientsConfig {
            first: number * 4,
            clients: 4,
            keys: tenancy.keys as u32,
            ..ClientsConfig::new(cluster.clone(), CLIENTS.to_vec(), run.options.seed)
        };
        stage.rig.clients(&mut clients, &host, "clients", &config)?;
    }
    let stop = AtomicBool::new(false);
    let mut kills = Kills::default();
    let [of_either, decisions] = std::thread::scope(|scope| {
        let probing = probes.each_ref().map(|probe| scope.spawn(|| probe.run(&stop)));
        let killed = kills.run(&mut stage.rig, &mut clients, params, run.progress);
        stop.store(true, Ordering::Relaxed);
        let [of_either, decisions] =
            probing.map(|probing| probing.join().expect("a probe does not panic"));
        killed.and(Ok([of_either?, decisions?]))
    })?;
    run.progress.say("checking what the clients saw");
    let recorded = clients.finish()?;
    judge(report, &recorded, CLIENTS.len() * tenancy.keys)?;
    let unknown =
        recorded.operations.iter().filter(|operation| operation.return_ns.is_none()).count() as u64;
    tell(report, run, params, &kills, &decisions);
    // What a switch answers by itself meanwhile is no decision.
    let unserved = kills.all.iter().map(|kill| params.outage_ms(kill, &of_either));
    report.summarize("newly_hot_unserved_ms_max", unserved.fold(0.0, f64::max));
    let failed = recorded.unanswered + unknown;
    // A client sends again for a while before its request has failed: what it waits meanwhile is no
    // less a failure to its user.
    let took =
        |operation: &Operation| Some((operation.return_ns? - operation.call_ns) as f64 / 1e6);
    let slowest = recorded.operations.iter().filter_map(took);
    report.summarize("slowest_request_ms", slowest.fold(0.0, f64::max));
    let ownership = &kills.ownership;
    for (name, count) in [
        ("failed_requests", failed),
        ("operations", recorded.operations.len() as u64),
        ("reads_from_switches", recorded.from_switches()),
        ("torn_values", recorded.torn),
        ("double_owned_pages", ownership.double_owned),
        ("foreign_items", ownership.foreign_items),
        ("looks", ownership.looks),
    ] {
        report.count(name, count);
    }
    let failures = (failed > 0).then(|| format!("{failed} requests of clients failed"));
    failures.into_iter().chain(ownership.complaint()).for_each(|text| report.fails(text));
    Ok(())
}

impl Failover {
    /// For how long no newly hot key was answered by a switch, as long as was looked at the most.
    fn outage_ms(&self, kill: &Kill, decisions: &[Decision]) -> f64 {
        let longest = self.round_s * 1000.0;
        unavailable_ms(kill.at, decisions).map_or(longest, |ms| ms.min(longest))
    }
}

fn tell(
    report: &mut Report,
    run: &Run<'_>,
    params: &Failover,
    kills: &Kills,
    decisions: &[Decision],
) {
    let mut table = Table::new(&["kill", "controller", "no decisions for", "leads next"]);
    let longest = params.round_s * 1000.0;
    let (mut times, mut never) = (vec![], 0);
    for (number, kill) in kills.all.iter().enumerate() {
        let ms = params.outage_ms(kill, decisions);
        times.push(ms);
        let ms = Some(ms).filter(|ms| *ms < longest);
        never += u32::from(ms.is_none());
        table.row([
            (number + 1).to_string(),
            control(kill.controller),
            ms.map_or("-".into(), |ms| format!("{} ms", thousands(ms))),
            kill.next.map_or("-".into(), control),
        ]);
        report.rows.push(json!({
            "kill": number + 1,
            "controller": control(kill.controller),
            "unavailable_ms": ms,
            "leads_next": kill.next.map(control),
        }));
    }
    let usual: Vec<f64> = decisions.iter().filter_map(Decision::ms).collect();
    report.summarize("unavailable_ms_max", times.iter().copied().fold(0.0, f64::max));
    report.summarize("unavailable_ms_p50", median(&times));
    // What it takes without a kill is part of what is measured with one.
    report.summarize("decision_ms_p50", median(&usual));
    report.summarize("kills", kills.all.len() as f64);
    if never > 0 && !params.nobody_follows {
        report
            .fails(format!("after {never} kills nothing was cached any more within {longest} ms"));
    }
    let clients = std::mem::take(&mut report.text);
    report.text = format!("{}\n{clients}", table.render());
    let begin = kills.begun;
    let since = |at: Instant| begin.map_or(0.0, |b| at.saturating_duration_since(b).as_secs_f64());
    let points: Vec<(f64, f64)> = decisions
        .iter()
        .filter_map(|decision| Some((since(decision.asked), decision.ms()?)))
        .collect();
    let marks: Vec<(f64, f64)> = kills.all.iter().map(|kill| (since(kill.at), 0.0)).collect();
    let svg = plot::lines(
        "Time until a newly hot key is answered by the switch",
        "seconds",
        "milliseconds",
        &[("until cached".into(), points), ("the leader is killed".into(), marks)],
    );
    report.plot(run.name, svg);
}

/// One kill.
struct Kill {
    at: Instant,
    controller: usize,
    /// Who led when it was started again.
    next: Option<usize>,
}

/// All kills, and what was found meanwhile.
#[derive(Default)]
struct Kills {
    begun: Option<Instant>,
    all: Vec<Kill>,
    ownership: Ownership,
}

impl Kills {
    fn run(
        &mut self,
        rig: &mut Rig,
        clients: &mut Clients,
        params: &Failover,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let round = Duration::from_secs_f64(params.round_s);
        self.begun = Some(Instant::now());
        self.watch(rig, clients, round, progress)?;
        for number in 0..params.kills {
            let leader = leader(rig).with_context(|| {
                format!("kill {}: no controller says that it leads", number + 1)
            })?;
            let host = control(leader);
            progress.say(format!("killing {host}"));
            let at = Instant::now();
            rig.stop(&host, "control", libc::SIGKILL)?;
            self.all.push(Kill { at, controller: leader, next: None });
            if params.nobody_follows {
                for other in (1..=CONTROLLERS).filter(|other| *other != leader) {
                    rig.stop(&control(other), "control", libc::SIGKILL)?;
                }
                return self.watch(rig, clients, round, progress);
            }
            self.watch(rig, clients, DEAD_FOR, progress)?;
            rig.start(&host, "control")?;
            let left = round.saturating_sub(at.elapsed());
            self.watch(rig, clients, left, progress)?;
            if let Some(kill) = self.all.last_mut() {
                kill.next = self::leader(rig);
            }
        }
        Ok(())
    }

    /// Looks again and again who owns what, for a while.
    fn watch(
        &mut self,
        rig: &Rig,
        clients: &mut Clients,
        time: Duration,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let switches: Vec<_> = (1..=SWITCHES).map(|n| (n as u16, switch(n))).collect();
        while begun.elapsed() < time {
            interrupt::check()?;
            let operations = clients.operations()?;
            progress.say(format!(
                "{} kills, {operations} operations, {} looks at the pages",
                self.all.len(),
                self.ownership.looks
            ));
            self.ownership.look(rig, &switches);
            std::thread::sleep(LOOK_EVERY.min(time.saturating_sub(begun.elapsed())));
        }
        Ok(())
    }
}

/// The controller that says that it leads.
fn leader(rig: &Rig) -> Option<usize> {
    let begun = Instant::now();
    // After an election the new one may need a moment.
    while begun.elapsed() < Duration::from_secs(5) {
        let mut controllers = 1..=CONTROLLERS;
        let found = controllers.find(|number| {
            let console = rig.console();
            let ask = |console: Console| console.ask_at(&control(*number), &["control", "status"]);
            console.and_then(ask).is_ok_and(|status| leads(&status))
        });
        if found.is_some() || interrupt::check().is_err() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Whether the controller with this status leads.
fn leads(status: &Value) -> bool {
    status["leading"] == true
}
