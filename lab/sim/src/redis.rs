//! What a Redis makes of commands on strings, over the backend that a store asks, too: words in,
//! the bytes of a reply out.
//!
//! Redis knows no versions. A value that a command writes has the version of what was there before,
//! until the store gives it one of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use store::backend::{Answer, Backend, Key, Put};
use wire::KeyHash;

/// The version of a key that never had one.
pub const FIRST_VERSION: u64 = 1;

/// A command, with those of its words that are keys.
#[derive(Clone, Debug)]
pub struct RedisCommand {
    /// All of its words.
    pub words: Vec<Vec<u8>>,
    /// Which of them are keys: what each is called there, and whose it is.
    pub keys: Vec<RedisKey>,
}

/// A key, and which word of a command it is.
#[derive(Clone, Debug)]
pub struct RedisKey {
    /// The word.
    pub index: usize,
    /// Whose key it is.
    pub tenant: u32,
    /// The hash of its bytes.
    pub hash: KeyHash,
}

/// Keys that commands have written since the store has last given them versions, with their bytes.
pub type Unversioned = BTreeMap<(u32, KeyHash), Vec<u8>>;

/// Every key that was ever written, whoever did that, and how often.
#[derive(Default)]
pub struct WrittenKeys(BTreeMap<(u32, KeyHash), WrittenKey>);

struct WrittenKey {
    bytes: Vec<u8>,
    changes: u64,
}

impl WrittenKeys {
    /// A key has been written, or removed.
    pub fn count(&mut self, key: Key<'_>) {
        let of = (key.tenant, key.hash);
        let new = || WrittenKey { bytes: key.bytes.into(), changes: 0 };
        self.0.entry(of).or_insert_with(new).changes += 1;
    }

    /// The bytes of one.
    pub fn bytes(&self, of: (u32, KeyHash)) -> Option<&[u8]> {
        self.0.get(&of).map(|key| &key.bytes[..])
    }

    /// All of them.
    pub fn keys(&self) -> impl Iterator<Item = (u32, KeyHash)> {
        self.0.keys().copied()
    }

    /// How often a key was written or removed.
    fn changes(&self, tenant: u32, hash: KeyHash) -> u64 {
        self.0.get(&(tenant, hash)).map_or(0, |key| key.changes)
    }
}

/// Redis, while it carries out a command.
pub struct Redis<'a> {
    /// Its data.
    pub backend: &'a mut dyn Backend,
    /// What becomes of its versions.
    pub unversioned: &'a mut Unversioned,
    /// FLUSHALL goes through them, and EXEC asks how often those were written that it watches.
    pub written: &'a mut WrittenKeys,
    /// Its clock.
    pub now_ns: u64,
}

/// What a watched key was, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedState {
    changes: u64,
    /// To a read of it.
    reply: Vec<u8>,
}

/// What is under a key.
pub struct StoredValue {
    /// The value.
    pub value: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// How long it lives yet, in milliseconds; 0: for ever.
    pub left_ms: u32,
}

impl Redis<'_> {
    /// Carries a command out.
    pub fn carry_out(&mut self, command: &RedisCommand) -> Vec<u8> {
        let words: Vec<&[u8]> = command.words.iter().map(|word| &word[..]).collect();
        let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let key = |index: usize| {
            let at = command.keys.iter().find(|key| key.index == index)?;
            let bytes = wire::key_of_backend_name(words.get(index)?).1;
            Some(Key { tenant: at.tenant, hash: at.hash, bytes })
        };
        let keys = || command.keys.iter().filter_map(|at| key(at.index));
        let Some(first) = key(1) else {
            return match &name[..] {
                b"flushall" => self.flush(),
                _ => b"-ERR unknown command\r\n".to_vec(),
            };
        };
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        let number = |index: usize| str::from_utf8(word(index)).ok()?.parse::<u64>().ok();
        match (&name[..], words.len()) {
            (b"get", _) => bulk(self.get(first).map(|found| found.value)),
            (b"set", _) => {
                let ttl_ms = if word(3).eq_ignore_ascii_case(b"px") { number(4) } else { None };
                self.put(first, Some(word(2)), ttl_ms.unwrap_or(0) as u32);
                b"+OK\r\n".to_vec()
            }
            (b"setnx", _) => {
                let is_new = self.get(first).is_none();
                if is_new {
                    self.put(first, Some(word(2)), 0);
                }
                integer(is_new.into())
            }
            (b"del", _) => integer(keys().filter(|key| self.remove(*key)).count() as u64),
            (b"mset", _) => {
                for at in &command.keys {
                    key(at.index).into_iter().for_each(|key| {
                        self.put(key, Some(word(at.index + 1)), 0);
                    });
                }
                b"+OK\r\n".to_vec()
            }
            (b"msetnx", _) => {
                let are_new = keys().all(|key| self.get(key).is_none());
                for at in command.keys.iter().filter(|_| are_new) {
                    key(at.index).into_iter().for_each(|key| {
                        self.put(key, Some(word(at.index + 1)), 0);
                    });
                }
                integer(are_new.into())
            }
            (b"append", _) => {
                let (mut value, left_ms) = self.value(first);
                value.extend_from_slice(word(2));
                self.put(first, Some(&value), left_ms);
                integer(value.len() as u64)
            }
            (b"setrange", _) => {
                let (mut value, left_ms) = self.value(first);
                let from = number(2).unwrap_or(0) as usize;
                let end = from + word(3).len();
                value.resize(value.len().max(end), 0);
                value[from..end].copy_from_slice(word(3));
                self.put(first, Some(&value), left_ms);
                integer(value.len() as u64)
            }
            (b"incrby", _) => {
                let found = self.get(first);
                let left_ms = found.as_ref().map_or(0, |found| found.left_ms);
                let before = match &found {
                    None => Some(0),
                    Some(found) => str::from_utf8(&found.value).ok().and_then(|t| t.parse().ok()),
                };
                let sum = before.zip(number(2)).and_then(|(a, b): (u64, u64)| a.checked_add(b));
                let Some(sum) = sum.filter(|sum| i64::try_from(*sum).is_ok()) else {
                    return b"-ERR value is not an integer or out of range\r\n".to_vec();
                };
                self.put(first, Some(sum.to_string().as_bytes()), left_ms);
                integer(sum)
            }
            (b"getdel", _) => {
                let found = self.get(first).map(|found| found.value);
                self.remove(first);
                bulk(found)
            }
            (b"getex", _) => {
                let found = self.get(first).map(|found| found.value);
                if let (Some(value), Some(ttl_ms)) = (&found, number(3)) {
                    self.put(first, Some(value), ttl_ms as u32);
                }
                bulk(found)
            }
            (b"pexpire", _) => {
                let ttl_ms = number(2).unwrap_or(0) as u32;
                let is_less = word(3).eq_ignore_ascii_case(b"lt");
                let found = self.get(first);
                let found =
                    found.filter(|found| !is_less || found.left_ms == 0 || ttl_ms < found.left_ms);
                if let Some(found) = &found {
                    self.put(first, Some(&found.value), ttl_ms);
                }
                integer(found.is_some().into())
            }
            (b"persist", _) => {
                let found = self.get(first).filter(|found| found.left_ms > 0);
                if let Some(found) = &found {
                    self.put(first, Some(&found.value), 0);
                }
                integer(found.is_some().into())
            }
            (moves @ (b"rename" | b"copy"), _) => {
                let (found, to) = (self.get(first), key(2));
                let (Some(found), Some(to)) = (found, to) else {
                    return match moves {
                        b"copy" => integer(0),
                        _ => b"-ERR no such key\r\n".to_vec(),
                    };
                };
                self.put(to, Some(&found.value), found.left_ms);
                if moves == b"copy" {
                    return integer(1);
                }
                self.remove(first);
                b"+OK\r\n".to_vec()
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    }

    /// What a transaction that watches a key compares: the key may have again what it had, and have
    /// been changed all the same. A key that is over was changed by nobody, and has nothing now.
    pub fn watched_state(&mut self, read: &RedisCommand) -> WatchedState {
        let of = read.keys.iter().find(|key| key.index == 1);
        let changes = of.map_or(0, |key| self.written.changes(key.tenant, key.hash));
        WatchedState { changes, reply: self.carry_out(read) }
    }

    fn flush(&mut self) -> Vec<u8> {
        let all = self.written.0.iter();
        let all: Vec<_> = all.map(|(of, key)| (*of, key.bytes.clone())).collect();
        for ((tenant, hash), bytes) in all {
            self.remove(Key { tenant, hash, bytes: &bytes });
        }
        b"+OK\r\n".to_vec()
    }

    /// What is under a key.
    pub fn get(&mut self, key: Key<'_>) -> Option<StoredValue> {
        let Answer::Now(found) = self.backend.get(key, self.now_ns, 0) else { return None };
        found.map(|item| StoredValue {
            value: item.value.to_vec(),
            version: item.version,
            left_ms: item.expiry_ms,
        })
    }

    /// A value, or none, and how long it lives yet.
    fn value(&mut self, key: Key<'_>) -> (Vec<u8>, u32) {
        self.get(key).map(|found| (found.value, found.left_ms)).unwrap_or_default()
    }

    fn put(&mut self, key: Key<'_>, value: Option<&[u8]>, ttl_ms: u32) {
        let before = self.get(key).map(|found| found.version);
        if before.is_some() || value.is_some() {
            self.written.count(key);
        }
        let version = before.unwrap_or(FIRST_VERSION);
        let value = value.map(Bytes::copy_from_slice);
        let put = Put { ttl_ms, value: value.as_ref(), ..Put::removal(version) };
        self.backend.put(key, put, self.now_ns, 0);
        self.unversioned.insert((key.tenant, key.hash), key.bytes.into());
    }

    fn remove(&mut self, key: Key<'_>) -> bool {
        let is_there = self.get(key).is_some();
        self.put(key, None, 0);
        is_there
    }
}

fn integer(number: u64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn bulk(value: Option<Vec<u8>>) -> Vec<u8> {
    let Some(value) = value else { return b"$-1\r\n".to_vec() };
    [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
}
