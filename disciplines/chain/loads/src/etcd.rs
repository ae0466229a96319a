//! The same load as at chains of switches ([`crate`]), at an etcd: reads and writes of its keys,
//! and its own locks.

use std::{
    cell::RefCell,
    io::{BufRead, Write},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Context;
use etcd_client::{Client, LockOptions};
use hdrhistogram::Histogram;
use load::{Latency, histogram};
use rand::RngExt;
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

use crate::{Activity, Phase, PhaseResult, source::name};

/// Length in seconds of the leases that locks are taken under.
const LEASE_S: i64 = 10;

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
            Activity::Lock => self.client.lease_grant(LEASE_S, None).await.ok(),
            _ => None,
        };
        let lease = lease.map_or(0, |lease| lease.id());
        while Instant::now() < self.end {
            let key = self.draw.random_range(0..self.config.keys);
            let writes = self.phase.writes;
            let done = match self.phase.doing {
                Activity::Lock => self.lock(lease).await,
                _ if writes > 0.0 && self.draw.random_bool(writes.min(1.0)) => {
                    self.write(key).await
                }
                _ => self.read(key).await,
            };
            if let Err(error) = done {
                let result = &mut self.seen.borrow_mut().result;
                result.failed += 1;
                result.error = error.to_string();
            }
        }
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
