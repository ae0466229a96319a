//! What a command may do to the copy of a string.

/// What a command may do to copies of strings, which are all that is ever copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It reads strings, or whether and for how long there is a key; it changes nothing.
    StringRead,
    /// It cannot change a string: it reads, it is about another type, or about no key.
    OtherType,
    /// It may change a string, or put any type in a string's place: the keys that it names as such
    /// are held while it is carried out.
    Write,
    /// It may change any key: every copy is called back first.
    WholeDatabase,
    /// It changes the state of its connection, so that what follows means something else.
    Connection,
}

const STRING_READS: &[&str] = &[
    "exists",
    "expiretime",
    "get",
    "getrange",
    "mget",
    "pexpiretime",
    "pttl",
    "strlen",
    "substr",
    "ttl",
    "type",
];

/// Flagged as writes, and of another type: on a string they are errors.
const OTHER_TYPES: &[&str] = &[
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    // Libraries of scripts are no keys.
    "function",
    "geoadd",
    "hdel",
    "hexpire",
    "hexpireat",
    "hgetdel",
    "hgetex",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hset",
    "hsetex",
    "hsetnx",
    "linsert",
    "lmove",
    "lmpop",
    "lpop",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "rpop",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "smove",
    "spop",
    "srem",
    "xack",
    "xackdel",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xdelex",
    "xgroup",
    "xreadgroup",
    "xsetid",
    "xtrim",
    "zadd",
    "zincrby",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Not flagged as writes by every Redis, and they may write what they name.
const WRITES: &[&str] = &[
    "eval", "evalsha", "fcall", // It may note in the string how many there are.
    "pfcount", "pfdebug",
];

const WHOLE_DATABASES: &[&str] = &["debug", "flushall", "flushdb", "swapdb"];

const CONNECTIONS: &[&str] = &[
    "asking",
    "auth",
    "client",
    "discard",
    "exec",
    "hello",
    "monitor",
    "multi",
    "psubscribe",
    "psync",
    "punsubscribe",
    "quit",
    "readonly",
    "readwrite",
    "replconf",
    "reset",
    "select",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "sync",
    "unsubscribe",
    "unwatch",
    "watch",
];

/// Whether a command of this name, in lower case, may write what it names, also where its server
/// does not flag it so.
pub(crate) fn is_known_to_write(name: &str) -> bool {
    WRITES.contains(&name)
}

impl Class {
    /// Whether a command of this name, in whatever case, is about the connection that it comes by.
    pub fn is_of_connections(name: &[u8]) -> bool {
        CONNECTIONS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// Of a command by its name in lower case, and what the server's `COMMAND` says of it.
    pub(crate) fn of(name: &str, is_write: bool, names_keys: bool) -> Class {
        let has = |list: &[&str]| list.contains(&name);
        if has(STRING_READS) {
            Class::StringRead
        } else if has(CONNECTIONS) {
            Class::Connection
        } else if has(WHOLE_DATABASES) {
            Class::WholeDatabase
        } else if has(OTHER_TYPES) {
            Class::OtherType
        } else if has(WRITES) {
            Class::Write
        } else {
            match (is_write, names_keys) {
                (false, _) => Class::OtherType,
                (true, true) => Class::Write,
                (true, false) => Class::WholeDatabase,
            }
        }
    }
}
