//! Redis or Valkey, over TCP or a Unix socket, pipelined.
//!
//! A read is GET and PTTL, so that a copy knows when its key ends; a write is SET, with PX, NX or XX; a removal is DEL.

use std::time::Instant;

use anyhow::Context;
use redis::{Client, Pipeline, Value, aio::MultiplexedConnection};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    Backend, Completion,
    remote::{Command, OnlyIf, Outcome, Protocol, Remote, Verb},
};

/// Connects to the server at `url`.
///
/// # Errors
/// The address is not one, or nobody answers there.
pub async fn connect(
    url: &str,
    base_version: u64,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>)> {
    let client = Client::open(url).context("the address of the Redis server")?;
    let mut protocol = Redis {
        client,
        connection: None,
    };
    protocol
        .connection()
        .await
        .context("cannot connect to Redis")?;
    let (remote, completions) = Remote::start(protocol, base_version);
    Ok((Box::new(remote), completions))
}

struct Redis {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl Redis {
    async fn connection(&mut self) -> anyhow::Result<&mut MultiplexedConnection> {
        if self.connection.is_none() {
            self.connection = Some(self.client.get_multiplexed_async_connection().await?);
        }
        Ok(self.connection.as_mut().expect("connected above"))
    }
}

impl Protocol for Redis {
    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let connection = self.connection().await.context("cannot connect to Redis")?;
        let mut pipeline = Pipeline::with_capacity(2 * commands.len());
        // One command that fails must not hide the answers to the others.
        pipeline.ignore_errors();
        for command in commands {
            add(command, &mut pipeline);
        }
        let asked = Instant::now();
        let values: Vec<redis::RedisResult<Value>> =
            pipeline.query_async(connection).await.context("Redis")?;
        // The time to live was read at the other end, and has gone on since.
        let elapsed_ms = asked.elapsed().as_millis() as i64 + 1;
        let mut values = values.into_iter();
        let mut next = || values.next().context("Redis: an answer is missing");
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            outcomes.push(match &command.verb {
                Verb::Get => found(next()?, next()?, elapsed_ms),
                Verb::Put { .. } => stored(next()?),
                Verb::Delete => removed(next()?),
            });
        }
        Ok(outcomes)
    }

    fn disconnect(&mut self) {
        self.connection = None;
    }
}

fn add(command: &Command, pipeline: &mut Pipeline) {
    let name = &command.name[..];
    match &command.verb {
        Verb::Get => {
            pipeline.cmd("GET").arg(name).cmd("PTTL").arg(name);
        }
        Verb::Delete => {
            pipeline.cmd("DEL").arg(name);
        }
        Verb::Put {
            value,
            ttl_ms,
            only_if,
        } => {
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
    elapsed_ms: i64,
) -> Outcome {
    match (value, left_ms) {
        (Ok(Value::Nil), _) => Outcome::Absent,
        (Ok(Value::BulkString(value)), Ok(Value::Int(left_ms))) => {
            // -1: it does not expire; -2: it has, between the two commands.
            let left = if left_ms == -1 {
                0
            } else {
                (left_ms - elapsed_ms).max(1)
            };
            Outcome::Value {
                value,
                expiry_ms: u32::try_from(left).unwrap_or(u32::MAX),
            }
        }
        (value, left_ms) => {
            tracing::warn!("Redis: GET answered {value:?}, PTTL {left_ms:?}");
            Outcome::Failed
        }
    }
}

fn stored(value: redis::RedisResult<Value>) -> Outcome {
    match value {
        Ok(Value::Okay) => Outcome::Done,
        Ok(Value::Nil) => Outcome::NotStored,
        Err(error) if error.code() == Some("OOM") => Outcome::Full,
        other => {
            tracing::warn!("Redis: SET answered {other:?}");
            Outcome::Failed
        }
    }
}

fn removed(value: redis::RedisResult<Value>) -> Outcome {
    match value {
        Ok(Value::Int(0)) => Outcome::Absent,
        Ok(Value::Int(_)) => Outcome::Done,
        other => {
            tracing::warn!("Redis: DEL answered {other:?}");
            Outcome::Failed
        }
    }
}
