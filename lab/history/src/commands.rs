//! The client that sends commands of Redis, to a store's RESP port or a gateway, and records: it
//! draws what is asked, by its seed, and notes what each answer says of each key. As the
//! [`Recorder`](super::Recorder) it has neither network nor clock.
//!
//! What a command of several keys, a transaction or FLUSHALL does is noted key by key, with the
//! times of its call and its return: copies of several keys may be read as before and after it, one
//! by one (`docs/coherence.md`).

mod action;
mod run;

use std::time::Duration;

use rand::{RngExt, seq::IndexedRandom};
use redis::Value;
use resp::ReplyScanner;
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

use super::{ClientRecord, ClientsConfig, Lapse, Operation};
use action::{Action, KeyStatement, When};
pub use run::{CommandClientsConfig, command_clients};

/// Names of what clients ask, by which [`ClientRecord::commands`] counts what was answered.
pub const KINDS: [&str; 19] = [
    "get",
    "set",
    "setnx",
    "del",
    "del_several",
    "mset",
    "msetnx",
    "append",
    "incrby",
    "setrange",
    "getdel",
    "pexpire",
    "getex",
    "persist",
    "rename",
    "copy",
    "watch",
    "exec",
    "flushall",
];

/// What clients that send commands are told before they begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandsConfig {
    /// As that of the other clients of the same keys.
    pub clients: ClientsConfig,
    /// Place in the cluster file of the store whose keys they ask for.
    pub store: usize,
    /// Tenants whose keys may be lent to switches: only what holds their keys sees their values.
    pub lent: Vec<u32>,
    /// Part of the commands that delete every key of the store.
    pub flushes: f64,
    /// Part of the commands that are transactions with a key that is watched and read before.
    #[serde(default)]
    pub watches: f64,
}

/// A key of the store.
#[derive(Clone, Debug)]
struct StoresKey {
    /// Its number in the record.
    number: u32,
    tenant: u32,
    /// What Redis calls it.
    name: Vec<u8>,
    may_be_lent: bool,
}

/// What a client asks: the bytes of one command, or of a transaction.
#[derive(Clone, Debug)]
pub struct CommandQuestion {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Replies that answer it.
    pub replies: usize,
    actions: Vec<Action>,
    is_transaction: bool,
    call_ns: u64,
}

/// One client that sends commands, one question at a time. Its driver takes what to send from
/// [`CommandRecorder::next`], and says what came of it with [`CommandRecorder::told`].
pub struct CommandRecorder {
    number: u32,
    keys: Vec<StoresKey>,
    config: CommandsConfig,
    rng: SeededRng,
    /// Which commands watch a key: drawn apart from all else.
    watching: SeededRng,
    written: u64,
    asked: Option<CommandQuestion>,
    seen: ClientRecord,
}

impl CommandRecorder {
    /// Client `number`, of the other clients' numbers and its own; `None`: the store has none of
    /// the keys.
    pub fn new(config: &CommandsConfig, number: u32) -> Option<CommandRecorder> {
        let keys = keys_of(config);
        let name = format!("commands {number}");
        (!keys.is_empty()).then(|| CommandRecorder {
            number,
            keys,
            rng: rng(config.clients.seed, &name),
            watching: rng(config.clients.seed, &format!("{name}, watching")),
            config: config.clone(),
            written: 0,
            asked: None,
            seen: ClientRecord::default(),
        })
    }

    /// What it asks next. What was asked before and never answered is forgotten.
    pub fn next(&mut self, now_ns: u64) -> &CommandQuestion {
        let flushes = self.config.flushes > 0.0 && self.rng.random_bool(self.config.flushes);
        let several = self.rng.random_range(0..10) < 3;
        let watches = self.config.watches > 0.0 && self.watching.random_bool(self.config.watches);
        let actions = match (flushes, several) {
            (true, _) => vec![Action::FlushAll],
            _ if watches => vec![self.draw_swap()],
            (_, true) => (0..self.rng.random_range(2..=3)).map(|_| self.draw()).collect(),
            _ => vec![self.draw()],
        };
        let is_transaction = actions.len() > 1 || actions[0].needs_transaction();
        let mut commands: Vec<Vec<Vec<u8>>> = vec![];
        for action in &actions {
            commands.extend(action.commands(&self.names(), self.config.clients.longest_value));
        }
        if is_transaction {
            commands.insert(0, vec![b"MULTI".into()]);
            commands.push(vec![b"EXEC".into()]);
        }
        let replies = commands.len();
        let bytes = commands.iter().flat_map(|words| packed(words)).collect();
        let call_ns = now_ns;
        self.asked.insert(CommandQuestion { bytes, replies, actions, is_transaction, call_ns })
    }

    fn names(&self) -> Vec<&[u8]> {
        self.keys.iter().map(|key| &key.name[..]).collect()
    }

    /// A key, the first ones more often; seldom one that is called back from a switch for it, or
    /// none would be lent for long.
    fn key(&mut self) -> usize {
        let mut key = 0;
        for _ in 0..4 {
            let draw: f64 = self.rng.random();
            key = (draw * draw * self.keys.len() as f64) as usize;
            if !self.keys[key].may_be_lent || self.rng.random_bool(0.1) {
                break;
            }
        }
        key
    }

    /// Several different keys.
    fn some_keys(&mut self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.rng.random_range(2..=3)).map(|_| self.key()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn number(&mut self) -> u64 {
        self.written += 1;
        (u64::from(self.number) << 40) | self.written
    }

    /// Of a key that may be lent Redis does not have the value that GET would have to find.
    fn draw_swap(&mut self) -> Action {
        match self.key() {
            key if self.keys[key].may_be_lent => self.draw(),
            key => Action::Swap { key, number: self.number() },
        }
    }

    fn draw(&mut self) -> Action {
        let key = self.key();
        let is_lent = self.keys[key].may_be_lent;
        let lives = self.config.clients.lives;
        match self.rng.random_range(0..100) {
            // Redis does not have what a switch keeps; what is written is held, and called back.
            0..22 if !is_lent => Action::Get(key),
            0..34 => {
                let part = lives.map_or(0.0, |lives| lives.part);
                let ttl_ms = lives
                    .filter(|_| self.rng.random::<f64>() < part)
                    .map(|lives| self.rng.random_range(lives.least_ms..=lives.most_ms));
                Action::Set { key, number: self.number(), ttl_ms }
            }
            34..39 => Action::SetAbsent { key, number: self.number() },
            39..44 => Action::Delete(vec![key]),
            44..51 => Action::Delete(self.some_keys()),
            51..57 => {
                let keys = self.some_keys();
                Action::SetSeveral(keys.into_iter().map(|key| (key, self.number())).collect())
            }
            57..60 => {
                let keys = self.some_keys();
                let each = keys.into_iter().map(|key| (key, self.number())).collect();
                Action::SetSeveralAbsent(each)
            }
            60..68 => Action::Append { key, number: self.number(), persists: self.may_expire(key) },
            68..76 => Action::Add {
                key,
                number: self.rng.random_range(1 << 20..1 << 40),
                may_expire: self.may_expire(key),
            },
            76..80 => Action::Count { key, number: self.rng.random_range(1 << 20..1 << 40) },
            80..84 => Action::SetRange { key, number: self.number() },
            84..88 => Action::Take(key),
            88..92 => match lives {
                // Never for longer than the value lives anyway: LT.
                Some(lives) => {
                    let ttl_ms = self.rng.random_range(lives.least_ms..=lives.most_ms);
                    Action::Shorten { key, ttl_ms }
                }
                None if self.rng.random_bool(0.5) => Action::Persist(key),
                None if self.may_expire(key) => {
                    Action::GetExpiring { key, ttl_ms: self.rng.random_range(20..1_500) }
                }
                None => Action::Take(key),
            },
            // Always to a later key: a value comes to no key twice.
            _ => match self.later_key(key) {
                Some(to) if self.rng.random_bool(0.5) && !is_lent => Action::Copy { key, to },
                Some(to) => Action::Rename { key, to },
                None => Action::Set { key, number: self.number(), ttl_ms: None },
            },
        }
    }

    /// Whether what is under a key may live for a while only: where no values that are written do,
    /// that is for GETEX to say, and of every other key.
    fn may_expire(&self, key: usize) -> bool {
        self.config.clients.lives.is_some() || self.keys[key].number.is_multiple_of(2)
    }

    fn later_key(&mut self, key: usize) -> Option<usize> {
        let (tenant, may_expire) = (self.keys[key].tenant, self.may_expire(key));
        let is_like = |other: &usize| {
            self.keys[*other].tenant == tenant && self.may_expire(*other) == may_expire
        };
        let later = (key + 1..self.keys.len()).filter(is_like);
        later.collect::<Vec<usize>>().choose(&mut self.rng).copied()
    }

    /// What came of what was asked last: its replies, also if there are fewer because one of a
    /// transaction's commands was refused; or nobody knows. Returns whether it was
    /// carried out for certain.
    pub fn told(&mut self, replies: Option<Vec<Value>>, now_ns: u64) -> bool {
        let Some(asked) = self.asked.take() else { return false };
        let answers = match replies {
            None => Answers::Unknown,
            // A command of it was refused: EXEC does nothing, if it comes at all.
            Some(replies) if asked.is_transaction && replies.len() < asked.replies => {
                Answers::Nothing
            }
            Some(mut replies) if asked.is_transaction => match replies.pop() {
                Some(Value::Array(each)) => Answers::Each(each),
                Some(Value::ServerError(_)) if !is_any_queued(&replies) => Answers::Nothing,
                Some(Value::ServerError(error)) if error.code() == "EXECABORT" => Answers::Nothing,
                _ => Answers::Unknown,
            },
            Some(replies) => Answers::Each(replies),
        };
        let longest = self.config.clients.longest_value;
        let mut left = match answers {
            Answers::Nothing => {
                self.seen.unanswered += 1;
                return false;
            }
            Answers::Unknown => None,
            Answers::Each(each) => Some(each.into_iter()),
        };
        let is_known = left.is_some();
        for action in &asked.actions {
            let said = match &mut left {
                Some(left) => {
                    let its: Vec<Value> = left.take(action.replies()).collect();
                    if action.was_carried_out(&its) {
                        *self.seen.commands.entry(action.kind().into()).or_default() += 1;
                    }
                    action.answered(&its, longest, self.keys.len())
                }
                None => action.unanswered(self.keys.len()),
            };
            for said in said {
                self.note(said, asked.call_ns, now_ns);
            }
        }
        if is_known && asked.is_transaction {
            *self.seen.commands.entry("exec".into()).or_default() += 1;
        }
        is_known
    }

    fn note(&mut self, said: KeyStatement, call_ns: u64, now_ns: u64) {
        let key = self.keys[said.key].number;
        self.seen.torn += u64::from(said.need == super::Need::Value(u64::MAX));
        let margin = |ttl_ms: u64| super::recorder::margin_ns(Duration::from_millis(ttl_ms));
        let from_ns = |ttl_ms: u64| call_ns + (ttl_ms * 1_000_000).saturating_sub(margin(ttl_ms));
        let overdue_ms = self.config.clients.lives.map_or(0, |lives| lives.overdue_ms);
        let (call_ns, return_ns) = match said.when {
            When::Now => (call_ns, Some(now_ns)),
            When::AnyTime => (call_ns, None),
            When::AnyTimeAfter(ttl_ms) => (from_ns(ttl_ms), None),
            When::LostSight => {
                self.seen.lost_sight.push((key, call_ns));
                return;
            }
        };
        let lapse = said.lapses.map(|ttl_ms| match ttl_ms {
            0 => Lapse { from_ns: call_ns, until_ns: None },
            ttl_ms => Lapse {
                from_ns: from_ns(ttl_ms),
                until_ns: return_ns
                    .map(|at_ns| at_ns + (ttl_ms + overdue_ms) * 1_000_000 + margin(ttl_ms)),
            },
        });
        let (need, effect) = (said.need, said.effect);
        let client = self.number;
        self.seen.operations.push(Operation {
            client,
            key,
            call_ns,
            return_ns,
            need,
            effect,
            lapse,
        });
    }

    /// What it has seen.
    pub fn into_recorded(self) -> ClientRecord {
        self.seen
    }
}

/// What replies come to.
enum Answers {
    /// One for each command.
    Each(Vec<Value>),
    /// Nothing was carried out.
    Nothing,
    /// It may have been, or may be yet.
    Unknown,
}

/// Whether any command of a transaction may have been carried out, or be yet.
fn is_any_queued(replies: &[Value]) -> bool {
    replies.iter().any(|reply| !matches!(reply, Value::ServerError(_)))
}

/// Replies as they come, until there are as many as a question has.
#[derive(Default)]
pub struct CommandReplies {
    scanner: ReplyScanner,
    begun: Vec<u8>,
    whole: Vec<Value>,
}

impl CommandReplies {
    /// Takes what has come.
    ///
    /// # Errors
    /// It is none of RESP.
    pub fn take(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let found = self.scanner.scan(bytes)?;
            let (piece, rest) = bytes.split_at(found.map_or(bytes.len(), |reply| reply.len));
            self.begun.extend_from_slice(piece);
            bytes = rest;
            if found.is_some() {
                self.whole.push(redis::parse_redis_value(&std::mem::take(&mut self.begun))?);
            }
        }
        Ok(())
    }

    /// The replies so far, if one says that a command was refused. Whoever asked need not wait for
    /// the rest, but has to connect anew.
    pub fn refused(&mut self) -> Option<Vec<Value>> {
        let is_refusal = |reply: &Value| matches!(reply, Value::ServerError(_));
        let is_refused = self.whole.iter().any(is_refusal);
        is_refused.then(|| std::mem::take(&mut self.whole))
    }

    /// The replies, when there are so many.
    pub fn whole(&mut self, count: usize) -> Option<Vec<Value>> {
        (self.whole.len() >= count).then(|| self.whole.drain(..count).collect())
    }
}

/// The keys of the configuration's store.
fn keys_of(config: &CommandsConfig) -> Vec<StoresKey> {
    let CommandsConfig { clients, store, lent, .. } = config;
    let cluster = &clients.cluster;
    let Some(own) = cluster.stores.get(*store).map(|store| store.address) else { return vec![] };
    let tenants = match clients.tenants.as_slice() {
        [] => &[wire::TENANT_OPEN][..],
        some => some,
    };
    let mut keys = vec![];
    for (i, tenant) in (0..).zip(tenants) {
        let Some(secrets) = cluster.secrets_of(*tenant) else { continue };
        for key in 0..clients.keys {
            let bytes = format!("key{key:013}").into_bytes();
            let hash = secrets.hash.key_hash(*tenant, &bytes);
            if cluster.store_of(*tenant, hash).address != own {
                continue;
            }
            let Some(name) = wire::backend_name(*tenant, &bytes) else { continue };
            let may_be_lent = lent.contains(tenant);
            keys.push(StoresKey {
                number: i * clients.keys + key,
                tenant: *tenant,
                name,
                may_be_lent,
            });
        }
    }
    keys
}

fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(&word[..]);
    }
    command.get_packed_command()
}

#[cfg(test)]
mod tests;
