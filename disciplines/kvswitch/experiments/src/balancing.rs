//! How far servers are from balance behind one of the systems, and what they carry (figures 7 to
//! 9).

use anyhow::ensure;
use experiments::{
    Report, Run, World,
    params::{by_name, positive, ratio},
    servers::{Mix, Rack, Search},
    sweep::{Figures, Point, Points},
};
use load::{Phase, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::{
    bench::{Balance, Bench, Measurement, System},
    cost,
};

/// So that the keys in the switch's table are those that are expected to be the hottest, all of
/// them and no others, each at as many servers as there are.
const ALL_EXPECTED: [(&str, u32); 3] =
    [("kvswitch.fixed", 1), ("kvswitch.first_millionths", 1), ("kvswitch.changes", 100_000)];
/// Of one that is only looked for, at two.
const AT_TWO: (&str, u32) = ("kvswitch.replicas", 2);
/// Windows of the usual load between two looks: equation 1 goes by two, and what it says is there
/// in the third.
const BETWEEN: u32 = 3;

/// One system under one load.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balancing {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    /// What stands before the servers.
    system: System,
    /// How requests spread, reads and writes alike.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// Part of the requests that write.
    #[serde(default)]
    write_ratio: f64,
    /// Whether balance is measured at what servers carry without anything before them, whatever
    /// there is.
    #[serde(default)]
    at_rate_of_none: bool,
    /// By how requests spread: of which of these throughput is searched for as well.
    #[serde(default)]
    throughput_of: Vec<String>,
    /// In the kernel's world: whether it is measured as well what a redirect costs a switch.
    #[serde(default)]
    with_cost: bool,
    /// Lengths of values, in the place of the rack's.
    values: Option<Values>,
    /// Percent of them that are long.
    long_percent: Option<u32>,
    /// The number of racks, in the place of the rack's; each of as many servers as one of those.
    racks: Option<u32>,
    /// The hottest keys, in the place of the rack's items.
    hottest: Option<Hottest>,
    /// How it is looked which keys the switch has, and of how many of the hottest.
    looking: Option<Looking>,
    count: Option<usize>,
}

/// Two lengths of values in bytes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    short: usize,
    long: usize,
}

/// Keys that a switch has room for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hottest {
    name: String,
    count: usize,
    /// Whether each of them is replicated at each server.
    #[serde(default)]
    all: bool,
}

/// How it is looked what the switch has.
///
/// The truth is the generator's: the keys of its first ranks are asked for, each alike and in a
/// small part of a window, and those of them count that the switch has a record of. A key that the
/// control half does not know of is wrong.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Looking {
    /// Length of a window, in the place of the rack's: a thousandth key has to be told from those
    /// beside it.
    window_ms: u32,
    /// How often it is looked, and how long, in parts of a window.
    times: u32,
    windows: f64,
}

impl Balancing {
    fn rack(&self) -> Rack {
        let mut rack = self.rack.clone();
        let mut set = |settings: &[(&str, u32)]| {
            let settings = settings.iter();
            let settings = settings.map(|(name, number)| ((*name).into(), *number));
            rack.settings.extend(settings);
        };
        if self.hottest.as_ref().is_some_and(|hottest| hottest.all) {
            set(&ALL_EXPECTED);
        }
        if self.looking.is_some() {
            set(&ALL_EXPECTED);
            set(&[AT_TWO]);
        }
        let counts = self.hottest.iter().map(|hottest| hottest.count);
        for count in counts.chain(self.count) {
            rack.items = count;
        }
        if let Some(looking) = &self.looking {
            rack.window_ms = Some(looking.window_ms);
        }
        if let Some(racks) = self.racks {
            rack.servers = racks * (rack.servers / rack.racks.max(1));
            rack.racks = racks;
        }
        if let (Some(Values { short, long }), Some(percent)) = (&self.values, self.long_percent) {
            rack.value_len = match percent {
                0 => Lengths::from(*short),
                100 => Lengths::from(*long),
                _ => Lengths::Mix {
                    mix: vec![(*short, 100.0 - f64::from(percent)), (*long, f64::from(percent))],
                    salt: 0,
                },
            };
        }
        rack
    }

    fn mix(&self) -> Mix {
        Mix { popularity: self.popularity, write_ratio: self.write_ratio }
    }

    /// The part of the hottest keys that the switch has, on average over the looks.
    fn accuracy(&self, bench: &mut Bench<'_>, looking: &Looking) -> anyhow::Result<f64> {
        if bench.servers.is_bare() {
            // Nothing is counted as missing where nothing is looked for.
            return Ok(0.0);
        }
        let rate = bench.rate(self.mix());
        let window_s = f64::from(looking.window_ms) / 1000.0;
        let usual = Phase::reads(self.popularity, rate, 0.0, f64::from(BETWEEN) * window_s);
        let look = Phase {
            keys: self.rack().items,
            ..Phase::reads(Popularity::Uniform, rate, 0.0, looking.windows * window_s)
        };
        let (mut asked, mut missed) = (0.0, 0.0);
        for number in 0..looking.times {
            if number > 0 {
                bench.servers.phase(&usual)?;
            }
            let (result, counted) = bench.servers.counting(&look)?;
            asked += result.sent as f64;
            missed += counted.switch("miss");
        }
        ensure!(asked > 0.0, "nothing was asked for");
        Ok(1.0 - missed / asked)
    }

    /// Requests per second at saturation, where it is asked for.
    fn throughput(&self, bench: &mut Bench<'_>) -> anyhow::Result<Option<f64>> {
        let name = self.popularity.name();
        if !self.throughput_of.contains(&name) {
            return Ok(None);
        }
        let what = format!("{}, {}", self.popularity.title(), self.system.name());
        let point = bench.saturate(&what, &self.search, self.mix())?;
        Ok(Some(point.rate))
    }

    fn figures(&self, one: &Measurement) -> Figures {
        let (items, loads) = (self.rack().items as f64, &one.counted.served);
        let mut figures = Figures::new(one.row().into())
            .aside("items", self.rack().items)
            .aside("servers", loads.len())
            .aside("hot_keys_used", one.figure("hot_keys") / items)
            .aside("replicas_share", one.figure("replicas_told") / loads.len() as f64 / items)
            .aside("replicas_each", one.figure("replicas_told") / loads.len() as f64)
            .aside("threshold", one.figure("threshold_millionths") / 1e6)
            .aside(
                "of_writes",
                match self.write_ratio {
                    0.0 => String::new(),
                    ratio => format!("_writes_{:.0}", ratio * 100.0),
                },
            );
        if let Some(racks) = self.racks {
            let each = (loads.len() / racks as usize).max(1);
            let by_rack: Vec<f64> = loads.chunks(each).map(|rack| rack.iter().sum()).collect();
            figures = figures.with("imbalance_of_racks", imbalance(&by_rack));
        }
        if let Some(Hottest { count, all, .. }) = self.hottest {
            let how = if all { "all" } else { "adaptive" };
            figures = figures.with("count", count).with("replicas", how);
        }
        if let Some(percent) = self.long_percent {
            figures = figures.with("long values", f64::from(percent));
        }
        figures
    }
}

impl Point for Balancing {
    const HAS_BACKEND: bool = true;
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        let rack = self.rack();
        rack.check()?;
        self.search.check()?;
        self.balance.check(&rack)?;
        ratio("write_ratio", self.write_ratio)?;
        let percent = self.long_percent.unwrap_or(0);
        ensure!(percent <= 100, "long_percent: {percent}: at most 100");
        if let Some(Looking { times, windows, .. }) = self.looking {
            ensure!(times > 0, "looking.times = 0: at least 1 is needed");
            positive([("looking.windows", windows)])?;
            ensure!(windows <= 0.5, "looking.windows = {windows}: at most 0.5");
        }
        Ok(())
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        let rack = self.rack();
        // As much for each server, however many there are.
        let balance = Balance {
            requests: self.balance.requests * f64::from(rack.servers)
                / f64::from(self.rack.servers),
            ..self.balance.clone()
        };
        Bench::new(run, &rack, &balance, self.system)
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        _: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        bench.learn(self.mix())?;
        let accuracy = self.looking.iter().map(|looking| self.accuracy(bench, looking));
        let accuracy = accuracy.collect::<anyhow::Result<Vec<f64>>>()?;
        let rate = self.at_rate_of_none.then(|| 0.9 * bench.bound_without(self.mix()));
        let one = bench.measure(self.mix(), rate)?;
        let mut figures = self.figures(&one);
        if let (Some(accuracy), Popularity::Zipf(theta)) = (accuracy.first(), self.popularity) {
            figures = figures.with("accuracy", *accuracy).with("theta", theta);
        }
        if !self.throughput_of.is_empty() {
            figures = figures.with("rate", self.throughput(bench)?);
        }
        Ok(vec![figures])
    }

    fn finish(&self, run: &Run<'_>, _: &Points, report: &mut Report) -> anyhow::Result<()> {
        match run.options.world {
            World::Kernel if self.with_cost => cost::summarize(report, run.options.quick),
            _ => Ok(()),
        }
    }
}
