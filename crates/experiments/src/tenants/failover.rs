//! Several controllers with their state in etcd, and the one that leads killed again and again, under load with writes. Switches
//! go on serving; what stops for a while is decisions about what to cache. How long, and does anything else give way?

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::{Value, json};

use super::{
    measure::median,
    probe::{Decision, Probe, unavailable_ms},
};
use crate::{
    Experiment, Options, Params, Report,
    fabric::{
        CLIENT_CPU, CONTROL_PORT, Fabric, Generating, LEASE_MS, Plan, TenantSpec, client, control,
        fill, switch,
    },
    ownership::Ownership,
    plot,
    recorders::Recorders,
    table::{Table, thousands},
    verdict::judge,
};
use history::ClientsConfig;
use lab::{interrupt, progress::Progress};

/// Tenants of the clients that read and write, and of the probe.
const CLIENTS: [u32; 2] = [1, 2];
const PROBE: u32 = 3;
const CONTROLLERS: usize = 3;
const SWITCHES: usize = 2;
/// Fresh keys that the probe may use up in a second, and a margin.
const FRESH_PER_S: f64 = 10.0;
const MARGIN: usize = 200;
/// A killed controller is started again after so long.
const DEAD_FOR: Duration = Duration::from_millis(1500);
/// Between two looks at who owns what.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs it.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::new(&experiment.name, options, params)?;
    let tenancy = &params.tenancy;
    let plan = Plan {
        clients: 2,
        controllers: CONTROLLERS,
        window_ms: tenancy.window_ms,
        control_args: params.control_args.clone(),
        switch_args: params.switch_args.clone(),
        ..Plan::line(SWITCHES, tenancy.pages, &experiment.discipline)
    };
    let mut fabric = Fabric::start(plan, options.name.clone(), progress)?;
    let tenants: Vec<TenantSpec> = CLIENTS
        .iter()
        .chain([&PROBE])
        .map(|id| fabric.tenant(*id, tenancy.quota))
        .collect();
    fabric.create_tenants(&tenants)?;
    let cluster = fabric.cluster(&tenants)?;
    let seconds = f64::from(tenancy.kills + 2) * tenancy.round_s;
    let probe = Probe {
        namespace: fabric.lab().namespace(&client(2)),
        cluster: cluster.clone(),
        tenant: PROBE,
        keys: (seconds * FRESH_PER_S) as usize + MARGIN,
        value_len: params.value_len,
    };
    progress.say("writing the probe's keys");
    let mut filling = fabric.generator(&Generating {
        host: &client(2),
        name: "fill",
        tenants: &tenants[2..],
        keys: probe.keys,
        value_len: params.value_len,
        seed: options.seed,
        cpu: CLIENT_CPU,
        nice: 0,
    })?;
    fill(&mut filling)?;
    drop(filling);
    let mut recorders = Recorders::default();
    for (number, host) in [(0, client(1)), (1, client(2))] {
        let config = ClientsConfig {
            cluster: cluster.clone(),
            seed: options.seed,
            first: number * 4,
            clients: 4,
            keys: params.keys as u32,
            tenants: CLIENTS.to_vec(),
            lease_ms: LEASE_MS,
        };
        recorders.start(fabric.lab_mut(), &host, "clients", &config)?;
    }
    let stop = AtomicBool::new(false);
    let mut kills = Kills::default();
    let decisions = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe.run(&stop));
        let killed = kills.run(&mut fabric, &mut recorders, params, progress);
        stop.store(true, Ordering::Relaxed);
        let decisions = probing.join().expect("the probe does not panic");
        killed.and(decisions)
    })?;
    progress.say("checking what the clients saw");
    let recorded = recorders.finish()?;
    judge(&mut report, &recorded, CLIENTS.len() * params.keys)?;
    let unknown = recorded
        .operations
        .iter()
        .filter(|operation| operation.return_ns.is_none())
        .count() as u64;
    tell(&mut report, experiment, params, &kills, &decisions);
    let failed = recorded.unanswered + unknown;
    let insert = |report: &mut Report, name: &str, value: u64| {
        report.summary.insert(name.into(), value.into());
    };
    insert(&mut report, "failed_requests", failed);
    insert(&mut report, "operations", recorded.operations.len() as u64);
    insert(&mut report, "reads_from_switches", recorded.cached);
    insert(&mut report, "torn_values", recorded.torn);
    let ownership = &kills.ownership;
    insert(&mut report, "double_owned_pages", ownership.double_owned);
    insert(&mut report, "foreign_items", ownership.foreign_items);
    insert(&mut report, "looks", ownership.looks);
    let failures = (failed > 0).then(|| format!("{failed} requests of clients failed"));
    failures
        .into_iter()
        .chain(ownership.complaint())
        .for_each(|text| report.fails(text));
    Ok(report)
}

fn tell(
    report: &mut Report,
    experiment: &Experiment,
    params: &Params,
    kills: &Kills,
    decisions: &[Decision],
) {
    let mut table = Table::new(&["kill", "controller", "no decisions for", "leads next"]);
    let longest = params.tenancy.round_s * 1000.0;
    let (mut times, mut never) = (vec![], 0);
    for (number, kill) in kills.all.iter().enumerate() {
        let ms = unavailable_ms(kill.at, decisions).filter(|ms| *ms < longest);
        never += u32::from(ms.is_none());
        times.push(ms.unwrap_or(longest));
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
    report.summarize(
        "unavailable_ms_max",
        times.iter().copied().fold(0.0, f64::max),
    );
    report.summarize("unavailable_ms_p50", median(&times));
    // What it takes without a kill is part of what is measured with one.
    report.summarize("decision_ms_p50", median(&usual));
    report.summarize("kills", kills.all.len() as f64);
    if never > 0 {
        report.fails(format!(
            "after {never} kills nothing was cached any more within {longest} ms"
        ));
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
        &[
            ("until cached".into(), points),
            ("the leader is killed".into(), marks),
        ],
    );
    report.plots.push((format!("{}.svg", experiment.name), svg));
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
        fabric: &mut Fabric,
        recorders: &mut Recorders,
        params: &Params,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let round = Duration::from_secs_f64(params.tenancy.round_s);
        self.begun = Some(Instant::now());
        self.watch(fabric, recorders, round, progress)?;
        for number in 0..params.tenancy.kills {
            let leader = leader(fabric).with_context(|| {
                format!("kill {}: no controller says that it leads", number + 1)
            })?;
            let host = control(leader);
            progress.say(format!("killing {host}"));
            let spec = fabric.lab().spec(&host, "control")?;
            let at = Instant::now();
            fabric.lab_mut().stop(&host, "control", libc::SIGKILL)?;
            self.all.push(Kill {
                at,
                controller: leader,
                next: None,
            });
            self.watch(fabric, recorders, DEAD_FOR, progress)?;
            fabric.lab_mut().start(&host, &spec, false)?;
            fabric.wait_for_port(&host, "control", CONTROL_PORT)?;
            let left = round.saturating_sub(at.elapsed());
            self.watch(fabric, recorders, left, progress)?;
            if let Some(kill) = self.all.last_mut() {
                kill.next = self::leader(fabric);
            }
        }
        Ok(())
    }

    /// Looks again and again who owns what, for a while.
    fn watch(
        &mut self,
        fabric: &Fabric,
        recorders: &mut Recorders,
        time: Duration,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let switches: Vec<_> = (1..=SWITCHES).map(|n| (n as u16, switch(n))).collect();
        while begun.elapsed() < time {
            interrupt::check()?;
            let operations = recorders.operations()?;
            progress.say(format!(
                "{} kills, {operations} operations, {} looks at the pages",
                self.all.len(),
                self.ownership.looks
            ));
            self.ownership.look(&fabric.console(), &switches);
            std::thread::sleep(LOOK_EVERY.min(time.saturating_sub(begun.elapsed())));
        }
        Ok(())
    }
}

/// The controller that says that it leads.
fn leader(fabric: &Fabric) -> Option<usize> {
    let begun = Instant::now();
    // After an election the new one may need a moment.
    while begun.elapsed() < Duration::from_secs(5) {
        let mut controllers = 1..=CONTROLLERS;
        let found = controllers.find(|number| {
            let status = fabric
                .console()
                .ask_at(&control(*number), &["control", "status"]);
            status.is_ok_and(|status| leads(&status))
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
