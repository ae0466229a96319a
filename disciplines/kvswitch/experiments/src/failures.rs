use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::{exponent, positive},
    plot,
    servers::Rack,
    table::{Table, percent},
};
use load::{Phase, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::{Balance, Bench, System};

/// What becomes of balance and of requests when a server dies, comes back empty, and comes back half as fast.
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
    /// Servers are in balance again below this.
    balanced: f64,
}

/// What happened to the server.
#[derive(Clone, Copy, PartialEq)]
enum Happened {
    Nothing,
    Died,
    CameBack,
    IsSlow,
}

impl Happened {
    const ALL: [Happened; 4] = [
        Happened::Nothing,
        Happened::Died,
        Happened::CameBack,
        Happened::IsSlow,
    ];

    fn name(self) -> &'static str {
        match self {
            Happened::Nothing => "before",
            Happened::Died => "died",
            Happened::CameBack => "back",
            Happened::IsSlow => "slow",
        }
    }
}

/// One stretch of time.
struct Stretch {
    happened: Happened,
    /// Its end, in seconds after that.
    at_s: f64,
    imbalance: f64,
    /// Part of the requests that were lost, and which the dead server's own keys have.
    lost: f64,
    own: f64,
}

impl Measure for Failures {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(
            self.server < self.rack.servers as usize,
            "server = {}: not so many",
            self.server
        );
        positive([
            ("seconds", self.seconds),
            ("stretch_s", self.stretch_s),
            ("slow", self.slow),
        ])
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let popularity = Popularity::Zipf(self.theta);
        let mut bench = Bench::new(run, &self.rack, &self.balance, System::Replicas)?;
        bench.learn(popularity, 0.0)?;
        let mut stretches = vec![];
        for happened in Happened::ALL {
            match happened {
                Happened::Nothing => {}
                Happened::Died => bench.servers.stop_server(self.server)?,
                Happened::CameBack => bench.servers.start_server(self.server, 1.0)?,
                Happened::IsSlow => {
                    bench.servers.stop_server(self.server)?;
                    bench.servers.start_server(self.server, self.slow)?;
                }
            }
            self.watch(&mut bench, popularity, happened, &mut stretches)?;
        }
        self.tell(report, run, &stretches);
        Ok(())
    }
}

impl Failures {
    fn watch(
        &self,
        bench: &mut Bench<'_>,
        popularity: Popularity,
        happened: Happened,
        out: &mut Vec<Stretch>,
    ) -> anyhow::Result<()> {
        let own = bench.servers.shares(popularity, 0.0, popularity, 0)[self.server];
        let rate = bench.rate(popularity, 0.0);
        for number in 1..=(self.seconds / self.stretch_s).ceil() as u32 {
            let phase = Phase::reads(popularity, rate, 0.0, self.stretch_s);
            let (result, counted) = bench.servers.counting(&phase)?;
            let mut loads = counted.served;
            match happened {
                Happened::Died => {
                    loads.remove(self.server);
                }
                Happened::IsSlow => loads[self.server] /= self.slow,
                _ => {}
            }
            out.push(Stretch {
                happened,
                at_s: f64::from(number) * self.stretch_s,
                imbalance: imbalance(&loads),
                lost: result.loss(),
                own: if happened == Happened::Died { own } else { 0.0 },
            });
        }
        Ok(())
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, stretches: &[Stretch]) {
        let mut table = Table::new(&[
            "server",
            "balanced after",
            "imbalance at the end",
            "lost at the end",
            "its own keys",
        ]);
        let mut slowest: f64 = 0.0;
        for happened in Happened::ALL {
            let of: Vec<&Stretch> = stretches
                .iter()
                .filter(|s| s.happened == happened)
                .collect();
            let Some(last) = of.last() else { continue };
            let bad = |s: &&&Stretch| s.imbalance > self.balanced || s.lost > s.own + 0.001;
            let after = of.iter().rfind(bad).map_or(0.0, |s| s.at_s);
            if happened != Happened::Nothing {
                slowest = slowest.max(after);
                report.summarize(format!("rebalanced_ms_{}", happened.name()), after * 1e3);
            }
            table.row([
                happened.name().into(),
                format!("{after:.1} s"),
                format!("{:.4}", last.imbalance),
                percent(last.lost),
                percent(last.own),
            ]);
            let beyond = of
                .iter()
                .map(|s| (s.lost - s.own).max(0.0))
                .fold(0.0, f64::max);
            report.summarize(format!("lost_beyond_own_{}", happened.name()), beyond);
        }
        report.summarize("rebalanced_ms_max", slowest * 1e3);
        report.rows.extend(stretches.iter().map(|s| {
            json!({ "happened": s.happened.name(), "at_s": s.at_s, "imbalance": s.imbalance, "lost": s.lost, "own": s.own })
        }));
        report.text = table.render();
        let at = |number: usize| number as f64 * self.stretch_s;
        let line = |of: &dyn Fn(&Stretch) -> f64| {
            stretches
                .iter()
                .enumerate()
                .map(|(n, s)| (at(n), of(s)))
                .collect::<Vec<_>>()
        };
        let series = vec![
            ("imbalance".into(), line(&|s| s.imbalance)),
            ("lost".into(), line(&|s| s.lost)),
        ];
        let title = "A server dies, is back empty, is half as fast";
        report.plot(run.name, plot::lines(title, "seconds", "part", &series));
    }
}
