//! What a chain in switches saves beside what people use today for the same: latency and rate of a
//! chain, and of an etcd with as many members. `coord-vs-etcd.toml` is run by this.

use anyhow::ensure;
use chain_loads::{CoordLoad, Phase, PhaseResult};
use experiments::{
    Measure, Options, Report, Run, World,
    params::{keys, positive},
    plot,
    table::{Table, micros, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{bench::Bench, layout::Layout, protocol::Protocol};

/// Members of the chain, and of the etcd.
const MEMBERS: u16 = 3;
/// The protocol that is compared.
const OWN: &str = "netcraq";
const ETCD: &str = "etcd";

/// A chain of three beside an etcd of three on links of the same kind: how long one operation
/// takes, and how many all clients get done.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BesideEtcd {
    /// Clients, each with one operation under way.
    clients: usize,
    /// Keys, and length of values in bytes.
    keys: usize,
    value_len: usize,
    /// Whether etcd waits for its disk, as it does unless it is told not to.
    syncs: bool,
    /// Before each measurement, and of each, in seconds.
    warmup_s: f64,
    seconds: f64,
}

/// Processes that the clients are spread over, of either system: a single one, on one core, would
/// be what bounds the chain.
const GENERATORS: usize = 2;

/// What came of one system.
struct SystemResult {
    name: &'static str,
    /// Reads of one client, and its writes.
    one: [PhaseResult; 2],
    /// Reads of all clients, and their writes, of each generator.
    all: [Vec<PhaseResult>; 2],
}

impl SystemResult {
    /// Reads and writes of all clients per second.
    fn rates(&self) -> [f64; 2] {
        let [reads, writes] = &self.all;
        [
            reads.iter().map(PhaseResult::read_rate).sum(),
            writes.iter().map(PhaseResult::write_rate).sum(),
        ]
    }

    /// p50 of a read and of a write in microseconds, reads and writes per second.
    fn figures(&self) -> [f64; 4] {
        let [read, write] = &self.one;
        let [reads, writes] = self.rates();
        [read.reads.p50_us, write.writes.p50_us, reads, writes]
    }

    /// Whether somebody was answered in every phase, by every generator.
    fn is_answered(&self) -> bool {
        let [read, write] = &self.one;
        let [reads, writes] = &self.all;
        let are_read = reads.iter().chain([read]).all(|result| result.reads.count > 0);
        are_read && writes.iter().chain([write]).all(|result| result.writes.count > 0)
    }

    /// Of what is the same here and there, this over the other.
    fn over(&self, other: &SystemResult) -> [(&'static str, f64); 4] {
        let names = [
            "read_p50_over_etcd",
            "write_p50_over_etcd",
            "reads_per_s_over_etcd",
            "writes_per_s_over_etcd",
        ];
        let (own, others) = (self.figures(), other.figures());
        std::array::from_fn(|at| (names[at], own[at] / others[at]))
    }

    /// Every result.
    fn results(&self) -> impl Iterator<Item = &PhaseResult> {
        self.one.iter().chain(self.all.iter().flatten())
    }
}

impl Measure for BesideEtcd {
    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        ensure!(
            (GENERATORS..=256).contains(&self.clients),
            "clients = {}: {GENERATORS} to 256, for they are spread over so many processes",
            self.clients
        );
        positive([
            ("value_len", self.value_len as f64),
            ("warmup_s", self.warmup_s),
            ("seconds", self.seconds),
        ])
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        (options.world == World::Sim).then_some(ETCD)
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let layout = Layout { etcds: MEMBERS.into(), syncs: self.syncs, ..Layout::star(MEMBERS) };
        let mut bench = Bench::new(run, layout, Protocol::Netcraq, MEMBERS)?;
        let (keys, len) = (self.keys, self.value_len);
        run.progress.say("a chain of switches");
        let mut one = bench.load(1, keys, len)?;
        let mut all = self
            .shares()
            .map(|clients| bench.load(clients, keys, len))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let own = self.measure(OWN, &mut one, &mut all, |_| 1)?;
        run.progress.say("an etcd");
        let mut all = self
            .shares()
            .map(|clients| bench.etcd_load(clients, keys, len))
            .collect::<anyhow::Result<Vec<_>>>()?;
        all[0].run(&Phase { outstanding: GENERATORS, ..Phase::fill() })?;
        let mut one = bench.etcd_load(1, keys, len)?;
        // Of an etcd's load so many clients take part as operations are to be under way.
        let other = self.measure(ETCD, &mut one, &mut all, |clients| clients)?;
        self.tell(run, report, &[own, other]);
        Ok(())
    }
}

impl BesideEtcd {
    /// How many clients each generator has.
    fn shares(&self) -> impl Iterator<Item = usize> + use<> {
        let clients = self.clients;
        (0..GENERATORS).map(move |n| (clients + n) / GENERATORS)
    }

    /// Measures a system; `outstanding` says what a generator of so many clients is told to have
    /// under way.
    fn measure(
        &self,
        name: &'static str,
        one: &mut CoordLoad,
        all: &mut [CoordLoad],
        outstanding: fn(usize) -> usize,
    ) -> anyhow::Result<SystemResult> {
        let phase = |writes: f64, outstanding: usize| Phase {
            warmup_s: self.warmup_s,
            outstanding,
            ..Phase::load(writes, self.seconds)
        };
        let mut together = |writes: f64| -> anyhow::Result<Vec<PhaseResult>> {
            for (load, clients) in all.iter_mut().zip(self.shares()) {
                load.begin(&phase(writes, outstanding(clients)))?;
            }
            all.iter_mut().map(|load| load.finish()).collect()
        };
        let seen = SystemResult {
            name,
            one: [one.run(&phase(0.0, 1))?, one.run(&phase(1.0, 1))?],
            all: [together(0.0)?, together(1.0)?],
        };
        ensure!(seen.is_answered(), "{name}: nobody was answered in a whole phase");
        Ok(seen)
    }

    fn tell(&self, run: &Run<'_>, report: &mut Report, seen: &[SystemResult; 2]) {
        let mut table = Table::new(&[
            "",
            "read p50",
            "read p99",
            "write p50",
            "write p99",
            "reads/s",
            "writes/s",
        ]);
        for system in seen {
            let (name, [read, write]) = (system.name, &system.one);
            let [reads, writes] = system.rates();
            table.row([
                name.into(),
                micros(read.reads.p50_us),
                micros(read.reads.p99_us),
                micros(write.writes.p50_us),
                micros(write.writes.p99_us),
                thousands(reads),
                thousands(writes),
            ]);
            report.rows.push(json!({
                "system": name, "read": read.reads, "write": write.writes,
                "reads_per_s": reads, "writes_per_s": writes,
            }));
        }
        let (own, etcd) = (seen[0].figures(), seen[1].figures());
        for (name, ratio) in seen[0].over(&seen[1]) {
            report.summarize(name, ratio);
        }
        let of = |what: fn(&PhaseResult) -> u64| {
            let all = seen.iter().flat_map(SystemResult::results);
            all.map(what).sum::<u64>()
        };
        report.count("wrong_values", of(|r| r.wrong + r.not_found));
        report.count("failed", of(|r| r.failed + r.unknown));
        let disk = match self.syncs {
            true => {
                "on the disks of a majority before it answers: shortstop has it in the memory of three switches"
            }
            false => "in the memory of a majority: it was told not to wait for its disk",
        };
        report.text = format!(
            "{}\nlatency: one client; rates: {} clients, one operation each. etcd has each write {disk}.\n",
            table.render(),
            self.clients
        );
        let groups = ["reads/s", "writes/s"].map(String::from);
        let bars = |figures: [f64; 4]| vec![figures[2], figures[3]];
        let svg = plot::grouped_bars(&plot::GroupedBars {
            title: "A chain of three switches beside an etcd of three",
            y: "per second",
            groups: &groups,
            series: &[(ETCD, bars(etcd)), (OWN, bars(own))],
            marks: None,
        });
        report.plot(run.name, svg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_nobody_is_not_fast() {
        let none = PhaseResult { seconds: 1.0, ..PhaseResult::default() };
        let system = |name| SystemResult {
            name,
            one: [none.clone(), none.clone()],
            all: [vec![none.clone()], vec![none.clone()]],
        };
        let own = system(OWN);
        assert!(!own.is_answered());
        for (name, ratio) in own.over(&system(ETCD)) {
            assert!(ratio.is_nan(), "{name} = {ratio}");
        }
    }
}
