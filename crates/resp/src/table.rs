//! The commands that a server has, by its own `COMMAND`.

use hashbrown::HashMap;
use redis::Value;

use crate::{
    class::{Class, is_known_to_write},
    keys::{Finding, KeySpec, Search},
};

/// Longest name of a command that is looked up; no server has any that is longer.
const MAX_NAME: usize = 64;

/// Why an answer to `COMMAND` is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It is no reply at all.
    #[error("the answer to COMMAND is no reply: {0}")]
    Reply(#[from] redis::RedisError),
    /// It is an error, or not what COMMAND answers.
    #[error("the answer to COMMAND is not a list of commands: {0}")]
    Shape(String),
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// In lower case; of a subcommand with its container's: `config|get`.
    pub name: String,
    /// Words, its name included; negative: at least so many.
    pub arity: i32,
    /// As the server names them, in lower case.
    pub flags: Vec<String>,
    /// What the server advises those who spread commands over several servers, such as
    /// `request_policy:all_shards`. Servers before 7.0 advise nothing.
    pub tips: Vec<String>,
    /// What it may do to copies.
    pub class: Class,
    /// Whether it may keep its connection waiting until others do something.
    pub is_blocking: bool,
    /// Where its keys stand.
    pub(crate) keys: Vec<KeySpec>,
    /// The server does not say where all of its keys stand, and it may change what is there.
    pub(crate) keys_are_unsaid: bool,
    /// The server does not say where all of its keys stand.
    pub(crate) is_vague: bool,
    subcommands: HashMap<String, Command>,
}

impl Command {
    /// Whether a command of so many words is possible.
    pub fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        words == least || (self.arity < 0 && words > least)
    }

    /// Whether the server flags it so.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|has| has == flag)
    }

    /// Whether it may have done something when no answer comes, so that it is not to be repeated.
    /// Servers do not flag scripts and messages as writes.
    pub fn has_effects(&self) -> bool {
        matches!(self.class, Class::Write | Class::WholeDatabase)
            || self.has_flag("write")
            || self.has_flag("pubsub")
    }

    /// What the server advises under this name, such as `request_policy`.
    pub fn tip(&self, name: &str) -> Option<&str> {
        self.tips.iter().find_map(|tip| tip.strip_prefix(name)?.strip_prefix(':'))
    }

    /// Whether every key that it touches is among its [keys](Command::keys), the keys of patterns
    /// (SORT BY, GET) left out.
    pub fn says_all_keys(&self) -> bool {
        // Where these have others than the first, it is known (`named_keys`).
        let is_known = ["sort", "sort_ro", "georadius", "georadiusbymember"];
        !self.is_vague || is_known.contains(&&self.name[..])
    }

    /// Whether it runs a script that may change keys which the command does not name.
    pub fn runs_script(&self) -> bool {
        ["eval", "evalsha", "fcall"].contains(&&self.name[..])
    }

    /// Its subcommand of this name, in whatever case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Command> {
        let mut room = [0; MAX_NAME];
        self.subcommands.get(lower(name, &mut room)?)
    }

    /// All of its subcommands.
    pub fn subcommands(&self) -> impl Iterator<Item = &Command> {
        self.subcommands.values()
    }
}

/// The commands that a server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandTable {
    commands: HashMap<String, Command>,
}

impl CommandTable {
    /// From the bytes of a whole reply to `COMMAND`, in RESP2 or RESP3.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn parse(reply: &[u8]) -> Result<CommandTable, TableError> {
        CommandTable::of(&redis::parse_redis_value(reply)?)
    }

    /// From a reply to `COMMAND`.
    ///
    /// # Errors
    /// [`TableError::Shape`].
    pub fn of(reply: &Value) -> Result<CommandTable, TableError> {
        let rows = list(reply).ok_or_else(|| TableError::Shape(short(reply)))?;
        let commands = rows.iter().map(|row| {
            let command = command(row, None).ok_or_else(|| TableError::Shape(short(row)))?;
            Ok((command.name.clone(), command))
        });
        Ok(CommandTable { commands: commands.collect::<Result<_, TableError>>()? })
    }

    /// The command of this name, in whatever case.
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let mut room = [0; MAX_NAME];
        self.commands.get(lower(name, &mut room)?)
    }

    /// The command that these words are of: the subcommand, if there is one of that name.
    pub fn find_of(&self, words: crate::Words<'_>) -> Option<&Command> {
        let command = self.find(words.get(0)?)?;
        let subcommand = words.get(1).filter(|_| !command.subcommands.is_empty());
        Some(subcommand.and_then(|name| command.subcommand(name)).unwrap_or(command))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Command> {
        self.commands.values()
    }

    /// How many there are, subcommands not counted.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// A name in lower case; `None` if it is longer than any.
fn lower<'a>(name: &[u8], room: &'a mut [u8; MAX_NAME]) -> Option<&'a str> {
    let room = room.get_mut(..name.len())?;
    room.copy_from_slice(name);
    room.make_ascii_lowercase();
    std::str::from_utf8(room).ok()
}

fn short(value: &Value) -> String {
    format!("{value:?}").chars().take(100).collect()
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    let bytes = match value {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.as_bytes(),
        Value::VerbatimString { text, .. } => text.as_bytes(),
        Value::Okay => b"OK",
        _ => return None,
    };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// A field of a map: of RESP3, or flat as in RESP2.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |key: &Value| text(key).is_some_and(|key| key == name);
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
        Value::Array(flat) => {
            flat.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
        }
        _ => None,
    }
}

/// A row of the answer. `container`: it is a subcommand of this class.
fn command(row: &Value, container: Option<Class>) -> Option<Command> {
    let row = list(row)?;
    let name = text(row.first()?)?.to_ascii_lowercase();
    let arity = number(row.get(1)?)? as i32;
    let flags = list(row.get(2)?)?.iter().filter_map(text);
    let flags: Vec<String> = flags.map(|flag| flag.to_ascii_lowercase()).collect();
    let has = |flag: &str| flags.iter().any(|has| has == flag);
    let is_write = has("write");
    let positions = (number(row.get(3)?)?, number(row.get(4)?)?, number(row.get(5)?)?);
    // Servers before 7.0 say neither specifications nor subcommands.
    let said = row.get(8).and_then(list);
    let may_write = is_write || is_known_to_write(&name);
    // They have their keys behind a number, which positions cannot say.
    let is_script = ["eval", "evalsha"].contains(&&*name);
    let legacy = || match is_script {
        true => {
            let finding = Finding::Count { at: 0, first: 1, step: 1 };
            vec![KeySpec { search: Search::Index(2), finding, may_change: true }]
        }
        false => legacy_spec(positions, may_write).into_iter().collect(),
    };
    let (keys, is_unsaid) = match said {
        Some(specs) => {
            let is_vague = |spec: &Value| {
                let flags = field(spec, "flags").and_then(list).unwrap_or_default();
                let incomplete = flags.iter().filter_map(text).any(|flag| flag == "incomplete");
                incomplete || key_spec(spec).is_some_and(|spec| spec.is_unknown())
            };
            (specs.iter().filter_map(key_spec).collect(), specs.iter().any(is_vague))
        }
        None => (legacy(), has("movablekeys") && !is_script),
    };
    let own = Class::of(&name, is_write, !keys.is_empty() || positions.0 > 0 || is_unsaid);
    let class = match container {
        Some(Class::StringRead) | None => own,
        Some(Class::OtherType) if own == Class::Write || own == Class::WholeDatabase => {
            Class::OtherType
        }
        Some(Class::OtherType) => own,
        Some(container) => container,
    };
    let tips = row.get(7).and_then(list).unwrap_or_default().iter().filter_map(text).collect();
    let subcommands = row.get(9).and_then(list).unwrap_or_default().iter().filter_map(|row| {
        let command = command(row, Some(class))?;
        let short = command.name.rsplit('|').next()?.to_owned();
        Some((short, command))
    });
    let subcommands = subcommands.collect();
    let is_blocking = has("blocking");
    let keys_are_unsaid = is_unsaid && may_write;
    Some(Command {
        name,
        arity,
        flags,
        tips,
        class,
        is_blocking,
        keys,
        keys_are_unsaid,
        is_vague: is_unsaid,
        subcommands,
    })
}

/// By the positions of the first and the last key and the step between.
fn legacy_spec((first, last, step): (i64, i64, i64), may_change: bool) -> Option<KeySpec> {
    let first_index = usize::try_from(first).ok().filter(|first| *first > 0)?;
    let last = if last < 0 { last } else { last - first };
    let step = usize::try_from(step).unwrap_or(1);
    let finding = Finding::Range { last, step, limit: 0 };
    Some(KeySpec { search: Search::Index(first_index), finding, may_change })
}

/// A specification of keys; `None` if its words are none, as the channels of SPUBLISH are.
fn key_spec(spec: &Value) -> Option<KeySpec> {
    let flags = field(spec, "flags").and_then(list).unwrap_or_default();
    let flags: Vec<String> = flags.iter().filter_map(text).collect();
    let has = |flag: &str| flags.iter().any(|has| has.eq_ignore_ascii_case(flag));
    if has("not_key") {
        return None;
    }
    let at = |value: Option<&Value>, name: &str| {
        value.and_then(|value| field(value, name)).and_then(number).unwrap_or_default()
    };
    let count =
        |value: Option<&Value>, name: &str| usize::try_from(at(value, name)).unwrap_or_default();
    let part = |name: &str| {
        let part = field(spec, name)?;
        Some((text(field(part, "type")?)?, field(part, "spec")))
    };
    let search = match part("begin_search") {
        Some((kind, of)) if kind == "index" => Search::Index(count(of, "index")),
        Some((kind, of)) if kind == "keyword" => {
            let keyword = of.and_then(|of| field(of, "keyword")).and_then(text);
            Search::Keyword(keyword.unwrap_or_default().into(), at(of, "startfrom"))
        }
        _ => Search::Unknown,
    };
    let finding = match part("find_keys") {
        Some((kind, of)) if kind == "range" => Finding::Range {
            last: at(of, "lastkey"),
            step: count(of, "keystep"),
            limit: count(of, "limit"),
        },
        Some((kind, of)) if kind == "keynum" => Finding::Count {
            at: count(of, "keynumidx"),
            first: count(of, "firstkey"),
            step: count(of, "keystep"),
        },
        _ => Finding::Unknown,
    };
    Some(KeySpec { search, finding, may_change: !has("ro") })
}

impl KeySpec {
    fn is_unknown(&self) -> bool {
        self.search == Search::Unknown || self.finding == Finding::Unknown
    }
}
