//! The store's commands as commands of Redis, in one pipeline; and of its answers one outcome for
//! each.
//!
//! A read is GETRANGE and PTTL: of a value no more than a packet can carry, so that one of many
//! megabytes costs no more than another and does not keep the connection from answering in time;
//! and its time to live, so that a copy knows when its key ends. What is longer is asked for its
//! length (STRLEN), and if anybody has a use for it read in one piece when its turn has come.
//! GETRANGE answers alike for a key that is empty and one that is absent. PTTL knows an absent one;
//! what seems empty is read once more by GET, because between two commands another client may have
//! come. A write is SET, with PX, NX or XX; a removal is DEL.

use anyhow::Context;
use redis::{Pipeline, Value, aio::MultiplexedConnection};

use super::answers::{Class, class_of, is_of_cluster_down, is_of_server, lost, refusal, words_of};
use crate::{
    backend::remote::{Command, OnlyIf, Outcome, SMALL, Verb},
    clock::boot_ns,
};

/// What answers say beside the outcomes.
#[derive(Default)]
pub(super) struct Faults {
    /// The words of one that says how the server is.
    pub of_server: Option<String>,
    /// Those of one after which the connection is of no use.
    pub over: Option<String>,
    /// One says that its Redis Cluster is down.
    pub of_cluster_down: bool,
}

impl Faults {
    /// An answer has come.
    fn see(&mut self, answer: &redis::RedisResult<Value>) {
        let Err(error) = answer else { return };
        self.of_cluster_down |= is_of_cluster_down(error);
        if is_of_server(error) {
            self.of_server.get_or_insert_with(|| words_of(error));
        }
        if matches!(class_of(answer), Class::Demoted | Class::Gone) {
            self.over.get_or_insert_with(|| words_of(error));
        }
    }
}

/// How commands are put to a server.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// It is to tell of changes to what is read for a grant.
    pub tracks: bool,
    /// It is taking the slot in: each command has ASKING before it.
    pub asking: bool,
}

impl Way {
    /// Says what has to stand before a command with a key.
    fn before(self, pipeline: &mut Pipeline) {
        if self.asking {
            pipeline.cmd("ASKING").ignore();
        }
    }
}

/// Carries commands out in order, and finds one outcome for each.
pub(super) async fn carry_out(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    how: Way,
    faults: &mut Faults,
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = ask(connection, commands, Bytes::Some, how, faults).await?;
    let unclear: Vec<usize> = (0..commands.len()).filter(|at| outcomes[*at].is_none()).collect();
    if !unclear.is_empty() {
        let again: Vec<Command> = unclear.iter().map(|at| commands[*at].clone()).collect();
        let clear = ask(connection, &again, Bytes::All, how, faults).await?;
        for (at, outcome) in unclear.into_iter().zip(clear) {
            outcomes[at] = outcome;
        }
    }
    let clear = |outcome: Option<Outcome>| outcome.context("neither a value nor none");
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().map(clear).collect::<Result<_, _>>()?;
    measure(connection, commands, how, &mut outcomes).await?;
    Ok(outcomes)
}

/// Asks how long the values are that were cut short, and puts that in their place; what is longer
/// than anybody wants is too large.
async fn measure(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    how: Way,
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
            how.before(&mut pipeline);
            pipeline.cmd("STRLEN").arg(&command.name[..]);
            cut.push(outcome);
        } else if value.len() > (*most).max(SMALL) {
            *outcome = Outcome::TooLarge;
        }
    }
    if cut.is_empty() {
        return Ok(());
    }
    let lengths: Vec<redis::RedisResult<Value>> =
        pipeline.query_async(connection).await.map_err(lost)?;
    for (outcome, len) in cut.into_iter().zip(lengths) {
        *outcome = match len {
            Ok(Value::Int(len)) => Outcome::Large(usize::try_from(len).unwrap_or(usize::MAX)),
            other => unfit("STRLEN", &other),
        };
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
    how: Way,
    faults: &mut Faults,
) -> anyhow::Result<Vec<Option<Outcome>>> {
    let mut pipeline = Pipeline::with_capacity(3 * commands.len());
    // One command that fails must not hide the answers to the others.
    pipeline.ignore_errors();
    for command in commands {
        add(command, bytes, how, &mut pipeline);
    }
    let asked_ns = boot_ns();
    // Keys that are only marked are no command of this pipeline, and an empty one is refused.
    let values: Vec<redis::RedisResult<Value>> = match pipeline.cmd_iter().next() {
        Some(_) => pipeline.query_async(connection).await.map_err(lost)?,
        None => vec![],
    };
    values.iter().for_each(|value| faults.see(value));
    // The time to live was read at the other end, and has gone on since.
    let elapsed_ms = ((boot_ns() - asked_ns) / 1_000_000) as i64 + 1;
    let mut values = values.into_iter();
    let mut next = || values.next().context("an answer is missing");
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        outcomes.push(match command.verb {
            Verb::Get { track, .. } => {
                let tracked = if track && how.tracks { next()? } else { Ok(Value::Okay) };
                let outcome = found(next()?, next()?, bytes, elapsed_ms);
                match tracked {
                    Ok(Value::Okay) => outcome,
                    // A new connection shows whether it can be had again.
                    other => {
                        let why = other.as_ref().err().map(words_of).unwrap_or_default();
                        faults.over.get_or_insert_with(|| format!("CLIENT CACHING: {why}"));
                        Some(unfit("CLIENT CACHING", &other))
                    }
                }
            }
            Verb::Put { .. } => Some(stored(next()?)),
            Verb::Delete { only_if } => Some(removed(next()?, only_if)),
            // That was done before.
            Verb::Mark(_) => Some(Outcome::Done),
        });
    }
    Ok(outcomes)
}

fn add(command: &Command, bytes: Bytes, how: Way, pipeline: &mut Pipeline) {
    let name = &command.name[..];
    if !matches!(command.verb, Verb::Mark(_)) {
        how.before(pipeline);
    }
    match &command.verb {
        Verb::Get { track, most, large } => {
            // One byte more than is of use, so that what has grown is known to be too long.
            let last = large.map_or(SMALL - 1, |_| *most);
            if *track && how.tracks {
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            match bytes {
                Bytes::Some => pipeline.cmd("GETRANGE").arg(name).arg(0).arg(last),
                Bytes::All => pipeline.cmd("GET").arg(name),
            };
            how.before(pipeline);
            pipeline.cmd("PTTL").arg(name);
        }
        Verb::Delete { only_if: OnlyIf::Absent } => drop(pipeline.cmd("EXISTS").arg(name)),
        Verb::Delete { .. } => drop(pipeline.cmd("DEL").arg(name)),
        Verb::Mark(_) => {}
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
        (Err(error), _) | (Ok(_), Err(error)) => unfit("GETRANGE", &Err(error)),
        (Ok(_), Ok(_)) => Outcome::Failed,
    })
}

fn stored(value: redis::RedisResult<Value>) -> Outcome {
    match value {
        Ok(Value::Okay) => Outcome::Done,
        Ok(Value::Nil) => Outcome::NotStored,
        other => unfit("SET", &other),
    }
}

fn removed(value: redis::RedisResult<Value>, only_if: OnlyIf) -> Outcome {
    match value {
        Ok(Value::Int(0)) => Outcome::Absent,
        Ok(Value::Int(_)) if only_if == OnlyIf::Absent => Outcome::NotStored,
        Ok(Value::Int(_)) => Outcome::Done,
        other => unfit("DEL", &other),
    }
}

/// What comes of a command whose answer is none that belongs to it: a refusal, or a doubt.
fn unfit(command: &str, answer: &redis::RedisResult<Value>) -> Outcome {
    match refusal(answer) {
        Some(refusal) => Outcome::Refused(refusal),
        None => {
            // A value is nobody's business.
            let answer = answer.as_ref().map(|_| "something else");
            tracing::debug!("Redis: {command} answered {answer:?}");
            Outcome::Failed
        }
    }
}
