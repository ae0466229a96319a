//! The commands on keys: from words to a [`Job`], and what a job does with the data.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesOrdered};
use resp::integer;

use super::{
    data::{DataResult, ErrorLine, KeyInfo, Life, OnlyIf, Put, STRING},
    network::Network,
    reply::Reply,
    session::wrong_arity,
};

/// Keys of one command that are asked for at the same time.
const WIDTH: usize = 64;

/// A command on keys, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Get(Bytes),
    GetMany(Vec<Bytes>),
    Set {
        key: Bytes,
        value: Bytes,
        put: Put,
        answer: SetAnswer,
    },
    /// Keys with their values, each key once.
    SetMany(Vec<(Bytes, Bytes)>),
    Take(Bytes),
    Delete(Vec<Bytes>),
    Exists(Vec<Bytes>),
    About(Bytes, Ask),
}

/// What SET and its relatives answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAnswer {
    /// OK, or nil if nothing was written.
    Ok,
    /// 1 or 0.
    Count,
    /// The value before, or nil.
    Old,
}

/// What a command asks about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Ttl,
    Pttl,
    Strlen,
    Type,
}

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

impl Job {
    /// The job that these words ask for; their number has been checked against the table. `None`:
    /// `name` is no command on keys.
    ///
    /// # Errors
    /// Redis's own line.
    pub fn new(name: &str, words: &[Bytes]) -> Option<Result<Job, String>> {
        let key = || words[1].clone();
        let keys = || words[1..].to_vec();
        Some(Ok(match name {
            "get" => Job::Get(key()),
            "mget" => Job::GetMany(keys()),
            "getdel" => Job::Take(key()),
            "del" | "unlink" => Job::Delete(keys()),
            "exists" => Job::Exists(keys()),
            "ttl" => Job::About(key(), Ask::Ttl),
            "pttl" => Job::About(key(), Ask::Pttl),
            "strlen" => Job::About(key(), Ask::Strlen),
            "type" => Job::About(key(), Ask::Type),
            "set" => return Some(set(words)),
            "setex" => return Some(set_for(words, name, 1000)),
            "psetex" => return Some(set_for(words, name, 1)),
            "setnx" => Job::Set {
                key: key(),
                value: words[2].clone(),
                put: Put { only_if: OnlyIf::Absent, ..Put::default() },
                answer: SetAnswer::Count,
            },
            "getset" => Job::Set {
                key: key(),
                value: words[2].clone(),
                put: Put { old: true, ..Put::default() },
                answer: SetAnswer::Old,
            },
            "mset" => return Some(set_many(words)),
            _ => return None,
        }))
    }

    /// Bytes that the values of this job's answer may take, as far as no single one is large.
    pub fn answer_bytes(&self) -> usize {
        match self {
            Job::GetMany(keys) => keys.len() * wire::MAX_PAYLOAD,
            _ => 0,
        }
    }

    /// Does it.
    pub async fn run(self, data: &Network) -> Reply {
        self.try_run(data).await.unwrap_or_else(|ErrorLine(line)| Reply::error(line))
    }

    async fn try_run(self, data: &Network) -> DataResult<Reply> {
        Ok(match self {
            Job::Get(key) => value(data.get(&key).await?),
            Job::GetMany(keys) => {
                let mut values = Vec::with_capacity(keys.len());
                for some in keys.chunks(WIDTH) {
                    let some = some.iter().map(|key| string(data, key));
                    values.extend(together(some.collect()).await?);
                }
                Reply::Array(values.into_iter().map(value).collect())
            }
            Job::Set { key, value, put, answer } => {
                let done = data.set(&key, &value, put).await?;
                match answer {
                    SetAnswer::Ok if done.written => Reply::OK,
                    SetAnswer::Ok => Reply::Nil,
                    SetAnswer::Count => Reply::Int(done.written.into()),
                    SetAnswer::Old => done.old.map_or(Reply::Nil, Reply::Bulk),
                }
            }
            Job::SetMany(pairs) => {
                for some in pairs.chunks(WIDTH) {
                    let set = |(key, value)| data.set(key, value, Put::default());
                    let some = some.iter().map(|(key, value)| (key, value));
                    together(some.map(set).collect()).await?;
                }
                Reply::OK
            }
            Job::Take(key) => value(data.take(&key).await?),
            Job::Delete(keys) => {
                let mut count = 0;
                for some in keys.chunks(WIDTH) {
                    let some = some.iter().map(|key| data.delete(key)).collect();
                    count += together(some).await?.into_iter().filter(|was| *was).count();
                }
                Reply::Int(count as i64)
            }
            Job::Exists(keys) => {
                let mut count = 0;
                for some in keys.chunks(WIDTH) {
                    let some = some.iter().map(|key| data.about(key)).collect();
                    count += together(some).await?.into_iter().flatten().count();
                }
                Reply::Int(count as i64)
            }
            Job::About(key, ask) => about(data.about(&key).await?, ask)?,
        })
    }
}

fn value(found: Option<Bytes>) -> Reply {
    found.map_or(Reply::Nil, Reply::Bulk)
}

/// Runs these at the same time; their results in order, or the first error once all have ended.
async fn together<T, F: Future<Output = DataResult<T>>>(running: Vec<F>) -> DataResult<Vec<T>> {
    let all: Vec<DataResult<T>> = FuturesOrdered::from_iter(running).collect().await;
    all.into_iter().collect()
}

/// The value of a key, if it is one of bytes: MGET has no other.
async fn string(data: &Network, key: &Bytes) -> DataResult<Option<Bytes>> {
    match data.get(key).await {
        Err(why) if why.is_wrong_type() => Ok(None),
        found => found,
    }
}

fn about(about: Option<KeyInfo>, ask: Ask) -> DataResult<Reply> {
    let left_ms = about.map(|about| about.expires_in.map(|left| left.as_millis() as i64));
    Ok(match ask {
        Ask::Strlen if about.is_some_and(|about| about.kind != STRING) => {
            return Err(ErrorLine::wrong_type());
        }
        Ask::Strlen => Reply::Int(about.map_or(0, |about| about.len as i64)),
        Ask::Type => Reply::Simple(about.map_or("none", |about| about.kind)),
        Ask::Ttl | Ask::Pttl => Reply::Int(match left_ms {
            None => -2,
            Some(None) => -1,
            Some(Some(ms)) if ask == Ask::Pttl => ms,
            Some(Some(ms)) => (ms + 500) / 1000,
        }),
    })
}

fn set(words: &[Bytes]) -> Result<Job, String> {
    let mut put = Put::default();
    let mut options = words[3..].iter();
    // Which option says how long: it may stand there again, and counts anew, but no other may.
    let mut lasts: Option<Vec<u8>> = None;
    let mut expiry = None;
    while let Some(option) = options.next() {
        let option = option.to_ascii_lowercase();
        let condition = match &option[..] {
            b"nx" => Some(OnlyIf::Absent),
            b"xx" => Some(OnlyIf::Present),
            _ => None,
        };
        if let Some(condition) = condition {
            if put.only_if != OnlyIf::Always && put.only_if != condition {
                return Err(SYNTAX.into());
            }
            put.only_if = condition;
            continue;
        }
        if option == b"get" {
            put.old = true;
            continue;
        }
        if lasts.get_or_insert_with(|| option.clone()) != &option {
            return Err(SYNTAX.into());
        }
        let (unit_ms, absolute) = match &option[..] {
            b"keepttl" => {
                put.life = Life::Kept;
                continue;
            }
            b"ex" => (1000, false),
            b"px" => (1, false),
            b"exat" => (1000, true),
            b"pxat" => (1, true),
            _ => return Err(SYNTAX.into()),
        };
        let number = options.next().ok_or(SYNTAX)?;
        expiry = Some((number, unit_ms, absolute));
    }
    // Only once all words are understood, as Redis does it.
    if let Some((number, unit_ms, absolute)) = expiry {
        put.life = life(number, unit_ms, absolute, "set")?;
    }
    let answer = if put.old { SetAnswer::Old } else { SetAnswer::Ok };
    Ok(Job::Set { key: words[1].clone(), value: words[2].clone(), put, answer })
}

fn set_for(words: &[Bytes], name: &str, unit_ms: u64) -> Result<Job, String> {
    Ok(Job::Set {
        key: words[1].clone(),
        value: words[3].clone(),
        put: Put { life: life(&words[2], unit_ms, false, name)?, ..Put::default() },
        answer: SetAnswer::Ok,
    })
}

fn set_many(words: &[Bytes]) -> Result<Job, String> {
    if words.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    let mut pairs: Vec<(Bytes, Bytes)> = Vec::with_capacity(words.len() / 2);
    let mut places: hashbrown::HashMap<&Bytes, usize> = hashbrown::HashMap::new();
    for pair in words[1..].chunks_exact(2) {
        // A key that stands there twice gets its last value.
        match places.entry(&pair[0]) {
            hashbrown::hash_map::Entry::Occupied(place) => {
                pairs[*place.get()].1 = pair[1].clone();
            }
            hashbrown::hash_map::Entry::Vacant(place) => {
                place.insert(pairs.len());
                pairs.push((pair[0].clone(), pair[1].clone()));
            }
        }
    }
    Ok(Job::SetMany(pairs))
}

/// A time to live from a word: so many units, from now on or since 1970.
fn life(word: &[u8], unit_ms: u64, absolute: bool, name: &str) -> Result<Life, String> {
    let number = integer(word).ok_or(NOT_AN_INTEGER)?;
    let invalid = || format!("ERR invalid expire time in '{name}' command");
    let ms = u64::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .and_then(|number| number.checked_mul(unit_ms))
        .filter(|ms| *ms <= i64::MAX as u64 / 2)
        .ok_or_else(invalid)?;
    let life = Duration::from_millis(ms);
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(match absolute {
        // Less than a millisecond is none.
        true => match life.saturating_sub(passed) {
            left if left < Duration::from_millis(1) => Life::Over,
            left => Life::For(left),
        },
        false => Life::For(life),
    })
}
