use std::time::Duration;

use anyhow::ensure;
use chain_loads::{CoordLoad, Exclusion, Locks, Phase, PhaseResult};
use experiments::{
    Measure, Report, Run, World,
    params::{part, positive},
    plot,
    table::{Table, micros, thousands},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    bench::{Bench, Protocol},
    layout::Layout,
    trouble::{Kind, Trouble, make, one_beside},
};

/// Members of an etcd that is asked for the same.
const ETCDS: usize = 3;
const OWN: &str = "netcraq";
const WITH_FAULTS: &str = "netcraq, members fail";
const ETCD: &str = "etcd";

/// Clients that take locks and give them back: in peace, beside an etcd's where there is one, and
/// while members fail. A store that is shown fencing tokens decides whether two had a lock at
/// a time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfLocks {
    /// Switches, and members of the chain.
    switches: u16,
    length: u16,
    /// Clients, each after one lock at a time.
    clients: usize,
    /// Numbers of locks.
    locks: Vec<u32>,
    /// Length of leases in milliseconds, and how long each holder keeps a lock, in microseconds.
    lease_ms: u64,
    hold_us: u64,
    /// How long locks are taken in peace, in seconds.
    seconds: f64,
    /// What happens to members, each in turn, while locks are taken for so long.
    kinds: Vec<Kind>,
    trouble_s: f64,
    troubled_s: f64,
    /// Chances that a link loses, doubles and holds back a packet, while members fail.
    loss: f64,
    duplicate: f64,
    reorder: f64,
}

/// What came of one number of locks.
struct Seen {
    name: &'static str,
    locks: u32,
    result: PhaseResult,
    troubles: usize,
}

impl Measure for OfLocks {
    fn check(&self) -> anyhow::Result<()> {
        one_beside(self.length, self.switches)?;
        ensure!(
            (1..=256).contains(&self.clients),
            "clients = {}: 1 to 256",
            self.clients
        );
        ensure!(!self.kinds.is_empty(), "kinds: none are given");
        positive([
            ("lease_ms", self.lease_ms as f64),
            ("seconds", self.seconds),
            ("trouble_s", self.trouble_s),
            ("troubled_s", self.troubled_s),
        ])?;
        part([
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut all = self.in_peace(run)?;
        all.extend(self.in_trouble(run)?);
        self.tell(run, report, &all);
        Ok(())
    }
}

impl OfLocks {
    fn phase(&self, locks: u32, seconds: f64) -> Phase {
        let locks = Locks {
            locks,
            lease_ms: self.lease_ms,
            hold_us: self.hold_us,
        };
        Phase {
            // A lock that is new is made room for once.
            warmup_s: seconds / 2.0,
            ..Phase::lock(locks, seconds)
        }
    }

    fn in_peace(&self, run: &Run<'_>) -> anyhow::Result<Vec<Seen>> {
        let with_etcd = run.options.world == World::Kernel;
        let layout = Layout {
            etcds: if with_etcd { ETCDS } else { 0 },
            syncs: true,
            ..Layout::star(self.length)
        };
        let mut bench = Bench::new(run, layout, Protocol::Netcraq, self.length)?;
        let mut systems = vec![(OWN, bench.load(self.clients, 1, 24)?)];
        if with_etcd {
            systems.push((ETCD, bench.etcd_load(self.clients, 1, 24)?));
        }
        let mut all = vec![];
        for (name, load) in &mut systems {
            for locks in self.locks.iter().copied() {
                run.progress.say(format!("{name}: {locks} locks"));
                let phase = Phase {
                    // Of an etcd's load so many clients take part.
                    outstanding: self.clients,
                    ..self.phase(locks, self.seconds)
                };
                all.push(Seen {
                    name,
                    locks,
                    result: load.run(&phase)?,
                    troubles: 0,
                });
            }
        }
        Ok(all)
    }

    fn in_trouble(&self, run: &Run<'_>) -> anyhow::Result<Vec<Seen>> {
        let chances = [self.loss, self.duplicate, self.reorder];
        let layout = Layout::star(self.switches).faulty(chances, run.options.seed);
        let mut bench = Bench::new(run, layout, Protocol::Netcraq, self.length)?;
        let mut load = bench.load(self.clients, 1, 24)?;
        let mut all = vec![];
        for locks in self.locks.iter().copied() {
            run.progress
                .say(format!("{locks} locks while members fail"));
            load.begin(&self.phase(locks, self.troubled_s))?;
            let troubles = self.make_trouble(&mut bench)?;
            all.push(Seen {
                name: WITH_FAULTS,
                locks,
                result: finish(&mut load)?,
                troubles: troubles.len(),
            });
        }
        Ok(all)
    }

    /// Gives each member each kind of trouble, as long as there is time.
    fn make_trouble(&self, bench: &mut Bench) -> anyhow::Result<Vec<Trouble>> {
        let time = Duration::from_secs_f64(self.trouble_s);
        let begun = bench.rig.now();
        let mut troubles = vec![];
        for kind in self.kinds.iter().copied() {
            for place in 0..usize::from(self.length) {
                if bench.rig.now() - begun < Duration::from_secs_f64(self.troubled_s) {
                    troubles.push(make(bench, kind, place, time)?);
                }
            }
        }
        Ok(troubles)
    }

    fn tell(&self, run: &Run<'_>, report: &mut Report, all: &[Seen]) {
        let mut table = Table::new(&[
            "",
            "locks",
            "taken/s",
            "p50",
            "p99",
            "fenced",
            "refused",
            "two at once",
            "failures",
        ]);
        let mut sum = Exclusion::default();
        for seen in all {
            let result = &seen.result;
            let exclusion = Exclusion::of(&result.accesses);
            sum.violations += exclusion.violations;
            sum.fenced += exclusion.fenced;
            sum.taken += exclusion.taken;
            let rate = rate(result);
            table.row([
                seen.name.into(),
                seen.locks.to_string(),
                thousands(rate),
                micros(result.locks.p50_us),
                micros(result.locks.p99_us),
                exclusion.fenced.to_string(),
                result.failed.to_string(),
                exclusion.violations.to_string(),
                seen.troubles.to_string(),
            ]);
            report.rows.push(json!({
                "system": seen.name, "locks": seen.locks, "taken_per_s": rate, "waits": result.locks,
                "fenced": exclusion.fenced, "refused": result.failed, "violations": exclusion.violations,
                "failures": seen.troubles,
            }));
        }
        report.count("mutual_exclusion_violations", sum.violations);
        report.count("fenced", sum.fenced);
        report.count("taken", sum.taken);
        report.count(
            "failures",
            all.iter().map(|seen| seen.troubles as u64).sum(),
        );
        let of = |name: &str, locks: u32| {
            let seen = all.iter().find(|s| s.name == name && s.locks == locks);
            seen.map(|seen| rate(&seen.result))
        };
        let mut least = f64::INFINITY;
        for locks in self.locks.iter().copied() {
            let own = of(OWN, locks).unwrap_or(0.0);
            report.summarize(format!("acquisitions_per_s_{locks}"), own);
            if let Some(etcd) = of(ETCD, locks) {
                least = f64::min(least, own / etcd);
                report.summarize(format!("acquisitions_over_etcd_{locks}"), own / etcd);
            }
        }
        if least.is_finite() {
            report.summarize("acquisitions_over_etcd", least);
        }
        report.text = format!(
            "{}\nfenced: accesses that the store refused, because it had seen a higher token\n",
            table.render()
        );
        let groups: Vec<String> = self.locks.iter().map(|n| format!("locks: {n}")).collect();
        let bars = |name| {
            self.locks
                .iter()
                .map(|n| of(name, *n).unwrap_or(0.0))
                .collect::<Vec<_>>()
        };
        let names = [ETCD, OWN, WITH_FAULTS].into_iter();
        let there = names.filter(|name| all.iter().any(|seen| seen.name == *name));
        let series: Vec<(&str, Vec<f64>)> = there.map(|name| (name, bars(name))).collect();
        let svg = plot::grouped_bars(&plot::GroupedBars {
            title: "Locks taken and given back",
            y: "per second",
            groups: &groups,
            series: &series,
            marks: None,
        });
        report.plot(run.name, svg);
    }
}

/// Locks taken per second.
fn rate(result: &PhaseResult) -> f64 {
    result.locks.count as f64 / result.seconds
}

fn finish(load: &mut CoordLoad) -> anyhow::Result<PhaseResult> {
    match load.poll()? {
        Some(result) => Ok(result),
        None => load.finish(),
    }
}
