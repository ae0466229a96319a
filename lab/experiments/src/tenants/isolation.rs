//! What a well-behaved tenant notices of others on the same switch: one at many times its rate, one
//! that guesses tenants and tags, one whose hot keys change all the time.
//!
//! There are two racks of the same shape, each with the same tenants, and three situations in turn,
//! many short ones, since what else a machine does comes and goes:
//!
//! - *alone*: the victim alone, nothing else going on;
//! - *elsewhere*: the disturber does its worst to the other rack, which has a switch, a store and a
//!   controller of its own;
//! - *beside*: it does the same on the victim's switch.
//!
//! `victim_p99_ratio` is beside over alone, `victim_p99_over_elsewhere` beside over elsewhere: the
//! medians of the rounds' ratios. `victim_throughput_share` is beside over alone, over all rounds
//! together: arrivals are random, and a short round's number of them is not even. Each is that of
//! the disturber for which it is worst.
//!
//! `flood_N_throughput_share` and `flood_N_p99_ratio` are beside over alone where the one that
//! guesses sends N times as many packets as the switch's core takes. Nothing is claimed of that:
//! whatever a program decides, a packet was received before, so whoever sends most has most of the
//! core. That is to be shared out before the switch, by the network card or by a policer.
//!
//! In the simulator a switch has a core to itself, which takes so many packets a second
//! (`hardware`); the victim alone uses half of that, and `switch_load_alone` says so. What is
//! claimed of latency is claimed there. In the kernel all share two CPUs: what the victim sends is
//! handled by the switch on the victim's own CPU, the disturbers run, niced, on the other one, with
//! the store; a second busy CPU slows the first whatever it does, by caches and often a core that
//! they share. That is the machine's and not the switch's; elsewhere tells the two apart, for there
//! only the switch (and its controller and store) is not shared. Rates are low there, so that no
//! generator waits for its CPU.

use anyhow::ensure;
use lab::steered::Seat;
use load::{
    Arrivals, ChurnSchedule, Phase, PhaseKind, PhaseResult,
    workload::{Churn, ChurnKind, Popularity},
};
use plan::{CLIENT_CPU, Hardware, Line, OTHER_CPU, client, switch};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, micros, percent, thousands};

use super::{Stage, median};
use crate::{
    Measure, Report, Run, World,
    params::{Tenancy, exponent, positive},
    plot,
    rig::{Load, TenantSpec},
};

const VICTIM: u32 = 1;
const GREEDY: u32 = 2;
const RESTLESS: u32 = 3;
/// Keys of the one whose hot keys change, and how many become hot every tenth of a second.
const RESTLESS_KEYS: usize = 20_000;
const NEWLY_HOT: usize = 200;
/// Load before each measured part, in seconds.
const WARMUP_S: f64 = 0.2;
const NICE: i32 = 19;

/// Who disturbs, and how.
struct Disturber {
    name: &'static str,
    phase: Phase,
    /// Its generator on the victim's rack, and on the other one.
    here: Load,
    elsewhere: Load,
}

/// Where the disturber is meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Situation {
    Alone,
    Elsewhere,
    Beside,
}

/// The situations of a round: to and fro, so that what drifts over time tells for each of
/// them alike.
fn order(round: usize) -> [Situation; 3] {
    let mut order = [Situation::Alone, Situation::Elsewhere, Situation::Beside];
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Parameters of isolation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    tenancy: Tenancy,
    /// Zipf's exponent.
    theta: f64,
    /// Requests per second of the well-behaved tenant.
    rate: f64,
    /// Deadline in seconds for all of its keys to be cached.
    settle_s: f64,
    /// Rounds for each disturber.
    rounds: usize,
    /// Length of one measurement in seconds.
    round_s: f64,
    /// Requests per second that the greedy tenant may send; it sends `excess` times as many.
    limit: u64,
    /// How many times its limit the greedy tenant sends.
    excess: f64,
    /// Requests per second of the other disturbers.
    disturb_rate: f64,
    /// What switches and links are in the simulator.
    hardware: Option<Hardware>,
    /// Floods beside the victim there, each as a multiple of the packets that the switch's core
    /// takes.
    #[serde(default)]
    floods: Vec<f64>,
}

impl Measure for Isolation {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        exponent(self.theta)?;
        ensure!(self.rounds > 0, "rounds = 0: at least one is needed");
        for flood in &self.floods {
            ensure!(*flood > 0.0 && *flood <= 10.0, "floods: {flood}: more than 0, to 10");
        }
        positive([
            ("rate", self.rate),
            ("settle_s", self.settle_s),
            ("round_s", self.round_s),
            ("excess", self.excess),
            ("disturb_rate", self.disturb_rate),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

impl Isolation {
    /// What the victim asks for in one measurement.
    fn reads(&self) -> Phase {
        Phase::reads(Popularity::Zipf(self.theta), self.rate, WARMUP_S, self.round_s)
    }

    /// Floods, each with its packets per second.
    fn floods(&self) -> impl Iterator<Item = (f64, f64)> {
        let core = self.hardware.as_ref().map(|hardware| hardware.switch_rate);
        self.floods.iter().filter_map(move |flood| Some((*flood, flood * core?)))
    }
}

/// The victim's throughput and 99th percentile beside a flood, over what they are alone.
fn beside_flood(
    [victim, flooder]: [&mut Load; 2],
    params: &Isolation,
    flood: &Phase,
) -> anyhow::Result<[f64; 2]> {
    let (mut alone, mut beside) = (Rounds::default(), Rounds::default());
    for _ in 0..params.rounds {
        alone.victim.push(victim.run(&params.reads())?);
        flooder.begin(flood)?;
        beside.victim.push(victim.run(&params.reads())?);
        flooder.finish()?;
    }
    Ok([total(&beside) / total(&alone), ratio(&beside, &alone, p99_us)])
}

/// The time within which 99 of 100 requests were answered, the lost ones too: infinite if fewer
/// ever were.
fn p99_us(result: &PhaseResult) -> f64 {
    result.waits.p99_us.unwrap_or(f64::INFINITY)
}

/// A rack whose victim's keys are stored; its generator, and the disturbers' with what each does.
struct Side<'a> {
    stage: Stage<'a>,
    victim: TenantSpec,
    load: Load,
    disturbers: Vec<(&'static str, Load, Phase)>,
}

impl<'a> Side<'a> {
    fn start(
        params: &'a Isolation,
        run: &Run<'a>,
        line: &Line,
        name: Option<String>,
    ) -> anyhow::Result<Side<'a>> {
        let mut stage = Stage::start(run, &params.tenancy, line, name)?;
        let victim = TenantSpec { borrows: false, ..stage.tenant(VICTIM) };
        stage.create(std::slice::from_ref(&victim))?;
        let load = stage.load_on(CLIENT_CPU, "victim", std::slice::from_ref(&victim))?;
        let disturbers = disturbers(&mut stage, &victim, params)?;
        Ok(Side { stage, victim, load, disturbers })
    }
}

/// Each disturber in turn, in each situation in turn.
fn measure(params: &Isolation, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let line = Line {
        clients: 2,
        hardware: params.hardware.clone().unwrap_or_default(),
        ..Stage::line(run, &params.tenancy, 1)
    };
    let other = Side::start(params, run, &line, None)?;
    let here = Side::start(params, run, &line, run.options.name.clone())?;
    let mut load = here.load;
    let reads = params.reads();
    here.stage.settle(
        &mut load,
        std::slice::from_ref(&here.victim),
        &Phase::reads(Popularity::Uniform, params.rate, 0.0, 1.0),
        params.settle_s,
    )?;
    let mut table = Table::new(&[
        "disturber",
        "req/s",
        "alone",
        "share",
        "p99",
        "alone",
        "ratio",
        "elsewhere",
        "ratio",
        "hits",
        "their req/s",
        "answered",
    ]);
    let (mut share, mut ratio, mut over_elsewhere): (f64, f64, f64) = (f64::INFINITY, 0.0, 0.0);
    let bad_tags = || -> anyhow::Result<f64> {
        let counters = here.stage.rig.switch_counters(&switch(1))?;
        Ok(counters["bypass_bad_tag"].as_f64().unwrap_or(0.0))
    };
    let bad_tags_before = bad_tags()?;
    let (mut guesses, mut arrived, mut alone_rate) = (0, 0.0, 0.0_f64);
    let (mut foreign, mut forged, mut wrong) = (0, 0, 0);
    let (mut names, mut bars) = (vec![], [vec![], vec![], vec![]]);
    let pairs = here.disturbers.into_iter().zip(other.disturbers);
    let all = pairs.map(|((name, here, phase), (_, elsewhere, _))| Disturber {
        name,
        phase,
        here,
        elsewhere,
    });
    for mut disturber in all {
        let mut seen: [Rounds; 3] = Default::default();
        for round in 0..params.rounds {
            for situation in order(round) {
                run.progress.say(format!(
                    "{}, round {} of {}: {situation:?}",
                    disturber.name,
                    round + 1,
                    params.rounds
                ));
                let seen = &mut seen[situation as usize];
                let theirs = match situation {
                    Situation::Alone => None,
                    Situation::Elsewhere => Some(&mut disturber.elsewhere),
                    Situation::Beside => Some(&mut disturber.here),
                };
                let Some(theirs) = theirs else {
                    seen.victim.push(load.run(&reads)?);
                    continue;
                };
                theirs.begin(&disturber.phase)?;
                seen.victim.push(load.run(&reads)?);
                seen.disturber.push(theirs.finish()?);
            }
        }
        for result in seen.iter().flat_map(|s| s.victim.iter().chain(&s.disturber)) {
            foreign += result.foreign_values;
            forged += result.forged_accepted;
            wrong += result.wrong();
        }
        let told = Summary::of(&seen);
        share = share.min(told.share);
        ratio = ratio.max(told.p99_ratio);
        over_elsewhere = over_elsewhere.max(told.p99_over_elsewhere);
        alone_rate = alone_rate.max(told.rate_alone);
        if disturber.phase.kind == PhaseKind::Forge {
            guesses += beside_sent(&seen);
            arrived = bad_tags()? - bad_tags_before;
            for (flood, rate) in params.floods() {
                run.progress.say(format!("{flood} times what the switch takes"));
                let phase = Phase { arrivals: Arrivals::Open(rate), ..disturber.phase.clone() };
                let [share, p99] = beside_flood([&mut load, &mut disturber.here], params, &phase)?;
                report.summarize(format!("flood_{flood}_throughput_share"), share);
                let name = format!("flood_{flood}_p99_ratio");
                match p99.is_finite() {
                    true => report.summarize(name, p99),
                    // More than one in a hundred were lost.
                    false => report.say(&name, "never".into()),
                }
            }
        }
        told.tell(disturber.name, report, &mut table);
        names.push(disturber.name.to_string());
        bars[0].push(told.p99_alone_us);
        bars[1].push(told.p99_elsewhere_us);
        bars[2].push(told.p99_us);
    }
    report.summarize("victim_throughput_share", share);
    report.summarize("victim_p99_ratio", ratio);
    report.summarize("victim_p99_over_elsewhere", over_elsewhere);
    if let (World::Sim, Some(hardware)) = (run.options.world, &params.hardware) {
        // What hits passes the switch once.
        report.summarize("switch_load_alone", alone_rate / hardware.switch_rate);
    }
    // Half of the guesses name tenants that there are, and have to be looked at.
    report.summarize("forgeries_seen_by_switch", arrived / (guesses as f64).max(1.0));
    report.summarize("foreign_values_seen", foreign as f64);
    report.summarize("forged_accepted", forged as f64);
    report.summarize("wrong_values", wrong as f64);
    if foreign + forged + wrong > 0 {
        report.failure = Some(format!(
            "{foreign} values of other tenants, {forged} forged requests accepted, {wrong} wrong values"
        ));
    }
    report.text = table.render();
    let [alone, elsewhere, beside] = bars;
    let figure = plot::GroupedBars {
        title: "99th percentile of the well-behaved tenant",
        y: "microseconds",
        groups: &names,
        series: &[
            ("alone", alone),
            ("disturber elsewhere", elsewhere),
            ("disturber beside", beside),
        ],
        marks: None,
    };
    report.plot(run.name, plot::grouped_bars(&figure));
    Ok(())
}

/// Starts the disturbers' generators. Each disturbs only while it is told to.
fn disturbers(
    stage: &mut Stage,
    victim: &TenantSpec,
    params: &Isolation,
) -> anyhow::Result<Vec<(&'static str, Load, Phase)>> {
    let popularity = Popularity::Zipf(params.theta);
    let greedy = TenantSpec { rate: params.limit, ..stage.tenant(GREEDY) };
    let restless = stage.tenant(RESTLESS);
    stage.create(&[greedy.clone(), restless.clone()])?;
    // Longer than what it disturbs at both ends.
    let seconds = params.round_s + WARMUP_S + 0.2;
    let phase = |rate| Phase::reads(popularity, rate, 0.0, seconds);
    let too_much = phase(params.limit as f64 * params.excess);
    let guess = Phase {
        kind: PhaseKind::Forge,
        // What a guesser could overwrite would show as a wrong value.
        write_ratio: 0.5,
        ..phase(params.disturb_rate)
    };
    let churn = Phase {
        churn: Some(ChurnSchedule {
            change: Churn { kind: ChurnKind::HotIn, count: NEWLY_HOT, among: 0 },
            every_s: 0.1,
        }),
        ..phase(params.disturb_rate)
    };
    let keys = params.tenancy.keys;
    let mut all = vec![];
    for (name, tenant, keys, phase) in [
        ("greedy", &greedy, keys, too_much),
        // It knows the victim's number and keys, and only lacks the secret.
        ("guessing", victim, keys, guess),
        ("restless", &restless, RESTLESS_KEYS, churn),
    ] {
        let seat = Seat { host: &client(2), name, cpu: Some(OTHER_CPU), nice: NICE };
        let mut load = stage.generator(seat, std::slice::from_ref(tenant), keys)?;
        if name != "guessing" {
            // Over its rate, a tenant's writes are dropped like everything else: that is what rates
            // are for.
            let pace = if name == "greedy" { 4 } else { 64 };
            load.run(&Phase { arrivals: Arrivals::Closed(pace), ..Phase::fill(pace, 120.0) })?;
        }
        all.push((name, load, phase));
    }
    Ok(all)
}

/// What was seen in one situation, round by round.
#[derive(Default)]
struct Rounds {
    victim: Vec<PhaseResult>,
    disturber: Vec<PhaseResult>,
}

/// Requests of the disturber that reached the victim's switch, if all did.
fn beside_sent(seen: &[Rounds; 3]) -> u64 {
    let beside = &seen[Situation::Beside as usize];
    beside.disturber.iter().map(|result| result.sent).sum()
}

/// The median of what some results say.
fn over(results: &[PhaseResult], what: impl Fn(&PhaseResult) -> f64) -> f64 {
    median(&results.iter().map(what).collect::<Vec<_>>())
}

/// What the victim saw in one situation over what it saw in another: the median of the rounds,
/// which are short against most of what else happens on the machine.
fn ratio(one: &Rounds, other: &Rounds, what: impl Fn(&PhaseResult) -> f64) -> f64 {
    let rounds = one.victim.iter().zip(&other.victim);
    median(&rounds.map(|(one, other)| what(one) / what(other)).collect::<Vec<_>>())
}

/// Answers per second of all rounds together, times their number.
fn total(seen: &Rounds) -> f64 {
    seen.victim.iter().map(PhaseResult::throughput).sum()
}

/// Medians over the rounds, unless said otherwise.
struct Summary {
    /// Means.
    rate: f64,
    rate_alone: f64,
    p99_us: f64,
    p99_elsewhere_us: f64,
    p99_alone_us: f64,
    hits: f64,
    sent: f64,
    sent_elsewhere: f64,
    answered: f64,
    accepted: u64,
    loss: f64,
    share: f64,
    p99_ratio: f64,
    p99_over_elsewhere: f64,
}

impl Summary {
    fn of([alone, elsewhere, beside]: &[Rounds; 3]) -> Summary {
        let p99 = |seen: &Rounds| over(&seen.victim, p99_us);
        Summary {
            share: total(beside) / total(alone),
            p99_ratio: ratio(beside, alone, p99_us),
            p99_over_elsewhere: ratio(beside, elsewhere, p99_us),
            rate: total(beside) / beside.victim.len() as f64,
            rate_alone: total(alone) / alone.victim.len() as f64,
            p99_us: p99(beside),
            p99_elsewhere_us: p99(elsewhere),
            p99_alone_us: p99(alone),
            hits: over(&beside.victim, PhaseResult::hit_ratio),
            sent: over(&beside.disturber, PhaseResult::sent_rate),
            sent_elsewhere: over(&elsewhere.disturber, PhaseResult::sent_rate),
            answered: over(&beside.disturber, PhaseResult::throughput),
            accepted: beside.disturber.iter().map(|r| r.forged_accepted).sum(),
            loss: over(&beside.victim, PhaseResult::loss),
        }
    }

    fn tell(&self, name: &str, report: &mut Report, table: &mut Table) {
        table.row([
            name.into(),
            thousands(self.rate),
            thousands(self.rate_alone),
            format!("{:.3}", self.share),
            micros(self.p99_us),
            micros(self.p99_alone_us),
            format!("{:.2}", self.p99_ratio),
            micros(self.p99_elsewhere_us),
            format!("{:.2}", self.p99_over_elsewhere),
            percent(self.hits),
            thousands(self.sent),
            thousands(self.answered),
        ]);
        report.summarize(format!("victim_throughput_share_{name}"), self.share);
        report.summarize(format!("victim_p99_ratio_{name}"), self.p99_ratio);
        report.rows.push(json!({
            "disturber": name,
            "throughput": self.rate,
            "throughput_alone": self.rate_alone,
            "p99_us": self.p99_us,
            "p99_elsewhere_us": self.p99_elsewhere_us,
            "p99_alone_us": self.p99_alone_us,
            "hit_ratio": self.hits,
            "loss": self.loss,
            "their_rate": self.sent,
            "their_rate_elsewhere": self.sent_elsewhere,
            "their_answers": self.answered,
            "forged_accepted": self.accepted,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_situation_comes_as_often_first_as_last() {
        let (there, back) = (order(0), order(1));
        assert_eq!(there.map(|s| s as usize), [0, 1, 2]);
        assert_eq!(back.map(|s| s as usize), [2, 1, 0]);
        assert_eq!(order(2), there);
    }

    #[test]
    fn a_victim_that_loses_requests_waits_longer_however_fast_the_others_are() {
        let seen = |lost: u64| {
            let mut answered = load::histogram(3);
            (1..=960u64).for_each(|i| answered.record(i * 10_000).unwrap());
            let waits = load::Waits::of(&answered, lost);
            let result = PhaseResult { seconds: 1.0, waits, ..PhaseResult::default() };
            Rounds { victim: vec![result], ..Rounds::default() }
        };
        assert_eq!(ratio(&seen(0), &seen(0), p99_us), 1.0);
        assert_eq!(ratio(&seen(40), &seen(0), p99_us), f64::INFINITY);
    }
}
