//! How many locks a chain gives out, how long clients wait for one, and whether two ever had the
//! same. `craq-locks.toml` is run by this.

use std::time::Duration;

use anyhow::ensure;
use chain_loads::{CoordLoad, Exclusion, Locks, Phase, PhaseResult};
use experiments::{
    Run, World,
    params::{part, positive, ratio},
    sweep::{Figures, Point, Points},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    bench::Bench,
    layout::Layout,
    protocol::Protocol,
    trouble::{Kind, Trouble, make, one_beside},
};

/// Members of an etcd that is asked for the same.
const ETCDS: usize = 3;
const OWN: &str = "netcraq";
const WITH_STOPS: &str = "netcraq, holders stop";
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
    /// Then some holders stand still, for longer than their lease: which part of them, for how
    /// long, what the lease is, in milliseconds, and for how many seconds locks are taken so.
    stops: f64,
    stop_ms: u64,
    stop_lease_ms: u64,
    stopped_s: f64,
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
struct LockResult {
    name: &'static str,
    locks: u32,
    result: PhaseResult,
    troubles: usize,
}

impl LockResult {
    fn figures(&self) -> Figures {
        let result = &self.result;
        let exclusion = Exclusion::of(&result.accesses);
        Figures::new(json!({
            "system": self.name,
            "locks": self.locks,
            "taken_per_s": result.locks.count as f64 / result.seconds,
            "waits": result.locks,
            "fenced": exclusion.fenced,
            "refused": result.failed,
            "violations": exclusion.violations,
            "failures": self.troubles,
        }))
        .aside("taken", exclusion.taken)
        .aside("group", format!("locks: {}", self.locks))
    }
}

impl Point for OfLocks {
    /// Each part has its own.
    type Bench<'a> = ();

    fn check(&self) -> anyhow::Result<()> {
        one_beside(self.length, self.switches)?;
        ensure!((1..=256).contains(&self.clients), "clients = {}: 1 to 256", self.clients);
        ensure!(!self.kinds.is_empty(), "kinds: none are given");
        positive([
            ("lease_ms", self.lease_ms as f64),
            ("stop_lease_ms", self.stop_lease_ms as f64),
            ("stopped_s", self.stopped_s),
            ("seconds", self.seconds),
            ("trouble_s", self.trouble_s),
            ("troubled_s", self.troubled_s),
        ])?;
        ensure!(
            self.stop_ms > self.stop_lease_ms + self.stop_lease_ms / 16,
            "stop_ms = {}: longer than others wait for a lease of {} ms",
            self.stop_ms,
            self.stop_lease_ms
        );
        ratio("stops", self.stops)?;
        part([("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)])
    }

    fn build<'a>(&self, _: &Run<'a>) -> anyhow::Result<()> {
        Ok(())
    }

    fn measure(&self, (): &mut (), run: &Run<'_>, _: &Points) -> anyhow::Result<Vec<Figures>> {
        let mut all = self.in_peace(run)?;
        all.extend(self.in_trouble(run)?);
        Ok(all.iter().map(LockResult::figures).collect())
    }
}

impl OfLocks {
    fn phase(&self, locks: u32, seconds: f64) -> Phase {
        let (lease_ms, hold_us) = (self.lease_ms, self.hold_us);
        let locks = Locks { locks, lease_ms, hold_us, ..Locks::default() };
        Phase {
            // A lock that is new is made room for once.
            warmup_s: seconds / 2.0,
            ..Phase::lock(locks, seconds)
        }
    }

    fn in_peace(&self, run: &Run<'_>) -> anyhow::Result<Vec<LockResult>> {
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
                all.push(LockResult { name, locks, result: load.run(&phase)?, troubles: 0 });
            }
        }
        for locks in self.locks.iter().copied() {
            run.progress.say(format!("{locks} locks while holders stop"));
            let phase = self.phase(locks, self.stopped_s);
            let locks_kept = Locks {
                stops: self.stops,
                stop_ms: self.stop_ms,
                lease_ms: self.stop_lease_ms,
                ..phase.locks.clone()
            };
            let result = systems[0].1.run(&Phase { locks: locks_kept, ..phase })?;
            all.push(LockResult { name: WITH_STOPS, locks, result, troubles: 0 });
        }
        Ok(all)
    }

    fn in_trouble(&self, run: &Run<'_>) -> anyhow::Result<Vec<LockResult>> {
        let chances = [self.loss, self.duplicate, self.reorder];
        let layout = Layout::star(self.switches).faulty(chances, run.options.seed);
        let mut bench = Bench::new(run, layout, Protocol::Netcraq, self.length)?;
        let mut load = bench.load(self.clients, 1, 24)?;
        let mut all = vec![];
        for locks in self.locks.iter().copied() {
            run.progress.say(format!("{locks} locks while members fail"));
            load.begin(&self.phase(locks, self.troubled_s))?;
            let troubles = self.make_trouble(&mut bench)?;
            all.push(LockResult {
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
}

fn finish(load: &mut CoordLoad) -> anyhow::Result<PhaseResult> {
    match load.poll()? {
        Some(result) => Ok(result),
        None => load.finish(),
    }
}
