//! What a well-behaved tenant notices of others on the same switch: one at many times its rate, one that guesses tenants and
//! tags, one whose hot keys change all the time. Alone and disturbed in turn; medians are compared.
//!
//! The victim's generator has one CPU for itself: what it sends is handled by the switch on that CPU. The disturbers run,
//! niced, on the other one, with store, agent and controller. So it is the switch that is shared, not the generators' CPU.

use serde_json::json;

use super::measure::{median, settle};
use crate::{
    experiment::{
        Experiment, Options, Params, Report,
        fabric::{CLIENT_CPU, Fabric, Generating, OTHER_CPU, Plan, TenantSpec, client, fill},
    },
    load::{Arrivals, ChurnSchedule, LoadDriver, Phase, PhaseKind, PhaseResult},
    plot,
    progress::Progress,
    table::{Table, micros, percent, thousands},
    workload::{Churn, ChurnKind, Popularity},
};

const VICTIM: u32 = 1;
const GREEDY: u32 = 2;
const RESTLESS: u32 = 3;
/// Keys of the one whose hot keys change, and how many become hot every tenth of a second.
const RESTLESS_KEYS: usize = 20_000;
const NEWLY_HOT: usize = 200;
/// Load before each measured part, in seconds.
const WARMUP_S: f64 = 0.3;
const NICE: i32 = 19;

/// Who disturbs, and how.
struct Disturber {
    name: &'static str,
    load: LoadDriver,
    phase: Phase,
}

/// Runs it: each disturber in turn, alone and disturbed in turn.
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
        window_ms: tenancy.window_ms,
        control_args: params.control_args.clone(),
        switch_args: params.switch_args.clone(),
        ..Plan::line(1, tenancy.pages, &experiment.discipline)
    };
    let mut fabric = Fabric::start(plan, options.name.clone(), progress)?;
    let victim = TenantSpec {
        borrows: false,
        ..fabric.tenant(VICTIM, tenancy.quota)
    };
    fabric.create_tenants(std::slice::from_ref(&victim))?;
    let mut load = fabric.generator(&Generating {
        host: &client(1),
        name: "victim",
        tenants: std::slice::from_ref(&victim),
        keys: params.keys,
        value_len: params.value_len,
        seed: options.seed,
        cpu: CLIENT_CPU,
        nice: 0,
    })?;
    fill(&mut load)?;
    let popularity = Popularity::Zipf(params.thetas.last().copied().unwrap_or(0.99));
    let reads = |seconds| Phase::reads(popularity, tenancy.rate, WARMUP_S, seconds);
    settle(
        &fabric,
        &mut load,
        std::slice::from_ref(&victim),
        params.keys,
        &Phase::reads(Popularity::Uniform, tenancy.rate, 0.0, 1.0),
        tenancy.settle_s,
        progress,
    )?;
    let mut table = Table::new(&[
        "beside",
        "req/s",
        "alone",
        "share",
        "p99",
        "alone",
        "ratio",
        "hits",
        "their req/s",
        "answered",
    ]);
    let (mut share, mut ratio): (f64, f64) = (f64::INFINITY, 0.0);
    let (mut foreign, mut forged, mut wrong) = (0, 0, 0);
    let (mut names, mut bars) = (vec![], [vec![], vec![]]);
    for mut disturber in disturbers(&mut fabric, &victim, popularity, params, options)? {
        let mut pairs = vec![];
        for round in 0..tenancy.rounds {
            progress.say(format!(
                "{}, round {} of {}",
                disturber.name,
                round + 1,
                tenancy.rounds
            ));
            let alone = load.run(&reads(tenancy.round_s))?;
            disturber.load.begin(&disturber.phase)?;
            let beside = load.run(&reads(tenancy.round_s))?;
            let theirs = disturber.load.finish()?;
            foreign += alone.foreign_values + beside.foreign_values + theirs.foreign_values;
            forged += theirs.forged_accepted;
            wrong += alone.wrong() + beside.wrong() + theirs.wrong();
            pairs.push(Round {
                alone,
                beside,
                theirs,
            });
        }
        let told = Told::of(&pairs);
        share = share.min(told.share());
        ratio = ratio.max(told.p99_ratio());
        told.tell(disturber.name, &mut report, &mut table);
        names.push(disturber.name.to_string());
        bars[0].push(told.p99_alone_us);
        bars[1].push(told.p99_us);
    }
    report.summarize("victim_throughput_share", share);
    report.summarize("victim_p99_ratio", ratio);
    report.summarize("foreign_values_seen", foreign as f64);
    report.summarize("forged_accepted", forged as f64);
    report.summarize("wrong_values", wrong as f64);
    if foreign + forged + wrong > 0 {
        report.failure = Some(format!(
            "{foreign} values of other tenants, {forged} forged requests accepted, {wrong} wrong values"
        ));
    }
    report.text = table.render();
    let [alone, beside] = bars;
    let figure = plot::GroupedBars {
        title: "99th percentile of the well-behaved tenant",
        y: "microseconds",
        groups: &names,
        series: &[("alone", alone), ("disturbed", beside)],
        marks: None,
    };
    report.plots.push((
        format!("{}.svg", experiment.name),
        plot::grouped_bars(&figure),
    ));
    Ok(report)
}

/// Starts the disturbers' generators. Each disturbs only while it is told to.
fn disturbers(
    fabric: &mut Fabric,
    victim: &TenantSpec,
    popularity: Popularity,
    params: &Params,
    options: &Options,
) -> anyhow::Result<Vec<Disturber>> {
    let tenancy = &params.tenancy;
    let greedy = TenantSpec {
        rate: tenancy.limit,
        ..fabric.tenant(GREEDY, tenancy.quota)
    };
    let restless = fabric.tenant(RESTLESS, tenancy.quota);
    fabric.create_tenants(&[greedy.clone(), restless.clone()])?;
    // Longer than what it disturbs at both ends.
    let seconds = tenancy.round_s + WARMUP_S + 0.2;
    let phase = |rate| Phase::reads(popularity, rate, 0.0, seconds);
    let too_much = phase(tenancy.limit as f64 * tenancy.excess);
    let guess = Phase {
        kind: PhaseKind::Forge,
        // What a guesser could overwrite would show as a wrong value.
        write_ratio: 0.5,
        ..phase(tenancy.disturb_rate)
    };
    let churn = Phase {
        churn: Some(ChurnSchedule {
            change: Churn {
                kind: ChurnKind::HotIn,
                count: NEWLY_HOT,
                among: 0,
            },
            every_s: 0.1,
        }),
        ..phase(tenancy.disturb_rate)
    };
    let mut all = vec![];
    for (name, tenant, keys, phase) in [
        ("greedy", &greedy, params.keys, too_much),
        // It knows the victim's number and keys, and only lacks the secret.
        ("guessing", victim, params.keys, guess),
        ("restless", &restless, RESTLESS_KEYS, churn),
    ] {
        let mut load = fabric.generator(&Generating {
            host: &client(2),
            name,
            tenants: std::slice::from_ref(tenant),
            keys,
            value_len: params.value_len,
            seed: options.seed,
            cpu: OTHER_CPU,
            nice: NICE,
        })?;
        if name != "guessing" {
            // Over its rate, a tenant's writes are dropped like everything else: that is what rates are for.
            let pace = if name == "greedy" { 4 } else { 64 };
            load.run(&Phase {
                arrivals: Arrivals::Closed(pace),
                ..Phase::fill(pace, 120.0)
            })?;
        }
        all.push(Disturber { name, load, phase });
    }
    Ok(all)
}

/// One round: the victim alone, the victim disturbed, and who disturbed.
struct Round {
    alone: PhaseResult,
    beside: PhaseResult,
    theirs: PhaseResult,
}

/// Medians over the rounds.
struct Told {
    rate: f64,
    rate_alone: f64,
    p99_us: f64,
    p99_alone_us: f64,
    hits: f64,
    sent: f64,
    answered: f64,
    accepted: u64,
    loss: f64,
}

impl Told {
    fn of(rounds: &[Round]) -> Told {
        let over = |f: fn(&Round) -> f64| median(&rounds.iter().map(f).collect::<Vec<_>>());
        Told {
            rate: over(|r| r.beside.throughput()),
            rate_alone: over(|r| r.alone.throughput()),
            p99_us: over(|r| r.beside.all.p99_us),
            p99_alone_us: over(|r| r.alone.all.p99_us),
            hits: over(|r| r.beside.hit_ratio()),
            sent: over(|r| r.theirs.sent_rate()),
            answered: over(|r| r.theirs.throughput()),
            accepted: rounds.iter().map(|r| r.theirs.forged_accepted).sum(),
            loss: over(|r| r.beside.loss()),
        }
    }

    fn share(&self) -> f64 {
        self.rate / self.rate_alone
    }

    fn p99_ratio(&self) -> f64 {
        self.p99_us / self.p99_alone_us
    }

    fn tell(&self, name: &str, report: &mut Report, table: &mut Table) {
        table.row([
            name.into(),
            thousands(self.rate),
            thousands(self.rate_alone),
            format!("{:.3}", self.share()),
            micros(self.p99_us),
            micros(self.p99_alone_us),
            format!("{:.2}", self.p99_ratio()),
            percent(self.hits),
            thousands(self.sent),
            thousands(self.answered),
        ]);
        report.summarize(format!("victim_throughput_share_{name}"), self.share());
        report.summarize(format!("victim_p99_ratio_{name}"), self.p99_ratio());
        report.rows.push(json!({
            "beside": name,
            "throughput": self.rate,
            "throughput_alone": self.rate_alone,
            "p99_us": self.p99_us,
            "p99_alone_us": self.p99_alone_us,
            "hit_ratio": self.hits,
            "loss": self.loss,
            "their_rate": self.sent,
            "their_answers": self.answered,
            "forged_accepted": self.accepted,
        }));
    }
}
