//! One command of a client: its words, and what its answer says of its keys.

use redis::Value;

use crate::{
    Effect, Need,
    values::{chunk, counter, decode, encode},
};

/// What a client does at once. Keys are places in its list.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Get(usize),
    Set {
        key: usize,
        number: u64,
        ttl_ms: Option<u64>,
    },
    SetAbsent {
        key: usize,
        number: u64,
    },
    Delete(Vec<usize>),
    SetSeveral(Vec<(usize, u64)>),
    SetSeveralAbsent(Vec<(usize, u64)>),
    /// What comes of it lives on: by PERSIST in the same transaction, if it has to be.
    Append {
        key: usize,
        number: u64,
        persists: bool,
    },
    /// Adds to a counter, which lives for as long as it did before.
    Add {
        key: usize,
        number: u64,
        may_expire: bool,
    },
    /// A new counter in the place of whatever is there.
    Count {
        key: usize,
        number: u64,
    },
    /// A whole value, by SETRANGE, in the place of whatever is there.
    SetRange {
        key: usize,
        number: u64,
    },
    /// GETDEL.
    Take(usize),
    /// PEXPIRE with LT, of what GET finds.
    Shorten {
        key: usize,
        ttl_ms: u64,
    },
    GetExpiring {
        key: usize,
        ttl_ms: u64,
    },
    Persist(usize),
    Rename {
        key: usize,
        to: usize,
    },
    Copy {
        key: usize,
        to: usize,
    },
    /// WATCH and GET, and SET in a transaction: a compare-and-set.
    Swap {
        key: usize,
        number: u64,
    },
    FlushAll,
}

/// When an effect takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Between call and return.
    Now,
    /// At any time after the call, or never.
    AnyTime,
    /// At any time when so many milliseconds have passed since the call, or never.
    AnyTimeAfter(u64),
    /// It may have any effect: what comes after says nothing.
    LostSight,
}

/// What an answer, or its absence, says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyStatement {
    pub key: usize,
    pub need: Need,
    pub effect: Effect,
    pub when: When,
    /// What is written lives for so many milliseconds; 0: for nobody knows how long.
    pub lapses: Option<u64>,
}

fn now(key: usize, need: Need, effect: Effect) -> KeyStatement {
    KeyStatement { key, need, effect, when: When::Now, lapses: None }
}

fn any_time(key: usize, need: Need, effect: Effect) -> KeyStatement {
    KeyStatement { when: When::AnyTime, ..now(key, need, effect) }
}

fn lost_sight(key: usize) -> KeyStatement {
    KeyStatement { when: When::LostSight, ..now(key, Need::Any, Effect::Keep) }
}

fn goes_after(ttl_ms: u64, key: usize, need: Need) -> KeyStatement {
    KeyStatement { when: When::AnyTimeAfter(ttl_ms), ..now(key, need, Effect::Delete) }
}

impl Action {
    /// What counts of it.
    pub fn kind(&self) -> &'static str {
        match self {
            Action::Get(_) => "get",
            Action::Set { .. } => "set",
            Action::SetAbsent { .. } => "setnx",
            Action::Delete(keys) if keys.len() > 1 => "del_several",
            Action::Delete(_) => "del",
            Action::SetSeveral(_) => "mset",
            Action::SetSeveralAbsent(_) => "msetnx",
            Action::Append { .. } => "append",
            Action::Add { .. } | Action::Count { .. } => "incrby",
            Action::SetRange { .. } => "setrange",
            Action::Take(_) => "getdel",
            Action::Shorten { .. } => "pexpire",
            Action::GetExpiring { .. } => "getex",
            Action::Persist(_) => "persist",
            Action::Rename { .. } => "rename",
            Action::Copy { .. } => "copy",
            Action::Swap { .. } => "watch",
            Action::FlushAll => "flushall",
        }
    }

    /// Whether these replies say that it was carried out: none of its commands was refused, and a
    /// key that was watched was as it had been.
    pub fn was_carried_out(&self, replies: &[Value]) -> bool {
        let is_refused = replies.iter().any(|reply| matches!(reply, Value::ServerError(_)));
        let is_given_up = matches!((self, replies.last()), (Action::Swap { .. }, Some(Value::Nil)));
        !is_refused && !is_given_up
    }

    /// Whether it consists of several commands, which are one only in a transaction, and has none.
    pub fn needs_transaction(&self) -> bool {
        self.replies() > 1 && !matches!(self, Action::Swap { .. })
    }

    /// Commands that it consists of.
    pub fn replies(&self) -> usize {
        match self {
            Action::Count { .. } | Action::SetRange { .. } => 2,
            Action::Append { persists: true, .. } => 2,
            Action::Swap { .. } => 5,
            Action::Rename { .. } | Action::Copy { .. } | Action::Shorten { .. } => 2,
            _ => 1,
        }
    }

    /// Its commands, each as its words. `names`: of all keys.
    pub fn commands(&self, names: &[&[u8]], longest: usize) -> Vec<Vec<Vec<u8>>> {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let text = |number: u64| encode(number, longest);
        let digits = |number: u64| number.to_string().into_bytes();
        let pairs = |name: &[u8], each: &[(usize, u64)]| {
            let pairs = each.iter().flat_map(|(key, number)| [names[*key].to_vec(), text(*number)]);
            [name.to_vec()].into_iter().chain(pairs).collect()
        };
        match self {
            Action::Get(key) => vec![words(&[b"GET", names[*key]])],
            Action::Set { key, number, ttl_ms: None } => {
                vec![words(&[b"SET", names[*key], &text(*number)])]
            }
            Action::Set { key, number, ttl_ms: Some(ms) } => {
                vec![words(&[b"SET", names[*key], &text(*number), b"PX", &digits(*ms)])]
            }
            Action::SetAbsent { key, number } => {
                vec![words(&[b"SETNX", names[*key], &text(*number)])]
            }
            Action::Delete(keys) => {
                let keys = keys.iter().map(|key| names[*key].to_vec());
                vec![[b"DEL".to_vec()].into_iter().chain(keys).collect()]
            }
            Action::SetSeveral(each) => vec![pairs(b"MSET", each)],
            Action::SetSeveralAbsent(each) => vec![pairs(b"MSETNX", each)],
            Action::Append { key, number, persists } => {
                let persist = persists.then(|| words(&[b"PERSIST", names[*key]]));
                let append = words(&[b"APPEND", names[*key], &chunk(*number)]);
                persist.into_iter().chain([append]).collect()
            }
            Action::Add { key, number, .. } => {
                vec![words(&[b"INCRBY", names[*key], &digits(*number)])]
            }
            Action::Count { key, number } => vec![
                words(&[b"DEL", names[*key]]),
                words(&[b"INCRBY", names[*key], &digits(*number)]),
            ],
            Action::SetRange { key, number } => vec![
                words(&[b"DEL", names[*key]]),
                words(&[b"SETRANGE", names[*key], b"0", &text(*number)]),
            ],
            Action::Take(key) => vec![words(&[b"GETDEL", names[*key]])],
            Action::Shorten { key, ttl_ms } => vec![
                words(&[b"GET", names[*key]]),
                words(&[b"PEXPIRE", names[*key], &digits(*ttl_ms), b"LT"]),
            ],
            Action::GetExpiring { key, ttl_ms } => {
                vec![words(&[b"GETEX", names[*key], b"PX", &digits(*ttl_ms)])]
            }
            Action::Persist(key) => vec![words(&[b"PERSIST", names[*key]])],
            Action::Rename { key, to } => {
                vec![words(&[b"GET", names[*key]]), words(&[b"RENAME", names[*key], names[*to]])]
            }
            Action::Copy { key, to } => vec![
                words(&[b"GET", names[*key]]),
                words(&[b"COPY", names[*key], names[*to], b"REPLACE"]),
            ],
            Action::Swap { key, number } => vec![
                words(&[b"WATCH", names[*key]]),
                words(&[b"GET", names[*key]]),
                words(&[b"MULTI"]),
                words(&[b"SET", names[*key], &text(*number)]),
                words(&[b"EXEC"]),
            ],
            Action::FlushAll => vec![words(&[b"FLUSHALL"])],
        }
    }

    /// What its replies say. `all`: how many keys there are.
    pub fn answered(&self, replies: &[Value], longest: usize, all: usize) -> Vec<KeyStatement> {
        let found = |value: &Value| match value {
            Value::Nil => Some(None),
            Value::BulkString(bytes) => Some(Some(decode(bytes, longest).unwrap_or(u64::MAX))),
            _ => None,
        };
        let need = |found: Option<u64>| found.map_or(Need::Absent, Need::Value);
        let (first, last) = (replies.first(), replies.last());
        // Redis says why it has not done it; what is noted of that else is that it may have. Of
        // several commands without a transaction those behind may be carried out.
        if replies.iter().any(is_refusal) {
            return match self {
                Action::Swap { .. } => self.unanswered(all),
                _ => vec![],
            };
        }
        let said = match (self, first, last) {
            (Action::Get(key), Some(value), _) => {
                found(value).map(|found| vec![now(*key, need(found), Effect::Keep)])
            }
            (Action::Set { key, number, ttl_ms }, Some(Value::Okay), _) => {
                let said = now(*key, Need::Any, Effect::Write(*number));
                Some(vec![KeyStatement { lapses: *ttl_ms, ..said }])
            }
            (Action::SetAbsent { key, number }, Some(Value::Int(done)), _) => {
                Some(vec![match done {
                    1 => now(*key, Need::Absent, Effect::Write(*number)),
                    _ => now(*key, Need::Present, Effect::Keep),
                }])
            }
            (Action::Delete(keys), Some(Value::Int(deleted)), _) => {
                let each = |need, effect| keys.iter().map(|key| now(*key, need, effect)).collect();
                Some(match deleted {
                    0 => each(Need::Absent, Effect::Keep),
                    n if *n as usize == keys.len() => each(Need::Present, Effect::Delete),
                    _ => each(Need::Any, Effect::Delete),
                })
            }
            (Action::SetSeveral(each), Some(Value::Okay), _) => {
                let write =
                    |(key, number): &(usize, u64)| now(*key, Need::Any, Effect::Write(*number));
                Some(each.iter().map(write).collect())
            }
            (Action::SetSeveralAbsent(each), Some(Value::Int(1)), _) => {
                let write =
                    |(key, number): &(usize, u64)| now(*key, Need::Absent, Effect::Write(*number));
                Some(each.iter().map(write).collect())
            }
            // One of them was there, and nobody says which.
            (Action::SetSeveralAbsent(each), Some(Value::Int(_)), _) => Some(match &each[..] {
                [(key, _)] => vec![now(*key, Need::Present, Effect::Keep)],
                _ => vec![],
            }),
            (Action::Append { key, number, .. }, _, Some(Value::Int(len))) => {
                let is_new = *len as usize == chunk(*number).len();
                let need = if is_new { Need::Absent } else { Need::Present };
                Some(vec![now(*key, need, Effect::Append(*number))])
            }
            (Action::Add { key, number, may_expire }, Some(Value::Int(sum)), _) => {
                let added = added(*key, *number, *sum);
                // A new one lives for ever.
                let lapses = (*may_expire && added.need != Need::Absent).then_some(0);
                Some(vec![KeyStatement { lapses, ..added }])
            }
            (Action::Add { key, .. }, Some(Value::ServerError(_)), _) => {
                Some(vec![now(*key, Need::Present, Effect::Keep)])
            }
            (Action::Count { key, number }, Some(Value::Int(deleted)), Some(Value::Int(sum))) => {
                Some(vec![was_there(*key, *deleted), added(*key, *number, *sum)])
            }
            (Action::SetRange { key, number }, Some(Value::Int(deleted)), Some(Value::Int(_))) => {
                let write = now(*key, Need::Absent, Effect::Write(*number));
                Some(vec![was_there(*key, *deleted), write])
            }
            (Action::Take(key), Some(value), _) => found(value).map(|found| {
                let effect = if found.is_some() { Effect::Delete } else { Effect::Keep };
                vec![now(*key, need(found), effect)]
            }),
            (Action::Shorten { key, ttl_ms }, Some(value), Some(Value::Int(is_shorter))) => {
                found(value).map(|found| {
                    let seen = now(*key, need(found), Effect::Keep);
                    // Else there is none, or it lives for no longer as it is.
                    let is_shorter = found.is_some() && *is_shorter == 1;
                    let goes = is_shorter.then(|| goes_after(*ttl_ms, *key, need(found)));
                    [seen].into_iter().chain(goes).collect()
                })
            }
            (Action::GetExpiring { key, ttl_ms }, Some(value), _) => found(value).map(|found| {
                let seen = now(*key, need(found), Effect::Keep);
                let goes = found.map(|_| goes_after(*ttl_ms, *key, need(found)));
                [seen].into_iter().chain(goes).collect()
            }),
            (Action::Persist(key), Some(Value::Int(1)), _) => {
                Some(vec![now(*key, Need::Present, Effect::Keep)])
            }
            (Action::Persist(_), Some(Value::Int(_)), _) => Some(vec![]),
            (Action::Rename { key, .. } | Action::Copy { key, .. }, Some(Value::Nil), Some(_)) => {
                Some(vec![now(*key, Need::Absent, Effect::Keep)])
            }
            (Action::Rename { key, to }, Some(value), Some(Value::Okay)) => {
                found(value).flatten().map(|value| {
                    vec![now(*key, Need::Value(value), Effect::Delete), moved(*to, value)]
                })
            }
            (Action::Copy { key, to }, Some(value), Some(Value::Int(1))) => found(value)
                .flatten()
                .map(|value| vec![now(*key, Need::Value(value), Effect::Keep), moved(*to, value)]),
            (Action::Swap { key, number }, _, Some(done)) if replies.len() == self.replies() => {
                let effect = match done {
                    Value::Array(_) => Some(Effect::Write(*number)),
                    // Somebody has written it since it was watched.
                    Value::Nil => Some(Effect::Keep),
                    _ => None,
                };
                let found = found(&replies[1]);
                found.zip(effect).map(|(found, effect)| vec![now(*key, need(found), effect)])
            }
            (Action::FlushAll, Some(Value::Okay), _) => {
                Some((0..all).map(|key| now(key, Need::Any, Effect::Delete)).collect())
            }
            _ => None,
        };
        said.unwrap_or_else(|| self.unanswered(all))
    }

    /// What may become of it without an answer.
    pub fn unanswered(&self, all: usize) -> Vec<KeyStatement> {
        let write = |key: &usize, number: &u64| any_time(*key, Need::Any, Effect::Write(*number));
        match self {
            Action::Get(_) | Action::Persist(_) => vec![],
            Action::Set { key, number, ttl_ms } => {
                vec![KeyStatement { lapses: *ttl_ms, ..write(key, number) }]
            }
            Action::SetAbsent { key, number } => {
                vec![any_time(*key, Need::Absent, Effect::Write(*number))]
            }
            Action::Delete(keys) => {
                keys.iter().map(|key| any_time(*key, Need::Present, Effect::Delete)).collect()
            }
            Action::SetSeveral(each) => each.iter().map(|(key, n)| write(key, n)).collect(),
            Action::SetSeveralAbsent(each) => {
                let write = |(key, number): &(usize, u64)| {
                    any_time(*key, Need::Absent, Effect::Write(*number))
                };
                each.iter().map(write).collect()
            }
            Action::Append { key, number, .. } => {
                vec![any_time(*key, Need::Any, Effect::Append(*number))]
            }
            // What it comes to may go, and nobody can tell what that is.
            Action::Add { key, may_expire: true, .. } => vec![lost_sight(*key)],
            Action::Add { key, number, .. } => {
                vec![any_time(*key, Need::Any, Effect::Add(*number))]
            }
            Action::Count { key, number } => {
                vec![any_time(*key, Need::Any, Effect::Write(counter(*number)))]
            }
            Action::SetRange { key, number } | Action::Swap { key, number } => {
                vec![write(key, number)]
            }
            Action::Take(key) => vec![any_time(*key, Need::Present, Effect::Delete)],
            Action::Shorten { key, ttl_ms } | Action::GetExpiring { key, ttl_ms } => {
                vec![goes_after(*ttl_ms, *key, Need::Present)]
            }
            Action::Rename { key, to } => {
                vec![any_time(*key, Need::Present, Effect::Delete), lost_sight(*to)]
            }
            Action::Copy { to, .. } => vec![lost_sight(*to)],
            Action::FlushAll => {
                (0..all).map(|key| any_time(key, Need::Present, Effect::Delete)).collect()
            }
        }
    }
}

/// A counter came to `sum` by `number`.
fn added(key: usize, number: u64, sum: i64) -> KeyStatement {
    let (sum, effect) = (sum as u64, Effect::Write(counter(sum as u64)));
    match sum.checked_sub(number) {
        Some(0) | None => now(key, Need::Absent, effect),
        Some(before) => now(key, Need::Value(counter(before)), effect),
    }
}

/// DEL has said how many it deleted, of one key.
fn was_there(key: usize, deleted: i64) -> KeyStatement {
    match deleted {
        0 => now(key, Need::Absent, Effect::Keep),
        _ => now(key, Need::Present, Effect::Delete),
    }
}

/// A value came from another key, with what is left of its life.
fn moved(to: usize, value: u64) -> KeyStatement {
    KeyStatement { lapses: Some(0), ..now(to, Need::Any, Effect::Write(value)) }
}

/// Whether Redis says that it does not carry out anything at the moment.
fn is_refusal(reply: &Value) -> bool {
    let codes = ["LOADING", "OOM", "READONLY", "MISCONF", "BUSY", "NOPERM", "NOAUTH", "TRYAGAIN"];
    matches!(reply, Value::ServerError(error) if codes.contains(&error.code()))
}
