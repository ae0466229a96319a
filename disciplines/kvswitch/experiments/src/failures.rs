//! How soon servers are in balance again, and what clients lose, when one of them dies, comes back
//! empty, and becomes slow: four stretches of the same load, each looked at in short steps.

use anyhow::ensure;
use experiments::{
    Measure, Report, Run,
    params::{exponent, positive},
    plot,
    servers::{Counts, Mix, Rack},
    table::{Table, percent},
};
use load::{Phase, PhaseResult, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::{Balance, Bench, System};

/// What becomes of balance and of requests when a server dies, comes back empty, and turns half as
/// fast while it runs. Requests are sent again until they are answered, as clients do.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    rack: Rack,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// The server, counted from 0.
    server: usize,
    /// How fast it is at the end, a part of what it was.
    slow: f64,
    /// Seconds after each of these, and of one stretch of them.
    seconds: f64,
    stretch_s: f64,
    /// Servers are in balance again below this, if they drop no more than that part of the
    /// requests.
    balanced: f64,
    dropped: f64,
    /// In the place of the rack's: windows, what rates are divided by, and how long a client waits
    /// before it asks again, and in all.
    window_ms: u32,
    factor: f64,
    again_ms: u64,
    deadline_ms: u64,
    /// So many of the hottest keys have replicas when the server dies: of its own among them it is
    /// told how many reads are answered for as long as leases last then, at least.
    replicated: usize,
}

/// What happened to the server.
#[derive(Clone, Copy, PartialEq)]
enum ServerEvent {
    Nothing,
    Died,
    CameBack,
    IsSlow,
}

impl ServerEvent {
    const ALL: [ServerEvent; 4] =
        [ServerEvent::Nothing, ServerEvent::Died, ServerEvent::CameBack, ServerEvent::IsSlow];

    fn name(self) -> &'static str {
        match self {
            ServerEvent::Nothing => "before",
            ServerEvent::Died => "died",
            ServerEvent::CameBack => "back",
            ServerEvent::IsSlow => "slow",
        }
    }
}

/// One stretch of time.
struct Stretch {
    /// Its end, in seconds after what happened.
    at_s: f64,
    imbalance: f64,
    /// What the server did, over the average of all.
    its: f64,
    /// What servers dropped, a part of what they served.
    dropped: f64,
}

/// What was seen after something happened.
struct Stage {
    happened: ServerEvent,
    stretches: Vec<Stretch>,
    result: PhaseResult,
    /// Requests that nobody answered in their time, beyond those for keys that only the dead
    /// server has.
    failed: u64,
}

impl Stage {
    /// When the last stretch ended that was not as it should be; none: the last was not.
    fn balanced_after_s(&self, is_bad: impl Fn(&Stretch) -> bool) -> Option<f64> {
        let bad = self.stretches.iter().rposition(is_bad);
        match bad {
            None => Some(0.0),
            Some(at) if at + 1 < self.stretches.len() => Some(self.stretches[at].at_s),
            Some(_) => None,
        }
    }
}

impl Measure for Failures {
    const HAS_BACKEND: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(self.server < self.rack.servers as usize, "server = {}: not so many", self.server);
        positive([
            ("seconds", self.seconds),
            ("stretch_s", self.stretch_s),
            ("slow", self.slow),
            ("factor", self.factor),
            ("again_ms", self.again_ms as f64),
            ("deadline_ms", self.deadline_ms as f64),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mix = Mix::reads(Popularity::Zipf(self.theta));
        let rack = Rack {
            window_ms: Some(self.window_ms),
            factor: self.factor,
            timeout_ms: self.deadline_ms,
            again_ms: Some(self.again_ms),
            ..self.rack.clone()
        };
        let mut bench = Bench::new(run, &rack, &self.balance, System::Replicas)?;
        bench.learn(mix)?;
        let stages = ServerEvent::ALL.map(|happened| self.watch(&mut bench, mix, happened));
        let stages = stages.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.tell(report, run, &stages, bench.servers.lease_ms());
        Ok(())
    }
}

impl Failures {
    fn watch(
        &self,
        bench: &mut Bench<'_>,
        mix: Mix,
        happened: ServerEvent,
    ) -> anyhow::Result<Stage> {
        let phase = Phase {
            watched: bench.servers.ranks_of(self.server, self.replicated),
            ..mix.phase(bench.rate(mix), 0.0, self.seconds)
        };
        if happened == ServerEvent::CameBack {
            // Its first request comes at once: it is slow from the next stage on.
            let later = Some((self.seconds, self.slow));
            bench.servers.start_server(self.server, later)?;
        }
        let (server, dies) = (self.server, happened == ServerEvent::Died);
        let (result, all) = bench.servers.watching(&phase, self.stretch_s, |servers| {
            if dies {
                servers.stop_server(server)?;
            }
            Ok(())
        })?;
        let own = result.lost_of_store.get(self.server).copied();
        let own = own.filter(|_| dies).unwrap_or(0);
        let mut at_s = 0.0;
        let stretches = all.into_iter().map(|counted| {
            at_s += counted.seconds;
            self.stretch(happened, at_s, counted)
        });
        // What comes after the load has ended says nothing.
        let stretches = stretches.take_while(|s| s.at_s < self.seconds + self.stretch_s / 2.0);
        Ok(Stage { happened, stretches: stretches.collect(), failed: result.lost - own, result })
    }

    fn stretch(&self, happened: ServerEvent, at_s: f64, counted: Counts) -> Stretch {
        let dropped: f64 = counted.dropped.iter().sum();
        let served: f64 = counted.served.iter().sum();
        let mut loads = counted.served;
        let its = loads[self.server] * loads.len() as f64 / served.max(1.0);
        match happened {
            // Of the slow one it matters only that it drops nothing: keys without replicas may be
            // as much as it can.
            ServerEvent::Died | ServerEvent::IsSlow => {
                loads.remove(self.server);
            }
            _ => {}
        }
        Stretch { at_s, imbalance: imbalance(&loads), its, dropped: dropped / served.max(1.0) }
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, stages: &[Stage], lease_ms: u64) {
        let mut table = Table::new(&[
            "server",
            "balanced after",
            "imbalance at the end",
            "asked again",
            "lost",
            "not its own",
        ]);
        let is_bad = |s: &Stretch| s.imbalance > self.balanced || s.dropped > self.dropped;
        let mut slowest = Some(0.0_f64);
        for stage in stages {
            let name = stage.happened.name();
            let after_s = stage.balanced_after_s(is_bad);
            if stage.happened != ServerEvent::Nothing {
                slowest = slowest.zip(after_s).map(|(a, b)| a.max(b));
                if let Some(after_s) = after_s {
                    report.summarize(format!("rebalanced_ms_{name}"), after_s * 1e3);
                }
            }
            let last = stage.stretches.last().map_or(f64::NAN, |s| s.imbalance);
            table.row([
                name.into(),
                after_s.map_or("never".into(), |s| format!("{s:.1} s")),
                format!("{last:.4}"),
                percent(stage.result.again as f64 / stage.result.sent as f64),
                percent(stage.result.loss()),
                stage.failed.to_string(),
            ]);
            if let Some(last) =
                stage.stretches.last().filter(|_| stage.happened == ServerEvent::IsSlow)
            {
                // Over the average: one that does as much as others was not slow, and nothing
                // was seen.
                report.summarize("slow_load", last.its);
            }
            if stage.happened == ServerEvent::Died {
                // Renewed every third of a lease, all leases have so much left.
                let names = ["died_replicated_answered", "died_replicated_answered_in_a_lease"];
                for (name, within_ms) in names.into_iter().zip([lease_ms * 2 / 3, lease_ms]) {
                    if let Some(answered) = stage.result.watched_answered(within_ms) {
                        report.summarize(name, answered);
                    }
                }
            }
            report.count(&format!("failed_requests_{name}"), stage.failed);
            report.rows.extend(stage.stretches.iter().map(|s| {
                json!({ "happened": name, "at_s": s.at_s, "imbalance": s.imbalance, "its": s.its, "dropped": s.dropped })
            }));
        }
        report.count("failed_requests", stages.iter().map(|s| s.failed).sum());
        report.count("wrong_values", stages.iter().map(|s| s.result.wrong()).sum());
        // Servers that are never in balance again have no such time: a claim of it fails.
        if let Some(slowest) = slowest {
            report.summarize("rebalanced_ms_max", slowest * 1e3);
        }
        report.text = table.render();
        self.plot(report, run, stages);
    }

    fn plot(&self, report: &mut Report, run: &Run<'_>, stages: &[Stage]) {
        let line = |of: &dyn Fn(&Stretch) -> f64| -> Vec<(f64, f64)> {
            let numbered = (0..).zip(stages);
            let points = numbered.flat_map(|(n, stage)| {
                let begin = f64::from(n) * self.seconds;
                stage.stretches.iter().map(move |s| (begin + s.at_s, s))
            });
            points.map(|(at, s)| (at, of(s))).collect()
        };
        let series = vec![
            ("imbalance".into(), line(&|s| s.imbalance)),
            ("dropped".into(), line(&|s| s.dropped)),
            ("its load".into(), line(&|s| s.its)),
        ];
        let title = "A server dies, is back empty, is half as fast";
        report.plot(run.name, plot::lines(title, "seconds", "part", &series));
    }
}
