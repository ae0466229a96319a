//! The same load as at chains of switches ([`crate`]), at an etcd: reads and writes of its keys,
//! and its own locks.

use std::{
    cell::RefCell,
    io::{BufRead, Write},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use etcd_client::{Client, LockOptions};
use hdrhistogram::Histogram;
use load::{Latency, histogram};
use rand::RngExt;
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, LocalSet};

use crate::{Activity, Locks, Phase, PhaseResult, source::name};

/// A lease is kept alive so often while it lasts, as an etcd's own clients do.
const KEPT_ALIVE: u32 = 3;

/// Length in seconds of the leases that locks are taken under: what the phase says for either
/// system, which an etcd counts in whole seconds.
fn lease_s(locks: &Locks) -> anyhow::Result<u32> {
    let is_whole = locks.lease_ms > 0 && locks.lease_ms.is_multiple_of(1000);
    ensure!(is_whole, "lease_ms = {}: an etcd's leases are whole seconds", locks.lease_ms);
    Ok(u32::try_from(locks.lease_ms / 1000)?)
}

/// What stays the same over all phases.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URLs of the members; each client asks one of them.
    pub members: Vec<String>,
    /// Clients, each with a connection and one operation under way.
    pub clients: usize,
    /// Keys.
    pub keys: usize,
    /// Length in bytes of values.
    pub value_len: usize,
    /// Decides everything random.
    pub seed: u64,
}

/// What clients of one phase see.
struct Tally {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    locks: Histogram<u64>,
    result: PhaseResult,
}

/// Runs phases from standard input, one JSON document per line; one JSON result per line goes to
/// `out`.
///
/// # Errors
/// A member that cannot be reached, a phase that cannot be read, an output that is gone.
pub fn run(config: &Config, input: impl BufRead, out: impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut clients = vec![];
    for number in 0..config.clients {
        let member = &config.members[number % config.members.len()];
        let connected = runtime.block_on(Client::connect([member], None));
        clients.push(connected.with_context(|| format!("etcd at {member}"))?);
    }
    load::run_phases(input, out, |phase: &Phase| {
        LocalSet::new().block_on(&runtime, measure(config, &clients, phase))
    })
}

async fn measure(
    config: &Config,
    clients: &[Client],
    phase: &Phase,
) -> anyhow::Result<PhaseResult> {
    let from = Instant::now() + Duration::from_secs_f64(phase.warmup_s);
    let end = from + Duration::from_secs_f64(phase.seconds);
    let seen = Rc::new(RefCell::new(Tally {
        reads: histogram(3),
        writes: histogram(3),
        locks: histogram(3),
        result: PhaseResult { seconds: phase.seconds, ..PhaseResult::default() },
    }));
    // Each client has one operation under way, so as many clients take part as operations are to
    // be.
    let active = phase.outstanding.clamp(1, clients.len());
    let mut tasks = vec![];
    for (number, client) in clients[..active].iter().enumerate() {
        let task = One {
            config: config.clone(),
            phase: phase.clone(),
            client: client.clone(),
            draw: rng(config.seed, &format!("etcd client {number}")),
            seen: seen.clone(),
            from,
            end,
        };
        let keys = (number..config.keys).step_by(active).collect();
        tasks.push(tokio::task::spawn_local(task.run(keys)));
    }
    for task in tasks {
        task.await?;
    }
    let seen = seen.borrow();
    Ok(PhaseResult {
        reads: Latency::of(&seen.reads),
        writes: Latency::of(&seen.writes),
        locks: Latency::of(&seen.locks),
        ..seen.result.clone()
    })
}

/// A lease of an etcd, and what keeps it alive.
struct Lease {
    id: i64,
    keeper: JoinHandle<()>,
}

/// One client in one phase.
struct One {
    config: Config,
    phase: Phase,
    client: Client,
    draw: SeededRng,
    seen: Rc<RefCell<Tally>>,
    from: Instant,
    end: Instant,
}

impl One {
    /// `keys`: those that it writes, of a phase that writes all.
    async fn run(mut self, keys: Vec<usize>) {
        if self.phase.doing == Activity::Fill {
            for key in keys {
                while self.write(key).await.is_err() && Instant::now() < self.end {}
            }
            return;
        }
        let lease = match self.phase.doing {
            Activity::Lock => match self.lease().await {
                Ok(lease) => Some(lease),
                Err(error) => return self.failed(format!("{error:#}")),
            },
            _ => None,
        };
        while Instant::now() < self.end {
            let key = self.draw.random_range(0..self.config.keys);
            let writes = self.phase.writes;
            let done = match self.phase.doing {
                Activity::Lock => self.lock(lease.as_ref().map_or(0, |lease| lease.id)).await,
                _ if writes > 0.0 && self.draw.random_bool(writes.min(1.0)) => {
                    self.write(key).await
                }
                _ => self.read(key).await,
            };
            if let Err(error) = done {
                self.failed(error.to_string());
            }
        }
        if let Some(lease) = lease {
            lease.keeper.abort();
            // Else it would be there for the next phase's while.
            if let Err(error) = self.client.lease_revoke(lease.id).await {
                self.failed(error.to_string());
            }
        }
    }

    fn failed(&self, error: String) {
        let result = &mut self.seen.borrow_mut().result;
        result.failed += 1;
        result.error = error;
    }

    /// A lease that is kept alive.
    async fn lease(&mut self) -> anyhow::Result<Lease> {
        let asked_s = lease_s(&self.phase.locks)?;
        let granted = self.client.lease_grant(asked_s.into(), None).await?;
        ensure!(
            granted.ttl() == i64::from(asked_s),
            "a lease of {} s was granted, and not of {asked_s} s: the other system's would be shorter",
            granted.ttl()
        );
        let (mut keeper, mut answers) = self.client.lease_keep_alive(granted.id()).await?;
        let every = Duration::from_secs(asked_s.into()) / KEPT_ALIVE;
        // One that cannot be kept alive ends, and who asks for a lock under it is told.
        let keeper = tokio::task::spawn_local(async move {
            while keeper.keep_alive().await.is_ok()
                && matches!(answers.message().await, Ok(Some(_)))
            {
                tokio::time::sleep(every).await;
            }
        });
        Ok(Lease { id: granted.id(), keeper })
    }

    async fn read(&mut self, key: usize) -> Result<(), etcd_client::Error> {
        let begun = Instant::now();
        let found = self.client.get(name(key), None).await?;
        let missing = u64::from(found.kvs().is_empty());
        self.record(begun, |seen| {
            seen.result.not_found += missing;
            &mut seen.reads
        });
        Ok(())
    }

    async fn write(&mut self, key: usize) -> Result<(), etcd_client::Error> {
        let begun = Instant::now();
        let value = vec![b'v'; self.config.value_len];
        self.client.put(name(key), value, None).await?;
        self.record(begun, |seen| &mut seen.writes);
        Ok(())
    }

    async fn lock(&mut self, lease: i64) -> Result<(), etcd_client::Error> {
        let begun = Instant::now();
        let number = self.draw.random_range(0..self.phase.locks.locks.max(1));
        let options = LockOptions::new().with_lease(lease);
        let held = self.client.lock(format!("lock{number}"), Some(options)).await?;
        self.record(begun, |seen| &mut seen.locks);
        tokio::time::sleep(Duration::from_micros(self.phase.locks.hold_us)).await;
        self.client.unlock(held.key()).await?;
        Ok(())
    }

    fn record(&self, begun: Instant, of: impl FnOnce(&mut Tally) -> &mut Histogram<u64>) {
        let now = Instant::now();
        if now >= self.from && now < self.end {
            let mut seen = self.seen.borrow_mut();
            of(&mut seen).saturating_record((now - begun).as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_as_long_as_the_other_systems() {
        let of = |lease_ms| lease_s(&Locks { lease_ms, ..Locks::default() });
        assert_eq!(of(2000).unwrap(), 2);
        for lease_ms in [0, 100, 2500] {
            assert!(of(lease_ms).is_err(), "{lease_ms}");
        }
    }
}
