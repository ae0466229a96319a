//! Redis or Valkey, over TCP or a Unix socket, pipelined.
//!
//! A read is GETRANGE and PTTL: of a value no more than a packet can carry, so that one of many
//! megabytes costs no more than another and does not keep the connection from answering in time;
//! and its time to live, so that a copy knows when its key ends. What is longer is asked for its
//! length (STRLEN), and if anybody has a use for it read in one piece when its turn has come.
//! GETRANGE answers alike for a key that is empty and one that is absent. PTTL knows an absent one;
//! what seems empty is read once more by GET, because between two commands another client may have
//! come. A write is SET, with PX, NX or XX; a removal is DEL.
//!
//! What other clients change, Redis tells (`CLIENT TRACKING`, Redis 6 and later). Of its ways, this
//! is the one without a hole:
//!
//! - On the connection that reads (RESP3), not on a second one. Answers and messages stand in one
//!   order; the connection cannot be lost without the tracking, nor the reverse; and an answer
//!   proves that every earlier message has come.
//! - Keys that were read, one by one (OPTIN), not prefixes (BCAST): only keys that are read for a
//!   grant are remembered by Redis and told of, not every write to the server. When Redis forgets
//!   one (`tracking-table-max-keys`), it says that it changed.
//! - `CLIENT CACHING YES` stands before GETRANGE (and before GET) in the same pipeline, so a key is
//!   tracked before its value is read.
//! - Our own writes are told, too, if their key was tracked. That is harmless: until a write is
//!   answered its key has no copies, and the message stands beside the answer. NOLOOP would
//!   suppress more than these: also what Redis evicts, expires or forgets while it carries out a
//!   command of ours.
//! - A write ends the tracking of its key and does not begin it anew: so a write is never answered
//!   with a grant.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, anyhow};
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo,
    PushKind, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    Backend, Completion, OutsideEvent,
    remote::{Command, Completions, OnlyIf, Outcome, Protocol, Remote, SMALL, Verb, key_of},
};
use crate::{OutsideWrites, clock::boot_ns, coherence::Watch};

/// Connects to the server at `url`, with this password or the one in there; it has so long for each
/// answer. Where outside writes are to be tracked and the server cannot, the backend says so
/// ([`Backend::watch`]), and a warning tells why.
///
/// # Errors
/// The address is not one, or nobody answers there.
pub async fn connect(
    url: &str,
    password: Option<&str>,
    outside_writes: OutsideWrites,
    base_version: u64,
    within: Duration,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>)> {
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    let mut redis = Redis {
        client: client(url, password)
            .map_err(|error| anyhow!("the address of the Redis server: {error}"))?,
        told: None,
        within,
        connection: None,
    };
    redis.connection().await?;
    let mut watch = Watch::Unneeded;
    if outside_writes == OutsideWrites::Track {
        match redis.tracked(completions.clone()).await {
            Ok(tracked) => (redis, watch) = (tracked, Watch::Tracked),
            Err(error) => {
                watch = Watch::Impossible;
                tracing::warn!(
                    "outside writes cannot be tracked, so switches are granted no copies: {error:#}. CLIENT TRACKING \
                     needs Redis 6; if nobody else writes to this Redis, say --outside-writes ignore"
                );
            }
        }
    }
    let remote = Remote::start(redis, watch, base_version, completions, within);
    Ok((Box::new(remote), done))
}

fn client(url: &str, password: Option<&str>) -> redis::RedisResult<Client> {
    // Given up, a connection takes along what has not arrived: behind a partition the system would
    // deliver a write much later, over those that were acknowledged since.
    let reset = TcpSettings::default().set_linger_time(Duration::ZERO);
    let info = url.into_connection_info()?.set_tcp_settings(reset);
    let Some(password) = password else {
        if info.redis_settings().password().is_some() {
            tracing::warn!(
                "the password in --backend can be read by every user of this machine: use --backend-password-file"
            );
        }
        return Client::open(info);
    };
    let settings = info.redis_settings().clone().set_password(password);
    Client::open(info.set_redis_settings(settings))
}

struct Redis {
    client: Client,
    /// Where Redis's messages go, if outside writes are tracked.
    told: Option<Completions>,
    /// How long it has for an answer.
    within: Duration,
    connection: Option<MultiplexedConnection>,
}

impl Redis {
    /// The same server, on a connection on which it tells of outside writes.
    async fn tracked(&self, told: Completions) -> anyhow::Result<Redis> {
        let info = self.client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings).into_connection_info()?;
        let mut redis = Redis {
            client: Client::open(info)?,
            told: Some(told),
            within: self.within,
            connection: None,
        };
        redis.connection().await?;
        Ok(redis)
    }

    async fn connection(&mut self) -> anyhow::Result<&mut MultiplexedConnection> {
        if self.connection.is_none() {
            self.connection = Some(self.open().await?);
        }
        Ok(self.connection.as_mut().expect("connected above"))
    }

    async fn open(&self) -> anyhow::Result<MultiplexedConnection> {
        // A batch begins before its commands, and so ends no later; this is for what is said before
        // there are any.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.within))
            .set_response_timeout(Some(self.within));
        if let Some(told) = self.told.clone() {
            config = config.set_push_sender(move |message| tell(message, &told));
        }
        let client = &self.client;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        // The error's text holds its cause already.
        let mut connection = connecting.await.map_err(|error| {
            let address = client.get_connection_info().addr();
            anyhow!("cannot connect to Redis at {address}: {error}")
        })?;
        if self.told.is_some() {
            let mut track = redis::cmd("CLIENT");
            track.arg("TRACKING").arg("ON").arg("OPTIN");
            let done: redis::RedisResult<()> = track.query_async(&mut connection).await;
            done.map_err(|error| anyhow!("Redis: CLIENT TRACKING: {error}"))?;
        }
        Ok(connection)
    }
}

/// Passes a message of Redis on. Called in the order of the connection, before any later answer
/// is given.
fn tell(message: PushInfo, told: &Completions) -> Result<(), ()> {
    let tell = |event| told.send(Completion::Outside(event)).map_err(drop);
    match message.kind {
        PushKind::Disconnection => tell(OutsideEvent::Everything),
        PushKind::Invalidate => changes(message.data).into_iter().try_for_each(tell),
        _ => Ok(()),
    }
}

/// What an invalidation names: keys, or nothing for everything.
fn changes(data: Vec<Value>) -> Vec<OutsideEvent> {
    let Some(Value::Array(names)) = data.into_iter().next() else {
        return vec![OutsideEvent::Everything];
    };
    let event = |name| match name {
        // A name that no key has concerns no copy.
        Value::BulkString(name) => {
            key_of(&name).map(|(tenant, key)| OutsideEvent::Changed { tenant, key: key.into() })
        }
        _ => Some(OutsideEvent::Everything),
    };
    names.into_iter().filter_map(event).collect()
}

impl Protocol for Redis {
    async fn connect(&mut self) -> anyhow::Result<()> {
        self.connection().await.map(drop)
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let connection = self.connection().await?;
        if commands.is_empty() {
            let pong: redis::RedisResult<()> = redis::cmd("PING").query_async(connection).await;
            pong.map_err(|error| anyhow!("Redis: {error}"))?;
            return Ok(vec![]);
        }
        let mut outcomes = ask(connection, commands, Bytes::Some).await?;
        let unclear: Vec<usize> =
            (0..commands.len()).filter(|at| outcomes[*at].is_none()).collect();
        if !unclear.is_empty() {
            let again: Vec<Command> = unclear.iter().map(|at| commands[*at].clone()).collect();
            let clear = ask(connection, &again, Bytes::All).await?;
            for (at, outcome) in unclear.into_iter().zip(clear) {
                outcomes[at] = outcome;
            }
        }
        let clear = |outcome: Option<Outcome>| outcome.context("Redis: neither a value nor none");
        let mut outcomes: Vec<Outcome> =
            outcomes.into_iter().map(clear).collect::<Result<_, _>>()?;
        measure(connection, commands, &mut outcomes).await?;
        Ok(outcomes)
    }

    fn disconnect(&mut self) {
        self.connection = None;
    }
}

/// Asks how long the values are that were cut short, and puts that in their place; what is longer
/// than anybody wants is too large.
async fn measure(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    outcomes: &mut [Outcome],
) -> anyhow::Result<()> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    let mut cut = vec![];
    for (command, outcome) in commands.iter().zip(outcomes) {
        let (Verb::Get { most, large, .. }, Outcome::Value { value, .. }) =
            (&command.verb, &outcome)
        else {
            continue;
        };
        if large.is_none() && value.len() == SMALL {
            pipeline.cmd("STRLEN").arg(&command.name[..]);
            cut.push(outcome);
        } else if value.len() > (*most).max(SMALL) {
            *outcome = Outcome::TooLarge;
        }
    }
    if cut.is_empty() {
        return Ok(());
    }
    let lengths: Vec<redis::RedisResult<usize>> =
        pipeline.query_async(connection).await.map_err(|error| anyhow!("Redis: {error}"))?;
    for (outcome, len) in cut.into_iter().zip(lengths) {
        *outcome = len.map_or(Outcome::Failed, Outcome::Large);
    }
    Ok(())
}

/// How much of values is read.
#[derive(Clone, Copy)]
enum Bytes {
    /// As much as a packet can carry, or as a value may have that is known to be large, by
    /// GETRANGE.
    Some,
    /// All, by GET.
    All,
}

/// Carries commands out in one pipeline. `None`: the key is empty, or was absent a moment ago.
async fn ask(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    bytes: Bytes,
) -> anyhow::Result<Vec<Option<Outcome>>> {
    let mut pipeline = Pipeline::with_capacity(3 * commands.len());
    // One command that fails must not hide the answers to the others.
    pipeline.ignore_errors();
    for command in commands {
        add(command, bytes, &mut pipeline);
    }
    let asked_ns = boot_ns();
    let values: Vec<redis::RedisResult<Value>> =
        pipeline.query_async(connection).await.map_err(|error| anyhow!("Redis: {error}"))?;
    // The time to live was read at the other end, and has gone on since.
    let elapsed_ms = ((boot_ns() - asked_ns) / 1_000_000) as i64 + 1;
    let mut values = values.into_iter();
    let mut next = || values.next().context("Redis: an answer is missing");
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        outcomes.push(match command.verb {
            Verb::Get { track, .. } => {
                let tracked = if track { next()? } else { Ok(Value::Okay) };
                let outcome = found(next()?, next()?, bytes, elapsed_ms);
                match tracked {
                    Ok(Value::Okay) => outcome,
                    other => {
                        tracing::warn!("Redis: CLIENT CACHING answered {other:?}");
                        Some(Outcome::Failed)
                    }
                }
            }
            Verb::Put { .. } => Some(stored(next()?)),
            Verb::Delete { only_if } => Some(removed(next()?, only_if)),
        });
    }
    Ok(outcomes)
}

fn add(command: &Command, bytes: Bytes, pipeline: &mut Pipeline) {
    let name = &command.name[..];
    match &command.verb {
        Verb::Get { track, most, large } => {
            // One byte more than is of use, so that what has grown is known to be too long.
            let last = large.map_or(SMALL - 1, |_| *most);
            if *track {
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            match bytes {
                Bytes::Some => pipeline.cmd("GETRANGE").arg(name).arg(0).arg(last),
                Bytes::All => pipeline.cmd("GET").arg(name),
            };
            pipeline.cmd("PTTL").arg(name);
        }
        Verb::Delete { only_if: OnlyIf::Absent } => drop(pipeline.cmd("EXISTS").arg(name)),
        Verb::Delete { .. } => drop(pipeline.cmd("DEL").arg(name)),
        Verb::Put { value, ttl_ms, only_if } => {
            pipeline.cmd("SET").arg(name).arg(&value[..]);
            if *ttl_ms > 0 {
                pipeline.arg("PX").arg(*ttl_ms);
            }
            match only_if {
                OnlyIf::Always => {}
                OnlyIf::Absent => drop(pipeline.arg("NX")),
                OnlyIf::Present => drop(pipeline.arg("XX")),
            }
        }
    }
}

fn found(
    value: redis::RedisResult<Value>,
    left_ms: redis::RedisResult<Value>,
    bytes: Bytes,
    elapsed_ms: i64,
) -> Option<Outcome> {
    Some(match (value, left_ms) {
        (Ok(Value::Nil), _) => Outcome::Absent,
        (Ok(Value::BulkString(value)), Ok(Value::Int(left_ms))) => {
            if value.is_empty() && matches!(bytes, Bytes::Some) {
                // -2: it is absent.
                return (left_ms == -2).then_some(Outcome::Absent);
            }
            // -1: it does not expire; -2: it has, between the two commands.
            let left = if left_ms == -1 { 0 } else { (left_ms - elapsed_ms).max(1) };
            Outcome::Value { value, expiry_ms: u32::try_from(left).unwrap_or(u32::MAX) }
        }
        (value, left_ms) => {
            // The value itself is nobody's business.
            let value = value.map(|_| "a value");
            say(|| format!("Redis: the value was answered with {value:?}, PTTL with {left_ms:?}"));
            Outcome::Failed
        }
    })
}

/// At most once a second: any client can make Redis answer so, with each request.
fn say(what: impl FnOnce() -> String) {
    static SAID_S: AtomicU64 = AtomicU64::new(0);
    let now_s = boot_ns() / 1_000_000_000;
    if SAID_S.swap(now_s, Relaxed) != now_s {
        tracing::warn!("{}", what());
    }
}

fn stored(value: redis::RedisResult<Value>) -> Outcome {
    match value {
        Ok(Value::Okay) => Outcome::Done,
        Ok(Value::Nil) => Outcome::NotStored,
        Err(error) if error.code() == Some("OOM") => Outcome::Full,
        other => {
            say(|| format!("Redis: SET answered {other:?}"));
            Outcome::Failed
        }
    }
}

fn removed(value: redis::RedisResult<Value>, only_if: OnlyIf) -> Outcome {
    match value {
        Ok(Value::Int(0)) => Outcome::Absent,
        Ok(Value::Int(_)) if only_if == OnlyIf::Absent => Outcome::NotStored,
        Ok(Value::Int(_)) => Outcome::Done,
        other => {
            say(|| format!("Redis: DEL answered {other:?}"));
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn an_invalidation_names_keys_or_everything() {
        let name = |name: &[u8]| Value::BulkString(name.into());
        let changed = |tenant, key: &[u8]| OutsideEvent::Changed { tenant, key: key.into() };
        // (data, events)
        let rows = [
            (vec![Value::Nil], vec![OutsideEvent::Everything]),
            (vec![], vec![OutsideEvent::Everything]),
            (
                vec![Value::Array(vec![name(b"a"), name(b"shortstop:7:b")])],
                vec![changed(0, b"a"), changed(7, b"b")],
            ),
            (vec![Value::Array(vec![name(b"shortstop:?")])], vec![]),
            (vec![Value::Array(vec![Value::Int(1)])], vec![OutsideEvent::Everything]),
        ];
        for (data, events) in rows {
            assert_eq!(changes(data.clone()), events, "{data:?}");
        }
    }

    #[tokio::test]
    async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let mut redis = Redis {
            client: client(&url, None).unwrap(),
            told: None,
            within: Duration::from_secs(90),
            connection: None,
        };
        let (mut server, greeted) = {
            let accept = async {
                let (mut server, _) = listener.accept().await.unwrap();
                let mut greeting = [0; 4096];
                // Every answer to what it says at first.
                let len = server.read(&mut greeting).await.unwrap();
                let commands = greeting[..len].iter().filter(|byte| **byte == b'*').count();
                let answers = "+OK\r\n".repeat(commands);
                server.write_all(answers.as_bytes()).await.unwrap();
                server
            };
            let (server, greeted) = tokio::join!(accept, redis.connection());
            (server, greeted.is_ok())
        };
        assert!(greeted);
        redis.disconnect();
        let read = server.read(&mut [0]).await;
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
    }
}
