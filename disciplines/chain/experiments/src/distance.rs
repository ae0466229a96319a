use anyhow::ensure;
use chain_loads::Phase;
use experiments::{
    Measure, Report, Run, plot,
    table::{Table, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    asking::{Asking, InLine},
    bench::Protocol,
    layout::Cores,
};

/// The most reads per second at each distance from the tail, of keys that nobody writes and of one that is always being written (figure 3).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distance {
    /// Switches of the chain.
    switches: u16,
    asking: Asking,
    /// Clients that write the one key, one after another, while it is read.
    writers: usize,
}

struct Point {
    cores: Cores,
    protocol: Protocol,
    dirty: bool,
    /// Members between this one and the tail, and the tail itself.
    distance: usize,
    rate: f64,
    /// Writes per second meanwhile.
    written: f64,
}

impl Measure for Distance {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (2..=8).contains(&self.switches),
            "switches = {}: 2 to 8",
            self.switches
        );
        ensure!((1..=64).contains(&self.writers), "writers: 1 to 64");
        self.asking.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let (mut points, mut wrong) = (vec![], 0);
        let all = Cores::of(run.options.world).iter();
        for (cores, protocol) in all.flat_map(|cores| Protocol::ALL.map(|p| (*cores, p))) {
            let mut line = InLine::new(run, (protocol, cores), self.switches, &self.asking)?;
            let mut writer = line.bench.load(self.writers, 1, self.asking.value_len)?;
            for dirty in [false, true] {
                for (place, at) in line.members.clone().into_iter().enumerate() {
                    let reads = Phase {
                        keys: usize::from(dirty),
                        ..self.asking.phase(0.0, Some(at))
                    };
                    if dirty {
                        let longer = reads.warmup_s + reads.seconds;
                        writer.begin(&Phase::load(1.0, 1.5 * longer))?;
                    }
                    let result = line.run(&reads)?;
                    let written = match dirty {
                        true => writer.finish()?.write_rate(),
                        false => 0.0,
                    };
                    points.push(Point {
                        cores,
                        protocol,
                        dirty,
                        distance: usize::from(self.switches) - 1 - place,
                        rate: result.read_rate(),
                        written,
                    });
                }
            }
            wrong += line.wrong();
        }
        report.count("wrong_values", wrong);
        self.tell(run, report, &points);
        Ok(())
    }
}

impl Distance {
    fn tell(&self, run: &Run<'_>, report: &mut Report, points: &[Point]) {
        let world = run.options.world;
        let mut table = Table::new(&[
            "core",
            "from the tail",
            "keys",
            "protocol",
            "reads/s",
            "writes/s",
        ]);
        for point in points {
            let keys = if point.dirty { "dirty" } else { "clean" };
            table.row([
                point.cores.name(world).into(),
                point.distance.to_string(),
                keys.into(),
                point.protocol.name().into(),
                thousands(point.rate),
                thousands(point.written),
            ]);
            report.rows.push(json!({
                "core": point.cores, "distance": point.distance, "keys": keys, "protocol": point.protocol,
                "reads_per_s": point.rate, "writes_per_s": point.written,
            }));
        }
        report.text = format!("{}\n", table.render());
        for cores in Cores::of(world).iter().copied() {
            self.tell_of(cores, run, report, points);
        }
    }

    fn tell_of(&self, cores: Cores, run: &Run<'_>, report: &mut Report, points: &[Point]) {
        let rate = |protocol, dirty, distance| {
            let what = (cores, protocol, dirty, distance);
            let is_it = |p: &&Point| (p.cores, p.protocol, p.dirty, p.distance) == what;
            points.iter().find(is_it).map_or(0.0, |p| p.rate)
        };
        let over = |dirty, distance| {
            rate(Protocol::Netcraq, dirty, distance) / rate(Protocol::Netchain, dirty, distance)
        };
        let head = usize::from(self.switches) - 1;
        for (figure, times) in [
            (
                format!("head_read_speedup_{}", self.switches),
                over(false, head),
            ),
            ("tail_read_speedup".into(), over(false, 0)),
            ("dirty_read_speedup_tail".into(), over(true, 0)),
            ("dirty_read_speedup_head".into(), over(true, head)),
        ] {
            report.summarize(cores.named(figure), times);
        }
        report.text += &format!(
            "core: {}. Clean reads at the head {:.2} times NetChain's (paper, chain of 4: 4.08); dirty ones {:.2} times at the tail (1.22), {:.2} times at the head (1.105)\n",
            cores.name(run.options.world),
            over(false, head),
            over(true, 0),
            over(true, head),
        );
        let line = |protocol, dirty| {
            let of = (0..=head).map(|d| (d as f64, rate(protocol, dirty, d)));
            of.collect::<Vec<_>>()
        };
        let series = [
            ("netchain".to_string(), line(Protocol::Netchain, false)),
            ("netcraq, clean".into(), line(Protocol::Netcraq, false)),
            ("netcraq, dirty".into(), line(Protocol::Netcraq, true)),
            (
                "netchain, written meanwhile".into(),
                line(Protocol::Netchain, true),
            ),
        ];
        let (name, title) = match cores {
            Cores::Own => (
                run.name.to_string(),
                "Most reads by distance from the tail (NetCRAQ, fig. 3)",
            ),
            Cores::Shared => (
                format!("{}-shared", run.name),
                "Most reads by distance from the tail, one core of all (NetCRAQ, fig. 3)",
            ),
        };
        report.plot(
            name,
            plot::lines(title, "members to the tail", "reads/s", &series),
        );
    }
}
