//! The client that records: it draws what is asked, by its seed and by what it was told before, and
//! notes each operation with what its outcome says of the key. It has neither network nor clock:
//! `clients_of` drives it on sockets, and the hunt in the simulator.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use client::{Answer, Condition, Error};
use rand::RngExt;
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

use super::{
    ClientsConfig, Effect, Lapse, Lives, Need, Operation,
    values::{decode, encode},
};

/// How long the hottest key stays the hottest.
const HOT_FOR_NS: u64 = 2_000_000_000;
/// Clocks are coarse: by so much a life may seem shorter or longer.
const COARSE_NS: u64 = 50_000_000;
/// Their rates differ, by less than one part in so many.
const DRIFT: u64 = 50;

/// What clients have seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Everything that may have had an effect.
    pub operations: Vec<Operation>,
    /// Reads answered by a switch, by the place of their tenant in the configuration's list.
    pub cached: BTreeMap<u32, u64>,
    /// Reads that nobody answered: they say nothing, and are not among the operations.
    pub unanswered: u64,
    /// Values that no client wrote in this form.
    pub torn: u64,
    /// Commands of Redis that were answered, by their [kind](crate::KINDS).
    #[serde(default)]
    pub commands: BTreeMap<String, u64>,
    /// Keys that have had from a time on, in nanoseconds of the operations' clock, what nobody can
    /// tell: a value of another key, maybe.
    #[serde(default)]
    pub lost_sight: Vec<(u32, u64)>,
}

impl ClientRecord {
    /// Reads answered by a switch, of all tenants.
    pub fn from_switches(&self) -> u64 {
        self.cached.values().sum()
    }

    /// Adds what others have seen.
    pub fn add(&mut self, mut other: ClientRecord) {
        self.operations.append(&mut other.operations);
        for (tenant, count) in other.cached {
            *self.cached.entry(tenant).or_default() += count;
        }
        self.unanswered += other.unanswered;
        self.torn += other.torn;
        self.lost_sight.append(&mut other.lost_sight);
        for (kind, count) in other.commands {
            *self.commands.entry(kind).or_default() += count;
        }
    }

    /// The operations on each key as far as they can be judged.
    pub fn by_key(&self) -> BTreeMap<u32, Vec<Operation>> {
        let mut by_key: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
        for operation in &self.operations {
            by_key.entry(operation.key).or_default().push(*operation);
        }
        for (key, since_ns) in &self.lost_sight {
            let Some(operations) = by_key.get_mut(key) else { continue };
            operations.retain_mut(|operation| {
                let is_before = operation.return_ns.is_some_and(|ns| ns < *since_ns);
                if !is_before {
                    operation.return_ns = None;
                }
                is_before || operation.effect != Effect::Keep && operation.call_ns <= *since_ns
            });
        }
        by_key
    }
}

/// How much sooner or later than its time to live says a value may go.
pub(crate) fn margin_ns(ttl: Duration) -> u64 {
    ttl.as_nanos() as u64 / DRIFT + COARSE_NS
}

/// One recording client: one operation at a time, asked and answered by whoever drives it.
///
/// Its driver takes what to ask from [`Recorder::next`], asks it, and says what came of it with
/// [`Recorder::told`], again and again. Times are nanoseconds of one clock that all clients of a
/// history share. The configuration's seed and the answers decide what is asked.
pub struct Recorder {
    number: u32,
    keys: u32,
    tenants: usize,
    longest_value: usize,
    lives: Option<Lives>,
    plain: f64,
    rng: SeededRng,
    written: u64,
    /// Per key, the last version seen and its value.
    known: HashMap<u32, (u64, u64)>,
    asked: Option<Question>,
    seen: ClientRecord,
}

/// What a client asks.
#[derive(Clone, Debug)]
pub struct Question {
    /// In whose name: its place in the configuration's list of tenants.
    pub tenant: usize,
    /// The key's name, which tenants share. A value that reaches the wrong tenant's was never
    /// written to that key, and the checker finds it.
    pub key: String,
    what: Action,
    /// The key's number in the record.
    number: u32,
    call_ns: u64,
}

#[derive(Clone, Debug)]
enum Action {
    Read,
    Write { number: u64, value: Vec<u8>, ttl: Option<Duration>, condition: Condition, need: Need },
    Delete,
}

impl Question {
    /// The operation to carry out.
    pub fn operation(&self) -> client::Operation<'_> {
        let key = self.key.as_bytes();
        match &self.what {
            Action::Read => client::Operation::Get { key },
            Action::Write { value, ttl, condition, .. } => {
                client::Operation::Set { key, value, ttl: *ttl, condition: *condition }
            }
            Action::Delete => client::Operation::Delete { key, condition: Condition::Always },
        }
    }
}

/// What a client was told: what it says about the key, or that it says nothing certain.
enum Statement {
    Certain(Need, Effect),
    Open(Need, Effect),
    Nothing,
}

impl Recorder {
    /// Client `number` of the configuration.
    pub fn new(config: &ClientsConfig, number: u32) -> Recorder {
        Recorder {
            number,
            keys: config.keys,
            tenants: config.tenants.len().max(1),
            longest_value: config.longest_value,
            lives: config.lives,
            plain: config.plain.clamp(0.0, 1.0),
            rng: rng(config.seed, &format!("client {number}")),
            written: 0,
            known: HashMap::new(),
            asked: None,
            seen: ClientRecord::default(),
        }
    }

    /// What it asks next. What was asked before and never answered is forgotten.
    pub fn next(&mut self, now_ns: u64) -> &Question {
        // Squared: some keys are far hotter than others, and become cached; others after a while,
        // so that those are evicted.
        let draw: f64 = self.rng.random();
        let rank = (draw * draw * f64::from(self.keys)) as u64;
        let key = ((rank + now_ns / HOT_FOR_NS) % u64::from(self.keys)) as u32;
        let tenant = self.rng.random_range(0..self.tenants);
        let number = tenant as u32 * self.keys + key;
        // No draw where there is no such part: the seeds of other runs go on as they did.
        let plain = self.plain > 0.0 && self.rng.random_bool(self.plain);
        let what = match self.rng.random_range(0..100) {
            0..50 if plain => Action::Read,
            _ if plain => self.write_with(None, Condition::Always, Need::Any),
            0..72 => Action::Read,
            72..84 => self.write(Condition::Always, Need::Any),
            84..92 => match self.known.get(&number).copied() {
                Some((version, value)) => {
                    self.write(Condition::Version(version), Need::Value(value))
                }
                None => Action::Read,
            },
            92..95 => self.write(Condition::Absent, Need::Absent),
            95..97 => self.write(Condition::Present, Need::Present),
            _ => {
                self.known.remove(&number);
                Action::Delete
            }
        };
        self.asked.insert(Question {
            tenant,
            key: format!("key{key:013}"),
            what,
            number,
            call_ns: now_ns,
        })
    }

    fn write(&mut self, condition: Condition, need: Need) -> Action {
        let lives = self.lives.filter(|lives| lives.part > 0.0);
        let ttl = lives.and_then(|lives| {
            let lives_on = self.rng.random::<f64>() >= lives.part;
            let ms = self.rng.random_range(lives.least_ms..=lives.most_ms);
            (!lives_on).then(|| Duration::from_millis(ms))
        });
        self.write_with(ttl, condition, need)
    }

    fn write_with(&mut self, ttl: Option<Duration>, condition: Condition, need: Need) -> Action {
        self.written += 1;
        let number = (u64::from(self.number) << 40) | self.written;
        Action::Write { number, value: encode(number, self.longest_value), ttl, condition, need }
    }

    /// What came of the operation that was asked last. Returns whether it is in the record now:
    /// whether it says anything.
    pub fn told(&mut self, result: Result<Answer, Error>, now_ns: u64) -> bool {
        let Some(asked) = self.asked.take() else { return false };
        let said = match &asked.what {
            Action::Read => self.read(asked.number, result),
            Action::Delete => match result.and_then(Answer::removed) {
                Ok(true) => Statement::Certain(Need::Present, Effect::Delete),
                Ok(false) => Statement::Certain(Need::Absent, Effect::Keep),
                Err(error) => failed(&error, Need::Present, Effect::Delete),
            },
            Action::Write { number, condition, need, .. } => {
                self.wrote(asked.number, *number, *condition, *need, result)
            }
        };
        let (need, effect, return_ns) = match said {
            Statement::Certain(need, effect) => (need, effect, Some(now_ns)),
            Statement::Open(need, effect) => (need, effect, None),
            Statement::Nothing => {
                self.seen.unanswered += 1;
                return false;
            }
        };
        self.seen.operations.push(Operation {
            client: self.number,
            key: asked.number,
            call_ns: asked.call_ns,
            return_ns,
            need,
            effect,
            lapse: self.lapse(&asked, effect, return_ns),
        });
        true
    }

    /// What it has seen.
    pub fn into_recorded(self) -> ClientRecord {
        self.seen
    }

    fn read(&mut self, number: u32, result: Result<Answer, Error>) -> Statement {
        let Ok(found) = result.and_then(Answer::found) else { return Statement::Nothing };
        let Some(value) = found else { return Statement::Certain(Need::Absent, Effect::Keep) };
        if value.from_switch {
            *self.seen.cached.entry(number / self.keys).or_default() += 1;
        }
        let decoded = decode(&value.bytes, self.longest_value).unwrap_or_else(|| {
            self.seen.torn += 1;
            u64::MAX // never written: the checker will find it
        });
        self.known.insert(number, (value.version, decoded));
        Statement::Certain(Need::Value(decoded), Effect::Keep)
    }

    fn wrote(
        &mut self,
        key: u32,
        value: u64,
        condition: Condition,
        need: Need,
        result: Result<Answer, Error>,
    ) -> Statement {
        let effect = Effect::Write(value);
        match result.and_then(Answer::written) {
            Ok(version) => {
                self.known.insert(key, (version, value));
                Statement::Certain(need, effect)
            }
            Err(Error::Mismatch { .. }) => match condition {
                Condition::Absent => Statement::Certain(Need::Present, Effect::Keep),
                Condition::Present => Statement::Certain(Need::Absent, Effect::Keep),
                _ => {
                    // A store that restarted knows the same value by a younger version: nothing is
                    // certain but that nothing was written.
                    self.known.remove(&key);
                    Statement::Certain(Need::Any, Effect::Keep)
                }
            },
            Err(error) => failed(&error, need, effect),
        }
    }

    /// When the value that was written ends. The store counts from when it wrote: between call
    /// and return.
    fn lapse(&self, asked: &Question, effect: Effect, return_ns: Option<u64>) -> Option<Lapse> {
        let (Action::Write { ttl: Some(ttl), .. }, Effect::Write(_)) = (&asked.what, effect) else {
            return None;
        };
        let ttl_ns = ttl.as_nanos() as u64;
        let margin_ns = margin_ns(*ttl);
        let overdue_ns = self.lives.map_or(0, |lives| lives.overdue_ms * 1_000_000);
        Some(Lapse {
            from_ns: asked.call_ns + ttl_ns.saturating_sub(margin_ns),
            until_ns: return_ns.map(|at| at + ttl_ns + margin_ns + overdue_ns),
        })
    }
}

/// A write that was not answered may take effect at any time; unless it was not sent, or not whole.
fn failed(error: &Error, need: Need, effect: Effect) -> Statement {
    match error {
        Error::Socket { .. }
        | Error::TooManyInFlight { .. }
        | Error::Forked
        | Error::NotWhole { .. }
        | Error::NoMemory { .. } => Statement::Nothing,
        _ => Statement::Open(need, effect),
    }
}

#[cfg(test)]
mod tests {
    use wire::Cluster;

    use super::*;

    fn config() -> ClientsConfig {
        let cluster = Cluster::single(([10, 0, 0, 1], 1).into(), 4);
        ClientsConfig { keys: 8, ..ClientsConfig::new(cluster, vec![], 3) }
    }

    fn unanswered() -> Error {
        Error::OutcomeUnknown {
            store: ([10, 0, 0, 1], 1).into(),
            after_ms: 1500,
            tries: 5,
            no_room: false,
            try_again: false,
            each_put_off: false,
            denied: None,
            short_path: false,
        }
    }

    #[test]
    fn a_write_without_an_answer_is_open_and_may_lapse() {
        let lives = Lives { part: 1.0, least_ms: 1000, most_ms: 1000, overdue_ms: 0 };
        let mut recorder = Recorder::new(&ClientsConfig { lives: Some(lives), ..config() }, 0);
        for _ in 0..1000 {
            recorder.next(7);
            recorder.told(Err(unanswered()), 8);
        }
        let seen = recorder.into_recorded();
        assert!(seen.unanswered > 500, "reads say nothing");
        for operation in seen.operations {
            assert_eq!(operation.return_ns, None);
            let lapse = operation.lapse;
            match operation.effect {
                Effect::Write(_) => {
                    assert_eq!(lapse.unwrap().until_ns, None);
                    assert_eq!(lapse.unwrap().from_ns, 7 + 930_000_000);
                }
                _ => assert_eq!(lapse, None),
            }
        }
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        let run = |seed| {
            let config = ClientsConfig { seed, ..config() };
            let mut recorder = Recorder::new(&config, 5);
            let ask = |at| {
                let asked = format!("{:?}", recorder.next(at));
                recorder.told(Err(unanswered()), at);
                asked
            };
            (0..100).map(ask).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
