//! What a rack answers while popularity changes, beside the optimum: what it would answer if it
//! knew at once. In three parts: a scan of cold keys, with nothing changing; changes every few
//! seconds; and everything that is cached replaced at once.

use experiments::{
    Measure, Report, Run,
    params::{self, exponent, positive},
    plot,
    recovery::{Criterion, Recoveries},
    servers::{Rack, Servers},
    table::{Table, percent, thousands},
};
use load::{
    ChurnSchedule, Phase, PhaseKind, PhaseResult,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Length of an interval of the counts over time in milliseconds: a recovery of 20 is to be told
/// from one of 25.
const INTERVAL_MS: u64 = 2;

/// Throughput over time while popularity changes every few seconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThroughputUnderChurn {
    rack: Rack,
    /// Zipf's exponent.
    theta: f64,
    /// Load before each measured part in seconds.
    warmup_s: f64,
    /// The kinds of change measured, in this order.
    churn: Vec<ChurnKind>,
    /// Keys that change at once.
    churn_count: usize,
    /// Among how many of the hottest the random ones are chosen.
    churn_among: usize,
    /// Seconds between changes.
    churn_every_s: f64,
    /// Number of changes per kind.
    churn_changes: usize,
    /// Offered rate as a part of the bound.
    churn_load: f64,
    /// Part of the requests that write, so that staleness would show.
    churn_write_ratio: f64,
    /// How often as many keys as are cached are replaced at once, and the seconds between.
    replace_changes: usize,
    replace_every_s: f64,
    /// A scan's reads per second, how often it reads each key, and how long it is looked at
    /// in seconds.
    scan_rate: f64,
    scan_times: u32,
    scan_s: f64,
}

impl Measure for ThroughputUnderChurn {
    const HAS_BACKEND: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        exponent(self.theta)?;
        params::ratio("churn_write_ratio", self.churn_write_ratio)?;
        positive!(self, churn_every_s, churn_load, replace_every_s, scan_rate, scan_s)
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut servers = Servers::new(run, &self.rack, run.options.backend)?;
        servers.look_every(INTERVAL_MS);
        let popularity = Popularity::Zipf(self.theta);
        let shares = servers.shares(popularity, 0.0, popularity, self.rack.items);
        let rate = (servers.bound(&shares) * self.churn_load).min(self.rack.max_rate);
        let mixed = servers.shares(
            popularity,
            self.churn_write_ratio,
            Popularity::Uniform,
            self.rack.items,
        );
        let chances = popularity.chances(self.rack.keys).take(self.rack.items);
        let mut churning = Churns {
            params: self,
            run,
            popularity,
            rate,
            // What servers would lose if all that can be cached is: nothing, as long as none is
            // asked for more than it takes.
            answers: servers.answered(&mixed, rate),
            hits: chances.sum::<f64>() * (1.0 - self.churn_write_ratio),
            servers,
            table: Table::new(&[
                "change",
                "changes",
                "req/s",
                "back p50",
                "back p95",
                "lowest",
                "after 1 s",
                "hits, lowest",
                "after 1 s",
                "back p95",
                "wrong",
            ]),
            wrong: 0,
        };
        churning.servers.cache_on()?;
        churning.servers.learn(popularity, rate)?;
        let scan = churning.scan(report)?;
        for kind in &self.churn {
            churning.change(*kind, report)?;
        }
        churning.replace(report)?;
        report.summarize("wrong_values", churning.wrong as f64);
        report.text = format!("{}\n{scan}", churning.table.render());
        Ok(())
    }
}

/// The rack under change.
struct Churns<'a> {
    params: &'a ThroughputUnderChurn,
    run: &'a Run<'a>,
    popularity: Popularity,
    rate: f64,
    /// The optimum: parts of the requests that are answered, and that a switch answers.
    answers: f64,
    hits: f64,
    servers: Servers<'a>,
    table: Table,
    wrong: u64,
}

impl Churns<'_> {
    /// Hits of the steady load beside a scan, over those before and after it.
    fn scan(&mut self, report: &mut Report) -> anyhow::Result<String> {
        let params = self.params;
        self.run.progress.say("a scan of cold keys");
        let steady = self.phase(params.scan_s, None);
        let scan = Phase {
            kind: PhaseKind::Scan { times: params.scan_times },
            ..Phase::reads(self.popularity, params.scan_rate, 0.0, params.scan_s + params.warmup_s)
        };
        let hits = |result: &PhaseResult| result.cached as f64 / (result.sent as f64).max(1.0);
        let before = self.servers.phase(&steady)?;
        let (beside, scanned) = self.servers.beside(&steady, &scan)?;
        let after = self.servers.phase(&steady)?;
        for result in [&before, &beside, &scanned, &after] {
            self.wrong += result.wrong();
        }
        let without = (hits(&before) + hits(&after)) / 2.0;
        let share = hits(&beside) / without.max(f64::MIN_POSITIVE);
        report.summarize("scan_hit_ratio_share", share);
        report.rows.push(json!({
            "change": "scan",
            "rate": self.rate,
            "scanned": scanned.sent,
            "scan_hit_ratio": scanned.hit_ratio(),
            "hits_before": hits(&before),
            "hits_beside": hits(&beside),
            "hits_after": hits(&after),
            "hits_optimum": self.hits,
            "loss": beside.loss(),
        }));
        Ok(format!(
            "Beside a scan that read {} keys {} times each: {} hits, where without it there are {} (optimum {}).\n",
            thousands(scanned.sent as f64 / f64::from(params.scan_times.max(1))),
            params.scan_times,
            percent(hits(&beside)),
            percent(without),
            percent(self.hits),
        ))
    }

    /// Changes of one kind.
    fn change(&mut self, kind: ChurnKind, report: &mut Report) -> anyhow::Result<()> {
        let params = self.params;
        let change = Churn { kind, count: params.churn_count, among: params.churn_among };
        let schedule = ChurnSchedule { change, every_s: params.churn_every_s };
        let suffix = match kind {
            ChurnKind::HotIn => String::new(),
            other => format!("_{}", other.name().replace('-', "_")),
        };
        let seen = self.run(kind.name(), schedule, params.churn_changes, report)?;
        report.summarize(format!("recovery_ms_p95{suffix}"), seen.answers.p95);
        report.summarize(format!("recovery_ms_p50{suffix}"), seen.answers.p50);
        report.summarize(format!("lowest_of_optimum{suffix}"), seen.answers.lowest);
        report.summarize(format!("hits_recovery_ms_p95{suffix}"), seen.hits.p95);
        report.summarize(format!("hits_lowest_of_optimum{suffix}"), seen.hits.lowest);
        Ok(())
    }

    /// As many of the coldest keys as are cached become the hottest.
    fn replace(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let params = self.params;
        let schedule = ChurnSchedule {
            change: Churn { kind: ChurnKind::HotIn, count: params.rack.items, among: 0 },
            every_s: params.replace_every_s,
        };
        let seen = self.run("replace", schedule, params.replace_changes, report)?;
        report.summarize("of_optimum_after_1s", seen.answers.after(1000.0));
        report.summarize("hits_of_optimum_after_1s", seen.hits.after(1000.0));
        report.summarize("recovery_ms_p95_replace", seen.answers.p95);
        Ok(())
    }

    /// The steady load.
    fn phase(&self, seconds: f64, churn: Option<ChurnSchedule>) -> Phase {
        Phase {
            write_ratio: self.params.churn_write_ratio,
            writes: Some(Popularity::Uniform),
            churn,
            ..Phase::reads(self.popularity, self.rate, self.params.warmup_s, seconds)
        }
    }

    fn run(
        &mut self,
        name: &str,
        schedule: ChurnSchedule,
        changes: usize,
        report: &mut Report,
    ) -> anyhow::Result<RackRecoveries> {
        self.run.progress.say(format!("{name}: {changes} changes"));
        let every_s = schedule.every_s;
        let seconds = every_s * (changes as f64 + 0.98);
        let result = self.servers.phase(&self.phase(seconds, Some(schedule)))?;
        self.wrong += result.wrong();
        let of = |watched: Criterion| Recoveries::of(&result, every_s * 1000.0, &watched);
        let seen = RackRecoveries {
            answers: of(Criterion::answers(self.answers)),
            hits: of(Criterion::hits(self.hits)),
        };
        let RackRecoveries { answers, hits } = &seen;
        self.table.row([
            name.into(),
            answers.ms.len().to_string(),
            thousands(result.throughput()),
            format!("{:.0} ms", answers.p50),
            format!("{:.0} ms", answers.p95),
            percent(answers.lowest),
            percent(answers.after(1000.0)),
            percent(hits.lowest),
            percent(hits.after(1000.0)),
            format!("{:.0} ms", hits.p95),
            result.wrong().to_string(),
        ]);
        let (interval_ms, intervals) = result.intervals_of(50);
        report.rows.push(json!({
            "change": name,
            "keys": schedule.change.count,
            "rate": self.rate,
            "throughput": result.throughput(),
            "hit_ratio": result.hit_ratio(),
            "loss": result.loss(),
            "optimum_answered": self.answers,
            "optimum_hits": self.hits,
            "recovery_ms": answers.ms,
            "hits_recovery_ms": hits.ms,
            "wrong_values": result.wrong_values,
            "wrong_keys": result.wrong_keys,
            "behind_ms": result.behind_ms,
            "changes_ms": result.changes_ms,
            "interval_ms": interval_ms,
            "intervals": intervals,
        }));
        let svg = plot::over_time(&format!("Throughput under {name} churn"), &result);
        report.plot(format!("{}-{name}", self.run.name), svg);
        let after = |all: &Recoveries| {
            let soon = all.curve.iter().take_while(|(ms, _)| *ms <= SOON_MS);
            soon.map(|(ms, part)| (*ms, part * 100.0)).collect()
        };
        let svg = plot::lines(
            &format!("After a change ({name}), mean of {}", answers.ms.len()),
            "milliseconds since the change",
            "% of the optimum",
            &[("answered".into(), after(answers)), ("answered by the switch".into(), after(hits))],
        );
        report.plot(format!("{}-{name}-after", self.run.name), svg);
        Ok(seen)
    }
}

/// How much of a change is drawn closely, in milliseconds.
const SOON_MS: f64 = 400.0;

/// How a rack took changes, by what was answered and by what the switch answered.
struct RackRecoveries {
    answers: Recoveries,
    hits: Recoveries,
}
