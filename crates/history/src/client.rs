//! Concurrent clients that record what they ask and what they are told.

use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use client::{Client, Condition, Error, Options};
use rand::RngExt;
use seed::rng;
use serde::{Deserialize, Serialize};
use wire::Cluster;

use super::{Effect, Need, Operation};

/// How long the hottest key stays the hottest.
const HOT_FOR_NS: u64 = 2_000_000_000;

/// What a process of clients does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientsConfig {
    /// The stores.
    pub cluster: Cluster,
    /// Decides what is asked.
    pub seed: u64,
    /// Number of the first client; each has one operation under way.
    pub first: u32,
    /// How many.
    pub clients: u32,
    /// Keys that each tenant has, of the same names.
    pub keys: u32,
    /// In whose names they ask, each operation in one at random; empty: the open tenant's. Key `k` of tenant `t` is number
    /// `t * keys + k` of the record.
    #[serde(default)]
    pub tenants: Vec<u32>,
    /// The stores' lease in milliseconds.
    pub lease_ms: u64,
}

/// What a process of clients has seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Everything that may have had an effect.
    pub operations: Vec<Operation>,
    /// Reads answered by a switch.
    pub cached: u64,
    /// Reads that nobody answered: they say nothing, and are not among the operations.
    pub unanswered: u64,
    /// Values that no client wrote in this form.
    pub torn: u64,
}

/// A value that says its number in every word, in one of several lengths: a torn one does not pass for another.
fn encode(number: u64) -> Vec<u8> {
    let words = 2 + (number % 23) as usize;
    number.to_be_bytes().repeat(words)
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    (encode(number) == bytes).then_some(number)
}

/// The name of a key.
fn key(number: u32) -> String {
    format!("key{number:013}")
}

/// Nanoseconds of the clock that all processes share.
fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

/// Runs clients until `input` ends; writes the number of operations every tenth of a second and what was recorded at last, each as
/// a line of JSON.
///
/// # Errors
/// The clients cannot start, or nobody reads the output.
pub fn clients(
    config: &ClientsConfig,
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stopped, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let stop = stopped.clone();
    std::thread::spawn(move || {
        let _ = input.read_line(&mut String::new());
        stop.store(true, Relaxed);
    });
    let recorded = Arc::new(Mutex::new(Recorded::default()));
    runtime.block_on(async {
        let options = Options {
            lease: Duration::from_millis(config.lease_ms),
            deadline: Duration::from_millis(config.lease_ms),
            initial_timeout: Duration::from_millis(8),
            max_timeout: Duration::from_millis(50),
            ..Options::default()
        };
        let ids = match config.tenants.as_slice() {
            [] => &[wire::TENANT_OPEN],
            some => some,
        };
        let mut connections = vec![];
        for id in ids {
            connections.push(Client::connect(&config.cluster, *id, options.clone()).await?);
        }
        let mut tasks = vec![];
        for number in config.first..config.first + config.clients {
            let one = One {
                connections: connections.clone(),
                number,
                keys: config.keys,
                rng: rng(config.seed, &format!("client {number}")),
                written: 0,
                known: HashMap::new(),
                seen: Recorded::default(),
            };
            tasks.push(tokio::spawn(one.run(
                stopped.clone(),
                done.clone(),
                recorded.clone(),
            )));
        }
        while !stopped.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            writeln!(output, "{}", done.load(Relaxed)).context("nobody listens")?;
            output.flush()?;
        }
        for task in tasks {
            task.await?;
        }
        anyhow::Ok(())
    })?;
    let recorded = recorded
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    serde_json::to_writer(&mut output, &*recorded)?;
    writeln!(output)?;
    Ok(())
}

/// One client: one operation at a time.
struct One {
    /// One per tenant.
    connections: Vec<Client>,
    number: u32,
    keys: u32,
    rng: seed::SeededRng,
    written: u64,
    /// Per key, the last version seen and its value.
    known: HashMap<u32, (u64, u64)>,
    seen: Recorded,
}

/// What a client was told: what it says about the key, or that it says nothing certain.
enum Said {
    Certain(Need, Effect),
    Open(Need, Effect),
    Nothing,
}

impl One {
    async fn run(
        mut self,
        stopped: Arc<AtomicBool>,
        done: Arc<AtomicU64>,
        recorded: Arc<Mutex<Recorded>>,
    ) {
        while !stopped.load(Relaxed) {
            // Squared: some keys are far hotter than others, and become cached; others after a while, so that those are
            // evicted.
            let draw: f64 = self.rng.random();
            let rank = (draw * draw * f64::from(self.keys)) as u64;
            let key = ((rank + now_ns() / HOT_FOR_NS) % u64::from(self.keys)) as u32;
            let tenant = self.rng.random_range(0..self.connections.len()) as u32;
            let key = tenant * self.keys + key;
            let call_ns = now_ns();
            let said = match self.rng.random_range(0..100) {
                0..72 => self.read(key).await,
                72..84 => self.write(key, Condition::Always, Need::Any).await,
                84..92 => match self.known.get(&key).copied() {
                    Some((version, value)) => {
                        self.write(key, Condition::Version(version), Need::Value(value))
                            .await
                    }
                    None => self.read(key).await,
                },
                92..95 => self.write(key, Condition::Absent, Need::Absent).await,
                95..97 => self.write(key, Condition::Present, Need::Present).await,
                _ => self.delete(key).await,
            };
            let return_ns = now_ns();
            let (need, effect, return_ns) = match said {
                Said::Certain(need, effect) => (need, effect, Some(return_ns)),
                Said::Open(need, effect) => (need, effect, None),
                Said::Nothing => {
                    self.seen.unanswered += 1;
                    continue;
                }
            };
            let client = self.number;
            let operation = Operation {
                client,
                key,
                call_ns,
                return_ns,
                need,
                effect,
            };
            self.seen.operations.push(operation);
            done.fetch_add(1, Relaxed);
        }
        let mut all = recorded
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        all.operations.append(&mut self.seen.operations);
        all.cached += self.seen.cached;
        all.unanswered += self.seen.unanswered;
        all.torn += self.seen.torn;
    }

    /// The connection of the tenant that key `number` of the record belongs to, and the key's name there. Tenants' keys have
    /// the same names: a value that reaches the wrong one was never written to the key, and the checker finds it.
    fn at(&self, number: u32) -> (Client, String) {
        let tenant = (number / self.keys) as usize;
        (self.connections[tenant].clone(), key(number % self.keys))
    }

    async fn read(&mut self, number: u32) -> Said {
        let (connection, key) = self.at(number);
        let found = match connection.get(key).await {
            Ok(found) => found,
            Err(_) => return Said::Nothing,
        };
        let Some(value) = found else {
            return Said::Certain(Need::Absent, Effect::Keep);
        };
        self.seen.cached += u64::from(value.from_switch);
        let decoded = decode(&value.bytes).unwrap_or_else(|| {
            self.seen.torn += 1;
            u64::MAX // never written: the checker will find it
        });
        self.known.insert(number, (value.version, decoded));
        Said::Certain(Need::Value(decoded), Effect::Keep)
    }

    async fn write(&mut self, number: u32, condition: Condition, need: Need) -> Said {
        self.written += 1;
        let value = (u64::from(self.number) << 40) | self.written;
        let effect = Effect::Write(value);
        let (connection, key) = self.at(number);
        match connection.set_if(key, encode(value), None, condition).await {
            Ok(version) => {
                self.known.insert(number, (version, value));
                Said::Certain(need, effect)
            }
            Err(Error::Mismatch { .. }) => match condition {
                Condition::Absent => Said::Certain(Need::Present, Effect::Keep),
                Condition::Present => Said::Certain(Need::Absent, Effect::Keep),
                _ => {
                    // A store that restarted knows the same value by a younger version: nothing is certain but that
                    // nothing was written.
                    self.known.remove(&number);
                    Said::Certain(Need::Any, Effect::Keep)
                }
            },
            Err(error) => failed(&error, need, effect),
        }
    }

    async fn delete(&mut self, number: u32) -> Said {
        self.known.remove(&number);
        let (connection, key) = self.at(number);
        match connection.delete(key).await {
            Ok(true) => Said::Certain(Need::Present, Effect::Delete),
            Ok(false) => Said::Certain(Need::Absent, Effect::Keep),
            Err(error) => failed(&error, Need::Present, Effect::Delete),
        }
    }
}

/// A write that was not answered may take effect at any time; unless nothing was sent.
fn failed(error: &Error, need: Need, effect: Effect) -> Said {
    match error {
        Error::Socket { .. } | Error::TooManyInFlight { .. } => Said::Nothing,
        _ => Said::Open(need, effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_value_is_noticed() {
        assert_eq!(decode(&encode(7)), Some(7));
        let mut torn = encode(7);
        torn[9] ^= 1;
        assert_eq!(decode(&torn), None);
        assert_eq!(decode(&encode(7)[..8]), None);
        assert_eq!(decode(b""), None);
    }
}
