//! What becomes of a command, by its name: which way it may go, and what it does to its
//! connection.

use hashbrown::HashMap;

/// What a command is to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The value of one key: by the network, where it is hot.
    Get,
    /// Touches no string that a copy could be of: straight to the Redis.
    Plain,
    /// May change strings, or we do not know it: by the store.
    Store,
    /// Begins a transaction.
    Multi,
    /// Ends it.
    Exec,
    /// Keys whose change ends the next transaction.
    Watch,
    Unwatch,
    /// Waits, or is about the connection itself, which must be the client's own.
    Own,
    /// Leaves a state behind in which answers and commands do not belong together.
    Raw,
    Client,
    Hello,
    Auth,
    Select,
    Reset,
    Quit,
    Info,
}

/// What the gateway knows of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub act: Act,
    /// Its row.
    pub row: u16,
    /// Whether it may have been carried out when no answer comes.
    pub writes: bool,
}

/// A row of the table: how its commands act, whether they change something, and their names.
type Row = (Act, bool, &'static str);

const ROWS: &[Row] = &[
    (Act::Get, false, "get"),
    (
        Act::Plain,
        false,
        "bitcount bitfield_ro bitpos command config dbsize dump echo eval_ro evalsha_ro exists \
         expiretime fcall_ro geodist geohash geopos georadius_ro georadiusbymember_ro geosearch \
         getbit getrange hexists hget hgetall hkeys hlen hmget hrandfield hscan hstrlen hvals keys \
         lastsave latency lcs lindex llen lolwut lpos lrange memory mget module object pexpiretime \
         pfcount ping pttl pubsub randomkey role scan scard sdiff sinter sintercard sismember \
         slowlog smembers smismember sort_ro srandmember sscan strlen substr sunion time touch ttl \
         type xinfo xlen xpending xrange xrevrange zcard zcount zdiff zinter zintercard zlexcount \
         zmscore zrandmember zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex \
         zrevrangebyscore zrevrank zscan zscore zunion acl",
    ),
    (
        Act::Plain,
        true,
        "geoadd hdel hincrby hincrbyfloat hmset hset hsetnx linsert lmove lpop lmpop lpush lpushx \
         lrem lset ltrim publish rpop rpoplpush rpush rpushx sadd smove spop spublish srem xack \
         xadd xautoclaim xclaim xdel xgroup xsetid xtrim zadd zincrby zmpop zpopmax zpopmin zrem \
         zremrangebylex zremrangebyrank zremrangebyscore",
    ),
    (
        Act::Store,
        true,
        "append bitfield bitop copy decr decrby del eval evalsha expire expireat fcall flushall \
         flushdb function georadius georadiusbymember geosearchstore getdel getex getset incr \
         incrby incrbyfloat mset msetnx move persist pexpire pexpireat pfadd pfmerge psetex rename \
         renamenx restore script sdiffstore set setbit setex setnx setrange sinterstore sort \
         sunionstore swapdb unlink zdiffstore zinterstore zrangestore zunionstore",
    ),
    (Act::Multi, false, "multi"),
    (Act::Exec, true, "exec"),
    (Act::Exec, false, "discard"),
    (Act::Watch, false, "watch"),
    (Act::Unwatch, false, "unwatch"),
    (
        Act::Own,
        true,
        "blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin debug migrate wait waitaof \
         xread xreadgroup save bgsave bgrewriteaof failover shutdown replicaof slaveof cluster",
    ),
    (
        Act::Raw,
        true,
        "asking monitor psubscribe psync readonly readwrite replconf ssubscribe subscribe sync \
         punsubscribe sunsubscribe unsubscribe",
    ),
    (Act::Client, false, "client"),
    (Act::Hello, false, "hello"),
    (Act::Auth, false, "auth"),
    (Act::Select, false, "select"),
    (Act::Reset, false, "reset"),
    (Act::Quit, false, "quit"),
    (Act::Info, false, "info"),
];

/// Longest name that is looked up.
const MAX_NAME: usize = 32;

/// Every command that is known, by name.
pub(crate) struct Commands {
    by_name: HashMap<&'static [u8], Command>,
    names: Vec<&'static str>,
    get: Command,
    set: Command,
}

impl Commands {
    /// The table.
    pub fn new() -> Commands {
        let mut names = vec!["unknown"];
        let mut by_name = HashMap::new();
        for (act, writes, some) in ROWS {
            for name in some.split_whitespace() {
                let row = names.len() as u16;
                names.push(name);
                by_name.insert(name.as_bytes(), Command { act: *act, row, writes: *writes });
            }
        }
        let (get, set) = (by_name[&b"get"[..]], by_name[&b"set"[..]]);
        Commands { by_name, names, get, set }
    }

    /// What the gateway does with a command of this name, in whatever case. One that it does not
    /// know may do anything.
    pub fn find(&self, name: &[u8]) -> Command {
        match name {
            b"GET" | b"get" => return self.get,
            b"SET" | b"set" => return self.set,
            _ => {}
        }
        let unknown = Command { act: Act::Store, row: 0, writes: true };
        if name.len() > MAX_NAME {
            return unknown;
        }
        let mut lower = [0; MAX_NAME];
        let lower = &mut lower[..name.len()];
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied().unwrap_or(unknown)
    }

    /// The names of all rows.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_a_string_goes_by_the_store() {
        let commands = Commands::new();
        let rows = [
            ("GET", Act::Get),
            ("gEt", Act::Get),
            ("lpush", Act::Plain),
            ("APPEND", Act::Store),
            ("nosuch", Act::Store),
            ("a name that is longer than any that there is", Act::Store),
            ("Multi", Act::Multi),
            ("subscribe", Act::Raw),
        ];
        for (name, act) in rows {
            assert_eq!(commands.find(name.as_bytes()).act, act, "{name}");
        }
    }
}
