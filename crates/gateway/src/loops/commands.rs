//! What becomes of a command, by its name: which way it may go, and what it does to its
//! connection. What commands there are, what they may do and where their keys stand, the server
//! behind the store has said (`COMMAND`).

use std::sync::Arc;

use hashbrown::HashMap;
use resp::{Class, CommandTable, KeyWord, Words};

use super::joint::Join;
use crate::stats::{OTHERS, Stats};

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
    /// Waits until others have what the connection has written.
    Wait,
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

/// What a read asks of one key, as far as a copy of its value has the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalRead {
    Exists,
    Length,
    Range,
    Type,
}

/// What the gateway knows of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub act: Act,
    /// What of it a copy may answer; GET apart.
    pub local: Option<LocalRead>,
    /// Its row.
    pub row: u16,
    /// Whether it may have been carried out when no answer comes.
    pub writes: bool,
    /// Whether its answer tells that it has written something of which replicas are told.
    pub tells_of_writes: bool,
    /// Whether it is a message to whoever has subscribed.
    pub publishes: bool,
    /// Whether it may wait for as long as it likes for what others do.
    pub may_block: bool,
}

/// Commands by which the gateway itself does something, or of which no server says enough.
const SPECIAL: &[(&str, Act)] = &[
    ("get", Act::Get),
    ("multi", Act::Multi),
    ("exec", Act::Exec),
    ("discard", Act::Exec),
    ("watch", Act::Watch),
    ("unwatch", Act::Unwatch),
    ("client", Act::Client),
    ("hello", Act::Hello),
    ("auth", Act::Auth),
    ("select", Act::Select),
    ("reset", Act::Reset),
    ("quit", Act::Quit),
    ("info", Act::Info),
    // They take as long as somebody else does.
    ("debug", Act::Own),
    ("migrate", Act::Own),
    ("wait", Act::Wait),
    ("waitaof", Act::Wait),
    // With DEBUG it changes what its connection is, which the store refuses.
    ("script", Act::Store),
];

/// Reads of one key that a copy of its value may answer.
const LOCAL: &[(&str, LocalRead)] = &[
    ("exists", LocalRead::Exists),
    ("strlen", LocalRead::Length),
    ("getrange", LocalRead::Range),
    ("substr", LocalRead::Range),
    ("type", LocalRead::Type),
];

/// What Redis does not advise to tell all, and yet a user is known to all or to none.
const OF_USERS: [&str; 4] = ["acl|setuser", "acl|deluser", "acl|load", "acl|save"];

/// How the names of those of Redis's commands begin that may wait for what others do, and of no
/// others: by them they are known while no server has said what it has.
const BLOCKING: [&str; 4] = ["bl", "br", "bz", "xread"];

/// Longest name that is looked up in place.
const MAX_NAME: usize = 32;

/// Every command that is known, by name.
pub(super) struct Commands {
    by_name: HashMap<Box<[u8]>, Command>,
    table: Arc<CommandTable>,
    get: Command,
    set: Command,
}

impl Commands {
    /// Those of a server. An empty table: none is known but those by which the gateway does
    /// something itself.
    pub fn new(table: Arc<CommandTable>, stats: &Stats) -> Commands {
        let mut by_name = HashMap::new();
        for (name, act) in SPECIAL {
            let writes = matches!(act, Act::Exec | Act::Own | Act::Store);
            let row = stats.row(name);
            let (tells_of_writes, publishes) = (false, false);
            let may_block = *act == Act::Wait;
            let command = Command {
                act: *act,
                local: None,
                row,
                writes,
                tells_of_writes,
                publishes,
                may_block,
            };
            by_name.insert(name.as_bytes().into(), command);
        }
        for command in table.iter().filter(|command| command.name.len() <= MAX_NAME) {
            let (act, writes) = by_class(command);
            let local = LOCAL.iter().find(|(name, _)| *name == command.name);
            let local = local.map(|(_, local)| *local).filter(|_| act == Act::Plain && !writes);
            let row = stats.row(&command.name);
            let publishes = matches!(&command.name[..], "publish" | "spublish");
            let tells_of_writes = resp::tells_of_writes(&command.name);
            let may_block = command.is_blocking;
            let new = Command { act, local, row, writes, tells_of_writes, publishes, may_block };
            by_name.entry(command.name.as_bytes().into()).or_insert(new);
        }
        let known = |name: &[u8]| {
            by_name.get(name).copied().unwrap_or_else(|| unknown(name, !table.is_empty()))
        };
        let (get, set) = (known(b"get"), known(b"set"));
        Commands { by_name, table, get, set }
    }

    /// Whether the server has said what it has.
    pub fn are_known(&self) -> bool {
        !self.table.is_empty()
    }

    /// Whether the server advises those who have several.
    pub fn are_advised(&self) -> bool {
        self.table.iter().any(|command| !command.tips.is_empty())
    }

    /// The words of a command that are keys; `out` is emptied before.
    pub fn keys(&self, words: Words<'_>, out: &mut Vec<KeyWord>) {
        out.clear();
        if let Some(command) = self.table.find_of(words) {
            command.keys(words, out);
        }
    }

    /// Whether all keys that a command touches are among its words that are keys.
    pub fn says_all_keys(&self, words: Words<'_>) -> bool {
        self.table.find_of(words).is_some_and(resp::Command::says_all_keys)
    }

    /// Whether a command is about all keys that there are.
    pub fn is_of_whole_databases(&self, words: Words<'_>) -> bool {
        let command = self.table.find_of(words);
        command.is_some_and(|command| command.class == Class::WholeDatabase)
    }

    /// How the answers of several stores to a command without keys become one; `None`: one store is
    /// enough.
    pub fn spread(&self, words: Words<'_>) -> Option<Join> {
        let command = self.table.find_of(words)?;
        if OF_USERS.contains(&&command.name[..]) {
            return Some(Join::First);
        }
        let request = command.tip("request_policy")?;
        if !matches!(request, "all_shards" | "all_nodes") {
            return None;
        }
        match command.tip("response_policy") {
            None => Some(Join::Lists),
            Some("all_succeeded") => Some(Join::First),
            Some("one_succeeded") => Some(Join::Any(0)),
            Some("agg_sum") => Some(Join::Sum),
            Some("agg_min") => Some(Join::Least),
            Some("agg_logical_and") => Some(Join::All),
            Some(_) => None,
        }
    }

    /// What the gateway does with a command of this name, in whatever case. One that it does not
    /// know may do anything; and while no server has said what it has, wait for ever, or make of
    /// its connection one by which nobody else can be answered.
    pub fn find(&self, name: &[u8]) -> Command {
        match name {
            b"GET" | b"get" => return self.get,
            b"SET" | b"set" => return self.set,
            _ => {}
        }
        let unknown = || unknown(name, self.are_known());
        if name.len() > MAX_NAME {
            return unknown();
        }
        let mut lower = [0; MAX_NAME];
        let lower = &mut lower[..name.len()];
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied().unwrap_or_else(unknown)
    }
}

/// One that is not known: where no server has said what it has, it goes by the client's own
/// connection.
fn unknown(name: &[u8], others_are_known: bool) -> Command {
    let act = match others_are_known {
        true => Act::Store,
        false if Class::is_of_connections(name) => Act::Raw,
        false => Act::Own,
    };
    let (tells_of_writes, publishes) = (false, false);
    let begins = |with: &&str| {
        name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    let may_block = act == Act::Own && BLOCKING.iter().any(begins);
    Command { act, local: None, row: OTHERS, writes: true, tells_of_writes, publishes, may_block }
}

/// How a command goes about which the gateway has nothing of its own to do, and whether it may
/// have changed something when no answer comes.
fn by_class(command: &resp::Command) -> (Act, bool) {
    match command.class {
        Class::Connection => (Act::Raw, true),
        _ if command.is_blocking => (Act::Own, true),
        Class::Write | Class::WholeDatabase => (Act::Store, true),
        Class::StringRead | Class::OtherType => {
            // What whole servers are told by a command without subcommands takes its time.
            let is_slow = command.has_flag("admin");
            let has_writing = || command.subcommands().any(|sub| sub.has_flag("write"));
            let writes = is_slow || command.has_effects() || has_writing();
            (if is_slow { Act::Own } else { Act::Plain }, writes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of COMMAND: name, words, flags, first key, last key, step.
    fn row(name: &str, flags: &[&str], keys: [i64; 3]) -> redis::Value {
        let text = |text: &str| redis::Value::BulkString(text.into());
        let flags = flags.iter().map(|flag| text(flag)).collect();
        let keys = keys.map(redis::Value::Int);
        let head = [text(name), redis::Value::Int(-1), redis::Value::Array(flags)];
        redis::Value::Array(head.into_iter().chain(keys).collect())
    }

    #[test]
    fn what_may_change_a_string_goes_by_the_store() {
        let table = redis::Value::Array(vec![
            row("get", &["readonly"], [1, 1, 1]),
            row("set", &["write"], [1, 1, 1]),
            row("append", &["write"], [1, 1, 1]),
            row("lpush", &["write"], [1, 1, 1]),
            row("blpop", &["write", "blocking"], [1, -2, 1]),
            row("llen", &["readonly"], [1, 1, 1]),
            row("publish", &["pubsub"], [0, 0, 0]),
            row("subscribe", &["pubsub"], [0, 0, 0]),
            row("bgsave", &["admin"], [0, 0, 0]),
            row("flushall", &["write"], [0, 0, 0]),
            row("new.thing", &["write"], [1, 1, 1]),
        ]);
        let stats = Stats::new(64);
        let commands = Commands::new(CommandTable::of(&table).unwrap().into(), &stats);
        let rows = [
            ("GET", Act::Get, false),
            ("gEt", Act::Get, false),
            ("SET", Act::Store, true),
            ("lpush", Act::Plain, true),
            ("LLEN", Act::Plain, false),
            ("blpop", Act::Own, true),
            ("publish", Act::Plain, true),
            ("bgsave", Act::Own, true),
            ("flushall", Act::Store, true),
            ("NEW.thing", Act::Store, true),
            ("APPEND", Act::Store, true),
            ("nosuch", Act::Store, true),
            ("a name that is longer than any that there is", Act::Store, true),
            ("Multi", Act::Multi, false),
            ("subscribe", Act::Raw, true),
        ];
        for (name, act, writes) in rows {
            let found = commands.find(name.as_bytes());
            assert_eq!((found.act, found.writes), (act, writes), "{name}");
        }
        let may_block = |commands: &Commands, name: &str| commands.find(name.as_bytes()).may_block;
        for (name, expected) in [("blpop", true), ("wait", true), ("bgsave", false), ("x", false)] {
            assert_eq!(may_block(&commands, name), expected, "{name}");
        }
        // Before a server has said anything, no command may stand before those of others.
        let commands = Commands::new(Arc::default(), &stats);
        assert!(!commands.are_known());
        let rows = [
            ("GET", Act::Get),
            ("set", Act::Own),
            ("BLPOP", Act::Own),
            ("a name that is longer than any that there is", Act::Own),
            ("MULTI", Act::Multi),
            ("Subscribe", Act::Raw),
            ("monitor", Act::Raw),
        ];
        for (name, act) in rows {
            assert_eq!(commands.find(name.as_bytes()).act, act, "{name}");
        }
        for (name, expected) in
            [("BLPOP", true), ("xreadgroup", true), ("set", false), ("b", false)]
        {
            assert_eq!(may_block(&commands, name), expected, "{name}");
        }
    }
}
